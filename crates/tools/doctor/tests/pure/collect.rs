//! A collected tree gives the findings of the host, and contains nothing that identifies somebody.

use std::fs;

use crate::common::{Folder, base, findings};
use penstock_doctor::Finding;
use penstock_doctor::collect::collect;
use penstock_doctor::tree::{Listing, Tree};

/// What a host has, and a collected tree must not have.
const SECRETS: [&str; 20] = [
    "anna",
    "Anna",
    "berta",
    "gpu07",
    "hpc-login",
    "cluster.example.org",
    "hunter2",
    "52:54:00:ab:cd:ef",
    "525400abcdef",
    "192.168.17.4",
    "10.20.30.40",
    "fd00::17",
    "0123456789abcdef0123456789abcdef",
    "c0ffee00",
    "SN-4711-0815",
    "9a8b7c6d-1111-2222-3333-444455556666",
    "wintermute",
    "s3cret",
    "buildhost",
    "neuromancer",
];

const PLANTED: &str = "\
proc/sys/kernel/hostname = hpc-login
etc/hostname = hpc-login.cluster.example.org
etc/hosts = 192.168.17.4 hpc-login.cluster.example.org
proc/cmdline = root=UUID=9a8b7c6d-1111-2222-3333-444455556666 ip=10.20.30.40 ks.password=hunter2 \
intel_iommu=on pcie_acs_override=downstream
proc/cpuinfo <<
|processor : 0
|Serial : c0ffee00
|flags : vmx fpu
proc/meminfo <<
|MemFree: 1 kB
|MemTotal:       65536000 kB
proc/4711/status <<
|Name:	wintermute
|Uid:	1000	1000	1000	1000
|Gid:	1000	1000	1000	1000
|Groups:	1000
|Cpus_allowed_list:	0-3
proc/4711/environ = SECRET=s3cret
proc/4711/mounts <<
|gpu07:/export/anna /home/anna nfs rw,addr=10.20.30.40 0 0
|shm /dev/shm tmpfs rw,size=65536k 0 0
proc/driver/nvidia/version = NVRM version: NVIDIA UNIX Kernel Module  535.54.15  (anna@buildhost)
etc/group <<
|render:x:104:anna,berta
|anna:x:1000:
sys/class/dmi/id/product_serial = SN-4711-0815
sys/class/dmi/id/product_uuid = 9a8b7c6d-1111-2222-3333-444455556666
sys/class/dmi/id/sys_vendor = neuromancer
sys/class/net/enx525400abcdef/device -> ../../../bus/pci/devices/0000:68:00.0
sys/class/net/vpn-neuromancer -> ../../devices/virtual/net/vpn-neuromancer
sys/devices/virtual/net/vpn-neuromancer/mtu = 1400
dev/vg-wintermute /
sys/class/net/enx525400abcdef/address = 52:54:00:ab:cd:ef
sys/class/net/enx525400abcdef/operstate = up
sys/class/net/enx525400abcdef/mtu = 1400
home/anna/.config/penstock/key = 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
home/anna/.config/penstock/key : file 0644 1000 1000 65
home/anna/.config/penstock/pool.toml = nodes = ['tcp:gpu07.cluster.example.org', 'tcp:10.20.30.40']
etc/OpenCL/vendors/own.icd = /home/anna/lib/libown.so
etc/slurm/slurm.conf <<
|ControlMachine=wintermute
|NodeName=gpu07 NodeAddr=10.20.30.40 Gres=gpu:4
|AccountingStoragePass=s3cret
etc/libvirt/qemu/wintermute.xml <<
|<domain><name>wintermute</name><uuid>9a8b7c6d-1111-2222-3333-444455556666</uuid>
|<devices><hostdev mode='subsystem' type='pci' managed='no'><source>
|<address domain='0x0000' bus='0x67' slot='0x00' function='0x0'/></source></hostdev>
|<interface><mac address='52:54:00:ab:cd:ef'/><driver iommu='on'/></interface></devices></domain>
penstock-doctor/answers <<
|architecture = x86_64
|pool.file = /home/anna/.config/penstock/pool.toml
|pool.key = /home/anna/.config/penstock/key
|pool.key-state = unusable
|pool.network = yes
|pool.library = found
|pool.node = tcp:gpu07.cluster.example.org:7367 silent cannot connect to tcp:192.168.17.4:7367
|pool.node = tcp:[fd00::17]:7367 answers 0.1.0
";

