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

mod tree;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use penstock_confine::environment::PRIVATE;
use penstock_process::{Lock, variable};
use rustix::fs::{FlockOperation, flock};

/// Name of the part of a worker's folder that may be kept.
const CACHE: &str = "cache";

/// Most bytes in the folder of a session. The compiled kernels of the largest programs that we
/// know take 60 MB.
pub(crate) const SESSION_BYTES_MAX: u64 = 1 << 30;

/// Most files in the folder of a session, as many as 1 GiB has blocks of 4 KiB.
const SESSION_FILES_MAX: u64 = SESSION_BYTES_MAX >> 12;

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
    full: Arc<Lock<Vec<u32>>>,
    remover: Option<JoinHandle<()>>,
    done: Lock<Receiver<()>>,
}

/// A folder that is measured while a session uses it.
#[derive(Clone, Debug)]
struct Watched {
    worker: u32,
    folder: PathBuf,
}

/// What the thread that removes folders does next.
#[derive(Debug)]
enum Job {
    /// Remove a worker's folder; first put the cache among those that this user keeps.
    Clear { folder: PathBuf, user: Option<u32> },
    /// A session has begun: measure.
    Measure,
}

/// The folder of a worker. When it is dropped, it is removed.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    all: Arc<Folders>,
    /// The user that keeps the cache.
    user: Option<u32>,
}

