//! Checks that docs/cuda.md is what the table of functions and the tests generate. To write it
//! anew: `PENSTOCK_WRITE_DOCS=1 cargo test -p penstock-cuda --test documentation`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use penstock_cuda::api::table::{SERVED, refused, symbols};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

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
    let tests = programs();
    let tested = |name: &str| {
        let users: Vec<_> = tests
            .iter()
            .filter(|(_, text)| uses(text, name))
            .map(|(file, _)| file.as_str())
            .collect();
        if users.is_empty() { "-".to_owned() } else { users.join(", ") }
    };
    let versions: BTreeMap<&str, i32> = symbols().collect();
    let mut served: Vec<_> = SERVED.to_vec();
    served.sort_unstable();
    let mut text = String::from(BEGINNING);
    for (name, module) in served {
        let version = versions.get(name).copied().unwrap_or_default();
        let (major, minor) = (version / 1000, version % 1000 / 10);
        writeln!(text, "| `{name}` | {major}.{minor} | {module}.rs | {} |", tested(name)).unwrap();
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

/// Returns name and text of each test program.
fn programs() -> Vec<(String, String)> {
    let mut programs: Vec<_> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension().is_some_and(|it| it == "rs") && !path.ends_with("documentation.rs")
        })
        .map(|path| {
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                fs::read_to_string(&path).unwrap(),
            )
        })
        .collect();
    programs.push(("common".to_owned(), include_str!("common/mod.rs").to_owned()));
    programs.sort();
    programs
}

/// Returns whether a program uses a function.
fn uses(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        let is_part =
            |letter: Option<char>| letter.is_some_and(|it| it.is_ascii_alphanumeric() || it == '_');
        !is_part(before) && !is_part(after)
    })
}
