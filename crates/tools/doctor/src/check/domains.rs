//! libvirt's domains with devices of the host.

use super::define::{Check, Seen, bytes};
use crate::facts::{Domain, Facts, Pci, Tag};
use crate::finding::Severity::{Error, Note, Warning};
use crate::finding::Topic::Domains;

pub const CHECKS: &[Check] = &[
    Check {
        id: "domain-device",
        topic: Domains,
        severity: Warning,
        title: "A domain does not let libvirt manage a device of the host.",
        why: "The guest starts only if somebody has bound vfio-pci to the device before.",
        find: domain_device,
    },
    Check {
        id: "domain-absent",
        topic: Domains,
        severity: Error,
        title: "A domain has a device that this host does not have.",
        why: "The guest does not start.",
        find: domain_absent,
    },
    Check {
        id: "domain-group",
        topic: Domains,
        severity: Error,
        title: "A device of a domain is in one IOMMU group with a device that the host uses.",
        why: "VFIO gives a group to a guest only as a whole, so the guest does not start.",
        find: domain_group,
    },
    Check {
        id: "domain-cpu",
        topic: Domains,
        severity: Warning,
        title: "A domain does not pass the host's processor model through.",
        why: "Programs in the guest lack instructions of the processor, such as wide vectors.",
        find: domain_cpu,
    },
    Check {
        id: "domain-pinning",
        topic: Domains,
        severity: Warning,
        title: "The virtual processors of a domain are not pinned.",
        why: "The host moves them away from the NUMA node of the device. The guests that reached \
              98.5 % of native speed in LAMMPS were pinned to that node.",
        find: domain_pinning,
    },
    Check {
        id: "domain-node",
        topic: Domains,
        severity: Warning,
        title: "A domain is pinned to processors of another NUMA node than its device.",
        why: "Each transfer between host and device crosses the link between the nodes.",
        find: domain_node,
    },
    Check {
        id: "domain-memory",
        topic: Domains,
        severity: Warning,
        title: "The memory of a domain is not bound to a NUMA node.",
        why: "It may lie on another node than the device, so that each transfer crosses the link \
              between the nodes.",
        find: domain_memory,
    },
    Check {
        id: "domain-huge-pages",
        topic: Domains,
        severity: Note,
        title: "A domain does not use huge pages.",
        why: "VFIO pins the guest's whole memory, and the processor and the IOMMU translate each \
              of its pages.",
        find: domain_huge_pages,
    },
    Check {
        id: "domain-pages-few",
        topic: Domains,
        severity: Warning,
        title: "A NUMA node has fewer huge pages than a domain needs there.",
        why: "The guest does not start, or gets memory of another node than its device.",
        find: domain_pages_few,
    },
    Check {
        id: "domain-iommu",
        topic: Domains,
        severity: Error,
        title: "A domain has a virtual IOMMU of Intel without caching mode, and a passed-through \
                device.",
        why: "QEMU does not start such a guest, because VFIO must see each change of the mapping.",
        find: domain_iommu,
    },
    Check {
        id: "domain-ats",
        topic: Domains,
        severity: Note,
        title: "A virtio device of a domain is behind the virtual IOMMU without ATS.",
        why: "vhost asks for translated addresses through ATS. Without it QEMU carries the data \
              itself.",
        find: domain_ats,
    },
];

/// Returns what `look` sees in each domain: a text and the corrected element.
fn of_domains(facts: &Facts, look: impl Fn(&Domain) -> Option<(String, String)>) -> Vec<Seen> {
    let seen = |domain: &Domain| {
        let (text, repair) = look(domain)?;
        let name = domain.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".xml");
        let repair = format!("virsh edit {name}: {repair}");
        Some(Seen::new(&domain.path, format!("the domain {name} {text}"), repair))
    };
    facts.domains.iter().filter_map(seen).collect()
}

/// As [`of_domains`], for the domains that have a device of the host. Where a guest without devices
/// runs matters less.
fn of_passing(facts: &Facts, look: impl Fn(&Domain) -> Option<(String, String)>) -> Vec<Seen> {
    of_domains(facts, |domain| domain.passes_devices().then(|| look(domain)).flatten())
}

