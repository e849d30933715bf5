//! Copies that a GPU does by itself, between pinned memory and its own memory.
//!
//! The client's state machine keeps the order of all commands that move memory of the program. It
//! does not know that such a copy uses that memory. So the client does not notice that a write of
//! another device must take its bytes after such a copy has stored them, or that such a copy must
//! wait until the client has stored what another device has read. A block of pinned memory is
//! therefore in one of two states:
//!
//! * All commands that have used the block are copies that its device does by itself. The worker
//!   executes them in the order of the streams, which is all the order that there is. Copies within
//!   the program's memory wait for their stream or take their turn there.
//! * No command that uses the block, now or later, is such a copy. The state machine knows all of
//!   them, as for plain pages.
//!
//! The first command of another kind takes a block from the first state to the second
//! ([`PinnedBlock::leave_to_client`]). It waits for the open commands of the block's device, so the
//! copies that the state machine does not know have ended before there is a command that it knows.
//! Whoever sends a copy that the device does by itself holds a lock from the question about the
//! state until the copy is sent. Whoever changes the state collects the open commands under the
//! same lock. So each copy is either among these commands, or finds the second state.
//!
//! The wait happens at most once for a block. Until it has ended, also copies of the block's own
//! device that use the block wait. A block that its device has not used yet needs no wait.

use std::sync::Arc;

use penstock_client::{Error, Event, Queue, Want};

use super::block::MemoryOffset;
use super::context::Context;
use super::copy::CopyMode;
use super::host;
use super::pinned::PinnedBlock;
use super::stream::Stream;
use crate::edge::CuResult;

/// A copy that the GPU does by itself.
pub(super) struct OwnCopy {
    block: Arc<PinnedBlock>,
    pub(super) to: MemoryOffset,
    pub(super) from: MemoryOffset,
}

impl Context {
    /// Describes a copy between pinned memory of this device and memory of the device, each with
    /// its address and size. `None` if it is another copy.
    pub(super) fn own_copy(&self, to: (u64, u64), from: (u64, u64)) -> Option<OwnCopy> {
        if !self.device.is_native {
            return None;
        }
        let pinned = |(address, size)| {
            let block = host::pinned(address, size)?;
            Some((block, self.device.pinned.locate(address, size).ok()?))
        };
        let own = |(address, size)| self.device.space.locate(address, size).ok();
        let up = || {
            let (block, from) = pinned(from)?;
            Some(OwnCopy { block, to: own(to)?, from })
        };
        let down = || {
            let (block, to) = pinned(to)?;
            Some(OwnCopy { block, to, from: own(from)? })
        };
        up().or_else(down)
    }

    /// Sends a command that does such a copy. The GPU accesses the program's memory when the stream
    /// reaches the command. Returns `None` and sends nothing if the client moves the bytes of this
    /// block.
    pub(super) fn issue_own_copy(
        &self,
        stream: &Stream,
        copy: &OwnCopy,
        when: CopyMode,
        send: impl FnOnce(&Arc<Queue>, &[Event], Want) -> Result<Option<Event>, Error>,
    ) -> Option<CuResult> {
        let is_awaited = when == CopyMode::Now;
        let want = if is_awaited { Want::Event } else { Want::Nothing };
        // If all earlier commands are known to have ended well, only the result of this one is
        // unknown.
        let settled = stream.clock.is_settled();
        let sent = copy
            .block
            .moved_by_device(|| self.issue(stream, |queue, waits| send(queue, waits, want)))?;
        if !is_awaited {
            return Some(sent.map(drop));
        }
        Some(sent.and_then(|sent| {
            let finished = if settled { self.look_at_reads(stream) } else { self.finish(stream) };
            // Waits in any case, because the copy uses the program's memory until it has ended.
            self.await_event(stream, sent).and(finished)
        }))
    }
}
