//! The files of a guest: what the program and Penstock need in it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use penstock_client::config::NODES_VARIABLE;
use penstock_process::{search, variable};
use penstock_vm::VmError;
use penstock_vm::guest::{Start, Variable, paths};
use penstock_vm::image::{Environment, Initramfs};
use penstock_vm::machine::network;

use super::args::VmRunArgs;
use super::link::Link;
use crate::failure::Failure;
use crate::run::{cuda, library};

/// The first process of the guest, a link to this command.
pub const INIT: &str = "/penstock/init";

/// Entry for the ICD loader in the guest.
const ICD: &str = "/etc/OpenCL/vendors/penstock.icd";

/// Where the guest looks for programs.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// Variables that mean the same in a guest, if this command has them.
const PASSED: [&variable::Variable; 4] =
    [&variable::DEVICES, &variable::LOG, &variable::PLATFORMS, &variable::TIMEOUT_MS];

/// Returns the guest's files, without the modules of its kernel.
pub fn fill(args: &VmRunArgs, link: &Link) -> Result<Initramfs, Failure> {
    let penstock = std::env::current_exe().map_err(Failure::file(Path::new("penstock"), "find"))?;
    let library = library::find()?;
    let program = find_program(args, &penstock)?;
    let loading = Loading::of(&program, &library);
    let mut root = Initramfs::new(Environment { library_path: loading.library_path.clone() });
    root.declare_own(&penstock);
    root.declare_own(&library);
    root.declare_own(&loading.cuda);
    root.add(&penstock, &penstock)?;
    root.add(&library, &library)?;
    root.add_link(Path::new(INIT), &penstock);
    root.add_link(Path::new("/usr/bin/penstock"), &penstock);
    root.add_text(Path::new(ICD), 0o644, format!("{}\n", library.display()).as_bytes());
    if let Some(key) = &link.key {
        let content = std::fs::read(key).map_err(Failure::file(key, "read"))?;
        root.add_text(Path::new(paths::KEY), 0o600, &content);
    }
    if link.network {
        let server = format!("nameserver {}\n", network::NAME_SERVER);
        root.add_text(Path::new("/etc/resolv.conf"), 0o644, server.as_bytes());
    }
    root.add(&program, &program)?;
    for pair in &args.file {
        let (host, guest) = split(pair);
        let host = std::path::absolute(host).map_err(Failure::file(Path::new(host), "find"))?;
        let guest = guest.map_or_else(|| host.clone(), PathBuf::from);
        root.add(&host, &guest)?;
    }
    loading.add_cuda(&mut root)?;
    add_start(args, link, program, &loading, &mut root)?;
    Ok(root)
}

fn find_program(args: &VmRunArgs, penstock: &Path) -> Result<PathBuf, Failure> {
    let name = args.program.first().map(OsString::as_os_str).unwrap_or_default();
    // Perhaps another one is in PATH, and perhaps none.
    if name == "penstock" {
        return Ok(penstock.to_path_buf());
    }
    let path = search::program(name).unwrap_or_else(|| PathBuf::from(name));
    let path = std::path::absolute(&path).map_err(Failure::file(&path, "find"))?;
    match std::fs::metadata(&path) {
        Ok(_) => Ok(path),
        Err(source) => Err(Failure::Execute { program: name.into(), source }),
    }
}

/// How the loader finds the libraries of the program.
#[derive(Debug)]
struct Loading {
    /// Penstock's CUDA libraries.
    cuda: PathBuf,
    library_path: Option<OsString>,
    /// Libraries that are loaded before all others.
    preloaded: Option<OsString>,
}

impl Loading {
    /// `penstock run` shows a program the same.
    fn of(program: &Path, library: &Path) -> Self {
        let mut command = Command::new(program);
        cuda::show(&mut command, library, None);
        let value = |name: &str| {
            let mut set = command.get_envs();
            set.find(|(it, _)| *it == name).and_then(|(_, value)| value.map(OsStr::to_owned))
        };
        Self {
            cuda: library.with_file_name(cuda::FOLDER),
            library_path: value(variable::LD_LIBRARY_PATH.name),
            preloaded: value(variable::LD_PRELOAD.name),
        }
    }

