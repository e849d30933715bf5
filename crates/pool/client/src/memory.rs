//! Buffers, images and pipes. Each is one object for the program, with a copy in each place that
//! needed one.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_cl_sys::CL_MEM_READ_WRITE;
use penstock_process::Lock;
use penstock_trial::{Defect, planted};
use penstock_wire::calls::to_worker;
use penstock_wire::describe::ImageDescription;
use penstock_wire::id::kind;
use penstock_wire::{Id, Request, Status, U32, U64, frame};

use crate::arena::Part;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::order::{nodes_of, order};
use crate::summary::Command;
use penstock_coherence::AllocationId;

/// A memory object of the program.
pub struct Memory {
    context: Arc<Context>,
    kind: MemoryKind,
    flags: u64,
    size: u64,
    /// The object that contains this part or that this view shows.
    parent: Option<Arc<Memory>>,
    origin: u64,
    /// Id of the object in each place.
    ids: Vec<Id<kind::Mem>>,
    /// Whether the object has been created, for each place.
    created: Vec<AtomicBool>,
    /// Held while the object is created in a place.
    creating: Lock<()>,
    /// Name of the object in the state machine, if copies in several places are kept coherent.
    allocation: Option<AllocationId>,
    /// Content given at creation that some place may not have yet.
    initial: Lock<Option<Arc<[u8]>>>,
    /// The object's part of the memory that client and worker share, if it lives there.
    part: Option<Part>,
}

/// The kind of a memory object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryKind {
    /// A buffer or sub-buffer.
    Buffer,
    Image(ImageShape),
    Pipe {
        /// Size of a packet in bytes.
        packet_size: u32,
        /// Largest number of packets in the pipe.
        packets_max: u32,
    },
    /// Stands for a symmetric heap where a memory object is expected. It has no content and exists
    /// in no place.
    Heap,
    /// Shared virtual memory, at this address in the client and in each worker.
    Svm {
        address: u64,
        /// Alignment of the address in bytes.
        alignment: u32,
    },
}

/// An image's description, and the size of its pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageShape {
    /// The program's description, without pitches.
    pub description: ImageDescription,
    /// Size of a pixel in bytes.
    pub pixel_size: u64,
    /// Width, height and depth of the whole image, in OpenCL's order. For an image array, the array
    /// size takes the place of the first unused dimension.
    pub extent: [u64; 3],
}

impl Memory {
    /// Makes a buffer of `size` bytes that contains `init`, or zeros. `flags` are `cl_mem_flags`
    /// without those of host pointers.
    ///
    /// # Errors
    /// If a node is lost.
    pub fn buffer(
        context: &Arc<Context>,
        flags: u64,
        size: u64,
        init: Option<&[u8]>,
    ) -> Result<Arc<Self>> {
        Self::new(context.clone(), MemoryKind::Buffer, flags, size, None, 0, init)
    }

    /// Makes a buffer in memory that this process shares with the worker, for devices that do not
    /// work on the host's memory but copy from and to it by themselves. Its content is zero, and
    /// [`Memory::shared_pointer`] is its address. Returns `None` if there is no such memory, if the
    /// host has too little, or if the node does not take it. Waits for the worker.
    pub fn shared(context: &Arc<Context>, size: u64) -> Option<Arc<Self>> {
        let [place] = context.places() else { return None };
        let arena = place.session().arena()?;
        let part = arena.take(size)?;
        // The worker has the system pin the pages, and they are memory of the program.
        if !part.populate() {
            arena.put_back(part);
            return None;
        }
        let flags = CL_MEM_READ_WRITE;
        let mut memory = Self::object(context.clone(), MemoryKind::Buffer, flags, size, None, 0);
        memory.part = Some(part);
        memory.create_in(0).ok()?;
        // A buffer that the worker could not make has no address.
        memory.device_address().is_ok().then(|| Arc::new(memory))
    }

    /// Makes a part of a buffer.
    ///
    /// # Errors
    /// If a node is lost.
    pub fn sub_buffer(
        parent: &Arc<Memory>,
        flags: u64,
        origin: u64,
        size: u64,
    ) -> Result<Arc<Self>> {
        Self::new(
            parent.context.clone(),
            MemoryKind::Buffer,
            flags,
            size,
            Some(parent.clone()),
            origin,
            None,
        )
    }

