//! The configuration of the pool: its nodes, how they are opened, and how they are shown.
//!
//! The faces inside foreign programs and the command `penstock` both use it, so that they see the
//! same pool. It consists of plain functions that cache nothing and print nothing, and a test can
//! supply its own surroundings.
//!
//! The nodes come from the first of these sources that names any:
//! 1. the variable `PENSTOCK_NODES`,
//! 2. the file `~/.config/penstock/pool.toml` (see `file.rs`),
//! 3. the nodes of the Slurm allocation in which the program runs (see `slurm.rs`),
//! 4. the user's own daemon, if its socket is at the default place.

pub mod file;
pub mod nodes;
pub mod places;
pub mod slurm;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use nodes::{DISCOVER, LOCAL, NO_NODES, NodeAddress};
use penstock_dql::Query;
use penstock_link::{Address, EncryptionOptions, Keys, LinkError, Pins, Rule};
use penstock_process::variable::{self, TIMEOUT_MS_MAX};
pub use places::Surroundings;

/// TCP port of a daemon if none is given: "PENS" on a telephone's keys. IANA has not assigned it.
pub const PORT_DEFAULT: u16 = 7367;

/// Number of nodes of one pool. Each costs its client a link and a reading thread. This is ten
/// times the largest pool that was published.
pub const NODES_MAX: usize = 1024;

/// Longest silence of a node while its link is opened, in ms. The daemon itself gives a hello 5 s.
/// A program whose pool has lost a node should start sooner than that, and a loaded node answers in
/// well under 1 s: if it has no worker, it says so.
pub const TIMEOUT_MS_DEFAULT: u64 = 3_000;

/// Variable that names the nodes of the pool.
pub const NODES_VARIABLE: &str = variable::NODES.name;
/// Variable that names the file with the pool's key.
pub const KEY_VARIABLE: &str = variable::KEY.name;
/// Variable that says which links over TCP are encrypted: `never`, `remote` or `always`.
pub const ENCRYPTION_VARIABLE: &str = variable::ENCRYPTION.name;
/// Variable that says how the pool is shown: `pool` or `node`.
pub const PLATFORMS_VARIABLE: &str = variable::PLATFORMS.name;
/// Variable that selects devices of the pool.
pub const DEVICES_VARIABLE: &str = variable::DEVICES.name;
/// Variable that says in which order programs get the devices: `in-order` or `round-robin`.
pub const PLACEMENT_VARIABLE: &str = variable::PLACEMENT.name;
/// Variable with the longest silence of a node while its link is opened, in ms.
pub const TIMEOUT_VARIABLE: &str = variable::TIMEOUT_MS.name;
/// Variable that says how symmetric heaps reach other devices: `auto` or `proxy`.
pub const HEAP_PATH_VARIABLE: &str = variable::HEAP_PATH.name;
/// Variable with Slurm's list of the allocated nodes.
pub const SLURM_VARIABLE: &str = variable::SLURM_NODES.name;

/// How the pool is shown to an OpenCL program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Platforms {
    /// One platform with the devices of all nodes, so that one context can span nodes.
    #[default]
    Pool,
    /// One platform for each platform of each node.
    Node,
}

/// The order in which programs get the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The same order for all programs.
    #[default]
    InOrder,
    /// Each new program begins with the next device, so that programs that use only their first
    /// device share all devices.
    RoundRobin,
}

/// How the devices of a symmetric heap reach each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeapPath {
    /// Through shared memory if their workers are on one host, otherwise by the proxy.
    #[default]
    Auto,
    /// By the proxy between all devices of different workers, for tests and measurements.
    Proxy,
}

/// The source that named the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The variable `PENSTOCK_NODES` named them.
    Variable,
    /// The file of the pool.
    File(PathBuf),
    Slurm,
    /// The socket of the user's own daemon at its default place.
    OwnDaemon,
    /// None: the pool has no nodes.
    Nothing,
}

/// The nodes that a caller wants to know.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// Those that the first of the sources names.
    Configured,
    /// Those of this list instead.
    Listed { list: &'a str, place: &'a Where },
    /// No nodes: the caller needs the other settings.
    Nothing,
}

