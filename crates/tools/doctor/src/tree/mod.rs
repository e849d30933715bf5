//! A read-only view of a file tree.
//!
//! The tree is that of this host, a directory with a copy of another host's tree, or a [`Listing`].
//! Symbolic links are followed inside the tree only: `/` is the root of the tree, and `..` does not
//! lead above it. Only regular files are read, and only as far as [`limits`](crate::limits) allows.

mod answers;
mod folder;
pub mod keep;
mod listing;
mod node;

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};

pub use answers::Answers;
use folder::Folder;
pub use listing::{Listing, ListingError};
pub use node::{Access, Node, NodeKind};

use crate::limits::{FILE_BYTES_MAX, LINKS_MAX, LISTING_BYTES_MAX, NAMES_MAX, TREE_BYTES_MAX};

/// File of a copied tree that holds the [`Answers`].
pub const ANSWERS: &str = "penstock-doctor/answers";

/// File of a copied tree that holds the [`Node`]s which a copy cannot reproduce: device nodes, and
/// owners.
pub const NODES: &str = "penstock-doctor/nodes";

/// Why a tree cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    #[error("{}: cannot open it: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{}: it is neither a directory nor a regular file", path.display())]
    Kind { path: PathBuf },
    #[error("{}: it is longer than {LISTING_BYTES_MAX} bytes (LISTING_BYTES_MAX)", path.display())]
    Long { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Listing { path: PathBuf, source: ListingError },
}

/// The tree; see the module.
#[derive(Debug)]
pub struct Tree {
    store: Store,
    /// Answers of this host. A copied tree has them in a file.
    answers: Option<Answers>,
    /// What was read so far, if this tree is recorded.
    record: Option<RefCell<Listing>>,
    /// Number of bytes that may still be read.
    left: Cell<u64>,
}

#[derive(Debug)]
enum Store {
    Folder(Folder),
    Listing(Listing),
}

/// A file or directory that a walk has reached.
#[derive(Clone, Debug)]
struct Place {
    /// Path from the root, without symbolic links.
    path: String,
    kind: NodeKind,
    /// The entry and its directory, if the tree is a directory.
    open: Option<folder::Open>,
}

impl Tree {
    /// Opens the tree of this host. `answers` has what no file says.
    ///
    /// # Errors
    /// Fails if the root directory cannot be opened.
    pub fn of_host(answers: Answers) -> Result<Self, TreeError> {
        let root = Path::new("/");
        let folder = Folder::open(root, true).map_err(opening(root))?;
        Ok(Self { answers: Some(answers), ..Self::new(Store::Folder(folder)) })
    }

    /// Opens a copied tree: a directory, or a file with a [`Listing`].
    ///
    /// # Errors
    /// Fails if there is no such directory or file, or if the file is no listing.
    pub fn open(path: &Path) -> Result<Self, TreeError> {
        let kind = std::fs::metadata(path).map_err(opening(path))?.file_type();
        if kind.is_dir() {
            let mut folder = Folder::open(path, false).map_err(opening(path))?;
            let plain = Self::new(Store::Folder(folder.clone()));
            folder.nodes = node::parse(&plain.text(NODES).unwrap_or_default());
            return Ok(Self::new(Store::Folder(folder)));
        }
        if !kind.is_file() {
            return Err(TreeError::Kind { path: path.to_owned() });
        }
        let text = folder::read_whole(path, LISTING_BYTES_MAX).map_err(opening(path))?;
        let text = text.ok_or_else(|| TreeError::Long { path: path.to_owned() })?;
        let listing = Listing::parse(&String::from_utf8_lossy(&text));
        let wrong = |source| TreeError::Listing { path: path.to_owned(), source };
        Ok(Self::of(listing.map_err(wrong)?))
    }

    /// Makes a tree of a listing.
    pub fn of(listing: Listing) -> Self {
        Self::new(Store::Listing(listing))
    }

    fn new(store: Store) -> Self {
        Self { store, answers: None, record: None, left: Cell::new(TREE_BYTES_MAX) }
    }

    /// Makes the tree remember what is read from it.
    #[must_use]
    pub fn recorded(self) -> Self {
        Self { record: Some(RefCell::default()), ..self }
    }

    /// Returns what was read, with the answers.
    pub fn into_record(self) -> Listing {
        let answers = self.answers();
        let mut record = self.record.map(RefCell::into_inner).unwrap_or_default();
        record.add_file(ANSWERS, answers.to_string().trim_end().as_bytes());
        record
    }

    /// Returns what no file says.
    pub fn answers(&self) -> Answers {
        match &self.answers {
            Some(answers) => answers.clone(),
            None => Answers::parse(&self.text(ANSWERS).unwrap_or_default()),
        }
    }

    /// Reads a text file and returns what `keep` leaves of it. Returns `None` if there is no such
    /// file, or if nothing is left. All readers of a file must use the same filter, because the
    /// record has one content for each file.
    pub fn read(&self, path: &str, keep: keep::Keep) -> Option<String> {
        let place = self.walk(path)?;
        let kept = keep(&String::from_utf8_lossy(&self.bytes_of(&place)?));
        self.remember(|record| record.add_file(&place.path, kept.as_bytes()));
        Some(kept).filter(|text| !text.is_empty())
    }

