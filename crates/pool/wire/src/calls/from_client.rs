//! The calls that a client sends to its workers.

#[allow(unused_imports, reason = "the generated module takes what it needs from here")]
use super::*;

calls! {
    /// Calls of a client to its worker.
    mod to_worker / ServeClient;

    // -- contexts and queues ----------------------------------------------------------------------

    /// `clCreateContext` over devices of one platform of the node. Payload: `Vec<u32>`, the
    /// node-wide indices of the devices.
    0x0100 CreateContext [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        context: Id<kind::Context>,
        /// Index of the platform in the node's description.
        platform: U32,
    }
    /// Sent at the last `clReleaseContext`.
    0x0101 ReleaseContext [PayloadRule::None] { context: Id<kind::Context> }
    0x0102 CreateQueue [PayloadRule::None] {
        queue: Id<kind::Queue>,
        context: Id<kind::Context>,
        /// Node-wide index of the device.
        device: U32,
        /// Bits of `CL_QUEUE_PROPERTIES` (`cl_command_queue_properties`).
        properties: U64,
        /// `CL_QUEUE_SIZE`, or 0 if the program gave none.
        size: U32,
        /// Number of a [`crate::TimesOf`].
        times: U32,
    }
    /// Sent at the last `clReleaseCommandQueue`.
    0x0103 ReleaseQueue [PayloadRule::None] { queue: Id<kind::Queue> }
    /// `clFlush`: the worker hands all earlier commands of the queue to the device.
    0x0104 Flush [PayloadRule::None] { queue: Id<kind::Queue> }
    /// `clFinish`. The worker answers when all earlier commands of the queue have ended, and after
    /// it has told their ends. The status of the reply is that of the first command without an
    /// event that failed since the last `Finish`.
    0x0105 Finish -> () [PayloadRule::None] { request: Id<kind::Request>, queue: Id<kind::Queue> }
    /// `clCreateSubDevices`. Payload: `Vec<i64>`, the properties without the terminating 0.
    0x0106 CreateSubDevices -> Vec<crate::describe::DeviceDescription> [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        device: U32,
    }
    /// `clGetDeviceAndHostTimer`. Answered with the clocks of the device and of the worker, in ns.
    0x0107 DeviceTimer -> crate::describe::Timers [PayloadRule::None] { request: Id<kind::Request>, device: U32 }
    0x0108 ImageFormats -> Vec<(u32, u32)> [PayloadRule::None] {
        request: Id<kind::Request>,
        context: Id<kind::Context>,
        /// Value of type `cl_mem_flags`.
        flags: U64,
        /// Value of type `cl_mem_object_type`.
        image_type: U32,
    }
    /// Answered at once. Tests use it on the link; clients use it to learn whether the worker
    /// lives.
    0x0109 Ping -> () [PayloadRule::None] { request: Id<kind::Request> }
    /// Answered with how busy the device is.
    0x010a DeviceSensors -> crate::describe::Sensors [PayloadRule::None] { request: Id<kind::Request>, device: U32 }

    // -- memory -----------------------------------------------------------------------------------

    /// `clCreateBuffer`. The new buffer contains zeros.
    0x0120 CreateBuffer [PayloadRule::None] {
        mem: Id<kind::Mem>,
        context: Id<kind::Context>,
        /// Value of type `cl_mem_flags`, without the flags of host pointers.
        flags: U64,
        size: U64,
    }
    0x0121 CreateSubBuffer [PayloadRule::None] {
        mem: Id<kind::Mem>,
        parent: Id<kind::Mem>,
        flags: U64,
        origin: U64,
        size: U64,
    }
    /// `clCreateImage`. Payload: a [`crate::describe::ImageDescription`].
    0x0122 CreateImage [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        mem: Id<kind::Mem>,
        context: Id<kind::Context>,
        flags: U64,
        /// The buffer or image from which the image is made, or none.
        parent: Id<kind::Mem>,
    }
    0x0123 CreatePipe [PayloadRule::None] {
        mem: Id<kind::Mem>,
        context: Id<kind::Context>,
        flags: U64,
        packet_size: U32,
        packets_max: U32,
    }
    /// Sent at the last `clReleaseMemObject`. Commands that use the object still run.
    0x0124 ReleaseMem [PayloadRule::None] { mem: Id<kind::Mem> }
    /// `clCreateSamplerWithProperties`. Payload: `Vec<u64>`, the properties without the terminating
    /// 0.
    0x0125 CreateSampler [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        sampler: Id<kind::Sampler>,
        context: Id<kind::Context>,
    }
    /// Sent at the last `clReleaseSampler`.
    0x0126 ReleaseSampler [PayloadRule::None] { sampler: Id<kind::Sampler> }
    /// Initial content of a buffer (`CL_MEM_COPY_HOST_PTR`). The worker writes it before it serves
    /// any later call.
    0x0127 InitBuffer [PayloadRule::Stream] { mem: Id<kind::Mem>, offset: U64 }
    /// Initial content of an image, rows and slices without gaps. The worker writes it before it
    /// serves any later call.
    0x0128 InitImage [PayloadRule::Stream] { mem: Id<kind::Mem>, origin: Triple, region: Triple }
    /// `clSVMAlloc` at an address that the client chose, so that the address is the same in both
    /// processes. The status of the reply says whether the worker could take the address.
    0x0129 AllocSvm -> () [PayloadRule::None] {
        request: Id<kind::Request>,
        mem: Id<kind::Mem>,
        context: Id<kind::Context>,
        flags: U64,
        size: U64,
        alignment: U32,
        address: U64,
    }

    /// `clCreateBuffer` in the link's arena, at an offset of whole pages that the client chose.
    /// Requires that the device shares the host's memory and that the client is on this host. The
    /// buffer keeps the bytes that the arena has there. The worker sends [`to_client::MemGone`]
    /// when it no longer holds any part of the buffer.
    0x012a CreateSharedBuffer [PayloadRule::None] {
        mem: Id<kind::Mem>,
        context: Id<kind::Context>,
        flags: U64,
        size: U64,
        offset: U64,
    }
    /// The address that kernels see: a `CUdeviceptr`, or the address from
    /// `cl_ext_buffer_device_address` or shared virtual memory. For a sub-buffer, the address of
    /// its own first byte. Fails with `CL_INVALID_OPERATION` if the device has no such address.
    0x012b MemAddress -> u64 [PayloadRule::None] { request: Id<kind::Request>, mem: Id<kind::Mem> }
    /// Makes a buffer of a variable of a CUDA module, or of a part of one. The variable is one of
    /// those that a build has reported ([`crate::describe::BuildReport`]).
    0x012c CreateVariableBuffer -> () [PayloadRule::None] {
        request: Id<kind::Request>,
        mem: Id<kind::Mem>,
        context: Id<kind::Context>,
        address: U64,
        size: U64,
    }

    // -- symmetric heaps --------------------------------------------------------------------------
    // A member is a worker that has devices (PEs) of the heap. The client creates all members,
    // links each pair of them, starts all of them, and then creates the view of each PE. A reply of
    // `Some(sentence)` says why the call failed; `None` means success.

    /// `clCreateGlobalBufferPENSTOCK`: makes this worker a member of a heap. Payload:
    /// [`crate::describe::HeapPlan`].
    0x0180 CreateHeap -> Option<String> [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        heap: Id<kind::Heap>,
        /// Index of this member.
        me: U32,
        /// Size of each PE's part as the program sees it, in bytes.
        bytes: U64,
        /// Longest time that a kernel may wait inside the heap, in ms.
        timeout_ms: U32,
        /// If not 0, members use the proxy even if they could share memory.
        force_proxy: U32,
    }
    /// Lets in the worker of another member when it presents the ticket. Answered as soon as the
    /// ticket is registered. Payload: the ticket.
    0x0181 AdmitHeapMember -> () [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        heap: Id<kind::Heap>,
        /// Index of the member that will present the ticket.
        member: U32,
    }
    /// Opens the heap's link to another member. Answered when the link is open. Payload:
    /// [`crate::describe::PeerInvitation`].
    0x0182 ConnectHeapMember -> Option<String> [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        heap: Id<kind::Heap>,
        member: U32,
    }
    /// Maps the memory and starts the threads. Sent when all members are linked.
    0x0183 StartHeap -> crate::describe::HeapStarted [PayloadRule::None] {
        request: Id<kind::Request>,
        heap: Id<kind::Heap>,
    }
    /// Makes two buffers of a started heap: the kernel argument for this PE's device (`view`), and
    /// the PE's own part (`part`).
    0x0184 CreateHeapView -> () [PayloadRule::None] {
        request: Id<kind::Request>,
        heap: Id<kind::Heap>,
        pe: U32,
        context: Id<kind::Context>,
        view: Id<kind::Mem>,
        part: Id<kind::Mem>,
    }
    /// Answered with the reason if the heap has been aborted.
    0x0185 HeapStatus -> Option<String> [PayloadRule::None] { request: Id<kind::Request>, heap: Id<kind::Heap> }
    /// `clAbortGlobalBufferPENSTOCK`: ends all waits of kernels in the heap. Payload: the reason, a
    /// text.
    0x0186 AbortHeap [PayloadRule::UpTo(limits::HEAP_REASON_BYTES_MAX)] { heap: Id<kind::Heap> }
    /// Makes a heap usable again after an abort or after a wait that was too long. No kernel may be
    /// using the heap.
    0x0187 ResetHeap -> Option<String> [PayloadRule::None] {
        request: Id<kind::Request>,
        heap: Id<kind::Heap>,
        /// The same number for all members, and larger than that of every earlier reset, including
        /// resets that only some members did.
        generation: U64,
    }
    /// Sent at the last release of a heap. Launches that use it still run.
    0x0188 ReleaseHeap [PayloadRule::None] { heap: Id<kind::Heap> }

    // -- programs and kernels ---------------------------------------------------------------------

    /// `clCreateProgramWithSource`. Payload: the source strings, joined.
    0x0140 CreateProgramWithSource [PayloadRule::UpTo(limits::PROGRAM_BYTES_MAX)] {
        program: Id<kind::Program>,
        context: Id<kind::Context>,
    }
    /// `clCreateProgramWithBinary`. Payload: `Vec<(u32, Vec<u8>)>`, the index of a device and its
    /// binary.
    0x0141 CreateProgramWithBinary -> crate::describe::LoadReport [PayloadRule::UpTo(limits::PROGRAM_BYTES_MAX)] {
        request: Id<kind::Request>,
        program: Id<kind::Program>,
        context: Id<kind::Context>,
    }
    /// `clCreateProgramWithIL`. Payload: the intermediate language.
    0x0142 CreateProgramWithIl [PayloadRule::UpTo(limits::PROGRAM_BYTES_MAX)] {
        program: Id<kind::Program>,
        context: Id<kind::Context>,
    }
    /// `clCreateProgramWithBuiltInKernels`. Payload: a [`crate::describe::BuiltInKernels`].
    0x0143 CreateProgramWithBuiltInKernels -> () [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        program: Id<kind::Program>,
        context: Id<kind::Context>,
    }
    /// Sent at the last `clReleaseProgram`.
    0x0144 ReleaseProgram [PayloadRule::None] { program: Id<kind::Program> }
    /// `clBuildProgram`. Payload: [`crate::describe::BuildOrder`]. The worker serves other calls
    /// while the build runs.
    0x0145 BuildProgram -> crate::describe::BuildReport [PayloadRule::UpTo(limits::PROGRAM_BYTES_MAX)] {
        request: Id<kind::Request>,
        program: Id<kind::Program>,
    }
    /// `clCompileProgram`. Payload: [`crate::describe::BuildOrder`] with the header programs.
    0x0146 CompileProgram -> crate::describe::BuildReport [PayloadRule::UpTo(limits::PROGRAM_BYTES_MAX)] {
        request: Id<kind::Request>,
        program: Id<kind::Program>,
    }
    /// `clLinkProgram`. Payload: [`crate::describe::BuildOrder`] with the inputs. Creates `program`
    /// if linking succeeds.
    0x0147 LinkProgram -> crate::describe::BuildReport [PayloadRule::UpTo(limits::PROGRAM_BYTES_MAX)] {
        request: Id<kind::Request>,
        program: Id<kind::Program>,
        context: Id<kind::Context>,
    }
    /// `clGetProgramInfo(CL_PROGRAM_BINARIES)`. Answered with the node-wide index and the binary of
    /// each device.
    0x0148 ProgramBinaries -> Vec<(u32, Vec<u8>)> [PayloadRule::None] {
        request: Id<kind::Request>,
        program: Id<kind::Program>,
    }
    /// `clSetProgramSpecializationConstant`. Payload: the value.
    0x0149 SetSpecConstant -> () [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        program: Id<kind::Program>,
        spec_id: U32,
    }
    0x014a UnloadCompiler [PayloadRule::None] { platform: U32 }
    /// Whether the driver itself would give descriptions of kernel arguments under the options of
    /// the program's last build. The worker makes the driver keep them in any case.
    0x014b ShowsArgInfo -> bool [PayloadRule::None] { request: Id<kind::Request>, program: Id<kind::Program> }
    /// The files that the next build or compilation of a program includes. Payload:
    /// [`crate::headers::Headers`]. Only with the feature
    /// [`HEADERS`](crate::hello::feature::HEADERS).
    0x014c ProgramHeaders [PayloadRule::UpTo(limits::HEADERS_BYTES_MAX)] {
        program: Id<kind::Program>,
    }
    /// `clCreateKernel`. Payload: the name. The client has already refused names that the build
    /// report does not list.
    0x0150 CreateKernel [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        kernel: Id<kind::Kernel>,
        program: Id<kind::Program>,
    }
    0x0151 CloneKernel [PayloadRule::None] { kernel: Id<kind::Kernel>, source: Id<kind::Kernel> }
    /// Sent at the last `clReleaseKernel`.
    0x0152 ReleaseKernel [PayloadRule::None] { kernel: Id<kind::Kernel> }
    /// `clSetKernelExecInfo`. Payload: the value, unchanged.
    0x0153 SetKernelExecInfo -> () [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        kernel: Id<kind::Kernel>,
        name: U32,
    }
    /// `clGetKernelSubGroupInfo`. Payload: the input value. Answered with the bytes of the output.
    0x0154 KernelSubGroupInfo -> Vec<u8> [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        kernel: Id<kind::Kernel>,
        device: U32,
        name: U32,
        /// Size of the caller's memory for the output, in bytes.
        output: U32,
    }
    /// `clGetKernelSuggestedLocalWorkSizeKHR`. Payload: the arguments, see [`crate::args`].
    0x0155 SuggestedLocalSize -> [u64; 3] [PayloadRule::UpTo(limits::ARGS_BYTES_MAX)] {
        request: Id<kind::Request>,
        queue: Id<kind::Queue>,
        kernel: Id<kind::Kernel>,
        space: SpaceFrame,
    }
    /// `clGetKernelWorkGroupInfo`, if the build report has no answer for the device, or if the
    /// answer depends on the arguments (local memory). Payload: the arguments, see [`crate::args`].
    0x0156 KernelWorkGroupInfo -> Vec<u8> [PayloadRule::UpTo(limits::ARGS_BYTES_MAX)] {
        request: Id<kind::Request>,
        kernel: Id<kind::Kernel>,
        device: U32,
        name: U32,
    }
    /// Asks how many work-groups of `work_items` work-items, with the local memory of the kernel's
    /// arguments, the otherwise idle device runs at the same time
    /// (`cuOccupancyMaxActiveBlocksPerMultiprocessor`, for the whole GPU). Fails with
    /// `CL_INVALID_VALUE` if the driver cannot tell. Payload: the arguments, see [`crate::args`].
    0x0157 ResidentGroups -> u64 [PayloadRule::UpTo(limits::ARGS_BYTES_MAX)] {
        request: Id<kind::Request>,
        kernel: Id<kind::Kernel>,
        work_items: U32,
    }

    // -- commands ---------------------------------------------------------------------------------
    // If `event` is none, the worker keeps no event for the command.

    /// `clEnqueueNDRangeKernel`, `clEnqueueTask`, `cuLaunchKernel`. Payload: the arguments that
    /// changed since the last launch of this kernel object, see [`crate::args`].
    0x0200 LaunchKernel [PayloadRule::UpTo(limits::ARGS_BYTES_MAX)] {
        queue: Id<kind::Queue>,
        kernel: Id<kind::Kernel>,
        event: Id<kind::Event>,
        space: SpaceFrame,
    }
    /// `clEnqueueWriteBuffer`, `cuMemcpyHtoD`. Payload: the bytes.
    0x0201 WriteBuffer [PayloadRule::Stream] {
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        offset: U64,
    }
    /// `clEnqueueReadBuffer`, `cuMemcpyDtoH`. `event` must be given: the bytes come in
    /// [`to_client::ReadData`] frames that name it, all of them before its
    /// [`to_client::EventDone`].
    0x0202 ReadBuffer [PayloadRule::None] {
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        offset: U64,
        size: U64,
    }
    /// `clEnqueueWriteBufferRect`. Payload: the rows of the region without gaps.
    0x0203 WriteBufferRect [PayloadRule::Stream] {
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        origin: Triple,
        region: Triple,
        row_pitch: U64,
        slice_pitch: U64,
    }
    /// `clEnqueueReadBufferRect`. The bytes come as for [`ReadBuffer`]: the rows of the region
    /// without gaps.
    0x0204 ReadBufferRect [PayloadRule::None] {
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        origin: Triple,
        region: Triple,
        row_pitch: U64,
        slice_pitch: U64,
    }
    0x0205 CopyBuffer [PayloadRule::None] {
        queue: Id<kind::Queue>,
        source: Id<kind::Mem>,
        target: Id<kind::Mem>,
        event: Id<kind::Event>,
        source_offset: U64,
        target_offset: U64,
        size: U64,
    }
    0x0206 CopyBufferRect [PayloadRule::None] {
        queue: Id<kind::Queue>,
        source: Id<kind::Mem>,
        target: Id<kind::Mem>,
        event: Id<kind::Event>,
        source_origin: Triple,
        target_origin: Triple,
        region: Triple,
        source_row_pitch: U64,
        source_slice_pitch: U64,
        target_row_pitch: U64,
        target_slice_pitch: U64,
    }
    /// `clEnqueueFillBuffer`. Payload: the pattern.
    0x0207 FillBuffer [PayloadRule::UpTo(limits::PATTERN_BYTES_MAX as u64)] {
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        offset: U64,
        size: U64,
    }
    /// `clEnqueueWriteImage`. Payload: the rows and slices of the region without gaps.
    0x0208 WriteImage [PayloadRule::Stream] {
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        origin: Triple,
        region: Triple,
    }
    /// `clEnqueueReadImage`. The bytes come as for [`ReadBuffer`]: rows and slices without gaps.
    0x0209 ReadImage [PayloadRule::None] {
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        origin: Triple,
        region: Triple,
    }
    0x020a CopyImage [PayloadRule::None] {
        queue: Id<kind::Queue>,
        source: Id<kind::Mem>,
        target: Id<kind::Mem>,
        event: Id<kind::Event>,
        source_origin: Triple,
        target_origin: Triple,
        region: Triple,
    }
    0x020b CopyImageToBuffer [PayloadRule::None] {
        queue: Id<kind::Queue>,
        source: Id<kind::Mem>,
        target: Id<kind::Mem>,
        event: Id<kind::Event>,
        origin: Triple,
        region: Triple,
        target_offset: U64,
    }
    0x020c CopyBufferToImage [PayloadRule::None] {
        queue: Id<kind::Queue>,
        source: Id<kind::Mem>,
        target: Id<kind::Mem>,
        event: Id<kind::Event>,
        source_offset: U64,
        origin: Triple,
        region: Triple,
    }
    /// `clEnqueueFillImage`. Payload: the colour, 16 bytes.
    0x020d FillImage [PayloadRule::UpTo(limits::PATTERN_BYTES_MAX as u64)] {
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        origin: Triple,
        region: Triple,
    }
    /// `clEnqueueMarkerWithWaitList`, and every command that moves no bytes, such as a map of
    /// memory that is already current.
    0x020e Marker [PayloadRule::None] { queue: Id<kind::Queue>, event: Id<kind::Event> }
    0x020f Barrier [PayloadRule::None] { queue: Id<kind::Queue>, event: Id<kind::Event> }
    /// `clEnqueueMigrateMemObjects` among the context's devices of this node. Payload: `Vec<u64>`,
    /// ids of memory objects.
    0x0210 Migrate [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        queue: Id<kind::Queue>,
        event: Id<kind::Event>,
        flags: U64,
    }
    /// `clEnqueueSVMMemcpy` between addresses of allocations of this node.
    0x0211 CopySvm [PayloadRule::None] {
        queue: Id<kind::Queue>,
        event: Id<kind::Event>,
        source: U64,
        target: U64,
        size: U64,
    }
    /// Calls a library on memory of the queue's device (`cublasSgemm`, `cufftExecC2C`). Payload:
    /// [`crate::library::Order`]. A failure that is found while the library runs is reported as
    /// that of a command without an event.
    0x0212 CallLibrary [PayloadRule::UpTo(limits::LIBRARY_CALL_BYTES_MAX)] {
        queue: Id<kind::Queue>,
        event: Id<kind::Event>,
    }

    // -- events and links between nodes -----------------------------------------------------------

    /// The client will not ask for these events again. Payload: their ids, `[u64 LE]`.
    0x0300 ReleaseEvents [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {}
    /// Announces an event that ends elsewhere: a user event, or a command of another node. Later
    /// calls may wait for it.
    0x0301 ExpectEvent [PayloadRule::None] {
        event: Id<kind::Event>,
        /// The worker that tells the end of the event, or none if the client does. An end that
        /// another worker tells does not count. The loss of this worker ends the event.
        peer: Id<kind::Peer>,
    }
    /// Tells the end of an expected event (`clSetUserEventStatus`, or the client's relay between
    /// nodes without a link).
    0x0302 ResolveEvent [PayloadRule::None] { event: Id<kind::Event>, status: I32 }
    /// When `event`, a command of this worker, ends, the worker tells `peer`, which expects the
    /// event.
    0x0303 TellPeer [PayloadRule::None] { event: Id<kind::Event>, peer: Id<kind::Peer> }
    /// Opens a link to another worker of the same client. Answered when the link is open. If it
    /// cannot be opened, the client relays. Payload: [`crate::describe::PeerInvitation`].
    0x0304 ConnectPeer -> () [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        peer: Id<kind::Peer>,
    }
    /// Registers the ticket with which another worker of this client comes in, under the name
    /// `peer`. Payload: the ticket, [`crate::hello::TICKET_BYTES`] bytes.
    0x0305 AdmitPeer -> () [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        peer: Id<kind::Peer>,
    }
    /// Sends a copy of a range of a memory object to the [`ReceiveMem`] with the same `transfer`:
    /// at worker `peer`, or, if `peer` is none, at another platform of this worker. Starts when the
    /// wait list has ended. `event` ends when the source may change again.
    0x0306 SendMem [PayloadRule::None] {
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        transfer: Id<kind::Transfer>,
        peer: Id<kind::Peer>,
        offset: U64,
        size: U64,
    }
    /// Takes the content of a range of a memory object from a transfer. Starts when the wait list
    /// has ended. `event` ends when the content has arrived.
    0x0307 ReceiveMem [PayloadRule::None] {
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        transfer: Id<kind::Transfer>,
        /// The sending worker, or none for another platform of this worker. Content from any other
        /// worker does not count. The loss of the sender ends the transfer.
        peer: Id<kind::Peer>,
        offset: U64,
        size: U64,
    }

    // -- grants between workers of two clients ----------------------------------------------------

    /// Registers the ticket with which a worker of another client comes in, under the name `peer`.
    /// That worker can only claim what [`GrantMem`] grants it. Payload: the ticket,
    /// [`crate::hello::TICKET_BYTES`] bytes.
    0x0308 AdmitGuest -> () [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        peer: Id<kind::Peer>,
    }
    /// Opens a link to a worker of another client, for [`ClaimGrant`]. Answered when the link is
    /// open. Payload: [`crate::describe::PeerInvitation`].
    0x0309 ConnectHost -> () [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        peer: Id<kind::Peer>,
    }
    /// Lets the worker `peer` of another client write at most `size` bytes from `offset` of a
    /// buffer, once. Answered when the peer can claim the grant. `event` ends when the bytes have
    /// arrived. It fails if the peer is lost or if the grant is revoked.
    0x030a GrantMem -> () [PayloadRule::None] {
        request: Id<kind::Request>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        transfer: Id<kind::Transfer>,
        peer: Id<kind::Peer>,
        offset: U64,
        size: U64,
    }
    /// Takes a grant back. Answered with whether it is gone. A grant that the peer has claimed
    /// stays, and its event tells the end.
    0x030b RevokeGrant -> bool [PayloadRule::None] {
        request: Id<kind::Request>,
        transfer: Id<kind::Transfer>,
        peer: Id<kind::Peer>,
    }
    /// Claims the grant `transfer` of the worker `peer`, and sends a range of a buffer there.
    /// Answered when the peer has answered. A failure means that nothing is sent and that the grant
    /// is not claimed, or that the link to the peer is lost. `event` ends when the range may change
    /// again. It fails if the bytes were not sent.
    0x030c ClaimGrant -> () [PayloadRule::None] {
        request: Id<kind::Request>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        transfer: Id<kind::Transfer>,
        peer: Id<kind::Peer>,
        offset: U64,
        size: U64,
    }
}