/// The pool as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The nodes in their order, each once.
    pub nodes: Vec<NodeAddress>,
    /// The source that named the nodes.
    pub source: Source,
    /// File with the key for nodes over TCP and vsock.
    pub key: Option<PathBuf>,
    /// Which links over TCP are encrypted.
    pub encryption: Rule,
    /// Folder with the keys for encrypted links; `None` if the user has no home directory.
    pub keys_folder: Option<PathBuf>,
    pub platforms: Platforms,
    /// Query that selects and orders the devices, or `None` for all devices, node by node.
    pub devices: Option<Query>,
    pub placement: Placement,
    /// Longest silence of a node while its link is opened. The time in line does not count.
    pub timeout: Duration,
    pub heap_path: HeapPath,
}

impl Config {
    /// Returns the configuration for this process.
    ///
    /// # Errors
    /// If a variable or the file is not understood. The message says which, and what to write
    /// instead.
    pub fn load() -> Result<Self, ConfigError> {
        Self::load_in(&Surroundings::of_process())
    }

    /// Returns the configuration in the given surroundings.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_in(surroundings: &Surroundings<'_>) -> Result<Self, ConfigError> {
        Self::load_for(Wanted::Configured, surroundings)
    }

    /// As [`Config::load_in`], but the nodes are the wanted ones.
    ///
    /// # Errors
    /// As [`Config::load`]. A mistake in nodes that are not wanted is no error.
    pub fn load_for(
        wanted: Wanted<'_>,
        surroundings: &Surroundings<'_>,
    ) -> Result<Self, ConfigError> {
        let path = surroundings.pool_file();
        let file = path
            .as_deref()
            .map_or(Ok(None), |path| file::read(path, surroundings))?
            .unwrap_or_default();
        let (nodes, source) = match wanted {
            Wanted::Configured => find_nodes(surroundings, &file, path.as_deref())?,
            Wanted::Listed { list, place } => {
                (nodes::read_list_at(list, place, surroundings)?, Source::Variable)
            }
            Wanted::Nothing => (Vec::new(), Source::Nothing),
        };
        Ok(Self {
            nodes,
            source,
            key: find_key(surroundings, &file)?,
            encryption: match text(surroundings, ENCRYPTION_VARIABLE)? {
                Some(value) => encryption(&value, &Where::Variable(ENCRYPTION_VARIABLE))?,
                None => file.encryption,
            },
            keys_folder: surroundings.keys_folder().map_err(|path| ConfigError::Keys { path })?,
            platforms: match text(surroundings, PLATFORMS_VARIABLE)? {
                Some(value) => platforms(&value, &Where::Variable(PLATFORMS_VARIABLE))?,
                None => file.platforms,
            },
            devices: text(surroundings, DEVICES_VARIABLE)?
                .map(|value| devices(&value))
                .transpose()?,
            placement: text(surroundings, PLACEMENT_VARIABLE)?
                .map_or(Ok(Placement::default()), |value| placement(&value))?,
            timeout: match text(surroundings, TIMEOUT_VARIABLE)? {
                Some(value) => timeout_from_text(&value)?,
                None => file.timeout,
            },
            heap_path: heap_path_of(surroundings, &file)?,
        })
    }
}

/// Returns how the devices of a symmetric heap reach each other, as configured for this process.
/// Each new heap asks for this, long after the pool was opened.
///
/// # Errors
/// As [`Config::load`].
pub fn heap_path() -> Result<HeapPath, ConfigError> {
    let surroundings = Surroundings::of_process();
    let path = surroundings.pool_file();
    let file = path
        .as_deref()
        .map_or(Ok(None), |path| file::read(path, &surroundings))?
        .unwrap_or_default();
    heap_path_of(&surroundings, &file)
}

fn heap_path_of(
    surroundings: &Surroundings<'_>,
    file: &file::PoolFile,
) -> Result<HeapPath, ConfigError> {
    match text(surroundings, HEAP_PATH_VARIABLE)? {
        Some(value) => read_heap_path(&value, &Where::Variable(HEAP_PATH_VARIABLE)),
        None => Ok(file.heap_path),
    }
}

impl Config {
    /// Returns the addresses of the nodes.
    pub fn addresses(&self) -> Vec<Address> {
        self.nodes.iter().map(|node| node.address.clone()).collect()
    }

    /// Returns the keys for the nodes of the pool. Nodes on Unix sockets need none. A node that
    /// needs a key and gets none says so.
    ///
    /// # Errors
    /// If the file of the pool's key cannot be used.
    pub fn load_keys(&self) -> Result<Keys, LinkError> {
        self.load_keys_for(self.nodes.iter().map(|node| &node.address))
    }

