//! A folder for the files of a test.

use std::path::{Path, PathBuf};

/// Folder of one test, empty at first. Dropping this value removes the folder.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes the folder. No other test may use the name.
    ///
    /// # Panics
    /// If the folder cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("penstock-{name}-{}", std::process::id()));
        // An ended process with the same id may have left it.
        _ = std::fs::remove_dir_all(&path);
        let made = std::fs::create_dir_all(&path);
        assert!(made.is_ok(), "{}: {made:?}", path.display());
        Self(path)
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a file in the folder.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}
