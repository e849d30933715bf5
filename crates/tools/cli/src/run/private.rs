//! A directory that only this user can read, for one run of one program.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use penstock_client::config::Surroundings;
use rustix::fs::Access;

use crate::failure::Failure;

/// Prefix of the directories' names.
const NAME: &str = "run-";

/// End of the name of a log that is kept.
const LOG_ENDING: &str = ".log";

/// Longest part of a log that is kept, in bytes: its end.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// Number of logs that are kept.
const LOGS_MAX: usize = 8;

/// Name of the socket of a daemon that serves one run.
pub const SOCKET_NAME: &str = "node.sock";

/// File system whose files lie in memory.
const MEMORY: &str = "/dev/shm";

/// Longest base path. The path of a Unix socket has at most 107 bytes. Below the base follow
/// `/run-1234567-89abcdef/node.sock`, 31 bytes, and more for 64-bit process ids.
const BASE_BYTES_MAX: usize = 64;

/// Directories younger than this may be in the middle of their creation.
const YOUNG: Duration = Duration::from_secs(60);

/// A held directory: no other process removes it while this value lives or its file is open.
#[derive(Debug)]
pub struct PrivateDirectory {
    path: PathBuf,
    // Shared lock. The guard has it, too.
    hold: File,
}

impl PrivateDirectory {
    /// Creates a new directory. Removes those that earlier processes left behind, if they were
    /// killed together with their guards.
    pub fn create(surroundings: &Surroundings<'_>) -> Result<Self, Failure> {
        Self::create_in(&base(surroundings)?)
    }

    /// Like [`PrivateDirectory::create`], but the files in the directory lie in memory.
    pub fn create_in_memory(surroundings: &Surroundings<'_>) -> Result<Self, Failure> {
        let base = base_in_memory();
        make_private(&base, surroundings)?;
        Self::create_in(&base)
    }

    /// Returns the place of the directory in memory with this name.
    pub fn in_memory(name: &str) -> PathBuf {
        base_in_memory().join(name)
    }

    /// Creates the directory in memory with this name, or holds it together with another process of
    /// the same run. Each of them calls [`PrivateDirectory::leave`].
    pub fn join_in_memory(name: &str, surroundings: &Surroundings<'_>) -> Result<Self, Failure> {
        if !name.starts_with(NAME) || name.contains('/') {
            let reason = "this is no name of a directory of a run".to_owned();
            return Err(Failure::Argument { argument: name.to_owned(), reason });
        }
        let base = base_in_memory();
        make_private(&base, surroundings)?;
        sweep(&base);
        let path = base.join(name);
        make_private(&path, surroundings)?;
        Self::hold(path)
    }

    /// Returns a new name for a directory of this process.
    pub fn new_name() -> String {
        let mut random = [0; 4];
        // Not a secret. It only avoids the directory of an earlier process with the same number.
        _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
        let random = u32::from_ne_bytes(random);
        format!("{NAME}{}-{random:08x}", std::process::id())
    }

    fn create_in(base: &Path) -> Result<Self, Failure> {
        sweep(base);
        let path = base.join(Self::new_name());
        DirBuilder::new().mode(0o700).create(&path).map_err(Failure::file(&path, "make"))?;
        Self::hold(path)
    }

