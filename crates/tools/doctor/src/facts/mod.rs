//! What the files of a tree say. A fact that no file says is `None` or empty.

mod devices;
mod domain;
mod files;
mod host;
mod launchers;
mod memory;
mod network;
mod opencl;
mod pci;
mod pool;
mod processors;

pub use devices::{DeviceNode, Nvidia};
pub use domain::{Domain, Tag};
pub use files::number_list;
pub use host::{Host, Limit, User};
pub use launchers::{Mpi, Slurm};
pub use memory::{Memory, NumaNode};
pub use network::{Interface, Network, Rdma};
pub use opencl::{Icd, OpenCl};
pub use pci::{Acs, Bar, Maker, Pci};
pub use pool::{KeyState, NodeAnswer, Pool};
pub use processors::Processors;

use crate::tree::Tree;

/// All facts of one tree.
#[derive(Clone, Debug)]
pub struct Facts {
    pub host: Host,
    pub user: User,
    pub pci: Vec<Pci>,
    pub devices: Vec<DeviceNode>,
    pub nvidia: Nvidia,
    pub opencl: OpenCl,
    pub pool: Pool,
    pub domains: Vec<Domain>,
    pub memory: Memory,
    pub processors: Processors,
    pub network: Network,
    pub mpi: Mpi,
    pub slurm: Slurm,
}

impl Facts {
    /// Reads all facts.
    pub fn read(tree: &Tree) -> Self {
        let answers = tree.answers();
        let pci = pci::read(tree);
        Self {
            host: Host::read(tree, &answers),
            user: User::read(tree),
            devices: devices::read(tree, &pci),
            nvidia: Nvidia::read(tree, &answers),
            opencl: OpenCl::read(tree, &answers),
            pool: Pool::read(tree, &answers),
            domains: domain::read(tree),
            memory: Memory::read(tree),
            processors: Processors::read(tree),
            network: Network::read(tree),
            mpi: Mpi::read(tree),
            slurm: Slurm::read(tree),
            pci,
        }
    }

    /// Returns the accelerators among the PCI devices.
    pub fn accelerators(&self) -> impl Iterator<Item = &Pci> {
        self.pci.iter().filter(|device| device.is_accelerator())
    }

    /// Returns the accelerators that drivers of this host may use.
    pub fn own_accelerators(&self) -> impl Iterator<Item = &Pci> {
        self.accelerators().filter(|device| !device.is_for_guests())
    }

    /// Returns whether this host has a device of this maker that its drivers may use.
    pub fn has(&self, maker: Maker) -> bool {
        self.own_accelerators().any(|device| device.maker() == maker)
    }

    pub fn by_address(&self, address: &str) -> Option<&Pci> {
        self.pci.iter().find(|device| device.address == address)
    }

    /// Returns whether this host gives devices to guests, or can.
    pub fn hosts_guests(&self) -> bool {
        self.host.kvm.is_some() || self.pci.iter().any(Pci::is_for_guests)
    }
}
