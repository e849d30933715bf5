//! The ICD loader, and the drivers that it is told to load.

use super::files::find_library;
use crate::tree::{Answers, Tree, keep};

#[derive(Clone, Debug)]
pub struct OpenCl {
    /// Library of the ICD loader.
    pub loader: Option<String>,
    /// Directory or file that names the drivers.
    pub vendors: String,
    /// Whether `OCL_ICD_VENDORS` names it.
    pub is_from_variable: bool,
    pub has_vendors: bool,
    pub icds: Vec<Icd>,
}

/// A file that names a driver.
#[derive(Clone, Debug)]
pub struct Icd {
    pub path: String,
    /// The driver's library, as the file names it. `None` if the file is empty or unreadable.
    pub library: Option<String>,
    /// Where the dynamic loader finds the library.
    pub found: Option<String>,
}

const VENDORS: &str = "etc/OpenCL/vendors";

impl OpenCl {
    pub fn read(tree: &Tree, answers: &Answers) -> Self {
        let variable = answers.get("variable.OCL_ICD_VENDORS").filter(|path| !path.is_empty());
        let vendors = variable.map_or(VENDORS, |path| path.trim_matches('/')).to_owned();
        let names = tree.list(&vendors).into_iter().filter(|name| name.ends_with(".icd"));
        let mut paths: Vec<String> = names.map(|name| format!("{vendors}/{name}")).collect();
        if vendors.ends_with(".icd") && paths.is_empty() && tree.exists(&vendors) {
            paths.push(vendors.clone());
        }
        let icd = |path: String| {
            // The file may be a link that leads nowhere.
            tree.remember_name(&path);
            let library = tree.read(&path, keep::line);
            let found = library.as_deref().and_then(|name| find_library(tree, answers, name));
            Icd { path, library, found }
        };
        Self {
            loader: find_library(tree, answers, "libOpenCL.so.1"),
            has_vendors: tree.exists(&vendors),
            icds: paths.into_iter().map(icd).collect(),
            is_from_variable: variable.is_some(),
            vendors,
        }
    }

    /// Returns whether a driver is there whose library's name contains one of these words.
    pub fn has_driver(&self, words: &[&str]) -> bool {
        let names = self.icds.iter().filter(|icd| icd.found.is_some());
        let mut names = names.filter_map(|icd| icd.library.as_deref().map(str::to_lowercase));
        names.any(|name| words.iter().any(|word| name.contains(word)))
    }

    pub fn works(&self) -> bool {
        self.icds.iter().any(|icd| icd.found.is_some())
    }
}
