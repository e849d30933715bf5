//! The initramfs of a guest.

mod cpio;
mod elf;
pub mod kernel;
mod libraries;
pub mod modules;

use std::fs;
use std::io::{self, BufWriter};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::VmError;
use crate::guest::{HOST_NAME, Start, paths};
use crate::limits::{FOLDER_DEPTH_MAX, INITRAMFS_BYTES_MAX, SCRIPT_DEPTH_MAX};
use cpio::Archive;
pub use libraries::Environment;
use modules::Module;

/// The files of a guest. Each has the path in the guest that it has on the host.
#[derive(Debug)]
pub struct Initramfs {
    archive: Archive,
    /// Where the host's loader looks for libraries.
    environment: Environment,
    /// Folders of libraries that a loader does not search by itself.
    library_folders: Vec<PathBuf>,
    /// Files and folders of Penstock, of which the guest gets only what is loaded.
    own: Vec<PathBuf>,
}

impl Initramfs {
    /// Starts with the folders and links that programs expect.
    pub fn new(environment: Environment) -> Self {
        let mut archive = Archive::default();
        for folder in ["dev", "proc", "sys", "tmp", "root", "run", "etc"] {
            archive.directory(Path::new(folder));
        }
        let users = b"root:x:0:0:root:/root:/bin/sh\n";
        archive.file(Path::new("etc/passwd"), 0o644, users.to_vec());
        archive.file(Path::new("etc/group"), 0o644, b"root:x:0:\n".to_vec());
        let hosts = format!("127.0.0.1 localhost {HOST_NAME}\n");
        archive.file(Path::new("etc/hosts"), 0o644, hosts.into_bytes());
        Self { archive, environment, library_folders: Vec::new(), own: Vec::new() }
    }

    /// Declares a file of Penstock, or a folder with some. Wherever one of them is added, the part
    /// that only debuggers need is left out.
    pub fn declare_own(&mut self, path: &Path) {
        self.own.push(path.to_path_buf());
    }

    /// Adds a file or folder of the user at its path in the guest, with the libraries and the
    /// interpreter of each program.
    pub fn add(&mut self, host: &Path, guest: &Path) -> Result<(), VmError> {
        self.add_below(host, guest, 0)
    }

    /// Adds a file with this content.
    pub fn add_text(&mut self, guest: &Path, permissions: u32, content: &[u8]) {
        self.archive.file(guest, permissions, content.to_vec());
    }

    pub fn add_link(&mut self, guest: &Path, target: &Path) {
        self.archive.link(guest, target);
    }

    pub fn add_folder(&mut self, guest: &Path) {
        self.archive.directory(guest);
    }

    /// Adds modules of the kernel, which the guest loads in this order.
    pub fn add_modules(&mut self, modules: &[Module]) {
        let mut names = String::new();
        for module in modules {
            let file = paths::module(&module.name);
            self.archive.file(Path::new(&file), 0o600, module.content.clone());
            names.push_str(&format!("{file}\n"));
        }
        self.add_text(Path::new(paths::MODULES), 0o600, names.as_bytes());
    }

    /// Adds what the first process starts.
    pub fn add_start(&mut self, start: &Start) -> Result<(), VmError> {
        let path = Path::new(paths::START);
        let text = serde_json::to_vec(start).map_err(|error| VmError::File {
            path: path.into(),
            doing: "write",
            source: io::Error::other(error),
        })?;
        self.add_text(path, 0o600, &text);
        Ok(())
    }

    /// Returns the folders in which the guest's loader must look for libraries.
    pub fn library_folders(&self) -> &[PathBuf] {
        &self.library_folders
    }

    pub fn has(&self, guest: &Path) -> bool {
        self.archive.has(guest)
    }

    pub fn content_bytes(&self) -> u64 {
        self.archive.content_bytes()
    }

