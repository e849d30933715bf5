//! Definitions of guests on a host with devices, and what other programs say of them.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use penstock_doctor::tree::{Listing, Tree};
use penstock_doctor::{Facts, Topic, examine};
use penstock_trial::{Need, skip};
use penstock_vm::define::{Address, Definition, Disk, DiskFormat, PlanError, Wishes, plan};
use penstock_vm::machine::{Accelerator, SharedMemory};

/// A virtual function of the host's network card.
const FUNCTION: &str = "\
sys/bus/pci/devices/0000:20:02.0 -> ../../../devices/pci0000:20/0000:20:02.0
sys/devices/pci0000:20/0000:20:02.0/class = 0x020000
sys/devices/pci0000:20/0000:20:02.0/vendor = 0x8086
sys/devices/pci0000:20/0000:20:02.0/device = 0x154c
sys/devices/pci0000:20/0000:20:02.0/numa_node = 0
sys/devices/pci0000:20/0000:20:02.0/driver -> ../../../bus/pci/drivers/vfio-pci
sys/devices/pci0000:20/0000:20:02.0/physfn -> ../0000:20:00.0
sys/devices/pci0000:20/0000:20:02.0/iommu_group -> ../../../kernel/iommu_groups/4
sys/kernel/iommu_groups/4/devices/0000:20:02.0 -> ../../../../devices/pci0000:20/0000:20:02.0
sys/kernel/iommu_groups/4/type = DMA";

/// A host that has set a GPU, its sound device and a virtual function aside for guests.
fn host(changes: &str) -> Listing {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../doctor/tests/trees/passing.tree");
    let mut listing = Listing::parse(&fs::read_to_string(path).unwrap()).unwrap();
    listing.apply(FUNCTION).unwrap();
    listing.apply(changes).unwrap();
    listing
}

fn facts(changes: &str) -> Facts {
    Facts::read(&Tree::of(host(changes)))
}

fn wishes() -> Wishes {
    Wishes {
        name: "solver".into(),
        emulator: "/usr/bin/qemu-system-x86_64".into(),
        cid: Some(7),
        ..Wishes::default()
    }
}

fn addresses(list: &[&str]) -> Vec<Address> {
    list.iter().map(|text| Address::read(text).unwrap()).collect()
}

#[test]
fn a_guest_gets_the_devices_that_are_set_aside_and_their_node() {
    let guest = plan(&facts(""), &wishes()).unwrap();
    assert_eq!(guest.accelerator, Accelerator::Kvm);
    assert_eq!(guest.devices, addresses(&["11:00.0", "11:00.1", "20:02.0"]));
    assert_eq!((guest.node, guest.huge_pages, guest.cpus), (Some(0), true, 8));
    assert_eq!(guest.pins, [0, 1, 2, 3, 4, 5, 6, 7]);
    // The first CPUs of the node stay with the host.
    let guest = plan(&facts(""), &Wishes { cpus: Some(3), ..wishes() }).unwrap();
    assert_eq!(guest.pins, [5, 6, 7]);
}

#[test]
fn the_other_functions_of_a_card_go_with_it() {
    let devices = Some(addresses(&["11:00.0"]));
    let guest = plan(&facts(""), &Wishes { devices, ..wishes() }).unwrap();
    assert_eq!(guest.devices, addresses(&["11:00.0", "11:00.1"]));
}

