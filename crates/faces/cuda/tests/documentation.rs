//! Checks that docs/cuda.md is what the table of functions and the tests generate. To write it
//! anew: `PENSTOCK_WRITE_DOCS=1 cargo test -p penstock-cuda --test documentation`.

#[path = "documentation/coverage.rs"]
mod coverage;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

use coverage::{Calls, callers, code, names, root};
use penstock_cuda::api::table::{SERVED, refused, symbols};

#[test]
fn the_table_of_functions_is_up_to_date() {
    let path = root().join("docs/cuda.md");
    let made = document();
    if std::env::var_os("PENSTOCK_WRITE_DOCS").is_some() {
        fs::write(&path, made).unwrap();
        return;
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == made,
        "docs/cuda.md is not up to date: run this test with PENSTOCK_WRITE_DOCS=1"
    );
}

fn document() -> String {
    let calls = driver_calls();
    let versions: BTreeMap<&str, i32> = symbols().collect();
    let mut served: Vec<_> = SERVED.to_vec();
    served.sort_unstable();
    let mut text = String::from(BEGINNING);
    for (name, module) in served {
        let version = versions.get(name).copied().unwrap_or_default();
        let (major, minor) = (version / 1000, version % 1000 / 10);
        writeln!(text, "| `{name}` | {major}.{minor} | {module}.rs | {} |", callers(&calls, name))
            .unwrap();
    }
    text.push_str(REFUSED);
    let mut refused: Vec<_> = refused().map(|name| format!("`{name}`")).collect();
    refused.sort_unstable();
    writeln!(text, "{}.", refused.join(", ")).unwrap();
    text
}

const BEGINNING: &str = include_str!("documentation/beginning.md");

const REFUSED: &str = "
## Not served

These functions print their name once on standard error and return `CUDA_ERROR_NOT_SUPPORTED`. No
program compiled since CUDA 4.0 calls the forms without `_v2`.

";

#[test]
fn a_test_calls_each_function_that_is_served() {
    let calls = driver_calls();
    let untested: Vec<_> =
        SERVED.iter().map(|(name, _)| *name).filter(|name| callers(&calls, name) == "-").collect();
    assert!(untested.is_empty(), "no test calls {}", untested.join(", "));
}

/// Returns the tests of the driver interface, and the symbols that each calls.
fn driver_calls() -> Calls {
    let mut calls = Calls::new();
    coverage::add(&mut calls, "crates/faces/cuda/tests", &[".rs"]);
    calls.retain(|source, _| !source.starts_with("documentation"));
    for (source, called) in programs_of("tests/cuda", &[".c", "driver.h"]) {
        calls.insert(source, called);
    }
    // The checker compares what random programs do with a model.
    let mut checker = Calls::new();
    coverage::add(&mut checker, "crates/tools/check/src/cuda/driver", &["commands.rs"]);
    let text = fs::read_to_string(root().join("crates/tools/check/src/cuda/driver.rs")).unwrap();
    let mut called: BTreeSet<_> = checker.into_values().flatten().collect();
    called.extend(names(&code(&text)).map(str::to_owned));
    calls.insert("penstock check".to_owned(), called);
    // What programs of the runtime interface call through it.
    let through = through_the_runtime();
    let mut programs = Calls::new();
    coverage::add(&mut programs, "tests/cuda", &[".cu", "harness.h"]);
    coverage::add(&mut programs, "examples/cuda", &[".cu"]);
    for (source, called) in programs {
        let driver = called.iter().filter_map(|name| through.get(name)).flatten().cloned();
        calls.insert(source, driver.collect());
    }
    calls
}

/// Returns the symbols that C programs call. `cuda.h` gives most names to the newest version of a
/// function, and to the form with the thread's own default stream if the program asks for it.
fn programs_of(folder: &str, extensions: &[&str]) -> Calls {
    let known: BTreeSet<&str> = symbols().map(|(name, _)| name).collect();
    let makefile = fs::read_to_string(root().join(folder).join("Makefile")).unwrap();
    let list = makefile.lines().find_map(|line| line.strip_prefix("PER_THREAD := ")).unwrap();
    let twice: Vec<_> = list.split(' ').map(|name| format!("{name}.c")).collect();
    let mut calls = Calls::new();
    coverage::add(&mut calls, folder, extensions);
    for (source, called) in &mut calls {
        let text = fs::read_to_string(root().join(folder).join(source)).unwrap();
        let has_header = text.contains("<cuda.h>") || text.contains("\"driver.h\"");
        if !has_header || text.contains("#define __CUDA_API_VERSION_INTERNAL") {
            continue;
        }
        *called = called.iter().map(|name| newest(&known, name)).collect();
        if twice.contains(source) {
            let forms =
                called.iter().flat_map(|name| [format!("{name}_ptsz"), format!("{name}_ptds")]);
            let forms: Vec<_> = forms.filter(|name| known.contains(name.as_str())).collect();
            called.extend(forms);
        }
    }
    calls
}

/// Returns the symbol that `cuda.h` of CUDA 13.0 has for a name.
fn newest(known: &BTreeSet<&str>, name: &str) -> String {
    match name {
        "cuCtxGetDevice" | "cuCtxSynchronize" | "cuStreamGetCtx" => name.to_owned(),
        "cuGraphInstantiate" => "cuGraphInstantiateWithFlags".to_owned(),
        _ => (2..10)
            .rev()
            .map(|version| format!("{name}_v{version}"))
            .find(|symbol| known.contains(symbol.as_str()))
            .unwrap_or_else(|| name.to_owned()),
    }
}

/// Returns the functions of the driver that the body of each function of the runtime calls. What
/// the body calls through other functions of the crate does not count.
fn through_the_runtime() -> Calls {
    let mut sources = Vec::new();
    for entry in fs::read_dir(root().join("crates/faces/cudart/src/api")).unwrap() {
        sources.push(code(&fs::read_to_string(entry.unwrap().path()).unwrap()));
    }
    let mut calls = Calls::new();
    for part in sources.iter().flat_map(|text| text.split("fn cuda").skip(1)) {
        let body = part.split("\n}\n").next().unwrap_or_default();
        let name: String =
            part.chars().take_while(|it| it.is_ascii_alphanumeric() || *it == '_').collect();
        // A body calls with `driver.cuName(...)`, and `= cuName;` passes a function on.
        let called = body.split(['.', '=']).skip(1).map(str::trim_start).filter_map(|after| {
            names(after).next().filter(|name| after.starts_with(name) && !name.starts_with("cuda"))
        });
        calls.entry(format!("cuda{name}")).or_default().extend(called.map(str::to_owned));
    }
    calls
}
