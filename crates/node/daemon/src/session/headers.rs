//! The files that a client's program includes, laid out on the worker's disk while it is built.
//!
//! ```text
//! BASE/DIGEST/f/...                   the client's paths, as far as the program needs them
//! BASE/DIGEST/N -> f/...              the folder that an option names
//! BASE/DIGEST/a/penstock-absolute -> ../f
//! ```
//! Everything that a client sends is hostile. A path is a list of plain names, the tree begins as a
//! new folder, files are made before links, and a link ends inside the tree. So no file is made
//! outside the tree. The digest is that of everything the client sent: the compilers' caches know a
//! build by its options, and these change if a file does.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use aws_lc_rs::digest::{SHA256, digest};
use penstock_cl_sys::{CL_PROGRAM_BUILD_LOG, CL_PROGRAM_BUILD_OPTIONS};
use penstock_process::Lock;
use penstock_wire::describe::BuildReport;
use penstock_wire::headers::{ABSOLUTE, Headers, OptionPart, components};
use penstock_wire::limits::{HEADER_ENTRIES_MAX, HEADERS_BYTES_MAX, HEADERS_WAITING_BYTES_MAX};
use penstock_wire::{FrameError, frame};

/// Why the files that a program includes are not laid out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeadersError {
    #[error("the program names a file in a way that is none: {0}")]
    Path(String),
    #[error(
        "the program includes more than {HEADER_ENTRIES_MAX} files and folders (HEADER_ENTRIES_MAX)"
    )]
    Entries,
    #[error(
        "the programs that wait for their builds include more than {} MiB \
         (HEADERS_WAITING_BYTES_MAX)", HEADERS_WAITING_BYTES_MAX >> 20
    )]
    Waiting,
    #[error(
        "this node has no folder for the files that programs include; PENSTOCK_CACHE names one"
    )]
    NoFolder,
    #[error("the files that the program includes do not fit on this node: {0}")]
    Disk(#[from] io::Error),
}

/// The folder of a session for the files that its programs include.
#[derive(Default)]
pub(crate) struct HeaderFolder {
    /// As the compilers see it.
    base: OnceLock<PathBuf>,
    /// Number of builds that use each tree.
    trees: Lock<HashMap<String, usize>>,
    /// Size of the files of programs whose build has not begun, in bytes.
    waiting: Lock<u64>,
}

/// Files that wait for a build.
pub(crate) struct Waiting {
    headers: Headers,
    digest: String,
    bytes: u64,
    folder: Arc<HeaderFolder>,
}

/// Files that a build uses. They are removed when the last build has ended.
pub(crate) struct Tree {
    folder: Arc<HeaderFolder>,
    digest: String,
    root: PathBuf,
    /// The folders of the options, as the program named them, in front of the name of a file.
    named: Vec<Vec<u8>>,
    options: String,
}

impl HeaderFolder {
    /// Says where the files lie. Called once, before the first call of the client.
    pub(crate) fn set_base(&self, base: PathBuf) {
        _ = self.base.set(base);
    }

    /// Takes files for a build that comes later.
    pub(crate) fn take(
        self: &Arc<Self>,
        payload: &[u8],
    ) -> Result<Result<Waiting, HeadersError>, FrameError> {
        let headers: Headers = frame::decode("ProgramHeaders", payload)?;
        let bytes = payload.len() as u64;
        {
            let mut waiting = self.waiting.lock();
            if *waiting + bytes > HEADERS_WAITING_BYTES_MAX {
                return Ok(Err(HeadersError::Waiting));
            }
            *waiting += bytes;
        }
        let digest = hex(digest(&SHA256, payload).as_ref());
        Ok(Ok(Waiting { headers, digest, bytes, folder: self.clone() }))
    }
}

impl Waiting {
    /// Returns whether a kernel may print because of one of the files.
    pub(crate) fn may_print(&self, prints: fn(&[u8]) -> bool) -> bool {
        self.headers.files.iter().any(|file| prints(&file.text))
    }

    /// Lays the files out, unless another build uses the same ones.
    pub(crate) fn lay_out(self) -> Result<Tree, HeadersError> {
        let base = self.folder.base.get().ok_or(HeadersError::NoFolder)?;
        let root = base.join(&self.digest);
        let options = options(&self.headers, &root)?;
        let named = self.headers.search.iter().map(|folder| before_file(&folder.named)).collect();
        // Held until the files are there, so that a second build finds all of them.
        let mut trees = self.folder.trees.lock();
        let users = trees.get(&self.digest).copied().unwrap_or_default();
        if users == 0
            && let Err(error) = lay(&self.headers, &root)
        {
            // What stays is removed with the worker's folder.
            _ = fs::remove_dir_all(&root);
            return Err(error);
        }
        trees.insert(self.digest.clone(), users + 1);
        drop(trees);
        let (folder, digest) = (self.folder.clone(), self.digest.clone());
        Ok(Tree { folder, digest, root, named, options })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        *self.folder.waiting.lock() -= self.bytes;
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let mut trees = self.folder.trees.lock();
        let left = trees.get(&self.digest).map_or(0, |users| users - 1);
        if left > 0 {
            trees.insert(self.digest.clone(), left);
            return;
        }
        trees.remove(&self.digest);
        // What stays is removed with the worker's folder.
        _ = fs::remove_dir_all(&self.root);
    }
}

