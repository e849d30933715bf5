//! The table of all calls. One entry makes the opcode, the frame's body, and the handler's type; whoever serves a
//! direction ([`to_worker`], [`to_client`], [`to_peer`]) must have a handler for each of its calls or does not compile.
//!
//! Calls are one-way unless they are a [`Request`]. A failure of a one-way call is reported with the event it names
//! ([`to_client::EventDone`]), or, where it names none, with the next [`to_worker::Finish`] of its queue.

use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::frame::{Call, Frame, FrameError, Header, Payload, PayloadRule, Request};
use crate::id::{Id, kind};
use crate::limits;

/// Serves one call of a peer.
pub trait Serve<C: Call> {
    /// Acts on `call`. A failure of the call itself is reported to the client; an error here ends the session.
    ///
    /// # Errors
    /// When the peer broke the protocol, or the link broke.
    fn serve(
        &mut self,
        call: &C,
        waits: &[Id<kind::Event>],
        payload: &mut dyn Payload,
    ) -> Result<(), FrameError>;
}

mod define;
use define::calls;

/// Part of an image: `[x, y, z]` and `[width, height, depth]`, with OpenCL's meaning for arrays and lower dimensions.
pub type Triple = [U64; 3];

calls! {
    /// What a client asks of its worker.
    mod to_worker / ServeClient;

    // -- contexts and queues -------------------------------------------------------------------------------------

    /// `clCreateContext` over devices of one platform of the node. Payload: `Vec<u32>`, the devices' node-wide indices.
    0x0100 CreateContext [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        context: Id<kind::Context>,
        /// Index of the platform in the node's description.
        platform: U32,
    }
    /// Last `clReleaseContext`.
    0x0101 ReleaseContext [PayloadRule::None] { context: Id<kind::Context> }
    /// `clCreateCommandQueueWithProperties`.
    0x0102 CreateQueue [PayloadRule::None] {
        queue: Id<kind::Queue>,
        context: Id<kind::Context>,
        /// Node-wide index of the device.
        device: U32,
        /// `CL_QUEUE_PROPERTIES`.
        properties: U64,
        /// `CL_QUEUE_SIZE`, or 0 for none given.
        size: U32,
        /// A [`crate::TimesOf`].
        times: U32,
    }
    /// Last `clReleaseCommandQueue`.
    0x0103 ReleaseQueue [PayloadRule::None] { queue: Id<kind::Queue> }
    /// `clFlush`: the worker hands all commands so far to the device.
    0x0104 Flush [PayloadRule::None] { queue: Id<kind::Queue> }
    /// `clFinish`: answered when all commands of the queue so far have ended. The reply's status is the first failure
    /// since the last `Finish` of a command that named no event. The ends of all those commands are told before.
    0x0105 Finish -> () [PayloadRule::None] { request: Id<kind::Request>, queue: Id<kind::Queue> }
    /// `clCreateSubDevices`. Payload: `Vec<i64>`, the properties, without the last 0.
    0x0106 CreateSubDevices -> Vec<crate::describe::DeviceDescription> [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        device: U32,
    }
    /// `clGetDeviceAndHostTimer`: the device's clock now, in ns.
    0x0107 DeviceTimer -> crate::describe::Timers [PayloadRule::None] { request: Id<kind::Request>, device: U32 }
    /// `clGetSupportedImageFormats`.
    0x0108 ImageFormats -> Vec<(u32, u32)> [PayloadRule::None] {
        request: Id<kind::Request>,
        context: Id<kind::Context>,
        /// `cl_mem_flags`.
        flags: U64,
        /// `cl_mem_object_type`.
        image_type: U32,
    }
    /// Answered at once. For tests of the link, and to learn whether the worker lives.
    0x0109 Ping -> () [PayloadRule::None] { request: Id<kind::Request> }
    /// How busy a device is.
    0x010a DeviceSensors -> crate::describe::Sensors [PayloadRule::None] { request: Id<kind::Request>, device: U32 }

    // -- memory --------------------------------------------------------------------------------------------------

    /// `clCreateBuffer`. The content is zero.
    0x0120 CreateBuffer [PayloadRule::None] {
        mem: Id<kind::Mem>,
        context: Id<kind::Context>,
        /// `cl_mem_flags`, without those of host pointers.
        flags: U64,
        size: U64,
    }
    /// `clCreateSubBuffer`.
    0x0121 CreateSubBuffer [PayloadRule::None] {
        mem: Id<kind::Mem>,
        parent: Id<kind::Mem>,
        flags: U64,
        origin: U64,
        size: U64,
    }
    /// `clCreateImage`. Payload: [`crate::describe::ImageDescription`].
    0x0122 CreateImage [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        mem: Id<kind::Mem>,
        context: Id<kind::Context>,
        flags: U64,
        /// The buffer or image that the image is made from, or none.
        parent: Id<kind::Mem>,
    }
    /// `clCreatePipe`.
    0x0123 CreatePipe [PayloadRule::None] {
        mem: Id<kind::Mem>,
        context: Id<kind::Context>,
        flags: U64,
        packet_size: U32,
        packets_max: U32,
    }
    /// Last `clReleaseMemObject`. Commands that use the object still run.
    0x0124 ReleaseMem [PayloadRule::None] { mem: Id<kind::Mem> }
    /// `clCreateSamplerWithProperties`. Payload: `Vec<u64>`, the properties, without the last 0.
    0x0125 CreateSampler [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        sampler: Id<kind::Sampler>,
        context: Id<kind::Context>,
    }
    /// Last `clReleaseSampler`.
    0x0126 ReleaseSampler [PayloadRule::None] { sampler: Id<kind::Sampler> }
    /// Content given when a buffer is made (`CL_MEM_COPY_HOST_PTR`): done before any later call is served.
    0x0127 InitBuffer [PayloadRule::Stream] { mem: Id<kind::Mem>, offset: U64 }
    /// Content given when an image is made; rows and slices without gaps. Done before any later call is served.
    0x0128 InitImage [PayloadRule::Stream] { mem: Id<kind::Mem>, origin: Triple, region: Triple }
    /// `clSVMAlloc` at an address that the client chose, so that it is the same in both processes. Answered with
    /// whether the worker could take the address.
    0x0129 AllocSvm -> () [PayloadRule::None] {
        request: Id<kind::Request>,
        mem: Id<kind::Mem>,
        context: Id<kind::Context>,
        flags: U64,
        size: U64,
        alignment: U32,
        address: U64,
    }

    /// `clCreateBuffer` in the link's arena, at an offset of whole pages that the client chose: where the device shares the
    /// host's memory, and the client is on this host. The content is what is there. When the worker has nothing left of
    /// the buffer it says [`to_client::MemGone`].
    0x012a CreateSharedBuffer [PayloadRule::None] {
        mem: Id<kind::Mem>,
        context: Id<kind::Context>,
        flags: U64,
        size: U64,
        offset: U64,
    }
    /// Where kernels see the buffer: `CUdeviceptr`, or what `cl_ext_buffer_device_address` and shared virtual memory say. Of a
    /// sub-buffer, its own first byte. `CL_INVALID_OPERATION` where the device has no such address.
    0x012b MemAddress -> u64 [PayloadRule::None] { request: Id<kind::Request>, mem: Id<kind::Mem> }

    // -- symmetric heaps -----------------------------------------------------------------------------------------
    // A member is a worker that has devices (PEs) of the heap. All members are created, then each two of them are linked, then all
    // are started, and each PE gets its view. Sentences in replies say why not; none: done.

    /// `clCreateGlobalBufferPENSTOCK`: this worker's member of a heap. Payload: [`crate::describe::HeapPlan`].
    0x0180 CreateHeap -> Option<String> [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        heap: Id<kind::Heap>,
        /// The index of this member.
        me: U32,
        /// Of each PE's part, as the program sees it.
        bytes: U64,
        /// How long a kernel may wait inside the heap.
        timeout_ms: U32,
        /// Not 0: use the proxy also between members that could share memory.
        force_proxy: U32,
    }
    /// Lets in the worker of another member when it comes with a ticket; answered when that is known. Payload: the ticket.
    0x0181 AdmitHeapMember -> () [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        heap: Id<kind::Heap>,
        /// The member that will come.
        member: U32,
    }
    /// Opens this heap's link to another member. Answered when both have met. Payload: [`crate::describe::PeerInvitation`].
    0x0182 ConnectHeapMember -> Option<String> [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        heap: Id<kind::Heap>,
        member: U32,
    }
    /// All members have met: maps the memory and starts the threads.
    0x0183 StartHeap -> crate::describe::HeapStarted [PayloadRule::None] {
        request: Id<kind::Request>,
        heap: Id<kind::Heap>,
    }
    /// Makes two buffers of a started heap: what a kernel on this PE's device gets as its argument, and the PE's own part.
    0x0184 CreateHeapView -> () [PayloadRule::None] {
        request: Id<kind::Request>,
        heap: Id<kind::Heap>,
        pe: U32,
        context: Id<kind::Context>,
        view: Id<kind::Mem>,
        part: Id<kind::Mem>,
    }
    /// Whether the heap has been aborted, and why.
    0x0185 HeapStatus -> Option<String> [PayloadRule::None] { request: Id<kind::Request>, heap: Id<kind::Heap> }
    /// `clAbortGlobalBufferPENSTOCK`: all waits of kernels in the heap end. Payload: why.
    0x0186 AbortHeap [PayloadRule::UpTo(limits::HEAP_REASON_BYTES_MAX)] { heap: Id<kind::Heap> }
    /// Makes a heap usable again that was aborted, or in which a wait was too long. No kernel may use it.
    0x0187 ResetHeap -> Option<String> [PayloadRule::None] {
        request: Id<kind::Request>,
        heap: Id<kind::Heap>,
        /// The same for all members, and above that of each reset before, also of one that only some members did.
        generation: U64,
    }
    /// Last release of a heap. Launches that use it still run.
    0x0188 ReleaseHeap [PayloadRule::None] { heap: Id<kind::Heap> }

    // -- programs and kernels ------------------------------------------------------------------------------------

    /// `clCreateProgramWithSource`. Payload: the source, strings joined.
    0x0140 CreateProgramWithSource [PayloadRule::UpTo(limits::PROGRAM_BYTES_MAX)] {
        program: Id<kind::Program>,
        context: Id<kind::Context>,
    }
    /// `clCreateProgramWithBinary`. Payload: `Vec<(u32, Vec<u8>)>`, a device's index and its binary.
    0x0141 CreateProgramWithBinary -> crate::describe::LoadReport [PayloadRule::UpTo(limits::PROGRAM_BYTES_MAX)] {
        request: Id<kind::Request>,
        program: Id<kind::Program>,
        context: Id<kind::Context>,
    }
    /// `clCreateProgramWithIL`. Payload: the IL.
    0x0142 CreateProgramWithIl [PayloadRule::UpTo(limits::PROGRAM_BYTES_MAX)] {
        program: Id<kind::Program>,
        context: Id<kind::Context>,
    }
    /// `clCreateProgramWithBuiltInKernels`. Payload: [`crate::describe::BuiltInKernels`].
    0x0143 CreateProgramWithBuiltInKernels -> () [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        program: Id<kind::Program>,
        context: Id<kind::Context>,
    }
    /// Last `clReleaseProgram`.
    0x0144 ReleaseProgram [PayloadRule::None] { program: Id<kind::Program> }
    /// `clBuildProgram`. Payload: [`crate::describe::BuildOrder`]. Other calls are served while the build runs.
    0x0145 BuildProgram -> crate::describe::BuildReport [PayloadRule::UpTo(limits::PROGRAM_BYTES_MAX)] {
        request: Id<kind::Request>,
        program: Id<kind::Program>,
    }
    /// `clCompileProgram`. Payload: [`crate::describe::BuildOrder`], with the headers' programs.
    0x0146 CompileProgram -> crate::describe::BuildReport [PayloadRule::UpTo(limits::PROGRAM_BYTES_MAX)] {
        request: Id<kind::Request>,
        program: Id<kind::Program>,
    }
    /// `clLinkProgram`. Payload: [`crate::describe::BuildOrder`], with the inputs. Makes `program`, if it can.
    0x0147 LinkProgram -> crate::describe::BuildReport [PayloadRule::UpTo(limits::PROGRAM_BYTES_MAX)] {
        request: Id<kind::Request>,
        program: Id<kind::Program>,
        context: Id<kind::Context>,
    }
    /// `clGetProgramInfo(CL_PROGRAM_BINARIES)`: index of a device of the node, and its binary.
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
    /// `clUnloadPlatformCompiler`.
    0x014a UnloadCompiler [PayloadRule::None] { platform: U32 }
    /// Whether the driver would have told the descriptions of kernels' arguments with the options of the program's last build. The
    /// worker has it keep them in any case.
    0x014b ShowsArgInfo -> bool [PayloadRule::None] { request: Id<kind::Request>, program: Id<kind::Program> }
    /// `clCreateKernel`. Payload: the name. A name that the build's report does not have was refused in the client.
    0x0150 CreateKernel [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        kernel: Id<kind::Kernel>,
        program: Id<kind::Program>,
    }
    /// `clCloneKernel`.
    0x0151 CloneKernel [PayloadRule::None] { kernel: Id<kind::Kernel>, source: Id<kind::Kernel> }
    /// Last `clReleaseKernel`.
    0x0152 ReleaseKernel [PayloadRule::None] { kernel: Id<kind::Kernel> }
    /// `clSetKernelExecInfo`. Payload: the value as it is.
    0x0153 SetKernelExecInfo -> () [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        kernel: Id<kind::Kernel>,
        name: U32,
    }
    /// `clGetKernelSubGroupInfo`. Payload: the input value. Answered with the output bytes.
    0x0154 KernelSubGroupInfo -> Vec<u8> [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        kernel: Id<kind::Kernel>,
        device: U32,
        name: U32,
        /// How many bytes the caller has for the output.
        output: U32,
    }
    /// `clGetKernelSuggestedLocalWorkSizeKHR`. Payload: arguments, see [`crate::args`].
    0x0155 SuggestedLocalSize -> [u64; 3] [PayloadRule::UpTo(limits::ARGS_BYTES_MAX)] {
        request: Id<kind::Request>,
        queue: Id<kind::Queue>,
        kernel: Id<kind::Kernel>,
        dims: U32,
        offset: Triple,
        global: Triple,
    }
    /// `clGetKernelWorkGroupInfo`, for a kernel of another device or one whose numbers depend on its arguments (local memory).
    /// Payload: arguments, see [`crate::args`].
    0x0156 KernelWorkGroupInfo -> Vec<u8> [PayloadRule::UpTo(limits::ARGS_BYTES_MAX)] {
        request: Id<kind::Request>,
        kernel: Id<kind::Kernel>,
        device: U32,
        name: U32,
    }

    // -- commands ------------------------------------------------------------------------------------------------
    // `event` may be none: then nobody can ask for it, and the worker keeps no event.

    /// `clEnqueueNDRangeKernel`, `clEnqueueTask`, `cuLaunchKernel`. Payload: the arguments that changed since the last
    /// launch of this kernel object, see [`crate::args`].
    0x0200 LaunchKernel [PayloadRule::UpTo(limits::ARGS_BYTES_MAX)] {
        queue: Id<kind::Queue>,
        kernel: Id<kind::Kernel>,
        event: Id<kind::Event>,
        dims: U32,
        /// Whether `local` is given; else the driver chooses.
        has_local: U32,
        offset: Triple,
        global: Triple,
        local: Triple,
    }
    /// `clEnqueueWriteBuffer`, `cuMemcpyHtoD`. Payload: the bytes.
    0x0201 WriteBuffer [PayloadRule::Stream] {
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        offset: U64,
    }
    /// `clEnqueueReadBuffer`, `cuMemcpyDtoH`. The bytes come with [`to_client::ReadData`] frames named `event`, all of
    /// them before its [`to_client::EventDone`]; so `event` must be given.
    0x0202 ReadBuffer [PayloadRule::None] {
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        offset: U64,
        size: U64,
    }
    /// `clEnqueueWriteBufferRect`. Payload: the region's rows without gaps.
    0x0203 WriteBufferRect [PayloadRule::Stream] {
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        origin: Triple,
        region: Triple,
        row_pitch: U64,
        slice_pitch: U64,
    }
    /// `clEnqueueReadBufferRect`. The bytes come as for [`ReadBuffer`], the region's rows without gaps.
    0x0204 ReadBufferRect [PayloadRule::None] {
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        origin: Triple,
        region: Triple,
        row_pitch: U64,
        slice_pitch: U64,
    }
    /// `clEnqueueCopyBuffer`.
    0x0205 CopyBuffer [PayloadRule::None] {
        queue: Id<kind::Queue>,
        source: Id<kind::Mem>,
        target: Id<kind::Mem>,
        event: Id<kind::Event>,
        source_offset: U64,
        target_offset: U64,
        size: U64,
    }
    /// `clEnqueueCopyBufferRect`.
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
    /// `clEnqueueWriteImage`. Payload: the region's rows and slices without gaps.
    0x0208 WriteImage [PayloadRule::Stream] {
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        origin: Triple,
        region: Triple,
    }
    /// `clEnqueueReadImage`. The bytes come as for [`ReadBuffer`], rows and slices without gaps.
    0x0209 ReadImage [PayloadRule::None] {
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        origin: Triple,
        region: Triple,
    }
    /// `clEnqueueCopyImage`.
    0x020a CopyImage [PayloadRule::None] {
        queue: Id<kind::Queue>,
        source: Id<kind::Mem>,
        target: Id<kind::Mem>,
        event: Id<kind::Event>,
        source_origin: Triple,
        target_origin: Triple,
        region: Triple,
    }
    /// `clEnqueueCopyImageToBuffer`.
    0x020b CopyImageToBuffer [PayloadRule::None] {
        queue: Id<kind::Queue>,
        source: Id<kind::Mem>,
        target: Id<kind::Mem>,
        event: Id<kind::Event>,
        origin: Triple,
        region: Triple,
        target_offset: U64,
    }
    /// `clEnqueueCopyBufferToImage`.
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
    /// `clEnqueueMarkerWithWaitList`, and every command that moves nothing (a map of memory that is current already).
    0x020e Marker [PayloadRule::None] { queue: Id<kind::Queue>, event: Id<kind::Event> }
    /// `clEnqueueBarrierWithWaitList`.
    0x020f Barrier [PayloadRule::None] { queue: Id<kind::Queue>, event: Id<kind::Event> }
    /// `clEnqueueMigrateMemObjects` within the context's devices of this node. Payload: `Vec<u64>`, memory ids.
    0x0210 Migrate [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        queue: Id<kind::Queue>,
        event: Id<kind::Event>,
        flags: U64,
    }
    /// `clEnqueueSVMMemcpy` between allocations of this node, by address.
    0x0211 CopySvm [PayloadRule::None] {
        queue: Id<kind::Queue>,
        event: Id<kind::Event>,
        source: U64,
        target: U64,
        size: U64,
    }

    // -- events, nodes among themselves --------------------------------------------------------------------------

    /// Nobody can ask for these events any more. Payload: `[u64 LE]`, event ids.
    0x0300 ReleaseEvents [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {}
    /// An event that ends elsewhere: a user event, or a command of another node. Calls after this may wait for it.
    0x0301 ExpectEvent [PayloadRule::None] {
        event: Id<kind::Event>,
        /// The worker that tells its end; none: the client. What another worker tells of the event does not count. The loss of
        /// the named worker ends the event.
        peer: Id<kind::Peer>,
    }
    /// The client tells that an expected event has ended (`clSetUserEventStatus`, or the relay where nodes have no link).
    0x0302 ResolveEvent [PayloadRule::None] { event: Id<kind::Event>, status: I32 }
    /// When `event`, of this worker, ends, `peer` is told, where it was expected.
    0x0303 TellPeer [PayloadRule::None] { event: Id<kind::Event>, peer: Id<kind::Peer> }
    /// Makes a link to another worker of the same client. Payload: [`crate::describe::PeerInvitation`]. Answered when
    /// the link stands; the client relays where it can not be made.
    0x0304 ConnectPeer -> () [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        peer: Id<kind::Peer>,
    }
    /// The ticket that lets another worker of this client in, under the name `peer`. Payload: the ticket,
    /// [`crate::hello::TICKET_BYTES`] bytes.
    0x0305 AdmitPeer -> () [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] {
        request: Id<kind::Request>,
        peer: Id<kind::Peer>,
    }
    /// Sends a copy of a whole memory object to where [`ReceiveMem`] with the same `transfer` waits for it: another
    /// worker, or (`peer` none) another platform of this one. Starts when the wait list has ended; `event` ends when the
    /// source may change again.
    0x0306 SendMem [PayloadRule::None] {
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        transfer: Id<kind::Transfer>,
        peer: Id<kind::Peer>,
        offset: U64,
        size: U64,
    }
    /// Takes the content of a memory object from a transfer. Starts when the wait list has ended; `event` ends when the
    /// content is there.
    0x0307 ReceiveMem [PayloadRule::None] {
        mem: Id<kind::Mem>,
        event: Id<kind::Event>,
        transfer: Id<kind::Transfer>,
        /// The sender; none: another platform of this worker. Content from another worker is not taken. The loss of the named
        /// worker ends the transfer.
        peer: Id<kind::Peer>,
        offset: U64,
        size: U64,
    }
}

calls! {
    /// What a worker tells its client.
    mod to_client / ServeWorker;

    /// The answer to a [`Request`]. Payload: the request's `Reply` where the status is a success (or, for a build, in any case).
    0x8000 Reply [PayloadRule::UpTo(limits::REPLY_BYTES_MAX)] { request: Id<kind::Request>, status: I32 }
    /// A command with an event has ended. Of an in-order queue ends are told in the order of the commands, and in any queue that of a
    /// marker or barrier without a wait list comes behind all before it; but one that was refused, or never started because its wait
    /// list had failed, may be told at once. Times are the device's, in ns, 0 where the queue does not tell them (`CreateQueue`).
    0x8001 EventDone [PayloadRule::None] {
        event: Id<kind::Event>,
        /// 0, or the failure.
        status: I32,
        queued: U64,
        submitted: U64,
        started: U64,
        ended: U64,
        /// `CL_PROFILING_COMMAND_COMPLETE`.
        completed: U64,
    }
    /// Bytes that a read brought. Payload: bytes from `offset` of the read's own range on.
    0x8002 ReadData [PayloadRule::Stream] { event: Id<kind::Event>, offset: U64 }
    /// What kernels printed. Payload: the bytes.
    0x8003 Output [PayloadRule::UpTo(limits::OUTPUT_BYTES_MAX)] {}
    /// An error of the driver reported through the context (`pfn_notify`). Payload: the text.
    0x8004 ContextError [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] { context: Id<kind::Context> }
    /// The last frame of a worker that ends the session: why. Payload: the text.
    0x8005 Fault [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] { status: I32 }
    /// Neither the worker nor a device will touch the memory of a [`to_worker::CreateSharedBuffer`] again.
    0x8006 MemGone [PayloadRule::None] { mem: Id<kind::Mem> }
    /// The link to another worker has ended, although that one may still live: what was awaited from there has failed, and
    /// from now on the client relays between the two.
    0x8007 PeerLost [PayloadRule::None] { peer: Id<kind::Peer> }
    /// Since the worker last told a failure of this queue, the device has refused a command that has no event. It is told before
    /// the end of the next command of the queue that has an event, so that whoever waits for that end knows of the failure. A
    /// [`to_worker::Finish`] tells such a failure by its own status instead.
    0x8008 QueueFailed [PayloadRule::None] { queue: Id<kind::Queue>, status: I32 }
}

calls! {
    /// What workers of one client tell each other.
    mod to_peer / ServePeer;

    /// An event of the sender has ended.
    0x9000 PeerEvent [PayloadRule::None] { event: Id<kind::Event>, status: I32 }
    /// The content for a [`to_worker::ReceiveMem`]; with an error status and no payload if it could not be had.
    0x9001 TransferData [PayloadRule::Stream] { transfer: Id<kind::Transfer>, status: I32 }
}

#[cfg(test)]
mod tests;
