//! The workers' own folders on the disk: one for each worker, and caches that a user keeps.
//!
//! ```text
//! BASE/daemons/NAME.lock     locked while the daemon lives
//! BASE/daemons/NAME/N/       folder of one worker: home, tmp, cache
//! BASE/users/UID/N/          cache that a session of this user has left
//! ```
//! A driver takes what is in its cache for its own work and runs it. So a cache belongs to one
//! session at a time, and later to sessions of the same user only. The daemon moves it into the
//! worker's folder before the client's first byte, and out of it when the worker has ended.

mod disk;
mod owner;
mod remover;
mod tree;

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_confine::environment;
use penstock_process::{Lock, variable};
use rustix::fs::{FlockOperation, flock};

use crate::users::Lease;
pub(crate) use disk::DiskLimit;
use remover::Remover;

/// Name of the part of a worker's folder that may be kept.
const CACHE: &str = "cache";

/// Most bytes in the folder of a session. The compiled kernels of the largest programs that we
/// know take 60 MB.
pub(crate) const SESSION_BYTES_MAX: u64 = 1 << 30;

/// Most bytes of a cache that is kept, and the number of caches of a user: 1 GiB together.
const KEPT_BYTES_MAX: u64 = 256 << 20;
const KEPT_PER_USER_MAX: u32 = 4;

/// Interval at which the folders of sessions are measured. A disk takes some 2 GB in this time.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// Attempts to make a lock. Each one meets another daemon that starts in the same microseconds.
const LOCK_ATTEMPTS: usize = 16;

/// Longest wait at the daemon's end for the removal of folders. The next daemon removes the rest.
const REMOVAL_MAX: Duration = Duration::from_secs(2);

/// All folders of a daemon's workers.
#[derive(Debug)]
pub(crate) struct Folders {
    base: PathBuf,
    own: PathBuf,
    lock_path: PathBuf,
    /// Its lock says that the daemon lives.
    _lock: File,
    next: AtomicU64,
    jobs: Lock<Option<Sender<Job>>>,
    watched: Arc<Lock<Vec<Watched>>>,
    full: Arc<Lock<Vec<Full>>>,
    remover: Option<JoinHandle<()>>,
    done: Lock<Receiver<()>>,
}

/// A folder that is measured while a session uses it.
#[derive(Clone, Debug)]
struct Watched {
    worker: u32,
    folder: PathBuf,
    limit: Option<DiskLimit>,
}

/// A session that has used too much.
#[derive(Clone, Debug)]
pub(crate) struct Full {
    pub(crate) worker: u32,
    /// The limit of its user, if that is the reason. Otherwise its folder is too large.
    pub(crate) limit: Option<String>,
}

/// What the thread that removes folders does next.
#[derive(Debug)]
enum Job {
    /// Remove a worker's folder; first put the cache among those that this user keeps.
    Clear(Leaving),
    /// A session has begun: measure.
    Measure,
}

/// A folder that is removed.
#[derive(Debug)]
struct Leaving {
    folder: PathBuf,
    user: Option<u32>,
    lease: Option<Lease>,
    limit: Option<DiskLimit>,
}

/// The folder of a worker. When it is dropped, it is removed.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    all: Arc<Folders>,
    /// The user that keeps the cache.
    user: Option<u32>,
    /// The worker's own user, to whom the folder belongs.
    lease: Option<Lease>,
    /// What the files of the session's user may take.
    limit: Option<DiskLimit>,
}

