//! libvirt's domains with devices of the host.

use super::define::{Check, Seen, bytes};
use crate::facts::{Domain, Facts, Tag};
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

fn domain_device(facts: &Facts) -> Vec<Seen> {
    of_domains(facts, |domain| {
        let unmanaged = domain.passed().any(|tag| tag.get("managed") != Some("yes"));
        let is_bound = |address: &String| {
            facts.by_address(address).is_some_and(crate::facts::Pci::is_for_guests)
        };
        let unbound = domain.addresses().into_iter().find(|address| !is_bound(address))?;
        unmanaged.then(|| {
            let text =
                format!("has {unbound}, to which vfio-pci is not bound, and does not manage it");
            (text, "<hostdev mode='subsystem' type='pci' managed='yes'>".to_owned())
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
    of_domains(facts, |domain| {
        pinned(domain).is_empty().then(|| {
            let repair = format!("<vcpu cpuset='{}'>", cpus_of_device(facts, domain));
            ("does not pin its virtual processors".to_owned(), repair)
        })
    })
}

/// Returns the NUMA node of the first passed-through device of which it is known.
fn node_of_device(facts: &Facts, domain: &Domain) -> Option<u32> {
    domain.addresses().iter().find_map(|address| facts.by_address(address)?.numa)
}

/// Returns the processors of that node as libvirt writes them.
fn cpus_of_device(facts: &Facts, domain: &Domain) -> String {
    let id = node_of_device(facts, domain);
    let node = facts.memory.numa.iter().find(|node| Some(node.id) == id);
    let cpus = node.map_or(&facts.processors.online, |node| &node.cpus);
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn domain_node(facts: &Facts) -> Vec<Seen> {
    of_domains(facts, |domain| {
        let id = node_of_device(facts, domain)?;
        let node = facts.memory.numa.iter().find(|node| node.id == id)?;
        let away = pinned(domain).into_iter().find(|cpu| !node.cpus.contains(cpu))?;
        let text = format!("is pinned to CPU {away}, and its device is at NUMA node {id}");
        Some((text, format!("cpuset='{}'", cpus_of_device(facts, domain))))
    })
}

fn domain_memory(facts: &Facts) -> Vec<Seen> {
    let many = facts.memory.numa.len() > 1;
    of_domains(facts, |domain| {
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
    of_domains(facts, |domain| {
        (!domain.has("domain/memoryBacking/hugepages")).then(|| {
            let repair = "<memoryBacking><hugepages/></memoryBacking>, with huge pages reserved \
                          on the node of the device";
            ("does not use huge pages".to_owned(), repair.to_owned())
        })
    })
}

fn domain_pages_few(facts: &Facts) -> Vec<Seen> {
    of_domains(facts, |domain| {
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
            (text, format!("keep the size, and: echo {pages} | sudo tee {path}/nr_hugepages"))
        })
    })
}

fn domain_iommu(facts: &Facts) -> Vec<Seen> {
    of_domains(facts, |domain| {
        let intel = domain.all("domain/devices/iommu").any(|tag| tag.get("model") == Some("intel"));
        let caches = domain
            .all("domain/devices/iommu/driver")
            .any(|tag| tag.get("caching_mode") == Some("on"));
        (intel && !caches).then(|| {
            let repair = "<iommu model='intel'><driver intremap='on' caching_mode='on'/></iommu>";
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
