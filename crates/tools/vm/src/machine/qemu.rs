//! The command line of QEMU for a guest.

use std::ffi::OsString;
use std::path::Path;

use super::{Accelerator, Machine, SharedMemory, Vsock};
use crate::message::PORT;

/// Returns the arguments of QEMU.
pub fn arguments(machine: &Machine) -> Vec<OsString> {
    let mut line = Line::default();
    line.option("-name", &machine.name);
    // Nothing of the host's configuration, and no device that is not named here.
    for flag in ["-nodefaults", "-no-user-config", "-no-reboot"] {
        line.flag(flag);
    }
    line.option("-display", "none");
    of_processors(machine, &mut line);
    of_memory(machine, &mut line);
    of_boot(machine, &mut line);
    of_port(&machine.port, &mut line);
    if let Some(vsock) = &machine.vsock {
        of_vsock(vsock, &mut line);
    }
    if let Some(SharedMemory { path, bytes }) = &machine.memory {
        let start = format!("memory-backend-file,id=shared0,share=on,size={bytes},mem-path=");
        line.with_path("-object", &start, path);
        line.option("-device", "ivshmem-plain,memdev=shared0");
    }
    if machine.network {
        line.option("-netdev", "user,id=net0");
        line.option("-device", "virtio-net-pci,netdev=net0,romfile=");
    }
    line.words
}

#[derive(Debug, Default)]
struct Line {
    words: Vec<OsString>,
}

impl Line {
    fn flag(&mut self, flag: &str) {
        self.words.push(flag.into());
    }

    fn option(&mut self, option: &str, value: &str) {
        self.words.push(option.into());
        self.words.push(value.into());
    }

    fn path(&mut self, option: &str, value: &Path) {
        self.words.push(option.into());
        self.words.push(value.into());
    }

    /// Adds an option whose last part is a path.
    fn with_path(&mut self, option: &str, start: &str, path: &Path) {
        let mut value = OsString::from(start);
        value.push(escaped(path));
        self.words.push(option.into());
        self.words.push(value);
    }
}

/// In a list of properties, a comma of a value is written twice.
fn escaped(path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let bytes = path.as_os_str().as_bytes();
    let twice = |byte: &u8| std::iter::repeat_n(*byte, if *byte == b',' { 2 } else { 1 });
    OsString::from_vec(bytes.iter().flat_map(twice).collect())
}

fn of_processors(machine: &Machine, line: &mut Line) {
    let (accelerator, model) = match machine.accelerator {
        Accelerator::Kvm => ("kvm", "host"),
        // One thread for each processor.
        Accelerator::Tcg => ("tcg,thread=multi", "max"),
    };
    line.option("-accel", accelerator);
    line.option("-cpu", model);
    line.option("-smp", &machine.cpus.to_string());
}

fn of_memory(machine: &Machine, line: &mut Line) {
    let size = machine.memory_mib;
    line.option("-m", &format!("{size}M"));
    // A process of the host that ends vsock reads and writes the guest's memory.
    if matches!(machine.vsock, Some(Vsock::Helper { .. })) {
        line.option("-object", &format!("memory-backend-memfd,id=mem0,size={size}M,share=on"));
        line.option("-machine", "q35,memory-backend=mem0");
    } else {
        line.option("-machine", "q35");
    }
}

fn of_boot(machine: &Machine, line: &mut Line) {
    line.path("-kernel", &machine.boot.kernel);
    line.path("-initrd", &machine.boot.initramfs);
    line.option("-append", &machine.boot.command_line);
    line.option("-chardev", "stdio,id=console0,signal=off");
    line.option("-serial", "chardev:console0");
}

fn of_port(socket: &Path, line: &mut Line) {
    line.with_path("-chardev", "socket,id=run0,path=", socket);
    line.option("-device", "virtio-serial-pci");
    line.option("-device", &format!("virtserialport,chardev=run0,name={PORT}"));
}

fn of_vsock(vsock: &Vsock, line: &mut Line) {
    match vsock {
        Vsock::Kernel { cid } => {
            line.option("-device", &format!("vhost-vsock-pci,guest-cid={cid}"));
        }
        Vsock::Helper { socket } => {
            line.with_path("-chardev", "socket,id=vsock0,path=", socket);
            line.option("-device", "vhost-user-vsock-pci,chardev=vsock0");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_in_a_path_ends_no_property() {
        assert_eq!(escaped(Path::new("/a,b/c")), "/a,,b/c");
    }
}