/// Returns the element of a device that libvirt manages.
fn host_device(address: &str) -> String {
    let mut parts = address.split([':', '.']);
    let mut part = || parts.next().unwrap_or_default();
    let (domain, bus, slot, function) = (part(), part(), part(), part());
    format!(
        "<hostdev mode='subsystem' type='pci' managed='yes'><source><address domain='0x{domain}' \
         bus='0x{bus}' slot='0x{slot}' function='0x{function}'/></source></hostdev>"
    )
}

fn domain_absent(facts: &Facts) -> Vec<Seen> {
    of_passing(facts, |domain| {
        let has = domain.addresses();
        let absent = has.iter().find(|address| facts.by_address(address).is_none())?;
        let free = facts
            .pci
            .iter()
            .find(|it| it.is_for_guests() && !it.is_bridge() && !has.contains(&it.address));
        let repair = match free {
            Some(device) => host_device(&device.address),
            None => format!("remove the hostdev of {absent}; `lspci -D` lists the devices"),
        };
        Some((format!("has {absent}, and this host has no such device"), repair))
    })
}

fn domain_group(facts: &Facts) -> Vec<Seen> {
    of_passing(facts, |domain| {
        let has = domain.addresses();
        let with_group = |address: &String| {
            let device = facts.by_address(address)?;
            device.group.as_ref().map(|group| (device, group))
        };
        let is_in_the_way = |it: &&Pci| {
            let is_used = it.driver.is_some() && !it.is_for_guests();
            is_used && !it.is_bridge() && !has.contains(&it.address)
        };
        let (device, other) = has.iter().filter_map(with_group).find_map(|(device, group)| {
            let mut others = facts.pci.iter().filter(|it| it.group.as_ref() == Some(group));
            Some((device, others.find(is_in_the_way)?))
        })?;
        let text =
            format!("has {}, and the host uses {} of its group", device.address, other.name());
        Some((text, host_device(&other.address)))
    })
}

fn domain_device(facts: &Facts) -> Vec<Seen> {
    of_passing(facts, |domain| {
        let unmanaged = domain.passed().any(|tag| tag.get("managed") != Some("yes"));
        let is_unbound = |address: &String| {
            facts.by_address(address).is_some_and(|device| !device.is_for_guests())
        };
        let unbound = domain.addresses().into_iter().find(is_unbound)?;
        unmanaged.then(|| {
            let text =
                format!("has {unbound}, to which vfio-pci is not bound, and does not manage it");
            (text, host_device(&unbound))
        })
    })
}

fn domain_cpu(facts: &Facts) -> Vec<Seen> {
    of_domains(facts, |domain| {
        let mode = domain.all("domain/cpu").find_map(|tag| tag.get("mode"));
        let is_good = matches!(mode, Some("host-passthrough" | "maximum"));
        (!is_good).then(|| {
            let text = format!("has the processor mode {}", mode.unwrap_or("custom"));
            (text, "<cpu mode='host-passthrough'/>".to_owned())
        })
    })
}

/// Returns the processors to which a domain's virtual processors are pinned.
fn pinned(domain: &Domain) -> Vec<u32> {
    let pins = domain.all("domain/cputune/vcpupin").chain(domain.all("domain/vcpu"));
    let lists = pins.filter_map(|tag| tag.get("cpuset"));
    // `^` excludes processors. Such a list is rare, and its first part says enough.
    lists
        .flat_map(|list| crate::facts::number_list(list.split('^').next().unwrap_or_default()))
        .collect()
}

fn domain_pinning(facts: &Facts) -> Vec<Seen> {
    of_passing(facts, |domain| {
        pinned(domain)
            .is_empty()
            .then(|| ("does not pin its virtual processors".to_owned(), on_node(facts, domain)))
    })
}

/// Returns the NUMA node of the first passed-through device of which it is known.
fn node_of_device(facts: &Facts, domain: &Domain) -> Option<u32> {
    domain.addresses().iter().find_map(|address| facts.by_address(address)?.numa)
}

/// Returns the element that keeps the virtual processors on that node.
fn on_node(facts: &Facts, domain: &Domain) -> String {
    let id = node_of_device(facts, domain);
    let node = facts.memory.numa.iter().find(|node| Some(node.id) == id);
    let cpus = ranges(node.map_or(&facts.processors.online, |node| &node.cpus));
    let count = domain.cpus().unwrap_or(1);
    format!("<vcpu placement='static' cpuset='{cpus}'>{count}</vcpu>")
}

