//! `penstock vm define` and `penstock vm check`, on the copy of a host with devices for guests.
//! `tests/guests` runs guests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A domain with every defect that a file alone can show.
const BROKEN: &str = "\
<domain type='kvm'><name>broken</name><memory unit='GiB'>64</memory><vcpu>4</vcpu>
<memoryBacking><hugepages/></memoryBacking><cpu mode='host-model'/><devices>
<hostdev mode='subsystem' type='pci' managed='no'><source>
<address domain='0x0000' bus='0x99' slot='0x00' function='0x0'/></source></hostdev>
<hostdev mode='subsystem' type='pci' managed='no'><source>
<address domain='0x0000' bus='0x20' slot='0x00' function='0x0'/></source></hostdev>
<iommu model='intel'/><interface type='user'><driver iommu='on'/></interface>
</devices></domain>";

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../doctor/tests/trees/passing.tree")
}

/// Runs `penstock vm` with this input.
fn vm(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.arg("vm").args(arguments).arg("--root").arg(tree());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that does not read its input has closed it.
    _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_defined_guest_has_no_findings() {
    for options in [
        &[][..],
        &["--virtual-iommu", "--network", "--cpus", "4", "--disk", "/images/a.raw"],
        &["--transport", "tcp", "--no-devices", "--memory", "100000"],
        &["--transport", "shm", "--cid", "9"],
    ] {
        let defined = vm(&[&["define", "solver"], options].concat(), "");
        assert!(defined.status.success(), "{}", text(&defined.stderr));
        let checked = vm(&["check", "-", "--json"], &text(&defined.stdout));
        let report: Value = serde_json::from_slice(&checked.stdout).unwrap();
        assert_eq!(report["findings"], Value::Array(Vec::new()), "{options:?}: {report:#}");
        assert!(checked.status.success() && report["checks"].as_u64() > Some(10));
    }
}

/// Each transport has the devices that it needs.
#[test]
fn a_defined_guest_reaches_the_pool_by_its_transport() {
    for (transport, vsock, memory, network) in
        [("vsock", true, false, false), ("shm", true, true, false), ("tcp", false, false, true)]
    {
        for (form, devices) in [
            ("libvirt", ["<vsock ", "<shmem ", "<interface "]),
            ("qemu", ["vhost-vsock-pci", "ivshmem-plain", "virtio-net-pci"]),
        ] {
            let defined = vm(&["define", "a", "--transport", transport, "--format", form], "");
            let text = text(&defined.stdout);
            let found = devices.map(|device| text.contains(device));
            assert_eq!(found, [vsock, memory, network], "{transport}: {text}");
        }
    }
}

#[test]
fn each_finding_has_the_corrected_element() {
    let checked = vm(&["check", "-", "--json"], BROKEN);
    assert_eq!(checked.status.code(), Some(2), "{}", text(&checked.stderr));
    let report: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let mut found = Vec::new();
    for finding in report["findings"].as_array().unwrap() {
        let repair = finding["repair"].as_str().unwrap();
        let from = repair.find('<').unwrap_or_else(|| panic!("{finding:#}"));
        let end = repair.rfind('>').unwrap();
        assert!(is_balanced(&repair[from..=end]), "{finding:#}");
        found.push(finding["check"].as_str().unwrap());
    }
    let expected = [
        "domain-device",
        "domain-absent",
        "domain-cpu",
        "domain-pinning",
        "domain-memory",
        "domain-pages-few",
        "domain-iommu",
        "domain-ats",
    ];
    assert_eq!(found, expected);
}

/// Whether each element that starts also ends.
fn is_balanced(xml: &str) -> bool {
    let mut open = Vec::new();
    for element in xml.split('<').skip(1) {
        let Some((element, _)) = element.split_once('>') else { return false };
        let name = element.split([' ', '/']).find(|it| !it.is_empty()).unwrap_or_default();
        match (element.starts_with('/'), element.ends_with('/')) {
            (true, _) if open.pop() != Some(name) => return false,
            (true, _) | (_, true) => {}
            (false, false) => open.push(name),
        }
    }
    open.is_empty()
}

#[test]
fn what_cannot_be_defined_or_checked_says_why() {
    for (arguments, input, status, reason) in [
        (&["check", "-"][..], "hello", 2, "it is no libvirt domain"),
        (&["check", "/no/such/file"], "", 1, "cannot read it"),
        (&["define", "a", "--memory", "999999"], "", 125, "nr_hugepages"),
        (&["define", "a", "--device", "zz"], "", 2, "0000:65:00.0"),
        (&["define", "a", "--device", "0000:99:00.0"], "", 125, "no PCI device 0000:99:00.0"),
        (&["define", "a,b"], "", 125, "is none for a guest"),
    ] {
        let output = vm(arguments, input);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(reason) && output.stdout.is_empty(), "{arguments:?}: {said}");
    }
}