#[test]
fn what_the_host_cannot_give_is_refused() {
    let gpu = addresses(&["11:00.0"]);
    let card = "sys/devices/pci0000:10/0000:10:00.0/0000:11:00";
    let refuse = |changes: &str, wishes: Wishes| plan(&facts(changes), &wishes).unwrap_err();
    let error = refuse("", Wishes { memory_mib: Some(65_536), ..wishes() });
    assert!(matches!(error, PlanError::HugePages { node: 0, pages: 32_768, .. }), "{error}");
    let error = refuse("", Wishes { cpus: Some(9), ..wishes() });
    assert_eq!(error, PlanError::Cpus { node: 0, there: 8, wanted: 9 });
    let error = refuse("", Wishes { node: Some(2), ..wishes() });
    assert_eq!(error, PlanError::Node(2));
    let error = refuse("", Wishes { devices: Some(addresses(&["99:00.0"])), ..wishes() });
    assert!(matches!(error, PlanError::Device(_)), "{error}");
    let error = refuse(&format!("{card}.0/numa_node = -1"), wishes());
    assert_eq!(error, PlanError::NodeUnknown(gpu[0]));
    let shared = "sys/devices/pci0000:20/0000:20:00.0/iommu_group -> \
                  ../../../kernel/iommu_groups/2";
    let error = refuse(shared, Wishes { devices: Some(gpu), ..wishes() });
    assert!(matches!(error, PlanError::Group { .. }), "{error}");
    let error = refuse("", Wishes { name: "a/../b".into(), ..wishes() });
    assert!(matches!(error, PlanError::Name(_)), "{error}");
}

/// Guests of all kinds.
fn guests() -> Vec<Definition> {
    let with = |wishes: Wishes| plan(&facts(""), &wishes).unwrap();
    let disk = Disk { path: "/images/it's,a.qcow2".into(), format: DiskFormat::Qcow2 };
    vec![
        with(wishes()),
        with(Wishes { virtual_iommu: true, network: true, disk: Some(disk), ..wishes() }),
        with(Wishes { devices: Some(Vec::new()), cid: None, network: true, ..wishes() }),
        with(Wishes { memory: true, ..wishes() }),
        with(Wishes { devices: Some(Vec::new()), node: Some(1), cpus: Some(2), ..wishes() }),
        with(Wishes { no_huge_pages: true, devices: Some(addresses(&["20:02.0"])), ..wishes() }),
    ]
}

/// The doctor reads the domain, and finds nothing.
#[test]
fn the_doctor_finds_nothing_in_a_defined_guest() {
    for guest in guests() {
        let is_without_pages = !guest.devices.is_empty() && !guest.huge_pages;
        let lines: String =
            guest.domain().to_string().lines().map(|line| format!("|{line}\n")).collect();
        let tree = Tree::of(host(&format!("etc/libvirt/qemu/solver.xml <<\n{lines}")));
        let facts = Facts::read(&tree);
        assert_eq!(facts.domains.len(), usize::from(!guest.devices.is_empty()));
        let findings = examine(&facts);
        let found: Vec<&str> = findings
            .iter()
            .filter(|it| it.topic == Topic::Domains)
            .map(|finding| finding.check)
            .collect();
        // This guest was wanted without huge pages.
        let expected: &[&str] = if is_without_pages { &["domain-huge-pages"] } else { &[] };
        assert_eq!(found, expected, "{}", guest.domain());
    }
}

/// Both forms have the same devices and the same sizes.
#[test]
fn both_forms_say_the_same() {
    for guest in guests() {
        let (xml, command) = (guest.domain().to_string(), guest.command().join(" "));
        assert_eq!(xml.matches("<hostdev ").count(), guest.devices.len(), "{xml}");
        assert_eq!(command.matches("vfio-pci,").count(), guest.devices.len(), "{command}");
        for Address { domain, bus, slot, function } in &guest.devices {
            let element = format!(
                "domain='0x{domain:04x}' bus='0x{bus:02x}' slot='0x{slot:02x}' \
                 function='0x{function:x}'"
            );
            assert!(xml.contains(&element), "{xml}");
        }
        for address in &guest.devices {
            assert!(command.contains(&format!("vfio-pci,host={address},")), "{command}");
        }
        for (in_xml, in_command) in [
            ("<hugepages/>", "hugetlb=on"),
            ("<vsock ", "vhost-vsock-pci"),
            ("<shmem name='penstock-solver'>", "mem-path=/dev/shm/penstock-solver"),
            ("<model type='ivshmem-plain'/>", "ivshmem-plain,memdev=shared0"),
            ("<size unit='M'>256</size>", "share=on,size=256M"),
            ("guest-memory is vsock:7367=/dev/shm/penstock-solver,size=256M", "ivshmem-plain"),
            ("<interface ", "virtio-net-pci"),
            ("<iommu ", "intel-iommu"),
            ("<vcpupin ", "taskset"),
            ("<numatune>", "policy=bind"),
            ("<disk ", "virtio-blk-pci"),
            ("type='kvm'", "accel=kvm"),
        ] {
            assert_eq!(xml.contains(in_xml), command.contains(in_command), "{in_xml}\n{command}");
        }
        let sizes = format!("<memory unit='MiB'>{}</memory>", guest.memory_mib);
        assert!(xml.contains(&sizes) && command.contains(&format!("-m {}M", guest.memory_mib)));
        assert!(command.contains(&format!("-smp {},", guest.cpus)));
    }
}