    /// Makes an image, or a view of `parent` as an image. `init` contains the pixels of the whole
    /// image, without gaps between rows or slices.
    ///
    /// # Errors
    /// If a node is lost.
    pub fn image(
        context: &Arc<Context>,
        flags: u64,
        shape: ImageShape,
        parent: Option<Arc<Memory>>,
        init: Option<&[u8]>,
    ) -> Result<Arc<Self>> {
        let size = shape.extent.iter().product::<u64>() * shape.pixel_size;
        Self::new(context.clone(), MemoryKind::Image(shape), flags, size, parent, 0, init)
    }

    /// Makes a pipe.
    ///
    /// # Errors
    /// If a node is lost.
    pub fn pipe(
        context: &Arc<Context>,
        flags: u64,
        packet_size: u32,
        packets_max: u32,
    ) -> Result<Arc<Self>> {
        let size = u64::from(packet_size) * u64::from(packets_max);
        Self::new(
            context.clone(),
            MemoryKind::Pipe { packet_size, packets_max },
            flags,
            size,
            None,
            0,
            None,
        )
    }

    /// Makes shared virtual memory at an address that the face has reserved. Waits for the workers.
    ///
    /// # Errors
    /// If a worker cannot take the address.
    pub fn svm(
        context: &Arc<Context>,
        flags: u64,
        size: u64,
        alignment: u32,
        address: u64,
    ) -> Result<Arc<Self>> {
        let kind = MemoryKind::Svm { address, alignment };
        Self::at_address(context, kind, flags, size, |context, mem| to_worker::AllocSvm {
            request: Id::NONE,
            mem,
            context,
            flags: U64::new(flags),
            size: U64::new(size),
            alignment: U32::new(alignment),
            address: U64::new(address),
        })
    }

    /// Makes a buffer of `size` bytes of a variable of a CUDA module, at the variable's address.
    /// Waits for the worker.
    ///
    /// # Errors
    /// If the worker knows no such variable.
    pub fn variable(
        context: &Arc<Context>,
        flags: u64,
        size: u64,
        address: u64,
    ) -> Result<Arc<Self>> {
        let kind = MemoryKind::Svm { address, alignment: 1 };
        Self::at_address(context, kind, flags, size, |context, mem| {
            to_worker::CreateVariableBuffer {
                request: Id::NONE,
                mem,
                context,
                address: U64::new(address),
                size: U64::new(size),
            }
        })
    }

    /// Makes memory that has the same address in all places. `call` asks a worker for it.
    fn at_address<C: Request<Reply = ()>>(
        context: &Arc<Context>,
        kind: MemoryKind,
        flags: u64,
        size: u64,
        call: impl Fn(Id<kind::Context>, Id<kind::Mem>) -> C,
    ) -> Result<Arc<Self>> {
        let mut memory = Self::object(context.clone(), kind, flags, size, None, 0);
        memory.keep_coherent(false);
        // Created in all places now: the address must be free in each worker.
        for (index, (place, id)) in context.places().iter().zip(&memory.ids).enumerate() {
            place.session.request(call(place.id, *id), &[]).wait()?;
            // Noted now, so that it is released there if another place refuses.
            memory.note_created(index);
        }
        Ok(Arc::new(memory))
    }

    /// Makes the object that stands for a symmetric heap of `size` bytes on each device, see
    /// [`MemoryKind::Heap`].
    pub fn of_heap(context: &Arc<Context>, flags: u64, size: u64) -> Arc<Self> {
        Arc::new(Self::object(context.clone(), MemoryKind::Heap, flags, size, None, 0))
    }

    fn object(
        context: Arc<Context>,
        kind: MemoryKind,
        flags: u64,
        size: u64,
        parent: Option<Arc<Memory>>,
        origin: u64,
    ) -> Self {
        let places = context.places().len();
        let ids = (0..places).map(|_| crate::ids::next_id()).collect();
        let created = (0..places).map(|_| AtomicBool::new(false)).collect();
        Self {
            context,
            kind,
            flags,
            size,
            parent,
            origin,
            ids,
            created,
            creating: Lock::default(),
            allocation: None,
            initial: Lock::default(),
            part: None,
        }
    }

    fn new(
        context: Arc<Context>,
        kind: MemoryKind,
        flags: u64,
        size: u64,
        parent: Option<Arc<Memory>>,
        origin: u64,
        init: Option<&[u8]>,
    ) -> Result<Arc<Self>> {
        let single = context.is_single();
        let mut memory = Self::object(context, kind, flags, size, parent, origin);
        if single {
            memory.part = memory.take_part();
            memory.create_in(0)?;
            match (init, &memory.part) {
                (Some(init), Some(part)) => {
                    _ = part.write(0, init);
                    let tally = memory.context.places().first().and_then(|it| it.session.tally());
                    _ = tally.map(|tally| tally.count(Command::Write, size));
                }
                (Some(init), None) => memory.init_at(0, 0, size, init)?,
                (None, _) => {}
            }
        } else {
            memory.keep_coherent(init.is_some());
            // It is not known yet which places will need the content.
            memory.initial = Lock::new(init.map(Into::into));
        }
        Ok(Arc::new(memory))
    }

