//! The configuration of the pool: which nodes, how they are opened, how they are shown.
//!
//! Used by the OpenCL face inside a foreign program and by the command `penstock`, so that both see the same pool. Plain
//! functions: nothing is cached, nothing is printed, and the surroundings can be those of a test.
//!
//! The nodes come from the first of these that names any:
//! 1. the variable `PENSTOCK_NODES`,
//! 2. the file `~/.config/penstock/pool.toml` (see [`file`]),
//! 3. the nodes of the Slurm allocation in which the program runs (see [`slurm`]),
//! 4. the own daemon, if its socket is at the default place.

pub mod file;
pub mod nodes;
pub mod places;
pub mod slurm;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use nodes::{NO_NODES, NodeAddress};
use penstock_dql::Query;
use penstock_link::{Address, Key, LinkError};
pub use places::Surroundings;

/// The TCP port of a daemon when none is given: "PENS" on a telephone's keys; not assigned by IANA.
pub const PORT_DEFAULT: u16 = 7367;

/// Nodes of one pool. Each costs its client a link and a reading thread; ten times the largest pool that was published.
pub const NODES_MAX: usize = 1024;

/// How long a node may say nothing while its link is opened, in ms. The daemon itself gives a hello
/// 5 s; a program whose pool has lost a node should start sooner than that, and a loaded node
/// answers in well under 1 s: if it has no worker, it says so.
pub const TIMEOUT_MS_DEFAULT: u64 = 3_000;

/// The longest time that can be asked for, in ms: ten minutes. Beyond it is a typing error.
pub const TIMEOUT_MS_MAX: u64 = 600_000;

/// Names the nodes of the pool.
pub const NODES_VARIABLE: &str = "PENSTOCK_NODES";
/// Names the file with the pool's key.
pub const KEY_VARIABLE: &str = "PENSTOCK_KEY";
/// Says how the pool is shown: `pool` or `node`.
pub const PLATFORMS_VARIABLE: &str = "PENSTOCK_PLATFORMS";
/// Selects devices of the pool.
pub const DEVICES_VARIABLE: &str = "PENSTOCK_DEVICES";
/// Says in which order programs get the devices: `in-order` or `round-robin`.
pub const PLACEMENT_VARIABLE: &str = "PENSTOCK_PLACEMENT";
/// Says how long a node may say nothing while its link is opened, in ms.
pub const TIMEOUT_VARIABLE: &str = "PENSTOCK_TIMEOUT_MS";
/// Set by the daemon for its workers: they use the node's devices, and must not find the pool among them.
pub const WORKER_VARIABLE: &str = "PENSTOCK_WORKER";
/// Says how symmetric heaps reach other devices: `auto` or `proxy`.
pub const HEAP_PATH_VARIABLE: &str = "PENSTOCK_HEAP_PATH";
/// Slurm's list of the allocated nodes.
pub const SLURM_VARIABLE: &str = "SLURM_JOB_NODELIST";

/// How the pool is shown to an OpenCL program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Platforms {
    /// One platform with the devices of all nodes: one context can span nodes.
    #[default]
    Pool,
    /// One platform for each platform of each node.
    Node,
}

/// In which order programs get the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// All in the same.
    #[default]
    InOrder,
    /// Each next program begins with the next device, so that programs which use only their first device share all.
    RoundRobin,
}

/// How the devices of a symmetric heap reach each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeapPath {
    /// Through shared memory where their workers are on one host, else by the proxy.
    #[default]
    Auto,
    /// By the proxy wherever they are in different workers: for tests and measurements.
    Proxy,
}

/// Which of the sources named the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `PENSTOCK_NODES`.
    Variable,
    /// The file of the pool.
    File(PathBuf),
    /// A Slurm allocation.
    Slurm,
    /// The socket of the own daemon at its default place.
    OwnDaemon,
    /// Nothing did: the pool has no nodes.
    Nothing,
}

/// The pool as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its nodes, in the order given, each once.
    pub nodes: Vec<NodeAddress>,
    /// Who named them.
    pub source: Source,
    /// File with the key for nodes over TCP.
    pub key: Option<PathBuf>,
    /// How the pool is shown.
    pub platforms: Platforms,
    /// Which devices of the pool are used, and in which order; none: all, node by node.
    pub devices: Option<Query>,
    /// In which order programs get the devices.
    pub placement: Placement,
    /// How long a node may say nothing while its link is opened. The time in line does not count.
    pub timeout: Duration,
    /// How the devices of a symmetric heap reach each other.
    pub heap_path: HeapPath,
}

impl Config {
    /// The configuration for this process.
    ///
    /// # Errors
    /// When a variable or the file is not understood. The message says which, and what to write instead.
    pub fn load() -> Result<Self, ConfigError> {
        Self::load_in(&Surroundings::of_process())
    }

