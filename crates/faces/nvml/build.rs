//! Makes entry points for all of NVML's functions that `src/api.rs` does not define.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

fn main() {
    for path in ["build.rs", "src/symbols.txt", "src/api.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    let read =
        |path: &str| fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (names, api) = (read("src/symbols.txt"), read("src/api.rs"));
    let served: BTreeSet<&str> = api
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("fn nvml"))
        .filter_map(|rest| rest.split('(').next())
        .collect();
    let mut unserved = String::new();
    for name in names
        .lines()
        .filter(|name| !name.strip_prefix("nvml").is_some_and(|it| served.contains(it)))
    {
        unserved += &format!(
            "/// Not served.\n#[unsafe(no_mangle)]\n#[allow(non_snake_case, reason = \"C's name\")]\n\
             pub extern \"C\" fn {name}() -> u32 {{ crate::not_served(\"{name}\") }}\n"
        );
    }
    let out = env::var("OUT_DIR").unwrap_or_else(|error| panic!("OUT_DIR: {error}"));
    let path = Path::new(&out).join("unserved.rs");
    fs::write(&path, unserved).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