    /// Has the state machine keep all copies coherent. A part or a view is a range of its root.
    fn keep_coherent(&mut self, has_initial: bool) {
        if self.parent.is_none() && !self.context.is_single() {
            let nodes = nodes_of(self.context.places().iter().map(|place| place.session()));
            let is_indivisible = !matches!(self.kind, MemoryKind::Buffer);
            self.allocation =
                Some(order().allocate(self.size, is_indivisible, &nodes, has_initial));
        }
    }

    /// Brings the content that was given at creation to a place that has no content for these bytes
    /// yet.
    pub(crate) fn bring_initial(&self, place: usize, start: u64, end: u64) -> Result<()> {
        if place > 0 && planted(Defect::CreationBytes) {
            return Ok(());
        }
        let initial = self.initial.lock().clone();
        initial.map_or(Ok(()), |bytes| self.init_at(place, start, end, &bytes))
    }

    /// Creates the object, and before it its parent, in a place that does not have it yet.
    #[inline]
    pub(crate) fn create_in(&self, place: usize) -> Result<()> {
        // If the object is there, its parent is there as well.
        let is_there =
            self.created.get(place).is_some_and(|created| created.load(Ordering::Acquire));
        if is_there { Ok(()) } else { self.make_in(place) }
    }

    #[cold]
    fn make_in(&self, place: usize) -> Result<()> {
        if let Some(parent) = &self.parent {
            parent.create_in(place)?;
        }
        let Some(created) = self.created.get(place) else { return Ok(()) };
        if created.load(Ordering::Acquire) {
            return Ok(());
        }
        // Held while the call is sent, because no other thread may use the object before.
        let _creating = self.creating.lock();
        if created.load(Ordering::Acquire) {
            return Ok(());
        }
        let sent = self.create_at(place);
        // Set even if sending failed, because then the session is lost.
        created.store(true, Ordering::Release);
        sent
    }

    fn note_created(&self, place: usize) {
        if let Some(created) = self.created.get(place) {
            created.store(true, Ordering::Release);
        }
    }

    fn create_at(&self, place: usize) -> Result<()> {
        let Some((at, mem)) = self.context.places().get(place).zip(self.ids.get(place)) else {
            return Ok(());
        };
        let (context, mem, flags) = (at.id, *mem, U64::new(self.flags));
        if let Some(part) = &self.part {
            let (size, offset) = (U64::new(self.size), U64::new(part.offset()));
            let call = to_worker::CreateSharedBuffer { mem, context, flags, size, offset };
            return at.session.send(&call, &[], &[]);
        }
        match (&self.kind, &self.parent) {
            (MemoryKind::Buffer, None) => {
                let call =
                    to_worker::CreateBuffer { mem, context, flags, size: U64::new(self.size) };
                at.session.send(&call, &[], &[])
            }
            (MemoryKind::Buffer, Some(parent)) => {
                let (parent, origin, size) =
                    (parent.id_at(place), U64::new(self.origin), U64::new(self.size));
                at.session.send(
                    &to_worker::CreateSubBuffer { mem, parent, flags, origin, size },
                    &[],
                    &[],
                )
            }
            (MemoryKind::Image(shape), parent) => {
                let parent = parent.as_ref().map_or(Id::NONE, |parent| parent.id_at(place));
                let call = to_worker::CreateImage { mem, context, flags, parent };
                at.session.send(&call, &[], &frame::encode(&shape.description))
            }
            (MemoryKind::Pipe { packet_size, packets_max }, _) => {
                let (packet_size, packets_max) = (U32::new(*packet_size), U32::new(*packets_max));
                at.session.send(
                    &to_worker::CreatePipe { mem, context, flags, packet_size, packets_max },
                    &[],
                    &[],
                )
            }
            // These were created everywhere when they were allocated.
            (MemoryKind::Svm { .. } | MemoryKind::Heap, _) => Ok(()),
        }
    }