impl Tree {
    /// Returns the options of the build.
    pub(crate) fn options(&self) -> &str {
        &self.options
    }

    /// Puts the client's paths and options into a report.
    pub(crate) fn tidy(&self, report: &mut BuildReport, options: Option<&str>) {
        for (query, answer) in report.devices.iter_mut().flat_map(|(_, info)| info) {
            match *query {
                CL_PROGRAM_BUILD_LOG => *answer = self.tidy_log(answer),
                CL_PROGRAM_BUILD_OPTIONS => {
                    *answer = options.unwrap_or_default().as_bytes().to_vec();
                    answer.push(0);
                }
                _ => {}
            }
        }
    }

    fn tidy_log(&self, log: &[u8]) -> Vec<u8> {
        replaced(log, |rest| self.clients_name(rest))
    }

    /// Returns what the client calls the path of the worker with which a text begins, and the text
    /// behind that path.
    fn clients_name<'a>(&self, text: &'a [u8]) -> Option<(&[u8], &'a [u8])> {
        if let Some(behind) = text.strip_prefix(ABSOLUTE.as_bytes()) {
            return Some((b"", behind));
        }
        let below = text.strip_prefix(self.root.as_os_str().as_bytes())?.strip_prefix(b"/")?;
        if let Some(behind) = below.strip_prefix(b"f/") {
            return Some((b"/", behind));
        }
        if let Some(within) = below.strip_prefix(b"a/") {
            return Some((b"", within.strip_prefix(ABSOLUTE.as_bytes())?));
        }
        let (number, behind) = below.split_at(below.iter().position(|byte| *byte == b'/')?);
        let number: usize = std::str::from_utf8(number).ok()?.parse().ok()?;
        Some((self.named.get(number)?, behind.strip_prefix(b"/")?))
    }
}

/// Returns a folder as it stands in front of the name of a file in it.
fn before_file(folder: &[u8]) -> Vec<u8> {
    let end: &[u8] = if folder.is_empty() || folder.ends_with(b"/") { b"" } else { b"/" };
    [folder, end].concat()
}

/// Returns the options with the worker's folders.
fn options(headers: &Headers, root: &Path) -> Result<String, HeadersError> {
    let root = root.to_str().ok_or(HeadersError::NoFolder)?;
    let mut options = String::new();
    for part in &headers.options {
        // Writing to a text does not fail.
        _ = match part {
            OptionPart::Text(text) => options.write_str(text),
            OptionPart::Folder(number) => write!(options, "{root}/{number}"),
            OptionPart::Absolute => write!(options, "{root}/a"),
        };
    }
    Ok(options)
}

/// Makes the tree.
fn lay(headers: &Headers, root: &Path) -> Result<(), HeadersError> {
    // Removed in case an earlier removal has failed.
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    fs::create_dir_all(root)?;
    let mut maker = Maker { left: HEADER_ENTRIES_MAX };
    let files = root.join("f");
    maker.folder(&files)?;
    for file in &headers.files {
        let (folder, name) = maker.place(&files, &file.path)?;
        maker.count()?;
        File::create_new(folder.join(name))?.write_all(&file.text)?;
    }
    for path in &headers.folders {
        maker.folders(&files, &names(path)?)?;
    }
    // Places for all links come before the first link, so that none is on the way to another one.
    let mut links = Vec::new();
    for link in &headers.links {
        let (folder, name) = maker.place(&files, &link.path)?;
        let up = names(&link.path)?.len() - 1;
        links.push((folder.join(name), inside(&"../".repeat(up), &link.target)?));
    }
    for (number, search) in headers.search.iter().enumerate() {
        if let Some(path) = &search.path {
            links.push((root.join(number.to_string()), inside("f/", path)?));
        }
    }
    maker.folder(&root.join("a"))?;
    links.push((root.join("a").join(ABSOLUTE), PathBuf::from("../f")));
    for (path, target) in links {
        maker.count()?;
        std::os::unix::fs::symlink(target, path)?;
    }
    Ok(())
}

/// Makes folders, and counts everything that is made.
struct Maker {
    left: usize,
}

impl Maker {
    fn count(&mut self) -> Result<(), HeadersError> {
        self.left = self.left.checked_sub(1).ok_or(HeadersError::Entries)?;
        Ok(())
    }

