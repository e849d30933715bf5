//! The guest's side: the first process of a guest.
//!
//! The kernel starts it from the initramfs. It mounts the kernel's file systems, loads the modules,
//! starts the program, and carries the program's input and output through the virtio port. When
//! the program has ended, it powers the guest off.

mod carry;
mod network;
pub mod paths;

use std::ffi::{CStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};
use serde::{Deserialize, Serialize};

use crate::limits::CONNECT_MAX;
use crate::message::{Message, PORT};

/// First argument of the command `penstock` when it is the first process of a guest.
pub const WORD: &str = "guest-init";

/// Name of a guest. Without one its name would be `(none)`, which no resolver takes.
pub const HOST_NAME: &str = "guest";
const HOST_NAME_FILE: &str = "/proc/sys/kernel/hostname";

/// Exit status if the guest failed before the program started.
const GUEST_FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Added to the number of a signal.
const BY_SIGNAL: i32 = 128;

/// What the first process starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// All variables of the program.
    pub variables: Vec<Variable>,
    /// Directory in which the program starts.
    pub directory: PathBuf,
    /// Whether the guest has a network card that must be set up.
    pub network: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    pub name: OsString,
    pub value: OsString,
}

/// Runs the program and powers off. If the first process ended, the kernel would panic, so it never
/// returns.
pub fn main() -> ! {
    if let Err(error) = serve() {
        // The host shows the end of the console.
        eprintln!("penstock: the guest's first process: {error}");
    }
    _ = io::stderr().flush();
    loop {
        if let Err(error) = reboot(RebootCommand::PowerOff) {
            eprintln!("penstock: the guest cannot be powered off: {error}");
        }
        thread::sleep(Duration::from_secs(1));
    }
}

fn serve() -> io::Result<()> {
    mount_all()?;
    let loaded = load_modules();
    let mut port = open_port()?;
    let started = loaded.and_then(|()| start());
    match started {
        Ok(mut child) => {
            send(&mut port, &Message::Ready)?;
            let status = carry::until_end(&mut port, &mut child)?;
            send(&mut port, &Message::Exit(number(status)))
        }
        Err(error) => {
            let status = match error.kind() {
                _ if !error.is_program => GUEST_FAILED,
                io::ErrorKind::NotFound => NOT_FOUND,
                _ => NOT_EXECUTABLE,
            };
            send(&mut port, &Message::NotStarted { status, why: error.to_string() })
        }
    }
}

fn send(port: &mut File, message: &Message) -> io::Result<()> {
    // The port takes a whole message, and returns when the host has it.
    port.write_all(&message.bytes())
}

fn number(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| Some(BY_SIGNAL + status.signal()?));
    number.and_then(|it| u8::try_from(it).ok()).unwrap_or(GUEST_FAILED)
}

/// Why the program did not start.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
struct NotStarted {
    what: String,
    source: io::Error,
    /// Whether the program itself is the reason.
    is_program: bool,
}

impl NotStarted {
    fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

/// For `map_err`: the guest could not do `what`.
fn failed<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> NotStarted {
    move |source| NotStarted { what: what.into(), source: source.into(), is_program: false }
}

fn mount_all() -> io::Result<()> {
    for (kind, place) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        mount(kind, place, kind, MountFlags::empty(), None::<&CStr>)?;
    }
    fs::create_dir_all("/dev/shm")?;
    mount("tmpfs", "/dev/shm", "tmpfs", MountFlags::empty(), None::<&CStr>)?;
    // What shells and programs expect beside the kernel's devices.
    for (name, target) in [("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0")] {
        std::os::unix::fs::symlink(target, Path::new("/dev").join(name))?;
    }
    for (name, target) in [("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")] {
        std::os::unix::fs::symlink(target, Path::new("/dev").join(name))?;
    }
    Ok(())
}

fn load_modules() -> Result<(), NotStarted> {
    let list = fs::read_to_string(paths::MODULES).map_err(failed(paths::MODULES))?;
    for path in list.lines() {
        let file = File::open(path).map_err(failed(path))?;
        match finit_module(&file, c"", 0) {
            // Another module has loaded it, or it is part of the kernel.
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(failed(path)(error)),
        }
    }
    Ok(())
}

/// Opens the virtio port. The kernel makes its node some time after the module was loaded.
fn open_port() -> io::Result<File> {
    let deadline = Instant::now() + CONNECT_MAX;
    loop {
        let ports = fs::read_dir("/sys/class/virtio-ports").into_iter().flatten().flatten();
        let is_ours = |path: &PathBuf| {
            fs::read_to_string(path.join("name")).is_ok_and(|name| name.trim() == PORT)
        };
        let port = ports.map(|entry| entry.path()).find(is_ours);
        if let Some(name) = port.as_deref().and_then(Path::file_name) {
            return File::options().read(true).write(true).open(Path::new("/dev").join(name));
        }
        if Instant::now() > deadline {
            let why = format!("there is no virtio port {PORT}");
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn start() -> Result<Child, NotStarted> {
    let text = fs::read(paths::START).map_err(failed(paths::START))?;
    let start: Start = serde_json::from_slice(&text)
        .map_err(|error| failed(paths::START)(io::Error::other(error)))?;
    fs::write(HOST_NAME_FILE, HOST_NAME).map_err(failed(HOST_NAME_FILE))?;
    network::set_up_loopback().map_err(failed("the loopback"))?;
    if start.network {
        network::set_up_card().map_err(failed("the network card"))?;
    }
    let mut command = Command::new(&start.program);
    command.args(&start.arguments).env_clear().current_dir(&start.directory);
    command.envs(start.variables.iter().map(|it| (&it.name, &it.value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|source| NotStarted {
        what: start.program.display().to_string(),
        source,
        is_program: true,
    })
}
