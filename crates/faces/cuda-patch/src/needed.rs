//! NVIDIA's libraries that a program finds in folders which its own files name (`DT_RPATH`), as
//! Python's packages do. The loader looks there before it looks at `LD_LIBRARY_PATH`. But the
//! loader loads no second library of a name that is loaded already. So Penstock's library of that
//! name is loaded before the file that needs the name.
//!
//! `LD_LIBRARY_PATH` comes before the folders of `DT_RUNPATH` and those of the system. Files that
//! the loader finds only in the system's folders are not looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use object::read::ReadCache;
use penstock_process::{Lock, variable};

use crate::elf::{Elf, Needs};
use crate::redirect::{load, own_folder, say};

/// Most files that one load looks at. PyTorch's largest module needs some 60.
const FILES_MAX: usize = 4096;

/// Programs of Penstock, which may inherit `LD_PRELOAD`. They open NVIDIA's libraries for the pool.
const OWN_PROGRAMS: [&str; 3] = ["penstock", "penstockd", "wtrd"];

/// The files whose needs are met.
static MET: Lock<BTreeSet<FileId>> = Lock::new(BTreeSet::new());

/// The names that were returned to C.
static NAMES: Lock<BTreeMap<PathBuf, &CStr>> = Lock::new(BTreeMap::new());

/// The folders of one list, shared by all files behind the file that has the list.
type Folders = Arc<[PathBuf]>;

/// One version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    device: u64,
    number: u64,
    changed_ns: i128,
}

/// Loads Penstock's libraries in the place of those that a file needs. Returns the name to load in
/// the place of `name` if that is a library that Penstock has, and null otherwise.
///
/// # Safety
/// `name` is a C string. `flags` are those of `dlopen`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_cuda_stand_in(
    name: *const c_char,
    flags: c_int,
) -> *const c_char {
    // SAFETY: the caller upholds the contract of this function.
    let name = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    let made = std::panic::catch_unwind(|| stand_in(name, flags)).ok().flatten();
    made.map_or(std::ptr::null(), CStr::as_ptr)
}

fn stand_in(name: &Path, flags: c_int) -> Option<&'static CStr> {
    static IS_OWN: OnceLock<bool> = OnceLock::new();
    let folder = own_folder();
    if *IS_OWN.get_or_init(is_own_program) {
        return None;
    }
    let has_folder = name.as_os_str().as_bytes().contains(&b'/');
    let ours = folder.join(name.file_name()?);
    // A file that is not there must fail to load.
    if ours.is_file() && (!has_folder || name.exists()) {
        return interned(ours);
    }
    if flags & libc::RTLD_NOLOAD != 0 {
        return None;
    }
    let of_user = of_variable();
    let file = if has_folder { name.to_owned() } else { first(name.to_str()?, &of_user)? };
    let met = MET.lock().clone();
    let found = found(&file, folder, &met);
    // No lock is held while libraries are loaded, because their constructors may load more. Another
    // thread that loads the same file meanwhile does the same work.
    for ours in &found.ours {
        if let Err(error) = load(ours) {
            say(&file.display().to_string(), &error);
        }
    }
    MET.lock().extend(found.met);
    None
}

/// Returns whether this process runs a program of Penstock.
fn is_own_program() -> bool {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(Path::file_name);
    name.is_some_and(|name| OWN_PROGRAMS.iter().any(|own| name == *own))
}

/// Returns the name as a string that lives as long as the process.
fn interned(name: PathBuf) -> Option<&'static CStr> {
    let text = CString::new(name.as_os_str().as_bytes()).ok()?;
    let mut names = NAMES.lock();
    Some(*names.entry(name).or_insert_with(|| Box::leak(text.into_boxed_c_str())))
}

/// What is behind a file.
#[derive(Debug, Default)]
pub struct Found {
    /// Penstock's libraries that are to be loaded first.
    pub ours: BTreeSet<PathBuf>,
    /// The files that were looked at.
    pub met: BTreeSet<FileId>,
}

/// Returns Penstock's libraries in `folder` for the names that a file and the libraries behind it
/// find before they look at `LD_LIBRARY_PATH`. Leaves out the files in `met`.
pub fn found(file: &Path, folder: &Path, met: &BTreeSet<FileId>) -> Found {
    let (mut found, of_user) = (Found::default(), of_variable());
    let mut open = vec![(file.to_owned(), of_program())];
    while let Some((file, inherited)) = open.pop() {
        let Some((id, needs)) = read(&file) else { continue };
        if met.contains(&id) || found.met.len() >= FILES_MAX || !found.met.insert(id) {
            continue;
        }
        let origin = file.parent().unwrap_or(Path::new(""));
        let own = needs.own.as_deref().map(|list| folders(list, origin));
        // Who has a list of its own passes on those of others, and uses none of them.
        let (early, passed_on, late) = match (own, needs.inherited.as_deref()) {
            (Some(own), _) => (Folders::default(), inherited, own),
            (None, None) => (inherited.clone(), inherited, Vec::new()),
            (None, Some(list)) => {
                let mut all = folders(list, origin);
                all.extend_from_slice(&inherited);
                let all = Folders::from(all);
                (all.clone(), all, Vec::new())
            }
        };
        for name in needs.names.iter().filter(|name| !name.contains('/')) {
            let ours = folder.join(name);
            if !ours.is_file() {
                let place = first(name, &early).or_else(|| first(name, &of_user));
                let place = place.or_else(|| first(name, &late));
                open.extend(place.map(|place| (place, passed_on.clone())));
            } else if first(name, &early).is_some() {
                found.ours.insert(ours);
            }
        }
    }
    found
}

/// Returns the first file of this name in the folders that the loader would take.
fn first(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(name)).find(|file| read(file).is_some())
}

/// Reads what a file needs. Returns `None` if it cannot be read or is no program or library.
fn read(file: &Path) -> Option<(FileId, Needs)> {
    let file = File::open(file).ok()?;
    let facts = file.metadata().ok()?;
    let changed_ns = i128::from(facts.mtime()) * 1_000_000_000 + i128::from(facts.mtime_nsec());
    let id = FileId { device: facts.dev(), number: facts.ino(), changed_ns };
    Some((id, Elf::read(&ReadCache::new(file))?.needs()?))
}

/// Returns the folders of `LD_LIBRARY_PATH`.
fn of_variable() -> Vec<PathBuf> {
    let list = variable::LD_LIBRARY_PATH.value().unwrap_or_default();
    folders(&list.to_string_lossy(), Path::new(""))
}

/// Returns the folders of this program's `DT_RPATH`, which count for all that it loads.
fn of_program() -> Folders {
    let needs = std::env::current_exe().ok().and_then(|file| Some((read(&file)?.1, file)));
    let Some((Needs { inherited: Some(list), own: None, .. }, file)) = needs else {
        return Folders::default();
    };
    Folders::from(folders(&list, file.parent().unwrap_or(Path::new(""))))
}

/// Returns the folders of a list. `$ORIGIN` is the folder of the file that has the list.
fn folders(list: &str, origin: &Path) -> Vec<PathBuf> {
    let origin = origin.to_string_lossy();
    let text = |entry: &str| entry.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
    list.split(':').filter(|entry| !entry.is_empty()).map(|entry| text(entry).into()).collect()
}
