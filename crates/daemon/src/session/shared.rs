//! Buffers in the memory that client and worker share, and views of symmetric heaps.
#![allow(unsafe_code, reason = "lends shared memory to drivers")]

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use penstock_device as device;
use penstock_ggas::View;
use penstock_link::{Arena, Body};
use penstock_wire::calls::{Serve, to_client, to_worker};
use penstock_wire::id::kind;
use penstock_wire::{FrameError, Id, Payload, Status};

use super::{Session, Shared};

/// Part of the arena, lent to a driver. The client is told when it is given back.
struct Part {
    arena: Arc<Arena>,
    offset: u64,
    size: u64,
    mem: Id<kind::Mem>,
    session: Weak<Shared>,
}

// SAFETY: the part was checked to lie within the arena's mapping, and keeps the arena.
unsafe impl device::HostMemory for Part {
    fn range(&self) -> (NonNull<u8>, usize) {
        match (self.arena.pointer(self.offset, self.size), usize::try_from(self.size)) {
            (Some(start), Ok(bytes)) => (start, bytes),
            _ => (NonNull::dangling(), 0),
        }
    }
}

/// One PE's view of a heap, lent to a driver.
pub(super) struct HeapView {
    pub(super) view: View,
    /// Counts the heap's memory as the session's as long as a driver has it.
    pub(super) _share: Arc<device::Share>,
}

// SAFETY: the view and its pieces stay mapped while it lives. Copies here stay within the PE's own
// part (see `super::heap`); a kernel that touches unmapped addresses ends its own worker.
unsafe impl device::HostMemory for HeapView {
    fn range(&self) -> (NonNull<u8>, usize) {
        self.view.range()
    }

    fn pieces(&self) -> Vec<Range<usize>> {
        self.view.pieces().to_vec()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            session.outbox.post(&to_client::MemGone { mem: self.mem }, &[], Body::None);
        }
    }
}

impl Serve<to_worker::CreateSharedBuffer> for Session {
    fn serve(
        &mut self,
        call: &to_worker::CreateSharedBuffer,
        _: &[Id<kind::Event>],
        _: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        self.objects.mems.vacant(call.mem)?;
        let make = || {
            let context = self.objects.contexts.get(call.context)?;
            // A client without an arena cannot name one.
            let arena = self.shared.outbox.arena().ok_or(Status::INVALID_OPERATION)?;
            let (offset, size) = (call.offset.get(), call.size.get());
            arena.pointer(offset, size).ok_or(Status::INVALID_VALUE)?;
            let part = Part {
                arena: arena.clone(),
                offset,
                size,
                mem: call.mem,
                session: Arc::downgrade(&self.shared),
            };
            device::Mem::buffer_in(context, call.flags.get(), size, Box::new(part))
        };
        let made = make();
        self.objects.mems.insert(call.mem, made)
    }
}