    /// Holds the directory that another process of the same run created.
    pub fn hold(path: PathBuf) -> Result<Self, Failure> {
        let hold = File::open(&path).map_err(Failure::file(&path, "open"))?;
        hold.lock_shared().map_err(Failure::file(&path, "lock"))?;
        Ok(Self { path, hold })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the file `name` in the directory and writes `text` to it.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        let path = self.path.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(text.as_ref()))
            .map_err(Failure::file(&path, "write"))
    }

    /// Like [`PrivateDirectory::write`], but another process may have written the same before.
    pub fn put(&self, name: &str, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        let part = format!("{name}.{}", std::process::id());
        self.write(&part, text)?;
        let (part, path) = (self.path.join(part), self.path.join(name));
        fs::rename(part, &path).map_err(Failure::file(&path, "write"))
    }

    /// Returns the file for the log of a daemon.
    pub fn log(&self) -> PathBuf {
        self.path.join("daemon.log")
    }

    /// Keeps the log of the daemon beside the directory if something in it is wrong, under the
    /// process id of the program. The user learns of a lost node only afterwards.
    pub fn keep_log(&self, pid: i32) {
        let Some(base) = self.path.parent() else { return };
        // There is nobody to tell if it cannot be kept.
        _ = self.keep_log_as(&base.join(format!("{NAME}{pid}{LOG_ENDING}")));
        remove_old_logs(base);
    }

    fn keep_log_as(&self, target: &Path) -> io::Result<()> {
        let mut log = File::open(self.log())?;
        if !is_worth_keeping(BufReader::new(&log))? {
            return Ok(());
        }
        log.seek(SeekFrom::Start(log.metadata()?.len().saturating_sub(LOG_BYTES_MAX)))?;
        let kept = self.path.join("kept.log");
        let mut end = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&kept)?;
        io::copy(&mut log.take(LOG_BYTES_MAX), &mut end)?;
        fs::rename(kept, target)
    }

    /// Removes the directory with all its contents, unless another process holds it.
    pub fn leave(self) {
        // If two processes try this at the same time, the kernel lets one of them have the lock.
        if self.hold.try_lock().is_ok() {
            self.remove();
        }
    }

    /// Removes the directory with all its contents.
    pub fn remove(self) {
        // There is nobody to tell, and the next run tries again.
        _ = fs::remove_dir_all(&self.path);
    }
}

/// Returns the directory in which to create private directories.
fn base(surroundings: &Surroundings<'_>) -> Result<PathBuf, Failure> {
    let [usual, other] = bases(surroundings);
    let is_short = usual.as_os_str().len() <= BASE_BYTES_MAX;
    let is_fit = is_short && can_be_listed(&usual);
    // Root's directory is private, too, but this user cannot make anything in it.
    if is_fit && make_private(&usual, surroundings).is_ok() && can_be_filled(&usual) {
        return Ok(usual);
    }
    make_private(&other, surroundings)?;
    Ok(other)
}

/// Returns the usual place for private directories, and the one for a user who cannot use that.
fn bases(surroundings: &Surroundings<'_>) -> [PathBuf; 2] {
    let uid = rustix::process::getuid().as_raw();
    [surroundings.runtime_directory(), PathBuf::from(format!("/tmp/penstock-{uid}"))]
}

fn base_in_memory() -> PathBuf {
    Path::new(MEMORY).join(format!("penstock-{}", rustix::process::getuid().as_raw()))
}

/// Returns whether this user can make files in the directory.
pub fn can_be_filled(path: &Path) -> bool {
    rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// Returns whether the path can be part of an address in a list of nodes.
pub fn can_be_listed(path: &Path) -> bool {
    path.to_str().is_some_and(|text| !text.contains(','))
}

fn make_private(path: &Path, surroundings: &Surroundings<'_>) -> Result<(), Failure> {
    if let Err(error) = DirBuilder::new().mode(0o700).create(path)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(Failure::file(path, "make")(error));
    }
    if surroundings.is_private(path) {
        return Ok(());
    }
    let owner = fs::symlink_metadata(path).map_err(Failure::file(path, "read"))?.uid();
    let reason = not_private(owner, path.starts_with(MEMORY));
    Err(Failure::Argument { argument: path.display().to_string(), reason })
}

/// Returns why a directory with this owner cannot be used, and what helps.
fn not_private(owner: u32, is_in_memory: bool) -> String {
    let is_mine = owner == rustix::process::getuid().as_raw();
    let (what, remover) = if is_mine {
        ("others can write to this directory".to_owned(), "remove it")
    } else {
        (format!("user {owner} has made this directory"), "have that user or root remove it")
    };
    // No variable names another place in memory.
    let other = if is_in_memory { "" } else { ", or set XDG_RUNTIME_DIR to one of your own" };
    format!("{what}; {remover}{other}")
}

