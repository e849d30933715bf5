//! The environment of a worker: the variables that drivers read, and nothing else.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The variables that a worker keeps, each with the software that reads it. A name that ends with
/// `*` stands for all names that begin with the part before the `*`.
pub const KEPT: &[(&str, &str)] = &[
    ("PENSTOCK_*", "Penstock"),
    ("OCL_*", "the ICD loaders"),
    ("OPENCL_*", "the ICD loaders"),
    ("POCL_*", "PoCL"),
    ("PROTON_*", "PoCL's drivers"),
    ("CUDA_*", "NVIDIA's driver"),
    ("NVIDIA_*", "NVIDIA's driver"),
    ("__NV*", "NVIDIA's driver"),
    ("NVVM_*", "NVIDIA's compiler"),
    ("CL_CONFIG_*", "Intel's runtime for CPUs"),
    ("DPCPP_*", "Intel's runtime for CPUs"),
    ("SYCL_*", "Intel's runtime for CPUs"),
    ("INTEL_*", "Intel's drivers"),
    ("TBB_*", "Intel's runtime for CPUs"),
    ("TCM_*", "Intel's runtime for CPUs"),
    ("VOLCANO_*", "Intel's runtime for CPUs"),
    ("KMP_*", "OpenMP"),
    ("OMP_*", "OpenMP"),
    ("IGC_*", "Intel's compiler for GPUs"),
    ("NEO*", "Intel's driver for GPUs"),
    ("ZE_*", "Level Zero"),
    ("ZES_*", "Level Zero"),
    ("ROCM_*", "AMD's driver"),
    ("ROCR_*", "AMD's driver"),
    ("HSA_*", "AMD's driver"),
    ("HIP_*", "AMD's driver"),
    ("AMD_*", "AMD's driver"),
    ("GPU_*", "AMD's driver"),
    ("LLVM_*", "compilers that drivers have inside"),
    ("MESA_*", "Mesa"),
    ("RUSTICL_*", "Mesa"),
    ("GALLIUM_*", "Mesa"),
    ("LIBGL_*", "Mesa"),
    ("LP_*", "Mesa"),
    ("RADV_*", "Mesa"),
    ("VK_*", "Vulkan's loader"),
    ("HWLOC_*", "hwloc, by which PoCL finds cores"),
    ("UCX_*", "UCX"),
    ("LD_*", "the dynamic loader"),
    ("MALLOC_*", "the C library"),
    ("GLIBC_TUNABLES", "the C library"),
    ("LANG", "the C library"),
    ("LANGUAGE", "the C library"),
    ("LC_*", "the C library"),
    ("TZ", "the C library"),
    ("TERM", "messages of drivers"),
    ("PATH", "PoCL, which runs the linker"),
    ("RUST_BACKTRACE", "Penstock"),
    ("RUST_LIB_BACKTRACE", "Penstock"),
    ("ASAN_*", "builds for tests"),
    ("LSAN_*", "builds for tests"),
    ("TSAN_*", "builds for tests"),
    ("UBSAN_*", "builds for tests"),
];

/// Variables that workers never get, although [`KEPT`] has their names: where keys are, and what
/// only clients read.
pub const NEVER: &[&str] = &["PENSTOCK_KEY", "PENSTOCK_KEYS", "PENSTOCK_TRUSTED_USERS"];

/// Ends of names of secrets, such as `NVIDIA_API_KEY`. No driver reads a variable with such a name.
const SECRET_ENDS: [&str; 5] = ["_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_CREDENTIALS"];

/// Variables that name a place for files, and the folder inside the worker's own folder that each
/// one gets. The cache stands apart, because the daemon may keep it for the user's next session.
pub const PRIVATE: &[(&str, &str)] = &[
    ("HOME", "home"),
    ("TMPDIR", "tmp"),
    ("XDG_CACHE_HOME", "cache"),
    ("POCL_CACHE_DIR", "cache/pocl"),
    ("CUDA_CACHE_PATH", "cache/cuda"),
    ("NEO_CACHE_DIR", "cache/neo"),
    ("SYCL_CACHE_DIR", "cache/sycl"),
    ("AMD_COMGR_CACHE_DIR", "cache/comgr"),
    ("MESA_SHADER_CACHE_DIR", "cache/mesa"),
];

/// Returns the variables of [`PRIVATE`] with the places that they name in a worker's own folder.
pub fn places(folder: &Path) -> impl Iterator<Item = (&'static str, PathBuf)> {
    PRIVATE.iter().map(|(name, inner)| (*name, folder.join(inner)))
}

/// Returns whether a worker keeps a variable.
#[must_use]
pub fn keeps(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    };
    let is_secret = NEVER.contains(&name) || SECRET_ENDS.iter().any(|end| name.ends_with(end));
    !is_secret && KEPT.iter().any(|(pattern, _)| fits(pattern))
}

/// One variable of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: OsString,
    pub value: OsString,
}

/// Returns the environment of a worker with this folder, made of the daemon's environment.
pub fn of_worker(
    daemon: impl IntoIterator<Item = (OsString, OsString)>,
    folder: Option<&Path>,
) -> Vec<Setting> {
    let is_private = |name: &OsStr| PRIVATE.iter().any(|(private, _)| name == *private);
    let kept = daemon
        .into_iter()
        .filter(|(name, _)| keeps(name) && !(folder.is_some() && is_private(name)))
        .map(|(name, value)| Setting { name, value });
    let own = folder.into_iter().flat_map(places);
    let own = own.map(|(name, place)| Setting { name: name.into(), value: place.into() });
    kept.chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_keeps_its_variables() {
        for (pattern, whose) in KEPT {
            let example = pattern.replace('*', "X");
            assert!(keeps(OsStr::new(&example)), "{example} of {whose}");
        }
    }

    #[test]
    fn secrets_and_the_session_of_the_user_are_left_out() {
        for name in [
            "PENSTOCK_KEY",
            "AWS_SECRET_ACCESS_KEY",
            "GITHUB_TOKEN",
            "NVIDIA_API_KEY",
            "INTEL_ACCESS_TOKEN",
            "SSH_AUTH_SOCK",
            "DBUS_SESSION_BUS_ADDRESS",
            "XDG_RUNTIME_DIR",
            "DISPLAY",
            "HOME",
            "USER",
            "LANGUAGES",
            "PATHS",
        ] {
            assert!(!keeps(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn places_for_files_lie_in_the_workers_folder() {
        let daemon = ["HOME", "POCL_CACHE_DIR", "POCL_DEVICES", "SECRET"];
        let daemon: Vec<_> = daemon.map(|name| (name.into(), "/home/a".into())).into();
        let settings = of_worker(daemon.clone(), Some(Path::new("/w")));
        let value = |name: &str| {
            let mut found = settings.iter().filter(|setting| setting.name == *name);
            let value = found.next().map(|setting| setting.value.clone());
            assert_eq!(found.next(), None, "{name} is there twice");
            value
        };
        assert_eq!(value("HOME"), Some("/w/home".into()));
        assert_eq!(value("POCL_CACHE_DIR"), Some("/w/cache/pocl".into()));
        assert_eq!(value("POCL_DEVICES"), Some("/home/a".into()));
        assert_eq!(value("SECRET"), None);
        let without = of_worker(daemon, None);
        assert!(without.iter().all(|setting| setting.name != "HOME"), "{without:?}");
    }

    #[test]
    fn every_private_place_is_relative() {
        for (name, inner) in PRIVATE {
            assert!(!inner.starts_with('/') && !inner.contains(".."), "{name}");
        }
    }
}
