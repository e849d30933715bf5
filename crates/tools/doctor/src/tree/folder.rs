//! A tree that is a directory: that of this host, or a copy.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};

use super::Place;
use super::node::{Access, Node, NodeKind};
use crate::limits::ENTRIES_MAX;

/// Flags for a descriptor that only names an entry: nothing of the entry is opened.
const NAME: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Flags for reading. A pipe or a terminal does not block, and a link is not followed.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

#[derive(Clone, Debug)]
pub struct Folder {
    root: Rc<OwnedFd>,
    /// Whether the tree is that of this host, so that the system can say what the user may do.
    is_host: bool,
    /// Entries that a copy cannot reproduce, by their paths.
    pub nodes: BTreeMap<String, Node>,
}

/// An entry and its directory.
#[derive(Clone, Debug)]
pub struct Open {
    entry: Rc<OwnedFd>,
    directory: Rc<OwnedFd>,
    name: String,
}

impl Folder {
    pub fn open(path: &Path, is_host: bool) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Self { root: Rc::new(root), is_host, nodes: BTreeMap::new() })
    }

    pub fn root(&self) -> Open {
        Open { entry: self.root.clone(), directory: self.root.clone(), name: ".".to_owned() }
    }

    pub fn child(&self, parent: &Place, path: String, name: &str) -> Option<Place> {
        let directory = parent.open.as_ref()?.entry.clone();
        let entry = Rc::new(fs::openat(&directory, name, NAME, Mode::empty()).ok()?);
        let kind = match self.nodes.get(&path) {
            Some(node) if node.kind == NodeKind::Special => node.kind,
            _ => kind_of(&fs::fstat(&entry).ok()?),
        };
        let open = Open { entry, directory, name: name.to_owned() };
        Some(Place { path, kind, open: Some(open) })
    }

    pub fn link(&self, place: &Place) -> Option<String> {
        let open = place.open.as_ref()?;
        fs::readlinkat(&open.entry, "", Vec::new()).ok()?.into_string().ok()
    }

    pub fn read(&self, place: &Place, limit: u64) -> Option<Vec<u8>> {
        let open = place.open.as_ref()?;
        let file = fs::openat(&open.directory, open.name.as_str(), READ, Mode::empty()).ok()?;
        // Somebody may have replaced the entry after the walk.
        if kind_of(&fs::fstat(&file).ok()?) != NodeKind::File {
            return None;
        }
        let mut bytes = Vec::new();
        File::from(file).take(limit).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    pub fn list(&self, place: &Place) -> Vec<String> {
        let read = || {
            let entry = place.open.as_ref()?.entry.as_fd();
            let directory = fs::openat(entry, ".", READ | OFlags::DIRECTORY, Mode::empty()).ok()?;
            Dir::read_from(directory).ok()
        };
        let names = read().into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
        names.filter(|name| name != "." && name != "..").take(ENTRIES_MAX).collect()
    }

    pub fn node(&self, place: &Place) -> Option<Node> {
        if let Some(node) = self.nodes.get(&place.path) {
            return Some(*node);
        }
        let stat = fs::fstat(&place.open.as_ref()?.entry).ok()?;
        Some(Node {
            kind: kind_of(&stat),
            mode: stat.st_mode & 0o7777,
            user: stat.st_uid,
            group: stat.st_gid,
            bytes: u64::try_from(stat.st_size).unwrap_or_default(),
            access: self.is_host.then(|| access(place)),
        })
    }
}

/// Asks the system what this user may do with an entry of this host.
fn access(place: &Place) -> Access {
    let path = format!("/{}", place.path);
    let may = |what| fs::accessat(CWD, path.as_str(), what, AtFlags::EACCESS).is_ok();
    Access { read: may(fs::Access::READ_OK), write: may(fs::Access::WRITE_OK) }
}

fn kind_of(stat: &Stat) -> NodeKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => NodeKind::Directory,
        FileType::RegularFile => NodeKind::File,
        FileType::Symlink => NodeKind::Link,
        _ => NodeKind::Special,
    }
}

/// Reads a whole file. Returns `None` if the file has more than `limit` bytes.
pub fn read_whole(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    // One byte more than allowed shows that the file is too long.
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= limit))
}
