//! The tests of all transports, over a bridge of this process in place of a program `ssh`. A host
//! is the folder of one test.

use std::ffi::OsString;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use super::bridge::bridge;
use super::process::{self, Running};
use crate::error::LinkError;
use crate::invitation::Offer;
use crate::stream::Stream;
use crate::transport::tests::TestAddresses;

pub(in crate::transport) fn addresses(folder: &Path) -> TestAddresses {
    let mut addresses = TestAddresses::at(format!("unix:{}", folder.join("socket").display()));
    addresses.connect = Some(format!("ssh:{}", folder.file_name().unwrap().display()));
    addresses
}

/// Stands in for `ssh`: bridges to the socket in the folder that the host names. A host that
/// nobody serves is a script.
pub(super) fn start(words: &[OsString]) -> io::Result<Running> {
    let [.., host, _bridge] = words else { panic!("no host in {words:?}") };
    let folder = std::env::temp_dir().join(host);
    let Ok(daemon) = UnixStream::connect(folder.join("socket")) else {
        let process = std::process::id().to_string();
        let script = script(host.to_str().unwrap()).replace("PROCESS", &process);
        return process::start(&["sh", "-c", &script].map(OsString::from));
    };
    let Running { socket, messages } = process::start(&["true".into()])?;
    drop(socket);
    let (socket, theirs) = UnixStream::pair()?;
    thread::spawn(move || {
        let input = theirs.try_clone().unwrap();
        _ = bridge(input, &theirs, &Offer::NotAsked, || Ok(daemon));
        // A process would close all its descriptors.
        _ = theirs.shutdown(Shutdown::Both);
    });
    Ok(Running { socket: OwnedFd::from(socket), messages })
}

fn script(host: &str) -> &str {
    match host {
        // The first three logins find a crowd.
        "crowded" => {
            "cd ${TMPDIR:-/tmp}
             for turn in 1 2 3; do
                 mkdir penstock-crowd-PROCESS-$turn 2>/dev/null || continue
                 echo 'kex_exchange_identification: Connection closed by remote host' >&2; exit 255
             done
             rmdir penstock-crowd-PROCESS-?
             echo 'ssh: connect to host x port 22: No route to host' >&2; exit 255"
        }
        "noisy" => "yes motd; exit 1",
        "other" => "printf '\\n\\036penstock-bridge\\036 2 user=0\\n'; sleep 10",
        "nologin" => "echo This account is not available; exit 1",
        "broken" => {
            "printf 'motd\\n\\036penstock-bridge\\036 1 user=0\\n'; read one
             echo 'Timeout, server broken not responding.' >&2; exit 255"
        }
        _ => "echo 'ssh: connect to host x port 22: Connection refused' >&2; exit 255",
    }
}

fn connect(host: &str) -> Result<Stream, LinkError> {
    let limit = match host {
        "silent" => std::time::Instant::now() + std::time::Duration::from_secs(1),
        _ => penstock_trial::deadline(),
    };
    Stream::connect(&format!("ssh:{host}").parse().unwrap(), limit)
}

#[test]
fn a_node_without_a_bridge_is_an_error_that_names_the_node_and_a_remedy() {
    for (host, why) in [
        ("silent", "cannot reach ssh:silent: no SSH server answers at its port"),
        ("noisy", "its login scripts write more than 64 KiB to standard output (it wrote: motd)"),
        ("other", "its bridge is of another release; install the same one"),
        ("crowded", "the host does not answer (ssh: connect to host x port 22: No route"),
        ("nologin", "status 1 before it was a bridge (it wrote: This account is not available)"),
    ] {
        let error = connect(host).unwrap_err();
        assert!(matches!(error, LinkError::Login { .. }), "{error:?}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_connection_that_breaks_is_an_error_with_the_reason_of_ssh() {
    let stream = connect("broken").unwrap();
    let soon = penstock_trial::deadline();
    stream.write_all_until(b"go\n", soon).unwrap();
    let error = stream.read_exact_until(&mut [0], soon).unwrap_err().to_string();
    assert!(error.starts_with("the connection through SSH has ended: the node has not"), "{error}");
    assert!(error.contains("Timeout, server broken not responding"), "{error}");
    // A thread that only looks gets the same reason.
    assert!(stream.has_hung_up());
    assert_eq!(stream.why_hung_up().to_string(), error);
}
