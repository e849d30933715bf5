//! Keeps the bytes of writes until the device has read them.
//!
//! A callback or even an event per write costs more than a small write itself. Small writes are
//! therefore copied one behind the other into slabs; one marker follows a full slab, and the slab
//! is reused when the marker has ended. Middle-sized writes are kept with their events, which are
//! checked when the next write comes. Large ones are freed by a callback.

use std::collections::VecDeque;
use std::sync::Arc;

use penstock_wire::status::Status;

use super::api::{self, function};
use super::context::Context;
use super::event::Event;
use super::retire::KeptQueue;
use crate::event::EventDriver;
use crate::home::Mapping;
use crate::staging::Staged;

/// Largest write that is copied into a slab; 32 of them fill one.
pub(super) const SMALL_BYTES_MAX: usize = 2 << 10;
/// Smallest write that a callback frees, so that no large memory waits for the next command.
pub(super) const LARGE_BYTES_MIN: usize = 64 << 10;
/// Size of a slab: one marker for 1,024 writes of a cache line each.
const SLAB_BYTES: usize = 64 << 10;
/// Size of a cache line; each write starts on a new one.
const LINE_BYTES: usize = 64;
/// Most spare slabs: 1 MiB, 16,384 small writes under way.
const SPARE_MAX: usize = 16;

/// The bytes of one queue's writes.
#[derive(Debug, Default)]
pub(super) struct Reclaim {
    current: Option<Mapping>,
    used: usize,
    /// Kept bytes in the order of their commands.
    pending: VecDeque<(Arc<Event>, Kept)>,
    spare: Vec<Mapping>,
    /// Slabs whose marker failed, kept until the queue has finished: commands may still use them.
    doubtful: Vec<Mapping>,
}

#[derive(Debug)]
enum Kept {
    Slab(Mapping),
    #[expect(dead_code, reason = "kept to be dropped")]
    Bytes(Staged),
}

impl Reclaim {
    /// Copies a small write's bytes to memory that stays until its command has ended. The command
    /// must be enqueued before the lock on `self` is released. `marker` enqueues a marker behind
    /// all commands so far.
    pub(super) fn place(
        &mut self,
        bytes: &[u8],
        marker: impl FnOnce() -> Result<Arc<Event>, Status>,
    ) -> Result<*const u8, Status> {
        debug_assert!(bytes.len() <= SMALL_BYTES_MAX);
        if self.current.is_none() || SLAB_BYTES - self.used < bytes.len() {
            self.change_slab(marker)?;
        }
        let slab = self.current.as_ref().ok_or(Status::OUT_OF_HOST_MEMORY)?;
        slab.write(self.used, bytes);
        // SAFETY: the write above checked that offset and bytes lie within the slab.
        let place = unsafe { slab.address().add(self.used) };
        self.used = (self.used + bytes.len()).next_multiple_of(LINE_BYTES).min(SLAB_BYTES);
        Ok(place)
    }

    fn change_slab(
        &mut self,
        marker: impl FnOnce() -> Result<Arc<Event>, Status>,
    ) -> Result<(), Status> {
        if let Some(full) = self.current.take() {
            match marker() {
                Ok(behind) => self.pending.push_back((behind, Kept::Slab(full))),
                Err(_) => self.doubtful.push(full),
            }
        }
        self.sweep();
        let slab = match self.spare.pop() {
            Some(slab) => slab,
            None => Mapping::zeroed(SLAB_BYTES)?,
        };
        (self.current, self.used) = (Some(slab), 0);
        Ok(())
    }

    /// Keeps a middle-sized write's bytes until its event has ended.
    pub(super) fn keep(&mut self, event: Arc<Event>, bytes: Staged) {
        self.sweep();
        self.pending.push_back((event, Kept::Bytes(bytes)));
    }

    /// Frees bytes of ended commands, from the oldest to the first that has not ended. In an
    /// out-of-order queue some bytes stay longer than needed, but each command costs one look.
    pub(super) fn sweep(&mut self) {
        while let Some((event, _)) = self.pending.front() {
            let status = event.status();
            if status.0 > 0 {
                break;
            }
            match self.pending.pop_front() {
                Some((_, Kept::Slab(slab))) if status.is_error() => self.doubtful.push(slab),
                Some((_, Kept::Slab(slab))) => self.spare(slab),
                Some((_, Kept::Bytes(_))) | None => {}
            }
        }
    }

    /// Takes the slabs that are free once the queue has finished. Call it before that.
    pub(super) fn take_doubtful(&mut self) -> Vec<Mapping> {
        self.sweep();
        std::mem::take(&mut self.doubtful)
    }

    /// Reuses `slabs`: the queue has finished since they were taken.
    pub(super) fn all_ended(&mut self, slabs: Vec<Mapping>) {
        slabs.into_iter().for_each(|slab| self.spare(slab));
        self.sweep();
    }

    /// Keeps `slabs`: the queue could not finish.
    pub(super) fn none_ended(&mut self, slabs: Vec<Mapping>) {
        self.doubtful.extend(slabs);
    }

    fn spare(&mut self, slab: Mapping) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(slab);
        }
    }

    /// Keeps the bytes when the queue goes away: "commands enqueued before are still executed".
    pub(super) fn outlive(mut self, queue: &KeptQueue, context: &Context) {
        self.sweep();
        if self.used == 0 && self.pending.is_empty() && self.doubtful.is_empty() {
            return;
        }
        self.spare.clear();
        let Some(last) = last_marker(queue, context) else {
            // Nobody knows when the bytes are free. They are few, and the process ends with its
            // client.
            std::mem::forget(self);
            return;
        };
        last.on_complete(Box::new(move |status, _| {
            if status.is_error() {
                std::mem::forget(self);
            }
        }));
        if let Ok(flush) = function!(clFlush) {
            // SAFETY: the queue lives until this returns.
            let _ = unsafe { flush(queue.raw()) };
        }
    }
}

fn last_marker(queue: &KeptQueue, context: &Context) -> Option<Arc<Event>> {
    let marker = function!(clEnqueueMarkerWithWaitList).ok()?;
    let mut event = std::ptr::null_mut();
    // SAFETY: the queue lives; `event` outlives the call.
    let code = unsafe { marker(queue.raw(), 0, std::ptr::null(), &mut event) };
    api::made(event, code).ok().map(|event| Event::of_context(event, context))
}
