//! What a guest gets on a host, by the facts of the host.

use std::path::{Path, PathBuf};

use penstock_doctor::Facts;
use penstock_doctor::facts::{NumaNode, Pci};

use super::{Address, Definition, Disk};
use crate::machine::{Accelerator, SharedMemory};

/// Number of CPUs if nobody says one: the guests that reached 98.5 % of native speed had eight.
const CPUS: u32 = 8;

/// Memory in MiB if nobody says how much.
const MEMORY_MIB: u64 = 4096;

/// Folder in which libvirt looks for the memory that guests share.
const SHARED_MEMORY_FOLDER: &str = "/dev/shm";

/// Size of the memory that a guest shares with the host: that of a daemon to which nobody names a
/// size.
const SHARED_MEMORY_BYTES: u64 = 256 << 20;

/// What somebody wants of a guest. The rest follows from the host.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    pub name: String,
    pub emulator: PathBuf,
    pub cpus: Option<u32>,
    pub memory_mib: Option<u64>,
    pub node: Option<u32>,
    pub cid: Option<u32>,
    /// Whether the guest shares memory with the host.
    pub memory: bool,
    pub network: bool,
    pub disk: Option<Disk>,
    /// Devices that the guest gets. `None` means all that are set aside for guests.
    pub devices: Option<Vec<Address>>,
    pub no_huge_pages: bool,
    pub virtual_iommu: bool,
}

/// Why a guest cannot have what somebody wants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    #[error("the name {0:?} is none for a guest; use letters, digits, and - _ . between them")]
    Name(String),
    #[error("this host has no PCI device {0} that a guest can get; `lspci -D` lists the devices")]
    Device(Address),
    #[error(
        "{device} is in one IOMMU group with {other}, so both go to the same guest; add --device \
         {other}, or put the card into another slot"
    )]
    Group { device: Address, other: Address },
    #[error(
        "this host has no IOMMU that is switched on, so no device can be passed through; \
         `penstock doctor` says how to switch it on, or use --no-devices"
    )]
    Iommu,
    #[error(
        "this host has no /dev/kvm, so no device can be passed through; load the module kvm_intel \
         or kvm_amd, or use --no-devices"
    )]
    Kvm,
    #[error(
        "the firmware does not say at which NUMA node {0} is, and this host has several; name the \
         node with --node"
    )]
    NodeUnknown(Address),
    #[error("this host has no NUMA node {0}; see `lscpu`")]
    Node(u32),
    #[error("NUMA node {node} has {there} CPUs, and the guest wants {wanted}; use --cpus {there}")]
    Cpus { node: u32, there: usize, wanted: u32 },
    #[error(
        "NUMA node {node} has {there_mib} MiB of huge pages, and the guest needs {wanted_mib}: \
         echo {pages} | sudo tee \
         /sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages, or use \
         --no-huge-pages"
    )]
    HugePages {
        node: u32,
        there_mib: u64,
        wanted_mib: u64,
        /// Number of pages of 2 MiB that the guest needs.
        pages: u64,
    },
}

/// Decides what the guest has.
pub fn plan(facts: &Facts, wishes: &Wishes) -> Result<Definition, PlanError> {
    if !is_name(&wishes.name) {
        return Err(PlanError::Name(wishes.name.clone()));
    }
    let devices = devices(facts, wishes)?;
    let accelerator = match facts.host.kvm {
        Some(_) => Accelerator::Kvm,
        None if devices.is_empty() => Accelerator::Tcg,
        None => return Err(PlanError::Kvm),
    };
    let node = node(facts, wishes, &devices)?;
    let (cpus, pins) = cpus(facts, wishes, node)?;
    let memory_mib = wishes.memory_mib.unwrap_or(MEMORY_MIB);
    let huge_pages = match node {
        Some(node) if !devices.is_empty() && !wishes.no_huge_pages => {
            enough_pages(node, memory_mib)?;
            true
        }
        _ => false,
    };
    Ok(Definition {
        name: wishes.name.clone(),
        accelerator,
        emulator: wishes.emulator.clone(),
        cpus,
        pins,
        memory_mib,
        node: node.map(|node| node.id),
        huge_pages,
        cid: wishes.cid,
        memory: wishes.memory.then(|| shared_memory(&wishes.name)),
        network: wishes.network,
        disk: wishes.disk.clone(),
        devices: devices.into_iter().filter_map(|it| Address::read(&it.address)).collect(),
        virtual_iommu: wishes.virtual_iommu,
    })
}

