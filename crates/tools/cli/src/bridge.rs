//! `penstock bridge`: what SSH runs on a node for a program on another host.
//!
//! It finds the daemon of its user, or starts one, and copies bytes between its standard input and
//! output and the daemon's socket. For a session it first asks the daemon for a one-time key, with
//! which the client may connect directly, and copies nothing if the client does. A lock keeps two
//! bridges from starting two daemons, and a daemon that ends by itself from ending while a bridge
//! connects.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use penstock_client::config::Surroundings;
use penstock_daemon::open_lock;
use penstock_link::{Address, Offer, Stream};

use crate::args::BridgeArgs;
use crate::embedded::{START_MAX, await_listening, last_line};
use crate::failure::Failure;
use crate::serve::{BRIDGE_LOCK, own_directory};
use crate::table;

/// Time without a client after which a daemon ends that a bridge has started. A person who changes
/// a program and runs it again finds the daemon, whose start takes about a second, and a node that
/// nobody uses has no processes left soon after.
const IDLE_END_S: u32 = 300;

/// Longest wait for a place in the queue of the daemon's socket. Only a daemon that is stopped
/// leaves connections there.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Pause between two looks at a lock that another bridge holds.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

pub fn bridge(args: &BridgeArgs) -> Result<ExitCode, Failure> {
    if !args.check && io::stdin().is_terminal() {
        return Err(Failure::Argument {
            argument: "bridge".into(),
            reason: "SSH runs this command for programs on other hosts; try `penstock bridge \
                     --check`"
                .into(),
        });
    }
    let surroundings = Surroundings::of_process();
    let (daemon, has_started) = find_or_start(&surroundings)?;
    if args.check {
        let how = if has_started { "was started and listens" } else { "listens" };
        let socket = surroundings.own_socket();
        table::print(&format!("your daemon {how} on unix:{}\n", socket.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    // Without the buffers of `std::io::stdin` and `stdout`.
    let plain = |fd: io::Result<OwnedFd>| fd.map(File::from).map_err(Failure::Output);
    let input = plain(io::stdin().as_fd().try_clone_to_owned())?;
    let output = plain(io::stdout().as_fd().try_clone_to_owned())?;
    let (offer, daemon) =
        if args.direct { offer(daemon)? } else { (Offer::NotAsked, Some(daemon)) };
    // A daemon that has been asked for a key takes another connection for the bytes of a client.
    let connect = || match daemon {
        Some(daemon) => blocking(daemon, &surroundings.own_socket()),
        None => {
            let again = find_or_start(&surroundings).map_err(io::Error::other)?;
            blocking(again.0, &surroundings.own_socket())
        }
    };
    // The client learns of the end by the hang-up, whatever its reason is.
    _ = penstock_link::bridge(input, output, &offer, connect);
    Ok(ExitCode::SUCCESS)
}

/// Asks the daemon for a one-time key, unless this user forbids that. Returns the connection if it
/// was not needed.
fn offer(daemon: Stream) -> Result<(Offer, Option<Stream>), Failure> {
    let allowed = penstock_link::direct_ssh_allowed().map_err(failed)?;
    if !allowed {
        return Ok((Offer::Forbidden, Some(daemon)));
    }
    // Without it, this process was not started by an SSH server.
    let connection = penstock_process::variable::text("SSH_CONNECTION");
    let at = connection.and_then(|text| server_address(&text));
    let Some(at) = at else { return Ok((Offer::Unavailable, Some(daemon))) };
    // A daemon of an earlier release refuses, and takes clients through this bridge.
    let asked = penstock_link::ask_for_invitation(daemon, at, Instant::now() + CONNECT_MAX);
    Ok((asked.unwrap_or(Offer::Unavailable), None))
}

/// Returns the address of this host in `SSH_CONNECTION`: "client IP address, client port number,
/// server IP address, and server port number" (ssh(1)). Returns `None` for an address with a zone,
/// which means nothing to the client.
fn server_address(connection: &str) -> Option<IpAddr> {
    connection.split_ascii_whitespace().nth(2)?.parse().ok()
}

fn blocking(daemon: Stream, socket: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::from(daemon.into_socket().map_err(io::Error::other)?);
    let set = stream.set_nonblocking(false).map_err(Failure::file(socket, "use"));
    set.map_err(io::Error::other)?;
    Ok(stream)
}

/// Connects to the user's own daemon. Starts one if none runs, and also returns whether it did.
fn find_or_start(surroundings: &Surroundings<'_>) -> Result<(Stream, bool), Failure> {
    let directory = own_directory(surroundings)?;
    let socket = surroundings.own_socket();
    let _turn = take_turn(&directory.join(BRIDGE_LOCK))?;
    if let Some(daemon) = connect(&socket)? {
        return Ok((daemon, false));
    }
    start(&directory.join("daemon.log"))?;
    let daemon = connect(&socket)?.ok_or_else(|| failed("it ended at once".into()))?;
    Ok((daemon, true))
}

/// Waits until no other bridge connects or starts a daemon.
fn take_turn(path: &Path) -> Result<File, Failure> {
    let lock = open_lock(path).map_err(Failure::file(path, "open"))?;
    // The holder of the lock may start a daemon, and then this bridge finds it.
    let deadline = Instant::now() + START_MAX + CONNECT_MAX;
    while lock.try_lock().is_err() {
        if Instant::now() >= deadline {
            return Err(failed(format!("another bridge holds {} and hangs", path.display())));
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    Ok(lock)
}

/// Connects to the socket. Returns `None` if nobody listens there.
fn connect(socket: &Path) -> Result<Option<Stream>, Failure> {
    match Stream::connect(&Address::unix(socket), Instant::now() + CONNECT_MAX) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if error.is_nobody_there() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Starts a daemon that outlives this process, and waits until it listens.
fn start(log: &Path) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(["serve", "--detached", "--idle-end", &IDLE_END_S.to_string()]);
    // It must not hold what the SSH server waits for.
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(File::create(log).map_err(Failure::file(log, "write"))?);
    let mut daemon = command.spawn().map_err(|error| failed(error.to_string()))?;
    let output = daemon.stdout.take().ok_or_else(|| failed("it has no output".into()))?;
    await_listening(output).map(drop).map_err(|reason| {
        // A daemon that hangs would keep its socket.
        _ = daemon.kill();
        _ = daemon.wait();
        failed(last_line(log).unwrap_or(reason))
    })
}

fn failed(reason: String) -> Failure {
    Failure::Daemon(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_address_is_the_third_word() {
        let of = |text| server_address(text).map(|it| it.to_string());
        assert_eq!(of("10.0.0.1 5000 10.0.0.2 22").as_deref(), Some("10.0.0.2"));
        assert_eq!(of("::1 5000 2001:db8::2 22").as_deref(), Some("2001:db8::2"));
        for text in ["", "10.0.0.1 5000", "a 1 b 2", "fe80::1%eth0 1 fe80::2%eth0 22"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
