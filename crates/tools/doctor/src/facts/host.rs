//! The kernel, the user, and whether this host is a machine, a virtual machine or a container.

use super::files::{mounts, number_list};
use crate::tree::{Answers, Node, Tree, keep};

#[derive(Clone, Debug)]
pub struct Host {
    /// Version of the kernel: the first two numbers.
    pub kernel: Option<(u32, u32)>,
    /// The parameters of the kernel that checks know.
    pub parameters: Vec<String>,
    /// Whether the processor says that this is a virtual machine.
    pub is_guest: bool,
    /// The hypervisor or the maker of the machine, if it is a known hypervisor.
    pub hypervisor: Option<String>,
    /// Whether this is a container, and which kind.
    pub container: Option<&'static str>,
    pub kvm: Option<Node>,
    pub vfio: Option<Node>,
    pub vhost_net: Option<Node>,
    pub vhost_vsock: Option<Node>,
    pub vsock: Option<Node>,
    pub tun: Option<Node>,
    /// Whether VFIO accepts an IOMMU that cannot isolate interrupts.
    pub unsafe_interrupts: bool,
    /// Whether the host's IOMMU has made groups.
    pub has_iommu_groups: bool,
    /// Whether PCI devices are visible at all.
    pub has_pci: bool,
    /// Processor architecture of the host.
    pub architecture: String,
}

const PARAMETERS: [&str; 9] = [
    "intel_iommu",
    "amd_iommu",
    "iommu",
    "iommu.passthrough",
    "pcie_acs_override",
    "hugepages",
    "hugepagesz",
    "default_hugepagesz",
    "pci",
];

const HYPERVISORS: [&str; 11] = [
    "QEMU",
    "KVM",
    "VMware, Inc.",
    "innotek GmbH",
    "Xen",
    "Microsoft Corporation",
    "Amazon EC2",
    "Google",
    "OpenStack Foundation",
    "Bochs",
    "Parallels",
];

impl Host {
    pub fn read(tree: &Tree, answers: &Answers) -> Self {
        let release = tree.read("proc/sys/kernel/osrelease", version).unwrap_or_default();
        let mut numbers = release.split('.').map_while(|number| number.parse().ok());
        let parameters = tree.read("proc/cmdline", |text| keep::words(text, &PARAMETERS));
        let maker = tree.read("sys/class/dmi/id/sys_vendor", hypervisor);
        let flags = tree.read("proc/cpuinfo", super::processors::kept).unwrap_or_default();
        let is_guest = has_word(keep::value(&flags, "flags").unwrap_or_default(), "hypervisor");
        let unsafe_path = "sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts";
        Self {
            kernel: numbers.next().zip(numbers.next()),
            parameters: parameters
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            is_guest: is_guest || tree.exists("sys/hypervisor/type"),
            hypervisor: maker.filter(|name| name != "other"),
            container: container(tree),
            kvm: tree.node("dev/kvm"),
            vfio: tree.node("dev/vfio/vfio"),
            vhost_net: tree.node("dev/vhost-net"),
            vhost_vsock: tree.node("dev/vhost-vsock"),
            vsock: tree.node("dev/vsock"),
            tun: tree.node("dev/net/tun"),
            unsafe_interrupts: tree
                .read(unsafe_path, keep::line)
                .is_some_and(|text| text == "Y" || text == "1"),
            has_iommu_groups: tree
                .list("sys/kernel/iommu_groups")
                .first()
                .is_some_and(|group| tree.exists(&format!("sys/kernel/iommu_groups/{group}"))),
            has_pci: tree.exists("sys/bus/pci/devices"),
            architecture: answers.get("architecture").unwrap_or_default().to_owned(),
        }
    }

    /// Returns the value of a parameter of the kernel, which is empty for a mere word.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find_map(|word| {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            (key == name).then_some(value)
        })
    }

    /// Returns the name of the hypervisor for a sentence.
    pub fn machine(&self) -> String {
        match &self.hypervisor {
            Some(name) => format!("a virtual machine ({name})"),
            None => "a virtual machine".to_owned(),
        }
    }
}

/// Keeps the first two numbers of a version.
fn version(text: &str) -> String {
    let numbers: Vec<&str> = text.split(|letter: char| !letter.is_ascii_digit()).take(2).collect();
    numbers.join(".")
}

fn hypervisor(text: &str) -> String {
    keep::one_of(text, &HYPERVISORS)
}