    /// The configuration in the given surroundings.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_in(surroundings: &Surroundings<'_>) -> Result<Self, ConfigError> {
        let path = surroundings.pool_file();
        let file = path
            .as_deref()
            .map_or(Ok(None), |path| file::read(path, surroundings))?
            .unwrap_or_default();
        let (nodes, source) = find_nodes(surroundings, &file, path.as_deref())?;
        Ok(Self {
            nodes,
            source,
            key: find_key(surroundings, &file)?,
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

/// How the devices of a symmetric heap reach each other, as configured for this process: asked for with each heap, long after the pool
/// was opened.
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
    /// The addresses of the nodes.
    pub fn addresses(&self) -> Vec<Address> {
        self.nodes.iter().map(|node| node.address.clone()).collect()
    }

    /// The pool's key, where a node wants it: one on a Unix socket does not, and one over TCP that finds none says that it does.
    ///
    /// # Errors
    /// When the key's file cannot be used.
    pub fn load_key(&self) -> Result<Option<Key>, LinkError> {
        let is_remote = self.nodes.iter().any(|node| matches!(node.address, Address::Tcp { .. }));
        self.key.as_deref().filter(|_| is_remote).map(Key::load).transpose()
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
        return Ok((file.nodes.clone(), Source::File(path.to_path_buf())));
    }
    if let Some(list) = text(surroundings, SLURM_VARIABLE)? {
        let hosts = slurm::expand(&list)?;
        return Ok((nodes::of_hosts(&hosts, file.port, surroundings)?, Source::Slurm));
    }
    match surroundings.own_socket_if_present() {
        Some(path) => Ok((vec![NodeAddress::unix("local", path)], Source::OwnDaemon)),
        None => Ok((Vec::new(), Source::Nothing)),
    }
}

/// A key that was asked for is taken as it is, so that opening it tells what is wrong; the default one only if it is there.
fn find_key(
    surroundings: &Surroundings<'_>,
    file: &file::PoolFile,
) -> Result<Option<PathBuf>, ConfigError> {
    if let Some(path) = text(surroundings, KEY_VARIABLE)? {
        return Ok(Some(PathBuf::from(path)));
    }
    Ok(file.key.clone().or_else(|| surroundings.key_file().filter(|path| path.exists())))
}

/// A variable's text; none if it is unset or empty.
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

/// Where a setting was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// A variable of the environment.
    Variable(&'static str),
    /// A file and, where known, the line in it.
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

/// What is wrong with the configuration, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not an address.
    #[error(
        "{place}: `{value}` is not the address of a node ({reason}); write unix:PATH, tcp:HOST:PORT or local"
    )]
    Address {
        /// Where.
        place: Where,
        /// What was found.
        value: String,
        /// Why it is none.
        reason: String,
    },
    /// Not UTF-8.
    #[error("{place} is not UTF-8 text; set it anew")]
    NotText {
        /// Where.
        place: Where,
    },
    /// Neither `pool` nor `node`.
    #[error(
        "{place}: `{value}` is not a way to show the pool; write `pool` (one platform) or `node` (one per node)"
    )]
    Platforms {
        /// Where.
        place: Where,
        /// What was found.
        value: String,
    },
    /// Neither `in-order` nor `round-robin`.
    #[error(
        "variable {PLACEMENT_VARIABLE}: `{value}` is no order of devices; write `in-order` or `round-robin`"
    )]
    Placement {
        /// What was found.
        value: String,
    },
    /// Neither `auto` nor `proxy`.
    #[error("{place}: `{value}` is no path of heaps; write `auto` or `proxy`")]
    HeapPath {
        /// Where.
        place: Where,
        /// What was found.
        value: String,
    },
    /// Not a query of devices.
    #[error("{place}: {}", source.summary())]
    Devices {
        /// Where.
        place: Where,
        /// What is wrong with it.
        source: penstock_dql::Error,
    },
    /// Not a time, or out of bounds.
    #[error("{place}: `{value}` is not a time; write milliseconds from 1 to {TIMEOUT_MS_MAX}")]
    Timeout {
        /// Where.
        place: Where,
        /// What was found.
        value: String,
    },
    /// Too many nodes.
    #[error("{place}: more than {NODES_MAX} nodes; name fewer")]
    TooManyNodes {
        /// Where.
        place: Where,
    },
    /// Slurm's list is not understood.
    #[error(
        "variable {SLURM_VARIABLE}: {reason}, at byte {at}; set {NODES_VARIABLE} to name the nodes yourself"
    )]
    Slurm {
        /// What is wrong.
        reason: &'static str,
        /// Where in the list.
        at: usize,
    },
    /// The file cannot be read.
    #[error("{path}: {source}; make it readable, or remove it")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is too long to be one of ours.
    #[error("{path}: longer than {} KiB, so this is not a pool's file; move it away", file::BYTES_MAX >> 10)]
    TooLong {
        /// Which.
        path: PathBuf,
    },
    /// The file is not TOML, or has a key or value that it must not have.
    #[error("{place}: {message}; see docs/configuration.md for what the file may hold")]
    Syntax {
        /// Where.
        place: Where,
        /// What the parser says.
        message: String,
    },
}

#[cfg(test)]
mod tests;