    /// Writes the archive to a new file, which only this user can read: it contains the key.
    pub fn write(&self, path: &Path) -> Result<(), VmError> {
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|file| {
            let mut target = BufWriter::new(file);
            self.archive.write(&mut target)?;
            io::Write::flush(&mut target)
        });
        written.map_err(VmError::file(path, "write"))
    }

    fn add_below(&mut self, host: &Path, guest: &Path, depth: usize) -> Result<(), VmError> {
        let about = fs::metadata(host).map_err(VmError::file(host, "read"))?;
        if !about.is_dir() {
            return self.add_file(host, guest, 0);
        }
        self.archive.directory(guest);
        if depth > FOLDER_DEPTH_MAX {
            let reason = "it has too many folders in each other; is there a link to itself?";
            return Err(VmError::Image { path: host.into(), reason: reason.into() });
        }
        for entry in fs::read_dir(host).map_err(VmError::file(host, "read"))? {
            let entry = entry.map_err(VmError::file(host, "read"))?;
            let (host, guest) = (entry.path(), guest.join(entry.file_name()));
            let kind = entry.file_type().map_err(VmError::file(&host, "read"))?;
            if kind.is_symlink() {
                let target = fs::read_link(&host).map_err(VmError::file(&host, "read"))?;
                self.archive.link(&guest, &target);
            } else if kind.is_dir() || kind.is_file() {
                self.add_below(&host, &guest, depth + 1)?;
            }
        }
        Ok(())
    }

    fn add_file(&mut self, host: &Path, guest: &Path, depth: usize) -> Result<(), VmError> {
        if self.archive.has(guest) {
            return Ok(());
        }
        let about = fs::metadata(host).map_err(VmError::file(host, "read"))?;
        // A pipe may never end, and a device has no end.
        if !about.is_file() {
            let reason = "it is neither a file nor a folder, so a guest cannot get a copy of it";
            return Err(VmError::Image { path: host.into(), reason: reason.into() });
        }
        let too_large = || VmError::TooLarge { max_mib: INITRAMFS_BYTES_MAX >> 20 };
        if about.len() > INITRAMFS_BYTES_MAX {
            return Err(too_large());
        }
        let content = fs::read(host).map_err(VmError::file(host, "read"))?;
        let needed = self.needs(host, &content, depth)?;
        let is_own = self.own.iter().any(|own| host.starts_with(own));
        let content = if is_own { elf::loaded_part(content) } else { content };
        if self.content_bytes() + content.len() as u64 > INITRAMFS_BYTES_MAX {
            return Err(too_large());
        }
        self.archive.file(guest, about.permissions().mode(), content);
        for path in needed {
            self.remember_folder(&path);
            self.add_file(&path, &path, depth + 1)?;
        }
        Ok(())
    }

    /// Returns the files that a file needs to run: an interpreter, or a loader and libraries.
    fn needs(&self, path: &Path, content: &[u8], depth: usize) -> Result<Vec<PathBuf>, VmError> {
        if let Some(line) = content.strip_prefix(b"#!") {
            let is_deep = depth >= SCRIPT_DEPTH_MAX;
            return Ok(interpreter_of(line).into_iter().filter(|_| !is_deep).collect());
        }
        if elf::is_dynamic(content) && !is_module(path) {
            return libraries::of(path, elf::interpreter(content), &self.environment);
        }
        Ok(Vec::new())
    }

    fn remember_folder(&mut self, library: &Path) {
        let Some(folder) = library.parent() else { return };
        if !libraries::is_usual(folder) && !self.library_folders.iter().any(|it| it == folder) {
            self.library_folders.push(folder.to_path_buf());
        }
    }
}

fn is_module(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "ko")
}

/// Returns the program that the first line of a script names.
fn interpreter_of(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let is_blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let name = line.split(is_blank).find(|word| !word.is_empty())?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What would never be read to its end, or fill this host's memory first.
    #[test]
    fn only_files_and_folders_go_into_a_guest() {
        let folder = std::env::temp_dir().join(format!("penstock-image-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (pipe, huge) = (folder.join("pipe"), folder.join("huge"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        fs::File::create(&huge).unwrap().set_len(INITRAMFS_BYTES_MAX + 1).unwrap();
        for host in [pipe.as_path(), Path::new("/dev/zero"), huge.as_path()] {
            let mut root = Initramfs::new(Environment::default());
            assert!(root.add(host, Path::new("/copy")).is_err(), "{}", host.display());
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
