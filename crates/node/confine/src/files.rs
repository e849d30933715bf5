//! The files that a worker may use. What is not named here is out of reach.

use std::path::{Path, PathBuf};

/// What a worker may do below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read files and folders.
    Read,
    /// Read, and run as a program.
    Run,
    /// Read, write and control devices, but make and remove nothing.
    Device,
    /// Read, write and empty files that exist.
    Write,
    /// Everything except device nodes.
    Own,
}

/// A path and what a worker may do below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub path: PathBuf,
    pub access: Access,
}

/// Folders and files that every worker may use, if they exist: path, access and reason.
pub const SYSTEM: &[(&str, Access, &str)] = &[
    ("/usr", Access::Read, "libraries, drivers and compilers"),
    ("/lib", Access::Read, "libraries"),
    ("/lib32", Access::Read, "libraries"),
    ("/lib64", Access::Read, "libraries"),
    ("/bin", Access::Read, "the linker"),
    ("/sbin", Access::Read, "the linker"),
    ("/opt", Access::Read, "drivers of vendors"),
    ("/nix/store", Access::Read, "libraries"),
    ("/gnu/store", Access::Read, "libraries"),
    ("/sys", Access::Read, "devices and cores"),
    // Landlock itself keeps the memory and the environment of other processes out of reach.
    ("/proc", Access::Read, "cores, memory, and the process itself"),
    ("/etc/ld.so.cache", Access::Read, "the dynamic loader"),
    ("/etc/ld.so.conf", Access::Read, "the dynamic loader"),
    ("/etc/ld.so.conf.d", Access::Read, "the dynamic loader"),
    ("/etc/ld.so.preload", Access::Read, "the dynamic loader"),
    ("/etc/localtime", Access::Read, "the C library"),
    ("/etc/locale.alias", Access::Read, "the C library"),
    ("/etc/nsswitch.conf", Access::Read, "the C library"),
    ("/etc/passwd", Access::Read, "the C library: names of users, no passwords"),
    ("/etc/group", Access::Read, "the C library"),
    ("/etc/hosts", Access::Read, "names of other nodes"),
    ("/etc/host.conf", Access::Read, "names of other nodes"),
    ("/etc/resolv.conf", Access::Read, "names of other nodes"),
    ("/etc/gai.conf", Access::Read, "names of other nodes"),
    ("/run/systemd/resolve", Access::Read, "names of other nodes"),
    ("/etc/os-release", Access::Read, "compilers, which look for libraries of the distribution"),
    ("/etc/debian_version", Access::Read, "compilers"),
    ("/etc/lsb-release", Access::Read, "compilers"),
    ("/etc/redhat-release", Access::Read, "compilers"),
    ("/etc/OpenCL", Access::Read, "the ICD loader"),
    ("/etc/nvidia", Access::Read, "NVIDIA's driver"),
    ("/etc/nvidia-container-runtime", Access::Read, "NVIDIA's driver"),
    ("/etc/vulkan", Access::Read, "Vulkan's loader"),
    ("/etc/drirc", Access::Read, "Mesa"),
    ("/etc/ucx", Access::Read, "UCX"),
    ("/etc/libibverbs.d", Access::Read, "UCX"),
    ("/run/nvidia-persistenced", Access::Read, "NVIDIA's driver"),
    ("/dev/null", Access::Device, "everything"),
    ("/dev/zero", Access::Device, "everything"),
    ("/dev/full", Access::Device, "everything"),
    ("/dev/random", Access::Device, "everything"),
    ("/dev/urandom", Access::Device, "everything"),
    ("/dev/dri", Access::Device, "GPUs of AMD, Intel and others"),
    ("/dev/kfd", Access::Device, "GPUs of AMD"),
    ("/dev/accel", Access::Device, "accelerators"),
    ("/dev/nvidia-caps", Access::Device, "parts of GPUs of NVIDIA"),
    ("/dev/nvidia-caps-imex-channels", Access::Device, "GPUs of NVIDIA"),
    ("/dev/infiniband", Access::Device, "UCX"),
];

/// Start of the names of device nodes in `/dev` that a worker may use. `drivers` lists them.
pub const DEVICE_PREFIXES: &[&str] = &["nvidia", "xdma", "ipu", "davinci", "hisi_hdc", "devmm_svm"];

/// The threads of this process. NVIDIA's driver writes their names to files there, and does not
/// start where it cannot: `cuInit` fails with `CUDA_ERROR_OPERATING_SYSTEM` (seen with 580).
const OWN_THREADS: &str = "/proc/self/task";

/// Names of linkers that PoCL may run, and of what loads them.
pub const LINKERS: &[&str] = &["ld", "ld.bfd", "ld.gold", "ld.lld", "lld", "ld.mold", "mold"];

/// Folders in which linkers are.
pub const LINKER_FOLDERS: &[&str] = &["/usr/bin", "/usr/local/bin", "/bin"];

/// Loaders of dynamic programs, which the kernel runs together with a program.
pub const LOADERS: &[&str] = &[
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib64/ld64.so.2",
    "/lib/ld-linux-riscv64-lp64d.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
];

