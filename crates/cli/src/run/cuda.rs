//! How a CUDA program finds the pool: the folder of CUDA's libraries comes first where the loader looks, and a program with the runtime
//! inside has it replaced when it is loaded. One that asks NVRTC for machine code gets PTX in its place.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use penstock_cuda_patch::program::{Runtime, inspect, wants_machine_code};

/// The folder, beside the library of OpenCL.
const FOLDER: &str = "cuda";

/// What of it must be there.
const DRIVER: &str = "libcuda.so.1";

/// What replaces a runtime inside a program.
const PATCH: &str = "libpenstock_cudapatch.so";

const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
const PRELOAD: &str = "LD_PRELOAD";

/// Where programs are looked for that are named without a folder, if nothing else is said: as the C library does.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Makes `command` find the libraries beside `opencl` (the library of OpenCL), if they are there. Says in one line if it has a runtime inside that
/// cannot be replaced: its OpenCL part, if it has one, works none the less.
pub fn show(command: &mut Command, opencl: &Path) {
    let Some(folder) = opencl.parent().map(|folder| folder.join(FOLDER)) else { return };
    if !folder.join(DRIVER).is_file() {
        return;
    }
    command.env(LIBRARY_PATH, before(&folder, env::var_os(LIBRARY_PATH).as_deref()));
    let Some(program) = find(command.get_program(), env::var_os("PATH").as_deref()) else { return };
    match inspect(&program) {
        Runtime::Elsewhere if wants_machine_code(&program) => {
            preload(command, &folder, &program, "to have NVRTC give it PTX");
        }
        Runtime::Elsewhere => {}
        Runtime::Inside { .. } => {
            preload(command, &folder, &program, "to replace the CUDA runtime inside")
        }
        Runtime::Stripped => refuse(&program, "no names of its functions (it was stripped)"),
        Runtime::Unknown => refuse(&program, "of a version that cannot be told"),
        Runtime::OtherMachine => refuse(&program, "for a processor on which it cannot be replaced"),
    }
}

fn preload(command: &mut Command, folder: &Path, program: &Path, why: &str) {
    let patch = folder.join(PATCH);
    if patch.is_file() {
        command.env(PRELOAD, before(&patch, env::var_os(PRELOAD).as_deref()));
    } else {
        eprintln!("penstock: {}: {PATCH} is not there {why}", program.display());
    }
}

fn refuse(program: &Path, why: &str) {
    eprintln!(
        "penstock: {}: the CUDA runtime inside has {why}, so CUDA will not find the pool; \
         link the program with `nvcc -cudart shared`, or do not strip it",
        program.display()
    );
}

/// A list of paths with one before all others.
fn before(first: &Path, rest: Option<&OsStr>) -> OsString {
    let mut list = first.as_os_str().to_owned();
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        list.push(":");
        list.push(rest);
    }
    list
}

/// The file that the system will run for a name.
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
