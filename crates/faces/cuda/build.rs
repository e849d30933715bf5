//! Sets the link arguments of the shared library and generates stubs for all functions that are not
//! served.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// All functions of the interface: name, and the version of the interface that introduced it.
const SYMBOLS: &str = "src/api/symbols.txt";
/// The functions that are served, and the modules that have them.
const TABLE: &str = "src/api/table.rs";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SYMBOLS}");
    println!("cargo::rerun-if-changed={TABLE}");
    // Programs unload the library at exit while its threads may still run.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // A program may have its own functions with these names.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("stubs.rs"), stubs())
        .expect("cargo's output folder is writable");
}

/// Returns one function for each symbol that the table does not name. They differ only in their
/// names.
fn stubs() -> String {
    let symbols = fs::read_to_string(SYMBOLS).expect("the file is part of this crate");
    let table = fs::read_to_string(TABLE).expect("the file is part of this crate");
    let list = table
        .split("served! {")
        .nth(1)
        .and_then(|rest| rest.split("\n}").next())
        .unwrap_or_default();
    let served: BTreeSet<&str> = list
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .flat_map(|line| {
            line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        })
        .filter(|word| word.starts_with("cu"))
        .collect();
    let all: BTreeSet<&str> = symbols.lines().filter_map(|line| line.split(' ').next()).collect();
    for name in &served {
        assert!(all.contains(name), "{TABLE} serves {name}, which is not in {SYMBOLS}");
    }
    let refused: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| !served.contains(name))
        .collect();
    let mut text = String::new();
    writeln!(text, "stubs! {{").expect("writing to a string cannot fail");
    for (name, _) in &refused {
        writeln!(text, "    {name}").expect("writing to a string cannot fail");
    }
    writeln!(text, "}}").expect("writing to a string cannot fail");
    text
}
