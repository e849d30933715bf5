//! `penstock slurm-node`: the guard of one node of a job, which `srun` starts.
//!
//! It makes the directory of the job on this node, runs the daemon, says where it listens, and
//! waits for the end of its standard input or for a signal. Then it ends the daemon and removes the
//! directory. Slurm sends SIGTERM when the job ends, and kills what is left after `KillWait` (30 s
//! by default). If `srun` is killed, Slurm kills the guard at once. In each case it then runs
//! [`remove`].

use std::io::{BufRead as _, Read as _};
use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::process::ExitCode;

use penstock_client::config::{KEY_VARIABLE, Surroundings};
use penstock_process::signals::Held;
use penstock_process::variable;
use rustix::event::{PollFd, PollFlags, poll};

use super::args::NodeArgs;
use super::error::SlurmError;
use super::job::{KEY_FILE, socket_name};
use super::muster;
use crate::embedded::Embedded;
use crate::failure::Failure;
use crate::run::{ENTRY_NAME, PrivateDirectory, guard, library};
use crate::table;

/// Longest line with a key: 64 digits, and room for the end of the line.
const KEY_LINE_BYTES_MAX: u64 = 80;

/// Port of the discard protocol, at which no packet arrives: this side only wants to know its own
/// address.
const NO_PORT: u16 = 9;

pub fn node(args: &NodeArgs) -> Result<ExitCode, Failure> {
    let held = Held::hold().map_err(SlurmError::Process)?;
    let name = variable::text("SLURMD_NODENAME").unwrap_or_default();
    let key = read_key().map_err(SlurmError::Process)?;
    let joined = PrivateDirectory::join_in_memory(&args.directory, &Surroundings::of_process());
    let directory = match joined {
        Ok(directory) => directory,
        Err(failure) => return Ok(refuse(&name, &failure)),
    };
    if key.is_empty() {
        // The command has ended already.
        directory.leave();
        return Ok(ExitCode::SUCCESS);
    }
    let daemon = serve(args, &directory, &key, &name);
    let code = match &daemon {
        Ok(daemon) => {
            let address = daemon.as_ref().map(|daemon| advertised(daemon.address(), &name));
            // Without a reader there is no program either.
            if table::print(&muster::ready(&name, address.as_deref())).is_ok() {
                wait_for_end(&held);
            }
            ExitCode::SUCCESS
        }
        Err(failure) => refuse(&name, failure),
    };
    drop(daemon);
    directory.leave();
    Ok(code)
}

/// Removes what a guard that was killed has left in the directory with this name. The epilog of the
/// guard's task.
pub fn remove(name: &str) -> Result<ExitCode, Failure> {
    PrivateDirectory::join_in_memory(name, &Surroundings::of_process())?.leave();
    Ok(ExitCode::SUCCESS)
}

/// Says why this node cannot be used.
fn refuse(name: &str, failure: &Failure) -> ExitCode {
    // Without a reader nobody wants to know it.
    _ = table::print(&muster::failed(name, &failure.to_string()));
    ExitCode::FAILURE
}

/// Reads the key, which `penstock slurm` has sent.
fn read_key() -> std::io::Result<String> {
    let mut key = String::new();
    std::io::stdin().lock().take(KEY_LINE_BYTES_MAX).read_line(&mut key)?;
    Ok(key)
}

/// Fills the directory, and starts the daemon if this node offers its devices.
fn serve(
    args: &NodeArgs,
    directory: &PrivateDirectory,
    key: &str,
    name: &str,
) -> Result<Option<Embedded>, Failure> {
    directory.put(KEY_FILE, key)?;
    directory.put(ENTRY_NAME, library::entry(&library::find()?))?;
    if !args.serve {
        return Ok(None);
    }
    let host = own_address().map_err(|source| SlurmError::Address { node: name.into(), source })?;
    let host = if host.is_ipv6() { format!("[{host}]") } else { host.to_string() };
    let socket = directory.path().join(socket_name(args.component));
    // The address of the first one is the one that the daemon says first.
    let listen = [format!("tcp:{host}:0"), format!("unix:{}", socket.display())];
    let options: Vec<_> =
        listen.into_iter().flat_map(|it| ["--listen".into(), it.into()]).collect();
    let key = directory.path().join(KEY_FILE);
    let variables = [(KEY_VARIABLE, &*key), (variable::KEYS.name, directory.path())];
    let log = directory.path().join(format!("daemon-{}.log", args.component));
    guard::start_daemon(directory, &options, &variables, log).map(Some)
}

/// Returns the address of this node in the network of the node on which the command runs.
fn own_address() -> std::io::Result<IpAddr> {
    let launcher = variable::text("SLURM_LAUNCH_NODE_IPADDR").unwrap_or_default();
    let launcher: IpAddr = launcher.parse().map_err(std::io::Error::other)?;
    let any: IpAddr = if launcher.is_ipv6() { [0; 16].into() } else { [0; 4].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((launcher, NO_PORT))?;
    Ok(socket.local_addr()?.ip())
}

/// Returns the daemon's address with the name of its node, if the name leads there and nowhere
/// else.
fn advertised(address: &str, node: &str) -> String {
    let named = || {
        let (host, port) = address.strip_prefix("tcp:")?.rsplit_once(':')?;
        let host: IpAddr = host.trim_matches(['[', ']']).parse().ok()?;
        let mut found = (node, 0).to_socket_addrs().ok()?.peekable();
        found.peek()?;
        found.all(|it| it.ip() == host).then(|| format!("tcp:{node}:{port}"))
    };
    named().unwrap_or_else(|| address.to_owned())
}

/// Waits for the end of standard input, or for a signal.
fn wait_for_end(held: &Held) {
    let stdin = std::io::stdin();
    loop {
        let mut files = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(held, PollFlags::IN)];
        let waited = poll(&mut files, None);
        let [has_input, has_signal] = files.map(|it| !it.revents().is_empty());
        match waited {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) if has_signal => return,
            Ok(_) => {}
        }
        // Nothing follows the key.
        if has_input && !matches!(stdin.lock().read(&mut [0; 64]), Ok(length) if length > 0) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_not_told() {
        assert_eq!(advertised("tcp:127.0.0.1:7", "no-such-host.invalid"), "tcp:127.0.0.1:7");
        assert_eq!(advertised("tcp:10.255.0.1:7", "localhost"), "tcp:10.255.0.1:7");
        assert_eq!(advertised("tcp:[fe80::1]:7", "localhost"), "tcp:[fe80::1]:7");
    }
}