impl Folders {
    /// Makes the daemon's folder at the first place that can have one. `wake` becomes readable when
    /// a session has used too much.
    ///
    /// # Errors
    /// Fails with the reason for the last place.
    pub(crate) fn make(wake: OwnedFd) -> io::Result<Arc<Self>> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        let mut wake = Some(wake);
        for base in places() {
            match Self::make_at(base, &mut wake) {
                Ok(folders) => return Ok(Arc::new(folders)),
                Err(error) => last = error,
            }
        }
        Err(last)
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
            _ = jobs.send(Job::Clear { folder, user: None });
        }
        let thread = Remover {
            base: base.clone(),
            watched: Arc::clone(&watched),
            full: Arc::clone(&full),
            wake: wake.take(),
        };
        let remover = thread::Builder::new().name("folders".into()).spawn(move || {
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

    /// Makes the folder of a worker.
    pub(crate) fn worker(self: &Arc<Self>) -> io::Result<Folder> {
        let path = self.own.join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        make_private(&path)?;
        // From here on the folder is removed if anything fails.
        let folder = Folder { path, all: self.clone(), user: None };
        folder.furnish()?;
        Ok(folder)
    }

    /// Returns the workers whose sessions have used too much since the last call.
    pub(crate) fn full(&self) -> Vec<u32> {
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
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder with the folders of all workers and the caches of all users.
    pub(crate) fn base(&self) -> &Path {
        &self.all.base
    }

    /// Makes the folders that the variables of a worker name.
    fn furnish(&self) -> io::Result<()> {
        PRIVATE.iter().try_for_each(|(_, inner)| {
            DirBuilder::new().mode(0o700).recursive(true).create(self.path.join(inner))
        })
    }

    /// Begins a session of `worker`. If a user is known, the session has a cache of this user, and
    /// the user keeps the cache.
    pub(crate) fn begin(&mut self, worker: u32, user: Option<u32>) {
        if let Some(user) = user {
            self.user = Some(user);
            self.take_kept(user);
        }
        self.all.watched.lock().push(Watched { worker, folder: self.path.clone() });
        self.all.tell(Job::Measure);
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
        if let Err(error) = self.furnish() {
            tracing::warn!(%error, folder = %self.path.display(), "a cache is incomplete");
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.all.watched.lock().retain(|watched| watched.folder != self.path);
        self.all.tell(Job::Clear { folder: self.path.clone(), user: self.user });
    }
}

/// The thread that removes and measures folders, so that the daemon waits for no disk.
struct Remover {
    base: PathBuf,
    watched: Arc<Lock<Vec<Watched>>>,
    full: Arc<Lock<Vec<u32>>>,
    wake: Option<OwnedFd>,
}

impl Remover {
    fn run(&self, jobs: &Receiver<Job>) {
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
                Ok(Job::Clear { folder, user }) => self.clear(&folder, user),
                Ok(Job::Measure) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if measured.elapsed() >= MEASURE_EVERY {
                self.measure();
                measured = Instant::now();
            }
        }
    }

    fn clear(&self, folder: &Path, user: Option<u32>) {
        if let Some(user) = user {
            let cache = folder.join(CACHE);
            let size = tree::measure(&cache, KEPT_BYTES_MAX, SESSION_FILES_MAX);
            let fits = !size.exceeds(KEPT_BYTES_MAX, SESSION_FILES_MAX);
            if tree::is_folder(&cache) && size.bytes > 0 && fits {
                self.keep(&cache, user);
            }
        }
        // Two daemons that start at the same time find the same folder of one that has ended.
        if let Err(error) = tree::remove(folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, folder = %folder.display(), "a folder is left behind");
        }
    }

    /// Puts a cache into the first free place of the user.
    fn keep(&self, cache: &Path, user: u32) {
        let made = make_private(&self.base.join("users").join(user.to_string()));
        // A name that has files is taken, and rename(2) fails.
        let kept = made.is_ok()
            && (0..KEPT_PER_USER_MAX)
                .any(|slot| fs::rename(cache, kept_at(&self.base, user, slot)).is_ok());
        if !kept {
            tracing::debug!(user, "a cache is not kept, because the user has enough of them");
        }
    }

    fn measure(&self) {
        let watched = self.watched.lock().clone();
        for Watched { worker, folder } in watched {
            let size = tree::measure(&folder, SESSION_BYTES_MAX, SESSION_FILES_MAX);
            if size.exceeds(SESSION_BYTES_MAX, SESSION_FILES_MAX) {
                self.full.lock().push(worker);
                if let Some(wake) = &self.wake {
                    // A full counter is readable already.
                    _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
                }
            }
        }
    }
}

fn kept_at(base: &Path, user: u32, slot: u32) -> PathBuf {
    base.join("users").join(user.to_string()).join(slot.to_string())
}

/// Returns the places for the folders, the best one first.
fn places() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let home = variable::HOME.path().map(|home| home.join(".cache"));
    let cache = variable::CACHE_HOME.path().or(home).map(|cache| cache.join("penstock"));
    if let Some(chosen) = variable::CACHE.path() {
        return vec![chosen];
    }
    let unit = variable::CACHE_DIRECTORY.path();
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
mod tests {
    use super::*;

    fn folders(name: &str) -> (PathBuf, Arc<Folders>) {
        let base = std::env::temp_dir().join(format!("penstock-{name}-{}", std::process::id()));
        _ = fs::remove_dir_all(&base);
        let folders = Folders::make_at(base.clone(), &mut None).unwrap();
        (base, Arc::new(folders))
    }

    fn until(what: &str, done: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < deadline, "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Makes a folder whose path is too long.
    fn hide_in(mut folder: PathBuf) {
        while folder.as_os_str().len() < 3_900 {
            folder.push("n".repeat(100));
        }
        fs::create_dir_all(&folder).unwrap();
        let mut mkdir = std::process::Command::new("mkdir");
        let made = mkdir.arg("n".repeat(200)).current_dir(&folder).status();
        assert!(made.unwrap().success());
    }

    #[test]
    fn a_worker_has_a_folder_that_goes_with_it() {
        let (base, folders) = folders("own-folder");
        let (one, two) = (folders.worker().unwrap(), folders.worker().unwrap());
        assert_ne!(one.path(), two.path());
        for (_, inner) in PRIVATE {
            assert!(one.path().join(inner).is_dir(), "{inner}");
        }
        let path = one.path().to_owned();
        drop(one);
        until("it stays", || !path.exists());
        drop((two, folders));
        assert_eq!(fs::read_dir(base.join("daemons")).unwrap().count(), 0);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_cache_comes_back_to_its_user_only() {
        let (base, folders) = folders("kept");
        let mut first = folders.worker().unwrap();
        first.begin(1, Some(1000));
        fs::write(first.path().join("cache/pocl/kernel"), "code").unwrap();
        drop(first);
        until("it is not kept", || kept_at(&base, 1000, 0).exists());
        for (user, has) in [(Some(1001), false), (None, false), (Some(1000), true)] {
            let mut later = folders.worker().unwrap();
            later.begin(2, user);
            assert_eq!(later.path().join("cache/pocl/kernel").exists(), has, "{user:?}");
            // While a session has it, another one of the same user has a cache of its own.
            if has {
                let mut beside = folders.worker().unwrap();
                beside.begin(3, user);
                assert!(!beside.path().join("cache/pocl/kernel").exists());
                assert!(beside.path().join("cache/pocl").is_dir());
            }
        }
        drop(folders);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_link_in_place_of_a_cache_leads_nowhere() {
        let (base, folders) = folders("link");
        let target = base.join("target");
        fs::create_dir(&target).unwrap();
        let mut folder = folders.worker().unwrap();
        folder.begin(1, Some(7));
        let cache = folder.path().join("cache");
        fs::remove_dir_all(&cache).unwrap();
        std::os::unix::fs::symlink(&target, &cache).unwrap();
        fs::write(target.join("file"), [1; 5000]).unwrap();
        let path = folder.path().to_owned();
        drop(folder);
        until("it stays", || !path.exists());
        assert!(!tree::is_folder(&kept_at(&base, 7, 0)) && target.join("file").exists());
        // Not even if it had got there.
        make_private(&base.join("users/7")).unwrap();
        std::os::unix::fs::symlink(&target, kept_at(&base, 7, 0)).unwrap();
        let mut later = folders.worker().unwrap();
        later.begin(2, Some(7));
        assert!(later.path().join("cache/pocl").is_dir());
        assert_eq!(fs::read_dir(&target).unwrap().count(), 1);
        drop((later, folders));
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_session_without_a_user_leaves_nothing() {
        let (base, folders) = folders("no-user");
        let mut folder = folders.worker().unwrap();
        folder.begin(1, None);
        fs::write(folder.path().join("cache/pocl/kernel"), "code").unwrap();
        drop((folder, folders));
        assert_eq!(fs::read_dir(base.join("users")).unwrap().count(), 0);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn folders_of_a_daemon_that_was_killed_are_removed() {
        let (base, folders) = folders("stale");
        let daemons = base.join("daemons");
        let (dead, lives) = (daemons.join("1-2"), folders.own.clone());
        fs::create_dir(&dead).unwrap();
        File::create(daemons.join("1-2.lock")).unwrap();
        // The daemon that removed its lock was killed before it removed the folder.
        let orphan = daemons.join("3-4");
        fs::create_dir(&orphan).unwrap();
        let other = Folders::make_at(base.clone(), &mut None).unwrap();
        until("it stays", || !dead.exists() && !orphan.exists());
        assert!(lives.exists(), "a folder of a daemon that lives is gone");
        drop((folders, other));
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn daemons_that_start_at_the_same_time_keep_their_folders() {
        let base = std::env::temp_dir().join(format!("penstock-crowd-{}", std::process::id()));
        let all = thread::scope(|scope| {
            let starts = (0..8).map(|_| {
                scope.spawn(|| {
                    let make = || Folders::make_at(base.clone(), &mut None).unwrap();
                    (0..50).map(|_| make()).next_back()
                })
            });
            let starts: Vec<_> = starts.collect();
            starts.into_iter().filter_map(|it| it.join().unwrap()).collect::<Vec<_>>()
        });
        for folders in &all {
            assert!(folders.own.is_dir() && folders.lock_path.is_file());
        }
        assert_eq!(all.len(), 8);
        drop(all);
        assert_eq!(fs::read_dir(base.join("daemons")).unwrap().count(), 0);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_folder_is_measured_while_sessions_come_and_go() {
        let (base, folders) = folders("measured");
        let mut folder = folders.worker().unwrap();
        folder.begin(1, None);
        hide_in(folder.path().join("tmp"));
        let deadline = Instant::now() + Duration::from_secs(20);
        // Again and again, another session begins before it is time to measure.
        while !folders.full().contains(&1) {
            assert!(Instant::now() < deadline, "nobody measures");
            folders.tell(Job::Measure);
            thread::sleep(MEASURE_EVERY / 10);
        }
        drop((folder, folders));
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_cache_that_hides_something_is_not_kept() {
        let (base, folders) = folders("hides");
        let mut folder = folders.worker().unwrap();
        folder.begin(1, Some(7));
        fs::write(folder.path().join("cache/pocl/kernel"), "code").unwrap();
        hide_in(folder.path().join("cache"));
        let path = folder.path().to_owned();
        drop(folder);
        until("it stays", || !path.exists());
        assert!(!kept_at(&base, 7, 0).exists());
        drop(folders);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_folder_that_others_can_change_is_refused() {
        let folder = std::env::temp_dir().join(format!("penstock-open-{}", std::process::id()));
        DirBuilder::new().mode(0o777).recursive(true).create(&folder).unwrap();
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(Folders::make_at(folder.clone(), &mut None).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