fn planted() -> Listing {
    let mut tree = base("host");
    tree.apply(PLANTED).unwrap();
    // A bridge with a serial number in its configuration space: capability 3, then 8 bytes.
    let mut config = vec![0_u8; 0x120];
    config[0x100..0x104].copy_from_slice(&0x1101_0003_u32.to_le_bytes());
    config[0x104..0x10c].copy_from_slice(&[0xc0, 0xff, 0xee, 0x00, 0xc0, 0xff, 0xee, 0x00]);
    config[0x110..0x114].copy_from_slice(&0x0001_000d_u32.to_le_bytes());
    config[0x114..0x118].copy_from_slice(&[0x1f, 0, 0x1d, 0]);
    let hex: String = config.iter().map(|byte| format!("{byte:02x}")).collect();
    let port = "sys/devices/pci0000:64/0000:64:00.0/0000:65:00.0/0000:66:00.0";
    tree.apply(&format!("{port}/config hex {hex}")).unwrap();
    tree
}

fn secrets() -> Vec<String> {
    ["hpc-login.cluster.example.org", "anna", "Anna"].map(str::to_owned).to_vec()
}

#[test]
fn a_collected_tree_has_no_secret_and_the_same_findings() {
    let folder = Folder::new("collect");
    let host = folder.path().join("host");
    planted().write_into(&host).unwrap();
    for secret in SECRETS.iter().filter(|secret| !matches!(**secret, "Anna" | "c0ffee00")) {
        let there = planted().to_string().contains(secret);
        assert!(there, "{secret} is not planted, so the test cannot find it");
    }
    let expected = findings(&Tree::open(&host).unwrap());
    let collected = collect(Tree::open(&host).unwrap(), &secrets());
    let copy = folder.path().join("copy");
    collected.tree.write_into(&copy).unwrap();
    // The findings are those of the host, with the same names replaced.
    let expected: Vec<Finding> = expected
        .into_iter()
        .map(|finding| Finding {
            place: collected.anonymous(&finding.place),
            seen: collected.anonymous(&finding.seen),
            repair: collected.anonymous(&finding.repair),
            ..finding
        })
        .collect();
    for tree in [Tree::open(&copy).unwrap(), Tree::of(collected.tree.clone())] {
        let found = findings(&tree);
        assert_eq!(found, expected);
        assert!(found.len() > 12, "{found:#?}");
    }
    let text = collected.tree.to_string();
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret}:\n{}", lines_with(&text, secret));
    }
    assert_eq!(Listing::parse(&text).unwrap(), collected.tree);
}

fn lines_with(text: &str, secret: &str) -> String {
    text.lines().filter(|line| line.contains(secret)).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_key_is_never_copied() {
    let folder = Folder::new("key");
    let host = folder.path().join("host");
    planted().write_into(&host).unwrap();
    let collected = collect(Tree::open(&host).unwrap(), &[]).tree;
    let text = collected.to_string();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("/key ")).collect();
    // One line says that the file exists, the other one has its mode, owner and size.
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].ends_with("/key = "), "{lines:?}");
    assert!(lines[1].ends_with("/key : file 0644 1000 1000 65"), "{lines:?}");
}

#[test]
fn a_tree_that_was_collected_twice_is_the_same() {
    let first = collect(Tree::of(planted()), &secrets()).tree;
    let second = collect(Tree::of(first.clone()), &[]).tree;
    assert_eq!(findings(&Tree::of(second)), findings(&Tree::of(first)));
}

#[test]
fn this_host_gives_the_same_findings_as_its_copy() {
    let folder = Folder::new("live");
    let answers = penstock_doctor::Answers::default();
    let expected = findings(&Tree::of_host(answers.clone()).unwrap());
    let collected = collect(Tree::of_host(answers).unwrap(), &[]).tree;
    let file = folder.path().join("tree");
    fs::write(&file, collected.to_string()).unwrap();
    assert_eq!(findings(&Tree::open(&file).unwrap()), expected);
}
