//! Checks that docs/opencl.md is up to date, which is made from the table of functions and the
//! tests. To regenerate it, run `PENSTOCK_WRITE_DOCS=1 cargo test -p penstock-opencl --test
//! documentation`.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use penstock_cl_sys::CORE_FUNCTIONS;
use penstock_opencl::api::table::{IMPLEMENTED, REFUSED};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

#[test]
fn the_table_of_functions_is_up_to_date() {
    let path = root().join("docs/opencl.md");
    let made = document();
    if std::env::var_os("PENSTOCK_WRITE_DOCS").is_some() {
        fs::write(&path, made).unwrap();
        return;
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == made,
        "docs/opencl.md is not up to date: run this test with PENSTOCK_WRITE_DOCS=1"
    );
}

/// Returns the implemented functions, each with its module.
fn implemented() -> impl Iterator<Item = (&'static str, &'static str)> {
    IMPLEMENTED
        .iter()
        .flat_map(|(module, functions)| functions.iter().map(move |(name, _)| (*name, *module)))
}

fn document() -> String {
    let tests = programs();
    let tested = |name: &str| {
        let users =
            tests.iter().filter(|(_, text)| uses(text, name)).map(|(file, _)| file.as_str());
        let users: Vec<_> = users.collect();
        if users.is_empty() { "-".to_owned() } else { users.join(", ") }
    };
    let mut text = String::from(BEGINNING);
    for (name, (major, minor)) in CORE_FUNCTIONS {
        let place = match implemented().find(|(known, _)| known == name) {
            Some((_, module)) => format!("api/{module}.rs"),
            None => "refused".to_owned(),
        };
        writeln!(text, "| `{name}` | {major}.{minor} | {place} | {} |", tested(name)).unwrap();
    }
    text.push_str("\n## Functions of extensions\n\n| function | in | tested by |\n|---|---|---|\n");
    let is_core = |name: &str| CORE_FUNCTIONS.iter().any(|(known, _)| *known == name);
    for (name, module) in implemented().filter(|(name, _)| !is_core(name)) {
        writeln!(text, "| `{name}` | api/{module}.rs | {} |", tested(name)).unwrap();
    }
    text.push_str(
        "
The following functions return `CL_INVALID_OPERATION`. Most of them share objects with the program's
graphics, in which a device of another process has no part. The others belong to the extension
`cl_ext_device_fission`; use the functions of OpenCL 1.2 for sub-devices instead:
",
    );
    let mut refused: Vec<_> =
        REFUSED.iter().filter(|name| !is_core(name)).map(|name| format!("`{name}`")).collect();
    refused.sort_unstable();
    writeln!(text, "{}.", refused.join(", ")).unwrap();
    text
}

const BEGINNING: &str = "\
# OpenCL's functions

The table lists every function of OpenCL 3.0, the file that has it, and the tests that call it. Each
function checks the program's arguments in the client, by the specification's own list of errors. If
a device lacks a feature, the queries of that device say so, and the functions of that feature
return the specification's error.

This document is generated from the lists in `crates/faces/opencl/src/api` and from `tests/c`. Do
not edit it; run `PENSTOCK_WRITE_DOCS=1 cargo test -p penstock-opencl --test documentation`. `make
test` fails if the document is out of date.

| function | since | in `crates/faces/opencl/src` | tested by (in `tests/c`, or beside the crate) |
|---|---|---|---|
";

/// Returns file and text of each test program.
fn programs() -> Vec<(String, String)> {
    let mut programs: Vec<_> = fs::read_dir(root().join("tests/c"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .map(|path| {
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                fs::read_to_string(&path).unwrap(),
            )
        })
        .collect();
    programs.sort();
    programs.push(("library.rs".to_owned(), include_str!("library.rs").to_owned()));
    programs
}

/// Returns whether a program calls a function.
fn uses(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let after = text[at + name.len()..].chars().next();
        !after.is_some_and(|next| next.is_ascii_alphanumeric() || next == '_')
    })
}
