//! QEMU's command line for a guest.

use std::fmt::Write as _;
use std::path::Path;

use super::domain::list;
use super::{Definition, Disk};
use crate::machine::{Accelerator, SharedMemory};

/// Returns the words of the command.
pub fn of(guest: &Definition) -> Vec<String> {
    let mut line = Line::default();
    if !guest.pins.is_empty() {
        // QEMU cannot pin its threads itself. libvirt pins each to one CPU, `taskset` all to all.
        line.words(&["taskset", "-c", &list(&guest.pins)]);
    }
    line.words(&[&guest.emulator.display().to_string()]);
    line.words(&["-name", &guest.name, "-nodefaults", "-no-user-config", "-display", "none"]);
    line.words(&["-serial", "pty"]);
    machine(guest, &mut line);
    // Before the devices whose addresses it translates.
    if guest.virtual_iommu {
        line.words(&["-device", "intel-iommu,intremap=on,caching-mode=on,device-iotlb=on"]);
    }
    if let Some(it) = &guest.disk {
        disk(it, &mut line);
    }
    if guest.network {
        let iommu = if guest.virtual_iommu { ",iommu_platform=on,ats=on" } else { "" };
        line.words(&["-netdev", "user,id=net0"]);
        line.device(&format!("virtio-net-pci,netdev=net0{iommu}"));
    }
    for address in &guest.devices {
        line.device(&format!("vfio-pci,host={address}"));
    }
    if let Some(cid) = guest.cid {
        line.device(&format!("vhost-vsock-pci,guest-cid={cid}"));
    }
    if let Some(SharedMemory { path, bytes }) = &guest.memory {
        let (path, size) = (escaped(path), bytes >> 20);
        let file = format!("memory-backend-file,id=shared0,share=on,size={size}M,mem-path={path}");
        line.words(&["-object", &file]);
        // A device of conventional PCI, which no root port takes.
        line.words(&["-device", "ivshmem-plain,memdev=shared0"]);
    }
    line.words
}

#[derive(Debug, Default)]
struct Line {
    words: Vec<String>,
    /// Number of root ports.
    ports: usize,
}

impl Line {
    fn words(&mut self, words: &[&str]) {
        self.words.extend(words.iter().map(|word| (*word).to_owned()));
    }

    /// Adds a PCI device behind a root port of its own, as libvirt does. Beside the root ports, a
    /// virtio device would take its old form, which knows no IOMMU.
    fn device(&mut self, device: &str) {
        let port = self.ports;
        self.ports += 1;
        let chassis = self.ports;
        self.words(&["-device", &format!("pcie-root-port,id=port{port},chassis={chassis}")]);
        self.words(&["-device", &format!("{device},bus=port{port}")]);
    }
}

fn machine(guest: &Definition, line: &mut Line) {
    let (accelerator, processor) = match guest.accelerator {
        Accelerator::Kvm => ("kvm", "host,migratable=off,host-cache-info=on"),
        Accelerator::Tcg => ("tcg", "max"),
    };
    let split = match (guest.virtual_iommu, guest.accelerator) {
        (true, Accelerator::Kvm) => ",kernel-irqchip=split",
        _ => "",
    };
    line.words(&["-machine", &format!("q35,accel={accelerator}{split},memory-backend=mem0")]);
    line.words(&["-cpu", processor]);
    let cpus = guest.cpus;
    line.words(&["-smp", &format!("{cpus},sockets=1,dies=1,cores={cpus},threads=1")]);
    let size = guest.memory_mib;
    line.words(&["-m", &format!("{size}M")]);
    let mut memory = format!("memory-backend-memfd,id=mem0,size={size}M");
    if guest.huge_pages {
        memory.push_str(",hugetlb=on,prealloc=on");
    }
    if let Some(node) = guest.node {
        // Writing to a string cannot fail.
        _ = write!(memory, ",host-nodes={node},policy=bind");
    }
    line.words(&["-object", &memory]);
}

fn disk(disk: &Disk, line: &mut Line) {
    let (path, format) = (escaped(&disk.path), disk.format.word());
    let drive = format!("file={path},format={format},if=none,id=disk0,cache=none,aio=native");
    line.words(&["-drive", &drive]);
    line.device("virtio-blk-pci,drive=disk0,bootindex=1");
}

/// In a list of properties, a comma of a value is written twice.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Returns a script with the command, an option in each line.
pub fn script(guest: &Definition) -> String {
    let mut text = format!("#!/bin/sh\n# {}\n", guest.steps());
    for address in &guest.devices {
        // libvirt does this for a managed device.
        _ = writeln!(text, "# before: sudo driverctl set-override {address} vfio-pci");
    }
    text.push_str("exec");
    for word in of(guest) {
        let starts_option = word.starts_with('-') && word != "-c";
        text.push_str(if starts_option { " \\\n  " } else { " " });
        text.push_str(&quoted(&word));
    }
    text.push('\n');
    text
}

/// Returns a word as a shell's script has it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=,.:/+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        for word in ["a b", "it's", "", "$HOME", "a;b", "plain-1,x=/y"] {
            let command = format!("printf %s {}", quoted(word));
            let output = std::process::Command::new("/bin/sh").args(["-c", &command]).output();
            assert_eq!(output.unwrap().stdout, word.as_bytes(), "{command}");
        }
    }
}
