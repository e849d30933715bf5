//! How a CUDA program finds the pool. The folder with Penstock's CUDA libraries becomes the first
//! that the loader searches. A library that a program would find even before that is preloaded from
//! the folder. If the CUDA runtime is linked into the program, a preloaded library replaces it. If
//! a program asks NVRTC for machine code, the same library makes NVRTC return PTX.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use penstock_cuda_patch::needed;
use penstock_cuda_patch::program::{Runtime, inspect, wants_machine_code};
use penstock_process::{search, variable};

/// Name of the folder, beside the OpenCL library.
pub const FOLDER: &str = "cuda";

/// The library that the folder must contain.
const DRIVER: &str = "libcuda.so.1";

/// Longest first line of a script that names its interpreter, in bytes, as the kernel reads it
/// (`BINPRM_BUF_SIZE`).
const SHEBANG_BYTES_MAX: usize = 256;

/// Library that replaces a runtime inside a program.
const PATCH: &str = "libpenstock_cudapatch.so";

/// Makes `command` find the CUDA libraries beside `opencl` (the path of the OpenCL library), if
/// they are installed. If the program contains a runtime that cannot be replaced, writes one line
/// that says so; OpenCL in that program works all the same. Preloads the library `mpi`, if there is
/// one, before all others.
pub fn show(command: &mut Command, opencl: &Path, mpi: Option<&Path>) {
    let mut preloaded = variable::LD_PRELOAD.value();
    replace_runtime(command, opencl, &mut preloaded);
    if let Some(mpi) = mpi {
        preloaded = Some(before(mpi, preloaded.as_deref()));
    }
    if let Some(preloaded) = preloaded {
        command.env(variable::LD_PRELOAD.name, preloaded);
    }
}

/// Does as [`show`], and adds to the libraries that are preloaded.
fn replace_runtime(command: &mut Command, opencl: &Path, preloaded: &mut Option<OsString>) {
    let Some(folder) = opencl.parent().map(|folder| folder.join(FOLDER)) else { return };
    if !folder.join(DRIVER).is_file() {
        return;
    }
    command.env(
        variable::LD_LIBRARY_PATH.name,
        before(&folder, variable::LD_LIBRARY_PATH.value().as_deref()),
    );
    let Some(program) = search::program(command.get_program()) else { return };
    for library in needed::found(&program, &folder, &BTreeSet::new()).ours {
        *preloaded = Some(before(&library, preloaded.as_deref()));
    }
    match inspect(&program) {
        Runtime::Elsewhere if is_python(&program) => prepare_python(command, preloaded, &folder),
        Runtime::Elsewhere if wants_machine_code(&program) => {
            preload(preloaded, &folder, &program, "to make NVRTC return PTX");
        }
        Runtime::Elsewhere => {}
        Runtime::Inside { .. } => {
            preload(preloaded, &folder, &program, "to replace the CUDA runtime inside")
        }
        Runtime::Stripped => refuse(&program, "has no function names (it was stripped)"),
        Runtime::Unknown => refuse(&program, "has an unknown version"),
        Runtime::OtherMachine => refuse(&program, "is for another kind of processor"),
    }
}

/// Returns whether the file is Python's interpreter, or a script for it.
fn is_python(program: &Path) -> bool {
    let is_named = |path: &Path| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"python"))
    };
    let mut start = [0; SHEBANG_BYTES_MAX];
    let read = File::open(program).and_then(|mut file| file.read(&mut start)).unwrap_or_default();
    let line = start.get(..read).and_then(|it| it.strip_prefix(b"#!")).unwrap_or_default();
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|byte| byte.is_ascii_whitespace());
    is_named(program) || words.any(|word| is_named(Path::new(OsStr::from_bytes(word))))
}

/// Prepares for packages such as CuPy. Their modules contain the runtime, and the file of the
/// interpreter does not show it. Unless the user says otherwise, CuPy has NVRTC make PTX, and
/// leaves out the kernels that it takes precompiled from CUB.
fn prepare_python(command: &mut Command, preloaded: &mut Option<OsString>, folder: &Path) {
    let patch = folder.join(PATCH);
    if patch.is_file() {
        *preloaded = Some(before(&patch, preloaded.as_deref()));
    }
    for (name, value) in [("CUPY_COMPILE_WITH_PTX", "1"), ("CUPY_ACCELERATORS", "")] {
        if variable::value_even_empty(name).is_none() {
            command.env(name, value);
        }
    }
}

fn preload(preloaded: &mut Option<OsString>, folder: &Path, program: &Path, why: &str) {
    let patch = folder.join(PATCH);
    if patch.is_file() {
        *preloaded = Some(before(&patch, preloaded.as_deref()));
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
    if let Some(rest) = rest {
        list.push(":");
        list.push(rest);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_comes_before_what_was_there() {
        let first = Path::new("/opt/cuda");
        assert_eq!(before(first, None), "/opt/cuda");
        assert_eq!(before(first, Some(OsStr::new("/a:/b"))), "/opt/cuda:/a:/b");
    }

    #[test]
    fn python_is_known_by_its_name_and_by_that_in_a_script() {
        assert!(is_python(Path::new("/usr/bin/python3.11")));
        assert!(!is_python(Path::new("/bin/sh")) && !is_python(Path::new("/nonexistent")));
        let script = std::env::temp_dir().join(format!("penstock-script-{}", std::process::id()));
        for (text, is_it) in [
            ("#!/usr/bin/env python3\nimport cupy\n", true),
            ("#!/opt/venv/bin/python -u", true),
            ("#!/bin/sh\nexec python3 it\n", false),
            ("", false),
        ] {
            std::fs::write(&script, text).unwrap();
            assert_eq!(is_python(&script), is_it, "{text}");
        }
        std::fs::remove_file(&script).unwrap();
    }
}
