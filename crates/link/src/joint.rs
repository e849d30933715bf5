//! State that both directions of a link share: the socket, and whether the link is open.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::arena::Arena;
use crate::error::LinkError;
use crate::fork::Owner;
use crate::stream::Stream;
use crate::trace::LinkTrace;

/// Time after which a sender that waits for room calls `on_stall`: the peer may be waiting until
/// this side takes what the peer sends. A worker that is merely busy with a copy takes less time.
pub(crate) const STALL_MIN: Duration = Duration::from_millis(10);

/// Callback of a sender that waits for room.
struct OnStall(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for OnStall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnStall")
    }
}

#[derive(Debug)]
pub(crate) struct Joint {
    /// Carries the frames. With rings it carries one byte for each wake-up of a sleeping reader.
    /// Its hang-up ends the link.
    pub(crate) stream: Stream,
    /// With rings: carries one byte for each wake-up of a sleeping writer. It is separate from
    /// `stream`, because two threads that wait for one socket would take each other's bytes.
    pub(crate) space: Option<Stream>,
    /// Memory for buffers that both sides share.
    pub(crate) arena: Option<Arc<Arena>>,
    /// Records all frames, if this process does that.
    pub(crate) trace: Option<LinkTrace>,
    on_stall: OnceLock<OnStall>,
    closed: AtomicBool,
    owner: Owner,
}

impl Joint {
    pub(crate) fn new(stream: Stream, space: Option<Stream>, arena: Option<Arc<Arena>>) -> Self {
        let (on_stall, closed, owner) =
            (OnceLock::new(), AtomicBool::new(false), Owner::this_process());
        Self { stream, space, arena, trace: None, on_stall, closed, owner }
    }

    pub(crate) fn traced(mut self, trace: Option<LinkTrace>) -> Self {
        self.trace = trace;
        self
    }

    pub(crate) fn on_stall(&self, tell: Box<dyn Fn() + Send + Sync>) {
        // Only the first callback counts.
        _ = self.on_stall.set(OnStall(tell));
    }

    /// Calls the callback: a sender waits for room.
    pub(crate) fn tell_stall(&self) {
        if let Some(OnStall(tell)) = self.on_stall.get() {
            tell();
        }
    }

    /// Checks that the link is open and that this process made it.
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        if !self.owner.is_this_process() {
            return Err(LinkError::Forked);
        }
        if self.is_closed() {
            return Err(LinkError::Closed);
        }
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Ends the link and wakes all waiting threads on both sides.
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
        // A forked child shares the socket with its parent, whose link goes on.
        if self.owner.is_this_process() {
            self.stream.shutdown();
            if let Some(space) = &self.space {
                space.shutdown();
            }
        }
    }
}

impl Drop for Joint {
    fn drop(&mut self) {
        // Closing the descriptor is not enough: a forked child may hold a copy of it.
        self.close();
    }
}
