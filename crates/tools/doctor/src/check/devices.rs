//! Accelerators, the drivers that are bound to them, and their device nodes.

use super::define::{Check, Seen, when};
use crate::facts::{Facts, Maker, Pci};
use crate::finding::Severity::{Error, Note, Warning};
use crate::finding::Topic::Devices;

pub const CHECKS: &[Check] = &[
    Check {
        id: "no-accelerator",
        topic: Devices,
        severity: Note,
        title: "The host has no accelerator on its PCI buses.",
        why: "The pool gets only devices that OpenCL drivers make of the processors here.",
        find: no_accelerator,
    },
    Check {
        id: "driver-missing",
        topic: Devices,
        severity: Error,
        title: "No driver is bound to an accelerator.",
        why: "Without a driver no program can use the device.",
        find: driver_missing,
    },
    Check {
        id: "driver-nouveau",
        topic: Devices,
        severity: Error,
        title: "The driver nouveau is bound to a GPU of NVIDIA.",
        why: "CUDA and NVIDIA's OpenCL need NVIDIA's own driver.",
        find: driver_nouveau,
    },
    Check {
        id: "driver-vfio",
        topic: Devices,
        severity: Note,
        title: "An accelerator is set aside for virtual machines.",
        why: "A daemon on this host cannot offer the device while vfio-pci holds it.",
        find: driver_vfio,
    },
    Check {
        id: "nvidia-library",
        topic: Devices,
        severity: Error,
        title: "NVIDIA's kernel module is loaded, but its library libcuda.so.1 is missing.",
        why: "The workers find neither CUDA nor NVIDIA's OpenCL without the driver's libraries.",
        find: nvidia_library,
    },
    Check {
        id: "nvidia-versions",
        topic: Devices,
        severity: Error,
        title: "NVIDIA's kernel module and its library have different versions.",
        why: "The driver refuses to work until both have the same version. This happens if the \
              package was updated and the module was not loaded again.",
        find: nvidia_versions,
    },
    Check {
        id: "device-nodes",
        topic: Devices,
        severity: Error,
        title: "A driver is bound to an accelerator, but the device nodes are missing.",
        why: "Programs open the device through these nodes.",
        find: device_nodes,
    },
    Check {
        id: "nvidia-uvm",
        topic: Devices,
        severity: Error,
        title: "The node of NVIDIA's module for unified memory is missing.",
        why: "CUDA cannot start without it if the user may not load the module.",
        find: nvidia_uvm,
    },
    Check {
        id: "device-permission",
        topic: Devices,
        severity: Error,
        title: "The user may not open a device node of an accelerator.",
        why: "The drivers then show no device, and most of them do not say why.",
        find: device_permission,
    },
];

fn no_accelerator(facts: &Facts) -> Vec<Seen> {
    when(facts.host.has_pci && facts.accelerators().next().is_none(), || {
        let text = format!("none of the {} PCI devices is an accelerator", facts.pci.len());
        Seen::new("sys/bus/pci/devices", text, "name nodes with accelerators in pool.toml")
    })
}

fn driver_missing(facts: &Facts) -> Vec<Seen> {
    let without = facts.accelerators().filter(|it| it.driver.is_none() && !it.is_function);
    let seen = |device: &Pci| {
        let repair = match device.maker() {
            Maker::Nvidia => "install NVIDIA's driver, then: sudo modprobe nvidia",
            Maker::Amd => "sudo modprobe amdgpu",
            Maker::Intel => "sudo modprobe xe || sudo modprobe i915",
            Maker::Other => "install the driver of the device's maker",
        };
        let text = format!("the {} has no driver", device.name());
        Seen::new(format!("{}/driver", device.path()), text, repair)
    };
    without.map(seen).collect()
}

fn driver_nouveau(facts: &Facts) -> Vec<Seen> {
    let bound = facts.accelerators().filter(|it| it.driver.as_deref() == Some("nouveau"));
    let seen = |device: &Pci| {
        Seen::new(
            format!("{}/driver", device.path()),
            format!("nouveau drives the {}", device.name()),
            "install NVIDIA's driver, which disables nouveau, and restart the host",
        )
    };
    bound.map(seen).collect()
}