    /// As [`Config::load_keys`], for these nodes.
    ///
    /// # Errors
    /// As [`Config::load_keys`].
    pub fn load_keys_for<'a>(
        &self,
        mut nodes: impl Iterator<Item = &'a Address>,
    ) -> Result<Keys, LinkError> {
        if !nodes.any(Address::needs_key) {
            return Ok(Keys::default());
        }
        Keys::load(self.key.as_deref(), &self.encryption_options(), Pins::File)
    }

    /// Returns how links are encrypted.
    pub fn encryption_options(&self) -> EncryptionOptions {
        EncryptionOptions { rule: self.encryption, folder: self.keys_folder.clone() }
    }
}

fn find_nodes(
    surroundings: &Surroundings<'_>,
    file: &file::PoolFile,
    path: Option<&Path>,
) -> Result<(Vec<NodeAddress>, Source), ConfigError> {
    if let Some(list) = text(surroundings, NODES_VARIABLE)? {
        return Ok((nodes::read_list(&list, surroundings)?, Source::Variable));
    }
    if let (false, Some(path)) = (file.nodes.is_empty(), path) {
        let list = file.read_nodes(path, surroundings)?;
        return Ok((list, Source::File(path.to_path_buf())));
    }
    if let Some(list) = text(surroundings, SLURM_VARIABLE)? {
        let hosts = slurm::expand(&list)?;
        return Ok((nodes::of_hosts(&hosts, file.port, surroundings)?, Source::Slurm));
    }
    match surroundings.own_socket_if_present() {
        Some(path) => Ok((vec![NodeAddress::unix(LOCAL, path)], Source::OwnDaemon)),
        None => Ok((Vec::new(), Source::Nothing)),
    }
}

/// Returns the file of the key. A configured file is returned unchecked, so that opening it reports
/// what is wrong; the default file only if it exists.
fn find_key(
    surroundings: &Surroundings<'_>,
    file: &file::PoolFile,
) -> Result<Option<PathBuf>, ConfigError> {
    if let Some(path) = text(surroundings, KEY_VARIABLE)? {
        return Ok(Some(PathBuf::from(path)));
    }
    Ok(file.key.clone().or_else(|| surroundings.key_file().filter(|path| path.exists())))
}

/// Returns a variable's text, or `None` if the variable is unset or empty.
fn text(
    surroundings: &Surroundings<'_>,
    name: &'static str,
) -> Result<Option<String>, ConfigError> {
    match surroundings.variable(name).map(OsString::into_string) {
        None => Ok(None),
        Some(Ok(text)) if text.trim().is_empty() => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(_)) => Err(ConfigError::NotText { place: Where::Variable(name) }),
    }
}

fn platforms(value: &str, place: &Where) -> Result<Platforms, ConfigError> {
    match value.trim() {
        "pool" => Ok(Platforms::Pool),
        "node" => Ok(Platforms::Node),
        other => Err(ConfigError::Platforms { place: place.clone(), value: other.to_owned() }),
    }
}

fn encryption(value: &str, place: &Where) -> Result<Rule, ConfigError> {
    let unknown =
        || ConfigError::Encryption { place: place.clone(), value: value.trim().to_owned() };
    Rule::from_word(value.trim()).ok_or_else(unknown)
}

fn read_heap_path(value: &str, place: &Where) -> Result<HeapPath, ConfigError> {
    match value.trim() {
        "auto" => Ok(HeapPath::Auto),
        "proxy" => Ok(HeapPath::Proxy),
        other => Err(ConfigError::HeapPath { place: place.clone(), value: other.to_owned() }),
    }
}

fn placement(value: &str) -> Result<Placement, ConfigError> {
    match value.trim() {
        "in-order" => Ok(Placement::InOrder),
        "round-robin" => Ok(Placement::RoundRobin),
        other => Err(ConfigError::Placement { value: other.to_owned() }),
    }
}

fn devices(value: &str) -> Result<Query, ConfigError> {
    let place = Where::Variable(DEVICES_VARIABLE);
    Query::parse(value).map_err(|source| ConfigError::Devices { place, source })
}

fn timeout_from_text(value: &str) -> Result<Duration, ConfigError> {
    let place = Where::Variable(TIMEOUT_VARIABLE);
    match value.trim().parse() {
        Ok(ms) => timeout(ms, &place),
        Err(_) => Err(ConfigError::Timeout { place, value: value.to_owned() }),
    }
}

