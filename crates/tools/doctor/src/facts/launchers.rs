//! MPI and Slurm.

use crate::tree::{Tree, keep};

#[derive(Clone, Debug)]
pub struct Mpi {
    /// Program that `mpirun` leads to.
    pub launcher: Option<String>,
    /// Library that compilers of MPI link, if the system has alternatives of it.
    pub library: Option<String>,
    pub has_open_mpi: bool,
    pub has_mpich: bool,
}

/// An implementation of MPI, as the name of a program or a library tells.
fn implementation(path: &str) -> Option<&'static str> {
    const WORDS: [(&str, &str); 6] = [
        ("openmpi", "Open MPI"),
        ("orterun", "Open MPI"),
        ("prterun", "Open MPI"),
        ("mpich", "MPICH"),
        ("hydra", "MPICH"),
        ("libmpi.so.40", "Open MPI"),
    ];
    WORDS.iter().find(|(word, _)| path.contains(word)).map(|(_, name)| *name)
}

impl Mpi {
    pub fn read(tree: &Tree) -> Self {
        let library = |name: &str| {
            ["usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/local/lib"]
                .iter()
                .any(|directory| tree.exists(&format!("{directory}/{name}")))
        };
        let alternative = tree.target("etc/alternatives/libmpi.so-x86_64-linux-gnu");
        Self {
            launcher: tree.target("usr/bin/mpirun"),
            library: alternative.or_else(|| tree.target("etc/alternatives/libmpi.so")),
            has_open_mpi: library("libmpi.so.40"),
            has_mpich: library("libmpich.so.12") || library("libmpi.so.12"),
        }
    }

    /// Returns the implementations of the launcher and of the library that programs are linked
    /// with.
    pub fn chosen(&self) -> Option<(&'static str, &'static str)> {
        let launcher = implementation(self.launcher.as_deref()?)?;
        Some((launcher, implementation(self.library.as_deref()?)?))
    }
}

/// The configuration of Slurm.
#[derive(Clone, Debug)]
pub struct Slurm {
    /// The file, if there is one.
    pub file: Option<String>,
    pub has_gpus: bool,
    /// Whether jobs get the limit of locked memory of the host on which they were submitted.
    pub propagates_locked_memory: bool,
    /// `ConstrainDevices` of `cgroup.conf`. `None` if there is no such file.
    pub constrains_devices: Option<bool>,
}

const FILES: [&str; 2] = ["etc/slurm/slurm.conf", "etc/slurm-llnl/slurm.conf"];

impl Slurm {
    pub fn read(tree: &Tree) -> Self {
        let file = FILES.into_iter().find(|path| tree.exists(path));
        let text = file.and_then(|path| tree.read(path, kept)).unwrap_or_default();
        let value = |key: &str| keep::value(&text, key).map(str::to_lowercase);
        let resources = value("GresTypes").unwrap_or_default();
        let except = value("PropagateResourceLimitsExcept").unwrap_or_default();
        let only = value("PropagateResourceLimits").unwrap_or_else(|| "all".to_owned());
        let groups = file.map(|path| path.replace("slurm.conf", "cgroup.conf"));
        let setting = |path: &str| {
            let text = tree.read(path, |text| keep::keys(text, &["ConstrainDevices"]));
            keep::value(&text.unwrap_or_default(), "ConstrainDevices").map(str::to_lowercase)
        };
        let groups = groups.filter(|path| tree.exists(path));
        Self {
            file: file.map(str::to_owned),
            has_gpus: resources.split(',').any(|it| it.trim() == "gpu"),
            propagates_locked_memory: file.is_some()
                && !except.contains("memlock")
                && (only == "all" || only.contains("memlock")),
            constrains_devices: groups.map(|path| setting(&path).as_deref() == Some("yes")),
        }
    }
}

/// Keeps three settings. The other lines name hosts, users and places.
fn kept(text: &str) -> String {
    keep::keys(text, &["GresTypes", "PropagateResourceLimitsExcept", "PropagateResourceLimits"])
}
