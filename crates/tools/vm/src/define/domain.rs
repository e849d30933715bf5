//! The domain of libvirt for a guest: <https://libvirt.org/formatdomain.html>.

use super::{Address, Definition, Disk, Element};
use crate::machine::{Accelerator, SharedMemory};

pub fn of(guest: &Definition) -> Element {
    let kind = match guest.accelerator {
        Accelerator::Kvm => "kvm",
        Accelerator::Tcg => "qemu",
    };
    let cpus = Element::new("vcpu").with("placement", "static").text(guest.cpus);
    let memory = Element::new("memory").with("unit", "MiB").text(guest.memory_mib);
    Element::new("domain")
        .comment(guest.steps())
        .with("type", kind)
        .child(Element::new("name").text(&guest.name))
        .child(memory)
        .children(guest.huge_pages.then(memory_backing))
        .child(cpus)
        .children(pinning(guest))
        .children(guest.node.map(placement))
        .child(machine())
        .child(features(guest))
        .child(processor(guest))
        .child(devices(guest))
}

fn memory_backing() -> Element {
    let memfd = Element::new("source").with("type", "memfd");
    Element::new("memoryBacking").child(Element::new("hugepages")).child(memfd)
}

fn pinning(guest: &Definition) -> Option<Element> {
    let pin = |(index, cpu): (usize, &u32)| {
        Element::new("vcpupin").with("vcpu", index).with("cpuset", cpu)
    };
    let emulator = Element::new("emulatorpin").with("cpuset", list(&guest.pins));
    let pins = Element::new("cputune").children(guest.pins.iter().enumerate().map(pin));
    (!guest.pins.is_empty()).then(|| pins.child(emulator))
}

/// Returns the numbers as libvirt and `taskset` write them.
pub fn list(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn placement(node: u32) -> Element {
    let memory = Element::new("memory").with("mode", "strict").with("nodeset", node);
    Element::new("numatune").child(memory)
}

fn machine() -> Element {
    let kind = Element::new("type").with("arch", "x86_64").with("machine", "q35").text("hvm");
    Element::new("os").child(kind).child(Element::new("boot").with("dev", "hd"))
}

fn features(guest: &Definition) -> Element {
    let features = ["acpi", "apic"].map(Element::new);
    // A virtual IOMMU that maps interrupts needs QEMU's own controller for them.
    let controller = Element::new("ioapic").with("driver", "qemu");
    Element::new("features").children(features).children(guest.virtual_iommu.then_some(controller))
}

fn processor(guest: &Definition) -> Element {
    let topology = Element::new("topology")
        .with("sockets", 1)
        .with("dies", 1)
        .with("cores", guest.cpus)
        .with("threads", 1);
    let processor = Element::new("cpu");
    match guest.accelerator {
        Accelerator::Kvm => processor
            .with("mode", "host-passthrough")
            .with("check", "none")
            // Otherwise features that other hosts may lack are left out.
            .with("migratable", "off")
            .child(topology)
            .child(Element::new("cache").with("mode", "passthrough")),
        Accelerator::Tcg => processor.with("mode", "maximum").child(topology),
    }
}

fn devices(guest: &Definition) -> Element {
    let terminal = |name| Element::new(name).with("type", "pty");
    Element::new("devices")
        .child(Element::new("emulator").text(guest.emulator.display()))
        .children(guest.disk.as_ref().map(disk))
        .children(guest.network.then(|| network(guest.virtual_iommu)))
        .child(terminal("serial"))
        .child(terminal("console"))
        .children(guest.devices.iter().map(device))
        .children(guest.cid.map(vsock))
        .children(guest.memory.as_ref().map(shared_memory))
        // VFIO pins the guest's whole memory, so none of it can be given back.
        .child(Element::new("memballoon").with("model", "none"))
        .children(guest.virtual_iommu.then(iommu))
}

fn disk(disk: &Disk) -> Element {
    let driver = Element::new("driver")
        .with("name", "qemu")
        .with("type", disk.format.word())
        .with("cache", "none")
        .with("io", "native");
    Element::new("disk")
        .with("type", "file")
        .with("device", "disk")
        .child(driver)
        .child(Element::new("source").with("file", disk.path.display()))
        .child(Element::new("target").with("dev", "vda").with("bus", "virtio"))
}

fn network(virtual_iommu: bool) -> Element {
    let driver = Element::new("driver").with("iommu", "on").with("ats", "on");
    Element::new("interface")
        .with("type", "user")
        .child(Element::new("model").with("type", "virtio"))
        .children(virtual_iommu.then_some(driver))
}

fn device(address: &Address) -> Element {
    let place = Element::new("address")
        .with("domain", format!("0x{:04x}", address.domain))
        .with("bus", format!("0x{:02x}", address.bus))
        .with("slot", format!("0x{:02x}", address.slot))
        .with("function", format!("0x{:x}", address.function));
    Element::new("hostdev")
        .with("mode", "subsystem")
        .with("type", "pci")
        .with("managed", "yes")
        .child(Element::new("source").child(place))
}

fn vsock(cid: u32) -> Element {
    let cid = Element::new("cid").with("auto", "no").with("address", cid);
    Element::new("vsock").with("model", "virtio").child(cid)
}

/// libvirt looks for the file of this name in /dev/shm.
fn shared_memory(memory: &SharedMemory) -> Element {
    let name = memory.path.file_name().unwrap_or_default().display();
    let size = Element::new("size").with("unit", "M").text(memory.bytes >> 20);
    Element::new("shmem")
        .with("name", name)
        .child(Element::new("model").with("type", "ivshmem-plain"))
        .child(size)
}

fn iommu() -> Element {
    let driver = Element::new("driver")
        .with("intremap", "on")
        .with("caching_mode", "on")
        .with("iotlb", "on");
    Element::new("iommu").with("model", "intel").child(driver)
}