/// Returns the sockets of the daemons that runs of this user have started for themselves, each with
/// the process id of its program. Creates nothing.
pub fn daemons(surroundings: &Surroundings<'_>) -> Vec<(String, PathBuf)> {
    let mut bases = bases(surroundings).to_vec();
    bases.dedup();
    bases.retain(|base| surroundings.is_private(base));
    let entries = bases.into_iter().filter_map(|base| fs::read_dir(base).ok()).flatten();
    let of_run = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let (pid, _) = name.strip_prefix(NAME)?.split_once('-')?;
        Some((pid.to_owned(), entry.path().join(SOCKET_NAME)))
    };
    let all = entries.flatten().filter_map(of_run);
    all.filter(|(_, socket)| socket.exists()).collect()
}

/// Returns whether a log has a line of the level `warn` or `error`: the second word of a line. A
/// driver may have written any bytes between the lines.
fn is_worth_keeping(log: impl BufRead) -> io::Result<bool> {
    for line in log.split(b'\n') {
        let line = line?;
        if matches!(line.split(|byte| *byte == b' ').nth(1), Some(b"warn" | b"error")) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn remove_old_logs(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    let of_log = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let is_log = name.starts_with(NAME) && name.ends_with(LOG_ENDING);
        let modified = entry.metadata().and_then(|about| about.modified()).ok()?;
        is_log.then(|| (modified, entry.path()))
    };
    let mut logs: Vec<_> = entries.flatten().filter_map(of_log).collect();
    logs.sort();
    for (_, path) in logs.iter().rev().skip(LOGS_MAX) {
        _ = fs::remove_file(path);
    }
}

/// Removes directories that no process holds.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(NAME.as_bytes()))
    {
        let old = entry.metadata().is_ok_and(|about| {
            about.is_dir()
                && about.modified().is_ok_and(|time| {
                    SystemTime::now().duration_since(time).is_ok_and(|age| age > YOUNG)
                })
        });
        if old && File::open(entry.path()).is_ok_and(|hold| hold.try_lock().is_ok()) {
            _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_holds_is_swept() {
        let base = std::env::temp_dir().join(format!("penstock-sweep-{}", std::process::id()));
        // Left by a failed run with the same process id.
        _ = fs::remove_dir_all(&base);
        fs::create_dir_all(&base).unwrap();
        let make = |name: &str| {
            let path = base.join(name);
            fs::create_dir(&path).unwrap();
            let hour_ago = SystemTime::now() - Duration::from_secs(3600);
            File::open(&path).unwrap().set_modified(hour_ago).unwrap();
            path
        };
        let (held, left, other) = (make("run-1-a"), make("run-2-b"), make("other"));
        let young = base.join("run-3-c");
        fs::create_dir(&young).unwrap();
        let hold = PrivateDirectory::hold(held.clone()).unwrap();
        sweep(&base);
        assert!(held.exists() && young.exists() && other.exists() && !left.exists());
        drop(hold);
        // While another test starts a process, the new process holds every open file until its
        // `exec`.
        penstock_trial::wait_for("the removal of what nobody holds", || {
            sweep(&base);
            !held.exists()
        });
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn the_message_about_a_directory_names_its_owner_and_what_helps() {
        let other = rustix::process::getuid().as_raw() + 7;
        let said = not_private(other, true);
        assert!(said.contains(&format!("user {other} ")) && !said.contains("XDG"), "{said}");
        assert!(not_private(other, false).contains("XDG_RUNTIME_DIR"));
        let said = not_private(other - 7, true);
        assert!(said.contains("others can write") && said.ends_with("; remove it"), "{said}");
    }

    #[test]
    fn a_path_that_no_list_can_name_is_not_used() {
        use std::os::unix::ffi::OsStrExt as _;
        assert!(can_be_listed(Path::new("/run/Jürgen 2/penstock")));
        assert!(!can_be_listed(Path::new("/run/a,b/penstock")));
        assert!(!can_be_listed(Path::new(std::ffi::OsStr::from_bytes(b"/run/\xff/penstock"))));
    }

    #[test]
    fn logs_with_warnings_are_kept_and_old_ones_are_not() {
        let base = std::env::temp_dir().join(format!("penstock-logs-{}", std::process::id()));
        _ = fs::remove_dir_all(&base);
        fs::create_dir_all(base.join("run-1-a")).unwrap();
        let directory = PrivateDirectory::hold(base.join("run-1-a")).unwrap();
        let kept = |pid: i32| base.join(format!("run-{pid}.log")).exists();
        directory.keep_log(1);
        fs::write(directory.log(), "2026-11-28T07:24:01Z info a worker writes text=\"warn\"\n")
            .unwrap();
        directory.keep_log(2);
        assert!(!kept(1) && !kept(2));
        let mut trouble = b"\xff of a driver\n2026-11-28T07:24:02Z warn a worker\n".to_vec();
        trouble.resize(trouble.len() + (1 << 20), b'x');
        fs::write(directory.log(), trouble).unwrap();
        for pid in 10..20 {
            directory.keep_log(pid);
            let age = Duration::from_secs(u64::try_from(100 - pid).unwrap());
            let file = File::options().write(true).open(base.join(format!("run-{pid}.log")));
            file.unwrap().set_modified(SystemTime::now() - age).unwrap();
        }
        directory.keep_log(20);
        let left: Vec<_> = (10..=20).filter(|pid| kept(*pid)).collect();
        assert_eq!(left, [13, 14, 15, 16, 17, 18, 19, 20]);
        let about = fs::metadata(base.join("run-20.log")).unwrap();
        assert_eq!((about.len(), about.mode() & 0o777), (LOG_BYTES_MAX, 0o600));
        assert!(directory.path().exists());
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn the_last_one_that_leaves_a_common_directory_removes_it() {
        let surroundings = Surroundings::of_process();
        let name = PrivateDirectory::new_name();
        let join = || PrivateDirectory::join_in_memory(&name, &surroundings).unwrap();
        let (one, other) = (join(), join());
        let path = one.path().to_path_buf();
        assert_eq!(path, PrivateDirectory::in_memory(&name));
        one.put("key", "same").unwrap();
        other.put("key", "same").unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        let about = fs::metadata(path.join("key")).unwrap();
        assert_eq!((about.len(), about.mode() & 0o777), (4, 0o600));
        one.leave();
        assert!(path.exists());
        other.leave();
        // While another test starts a process, the new process holds every open file until its
        // `exec`.
        penstock_trial::wait_for("the removal by the last one", || {
            path.exists().then(|| join().leave());
            !path.exists()
        });
        for name in ["other", "run-1/../x"] {
            assert!(PrivateDirectory::join_in_memory(name, &surroundings).is_err(), "{name}");
        }
    }

    #[test]
    fn it_is_private_and_goes_away() {
        let runtime = std::env::temp_dir().join(format!("penstock-private-{}", std::process::id()));
        fs::create_dir_all(&runtime).unwrap();
        let uid = rustix::process::getuid().as_raw();
        let runtime_text = runtime.clone().into_os_string();
        let surroundings = Surroundings::new("h", uid, |name| {
            (name == "XDG_RUNTIME_DIR").then(|| runtime_text.clone())
        });
        daemons(&surroundings);
        assert!(!runtime.join("penstock").exists(), "who only looks creates nothing");
        let directory = PrivateDirectory::create(&surroundings).unwrap();
        let path = directory.path().to_path_buf();
        assert!(path.starts_with(&runtime));
        directory.write("a", "b").unwrap();
        directory.remove();
        assert!(!path.exists());
        fs::remove_dir_all(&runtime).unwrap();
    }
}