    /// Makes a folder, unless it exists.
    fn folder(&mut self, path: &Path) -> Result<(), HeadersError> {
        match fs::create_dir(path) {
            Ok(()) => self.count(),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the folders with these names, each one inside the one before.
    fn folders(&mut self, files: &Path, names: &[&[u8]]) -> Result<PathBuf, HeadersError> {
        let mut path = files.to_owned();
        for name in names {
            path.push(OsStr::from_bytes(name));
            self.folder(&path)?;
        }
        Ok(path)
    }

    /// Makes the folder of a client's path. Returns it and the last name.
    fn place<'a>(
        &mut self,
        files: &Path,
        path: &'a [u8],
    ) -> Result<(PathBuf, &'a Path), HeadersError> {
        let names = names(path)?;
        let (last, parents) = names.split_last().ok_or_else(|| unfit(path))?;
        Ok((self.folders(files, parents)?, Path::new(OsStr::from_bytes(last))))
    }
}

/// Returns the text of a link from a place that is `up` below the files.
fn inside(up: &str, path: &[u8]) -> Result<PathBuf, HeadersError> {
    let mut target = PathBuf::from(if up.is_empty() { "./" } else { up });
    target.extend(names(path)?.into_iter().map(OsStr::from_bytes));
    Ok(target)
}

fn names(path: &[u8]) -> Result<Vec<&[u8]>, HeadersError> {
    components(path).ok_or_else(|| unfit(path))
}

fn unfit(path: &[u8]) -> HeadersError {
    /// Enough to recognise the path.
    const SHOWN: usize = 200;
    HeadersError::Path(path.get(..SHOWN).unwrap_or(path).escape_ascii().to_string())
}

fn hex(bytes: &[u8]) -> String {
    // 128 bits: nobody finds two contents with the same name.
    bytes.iter().take(16).fold(String::new(), |mut text, byte| {
        // Writing to a text does not fail.
        _ = write!(text, "{byte:02x}");
        text
    })
}

/// Replaces what `find` finds at the beginning of the rest of the text; it returns the replacement
/// and the text behind. The result is no longer than all included files may be: a client chooses
/// how often a log has a name, and how long the name is.
fn replaced<'a, 'b>(
    text: &'a [u8],
    find: impl Fn(&'a [u8]) -> Option<(&'b [u8], &'a [u8])>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(byte) = rest.first() {
        let may_grow = |to: &[u8]| (out.len() + to.len()) as u64 <= HEADERS_BYTES_MAX;
        if let Some((to, behind)) = find(rest).filter(|(to, _)| may_grow(to)) {
            out.extend_from_slice(to);
            rest = behind;
        } else {
            out.push(*byte);
            rest = rest.get(1..).unwrap_or_default();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_with_long_names_stays_short() {
        let long = |text: &[u8], name: &[u8]| {
            replaced(text, |rest| rest.strip_prefix(b"a/").map(|behind| (name, behind)))
        };
        assert_eq!(long(b"a/x b/x a/y", b"long/"), b"long/x b/x long/y");
        let name = vec![b'n'; 1 << 20];
        let log = b"a/ ".repeat(100);
        assert!(long(&log, &name).len() as u64 <= HEADERS_BYTES_MAX + log.len() as u64);
    }

    fn tree(named: impl IntoIterator<Item = String>) -> Tree {
        Tree {
            folder: Arc::default(),
            digest: "d0".into(),
            root: "no-such-folder/d0".into(),
            named: named.into_iter().map(|name| before_file(name.as_bytes())).collect(),
            options: String::new(),
        }
    }

    #[test]
    fn a_log_has_the_names_of_the_client() {
        let tree = tree((0..12).map(|number| match number {
            0 => String::new(),
            1 => "inc/".into(),
            other => format!("../n{other}"),
        }));
        for (log, expected) in [
            ("no-such-folder/d0/0/x.h:1", "x.h:1"),
            ("in no-such-folder/d0/1/x.h, no-such-folder/d0/11/y.h", "in inc/x.h, ../n11/y.h"),
            ("no-such-folder/d0/f/home/x.h", "/home/x.h"),
            ("no-such-folder/d0/a/penstock-absolute/x.h", "/x.h"),
            ("'penstock-absolute/x.h' file not found", "'/x.h' file not found"),
        ] {
            assert_eq!(tree.tidy_log(log.as_bytes()), expected.as_bytes(), "{log}");
        }
        for other in ["d0/12/x.h", "d0/a/x.h", "d0/x/y", "d0//", "d0", "d1/0/x.h"] {
            let log = format!("no-such-folder/{other}");
            assert_eq!(tree.tidy_log(log.as_bytes()), log.as_bytes());
        }
    }

    #[test]
    fn a_log_is_read_once_for_all_folders() {
        let tree = tree((0..8_000).map(|number| format!("n{number}")));
        // Reading it once for each folder takes some minutes.
        let log = b"no-such-folder/d0/7999/x.h\n".repeat(1_000_000);
        let tidy = penstock_trial::in_time("a log", || tree.tidy_log(&log));
        assert!(tidy == b"n7999/x.h\n".repeat(1_000_000));
    }
}
