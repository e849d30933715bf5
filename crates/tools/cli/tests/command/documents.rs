//! The documents name only files that exist, and `docs/dependencies.md` is complete.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Returns the folders of all crates.
fn crates() -> Vec<PathBuf> {
    let inside = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    inside(root().join("crates")).flat_map(inside).collect()
}

/// Returns all Markdown files of the root and of `docs/`.
fn documents() -> Vec<(PathBuf, String)> {
    let folders = ["", "docs", "docs/decisions", "docs/notes"].map(|folder| root().join(folder));
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()));
    let documents =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    documents.map(|path| (path.clone(), fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn links_between_documents_lead_somewhere() {
    for (path, text) in documents() {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let outside = target.contains("://") || target.is_empty();
            let there = outside || path.parent().unwrap().join(target).exists();
            assert!(there, "{}: there is no {target}", path.display());
        }
    }
}

#[test]
fn files_that_the_architecture_names_exist() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let names = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.contains('/') && !name.contains([' ', '*', '~']));
    let mut count = 0;
    for name in names {
        // `session/` and the like are folders of the crate that the line describes.
        let there = root().join(name).exists()
            || crates().iter().any(|folder| {
                folder.join("src").join(name).exists() || folder.join("..").join(name).exists()
            });
        assert!(there, "ARCHITECTURE.md: there is no {name}");
        count += 1;
    }
    assert!(count > 20, "only {count} files found: the search is broken");
}

#[test]
fn every_dependency_is_accounted_for() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let listed = fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    let section =
        manifest.split("[workspace.dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let names: Vec<_> =
        section.lines().filter_map(|line| Some(line.split_once(" = ")?.0.trim())).collect();
    assert!(names.len() > 10, "only {names:?}: the search is broken");
    for name in names.iter().filter(|name| !name.starts_with("penstock-")) {
        assert!(
            listed.contains(&format!("`{name}`")),
            "docs/dependencies.md has no line for {name}"
        );
    }
    for line in listed.lines().filter(|line| line.starts_with("| `")) {
        for name in line.split('|').nth(1).unwrap().split('`').skip(1).step_by(2) {
            assert!(
                names.contains(&name),
                "docs/dependencies.md has a line for {name}, which Cargo.toml does not have"
            );
        }
    }
}