    /// Reads the configuration space of a PCI device, reduced by [`keep::pci_config`].
    pub fn read_pci_config(&self, path: &str) -> Option<Vec<u8>> {
        let place = self.walk(path)?;
        let kept = keep::pci_config(&self.bytes_of(&place)?);
        self.remember(|record| record.add_file(&place.path, &kept));
        Some(kept)
    }

    /// Returns the names in a directory, in alphabetical order. Leaves out names that are not
    /// UTF-8, because no file that a check needs has such a name. The record gets only the names
    /// that are asked for afterwards: other names may be those of users.
    pub fn list(&self, path: &str) -> Vec<String> {
        let Some(place) = self.walk(path).filter(|it| it.kind == NodeKind::Directory) else {
            return Vec::new();
        };
        let mut names = match &self.store {
            Store::Folder(folder) => folder.list(&place),
            Store::Listing(listing) => listing.list(&place.path),
        };
        names.sort_unstable();
        names
    }

    /// Puts a name that was listed into the record, whatever it leads to.
    pub fn remember_name(&self, path: &str) {
        self.remember(|record| record.add_place(path, NodeKind::File));
    }

    /// Returns the path to which `path` leads, from the root and without symbolic links.
    pub fn target(&self, path: &str) -> Option<String> {
        let place = self.walk(path)?;
        self.remember(|record| record.add_place(&place.path, place.kind));
        Some(place.path)
    }

    /// Returns the last name of [`Tree::target`].
    pub fn target_name(&self, path: &str) -> Option<String> {
        Some(self.target(path)?.rsplit('/').next()?.to_owned())
    }

    pub fn exists(&self, path: &str) -> bool {
        self.target(path).is_some()
    }

    /// Returns the kind, the owner and the permissions of what `path` leads to.
    pub fn node(&self, path: &str) -> Option<Node> {
        let place = self.walk(path)?;
        let node = match &self.store {
            Store::Folder(folder) => folder.node(&place)?,
            Store::Listing(listing) => listing.node(&place.path, place.kind),
        };
        self.remember(|record| record.add_node(&place.path, node));
        Some(node)
    }

    /// Reads a text file without a filter and without remembering it.
    fn text(&self, path: &str) -> Option<String> {
        let bytes = self.bytes_of(&self.walk(path)?)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn bytes_of(&self, place: &Place) -> Option<Vec<u8>> {
        let limit = u64::min(FILE_BYTES_MAX as u64, self.left.get());
        if place.kind != NodeKind::File || limit == 0 {
            return None;
        }
        let bytes = match &self.store {
            Store::Folder(folder) => folder.read(place, limit)?,
            Store::Listing(listing) => listing.bytes(&place.path)?,
        };
        self.left.set(self.left.get().saturating_sub(bytes.len() as u64));
        Some(bytes)
    }

    fn remember(&self, add: impl FnOnce(&mut Listing)) {
        if let Some(record) = &self.record {
            add(&mut record.borrow_mut());
        }
    }

    /// Follows `path` name by name, so that no link can lead out of the tree.
    fn walk(&self, path: &str) -> Option<Place> {
        let mut above = vec![self.root()];
        let mut names: Vec<String> = path.rsplit('/').map(str::to_owned).collect();
        let mut links: Vec<(String, String)> = Vec::new();
        while let Some(name) = names.pop() {
            match name.as_str() {
                "" | "." => continue,
                ".." => {
                    if above.len() > 1 {
                        above.pop();
                    }
                    continue;
                }
                _ => {}
            }
            let child = self.child(above.last()?, &name)?;
            if child.kind != NodeKind::Link {
                above.push(child);
                continue;
            }
            let target = self.link_of(&child)?;
            if links.len() >= LINKS_MAX || names.len() + target.split('/').count() > NAMES_MAX {
                return None;
            }
            if target.starts_with('/') {
                above.truncate(1);
            }
            names.extend(target.rsplit('/').map(str::to_owned));
            links.push((child.path, target));
        }
        self.remember(|record| {
            links.iter().for_each(|(path, target)| record.add_link(path, target));
        });
        above.pop()
    }

    fn root(&self) -> Place {
        let open = match &self.store {
            Store::Folder(folder) => Some(folder.root()),
            Store::Listing(_) => None,
        };
        Place { path: String::new(), kind: NodeKind::Directory, open }
    }

    fn child(&self, parent: &Place, name: &str) -> Option<Place> {
        if parent.kind != NodeKind::Directory {
            return None;
        }
        let path = join(&parent.path, name);
        match &self.store {
            Store::Folder(folder) => folder.child(parent, path, name),
            Store::Listing(listing) => Some(Place { kind: listing.kind(&path)?, path, open: None }),
        }
    }

    fn link_of(&self, place: &Place) -> Option<String> {
        match &self.store {
            Store::Folder(folder) => folder.link(place),
            Store::Listing(listing) => listing.link(&place.path),
        }
    }
}

fn opening(path: &Path) -> impl FnOnce(io::Error) -> TreeError {
    move |source| TreeError::Open { path: path.to_owned(), source }
}

/// Appends a name to a path from the root.
fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}
