//! Finds what the host and the configuration have, for [`crate::files`].

use std::path::{Path, PathBuf};

use penstock_process::variable;

use crate::apply::Order;
use crate::files::{
    DEVICE_PREFIXES, FOLDER_VARIABLES, LIBRARY_VARIABLES, LINKER_FOLDERS, LINKERS, LOADERS,
    Surroundings,
};

/// Variables with libraries, separated by colons, that an ICD loader opens.
const LIBRARY_LISTS: [&str; 3] = ["OCL_ICD_FILENAMES", "OPENCL_LAYERS", "OPENCL_DRIVER_PATH"];

/// Where ICD loaders look for the files that name drivers.
const VENDORS: &str = "/etc/OpenCL/vendors";

/// Device of NVIDIA's driver.
const NVIDIA_CONTROL: &str = "/dev/nvidiactl";

/// Where NVIDIA's multi-process service has its pipes, unless a variable says otherwise.
const MPS_PIPES: &str = "/tmp/nvidia-mps";

/// Most bytes of such a file that are read; it holds one path.
const ICD_BYTES_MAX: usize = 4096;

/// Reads the surroundings of this process. The paths are free of links, so that they can be
/// compared.
pub(crate) fn surroundings(order: &Order) -> Surroundings {
    let real_of = |path: &Option<PathBuf>| path.as_deref().map(real);
    let mut libraries = icd_libraries();
    let named = LIBRARY_VARIABLES.iter().filter_map(|name| path(name));
    libraries.extend(named.filter(|path| path.is_absolute()));
    libraries
        .extend(LIBRARY_LISTS.iter().flat_map(|name| list(name)).filter(|it| it.is_absolute()));
    let targets: Vec<PathBuf> = libraries.iter().map(|path| real(path)).collect();
    libraries.extend(targets);
    let folders = FOLDER_VARIABLES.iter().flat_map(|name| list(name));
    Surroundings {
        folders: folders.map(|folder| real(&folder)).collect(),
        libraries,
        devices: devices(),
        programs: programs(),
        own: real_of(&order.folder),
        home: real_of(&order.home),
        key: real_of(&order.key),
        sessions: real_of(&order.sessions),
        uses_cuda: Path::new(NVIDIA_CONTROL).exists() || path("PENSTOCK_LIBCUDA").is_some(),
        uses_ucx: variable::HEAP_TRANSPORT.value().is_some_and(|it| it == "ucx"),
    }
}

/// Returns whether NVIDIA's multi-process service runs. The driver connects to it while it works.
pub(crate) fn has_mps() -> bool {
    let pipes = path("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|| MPS_PIPES.into());
    Path::new(NVIDIA_CONTROL).exists() && pipes.join("control").exists()
}

/// Returns a path without links, or the path itself if it leads nowhere.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn path(name: &str) -> Option<PathBuf> {
    variable::value(name).map(PathBuf::from)
}

/// Returns the entries of a list. An empty one would be the current folder.
fn list(name: &str) -> Vec<PathBuf> {
    let value = variable::value(name).unwrap_or_default();
    let entries = std::env::split_paths(&value);
    entries.filter(|entry| !entry.as_os_str().is_empty()).collect()
}

/// Returns the libraries that the files of the ICD loader name by absolute paths.
fn icd_libraries() -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from(VENDORS)];
    for name in ["OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"] {
        places.extend(path(name));
    }
    let mut libraries = Vec::new();
    for place in places {
        if place.is_dir() {
            let files = std::fs::read_dir(&place).into_iter().flatten().flatten();
            let files = files.map(|entry| entry.path());
            let is_icd = |file: &PathBuf| file.extension().is_some_and(|end| end == "icd");
            libraries.extend(files.filter(is_icd).filter_map(|file| library_in(&file)));
        } else if place.extension().is_some_and(|end| end == "icd") {
            libraries.extend(library_in(&place));
        } else if place.is_absolute() && place.is_file() {
            // ocl-icd also takes the library itself.
            libraries.push(place);
        }
    }
    libraries
}

fn library_in(file: &Path) -> Option<PathBuf> {
    let bytes = std::fs::read(file).ok()?;
    let text = String::from_utf8_lossy(bytes.get(..ICD_BYTES_MAX.min(bytes.len()))?).into_owned();
    let library = PathBuf::from(text.lines().next()?.trim());
    library.is_absolute().then_some(library)
}

fn devices() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_device = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        DEVICE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    entries.filter(is_device).map(|entry| entry.path()).collect()
}

/// Returns the linkers and loaders of this host. Links lead to what the kernel runs.
fn programs() -> Vec<PathBuf> {
    let linkers = LINKER_FOLDERS
        .iter()
        .flat_map(|folder| LINKERS.iter().map(move |linker| Path::new(folder).join(linker)));
    let programs = linkers.chain(LOADERS.iter().map(PathBuf::from));
    let mut programs: Vec<PathBuf> = programs.filter_map(|it| it.canonicalize().ok()).collect();
    programs.sort();
    programs.dedup();
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_icd_loader_names_a_library() {
        let folder = std::env::temp_dir().join(format!("penstock-icd-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("a.icd");
        for (text, library) in [
            ("/opt/a/lib/liba.so\n", Some("/opt/a/lib/liba.so")),
            ("liba.so.1\n", None),
            ("", None),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(library_in(&file), library.map(PathBuf::from), "{text}");
        }
        std::fs::remove_dir_all(folder).unwrap();
        assert_eq!(library_in(&file), None);
    }

    #[test]
    fn linkers_have_no_links() {
        for program in programs() {
            assert_eq!(program.canonicalize().unwrap(), program);
        }
    }
}