/// Variables with the name of a library, whose folder a worker may read.
pub const LIBRARY_VARIABLES: &[&str] = &[
    "PENSTOCK_LIBOPENCL",
    "PENSTOCK_LIBCUDA",
    "PENSTOCK_LIBCUBLAS",
    "PENSTOCK_LIBCUFFT",
    "PENSTOCK_LIBUCP",
    "PENSTOCK_ENERGY_NVML",
];

/// Variables with folders, separated by colons, that a worker may read.
pub const FOLDER_VARIABLES: &[&str] = &[
    "LD_LIBRARY_PATH",
    "PENSTOCK_WORKER_FILES",
    "PENSTOCK_ENERGY_ROOT",
    "CUDA_HOME",
    "CUDA_PATH",
    "OCL_ICD_VENDORS",
    "OPENCL_VENDOR_PATH",
    "ROCM_PATH",
    "HWLOC_XMLFILE",
    "MESA_LOADER_DRIVER_PATH",
];

/// What the daemon's host and configuration have, as far as it decides about files.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Folders that variables name.
    pub folders: Vec<PathBuf>,
    /// Libraries that variables and files of the ICD loader name.
    pub libraries: Vec<PathBuf>,
    /// Device nodes whose names begin with one of [`DEVICE_PREFIXES`].
    pub devices: Vec<PathBuf>,
    /// Linkers and loaders.
    pub programs: Vec<PathBuf>,
    /// The worker's own folder.
    pub own: Option<PathBuf>,
    /// The home of the daemon's user.
    pub home: Option<PathBuf>,
    /// The file of the pool's key.
    pub key: Option<PathBuf>,
    /// The folder with the files of all sessions.
    pub sessions: Option<PathBuf>,
    /// Whether the worker may find CUDA's driver.
    pub uses_cuda: bool,
    /// Whether the worker uses UCX, which has its memory in `/dev/shm`.
    pub uses_ucx: bool,
}

/// Rules, and what is wrong with the surroundings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub rules: Vec<Rule>,
    /// Folders that a variable names and that workers cannot have.
    pub refused: Vec<PathBuf>,
    /// Folders that workers need although the pool's key lies in them.
    pub exposing: Vec<PathBuf>,
    /// Folders that workers need although the files of all sessions lie in them.
    pub sharing: Vec<PathBuf>,
}

/// Returns the files that a worker may use.
#[must_use]
pub fn plan(around: &Surroundings) -> Plan {
    let mut plan = Plan::default();
    for (path, access, _) in SYSTEM {
        let path = Path::new(path);
        if around.key.as_deref().is_some_and(|key| key.starts_with(path)) {
            plan.exposing.push(path.to_owned());
        }
        if around.sessions.as_deref().is_some_and(|sessions| sessions.starts_with(path)) {
            plan.sharing.push(path.to_owned());
        }
        plan.add(path, *access);
    }
    for folder in &around.folders {
        plan.add_folder(folder, around);
    }
    for library in &around.libraries {
        // A library has others and its data beside it. Its own name may be a link to elsewhere.
        plan.add(library, Access::Read);
        let Some(folder) = library.parent() else { continue };
        if is_too_wide(folder, around) {
            continue;
        }
        plan.add(folder, Access::Read);
        if is_lib(folder)
            && let Some(share) = folder.parent().map(|prefix| prefix.join("share"))
            && !is_too_wide(&share, around)
        {
            plan.add(&share, Access::Read);
        }
    }
    for device in &around.devices {
        plan.add(device, Access::Device);
    }
    if around.uses_cuda {
        plan.add(Path::new(OWN_THREADS), Access::Write);
    }
    for program in &around.programs {
        plan.add(program, Access::Run);
    }
    if around.uses_ucx {
        plan.add(Path::new("/dev/shm"), Access::Own);
    }
    if let Some(own) = &around.own {
        plan.add(own, Access::Own);
    }
    plan
}

impl Plan {
    fn add(&mut self, path: &Path, access: Access) {
        let rule = Rule { path: path.to_owned(), access };
        if !self.rules.contains(&rule) {
            self.rules.push(rule);
        }
    }

    fn add_folder(&mut self, folder: &Path, around: &Surroundings) {
        if is_too_wide(folder, around) {
            if !self.refused.iter().any(|refused| refused == folder) {
                self.refused.push(folder.to_owned());
            }
        } else {
            self.add(folder, Access::Read);
        }
    }
}

/// Returns whether a folder has the home, the pool's key or the files of all sessions below it. An
/// empty entry of a list is the current folder, which can be any.
fn is_too_wide(folder: &Path, around: &Surroundings) -> bool {
    let has = |file: &Option<PathBuf>| file.as_ref().is_some_and(|file| file.starts_with(folder));
    let secrets = [&around.home, &around.key, &around.sessions];
    !folder.is_absolute() || folder.parent().is_none() || secrets.into_iter().any(has)
}