/// Returns the file that libvirt makes for shared memory of this name.
fn shared_memory(guest: &str) -> SharedMemory {
    let path = Path::new(SHARED_MEMORY_FOLDER).join(format!("penstock-{guest}"));
    SharedMemory { path, bytes: SHARED_MEMORY_BYTES }
}

/// libvirt makes a file name of it, and QEMU separates properties with commas.
fn is_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    name.starts_with(|letter: char| letter.is_ascii_alphanumeric()) && name.chars().all(is_plain)
}

/// Returns the devices of the guest, with the other functions of their cards.
fn devices<'a>(facts: &'a Facts, wishes: &Wishes) -> Result<Vec<&'a Pci>, PlanError> {
    let mut found: Vec<&Pci> = match &wishes.devices {
        None => facts.pci.iter().filter(|it| it.is_for_guests() && !it.is_bridge()).collect(),
        Some(list) => {
            let device = |address: &Address| {
                let device = facts.by_address(&address.to_string()).filter(|it| !it.is_bridge());
                device.ok_or(PlanError::Device(*address))
            };
            list.iter().map(device).collect::<Result<_, _>>()?
        }
    };
    for device in found.clone() {
        let group = device.group.as_ref().ok_or(PlanError::Iommu)?;
        let others = facts.pci.iter().filter(|it| it.group.as_ref() == Some(group));
        for other in others.filter(|it| !it.is_bridge()) {
            if found.iter().any(|it| it.address == other.address) {
                continue;
            }
            if !other.shares_card(device) {
                return Err(PlanError::Group { device: address(device), other: address(other) });
            }
            found.push(other);
        }
    }
    found.sort_by(|one, other| one.address.cmp(&other.address));
    found.dedup_by(|one, other| one.address == other.address);
    Ok(found)
}

/// Returns the address of a device whose address the doctor has checked.
fn address(device: &Pci) -> Address {
    let nowhere = Address { domain: 0, bus: 0, slot: 0, function: 0 };
    Address::read(&device.address).unwrap_or(nowhere)
}

/// Returns the NUMA node of the guest: that of its accelerator, otherwise that of its first device.
fn node<'a>(
    facts: &'a Facts,
    wishes: &Wishes,
    devices: &[&Pci],
) -> Result<Option<&'a NumaNode>, PlanError> {
    let nodes = &facts.memory.numa;
    let by_id = |id: u32| nodes.iter().find(|node| node.id == id).ok_or(PlanError::Node(id));
    if let Some(id) = wishes.node {
        return by_id(id).map(Some);
    }
    let first = devices.iter().find(|it| it.is_accelerator()).or(devices.first());
    let Some(device) = first else { return Ok(None) };
    match (device.numa, nodes.as_slice()) {
        (Some(id), _) => by_id(id).map(Some),
        (None, [only]) => Ok(Some(only)),
        (None, _) => Err(PlanError::NodeUnknown(address(device))),
    }
}

/// Returns the number of CPUs, and those of the host to which they are pinned.
fn cpus(
    facts: &Facts,
    wishes: &Wishes,
    node: Option<&NumaNode>,
) -> Result<(u32, Vec<u32>), PlanError> {
    let there = node.map_or(&facts.processors.online, |node| &node.cpus);
    let most = u32::try_from(there.len()).unwrap_or(u32::MAX).max(1);
    let wanted = wishes.cpus.unwrap_or(CPUS.min(most));
    let Some(node) = node else { return Ok((wanted, Vec::new())) };
    // The first CPUs of a node are for the host, which serves interrupts there.
    let first = usize::try_from(wanted).ok().and_then(|wanted| there.len().checked_sub(wanted));
    let pins = first.and_then(|first| there.get(first..)).ok_or(PlanError::Cpus {
        node: node.id,
        there: there.len(),
        wanted,
    })?;
    Ok((wanted, pins.to_vec()))
}

fn enough_pages(node: &NumaNode, wanted_mib: u64) -> Result<(), PlanError> {
    let there_mib = node.huge_bytes >> 20;
    if there_mib >= wanted_mib {
        return Ok(());
    }
    let pages = wanted_mib.div_ceil(2);
    Err(PlanError::HugePages { node: node.id, there_mib, wanted_mib, pages })
}
