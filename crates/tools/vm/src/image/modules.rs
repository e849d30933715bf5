//! Modules of a kernel, and the order in which a guest loads them.
//!
//! A package has no `modules.dep`: `depmod` makes it when the package is installed. So the
//! dependencies come from the modules themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::elf;
use crate::error::VmError;
use crate::limits::FOLDER_DEPTH_MAX;

/// Programs that unpack modules, by the end of the file name.
const UNPACKERS: [(&str, &str); 3] = [("xz", "xz"), ("zst", "zstd"), ("gz", "gzip")];

/// The files of a kernel's modules.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    folder: PathBuf,
    /// Files by the modules' names.
    files: BTreeMap<String, PathBuf>,
    /// Names of the modules that are part of the kernel.
    built_in: BTreeSet<String>,
}

/// A module to load.
#[derive(Clone, Debug)]
pub struct Module {
    pub name: String,
    pub content: Vec<u8>,
}

impl Modules {
    pub fn read(folder: &Path) -> Result<Self, VmError> {
        let mut files = BTreeMap::new();
        list(&folder.join("kernel"), 0, &mut files)?;
        let built_in = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
        let built_in = built_in.lines().filter_map(|line| name_of(Path::new(line))).collect();
        Ok(Self { folder: folder.into(), files, built_in })
    }

    /// Returns these modules and those on which they depend, each after its own dependencies.
    pub fn in_order(&self, wanted: &[&str]) -> Result<Vec<Module>, VmError> {
        let mut found = Vec::new();
        let load = |name: &str| {
            let content = self.content(name)?;
            let depends = elf::module_dependencies(&content).unwrap_or_default();
            found.push(Module { name: name.to_owned(), content });
            Ok(depends)
        };
        let names = order(wanted, |name| self.built_in.contains(name), load)?;
        let place = |module: &Module| names.iter().position(|name| *name == module.name);
        found.sort_by_key(place);
        Ok(found)
    }

    fn content(&self, name: &str) -> Result<Vec<u8>, VmError> {
        let path = self.files.get(name).ok_or_else(|| VmError::Image {
            path: self.folder.clone(),
            reason: format!("the kernel has no module {name}; use Debian's cloud kernel"),
        })?;
        let ending = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
        match UNPACKERS.iter().find(|(end, _)| *end == ending) {
            Some((_, unpacker)) => unpacked(path, unpacker),
            None => fs::read(path).map_err(VmError::file(path, "read")),
        }
    }
}

/// Returns the names in an order in which each comes after those on which it depends. Cycles do not
/// exist: the kernel's build refuses them, and each name is visited once.
fn order(
    wanted: &[&str],
    is_there: impl Fn(&str) -> bool,
    mut dependencies: impl FnMut(&str) -> Result<Vec<String>, VmError>,
) -> Result<Vec<String>, VmError> {
    enum Step {
        Enter(String),
        Leave(String),
    }
    let mut steps: Vec<Step> = wanted.iter().rev().map(|it| Step::Enter(canonical(it))).collect();
    let (mut seen, mut ordered) = (BTreeSet::new(), Vec::new());
    while let Some(step) = steps.pop() {
        match step {
            Step::Leave(name) => ordered.push(name),
            Step::Enter(name) => {
                if is_there(&name) || !seen.insert(name.clone()) {
                    continue;
                }
                let needed = dependencies(&name)?;
                steps.push(Step::Leave(name));
                steps.extend(needed.iter().map(|it| Step::Enter(canonical(it))));
            }
        }
    }
    Ok(ordered)
}

/// Collects the files of modules below a folder.
fn list(folder: &Path, depth: usize, files: &mut BTreeMap<String, PathBuf>) -> Result<(), VmError> {
    if depth > FOLDER_DEPTH_MAX {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(VmError::file(folder, "read"))?.flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list(&path, depth + 1, files)?;
        } else if let Some(name) = name_of(&path)
            // A link in a foreign package could lead to any file of this host.
            && entry.file_type().is_ok_and(|kind| kind.is_file())
        {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// Returns the name of the module in a file such as `virtio-rng.ko.xz`.
fn name_of(path: &Path) -> Option<String> {
    let (name, rest) = path.file_name()?.to_str()?.split_once(".ko")?;
    (rest.is_empty() || rest.starts_with('.')).then(|| canonical(name))
}

/// Files may have a hyphen where the kernel writes an underscore.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

fn unpacked(path: &Path, unpacker: &str) -> Result<Vec<u8>, VmError> {
    let output = Command::new(unpacker).arg("-dc").arg(path).stdin(Stdio::null()).output();
    let output = output.map_err(|_| VmError::Missing {
        what: unpacker.to_owned(),
        remedy: format!("install it; it unpacks {}", path.display()),
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(VmError::Process { what: format!("{unpacker} -dc {}", path.display()), how: said })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_module_comes_after_those_on_which_it_depends() {
        let depends = |name: &str| {
            let list: &[&str] = match name {
                "virtio_pci" => &["virtio", "virtio-pci-modern-dev"],
                "virtio_pci_modern_dev" => &["virtio"],
                "virtio" => &["virtio_ring"],
                "vsock_virtio" => &["virtio", "vsock"],
                _ => &[],
            };
            Ok(list.iter().map(|it| (*it).to_owned()).collect())
        };
        let found = order(&["virtio-pci", "vsock_virtio"], |name| name == "vsock", depends);
        assert_eq!(
            found.unwrap(),
            ["virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci", "vsock_virtio"]
        );
    }

    #[test]
    fn files_have_the_names_of_modules() {
        for (file, name) in [
            ("a/virtio-rng.ko", Some("virtio_rng")),
            ("a/vsock.ko.zst", Some("vsock")),
            ("a/modules.order", None),
            ("a/x.kodak", None),
        ] {
            assert_eq!(name_of(Path::new(file)).as_deref(), name, "{file}");
        }
    }
}
