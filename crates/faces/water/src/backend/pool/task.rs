//! A command together with the objects that it uses, ready for the thread that sends it.

use std::sync::{Arc, OnceLock};

use penstock_cl_sys::CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
use penstock_client::{ArgValue, Context, Error, Event, Given, Heap, Memory, Queue, Want};

use super::kernel::PoolKernel;
use super::landing::Landing;
use crate::backend::{Failure, gone, not_performed};
use crate::command::{Arg, Command, IndexSpace, ObjectId, ObjectKind};
use crate::transport::Span;

/// A buffer, which is set once its creation has been sent.
pub(super) type BufferSlot = Arc<OnceLock<Arc<Memory>>>;

/// An object of the pool.
#[derive(Clone, Debug)]
pub(super) enum PoolObject {
    Buffer {
        device: u32,
        memory: BufferSlot,
    },
    /// A device's part of a heap, which is used like a buffer.
    Part {
        device: u32,
        heap: Arc<Heap>,
    },
    Kernel(Arc<PoolKernel>),
    Heap(Arc<Heap>),
}

impl PoolObject {
    /// Returns the device that has the object, if only one device has it.
    pub(super) const fn device(&self) -> Option<u32> {
        match self {
            Self::Buffer { device, .. } | Self::Part { device, .. } => Some(*device),
            Self::Kernel(_) | Self::Heap(_) => None,
        }
    }
}

/// A command with the objects that it uses, in the order of [`Command::objects`].
#[derive(Debug)]
pub(super) struct Task {
    pub(super) command: Command,
    pub(super) objects: Vec<(ObjectId, PoolObject)>,
}

impl Task {
    /// Number of bytes that travel with the command.
    pub(super) const fn bytes_sent(&self) -> u64 {
        match &self.command {
            Command::Write { size, .. } => *size,
            _ => 0,
        }
    }

    /// Returns the heap over which the command's kernel talks to others.
    pub(super) fn heap(&self) -> Option<Arc<Heap>> {
        let id = self.command.heap()?;
        self.heap_of(id).ok().cloned()
    }

    /// Returns the memory of the program that the command writes to.
    pub(super) fn target(&self) -> Option<Span> {
        match self.command {
            Command::Read { address, size, .. } => Some(Span::of_address(address, size)),
            _ => None,
        }
    }

