//! The command line of `penstock vm`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, value_parser};

/// Word for a kernel that the command looks for.
pub const AUTO: &str = "auto";

const AFTER_RUN: &str = "\
Examples:
  penstock vm run -- clinfo -l
  penstock vm run --transport tcp -- ./program --its-option
  penstock vm run linux-image-6.1.0-53-cloud-amd64_6.1.187-1_amd64.deb -- penstock devices

Image:
IMAGE is a kernel with its modules: a folder with boot/vmlinuz-VERSION and lib/modules/VERSION, or \
a Debian package (.deb), which need not be installed. Without it, or with `auto`, the command \
takes the kernel that the setup of Penstock's tests has fetched, or that of this host. Debian's \
linux-image-cloud-amd64 is the smallest kernel that has everything. The rest of the guest is made \
anew for each run: it contains the program, its shared libraries, Penstock, and the files of \
--file, all at the paths that they have on this host. Nothing of it stays. This host runs the \
loader that the program file names to list the libraries, and refuses one that somebody other than \
root could have put there.

CUDA:
If the CUDA runtime is linked into a program, that program must be PROGRAM itself. A script cannot \
start it, because only the file of PROGRAM is examined.

Pool:
The command starts a daemon for the devices of this host, which serves only this guest, and ends \
with it. With --nodes, the guest uses these nodes instead: tcp: addresses, which the guest reaches \
through QEMU's user-mode network (tcp:10.0.2.2 is this host), and vsock:2 for a daemon of this \
host that listens on vsock.

Virtual machine:
QEMU runs the guest with KVM if that works, and otherwise emulates it; the command says which. It \
needs no root. With --transport vsock the host's end is the kernel's vhost_vsock if this user may \
use it, and otherwise vhost-device-vsock, a program that must be in PATH. If there is neither, and \
no --transport is given, the guest reaches the pool over TCP, and the command says so.

Exit status:
That of the program, or 128 plus the number of the signal that ended it; 124 if it took longer \
than --timeout; 125 if the guest could not be started or was lost, 126 if the program cannot be \
executed, 127 if it is not found.";

const AFTER_DEFINE: &str = "\
Examples:
  penstock vm define solver --disk /var/lib/libvirt/images/solver.qcow2 > solver.xml
  virsh define solver.xml
  penstock vm define solver --device 0000:65:00.0 --cpus 8 --memory 20480 --format qemu
  penstock vm define solver --transport shm
  penstock vm define solver --root /tmp/gpu07.tree

Devices:
Without --device, the guest gets the devices that are set aside for guests: those to which the \
driver vfio-pci is bound, such as GPUs and virtual functions of network cards (SR-IOV). A guest \
gets all functions of a card that are in one IOMMU group.

Placement:
If the guest gets a device, its CPUs, its memory and its huge pages are those of the NUMA node of \
that device. --node names another one, or one for a guest without devices.

Output:
The command only prints, and changes nothing. Both forms describe the same guest. QEMU itself \
cannot pin each of its threads to one CPU: its form pins all of them to the same CPUs with \
taskset. It does not bind devices to vfio-pci either, which libvirt does.

Exit status:
0 if the guest is printed; 2 if the command line is wrong; 125 if this host cannot have such a \
guest.";

const AFTER_CHECK: &str = "\
Examples:
  penstock vm check /etc/libvirt/qemu/solver.xml
  virsh dumpxml solver | penstock vm check -

Findings:
The checks are those of `penstock doctor` about domains; docs/doctor.md lists them. Each finding \
says what was seen, why that matters, and which element repairs it. A guest that `penstock vm \
define` describes has no findings on the same host.

Exit status:
0 if there are no findings or only notes; 1 if the worst finding is a warning; 2 if it is an \
error, or if the command line is wrong; 125 if the command could not look.";

#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// Boot a small guest, run a program in it on the devices of this host, and return its exit
    /// status
    #[command(
        after_help = AFTER_RUN,
        override_usage = "penstock vm run [OPTIONS] [IMAGE] -- PROGRAM [ARGS]..."
    )]
    Run(VmRunArgs),
    /// Print a libvirt domain, or a QEMU command line, for a guest that is placed well on this host
    #[command(after_help = AFTER_DEFINE)]
    Define(VmDefineArgs),
    /// Say what is wrong with a libvirt domain on this host, with the corrected elements
    #[command(after_help = AFTER_CHECK)]
    Check(VmCheckArgs),
}