fn container(tree: &Tree) -> Option<&'static str> {
    const KINDS: [&str; 4] = ["docker", "podman", "lxc", "systemd-nspawn"];
    // A virtual machine may boot a disk that was made of a container's files.
    let mounts = tree.read("proc/self/mounts", mounts).unwrap_or_default();
    if tree.exists(".dockerenv") && keep::value(&mounts, "root-device") != Some("disk") {
        return Some("docker");
    }
    if tree.exists("run/.containerenv") {
        return Some("podman");
    }
    if tree.exists(".singularity.d") {
        return Some("apptainer");
    }
    let said = tree.read("run/systemd/container", |text| keep::one_of(text, &KINDS));
    let said = said.unwrap_or_default();
    KINDS.into_iter().find(|kind| said == *kind)
}

fn has_word(text: &str, word: &str) -> bool {
    text.split_whitespace().any(|it| it == word)
}

/// The user that ran the doctor, and the limits of its processes.
#[derive(Clone, Debug)]
pub struct User {
    pub id: Option<u32>,
    /// Numbers of all groups of the user.
    pub groups: Vec<u32>,
    /// CPUs on which the user's processes may run.
    pub cpus: Vec<u32>,
    pub memory_locked: Option<Limit>,
    pub files_open: Option<Limit>,
    /// Names of the groups that own device nodes, by their numbers.
    pub group_names: Vec<(u32, String)>,
}

/// A limit of a process. `None` stands for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

const LOCKED: &str = "Max locked memory";
const FILES: &str = "Max open files";

/// Groups that systems make for devices. Other names of groups may be names of users.
const GROUPS: [&str; 8] = ["render", "video", "kvm", "rdma", "vfio", "libvirt", "nvidia", "disk"];

impl User {
    pub fn read(tree: &Tree) -> Self {
        let kept = |text: &str| keep::keys(text, &["Uid", "Gid", "Groups", "Cpus_allowed_list"]);
        let status = tree.read("proc/self/status", kept).unwrap_or_default();
        let numbers = |key: &str| -> Vec<u32> {
            let text = keep::value(&status, key).unwrap_or_default();
            text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
        };
        // The second number is that of the effective user or group.
        let effective = |key: &str| numbers(key).get(1).copied();
        let mut groups = numbers("Groups");
        groups.extend(effective("Gid"));
        let limits = tree.read("proc/self/limits", |text| keep::keys(text, &[LOCKED, FILES]));
        let limits = limits.unwrap_or_default();
        Self {
            id: effective("Uid"),
            groups,
            cpus: number_list(keep::value(&status, "Cpus_allowed_list").unwrap_or_default()),
            memory_locked: limit(&limits, LOCKED),
            files_open: limit(&limits, FILES),
            group_names: group_names(tree),
        }
    }

    pub fn is_root(&self) -> bool {
        self.id == Some(0)
    }

    /// Returns whether the user may read and write the node.
    pub fn may_use(&self, node: &Node) -> bool {
        if let Some(access) = node.access {
            return access.read && access.write;
        }
        let bits = if self.is_root() {
            6
        } else if self.id == Some(node.user) {
            node.mode >> 6
        } else if self.groups.contains(&node.group) {
            node.mode >> 3
        } else {
            node.mode
        };
        bits & 6 == 6
    }

    /// Returns the command that lets the user use a node.
    pub fn admission(&self, path: &str, node: &Node) -> String {
        let name = self.group_names.iter().find(|(id, _)| *id == node.group);
        match name.filter(|_| node.mode & 0o060 == 0o060 && node.group != 0) {
            Some((_, name)) => {
                format!("sudo usermod -aG {name} \"$USER\", and then log in again")
            }
            None => format!("let a udev rule give /{path} to a group of the user"),
        }
    }
}

fn limit(kept: &str, key: &str) -> Option<Limit> {
    let mut words = keep::value(kept, key)?.split_whitespace();
    let mut number = || match words.next()? {
        "unlimited" => Some(None),
        word => word.parse().ok().map(Some),
    };
    Some(Limit { soft: number()?, hard: number()? })
}

fn group_names(tree: &Tree) -> Vec<(u32, String)> {
    let text = tree.read("etc/group", known_groups).unwrap_or_default();
    let pair = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((fields.nth(1)?.parse().ok()?, name))
    };
    text.lines().filter_map(pair).collect()
}

/// Keeps the names and numbers of [`GROUPS`], without the members.
fn known_groups(text: &str) -> String {
    let kept = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| GROUPS.contains(name))?;
        let number: u32 = fields.nth(1)?.parse().ok()?;
        Some(format!("{name}:x:{number}:"))
    });
    kept.collect::<Vec<_>>().join("\n")
}
