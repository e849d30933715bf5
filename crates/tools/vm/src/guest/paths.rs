//! Where the files of a guest are that the host makes.

/// Folder of the files that are not the program's.
pub const FOLDER: &str = "/penstock";

/// What the first process starts, as JSON.
pub const START: &str = "/penstock/start.json";

/// Paths of the modules, one a line, in the order in which they are loaded.
pub const MODULES: &str = "/penstock/modules";

/// The pool's key.
pub const KEY: &str = "/penstock/key";

/// Returns the path of a module.
pub fn module(name: &str) -> String {
    format!("{FOLDER}/{name}.ko")
}
