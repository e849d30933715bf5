//! The documents and the man pages name the variables of the table, with their defaults, and the
//! code reads no others.

use std::fs;
use std::path::{Path, PathBuf};

use penstock_process::variable::{ALL, Group, Variable};

/// Read when `penstock` is built, so it is no variable of a process.
const AT_BUILD: &str = "PENSTOCK_PREFIX";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn find(name: &str) -> Option<&'static Variable> {
    ALL.iter().find(|variable| variable.name == name)
}

/// Returns the texts in back quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn the_document_of_the_configuration_has_each_variable_with_its_default() {
    let document = text("docs/configuration.md");
    let mut seen = Vec::new();
    let section = document.split("\n## Variables\n").nth(1).and_then(|it| it.split("\n## ").next());
    for row in section.unwrap().lines().filter(|line| line.starts_with("| `")) {
        let mut cells = row.trim_matches('|').split(" | ").map(str::trim);
        let (Some(names), Some(default)) = (cells.next(), cells.next()) else { continue };
        for name in quoted(names).filter(|name| is_name(name) && *name != AT_BUILD) {
            let Some(variable) = find(name) else {
                assert!(!name.starts_with("PENSTOCK_"), "Penstock does not read {name}");
                continue;
            };
            assert_eq!(variable.default, default, "the default of {name}");
            seen.push(variable.name);
        }
    }
    for variable in ALL.iter().filter(|variable| variable.group != Group::Water) {
        assert!(seen.contains(&variable.name), "no row for {}", variable.name);
    }
}

#[test]
fn the_document_of_libwater_has_its_variables() {
    let document = text("docs/libwater.md");
    for variable in ALL.iter().filter(|variable| variable.group == Group::Water) {
        assert!(document.contains(&format!("`{}", variable.name)), "no {}", variable.name);
    }
}

/// In a man page, the name is a line of its own, and the default stands in the text behind it.
#[test]
fn the_man_pages_have_the_defaults_of_the_table() {
    let mut seen = 0;
    for entry in fs::read_dir(root().join("man")).unwrap().flatten() {
        let page = fs::read_to_string(entry.path()).unwrap();
        for item in page.split("\n.TP\n").skip(1) {
            let (names, about) = item.split_once('\n').unwrap_or_default();
            let about = about.split("\n.SH").next().unwrap_or_default();
            let named = names.split(", ").filter(|name| is_name(name) && name.contains('_'));
            for name in named {
                let path = entry.path();
                let variable =
                    find(name).unwrap_or_else(|| panic!("{}: no {name}", path.display()));
                let default = about.split("[default: ").nth(1).and_then(|it| it.split(']').next());
                let default = default.map(|it| it.replace("\\(aq", "'").replace("\\*(Aq", "'"));
                let right = variable.default.replace('`', "");
                let expected = Some(right).filter(|right| right != "–");
                assert_eq!(default, expected, "{}: {name}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "only {seen} variables found: the search is broken");
}

/// Crates whose code may read variables itself: the reader, and a leaf that is empty in a build for
/// users.
const READERS: [&str; 2] = ["crates/base/process", "crates/base/trial"];

#[test]
fn the_code_reads_only_variables_of_the_table() {
    let mut files = Vec::new();
    for room in fs::read_dir(root().join("crates")).unwrap() {
        for entry in fs::read_dir(room.unwrap().path()).unwrap() {
            sources(&entry.unwrap().path().join("src"), &mut files);
        }
    }
    let mut seen = 0;
    for path in files {
        let source = fs::read_to_string(&path).unwrap();
        let is_reader = READERS.iter().any(|folder| path.starts_with(root().join(folder)));
        let is_test = path.components().any(|part| part.as_os_str() == "tests");
        if !is_reader && !is_test {
            for call in ["env::var(", "env::var_os(", "env::vars"] {
                let why = "variables are read by penstock_process::variable";
                assert!(!source.contains(call), "{}: {why}", path.display());
            }
        }
        for rest in source.split("\"PENSTOCK_").skip(1) {
            let name = format!("PENSTOCK_{}", rest.split('"').next().unwrap_or_default());
            if is_name(&name) && name != AT_BUILD && !is_test && !is_reader {
                assert!(find(&name).is_some(), "{}: {name} is in no table", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "no names found: the search is broken");
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}