    /// Returns the words after "cannot" in messages.
    pub(super) fn phrase(&self) -> &'static str {
        let is_part = matches!(self.objects.last(), Some((_, PoolObject::Part { .. })));
        match self.command {
            Command::Write { .. } if is_part => "write a part of a heap",
            Command::Read { .. } if is_part => "read a part of a heap",
            _ => self.command.phrase(),
        }
    }

    /// Performs the command. Returns its event, or `None` if it has ended already.
    pub(super) fn perform(
        self,
        context: &Arc<Context>,
        queue: &Arc<Queue>,
        waits: &[Event],
        landing: Option<Landing>,
        refusal: &dyn Fn(&Error) -> Failure,
    ) -> Result<Option<Event>, Failure> {
        match &self.command {
            Command::CreateBuffer { buffer, size, flags } => {
                let made = Memory::buffer(context, *flags, *size, None)
                    .map_err(|error| refusal(&error))?;
                if let Some(PoolObject::Buffer { memory, .. }) = self.object(*buffer) {
                    _ = memory.set(Arc::clone(&made));
                }
                // A creation has no answer. The migration tells whether there is memory, and
                // allocates it where it is used.
                queue.migrate(&[made], CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, waits, Want::Event)
            }
            Command::Run { kernel, range, args } => {
                return self.run(*kernel, range, args, queue, waits, refusal);
            }
            Command::Write { buffer, offset, size, address } => {
                let span = Span::of_address(*address, *size);
                // SAFETY: the caller of `Backend::start` leaves these bytes unchanged until the
                // operation is reported.
                let bytes = Given(unsafe { bytes_of(&span) });
                match self.object(*buffer) {
                    Some(PoolObject::Part { heap, .. }) => {
                        heap.write(queue, *offset, &bytes, waits, Want::Event)
                    }
                    _ => queue.write(self.memory(*buffer)?, *offset, &bytes, waits, Want::Event),
                }
            }
            Command::Read { buffer, offset, size, .. } => {
                let range = penstock_client::Range { offset: *offset, size: *size };
                let target = Box::new(landing.unwrap_or_default());
                match self.object(*buffer) {
                    Some(PoolObject::Part { heap, .. }) => heap.read(queue, range, target, waits),
                    _ => queue.read(self.memory(*buffer)?, range, target, waits, Want::Event),
                }
            }
            Command::Copy { from, from_offset, to, to_offset, size } => {
                let (source, target) = (self.memory(*from)?, self.memory(*to)?);
                queue.copy((source, *from_offset), (target, *to_offset), *size, waits, Want::Event)
            }
            Command::AbortHeap { heap, reason } => {
                self.heap_of(*heap)?.abort(reason).map(|()| None)
            }
            // The end of this function drops the object.
            Command::ReleaseBuffer { .. }
            | Command::ReleaseKernel { .. }
            | Command::ReleaseHeap { .. } => Ok(None),
            Command::CreateKernel { .. }
            | Command::CreateHeap { .. }
            | Command::ResetHeap { .. }
            | Command::Move(_)
            | Command::Marker => return Err(not_performed(&self.command)),
        }
        .map_err(|error| refusal(&error))
    }

    fn run(
        &self,
        kernel: ObjectId,
        range: &IndexSpace,
        args: &[Arg],
        queue: &Arc<Queue>,
        waits: &[Event],
        refusal: &dyn Fn(&Error) -> Failure,
    ) -> Result<Option<Event>, Failure> {
        let Some(PoolObject::Kernel(kernel)) = self.object(kernel) else {
            return Err(gone(ObjectKind::Kernel));
        };
        let kernel = &kernel.kernel;
        let mut heaps = Vec::new();
        for (index, arg) in args.iter().enumerate() {
            match arg {
                Arg::Bytes(bytes) => kernel.set_bytes(index, bytes),
                Arg::Buffer(buffer) => {
                    let memory = Arc::clone(self.memory(*buffer)?);
                    kernel.set(index, ArgValue::Memory(Some(memory)));
                }
                Arg::Local(size) => kernel.set(index, ArgValue::Local(*size)),
                Arg::Heap(heap) => {
                    heaps.push(index);
                    kernel.set(index, ArgValue::Heap(Arc::clone(self.heap_of(*heap)?)));
                }
            }
        }
        let launched =
            queue.launch(kernel, *range, waits, Want::Event).map_err(|error| refusal(&error));
        for index in heaps {
            // The kernel may live long and must not keep the heap.
            kernel.set(index, ArgValue::Memory(None));
        }
        launched
    }

    fn object(&self, id: ObjectId) -> Option<&PoolObject> {
        self.objects.iter().find(|(other, _)| *other == id).map(|(_, object)| object)
    }

    /// Returns a buffer's memory, which exists once the buffer's creation has been sent.
    fn memory(&self, id: ObjectId) -> Result<&Arc<Memory>, Failure> {
        match self.object(id) {
            Some(PoolObject::Buffer { memory, .. }) => memory.get(),
            _ => None,
        }
        .ok_or_else(|| gone(ObjectKind::Buffer))
    }

    fn heap_of(&self, id: ObjectId) -> Result<&Arc<Heap>, Failure> {
        match self.object(id) {
            Some(PoolObject::Heap(heap)) => Ok(heap),
            _ => Err(gone(ObjectKind::Heap)),
        }
    }
}

/// Returns the bytes of a span.
///
/// # Safety
/// The bytes are valid and do not change while the result is used.
const unsafe fn bytes_of(span: &Span) -> &[u8] {
    if span.length == 0 {
        return &[];
    }
    // SAFETY: the caller guarantees it.
    unsafe { std::slice::from_raw_parts(span.start, span.length) }
}