fn is_lib(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| matches!(name, "lib" | "lib64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around() -> Surroundings {
        Surroundings {
            home: Some("/home/a".into()),
            key: Some("/home/a/.config/penstock/key".into()),
            ..Surroundings::default()
        }
    }

    fn access(plan: &Plan, path: &str) -> Option<Access> {
        plan.rules.iter().find(|rule| rule.path == Path::new(path)).map(|rule| rule.access)
    }

    #[test]
    fn each_system_path_has_its_access() {
        let plan = plan(&around());
        for (path, wanted, why) in SYSTEM {
            assert_eq!(access(&plan, path), Some(*wanted), "{path}");
            assert!(!why.is_empty());
            // Only device nodes are written to.
            let writes = !matches!(wanted, Access::Read);
            assert_eq!(writes, path.starts_with("/dev/"), "{path}");
        }
    }

    #[test]
    fn nvidias_driver_may_name_its_threads() {
        let plan = plan(&Surroundings { uses_cuda: true, ..around() });
        assert_eq!(access(&plan, OWN_THREADS), Some(Access::Write));
    }

    #[test]
    fn secrets_are_below_no_rule() {
        let plan = plan(&around());
        for secret in [
            "/home/a/.config/penstock/key",
            "/root/.ssh/id_ed25519",
            "/etc/shadow",
            "/etc/penstock/key",
            "/etc/ssl/private/key.pem",
            "/var/lib/secret",
            "/run/user/1000/bus",
            "/tmp/file",
            "/dev/shm/memory",
            "/dev/sda",
            "/dev/kmsg",
            "/dev/mem",
        ] {
            let rule = plan.rules.iter().find(|rule| Path::new(secret).starts_with(&rule.path));
            assert_eq!(rule, None, "{secret}");
        }
        assert_eq!((plan.refused.len(), plan.exposing.len()), (0, 0));
    }

    #[test]
    fn folders_of_variables_are_readable_unless_they_are_too_wide() {
        let folders = ["/apps/cuda/lib", "/home/a", "/", "", "lib", "/home/a/.config", "/home/a/x"];
        let folders: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
        let plan = plan(&Surroundings { folders, ..around() });
        assert_eq!(access(&plan, "/apps/cuda/lib"), Some(Access::Read));
        assert_eq!(access(&plan, "/home/a/x"), Some(Access::Read));
        let refused: Vec<PathBuf> =
            ["/home/a", "/", "", "lib", "/home/a/.config"].iter().map(PathBuf::from).collect();
        assert_eq!(plan.refused, refused);
        for path in refused {
            assert!(plan.rules.iter().all(|rule| rule.path != path), "{path:?}");
        }
    }

    #[test]
    fn a_library_brings_its_folder_and_its_data() {
        let libraries = vec!["/apps/pocl/lib/libpocl.so.2".into(), "/home/a/libmine.so".into()];
        let plan = plan(&Surroundings { libraries, ..around() });
        for path in ["/apps/pocl/lib", "/apps/pocl/share", "/home/a/libmine.so"] {
            assert_eq!(access(&plan, path), Some(Access::Read), "{path}");
        }
        assert_eq!(access(&plan, "/home/a"), None);
    }

    #[test]
    fn a_worker_has_one_folder_of_its_own_and_its_devices() {
        let around = Surroundings {
            own: Some("/var/cache/penstock/w1".into()),
            devices: vec!["/dev/nvidia0".into()],
            programs: vec!["/usr/bin/ld".into()],
            ..around()
        };
        let plan = plan(&around);
        let own: Vec<_> = plan.rules.iter().filter(|rule| rule.access == Access::Own).collect();
        assert_eq!(own.len(), 1, "{own:?}");
        assert_eq!(access(&plan, "/var/cache/penstock/w1"), Some(Access::Own));
        assert_eq!(access(&plan, "/dev/nvidia0"), Some(Access::Device));
        assert_eq!(access(&plan, OWN_THREADS), None);
        assert_eq!(access(&plan, "/usr/bin/ld"), Some(Access::Run));
        let with_ucx = super::plan(&Surroundings { uses_ucx: true, ..around });
        assert_eq!(access(&with_ucx, "/dev/shm"), Some(Access::Own));
    }

    #[test]
    fn files_of_other_sessions_are_below_no_rule() {
        let base = Path::new("/tmp/sessions");
        let around = Surroundings {
            sessions: Some(base.into()),
            own: Some(base.join("daemons/1-2/0")),
            folders: vec!["/tmp".into()],
            libraries: vec!["/tmp/libmine.so".into()],
            ..around()
        };
        let plan = plan(&around);
        assert_eq!(access(&plan, "/tmp"), None);
        assert_eq!(plan.refused, [PathBuf::from("/tmp")]);
        assert_eq!(access(&plan, "/tmp/sessions/daemons/1-2/0"), Some(Access::Own));
        let among = Surroundings { sessions: Some("/opt/penstock/cache".into()), ..around };
        assert_eq!(super::plan(&among).sharing, [PathBuf::from("/opt")]);
    }

    #[test]
    fn a_key_among_the_systems_files_is_noticed() {
        let around = Surroundings { key: Some("/opt/pool/key".into()), ..around() };
        assert_eq!(plan(&around).exposing, [PathBuf::from("/opt")]);
    }
}