fn timeout(ms: u64, place: &Where) -> Result<Duration, ConfigError> {
    if (1..=TIMEOUT_MS_MAX).contains(&ms) {
        return Ok(Duration::from_millis(ms));
    }
    Err(ConfigError::Timeout { place: place.clone(), value: ms.to_string() })
}

/// The place of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// A variable of the environment.
    Variable(&'static str),
    /// A file and, if it is known, the line in it.
    File(PathBuf, Option<usize>),
    /// An argument of the command line.
    Argument(&'static str),
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::File(path, Some(line)) => write!(f, "{}:{line}", path.display()),
            Self::File(path, None) => write!(f, "{}", path.display()),
            Self::Argument(name) => write!(f, "argument {name}"),
        }
    }
}

/// An error in the configuration: what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not an address.
    #[error(
        "{place}: `{value}` is not the address of a node ({reason}); write {}",
        Address::forms(&["local", DISCOVER])
    )]
    Address {
        place: Where,
        /// Text that was found.
        value: String,
        /// Reason why the text is not an address.
        reason: String,
    },
    /// The local network cannot be searched for nodes.
    #[error("{place}: cannot search the local network: {why}; name the nodes by their addresses")]
    Search { place: Where, why: String },
    /// No daemon announces itself on the local network, and no other node is named.
    #[error(
        "{place}: no daemon announces itself on the local network; start one there with `penstock \
         serve --listen tcp:0.0.0.0 --announce`, or name the nodes by their addresses"
    )]
    NothingFound { place: Where },
    /// The text is not UTF-8.
    #[error("{place} is not UTF-8 text; set it anew")]
    NotText { place: Where },
    /// The value is neither `pool` nor `node`.
    #[error(
        "{place}: `{value}` is not a way to show the pool; write `pool` (one platform) or `node` \
         (one per node)"
    )]
    Platforms {
        place: Where,
        /// Value that was found.
        value: String,
    },
    /// The value is not a rule for encryption.
    #[error(
        "{place}: `{value}` does not say which links are encrypted; write `never`, `remote` (those \
         that leave the host) or `always`"
    )]
    Encryption {
        place: Where,
        /// Value that was found.
        value: String,
    },
    /// The folder of the keys is a relative path.
    #[error(
        "variable PENSTOCK_KEYS: `{}` is no absolute path; write the folder in full", path.display()
    )]
    Keys { path: PathBuf },
    /// The value is neither `in-order` nor `round-robin`.
    #[error(
        "variable {PLACEMENT_VARIABLE}: `{value}` is not an order of devices; write `in-order` or \
         `round-robin`"
    )]
    Placement {
        /// Value that was found.
        value: String,
    },
    /// The value is neither `auto` nor `proxy`.
    #[error("{place}: `{value}` is not a heap path; write `auto` or `proxy`")]
    HeapPath {
        place: Where,
        /// Value that was found.
        value: String,
    },
    /// The text is not a query of devices.
    #[error("{place}: {}", source.summary())]
    Devices { place: Where, source: penstock_dql::Error },
    /// The value is not a time, or out of bounds.
    #[error("{place}: `{value}` is not a time; write milliseconds from 1 to {TIMEOUT_MS_MAX}")]
    Timeout {
        place: Where,
        /// Value that was found.
        value: String,
    },
    /// The pool has more than [`NODES_MAX`] nodes.
    #[error("{place}: more than {NODES_MAX} nodes; name fewer")]
    TooManyNodes { place: Where },
    /// Slurm's list is not understood.
    #[error(
        "variable {SLURM_VARIABLE}: {reason}, at byte {at}; set {NODES_VARIABLE} to name the nodes \
         yourself"
    )]
    Slurm {
        reason: &'static str,
        /// Offset in the list, in bytes.
        at: usize,
    },
    /// The file cannot be read.
    #[error("{path}: {source}; make it readable, or remove it")]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// The file is too long to be one of ours.
    #[error("{path}: longer than {} KiB, so not a pool file; move it away", file::BYTES_MAX >> 10)]
    TooLong { path: PathBuf },
    /// The file is not TOML, or has a key or value that it must not have.
    #[error("{place}: {message}; see pool.toml(5) for what the file may hold")]
    Syntax {
        place: Where,
        /// The parser's message, in one line.
        message: String,
    },
}

#[cfg(test)]
mod tests;
