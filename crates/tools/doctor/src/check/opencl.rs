//! The ICD loader and its list of drivers.

use super::define::{Check, Seen, when};
use crate::facts::{Facts, Icd, Maker, Pci};
use crate::finding::Severity::{Error, Warning};
use crate::finding::Topic::OpenCl;

pub const CHECKS: &[Check] = &[
    Check {
        id: "loader-missing",
        topic: OpenCl,
        severity: Error,
        title: "The ICD loader libOpenCL.so.1 is missing.",
        why: "Programs and workers reach every OpenCL driver through it.",
        find: loader_missing,
    },
    Check {
        id: "icd-none",
        topic: OpenCl,
        severity: Warning,
        title: "No OpenCL driver is installed.",
        why: "The daemon of this host then offers no OpenCL device.",
        find: icd_none,
    },
    Check {
        id: "icd-library",
        topic: OpenCl,
        severity: Warning,
        title: "A file of the ICD loader names a library that is not there.",
        why: "The loader skips this driver without a message.",
        find: icd_library,
    },
    Check {
        id: "icd-empty",
        topic: OpenCl,
        severity: Warning,
        title: "A file of the ICD loader is empty or cannot be read.",
        why: "The loader skips this driver without a message.",
        find: icd_empty,
    },
    Check {
        id: "icd-variable",
        topic: OpenCl,
        severity: Error,
        title: "OCL_ICD_VENDORS names a directory or file that is not there.",
        why: "The loader then finds no driver at all, because the variable replaces \
              /etc/OpenCL/vendors.",
        find: icd_variable,
    },
    Check {
        id: "icd-gpu",
        topic: OpenCl,
        severity: Warning,
        title: "A GPU has a driver, but the OpenCL part of the driver is not installed.",
        why: "OpenCL programs do not see the GPU.",
        find: icd_gpu,
    },
];

fn loader_missing(facts: &Facts) -> Vec<Seen> {
    when(facts.opencl.loader.is_none(), || {
        let text = "the directories of the dynamic loader have no libOpenCL.so.1";
        let severity = if facts.nvidia.has_library { Warning } else { Error };
        let repair = "install it (Debian: sudo apt install ocl-icd-libopencl1)";
        Seen::new("usr/lib", text, repair).with(severity)
    })
}

fn icd_none(facts: &Facts) -> Vec<Seen> {
    let opencl = &facts.opencl;
    let is_bad_variable = opencl.is_from_variable && !opencl.has_vendors;
    when(opencl.icds.is_empty() && !is_bad_variable, || {
        let needs_it = facts.own_accelerators().any(|it| it.maker() != Maker::Nvidia);
        let text = format!("/{} names no driver", opencl.vendors);
        let repair = "install the OpenCL driver of the device; for the processors PoCL \
                      (Debian: sudo apt install pocl-opencl-icd)";
        Seen::new(&opencl.vendors, text, repair).with(if needs_it { Error } else { Warning })
    })
}

fn icd_library(facts: &Facts) -> Vec<Seen> {
    let seen = |icd: &Icd| {
        let library = icd.library.as_ref().filter(|_| icd.found.is_none())?;
        let text = format!("/{} names {library}, which is not there", icd.path);
        let repair = format!("install the driver again, or remove /{}", icd.path);
        let severity = if facts.opencl.works() { Warning } else { Error };
        Some(Seen::new(&icd.path, text, repair).with(severity))
    };
    facts.opencl.icds.iter().filter_map(seen).collect()
}

fn icd_empty(facts: &Facts) -> Vec<Seen> {
    let empty = facts.opencl.icds.iter().filter(|icd| icd.library.is_none());
    let seen = |icd: &Icd| {
        let text = format!("/{} names no library", icd.path);
        Seen::new(&icd.path, text, format!("install the driver again, or remove /{}", icd.path))
    };
    empty.map(seen).collect()
}

fn icd_variable(facts: &Facts) -> Vec<Seen> {
    let opencl = &facts.opencl;
    when(opencl.is_from_variable && !opencl.has_vendors, || {
        let text = format!("OCL_ICD_VENDORS is /{}, which is not there", opencl.vendors);
        Seen::new(&opencl.vendors, text, "unset OCL_ICD_VENDORS")
    })
}

/// The OpenCL driver of a maker's GPUs.
struct GpuDriver {
    maker: Maker,
    name: &'static str,
    /// Words of which one is in the name of the driver's library.
    words: &'static [&'static str],
    repair: &'static str,
}

const GPU_DRIVERS: [GpuDriver; 3] = [
    GpuDriver {
        maker: Maker::Nvidia,
        name: "NVIDIA",
        words: &["nvidia"],
        repair: "Debian: sudo apt install nvidia-opencl-icd",
    },
    GpuDriver {
        maker: Maker::Amd,
        name: "AMD",
        words: &["amdocl", "rusticl", "mesaopencl"],
        repair: "install ROCm's OpenCL, or rusticl (Debian: sudo apt install mesa-opencl-icd)",
    },
    GpuDriver {
        maker: Maker::Intel,
        name: "Intel",
        words: &["igdrcl", "rusticl", "mesaopencl"],
        repair: "Debian: sudo apt install intel-opencl-icd",
    },
];

fn icd_gpu(facts: &Facts) -> Vec<Seen> {
    let vendors = &facts.opencl.vendors;
    let seen = |driver: &GpuDriver| {
        let drives = |it: &Pci| it.maker() == driver.maker && it.driver.is_some();
        let lacks = facts.own_accelerators().any(drives) && !facts.opencl.has_driver(driver.words);
        lacks.then(|| {
            let name = driver.name;
            let text = format!("a GPU of {name} has a driver, but /{vendors} has none for it");
            Seen::new(vendors, text, driver.repair)
        })
    };
    GPU_DRIVERS.iter().filter_map(seen).collect()
}
