//! How the program in a guest reaches its pool.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use penstock_client::config::{KEY_VARIABLE, Surroundings};
use penstock_link::Key;
use penstock_vm::machine::{SharedMemory, Vsock, network};

use super::args::{Transport, VmRunArgs};
use crate::embedded::Embedded;
use crate::failure::Failure;
use crate::key;
use crate::run::{PrivateDirectory, guard};
use crate::table;

/// Device of the host's kernel for the vsock of guests.
const VHOST_VSOCK: &str = "/dev/vhost-vsock";

/// Smallest CID that this command gives to a guest. People number their own guests from 3.
const CID_MIN: u32 = 0x1000_0000;

/// Smallest port that no service has by agreement.
const PORT_MIN: u32 = 49152;

/// Name of the sockets of the monitor in the private directory. The port follows.
const MONITOR: &str = "vm";

/// Size of the memory that a guest shares with this host.
const MEMORY_BYTES: u64 = 256 << 20;

/// Modules of the kernel that every guest needs: the PCI bus of virtio, and the port through which
/// the program's output goes.
const MODULES: [&str; 2] = ["virtio_pci", "virtio_console"];

/// What a guest needs to reach its pool.
#[derive(Debug)]
pub struct Link {
    /// Value of `PENSTOCK_NODES` in the guest.
    pub nodes: String,
    /// The key file on this host.
    pub key: Option<PathBuf>,
    pub vsock: Option<Vsock>,
    pub network: bool,
    /// Modules of the guest's kernel.
    pub modules: Vec<&'static str>,
    /// How people call the way of the data.
    pub name: &'static str,
    /// Memory that the guest shares with this host.
    pub memory: Option<Memory>,
    /// The daemon for this guest alone. It ends when this value is dropped.
    _daemon: Option<Embedded>,
}

impl Link {
    /// Sets the host's side up. `has_helper` says whether this host has a program for vsock.
    pub fn set_up(
        args: &VmRunArgs,
        has_helper: bool,
        directory: &PrivateDirectory,
    ) -> Result<Self, Failure> {
        let transport = chosen(args.transport, has_helper || may_use(VHOST_VSOCK));
        if (&args.nodes, args.transport, transport) == (&None, None, Transport::Tcp) {
            table::say("this host has no vsock for this user; the guest reaches the pool over TCP");
        }
        match (&args.nodes, transport) {
            (Some(nodes), _) => Self::to_nodes(nodes),
            (None, Transport::Vsock) => Self::over_vsock(directory, None),
            (None, Transport::Shm) => {
                let memory = Memory::create()?;
                let mut link = Self::over_vsock(directory, Some(memory.path()))?;
                link.name = match link.vsock {
                    Some(Vsock::Helper { .. }) => {
                        "memory that it shares with the host, and vsock through vhost-device-vsock"
                    }
                    _ => "memory that it shares with the host, and vsock of the host's kernel",
                };
                Ok(Self { memory: Some(memory), ..link })
            }
            (None, Transport::Tcp) => Self::over_tcp(directory),
        }
    }

    fn over_vsock(directory: &PrivateDirectory, memory: Option<PathBuf>) -> Result<Self, Failure> {
        if may_use(VHOST_VSOCK) {
            Self::through_kernel(directory, memory)
        } else {
            Self::through_helper(directory, memory)
        }
    }

    /// The guest uses nodes that run already.
    fn to_nodes(nodes: &str) -> Result<Self, Failure> {
        let with = |scheme: &str| nodes.split(',').any(|it| it.trim().starts_with(scheme));
        let wrong = |reason: &str| Failure::Argument {
            argument: format!("--nodes {nodes}"),
            reason: reason.to_owned(),
        };
        if with("unix:") || nodes.split(',').any(|it| it.trim() == "local") {
            return Err(wrong("a guest reaches no Unix socket of its host; name a tcp: address"));
        }
        let vsock = with("vsock:").then(|| Vsock::Kernel { cid: cid() });
        if vsock.is_some() && !may_use(VHOST_VSOCK) {
            return Err(wrong(
                "this host has no /dev/vhost-vsock that this user may use; load the module \
                 vhost_vsock, or leave --nodes out",
            ));
        }
        let key = key::key_path().ok().filter(|path| path.exists());
        let network = !nodes.split(',').all(|it| it.trim().starts_with("vsock:"));
        Ok(Self::new(nodes.to_owned(), key, vsock, network, "the given nodes", None))
    }

    fn through_kernel(
        directory: &PrivateDirectory,
        memory: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let port = PORT_MIN + random() % (u32::from(u16::MAX) - PORT_MIN);
        let (daemon, key) = daemon(&format!("vsock:{port}"), memory, directory)?;
        let vsock = Some(Vsock::Kernel { cid: cid() });
        let nodes = format!("vsock:2:{port}");
        Ok(Self::new(nodes, Some(key), vsock, false, "vsock of the host's kernel", Some(daemon)))
    }

