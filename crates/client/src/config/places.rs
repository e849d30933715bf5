//! Where files and sockets are, for one user on one host.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The socket's name in the directory of [`Surroundings::runtime_directory`].
const SOCKET_NAME: &str = "penstockd.sock";

type Variables<'a> = dyn Fn(&str) -> Option<OsString> + 'a;

/// What of the process and the host decides over the configuration. A test makes its own.
pub struct Surroundings<'a> {
    variable: Box<Variables<'a>>,
    host: String,
    uid: u32,
}

impl fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings")
            .field("host", &self.host)
            .field("uid", &self.uid)
            .finish_non_exhaustive()
    }
}

impl<'a> Surroundings<'a> {
    /// Those of this process.
    pub fn of_process() -> Self {
        Self {
            variable: Box::new(|name| std::env::var_os(name)),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            uid: rustix::process::getuid().as_raw(),
        }
    }

    /// Those in which the environment is what `variable` says.
    pub fn new(host: &str, uid: u32, variable: impl Fn(&str) -> Option<OsString> + 'a) -> Self {
        Self { variable: Box::new(variable), host: host.to_owned(), uid }
    }

    /// A variable of the environment.
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        (self.variable)(name)
    }

    /// A variable that holds an absolute path; the XDG rules say that others are to be ignored.
    fn directory(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// Whether `host` is this host, by name, with or without its domain.
    pub fn is_own_host(&self, host: &str) -> bool {
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
        !host.is_empty() && short(host) == short(&self.host)
    }

    /// The user's home directory.
    pub fn home(&self) -> Option<PathBuf> {
        self.directory("HOME")
    }

    /// `~/.config/penstock`, or as `XDG_CONFIG_HOME` says.
    pub fn config_directory(&self) -> Option<PathBuf> {
        let base =
            self.directory("XDG_CONFIG_HOME").or_else(|| Some(self.home()?.join(".config")))?;
        Some(base.join("penstock"))
    }

    /// The file that names the pool's nodes.
    pub fn pool_file(&self) -> Option<PathBuf> {
        Some(self.config_directory()?.join("pool.toml"))
    }

    /// The file with the pool's key, if no other is named.
    pub fn key_file(&self) -> Option<PathBuf> {
        Some(self.config_directory()?.join("key"))
    }

    /// The directory for the own daemon's socket: `$XDG_RUNTIME_DIR/penstock`. Without that variable (as in a batch job,
    /// or under `sudo`) one that only this user can have made: see [`Surroundings::is_private`].
    pub fn runtime_directory(&self) -> PathBuf {
        if let Some(base) = self.directory("XDG_RUNTIME_DIR") {
            return base.join("penstock");
        }
        let usual = PathBuf::from(format!("/run/user/{}", self.uid));
        if usual.is_dir() {
            return usual.join("penstock");
        }
        PathBuf::from(format!("/tmp/penstock-{}", self.uid))
    }

    /// Where the own daemon listens, and where its clients look for it.
    pub fn own_socket(&self) -> PathBuf {
        self.runtime_directory().join(SOCKET_NAME)
    }

    /// As [`Surroundings::own_socket`], if there is one that can be trusted.
    pub fn own_socket_if_present(&self) -> Option<PathBuf> {
        let socket = self.own_socket();
        let trusted = socket.parent().is_some_and(|directory| self.is_private(directory));
        (trusted && socket.exists()).then_some(socket)
    }

    /// Whether nobody but this user (and root) can put anything into `directory`. Anybody can make a directory in `/tmp`,
    /// and a daemon in it would see all data of its clients.
    pub fn is_private(&self, directory: &Path) -> bool {
        std::fs::symlink_metadata(directory).is_ok_and(|found| {
            found.is_dir()
                && (found.uid() == self.uid || found.uid() == 0)
                && found.mode() & 0o022 == 0
        })
    }

    /// `path` with a leading `~/` replaced by the home directory, and, where it is relative, taken from `base`.
    pub(super) fn expand(&self, path: &str, base: &Path) -> PathBuf {
        match (path.strip_prefix("~/"), self.home()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => base.join(path),
        }
    }
}