fn driver_vfio(facts: &Facts) -> Vec<Seen> {
    let seen = |device: &Pci| {
        Seen::new(
            format!("{}/driver", device.path()),
            format!("vfio-pci holds the {}", device.name()),
            format!("to use it on this host: sudo driverctl unset-override {}", device.address),
        )
    };
    facts.accelerators().filter(|it| it.is_for_guests()).map(seen).collect()
}

fn nvidia_library(facts: &Facts) -> Vec<Seen> {
    let nvidia = &facts.nvidia;
    when(nvidia.module.is_some() && !nvidia.has_library, || {
        let text = "the directories of the dynamic loader have no libcuda.so.1";
        let repair = match facts.host.container {
            Some(_) => "start the container with NVIDIA's container toolkit",
            None => "install the libraries of the driver (Debian: sudo apt install libcuda1)",
        };
        Seen::new("proc/driver/nvidia/version", text, repair)
    })
}

fn nvidia_versions(facts: &Facts) -> Vec<Seen> {
    let (Some(module), Some(library)) = (&facts.nvidia.module, &facts.nvidia.library) else {
        return Vec::new();
    };
    when(module != library, || {
        let text = format!("the module is {module}, the library is {library}");
        let repair = "restart the host, or unload and load the modules: sudo rmmod nvidia_uvm \
                      nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia";
        Seen::new("proc/driver/nvidia/version", text, repair)
    })
}

/// Returns the makers of the accelerators to which their maker's driver is bound.
fn driven(facts: &Facts) -> Vec<Maker> {
    let is_driven = |device: &&Pci| {
        matches!(
            (device.maker(), device.driver.as_deref()),
            (Maker::Nvidia, Some("nvidia"))
                | (Maker::Amd, Some("amdgpu"))
                | (Maker::Intel, Some("i915" | "xe"))
        )
    };
    let mut makers: Vec<Maker> = facts.accelerators().filter(is_driven).map(Pci::maker).collect();
    makers.dedup();
    makers
}

fn device_nodes(facts: &Facts) -> Vec<Seen> {
    if facts.host.container.is_some() {
        return Vec::new(); // `container-devices` says what is wrong there.
    }
    let has = |path: &str| facts.devices.iter().any(|device| device.path == path);
    let renders = facts.devices.iter().any(|device| device.path.starts_with("dev/dri/renderD"));
    let seen = |maker: Maker| {
        let (lacks, path, repair) = match maker {
            Maker::Nvidia => (
                !has("dev/nvidiactl") || !has("dev/nvidia0"),
                "dev/nvidiactl and dev/nvidia0",
                "sudo nvidia-modprobe -c 0",
            ),
            Maker::Amd => (!has("dev/kfd") || !renders, "dev/kfd and dev/dri/renderD*", RENDER),
            _ => (!renders, "dev/dri/renderD*", RENDER),
        };
        lacks.then(|| Seen::new("dev", format!("not all of {path} are there"), repair))
    };
    driven(facts).into_iter().filter_map(seen).collect()
}

/// Makes udev create the nodes of graphics drivers.
const RENDER: &str = "sudo udevadm trigger --subsystem-match=drm --subsystem-match=kfd";

fn nvidia_uvm(facts: &Facts) -> Vec<Seen> {
    let lacks = facts.devices.iter().any(|device| device.path == "dev/nvidiactl")
        && facts.devices.iter().all(|device| device.path != "dev/nvidia-uvm");
    when(lacks, || {
        let text = "dev/nvidiactl is there, dev/nvidia-uvm is not";
        Seen::new("dev/nvidia-uvm", text, "sudo nvidia-modprobe -u -c 0")
    })
}

fn device_permission(facts: &Facts) -> Vec<Seen> {
    let relevant = |maker: Maker| maker == Maker::Other || facts.has(maker);
    let closed = facts.devices.iter().filter(|device| !facts.user.may_use(&device.node));
    let closed: Vec<_> = closed.filter(|device| relevant(device.maker)).collect();
    // Somebody who may use one of several equal nodes still lacks the others.
    let seen = |device: &&crate::facts::DeviceNode| {
        let node = &device.node;
        let text = format!(
            "the user may not read and write /{} (mode {:04o}, user {}, group {})",
            device.path, node.mode, node.user, node.group
        );
        let severity = if device.maker == Maker::Other { Warning } else { Error };
        Seen::new(&device.path, text, facts.user.admission(&device.path, node)).with(severity)
    };
    closed.iter().map(seen).collect()
}