    /// Sets the content of the object in a place, or for a buffer that of `start..end`, from that
    /// part of `bytes`. No command may use the object there.
    pub(crate) fn init_at(&self, place: usize, start: u64, end: u64, bytes: &[u8]) -> Result<()> {
        let Some((at, mem)) = self.context.places().get(place).zip(self.ids.get(place)) else {
            return Ok(());
        };
        match &self.kind {
            MemoryKind::Image(shape) => {
                let region = shape.extent.map(|extent| U64::new(extent.max(1)));
                at.session.send(
                    &to_worker::InitImage { mem: *mem, origin: [U64::ZERO; 3], region },
                    &[],
                    bytes,
                )
            }
            _ => {
                let part = usize::try_from(start).ok().zip(usize::try_from(end).ok());
                let part = part.and_then(|(start, end)| bytes.get(start..end)).unwrap_or_default();
                at.session.send(
                    &to_worker::InitBuffer { mem: *mem, offset: U64::new(start) },
                    &[],
                    part,
                )
            }
        }
    }

    /// Returns shared memory for the object, if its only place is on this host and the devices
    /// there work on the host's memory.
    fn take_part(&self) -> Option<Part> {
        let place = self.context.places().first()?;
        let fits = matches!(self.kind, MemoryKind::Buffer)
            && self.parent.is_none()
            && place.devices().iter().all(|device| device.shares_host_memory());
        if fits { place.session().arena()?.take(self.size) } else { None }
    }

    /// Returns the shared memory that contains the object, and the object's offset in it.
    pub(crate) fn shared_place(&self) -> Option<(&Part, u64)> {
        match (&self.part, &self.parent, &self.kind) {
            (Some(part), ..) => Some((part, 0)),
            (None, Some(parent), MemoryKind::Buffer) => {
                let (part, origin) = parent.shared_place()?;
                Some((part, origin + self.origin))
            }
            _ => None,
        }
    }

    /// Returns the address of the content in this process, if the device works on the same memory.
    /// It is valid as long as this object lives.
    pub fn shared_pointer(&self) -> Option<NonNull<u8>> {
        let (part, offset) = self.shared_place()?;
        part.pointer(offset, self.size)
    }

    /// Like [`Memory::shared_pointer`], but only if the kernel can lend the pages to other
    /// processes, as MPI needs it.
    pub fn lendable_pointer(&self) -> Option<NonNull<u8>> {
        let (part, _) = self.shared_place()?;
        if part.is_lendable() { self.shared_pointer() } else { None }
    }

    /// Returns the address at which kernels see the first byte. Waits for the worker. The address
    /// stays the same as long as the buffer lives.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` if the device tells no addresses, or if the context spans places,
    /// because each place would have another address.
    pub fn device_address(&self) -> Result<u64> {
        if let MemoryKind::Svm { address, .. } = self.kind {
            return Ok(address);
        }
        let (Some(place), Some(mem), true) =
            (self.context.places().first(), self.ids.first(), self.context.is_single())
        else {
            return Err(Error::Refused {
                node: "client".into(),
                status: Status::INVALID_OPERATION,
            });
        };
        let call = to_worker::MemAddress { request: Id::NONE, mem: *mem };
        place.session.request(call, &[]).wait()
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub fn kind(&self) -> &MemoryKind {
        &self.kind
    }

    /// Returns the size in bytes; for an image, that of all pixels.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the `cl_mem_flags` without those of host pointers.
    pub fn flags(&self) -> u64 {
        self.flags
    }

    /// Returns the object that contains this part or that this view shows.
    pub fn parent(&self) -> Option<&Arc<Memory>> {
        self.parent.as_ref()
    }

    /// Returns the offset of this object in its parent.
    pub(crate) fn origin(&self) -> u64 {
        self.origin
    }

    pub(crate) fn id_at(&self, place: usize) -> Id<kind::Mem> {
        self.ids.get(place).copied().unwrap_or(Id::NONE)
    }

    /// Returns the object whose copies are tracked for this one.
    pub(crate) fn root(&self) -> &Self {
        self.parent.as_ref().map_or(self, |parent| parent.root())
    }

    /// Returns the name in the state machine, if this is a root whose copies are kept coherent.
    pub(crate) fn allocation(&self) -> Option<AllocationId> {
        self.allocation
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(allocation) = self.allocation {
            order().release(allocation);
        }
        if let Some((part, place)) = self.part.take().zip(self.context.places().first())
            && let Some(arena) = place.session().arena()
        {
            // Done before the worker hears of the release, because it may answer at once.
            arena.leave(self.id_at(0), part);
        }
        for ((at, id), created) in self.context.places().iter().zip(&self.ids).zip(&self.created) {
            if created.load(Ordering::Acquire) {
                // A lost session has released everything.
                _ = at.session.send(&to_worker::ReleaseMem { mem: *id }, &[], &[]);
            }
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("kind", &self.kind)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