/// Returns the folder of libvirt's schemas: that of the system, or the one that the setup of the
/// tests has fetched.
fn schemas() -> Option<PathBuf> {
    let fetched = std::env::current_exe().ok()?.ancestors().nth(3)?.join("guest/schemas");
    let places = [PathBuf::from("/usr/share/libvirt/schemas"), fetched];
    places.into_iter().find(|place| place.join("domain.rng").is_file())
}

#[test]
fn libvirts_schema_allows_the_domains() {
    let Some(schemas) = schemas() else {
        return skip(Need::Guest, "no schemas of libvirt: tools/setup.sh guest");
    };
    for guest in guests() {
        let mut command = Command::new("xmllint");
        command.args(["--noout", "--relaxng"]).arg(schemas.join("domain.rng")).arg("-");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            return skip(Need::Guest, "no xmllint: tools/setup.sh guest");
        };
        let xml = guest.domain().to_string();
        child.stdin.take().unwrap().write_all(xml.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}{xml}");
    }
}

/// QEMU makes the machine and then waits for a word to start it.
#[test]
fn qemu_accepts_the_command() {
    let name = "qemu-system-x86_64";
    if Command::new(name).arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip(Need::Guest, "no QEMU: tools/setup.sh guest");
    }
    let disk = std::env::temp_dir().join(format!("penstock-define,{}.img", std::process::id()));
    fs::File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let memory = std::env::temp_dir().join(format!("penstock-define,{}.mem", std::process::id()));
    // What needs hardware is left out: KVM, devices, huge pages, and vsock of the kernel.
    let guest = Definition {
        accelerator: Accelerator::Tcg,
        emulator: name.into(),
        devices: Vec::new(),
        huge_pages: false,
        cid: None,
        memory: Some(SharedMemory { path: memory.clone(), bytes: 1 << 20 }),
        node: None,
        pins: vec![0],
        memory_mib: 128,
        cpus: 2,
        disk: Some(Disk { path: disk.clone(), format: DiskFormat::Raw }),
        ..guests().remove(1)
    };
    assert!(guest.virtual_iommu && guest.network);
    let words = guest.command();
    // The file system of the test may not know direct input and output.
    let word = |word: &String| word.replace("cache=none,aio=native", "cache=writeback");
    let mut child = Command::new(&words[0])
        .args(words[1..].iter().map(word))
        .args(["-S", "-qmp", "stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"execute\":\"qmp_capabilities\"}{\"execute\":\"query-status\"}").unwrap();
    stdin.write_all(b"{\"execute\":\"quit\"}").unwrap();
    let lines: Vec<String> =
        BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).collect();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    fs::remove_file(disk).unwrap();
    fs::remove_file(memory).unwrap();
    assert!(output.status.success(), "{said}{lines:?}");
    assert!(lines.iter().any(|line| line.contains("prelaunch")), "{said}{lines:?}");
}