    /// Adds all CUDA libraries if the program needs one of them. The runtime opens the others.
    fn add_cuda(&self, root: &mut Initramfs) -> Result<(), VmError> {
        let is_needed = self.preloaded.is_some() || root.library_folders().contains(&self.cuda);
        if !is_needed {
            return Ok(());
        }
        let names = std::fs::read_dir(&self.cuda).map_err(VmError::file(&self.cuda, "read"))?;
        for path in names.flatten().map(|entry| entry.path()) {
            // The libraries for MPI need an MPI.
            let name = path.file_name().unwrap_or_default().as_bytes();
            if path.is_file() && !name.starts_with(b"libpenstock_mpi_") {
                root.add(&path, &path)?;
            }
        }
        Ok(())
    }
}

/// Adds what the first process starts.
fn add_start(
    args: &VmRunArgs,
    link: &Link,
    program: PathBuf,
    loading: &Loading,
    root: &mut Initramfs,
) -> Result<(), Failure> {
    let here = Path::new(".");
    let directory = std::env::current_dir().map_err(Failure::file(here, "find"))?;
    root.add_folder(&directory);
    let start = Start {
        program,
        arguments: args.program.iter().skip(1).cloned().collect(),
        variables: variables(args, link, loading, root)?,
        directory,
        network: link.network,
    };
    Ok(root.add_start(&start)?)
}

fn variables(
    args: &VmRunArgs,
    link: &Link,
    loading: &Loading,
    root: &Initramfs,
) -> Result<Vec<Variable>, Failure> {
    let mut list = vec![
        pair("PATH", PATH),
        pair("HOME", "/root"),
        pair(NODES_VARIABLE, &link.nodes),
        pair(variable::KEY.name, paths::KEY),
    ];
    let passed = PASSED.iter().filter_map(|it| Some(pair(it.name, it.value()?)));
    list.extend(passed);
    if let Some(path) = library_path(loading, root) {
        list.push(pair(variable::LD_LIBRARY_PATH.name, path));
    }
    let preloaded = loading.preloaded.iter().map(|it| pair(variable::LD_PRELOAD.name, it));
    list.extend(preloaded);
    for wanted in &args.env {
        let (name, value) = split(wanted);
        let value = value.map(OsStr::to_owned);
        let value = value.or_else(|| variable::value_even_empty(name.to_str()?));
        let value = value.ok_or_else(|| Failure::Argument {
            argument: format!("--env {}", name.display()),
            reason: "the variable is not set; write NAME=VALUE".to_owned(),
        })?;
        list.retain(|it| it.name != name);
        list.push(pair(name, value));
    }
    Ok(list)
}

/// Returns the folders of libraries: those of the host's variable, and those that the host's loader
/// found in its cache, which the guest does not have.
fn library_path(loading: &Loading, root: &Initramfs) -> Option<OsString> {
    let first = loading.library_path.iter().flat_map(std::env::split_paths);
    let mut folders: Vec<PathBuf> = first.filter(|folder| root.has(folder)).collect();
    for folder in root.library_folders() {
        if !folders.contains(folder) {
            folders.push(folder.clone());
        }
    }
    // A folder with a colon in its name cannot be in such a list.
    std::env::join_paths(folders).ok().filter(|list| !list.is_empty())
}

fn pair(name: impl Into<OsString>, value: impl Into<OsString>) -> Variable {
    Variable { name: name.into(), value: value.into() }
}

/// Splits at the first `=`.
fn split(text: &OsStr) -> (&OsStr, Option<&OsStr>) {
    let bytes = text.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => {
            let (name, value) = bytes.split_at(at);
            (OsStr::from_bytes(name), value.get(1..).map(OsStr::from_bytes))
        }
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_split_at_its_first_sign() {
        assert_eq!(split(OsStr::new("A=b=c")), (OsStr::new("A"), Some(OsStr::new("b=c"))));
        assert_eq!(split(OsStr::new("A=")), (OsStr::new("A"), Some(OsStr::new(""))));
        assert_eq!(split(OsStr::new("A")), (OsStr::new("A"), None));
    }
}