#[derive(Args, Debug)]
pub struct VmCheckArgs {
    /// XML of the domain, or - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write the findings as JSON
    #[arg(long)]
    pub json: bool,
    /// Check against a copy of another host's files: see penstock-doctor(1)
    #[arg(long, value_name = "PATH")]
    pub root: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct VmDefineArgs {
    /// Name of the guest
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What to print
    #[arg(long, value_enum, default_value_t = Form::Libvirt)]
    pub format: Form,
    /// How programs in the guest reach the pool
    #[arg(long, value_enum, default_value_t = Transport::Vsock)]
    pub transport: Transport,
    /// Number of the guest for vsock, which no other guest of the host has [default: 3]
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(3..0xffff_ffff))]
    pub cid: Option<u32>,
    /// Give the guest a network card, also if the pool needs none
    #[arg(long)]
    pub network: bool,
    /// Image of the guest's disk; a name that ends with .qcow2 has that format, others are raw
    #[arg(long, value_name = "FILE")]
    pub disk: Option<PathBuf>,
    /// Pass this PCI device through. Can be given several times [default: all devices that are
    /// bound to vfio-pci]
    #[arg(long, value_name = "ADDRESS")]
    pub device: Vec<String>,
    /// Pass no device through
    #[arg(long, conflicts_with = "device")]
    pub no_devices: bool,
    /// Number of processors of the guest [default: 8, or all of the NUMA node if it has fewer]
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=255))]
    pub cpus: Option<u32>,
    /// Memory of the guest in MiB [default: 4096]
    #[arg(long, value_name = "MIB", value_parser = value_parser!(u64).range(64..=1 << 24))]
    pub memory: Option<u64>,
    /// NUMA node for CPUs and memory [default: that of the devices]
    #[arg(long, value_name = "NUMBER")]
    pub node: Option<u32>,
    /// Do not use huge pages, also if a device is passed through
    #[arg(long)]
    pub no_huge_pages: bool,
    /// Give the guest an IOMMU of its own, for guests that use VFIO themselves
    #[arg(long)]
    pub virtual_iommu: bool,
    /// Read the facts from a copy of another host's files: see penstock-doctor(1)
    #[arg(long, value_name = "PATH")]
    pub root: Option<PathBuf>,
}

/// What `penstock vm define` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A domain for virsh define
    Libvirt,
    /// A shell script that starts QEMU
    Qemu,
}

#[derive(Args, Debug)]
pub struct VmRunArgs {
    /// Kernel of the guest: a folder, a Debian package, or auto
    #[arg(value_name = "IMAGE", default_value = AUTO)]
    pub image: PathBuf,
    /// How the guest reaches the daemon of this host [default: vsock, or tcp if this host has no
    /// end for vsock]
    #[arg(long, value_enum)]
    pub transport: Option<Transport>,
    /// Nodes that the guest uses, instead of a daemon for this guest alone
    #[arg(long, value_name = "LIST")]
    pub nodes: Option<String>,
    /// Memory of the guest in MiB [default: what its files need, and 192]
    #[arg(long, value_name = "MIB", value_parser = value_parser!(u64).range(64..=1 << 20))]
    pub memory: Option<u64>,
    /// Number of processors of the guest
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u32).range(1..=255))]
    pub cpus: u32,
    /// End the guest if the program takes longer than this
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..=31_536_000))]
    pub timeout: Option<u64>,
    /// Fail if KVM does not work, instead of emulating the guest
    #[arg(long, overrides_with = "no_kvm")]
    pub kvm: bool,
    /// Emulate the guest, also if KVM works
    #[arg(long)]
    pub no_kvm: bool,
    /// Copy this file or folder into the guest, at the same path or at GUESTPATH, with the
    /// libraries of the programs in it. Can be given several times
    #[arg(long, value_name = "PATH[=GUESTPATH]")]
    pub file: Vec<OsString>,
    /// Give the program this variable, with this command's value or VALUE. Can be given several
    /// times
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<OsString>,
    /// Show the guest's console and the times on standard error
    #[arg(long)]
    pub verbose: bool,
    /// When the program has ended, write what became of it and of the guest as JSON on standard
    /// error
    #[arg(long)]
    pub json: bool,
    /// Write the JSON to this file instead
    #[arg(long, value_name = "FILE", requires = "json")]
    pub output: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// How a guest reaches the daemon of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// vsock, which needs no network
    Vsock,
    /// Memory that guest and host share, with vsock for wake-ups
    Shm,
    /// TCP over a virtual network card
    Tcp,
}
