//! The end of a daemon that nobody uses.
//!
//! A bridge starts a daemon for its user if none runs, and nobody would ever end that daemon. So it
//! ends itself some time after its last client. A new bridge must not connect at that moment, and
//! find a socket that nobody serves any more. Both therefore take the same lock: the bridge until
//! it has connected, and the daemon before it looks for the last time whether anybody came.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Pause before the next look if a bridge has the lock.
const AGAIN: Duration = Duration::from_secs(1);

/// When a daemon ends without being told.
#[derive(Clone, Debug)]
pub struct IdleEnd {
    /// Time without a client.
    pub after: Duration,
    /// Lock that bridges hold while they connect.
    pub lock: PathBuf,
}

/// Opens a lock file, which only its user may use.
///
/// # Errors
/// Fails if the file cannot be made.
pub fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Decides when an unused daemon ends.
#[derive(Debug)]
pub(crate) struct Idle {
    end: Option<IdleEnd>,
    since: Instant,
    /// The lock, when the daemon ends. Bridges then wait until the socket is gone.
    held: Option<File>,
}

impl Idle {
    pub(crate) fn new(end: Option<IdleEnd>, now: Instant) -> Self {
        Self { end, since: now, held: None }
    }

    /// Notes whether anybody uses the daemon now, and when the last connection came.
    pub(crate) fn note(&mut self, now: Instant, is_used: bool, last_came: Instant) {
        self.since = if is_used { now } else { self.since.max(last_came) };
    }

    /// Returns when the daemon must look again even if nothing happens.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.end.as_ref().map(|end| self.since + end.after)
    }

    /// Returns whether the daemon must end now. `is_wanted` says whether anybody has come
    /// meanwhile.
    pub(crate) fn ends(&mut self, now: Instant, is_wanted: impl FnOnce() -> bool) -> bool {
        let Some(end) = self.end.as_ref().filter(|end| now >= self.since + end.after) else {
            return false;
        };
        let (lock, is_free) = match open_lock(&end.lock) {
            Ok(lock) => {
                let is_free = lock.try_lock().is_ok();
                (Some(lock), is_free)
            }
            // Without the directory there is no bridge.
            Err(error) => (None, error.kind() == ErrorKind::NotFound),
        };
        if !is_free || is_wanted() {
            self.since = (now + AGAIN).checked_sub(end.after).unwrap_or(now);
            return false;
        }
        self.held = lock;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_some_time_after_its_last_client_and_never_beside_a_bridge() {
        let lock = std::env::temp_dir().join(format!("penstock-idle-{}", std::process::id()));
        let (start, after) = (Instant::now(), Duration::from_secs(60));
        let at = |second| start + Duration::from_secs(second);
        let mut idle = Idle::new(Some(IdleEnd { after, lock: lock.clone() }), start);
        assert!(!idle.ends(at(59), || false));
        idle.note(at(100), true, start);
        assert!(!idle.ends(at(159), || false));
        // A tool that came and went since.
        idle.note(at(150), false, at(140));
        assert_eq!(idle.next_look(), Some(at(200)));
        // A bridge connects, and then it has connected.
        let bridge = open_lock(&lock).unwrap();
        bridge.lock().unwrap();
        assert!(!idle.ends(at(200), || false));
        assert_eq!(idle.next_look(), Some(at(201)));
        drop(bridge);
        assert!(!idle.ends(at(201), || true));
        assert!(idle.ends(at(202), || false));
        // Until the socket is gone, no bridge connects.
        assert!(open_lock(&lock).unwrap().try_lock().is_err());
        drop(idle);
        assert!(open_lock(&lock).unwrap().try_lock().is_ok());
        let nowhere = IdleEnd { after, lock: lock.with_extension("missing").join("lock") };
        assert!(Idle::new(Some(nowhere), start).ends(at(60), || false));
        let mut forever = Idle::new(None, start);
        assert!(forever.next_look().is_none() && !forever.ends(at(1_000_000), || false));
        std::fs::remove_file(lock).unwrap();
    }
}
