//! The places of files and sockets for one user on one host.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use penstock_discover::{DiscoverError, Found};
use penstock_link::spawn_quiet;
use penstock_process::variable;

/// Name of the socket in the directory of [`Surroundings::runtime_directory`].
const SOCKET_NAME: &str = "penstockd.sock";

type Variables<'a> = dyn Fn(&str) -> Option<OsString> + 'a;
type Search<'a> = dyn Fn() -> Result<Vec<Found>, String> + 'a;

/// Stack of the thread that searches the network, in bytes: twice the standard library's smallest
/// useful one, because the packets of multicast DNS are parsed on it.
const SEARCH_STACK_BYTES: usize = 256 << 10;

/// The properties of the process and the host on which the configuration depends. Tests supply
/// their own.
pub struct Surroundings<'a> {
    variable: Box<Variables<'a>>,
    search: Box<Search<'a>>,
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
    /// Returns the surroundings of this process.
    pub fn of_process() -> Self {
        Self {
            variable: Box::new(variable::value),
            search: Box::new(search_once),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            uid: rustix::process::getuid().as_raw(),
        }
    }

    /// Returns surroundings in which `variable` supplies the environment.
    pub fn new(host: &str, uid: u32, variable: impl Fn(&str) -> Option<OsString> + 'a) -> Self {
        let search = Box::new(|| Ok(Vec::new()));
        Self { variable: Box::new(variable), search, host: host.to_owned(), uid }
    }

    /// Returns the same surroundings, in which a search of the network has this result.
    #[must_use]
    pub fn with_search(mut self, search: impl Fn() -> Result<Vec<Found>, String> + 'a) -> Self {
        self.search = Box::new(search);
        self
    }

    /// Returns the daemons that announce themselves on the local network.
    pub(super) fn search(&self) -> Result<Vec<Found>, String> {
        (self.search)()
    }

    /// Returns a variable of the environment.
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        (self.variable)(name)
    }

    /// Returns a variable that holds an absolute path. The XDG rules say that relative ones are to
    /// be ignored.
    fn directory(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// Returns whether `host` is the name of this host, with or without its domain.
    pub fn is_own_host(&self, host: &str) -> bool {
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
        !host.is_empty() && short(host) == short(&self.host)
    }

    /// Returns the user's home directory.
    pub fn home(&self) -> Option<PathBuf> {
        self.directory("HOME")
    }

    /// Returns whether the home directory belongs to another user or cannot be entered.
    pub(super) fn is_home_closed(&self) -> bool {
        self.home().is_some_and(|home| match std::fs::metadata(&home) {
            Ok(found) => {
                found.uid() != self.uid
                    || rustix::fs::access(&home, rustix::fs::Access::EXEC_OK).is_err()
            }
            Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
        })
    }

    /// Returns `~/.config/penstock`, or the directory in `XDG_CONFIG_HOME`.
    pub fn config_directory(&self) -> Option<PathBuf> {
        let base =
            self.directory("XDG_CONFIG_HOME").or_else(|| Some(self.home()?.join(".config")))?;
        Some(base.join("penstock"))
    }

    /// Returns the folder with the keys for encrypted links.
    ///
    /// # Errors
    /// Returns the path in the variable if the path is relative. With other keys than the user
    /// means, a node would be taken for a new one.
    pub fn keys_folder(&self) -> Result<Option<PathBuf>, PathBuf> {
        match self.variable(variable::KEYS.name).filter(|value| !value.is_empty()) {
            None => Ok(self.config_directory()),
            Some(value) if Path::new(&value).is_absolute() => Ok(Some(value.into())),
            Some(value) => Err(value.into()),
        }
    }

    /// Returns the file that names the pool's nodes.
    pub fn pool_file(&self) -> Option<PathBuf> {
        Some(self.config_directory()?.join("pool.toml"))
    }

    /// Returns the default file with the pool's key.
    pub fn key_file(&self) -> Option<PathBuf> {
        Some(self.config_directory()?.join("key"))
    }

    /// Returns the directory for the socket of the user's own daemon: `$XDG_RUNTIME_DIR/penstock`.
    /// Without that variable (as in a batch job or under `sudo`), it is in `/run/user` or `/tmp`,
    /// and the caller must check it with [`Surroundings::is_private`].
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

    /// Returns the socket on which the user's own daemon listens and where its clients look for it.
    pub fn own_socket(&self) -> PathBuf {
        self.runtime_directory().join(SOCKET_NAME)
    }

    /// As [`Surroundings::own_socket`], if the socket exists and can be trusted.
    pub fn own_socket_if_present(&self) -> Option<PathBuf> {
        let socket = self.own_socket();
        let trusted = socket.parent().is_some_and(|directory| self.is_private(directory));
        (trusted && socket.exists()).then_some(socket)
    }

    /// Returns whether only this user and root can put anything into `directory`. Anybody can make
    /// a directory in `/tmp`, and a daemon in it would see all data of its clients.
    pub fn is_private(&self, directory: &Path) -> bool {
        std::fs::symlink_metadata(directory).is_ok_and(|found| {
            found.is_dir()
                && (found.uid() == self.uid || found.uid() == 0)
                && found.mode() & 0o022 == 0
        })
    }

    /// Expands a leading `~/` in `path` to the home directory, and makes a relative path absolute
    /// from `base`.
    pub(super) fn expand(&self, path: &str, base: &Path) -> PathBuf {
        match (path.strip_prefix("~/"), self.home()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => base.join(path),
        }
    }
}

/// Searches the local network once in the life of a process, so that all faces of Penstock in it
/// see the same pool, and only the first one waits.
fn search_once() -> Result<Vec<Found>, String> {
    static FOUND: OnceLock<Result<Vec<Found>, String>> = OnceLock::new();
    let search = || -> Result<Vec<Found>, String> {
        // The threads of the search inherit this thread's signal mask, so none of them takes the
        // program's signals.
        let thread = spawn_quiet("search", SEARCH_STACK_BYTES, penstock_discover::search);
        let thread = thread.map_err(|error| error.to_string())?;
        let found = thread.join().map_err(|_| "the search has panicked".to_owned())?;
        found.map_err(|error: DiscoverError| error.to_string())
    };
    FOUND.get_or_init(search).clone()
}
