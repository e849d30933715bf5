//! Compares `docs/cuda-runtime.md` with the table of functions and the lists of symbols, from which
//! it is made. Writes it anew if `PENSTOCK_WRITE_DOCS` is set.

#![allow(clippy::macro_metavars_in_unsafe, reason = "calls have values, not code")]

mod common;
#[path = "../../cuda/tests/documentation/coverage.rs"]
mod coverage;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use coverage::{Calls, callers};
use penstock_cudart::api::table::{SERVED, UNSERVED};

#[test]
fn the_table_of_functions_is_up_to_date() {
    let path = common::root().join("docs/cuda-runtime.md");
    let text = document();
    if std::env::var_os("PENSTOCK_WRITE_DOCS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == text,
        "run: PENSTOCK_WRITE_DOCS=1 cargo test -p penstock-cudart --test documentation"
    );
}

/// Returns the tests of the runtime interface, and the functions that each calls.
fn runtime_calls() -> Calls {
    let mut calls = Calls::new();
    coverage::add(&mut calls, "crates/faces/cudart/tests", &[".rs"]);
    calls.remove("documentation.rs");
    coverage::add(&mut calls, "tests/cuda", &[".cu", "harness.h"]);
    coverage::add(&mut calls, "examples/cuda", &[".cu"]);
    calls
}

fn list(major: u32) -> BTreeSet<String> {
    let path = common::root().join(format!("tools/cuda/cudart-{major}.symbols"));
    fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

/// Returns the name without the suffix that stands for a thread's own default stream.
fn plain(name: &str) -> &str {
    name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name)
}

/// Returns the names that are not second forms, each with its second form.
fn firsts(names: impl Iterator<Item = &'static str>) -> Vec<(&'static str, Option<&'static str>)> {
    let all: BTreeSet<_> = names.collect();
    let second =
        |name: &str| all.iter().copied().find(|other| *other != name && plain(other) == name);
    all.iter()
        .copied()
        .filter(|name| plain(name) == *name)
        .map(|name| (name, second(name)))
        .collect()
}

fn document() -> String {
    let (twelve, thirteen) = (list(12), list(13));
    let versions = |name: &str| match (twelve.contains(name), thirteen.contains(name)) {
        (true, true) => "12, 13",
        (true, false) => "12",
        (false, _) => "13",
    };
    let mut text = BEGINNING.to_owned();
    let calls = runtime_calls();
    let modules: BTreeMap<&str, &str> = SERVED.iter().copied().collect();
    for (name, second) in firsts(SERVED.iter().map(|(name, _)| *name)) {
        let also = second.map_or(String::new(), |second| format!(", `{}`", &second[name.len()..]));
        let (versions, module, tests) = (versions(name), modules[name], callers(&calls, name));
        writeln!(text, "| `{name}`{also} | {versions} | api/{module}.rs | {tests} |").unwrap();
    }
    text.push_str(UNSERVED_TEXT);
    let mut subjects: BTreeMap<&str, Vec<&'static str>> = BTreeMap::new();
    for (name, subject) in UNSERVED {
        subjects.entry(subject).or_default().push(name);
    }
    for (subject, names) in subjects {
        let names: Vec<_> =
            firsts(names.into_iter()).iter().map(|(name, _)| format!("`{name}`")).collect();
        writeln!(text, "* {subject}: {}.", names.join(", ")).unwrap();
    }
    let served = SERVED.len();
    writeln!(text, "\nServed: {served} of {} symbols of both versions.", served + UNSERVED.len())
        .unwrap();
    text
}

const BEGINNING: &str = "\
# Functions of CUDA's runtime

`PENSTOCK_WRITE_DOCS=1 cargo test -p penstock-cudart --test documentation` makes this file from
`crates/faces/cudart/src/api/table.rs` and the lists of symbols in `tools/cuda`; do not edit it.
`make test` fails if it is out of date.

`libcudart.so.12` and `libcudart.so.13` export every symbol of NVIDIA's libraries of these names
(12.9 and 13.0), with the same versions. They use the public interface of the driver, so the results
of some functions depend on the driver. With Penstock's driver, for example, `cudaMallocManaged`
returns `cudaErrorNotSupported` for a device whose memory the program does not share.

A program finds the libraries in one of these ways. None of them changes the program's file:

* `penstock run -- PROGRAM` puts the folder of the libraries first in `LD_LIBRARY_PATH`.
* Without `penstock run`, set `LD_LIBRARY_PATH=PREFIX/lib/penstock/cuda` and `PENSTOCK_NODES`.
* `nvcc` links NVIDIA's runtime into a program unless it is called with `-cudart shared`.
  `penstock run` detects such a program by its symbol table, and has `libpenstock_cudapatch.so`
  loaded before it (`LD_PRELOAD`). That library makes each function of the runtime inside begin with
  a jump into the library of its version. Set `LD_PRELOAD` yourself for programs that another
  program starts, and for libraries with a runtime inside, such as modules of Python. This works on
  x86-64 only. A stripped program has no symbol table: `penstock run` reports that, and what to do.

Device code that was linked from several files (`nvcc -rdc=true`) is linked again for the device,
from the PTX in its parts.

Version 12 removed texture references; textures are objects. A name that ends in `_ptsz` or `_ptds`
is the second form of a function, for programs compiled with `--default-stream per-thread`.

The last column names the tests whose source calls the function. A `.rs` file is in
`crates/faces/cudart/tests` and uses a driver that stands in for CUDA's. A `.cu` file is in
`tests/cuda` or `examples/cuda` and runs on Penstock's driver.

| function | in version | in `crates/faces/cudart/src` | tested by |
|---|---|---|---|
";

const UNSERVED_TEXT: &str = "
## Not served

These functions return `cudaErrorNotSupported`, and the first call of each is reported on standard
error:

";
