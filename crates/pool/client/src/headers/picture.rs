//! A picture of a file system, for tests.

use std::collections::BTreeMap;

use super::tree::{Entry, Files, TooLarge};

/// Files, and links, by their paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Picture {
    files: BTreeMap<Vec<u8>, Vec<u8>>,
    links: BTreeMap<Vec<u8>, Vec<u8>>,
    unreadable: Vec<Vec<u8>>,
}

impl Picture {
    pub(crate) fn file(mut self, path: &str, content: &str) -> Self {
        self.files.insert(path.into(), content.into());
        self
    }

    pub(crate) fn link(mut self, path: &str, target: &str) -> Self {
        self.links.insert(path.into(), target.into());
        self
    }

    /// Makes a file unreadable.
    pub(crate) fn secret(mut self, path: &str) -> Self {
        self.unreadable.push(path.into());
        self
    }
}

impl Files for Picture {
    fn entry(&self, path: &[u8]) -> Entry {
        if let Some(target) = self.links.get(path) {
            return Entry::Link(target.clone());
        }
        if self.files.contains_key(path) {
            return Entry::File;
        }
        let folder = [path, b"/"].concat();
        let below = |known: &Vec<u8>| known.starts_with(&folder);
        let is_folder = self.files.keys().chain(self.links.keys()).any(below);
        if is_folder { Entry::Folder } else { Entry::None }
    }

    fn read(&self, path: &[u8], bytes_max: usize) -> Result<Option<Vec<u8>>, TooLarge> {
        if self.unreadable.iter().any(|secret| secret == path) {
            return Ok(None);
        }
        let content = self.files.get(path).cloned();
        if content.as_ref().is_some_and(|content| content.len() > bytes_max) {
            return Err(TooLarge);
        }
        Ok(content)
    }
}
