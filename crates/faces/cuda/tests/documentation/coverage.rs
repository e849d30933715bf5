//! Finds which tests call which functions of CUDA, from the sources of the tests. Names in comments
//! do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Names of functions by the source of the test that calls them.
pub type Calls = BTreeMap<String, BTreeSet<String>>;

/// Functions that the compiler calls for a kernel, and for its launch.
const OF_KERNELS: [&str; 4] = [
    "__cudaRegisterFatBinary",
    "__cudaRegisterFatBinaryEnd",
    "__cudaRegisterFunction",
    "__cudaUnregisterFatBinary",
];
const OF_LAUNCHES: [&str; 3] =
    ["__cudaPushCallConfiguration", "__cudaPopCallConfiguration", "cudaLaunchKernel"];

/// Returns the text without comments of C, C++ and Rust.
pub fn code(text: &str) -> String {
    let mut without = String::new();
    for part in text.split("/*").enumerate() {
        without += match part {
            (0, first) => first,
            (_, rest) => rest.split_once("*/").map_or("", |(_, after)| after),
        };
    }
    without.lines().flat_map(|line| [line.split("//").next().unwrap_or(""), "\n"]).collect()
}

/// Returns the words of the text that are names of CUDA's functions.
pub fn names(code: &str) -> impl Iterator<Item = &str> {
    let is_name = |word: &&str| {
        let word = word.trim_start_matches('_');
        word.starts_with("cuda")
            || word.strip_prefix("cu").is_some_and(|rest| rest.starts_with(char::is_uppercase))
    };
    code.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').filter(is_name)
}

/// Returns path and text of the files of a folder with one of these extensions.
fn files(folder: &str, extensions: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            let inner = files(&format!("{folder}/{name}"), extensions);
            found.extend(inner.into_iter().map(|(file, text)| (format!("{name}/{file}"), text)));
        } else if extensions.iter().any(|extension| name.ends_with(extension)) {
            found.push((name, fs::read_to_string(path).unwrap()));
        }
    }
    found
}

/// Adds the calls of the sources in a folder, for example of `crates/faces/cuda/tests`.
pub fn add(calls: &mut Calls, folder: &str, extensions: &[&str]) {
    for (name, text) in files(folder, extensions) {
        let code = code(&text);
        let mut called: BTreeSet<String> = names(&code).map(str::to_owned).collect();
        if name.ends_with(".cu") && code.contains("__global__") {
            called.extend(OF_KERNELS.map(str::to_owned));
        }
        if code.contains("<<<") {
            called.extend(OF_LAUNCHES.map(str::to_owned));
        }
        calls.entry(name).or_default().extend(called);
    }
}

/// Returns the tests that call a function, for a column of a table.
pub fn callers(calls: &Calls, name: &str) -> String {
    /// More names than these make rows that nobody reads.
    const SHOWN_MAX: usize = 4;
    let all: Vec<&str> = calls
        .iter()
        .filter(|(_, called)| called.contains(name))
        .map(|(source, _)| source.as_str())
        .collect();
    match all.len() {
        0 => "-".to_owned(),
        count if count > SHOWN_MAX => {
            format!("{} and {} more", all[..SHOWN_MAX].join(", "), count - SHOWN_MAX)
        }
        _ => all.join(", "),
    }
}
