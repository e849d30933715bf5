//! How a CUDA program finds the pool. The folder with Penstock's CUDA libraries becomes the first
//! that the loader searches. If the CUDA runtime is linked into the program, a preloaded library
//! replaces it. If a program asks NVRTC for machine code, the same library makes NVRTC return PTX.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use penstock_cuda_patch::program::{Runtime, inspect, wants_machine_code};

/// Name of the folder, beside the OpenCL library.
const FOLDER: &str = "cuda";

/// The library that the folder must contain.
const DRIVER: &str = "libcuda.so.1";

/// Library that replaces a runtime inside a program.
const PATCH: &str = "libpenstock_cudapatch.so";

const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
const PRELOAD: &str = "LD_PRELOAD";

/// Search path for programs if `PATH` is not set, as in the C library.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Makes `command` find the CUDA libraries beside `opencl` (the path of the OpenCL library), if
/// they are installed. If the program contains a runtime that cannot be replaced, writes one line
/// that says so; OpenCL in that program works all the same.
pub fn show(command: &mut Command, opencl: &Path) {
    let Some(folder) = opencl.parent().map(|folder| folder.join(FOLDER)) else { return };
    if !folder.join(DRIVER).is_file() {
        return;
    }
    command.env(LIBRARY_PATH, before(&folder, env::var_os(LIBRARY_PATH).as_deref()));
    let Some(program) = find(command.get_program(), env::var_os("PATH").as_deref()) else { return };
    match inspect(&program) {
        Runtime::Elsewhere if wants_machine_code(&program) => {
            preload(command, &folder, &program, "to make NVRTC return PTX");
        }
        Runtime::Elsewhere => {}
        Runtime::Inside { .. } => {
            preload(command, &folder, &program, "to replace the CUDA runtime inside")
        }
        Runtime::Stripped => refuse(&program, "has no function names (it was stripped)"),
        Runtime::Unknown => refuse(&program, "has an unknown version"),
        Runtime::OtherMachine => refuse(&program, "is for another kind of processor"),
    }
}

fn preload(command: &mut Command, folder: &Path, program: &Path, why: &str) {
    let patch = folder.join(PATCH);
    if patch.is_file() {
        command.env(PRELOAD, before(&patch, env::var_os(PRELOAD).as_deref()));
    } else {
        eprintln!("penstock: {}: {PATCH}, needed {why}, is not there", program.display());
    }
}

fn refuse(program: &Path, why: &str) {
    eprintln!(
        "penstock: {}: the CUDA runtime inside {why}, so CUDA will not find the pool; \
         link the program with `nvcc -cudart shared`, or do not strip it",
        program.display()
    );
}

/// Returns the path list `rest` with `first` in front.
fn before(first: &Path, rest: Option<&OsStr>) -> OsString {
    let mut list = first.as_os_str().to_owned();
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        list.push(":");
        list.push(rest);
    }
    list
}

/// Returns the file that the system runs for a program name.
fn find(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    let named = Path::new(program);
    if named.components().count() > 1 || named.is_absolute() {
        return Some(named.to_owned());
    }
    env::split_paths(path.unwrap_or(OsStr::new(DEFAULT_PATH)))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_comes_before_what_was_there() {
        let first = Path::new("/opt/cuda");
        assert_eq!(before(first, None), "/opt/cuda");
        assert_eq!(before(first, Some(OsStr::new(""))), "/opt/cuda");
        assert_eq!(before(first, Some(OsStr::new("/a:/b"))), "/opt/cuda:/a:/b");
    }

    #[test]
    fn programs_are_found_as_the_system_finds_them() {
        let path = Some(OsStr::new("/nonexistent:/bin"));
        assert_eq!(find(OsStr::new("sh"), path), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find(OsStr::new("./sh"), path), Some(PathBuf::from("./sh")));
        assert_eq!(find(OsStr::new("/usr/bin/env"), path), Some(PathBuf::from("/usr/bin/env")));
        assert_eq!(find(OsStr::new("no-such-program"), path), None);
    }
}