impl Folders {
    /// Makes the daemon's folder at the first place that can have one. `wake` becomes readable when
    /// a session has used too much. If workers have users of their own, these can reach the folder.
    ///
    /// # Errors
    /// Fails with the reason for the last place.
    pub(crate) fn make(wake: OwnedFd, has_users: bool) -> io::Result<Arc<Self>> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        let mut wake = Some(wake);
        for base in places(has_users) {
            let made = Self::make_at(base, &mut wake)
                .and_then(|it| if has_users { it.open_to_users() } else { Ok(it) });
            match made {
                Ok(folders) => return Ok(Arc::new(folders)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Lets all users pass through to the folders of workers, each of which belongs to one user.
    /// Nobody else can list what is there.
    fn open_to_users(self) -> io::Result<Self> {
        let daemons = self.base.join("daemons");
        for folder in [&self.base, &daemons, &self.own] {
            fs::set_permissions(folder, Permissions::from_mode(0o711))?;
        }
        let is_closed =
            |folder: &&Path| fs::metadata(folder).is_ok_and(|about| about.mode() & 0o001 == 0);
        if let Some(closed) = self.base.ancestors().find(is_closed) {
            let why = format!("users of workers cannot pass through {}", closed.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(self)
    }

    fn make_at(base: PathBuf, wake: &mut Option<OwnedFd>) -> io::Result<Self> {
        make_private(&base)?;
        let daemons = base.join("daemons");
        for folder in [&daemons, &base.join("users")] {
            make_private(folder)?;
        }
        let stale = folders_of_the_dead(&daemons);
        let (lock_path, lock) = take_lock(&daemons)?;
        let own = lock_path.with_extension("");
        make_private(&own)?;
        let (jobs, taken) = channel();
        let (finished, done) = channel();
        let (watched, full) = (Arc::default(), Arc::default());
        for folder in stale {
            // The thread below takes them; it has not ended.
            _ = jobs.send(Job::Clear(Leaving { folder, user: None, lease: None, limit: None }));
        }
        let thread = Remover {
            base: base.clone(),
            watched: Arc::clone(&watched),
            full: Arc::clone(&full),
            wake: wake.take(),
        };
        let remover = penstock_process::start("folders", move || {
            thread.run(&taken);
            // Nobody listens if the daemon has not waited.
            _ = finished.send(());
        })?;
        Ok(Self {
            base,
            own,
            lock_path,
            _lock: lock,
            next: AtomicU64::new(0),
            jobs: Lock::new(Some(jobs)),
            watched,
            full,
            remover: Some(remover),
            done: Lock::new(done),
        })
    }

    /// Makes the folder of a worker, which belongs to the worker's own user if it has one.
    pub(crate) fn worker(self: &Arc<Self>, lease: Option<Lease>) -> io::Result<Folder> {
        let path = self.own.join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        if let Err(error) = make_private(&path) {
            lease.into_iter().for_each(Lease::end);
            return Err(error);
        }
        // From here on the folder is removed if anything fails.
        let folder = Folder { path, all: self.clone(), user: None, lease, limit: None };
        folder.furnish()?;
        folder.give()?;
        Ok(folder)
    }

    /// Returns the sessions that have used too much since the last call.
    pub(crate) fn full(&self) -> Vec<Full> {
        std::mem::take(&mut *self.full.lock())
    }

    fn tell(&self, job: Job) {
        if let Some(jobs) = self.jobs.lock().as_ref() {
            // The thread lives as long as this sender.
            _ = jobs.send(job);
        }
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        self.jobs.lock().take();
        if self.done.lock().recv_timeout(REMOVAL_MAX).is_ok()
            && let Some(remover) = self.remover.take()
        {
            // It has said that it ends.
            _ = remover.join();
            if tree::remove(&self.own).is_ok() {
                // If this fails, the next daemon removes it.
                _ = fs::remove_file(&self.lock_path);
            }
        }
    }
}

impl Folder {
    /// Returns the worker's own user, if it has one.
    pub(crate) fn owner(&self) -> Option<u32> {
        self.lease.as_ref().map(Lease::number)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder with the folders of all workers and the caches of all users.
    pub(crate) fn base(&self) -> &Path {
        &self.all.base
    }

    /// Makes the folders that the variables of a worker name.
    fn furnish(&self) -> io::Result<()> {
        environment::places(&self.path)
            .try_for_each(|(_, place)| DirBuilder::new().mode(0o700).recursive(true).create(place))
    }

    /// Gives the folder to the worker's own user.
    fn give(&self) -> io::Result<()> {
        self.lease.as_ref().map_or(Ok(()), |lease| owner::give(&self.path, lease.number()))
    }

    /// Begins a session of `worker`. If a user is known, the session has a cache of this user, and
    /// the user keeps the cache.
    pub(crate) fn begin(&mut self, worker: u32, user: Option<u32>, limit: Option<DiskLimit>) {
        if let Some(user) = user {
            self.user = Some(user);
            self.take_kept(user);
        }
        self.limit = limit.clone();
        self.all.watched.lock().push(Watched { worker, folder: self.path.clone(), limit });
        self.all.tell(Job::Measure);
    }

    /// Sets what the files of the session's user may take from now on.
    pub(crate) fn limit_disk(&mut self, limit: Option<DiskLimit>) {
        let mut watched = self.all.watched.lock();
        if let Some(watched) = watched.iter_mut().find(|it| it.folder == self.path) {
            watched.limit.clone_from(&limit);
        }
        self.limit = limit;
    }

    /// Puts a kept cache in place of the new one, if the user has one that no session uses.
    fn take_kept(&self, user: u32) {
        let (cache, fresh) = (self.path.join(CACHE), self.path.join("fresh"));
        let kept = self.path.join("kept");
        let taken = (0..KEPT_PER_USER_MAX)
            .any(|slot| fs::rename(kept_at(&self.all.base, user, slot), &kept).is_ok());
        // A kernel may have left anything under the name of its cache.
        if !taken || !tree::is_folder(&kept) || fs::rename(&cache, &fresh).is_err() {
            return;
        }
        if fs::rename(&kept, &cache).is_err() {
            // The worker then has a cache that is empty, as without a kept one.
            _ = fs::rename(&fresh, &cache);
        }
        if let Err(error) = self.furnish().and_then(|()| self.give()) {
            tracing::warn!(%error, folder = %self.path.display(), "a cache is incomplete");
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.all.watched.lock().retain(|watched| watched.folder != self.path);
        self.all.tell(Job::Clear(Leaving {
            folder: self.path.clone(),
            user: self.user,
            lease: self.lease.take(),
            limit: self.limit.take(),
        }));
    }
}

fn kept_at(base: &Path, user: u32, slot: u32) -> PathBuf {
    base.join("users").join(user.to_string()).join(slot.to_string())
}

/// Returns the places for the folders, the best one first.
fn places(has_users: bool) -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let home = variable::HOME.path().map(|home| home.join(".cache"));
    let cache = variable::CACHE_HOME.path().or(home).map(|cache| cache.join("penstock"));
    if let Some(chosen) = variable::CACHE.path() {
        return vec![chosen];
    }
    let unit = variable::CACHE_DIRECTORY.path();
    if has_users {
        // Nobody else can pass through the home of root.
        return unit.into_iter().chain([PathBuf::from("/var/cache/penstock")]).collect();
    }
    let temporary = std::env::temp_dir().join(format!("penstock-cache-{user}"));
    unit.into_iter().chain(cache).filter(|it| it.is_absolute()).chain([temporary]).collect()
}

/// Makes a folder, or checks that the folder at this place belongs to this user and that nobody
/// else writes to it.
fn make_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
    let about = fs::symlink_metadata(folder)?;
    let others_write = about.mode() & 0o022 != 0;
    if !about.is_dir() || about.uid() != rustix::process::geteuid().as_raw() || others_write {
        let why = format!("{} is not a folder that only its owner can change", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

/// Makes a file whose lock says that this daemon lives.
fn take_lock(daemons: &Path) -> io::Result<(PathBuf, File)> {
    for _ in 0..LOCK_ATTEMPTS {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let path = daemons.join(format!("{}-{}.lock", std::process::id(), since.as_nanos()));
        let lock = File::create(&path)?;
        // Before the lock is taken, a daemon that starts at the same time takes the file for one
        // of the dead, and removes it.
        let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        let is_same = || {
            let ours = lock.metadata().ok()?;
            let there = fs::symlink_metadata(&path).ok()?;
            Some((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
        };
        if locked && is_same() == Some(true) {
            return Ok((path, lock));
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Removes the locks of daemons that have ended, and returns the folders that belong to no daemon.
/// A folder without a lock is such a one: a daemon makes its folder after its lock, and the daemon
/// that was to remove the folder has ended, too.
fn folders_of_the_dead(daemons: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(daemons).into_iter().flatten().flatten();
    let (locks, folders): (Vec<_>, Vec<_>) = entries
        .map(|entry| entry.path())
        .partition(|path| path.extension().is_some_and(|end| end == "lock"));
    for path in locks {
        let Ok(lock) = File::open(&path) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // Another daemon that starts may have removed it.
            _ = fs::remove_file(&path);
        }
    }
    let has_lock = |folder: &PathBuf| fs::exists(folder.with_extension("lock")).unwrap_or(true);
    folders.into_iter().filter(|folder| !has_lock(folder)).collect()
}

#[cfg(test)]
mod tests;
