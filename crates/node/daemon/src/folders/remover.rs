//! The thread that removes and measures the folders of workers.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use penstock_process::Lock;

use super::disk::{Kept, Taken, beyond, give_way};
use super::{
    CACHE, DiskLimit, Full, Job, KEPT_BYTES_MAX, KEPT_PER_USER_MAX, Leaving, MEASURE_EVERY,
    SESSION_BYTES_MAX, Watched, kept_at, make_private, owner, tree,
};
use crate::users::{Lease, are_idle};

/// Most files in the folder of a session, as many as 1 GiB has blocks of 4 KiB.
const SESSION_FILES_MAX: u64 = SESSION_BYTES_MAX >> 12;

/// Most files of a kept cache that changes its owner for each session. A thousand take about a
/// millisecond.
const GIVEN_FILES_MAX: u64 = 16_384;

/// The thread that removes and measures folders, so that the daemon waits for no disk.
pub(super) struct Remover {
    pub(super) base: PathBuf,
    pub(super) watched: Arc<Lock<Vec<Watched>>>,
    pub(super) full: Arc<Lock<Vec<Full>>>,
    pub(super) wake: Option<OwnedFd>,
}

impl Remover {
    pub(super) fn run(&self, jobs: &Receiver<Job>) {
        // Jobs that come all the time must not keep this thread from measuring.
        let mut measured = Instant::now();
        loop {
            // Without sessions this thread sleeps until there is one.
            let job = if self.watched.lock().is_empty() {
                jobs.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                jobs.recv_timeout(MEASURE_EVERY.saturating_sub(measured.elapsed()))
            };
            match job {
                Ok(Job::Clear(leaving)) => self.clear(leaving),
                Ok(Job::Measure) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if measured.elapsed() >= MEASURE_EVERY {
                self.measure();
                measured = Instant::now();
            }
        }
    }

    fn clear(&self, leaving: Leaving) {
        let Leaving { folder, user, lease, limit } = leaving;
        // A process that lives could change what is looked at below.
        let is_quiet = match &lease {
            Some(lease) => lease.end_processes(),
            None => are_idle(&users_of(&folder)),
        };
        if !is_quiet {
            // Such a process could lead the daemon to files elsewhere, which has other rights.
            tracing::warn!(folder = %folder.display(), "a folder stays, because its user is busy");
            return;
        }
        if let Some(user) = user {
            self.keep(&folder, user, lease.as_ref(), limit.as_ref());
        }
        // Two daemons that start at the same time find the same folder of one that has ended.
        match tree::remove(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, folder = %folder.display(), "a folder is left behind");
            }
            _ => lease.into_iter().for_each(Lease::end),
        }
    }

    /// Puts the cache in a folder into the first free place of the user, unless it is too large or
    /// empty. Older caches give way if the user may not have all of them.
    fn keep(&self, folder: &Path, user: u32, lease: Option<&Lease>, limit: Option<&DiskLimit>) {
        let cache = &folder.join(CACHE);
        let files_max = if lease.is_some() { GIVEN_FILES_MAX } else { SESSION_FILES_MAX };
        let size = tree::measure(cache, KEPT_BYTES_MAX, files_max);
        if !tree::is_folder(cache) || size.bytes == 0 || size.exceeds(KEPT_BYTES_MAX, files_max) {
            return;
        }
        if let Some(lease) = lease
            && let Err(error) = owner::take(cache, lease.number())
        {
            tracing::debug!(%error, user, "a cache is not kept");
            return;
        }
        if let Some(limit) = limit
            && !self.make_room(folder, user, size.bytes, limit.bytes_max)
        {
            return;
        }
        let made = make_private(&self.base.join("users").join(user.to_string()));
        // A name that has files is taken, and rename(2) fails.
        let kept = made.is_ok()
            && (0..KEPT_PER_USER_MAX)
                .any(|slot| fs::rename(cache, kept_at(&self.base, user, slot)).is_ok());
        if !kept {
            tracing::debug!(user, "a cache is not kept, because the user has enough of them");
        }
    }

    /// Removes the oldest caches of a user until a new one has room. Returns whether it has.
    fn make_room(&self, folder: &Path, user: u32, new_bytes: u64, bytes_max: u64) -> bool {
        let kept = (0..KEPT_PER_USER_MAX).filter_map(|slot| {
            let path = kept_at(&self.base, user, slot);
            let about = fs::symlink_metadata(&path).ok()?;
            // rename(2) has set it when the cache was kept.
            let since = (about.ctime(), about.ctime_nsec());
            let bytes = tree::measure(&path, KEPT_BYTES_MAX, SESSION_FILES_MAX).bytes;
            Some(Kept { slot, since, bytes })
        });
        let slots = KEPT_PER_USER_MAX as usize;
        let Some(gone) = give_way(kept.collect(), new_bytes, bytes_max, slots) else {
            return false;
        };
        for slot in gone {
            // What is in the folder is removed with it. A cache that a session has just taken is
            // not there any more.
            _ = fs::rename(kept_at(&self.base, user, slot), folder.join(format!("old-{slot}")));
        }
        true
    }

    fn measure(&self) {
        let watched = self.watched.lock().clone();
        let mut sessions = Vec::new();
        for Watched { worker, folder, limit } in watched {
            let size = tree::measure(&folder, SESSION_BYTES_MAX, SESSION_FILES_MAX);
            if size.exceeds(SESSION_BYTES_MAX, SESSION_FILES_MAX) {
                self.tell(Full { worker, limit: None });
            } else {
                sessions.push(Taken { worker, bytes: size.bytes, limit });
            }
        }
        for (worker, why) in beyond(&sessions) {
            self.tell(Full { worker, limit: Some(why) });
        }
    }

    fn tell(&self, full: Full) {
        self.full.lock().push(full);
        if let Some(wake) = &self.wake {
            // A full counter is readable already.
            _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
        }
    }
}

/// Returns the users besides the daemon's own to whom folders of workers in this folder belong.
fn users_of(folder: &Path) -> Vec<u32> {
    let own = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let owners = entries.filter_map(|entry| Some(entry.metadata().ok()?.uid()));
    owners.filter(|owner| *owner != own).collect()
}