/// Writes numbers in ascending order as `0-3,8`.
fn ranges(numbers: &[u32]) -> String {
    let mut text = String::new();
    for part in numbers.chunk_by(|one, next| one.checked_add(1) == Some(*next)) {
        let separator = if text.is_empty() { "" } else { "," };
        text += &match part {
            [first, .., last] => format!("{separator}{first}-{last}"),
            [only] => format!("{separator}{only}"),
            [] => String::new(),
        };
    }
    text
}

fn domain_node(facts: &Facts) -> Vec<Seen> {
    of_passing(facts, |domain| {
        let id = node_of_device(facts, domain)?;
        let node = facts.memory.numa.iter().find(|node| node.id == id)?;
        let away = pinned(domain).into_iter().find(|cpu| !node.cpus.contains(cpu))?;
        let text = format!("is pinned to CPU {away}, and its device is at NUMA node {id}");
        let repair = format!("{}, and the same CPUs in <cputune>", on_node(facts, domain));
        Some((text, repair))
    })
}

fn domain_memory(facts: &Facts) -> Vec<Seen> {
    let many = facts.memory.numa.len() > 1;
    of_passing(facts, |domain| {
        let binds = |tag: &Tag| tag.get("mode") == Some("strict") && tag.get("nodeset").is_some();
        let bound = domain.all("domain/numatune/memory").any(binds);
        (many && !bound).then(|| {
            let node = node_of_device(facts, domain).unwrap_or_default();
            let repair = format!("<numatune><memory mode='strict' nodeset='{node}'/></numatune>");
            ("does not bind its memory to a NUMA node".to_owned(), repair)
        })
    })
}

fn domain_huge_pages(facts: &Facts) -> Vec<Seen> {
    of_passing(facts, |domain| {
        (!domain.has("domain/memoryBacking/hugepages")).then(|| {
            let repair = "<memoryBacking><hugepages/></memoryBacking>, with huge pages reserved \
                          on the node of the device";
            ("does not use huge pages".to_owned(), repair.to_owned())
        })
    })
}

fn domain_pages_few(facts: &Facts) -> Vec<Seen> {
    of_passing(facts, |domain| {
        let needed =
            domain.memory_bytes().filter(|_| domain.has("domain/memoryBacking/hugepages"))?;
        let id = node_of_device(facts, domain)?;
        let node = facts.memory.numa.iter().find(|node| node.id == id)?;
        // A guest that runs already holds its pages, so those that are free say nothing.
        (node.huge_bytes < needed).then(|| {
            let has = bytes(node.huge_bytes);
            let text =
                format!("needs {}, and NUMA node {id} has {has} of huge pages", bytes(needed));
            let pages = needed.div_ceil(2 << 20);
            let path = format!("/sys/devices/system/node/node{id}/hugepages/hugepages-2048kB");
            let repair = format!("echo {pages} | sudo tee {path}/nr_hugepages");
            match node.huge_bytes >> 20 {
                0 => (text, format!("keep the size, and: {repair}")),
                // Or a guest that fits.
                mib => (text, format!("<memory unit='MiB'>{mib}</memory>, or: {repair}")),
            }
        })
    })
}

fn domain_iommu(facts: &Facts) -> Vec<Seen> {
    of_passing(facts, |domain| {
        let intel = domain.all("domain/devices/iommu").any(|tag| tag.get("model") == Some("intel"));
        let caches = domain
            .all("domain/devices/iommu/driver")
            .any(|tag| tag.get("caching_mode") == Some("on"));
        (intel && !caches).then(|| {
            let repair = "<iommu model='intel'><driver intremap='on' caching_mode='on' \
                          iotlb='on'/></iommu>";
            ("has a virtual IOMMU without caching mode".to_owned(), repair.to_owned())
        })
    })
}

fn domain_ats(facts: &Facts) -> Vec<Seen> {
    of_domains(facts, |domain| {
        let lacks = |tag: &Tag| tag.get("iommu") == Some("on") && tag.get("ats") != Some("on");
        domain.all("domain/devices/interface/driver").any(lacks).then(|| {
            let text = "has an interface behind its virtual IOMMU without ATS".to_owned();
            (text, "<driver iommu='on' ats='on'/>, and iotlb='on' at the IOMMU".to_owned())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn a_device_has_its_address_in_four_parts() {
        let element = host_device("0000:65:00.1");
        assert!(element.contains("domain='0x0000' bus='0x65' slot='0x00' function='0x1'"));
    }
}
