//! A guest as one value.

pub mod network;
mod qemu;

use std::ffi::OsString;
use std::path::PathBuf;

/// A guest.
#[derive(Clone, Debug)]
pub struct Machine {
    pub name: String,
    pub accelerator: Accelerator,
    pub cpus: u32,
    pub memory_mib: u64,
    pub boot: Boot,
    /// The device for vsock, if the guest has one.
    pub vsock: Option<Vsock>,
    /// Memory that the guest shares with this host beside its own, as an ivshmem device.
    pub memory: Option<SharedMemory>,
    /// Whether the guest has a network card behind QEMU's user-mode network.
    pub network: bool,
    /// Socket of the host to which QEMU connects the virtio port.
    pub port: PathBuf,
}

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU's translator, which needs nothing of the host.
    Tcg,
}

/// What the guest starts.
#[derive(Clone, Debug)]
pub struct Boot {
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    /// Words for the kernel.
    pub command_line: String,
}

/// The host's end of vsock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vsock {
    /// The host's kernel.
    Kernel {
        /// Number of the guest, which no other guest of this host has.
        cid: u32,
    },
    /// The process `vhost-device-vsock`.
    Helper {
        /// Socket to which QEMU connects.
        socket: PathBuf,
    },
}

/// File of the host that a guest has as the memory of a PCI device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    pub path: PathBuf,
    /// Size of the file, a power of two.
    pub bytes: u64,
}

impl Machine {
    /// Returns the arguments of QEMU for this guest.
    pub fn qemu_arguments(&self) -> Vec<OsString> {
        qemu::arguments(self)
    }
}
