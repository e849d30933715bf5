//! NVIDIA's libraries that a program finds in folders which its own files name (`DT_RPATH`), as
//! Python's packages do. The loader looks there before it looks at `LD_LIBRARY_PATH`. But the
//! loader loads no second library of a name that is loaded already. So Penstock's library of that
//! name is loaded before the file that needs the name.
//!
//! `LD_LIBRARY_PATH` comes before the folders of `DT_RUNPATH` and those of the system.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr, c_char};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::read::ReadCache;
use penstock_process::Lock;

use crate::elf::{Elf, Needs};
use crate::redirect::{load, own_folder, say};

/// Most files that are read for one process. All modules of PyTorch and JAX need some 200.
const FILES_MAX: usize = 4096;

/// The files whose needs are met.
static MET: Lock<BTreeSet<PathBuf>> = Lock::new(BTreeSet::new());

/// Loads Penstock's libraries in the place of those that a file needs. Returns the name to load in
/// the place of `name` if `name` is itself a library that Penstock has, and null otherwise. The
/// returned name is never freed.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_cuda_stand_in(name: *const c_char) -> *const c_char {
    // SAFETY: the caller upholds the contract of this function.
    let name = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    let made = std::panic::catch_unwind(|| stand_in(name, &own_folder()));
    made.ok().flatten().map_or(std::ptr::null(), |name| name.into_raw().cast_const())
}

fn stand_in(name: &Path, folder: &Path) -> Option<CString> {
    if name.parent() == Some(folder) {
        return None;
    }
    if let Some(ours) = name.file_name().map(|file| folder.join(file)).filter(|it| it.is_file()) {
        return CString::new(ours.as_os_str().as_bytes()).ok();
    }
    // The lock is not held while libraries are loaded, because their constructors may load more.
    let needed = found(name, folder, &mut MET.lock());
    for ours in needed {
        if let Err(error) = load(&ours) {
            say(&name.display().to_string(), &error);
        }
    }
    None
}

/// Returns Penstock's libraries in `folder` for the names that a file and the libraries behind it
/// find before they look at `LD_LIBRARY_PATH`. Leaves out the files in `met`, and adds to them what
/// it looks at.
pub fn found(file: &Path, folder: &Path, met: &mut BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let mut ours = BTreeSet::new();
    let mut open = vec![(file.to_owned(), Arc::<[PathBuf]>::default())];
    while let Some((file, inherited)) = open.pop() {
        if met.len() >= FILES_MAX || !met.insert(file.clone()) {
            continue;
        }
        let Some(needs) = needs(&file) else { continue };
        let origin = file.parent().unwrap_or(Path::new(""));
        let mut passed_on = needs.inherited.as_deref().map(|list| folders(list, origin));
        if let Some(list) = &mut passed_on {
            list.extend_from_slice(&inherited);
        }
        let passed_on: Arc<[PathBuf]> = passed_on.map_or(inherited, Arc::from);
        let own = needs.own.as_deref().map(|list| folders(list, origin));
        let places = own.as_deref().unwrap_or(&passed_on);
        for name in needs.names.iter().filter(|name| !name.contains('/')) {
            let Some(place) = places.iter().map(|it| it.join(name)).find(|it| it.is_file()) else {
                continue;
            };
            match folder.join(name) {
                it if it.is_file() && own.is_none() => _ = ours.insert(it),
                it if it.is_file() => {}
                _ => open.push((place, passed_on.clone())),
            }
        }
    }
    ours
}

/// Reads what a file needs. Returns `None` if it cannot be read or is no program or library.
fn needs(file: &Path) -> Option<Needs> {
    Elf::read(&ReadCache::new(File::open(file).ok()?))?.needs()
}

/// Returns the folders of a list. `$ORIGIN` is the folder of the file that has the list.
fn folders(list: &str, origin: &Path) -> Vec<PathBuf> {
    let origin = origin.to_string_lossy();
    let text = |entry: &str| entry.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
    list.split(':').filter(|entry| !entry.is_empty()).map(|entry| text(entry).into()).collect()
}
