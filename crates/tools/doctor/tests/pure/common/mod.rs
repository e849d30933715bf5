//! What the tests share: trees, and folders that are removed at the end.
#![allow(dead_code, reason = "each test uses a part of this file")]

use std::fs;
use std::path::{Path, PathBuf};

use penstock_doctor::tree::{Listing, Tree};
use penstock_doctor::{Facts, Finding, examine};

pub fn trees() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees")
}

/// Reads a host without a defect.
pub fn base(name: &str) -> Listing {
    let path = trees().join(format!("{name}.tree"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    Listing::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub fn findings(tree: &Tree) -> Vec<Finding> {
    examine(&Facts::read(tree))
}

/// A folder of one test, which is removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("doctor-{}-{name}", std::process::id()));
        _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}
