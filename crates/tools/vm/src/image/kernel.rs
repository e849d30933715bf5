//! A kernel with its modules, from a folder or a Debian package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::modules::Modules;
use crate::error::VmError;

/// Start of a kernel's file name; its version follows.
const KERNEL: &str = "vmlinuz-";

/// A kernel for guests.
#[derive(Debug)]
pub struct Kernel {
    /// File that QEMU starts.
    pub path: PathBuf,
    pub modules: Modules,
}

impl Kernel {
    /// Reads a folder that has `boot/vmlinuz-VERSION` and `lib/modules/VERSION`, or a package with
    /// these files, which is unpacked into the folder `scratch`.
    pub fn open(image: &Path, scratch: &Path) -> Result<Self, VmError> {
        if image.is_dir() {
            return Self::in_folder(image);
        }
        if image.extension().is_none_or(|it| it != "deb") {
            let reason = "it is neither a folder with boot/vmlinuz-* and lib/modules nor a package \
                          (.deb) of a kernel; name one of the two, or `auto`";
            return Err(VmError::Image { path: image.into(), reason: reason.into() });
        }
        unpack(image, scratch)?;
        Self::in_folder(scratch)
    }

    fn in_folder(folder: &Path) -> Result<Self, VmError> {
        let wrong = |reason: &str| VmError::Image { path: folder.into(), reason: reason.into() };
        let boot = folder.join("boot");
        let names = fs::read_dir(&boot).map_err(VmError::file(&boot, "read"))?;
        let mut versions: Vec<String> = names
            .flatten()
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix(KERNEL)?.to_owned()))
            .filter(|version| modules_of(folder, version).is_some())
            .collect();
        // Of several kernels, the one for machines in clouds is the smallest.
        versions.sort_by_key(|version| (version.contains("cloud"), version.clone()));
        let version = versions.pop().ok_or_else(|| {
            wrong("it has no boot/vmlinuz-VERSION whose modules are in lib/modules/VERSION")
        })?;
        let modules = modules_of(folder, &version).unwrap_or_default();
        let path = boot.join(format!("{KERNEL}{version}"));
        // A distribution may let only root read its kernel.
        fs::File::open(&path).map_err(VmError::file(&path, "read"))?;
        Ok(Self { path, modules: Modules::read(&modules)? })
    }
}

/// Returns the folder of a kernel's modules.
fn modules_of(folder: &Path, version: &str) -> Option<PathBuf> {
    let places = [folder.join("lib/modules"), folder.join("usr/lib/modules")];
    places.map(|place| place.join(version)).into_iter().find(|place| place.is_dir())
}

fn unpack(package: &Path, scratch: &Path) -> Result<(), VmError> {
    let output = Command::new("dpkg-deb").arg("-x").arg(package).arg(scratch).output();
    let output = output.map_err(|_| VmError::Missing {
        what: "dpkg-deb".into(),
        remedy: "install dpkg, or unpack the package and name the folder".into(),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(VmError::Process { what: format!("dpkg-deb -x {}", package.display()), how: said })
}

/// Returns the first of the usual places of a kernel that has one: `near` (a folder that the setup
/// of the tests fills), then that of this host.
pub fn find(near: &[PathBuf]) -> Result<PathBuf, VmError> {
    let places = near.iter().cloned().chain([PathBuf::from("/")]);
    let usable = |place: &PathBuf| Kernel::in_folder(place).is_ok();
    places.into_iter().find(usable).ok_or_else(|| VmError::Missing {
        what: "a kernel for the guest".into(),
        remedy: "fetch Debian's (apt-get download linux-image-cloud-amd64's kernel package) and \
                 name its .deb instead of `auto`"
            .into(),
    })
}
