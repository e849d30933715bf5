//! The file of the pool, `~/.config/penstock/pool.toml`:
//!
//! ```toml
//! nodes = ["local", "tcp:gpu01", "tcp:gpu02:7400", "discover"]
//! key = "key"            # beside this file
//! platforms = "pool"     # or "node"
//! timeout_ms = 3000
//! port = 7367            # of nodes that Slurm names
//! heap_path = "auto"     # or "proxy"
//! encryption = "remote"  # or "never", "always"
//! ```
//! Every entry may be left out. An unknown key is an error, because it is most likely a typing
//! error.

use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use penstock_link::Rule;
use serde::Deserialize;
use toml::Spanned;

use super::{
    ConfigError, HeapPath, NodeAddress, PORT_DEFAULT, Platforms, Surroundings, TIMEOUT_MS_DEFAULT,
    Where, encryption, nodes, platforms, read_heap_path, timeout,
};

/// Size of the file in bytes: 1,024 addresses of 255 characters, twice.
pub const BYTES_MAX: u64 = 512 << 10;

/// The content of the file, with defaults for absent entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFile {
    /// Nodes of the pool as they are written; empty if they come from elsewhere. They are read only
    /// if nothing else names the nodes, so that a mistake in one of them is told to those alone who
    /// use them.
    pub nodes: Vec<Entry>,
    /// File with the key.
    pub key: Option<PathBuf>,
    pub platforms: Platforms,
    /// Longest silence of a node while its link is opened.
    pub timeout: Duration,
    /// TCP port of nodes that Slurm names.
    pub port: u16,
    pub heap_path: HeapPath,
    pub encryption: Rule,
}

/// One entry of the list of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub text: String,
    pub place: Where,
}

impl Default for PoolFile {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            key: None,
            platforms: Platforms::default(),
            timeout: Duration::from_millis(TIMEOUT_MS_DEFAULT),
            port: PORT_DEFAULT,
            heap_path: HeapPath::default(),
            encryption: Rule::default(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default)]
    nodes: Vec<Spanned<String>>,
    key: Option<String>,
    platforms: Option<Spanned<String>>,
    timeout_ms: Option<Spanned<u64>>,
    port: Option<u16>,
    heap_path: Option<Spanned<String>>,
    encryption: Option<Spanned<String>>,
}

/// Reads the file at `path`. Returns `None` if the file does not exist.
///
/// # Errors
/// If the file cannot be read, is too long, or is not understood.
pub fn read(path: &Path, surroundings: &Surroundings<'_>) -> Result<Option<PoolFile>, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_path_buf(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        // The home of another user, as `sudo -u` leaves it, or one that a batch system has not
        // mounted for this user: it holds no file for us. A file that is there must be readable,
        // and so must a folder in the user's own home: the nodes in its file would vanish.
        Err(error)
            if error.kind() == std::io::ErrorKind::PermissionDenied
                && std::fs::symlink_metadata(path).is_err()
                && surroundings.is_home_closed() =>
        {
            return Ok(None);
        }
        Err(error) => return Err(unreadable(error)),
    };
    let mut text = String::new();
    // One byte more than allowed, to detect a longer file.
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(ConfigError::TooLong { path: path.to_path_buf() });
    }
    parse(&text, path, surroundings).map(Some)
}

/// Parses the text of the file. `path` need not exist; it appears in messages and is the base of
/// relative paths.
///
/// # Errors
/// If the text is not understood.
pub fn parse(
    text: &str,
    path: &Path,
    surroundings: &Surroundings<'_>,
) -> Result<PoolFile, ConfigError> {
    let at = |span: Range<usize>| Where::File(path.to_path_buf(), Some(line_of(text, span.start)));
    let raw: Raw = toml::from_str(text).map_err(|error| ConfigError::Syntax {
        place: error.span().map_or_else(|| Where::File(path.to_path_buf(), None), at),
        message: error.message().lines().collect::<Vec<_>>().join(", "),
    })?;
    let base = path.parent().unwrap_or(Path::new("/"));
    let mut pool = PoolFile::default();
    for item in raw.nodes {
        let place = at(item.span());
        pool.nodes.push(Entry { text: item.into_inner(), place });
    }
    pool.key = raw.key.map(|key| surroundings.expand(&key, base));
    if let Some(value) = raw.platforms {
        pool.platforms = platforms(value.get_ref(), &at(value.span()))?;
    }
    if let Some(ms) = raw.timeout_ms {
        pool.timeout = timeout(*ms.get_ref(), &at(ms.span()))?;
    }
    if let Some(value) = raw.heap_path {
        pool.heap_path = read_heap_path(value.get_ref(), &at(value.span()))?;
    }
    if let Some(value) = raw.encryption {
        pool.encryption = encryption(value.get_ref(), &at(value.span()))?;
    }
    pool.port = raw.port.unwrap_or(pool.port);
    Ok(pool)
}

impl PoolFile {
    /// Reads the list of nodes. `path` is that of the file: its folder is the base of relative
    /// paths. Searches the local network if the list asks for that.
    ///
    /// # Errors
    /// If an entry is not an address, or nothing was found on the network and no other node is
    /// named.
    pub fn read_nodes(
        &self,
        path: &Path,
        surroundings: &Surroundings<'_>,
    ) -> Result<Vec<NodeAddress>, ConfigError> {
        let base = path.parent().unwrap_or(Path::new("/"));
        let mut list = Vec::new();
        for Entry { text, place } in self.nodes.iter().filter(|entry| !entry.is_search()) {
            nodes::add(&mut list, nodes::read(text, place, base, surroundings)?, place)?;
        }
        for Entry { place, .. } in self.nodes.iter().filter(|entry| entry.is_search()).take(1) {
            nodes::add_found(&mut list, place, surroundings)?;
            if list.is_empty() {
                return Err(ConfigError::NothingFound { place: place.clone() });
            }
        }
        Ok(list)
    }
}

impl Entry {
    /// Returns whether the entry asks for the daemons of the local network.
    fn is_search(&self) -> bool {
        self.text == nodes::DISCOVER
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
}
