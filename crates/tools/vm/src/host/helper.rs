//! `vhost-device-vsock`, which ends a guest's vsock in Unix sockets of the host.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::Tools;
use super::bound::{self, Bound};
use crate::error::VmError;
use crate::limits::HELPER_START_MAX;

/// CID of a guest. Each guest has a process of its own, so all may have the same number.
const GUEST_CID: u32 = 3;

/// Flag of a listening socket in /proc/net/unix (`__SO_ACCEPTCON`).
const LISTENS: &str = "00010000";

/// Starts the process. It offers `socket` to QEMU, and connects to `PATH_PORT` for the guest.
pub fn start(tools: &Tools, socket: &Path, path: &Path) -> Result<Bound, VmError> {
    const WHAT: &str = "vhost-device-vsock";
    let missing = || VmError::Missing {
        what: WHAT.into(),
        remedy: "install it (cargo install --locked vhost-device-vsock), or use --transport tcp"
            .into(),
    };
    let program = tools.vsock_helper.as_deref().ok_or_else(missing)?;
    // An earlier guest may have had it.
    _ = fs::remove_file(socket);
    let mut command = bound::command(tools, program);
    command.arg("--guest-cid").arg(GUEST_CID.to_string());
    command.arg("--socket").arg(socket).arg("--uds-path").arg(path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = Bound::start(command, WHAT)?;
    let failed = |how: String| VmError::Process { what: WHAT.into(), how };
    let deadline = Instant::now() + HELPER_START_MAX;
    while !listens(socket) {
        if process.has_ended() {
            let how = process.end().unwrap_or_default();
            return Err(failed(format!("it ended at once ({how})")));
        }
        if Instant::now() > deadline {
            let limit = HELPER_START_MAX.as_secs();
            return Err(failed(format!("it did not listen within {limit} s")));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(process)
}

/// Whether a process listens at the socket. A connection would tell it, too, but the process takes
/// only one.
fn listens(socket: &Path) -> bool {
    let Ok(list) = fs::read("/proc/net/unix") else { return socket.exists() };
    let list = String::from_utf8_lossy(&list);
    let name = socket.to_string_lossy();
    list.lines().any(|line| {
        line.split_whitespace().nth(3) == Some(LISTENS) && line.ends_with(&format!(" {name}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_a_listening_socket_listens() {
        let folder = std::env::temp_dir().join(format!("penstock-vm-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (open, closed) = (folder.join("open"), folder.join("closed"));
        let _listener = UnixListener::bind(&open).unwrap();
        drop(UnixListener::bind(&closed).unwrap());
        assert!(closed.exists() && listens(&open) && !listens(&closed));
        fs::remove_dir_all(&folder).unwrap();
    }
}
