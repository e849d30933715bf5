//! Buffers in the memory that client and worker share, and views of symmetric heaps.
#![allow(unsafe_code, reason = "lends shared memory to drivers")]

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use penstock_device as device;
use penstock_ggas::View;
use penstock_link::{Arena, Body};
use penstock_quota::Resource;
use penstock_wire::calls::to_client;
use penstock_wire::id::kind;
use penstock_wire::{Id, Status};

use super::allowance::Taken;
use super::shared_session::SharedSession;

/// ArenaPart of the arena, lent to a driver. The client is told when it is given back.
pub(super) struct ArenaPart {
    arena: Arc<Arena>,
    offset: u64,
    size: u64,
    mem: Id<kind::Mem>,
    session: Weak<SharedSession>,
    _taken: Taken,
}

impl ArenaPart {
    /// Takes the bytes of the memory object `mem` from the client's arena.
    pub(super) fn new(
        shared: &Arc<SharedSession>,
        mem: Id<kind::Mem>,
        offset: u64,
        size: u64,
    ) -> Result<Self, Status> {
        // A client without an arena cannot name one.
        let arena = shared.outbox.arena().ok_or(Status::INVALID_OPERATION)?.clone();
        arena.pointer(offset, size).ok_or(Status::INVALID_VALUE)?;
        // Memory that was released may not be free yet. Waiting for that would wait for kernels,
        // which may wait for their client, whom this thread serves.
        let taken = Taken::new(&shared.allowance, Resource::HostMemory, size);
        let _taken = taken.map_err(|refused| {
            shared.tell_refusal(Resource::HostMemory, &refused);
            // The client may use this part of the arena for something else.
            shared.outbox.post(&to_client::MemGone { mem }, &[], Body::None);
            Status::MEM_OBJECT_ALLOCATION_FAILURE
        })?;
        Ok(Self { arena, offset, size, mem, session: Arc::downgrade(shared), _taken })
    }
}

// SAFETY: the part was checked to lie within the arena's mapping, and keeps the arena.
unsafe impl device::HostMemory for ArenaPart {
    fn range(&self) -> (NonNull<u8>, usize) {
        match (self.arena.pointer(self.offset, self.size), usize::try_from(self.size)) {
            (Some(start), Ok(bytes)) => (start, bytes),
            _ => (NonNull::dangling(), 0),
        }
    }

    /// It is pinned memory of the program, unless the device works on the host's memory anyway.
    fn is_for_kernels(&self) -> bool {
        false
    }
}

/// One PE's view of a heap, lent to a driver.
pub(super) struct HeapView {
    pub(super) view: View,
    /// Counts the heap's memory as the session's as long as a driver has it.
    pub(super) _share: Arc<device::Share>,
}

// SAFETY: the view and its pieces stay mapped while it lives. Copies here stay within the PE's own
// part (see `super::call::heap`); a kernel that touches unmapped addresses ends its own worker.
unsafe impl device::HostMemory for HeapView {
    fn range(&self) -> (NonNull<u8>, usize) {
        self.view.range()
    }

    fn pieces(&self) -> Vec<Range<usize>> {
        self.view.pieces().to_vec()
    }
}

impl Drop for ArenaPart {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            session.outbox.post(&to_client::MemGone { mem: self.mem }, &[], Body::None);
        }
    }
}