    fn through_helper(
        directory: &PrivateDirectory,
        memory: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let path = monitor_path(directory);
        let (daemon, key) = daemon(&format!("vsock:{}", path.display()), memory, directory)?;
        let vsock = Some(Vsock::Helper { socket: directory.path().join("vhost.sock") });
        let name = "vsock through vhost-device-vsock";
        Ok(Self::new("vsock:2".to_owned(), Some(key), vsock, false, name, Some(daemon)))
    }

    fn over_tcp(directory: &PrivateDirectory) -> Result<Self, Failure> {
        let (daemon, key) = daemon("tcp:127.0.0.1:0", None, directory)?;
        let port = daemon.address().rsplit(':').next().unwrap_or_default();
        let nodes = format!("tcp:{}:{port}", network::GATEWAY);
        Ok(Self::new(nodes, Some(key), None, true, "TCP over virtio-net", Some(daemon)))
    }

    fn new(
        nodes: String,
        key: Option<PathBuf>,
        vsock: Option<Vsock>,
        network: bool,
        name: &'static str,
        daemon: Option<Embedded>,
    ) -> Self {
        let mut modules = MODULES.to_vec();
        modules.extend(vsock.is_some().then_some("vmw_vsock_virtio_transport"));
        modules.extend(network.then_some("virtio_net"));
        Self { nodes, key, vsock, network, modules, name, memory: None, _daemon: daemon }
    }
}

/// Returns how the guest reaches the daemon if `asked` was asked for.
fn chosen(asked: Option<Transport>, has_vsock: bool) -> Transport {
    asked.unwrap_or(if has_vsock { Transport::Vsock } else { Transport::Tcp })
}

/// Memory that a guest shares with this host. Its guard removes it with this process.
#[derive(Debug)]
pub struct Memory(PrivateDirectory);

impl Memory {
    fn create() -> Result<Self, Failure> {
        let directory = PrivateDirectory::create_in_memory(&Surroundings::of_process())?;
        guard::start(&directory, false)?;
        Ok(Self(directory))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("memory")
    }

    pub fn of_machine(&self) -> SharedMemory {
        SharedMemory { path: self.path(), bytes: MEMORY_BYTES }
    }
}

/// Returns `PATH` of the monitor's sockets.
pub fn monitor_path(directory: &PrivateDirectory) -> PathBuf {
    directory.path().join(MONITOR)
}

/// Starts a daemon with a key of its own.
fn daemon(
    listen: &str,
    memory: Option<PathBuf>,
    directory: &PrivateDirectory,
) -> Result<(Embedded, PathBuf), Failure> {
    let key = directory.path().join("key");
    Key::create(&key)?;
    let variables = [(KEY_VARIABLE, key.as_path())];
    let mut options: Vec<OsString> = vec!["--listen".into(), listen.into()];
    if let Some(path) = memory {
        let mut text = OsString::from(format!("{listen}="));
        text.push(path);
        text.push(format!(",size={MEMORY_BYTES}"));
        options.extend(["--guest-memory".into(), text]);
    }
    let log = directory.path().join("daemon.log");
    let daemon = Embedded::start_with(&options, &variables, log)?;
    Ok((daemon, key))
}

/// Whether this user may read and write a device.
pub fn may_use(device: impl AsRef<Path>) -> bool {
    std::fs::File::options().read(true).write(true).open(device).is_ok()
}

/// Returns a number that probably no other guest of this host has. If one has it, QEMU says so.
fn cid() -> u32 {
    CID_MIN + random() % CID_MIN
}

fn random() -> u32 {
    let mut bytes = [0; 4];
    _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u32::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::vm::args::{AUTO, VmCommand};

    fn parsed(words: &[&str]) -> VmRunArgs {
        let cli = Cli::try_parse_from([&["penstock", "vm", "run"], words].concat()).unwrap();
        let Command::Vm(VmCommand::Run(args)) = cli.command else { panic!("{words:?}") };
        args
    }

    #[test]
    fn neither_a_kernel_nor_a_transport_must_be_named() {
        let args = parsed(&["--", "clinfo", "-l"]);
        assert_eq!((args.image.to_str(), args.program.len()), (Some(AUTO), 2));
        assert_eq!(chosen(args.transport, true), Transport::Vsock);
        assert_eq!(chosen(args.transport, false), Transport::Tcp);
        let args = parsed(&["--transport", "vsock", "/boot", "--", "true"]);
        assert_eq!(args.image.to_str(), Some("/boot"));
        assert_eq!(chosen(args.transport, false), Transport::Vsock, "what is asked for is used");
    }
}
