//! State that both directions of a link share: the socket, and whether the link is open.

use std::fmt;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use penstock_process::Lock;

use crate::arena::Arena;
use crate::error::LinkError;
use crate::fork::Owner;
use crate::silence::Silence;
use crate::stream::Stream;
use crate::trace::LinkTrace;
use crate::transport::rings::ring::{Map, STEP_BYTES};
use crate::transport::syscall::{LOOK_EVERY, Readiness};

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

/// Whether a peer that sends beats still sends anything.
#[derive(Debug)]
struct Watch {
    silence: Silence,
    /// Number of bytes in the ring of the peer at the last look.
    told: u64,
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
    /// Ring that the peer writes to.
    back: Option<Arc<Map>>,
    /// Set if the peer sends beats.
    watch: OnceLock<Lock<Watch>>,
    /// Whether bytes have come since the last look.
    heard: AtomicBool,
    /// Why the link ended, from the first thread that knew more than that it has ended.
    reason: OnceLock<LinkError>,
    on_stall: OnceLock<OnStall>,
    closed: AtomicBool,
    owner: Owner,
}

impl Joint {
    pub(crate) fn new(stream: Stream, space: Option<Stream>, arena: Option<Arc<Arena>>) -> Self {
        Self {
            stream,
            space,
            arena,
            trace: None,
            back: None,
            watch: OnceLock::new(),
            heard: AtomicBool::new(false),
            reason: OnceLock::new(),
            on_stall: OnceLock::new(),
            closed: AtomicBool::new(false),
            owner: Owner::this_process(),
        }
    }

    /// Notes the ring that the peer writes to.
    pub(crate) fn reading(mut self, back: Arc<Map>) -> Self {
        self.back = Some(back);
        self
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

    /// Notes that the peer sends beats: the link has ended if nothing comes for this time while
    /// threads look. Only the first call counts.
    pub(crate) fn expect_beats(&self, silence_max: Duration) {
        let silence = Silence::new(penstock_process::now(), silence_max);
        _ = self.watch.set(Lock::new(Watch { silence, told: 0 }));
    }

    /// Notes that bytes have come.
    pub(crate) fn hear(&self) {
        // A thread that receives much does not take the line of the cache from others each time.
        if !self.heard.load(Relaxed) {
            self.heard.store(true, Relaxed);
        }
    }

    /// Sleeps until `over`, which is one of this link's streams, is ready or hung up. Returns
    /// `false` if the deadline passed. Ends the link if the peer vanishes or falls silent
    /// meanwhile.
    pub(crate) fn wait(
        &self,
        over: &Stream,
        what: Readiness,
        deadline: Option<Instant>,
    ) -> Result<bool, LinkError> {
        if self.watch.get().is_none() {
            return over.wait(what, deadline).map_err(|error| self.end(error));
        }
        loop {
            let look = penstock_process::now() + LOOK_EVERY;
            let limit = deadline.map_or(look, |deadline| deadline.min(look));
            if over.wait(what, Some(limit)).map_err(|error| self.end(error))? {
                if what == Readiness::Readable {
                    self.hear();
                }
                return Ok(true);
            }
            if deadline.is_some_and(|deadline| penstock_process::now() >= deadline) {
                return Ok(false);
            }
            self.look()?;
        }
    }

    /// Checks that the peer has neither vanished nor fallen silent. Costs system calls.
    pub(crate) fn look(&self) -> Result<(), LinkError> {
        self.look_at(penstock_process::now())
    }

    /// Like [`Joint::look`]. Tests give a time of their own.
    pub(crate) fn look_at(&self, now: Instant) -> Result<(), LinkError> {
        if self.stream.vanished() {
            return Err(self.end(LinkError::Vanished));
        }
        let Some(watch) = self.watch.get() else { return Ok(()) };
        let mut watch = watch.lock();
        let heard = self.heard.swap(false, Relaxed) | self.has_come(&mut watch);
        if !watch.silence.look(now, heard) {
            return Ok(());
        }
        let seconds = watch.silence.max().as_secs();
        drop(watch);
        Err(self.end(LinkError::Silent { seconds }))
    }

    /// Returns whether a look would hear the peer.
    #[cfg(test)]
    pub(crate) fn hears(&self) -> bool {
        self.watch.get().is_some_and(|watch| self.has_come(&mut watch.lock()))
    }

    /// Returns whether the peer has sent bytes that no thread of this side has taken yet, or could
    /// send none because nobody takes any. A peer in the middle of a frame sends no beat, and waits
    /// for room for up to [`STEP_BYTES`] bytes.
    fn has_come(&self, watch: &mut Watch) -> bool {
        let Some(back) = &self.back else {
            return matches!(
                self.stream.wait(Readiness::Readable, Some(penstock_process::now())),
                Ok(true)
            );
        };
        let before = std::mem::replace(&mut watch.told, back.told());
        before != watch.told || back.is_full_for(STEP_BYTES)
    }

    /// Ends the link because of this error, and returns the reason of its end.
    ///
    /// The reason is kept before the link is closed: another thread that finds the link closed may
    /// be the first that tells a person.
    pub(crate) fn end(&self, error: LinkError) -> LinkError {
        let error = self.explained(error);
        self.close();
        error
    }

    /// Keeps the reason that this error gives for the end of the link, if it is the first. Returns
    /// the kept reason in place of an error that only says that the link has ended, and of a later
    /// reason: the first is the cause of the others.
    pub(crate) fn explained(&self, error: LinkError) -> LinkError {
        let kept = match copy_of(&error) {
            Some(reason) => Some(self.reason.get_or_init(|| reason)),
            None if matches!(error, LinkError::Closed) => self.reason.get(),
            None => None,
        };
        kept.and_then(copy_of).unwrap_or(error)
    }

    /// Checks that the link is open and that this process made it.
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        if !self.owner.is_this_process() {
            return Err(LinkError::Forked);
        }
        if self.is_closed() {
            return Err(self.explained(LinkError::Closed));
        }
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    /// Ends the link and wakes all waiting threads on both sides.
    pub(crate) fn close(&self) {
        // Whoever finds the link closed finds the reason, too.
        self.closed.store(true, Release);
        // A forked child shares the socket with its parent, whose link goes on.
        if self.owner.is_this_process() {
            self.stream.shutdown();
            if let Some(space) = &self.space {
                space.shutdown();
            }
        }
    }
}

/// Returns a copy of an error that tells why a link has ended. Returns `None` for the errors that
/// tell what is wrong with one call or frame, and for [`LinkError::Closed`].
fn copy_of(error: &LinkError) -> Option<LinkError> {
    match error {
        LinkError::Silent { seconds } => Some(LinkError::Silent { seconds: *seconds }),
        LinkError::Vanished => Some(LinkError::Vanished),
        LinkError::Ring(why) => Some(LinkError::Ring(why)),
        LinkError::Record(error) => Some(LinkError::Record(*error)),
        LinkError::System { doing, source } => {
            let source = match source.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(source.kind(), source.to_string()),
            };
            Some(LinkError::System { doing, source })
        }
        _ => None,
    }
}

impl Drop for Joint {
    fn drop(&mut self) {
        // Closing the descriptor is not enough: a forked child may hold a copy of it.
        self.close();
    }
}
