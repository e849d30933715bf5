//! Copies that a GPU does by itself, between pinned memory and its own memory.

use std::sync::Arc;

use penstock_client::{Error, Event, Queue, Want};

use super::block::MemoryOffset;
use super::context::Context;
use super::copy::CopyMode;
use super::host;
use super::stream::Stream;
use crate::edge::CuResult;

/// The places of both sides of a copy that the GPU does by itself.
pub(super) struct OwnCopy {
    pub(super) to: MemoryOffset,
    pub(super) from: MemoryOffset,
}

impl Context {
    /// Describes a copy between pinned memory of this device and memory of the device, each with
    /// its address and size. `None` if it is another copy.
    pub(super) fn own_copy(&self, to: (u64, u64), from: (u64, u64)) -> Option<OwnCopy> {
        if !self.device.is_native || !host::any_pinned() {
            return None;
        }
        let pinned = |(address, size)| self.device.pinned.locate(address, size).ok();
        let own = |(address, size)| self.device.space.locate(address, size).ok();
        let down = || Some(OwnCopy { to: pinned(to)?, from: own(from)? });
        let up = || Some(OwnCopy { to: own(to)?, from: pinned(from)? });
        up().or_else(down)
    }

    /// Sends a command that does such a copy. The GPU accesses the program's memory when the stream
    /// reaches the command.
    pub(super) fn issue_own_copy(
        &self,
        stream: &Stream,
        when: CopyMode,
        send: impl FnOnce(&Arc<Queue>, &[Event], Want) -> Result<Option<Event>, Error>,
    ) -> CuResult {
        if when != CopyMode::Now {
            return self.issue(stream, |queue, waits| send(queue, waits, Want::Nothing)).map(drop);
        }
        // If all earlier commands are known to have ended well, only the result of this one is
        // unknown.
        let settled = stream.clock.is_settled();
        let sent = self.issue(stream, |queue, waits| send(queue, waits, Want::Event))?;
        let finished = if settled { self.look_at_reads(stream) } else { self.finish(stream) };
        // Waits in any case, because the copy uses the program's memory until it has ended.
        self.await_event(stream, sent).and(finished)
    }
}
