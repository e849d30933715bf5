mod monitor;
mod silence;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use penstock_trial::Need;

use super::place;
use crate::address::Address;
use crate::error::LinkError;
use crate::listener::Listener;
use crate::stream::Stream;
use crate::transport::contract::{Completion, Purpose};
use crate::transport::tests::TestAddresses;

/// Returns the address of this machine, which needs the kernel's loopback for vsock. CID 2 would be
/// the real host of the machine that runs the tests, so no test connects there.
pub(in crate::transport) fn addresses(_folder: &Path) -> TestAddresses {
    match place::check_loopback() {
        Ok(()) => TestAddresses::at("vsock:1:0".to_owned()),
        Err(error) => {
            TestAddresses::lacking(Need::Vsock, format!("{}: {error}", place::NO_LOOPBACK))
        }
    }
}

mod through_a_monitor {
    crate::transport::tests::over!(crate::transport::vsock::tests::addresses_of_a_monitor);
}

/// Returns the address of a monitor that passes connections of the host to a "guest", which listens
/// where a guest's own connections to the host arrive.
fn addresses_of_a_monitor(folder: &Path) -> TestAddresses {
    TestAddresses::at(monitor::start(folder, Arc::default()))
}

fn read(text: &str, purpose: Purpose) -> Result<String, String> {
    let path = &|path: &str| Path::new("/home").join(path);
    Address::read(text, &Completion { port: Some(7367), path, purpose })
        .map(|address| address.to_string())
        .map_err(|error| error.to_string())
}

#[test]
fn one_number_is_the_port_of_a_listener_and_the_machine_of_a_client() {
    for (text, listening, connecting) in [
        ("vsock:5", "vsock:any:5", "vsock:5:7367"),
        ("vsock:2", "vsock:any:2", "vsock:2:7367"),
        ("vsock:2:5", "vsock:2:5", "vsock:2:5"),
        ("vsock:any:5", "vsock:any:5", "vsock:any:5"),
        ("vsock:02:05", "vsock:2:5", "vsock:2:5"),
        ("vsock:/run/guest:5", "vsock:/run/guest:5", "vsock:/run/guest:5"),
        ("vsock:/run/guest", "vsock:/run/guest:7367", "vsock:/run/guest:7367"),
        ("vsock:./guest:5", "vsock:/home/./guest:5", "vsock:/home/./guest:5"),
        ("vsock:/a:b/guest", "vsock:/a:b/guest:7367", "vsock:/a:b/guest:7367"),
    ] {
        assert_eq!(read(text, Purpose::Listen).as_deref(), Ok(listening), "{text}");
        assert_eq!(read(text, Purpose::Connect).as_deref(), Ok(connecting), "{text}");
        assert_eq!(connecting.parse::<Address>().unwrap().to_string(), connecting);
    }
}

#[test]
fn an_address_that_names_no_machine_or_no_port_is_refused() {
    for (text, why) in [
        ("vsock:", "the CID is missing"),
        ("vsock:host", "the CID is neither a number nor `any`"),
        ("vsock:-1:5", "the CID is neither a number nor `any`"),
        ("vsock:4294967295:5", "the CID is neither a number nor `any`"),
        ("vsock:2:4294967295", "the port is not a number from 0 to 4294967294"),
        ("vsock:2:", "the port is not a number"),
        ("vsock:2:5:6", "the port is not a number"),
        ("vsock:/run/guest:x", "the port is not a number"),
        ("vsock:/run/guest\0:5", "a zero byte"),
    ] {
        let error = read(text, Purpose::Connect).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
    for text in ["vsock:2", "vsock:/run/guest"] {
        let error = text.parse::<Address>().unwrap_err().to_string();
        assert!(error.contains("the port is missing"), "{text}: {error}");
    }
    let error = read("vsock:host", Purpose::Listen).unwrap_err();
    assert!(error.contains("the port is not a number"), "{error}");
}

#[test]
fn only_addresses_within_one_machine_are_told_to_other_nodes() {
    let advertised = |text: &str| {
        let address: Address = text.parse().unwrap();
        address.advertised("node7").map(|address| (address.to_string(), address.is_local()))
    };
    let within = Some(("vsock:1:5".to_owned(), true));
    assert_eq!(advertised("vsock:any:5"), within);
    assert_eq!(advertised("vsock:1:5"), within);
    assert_eq!(advertised("vsock:2:5"), None);
    assert_eq!(advertised("vsock:/run/guest:5"), None);
}

#[test]
fn a_client_prefers_vsock_to_tcp_and_a_unix_socket_to_vsock() {
    let rank = |text: &str| text.parse::<Address>().unwrap().rank();
    assert!(rank("unix:/a") < rank("vsock:2:5") && rank("vsock:2:5") < rank("tcp:a:1"));
    for text in ["vsock:2:5", "vsock:any:5", "vsock:/run/guest:5"] {
        let address: Address = text.parse().unwrap();
        assert!(address.needs_key() && address.host().is_none(), "{text}");
    }
}

#[test]
fn nobody_connects_to_all_machines() {
    let soon = penstock_trial::deadline();
    let error = Stream::connect(&"vsock:any:5".parse().unwrap(), soon).unwrap_err().to_string();
    assert!(error.contains("only a listener takes `any`"), "{error}");
}

#[test]
fn a_failure_says_what_to_check() {
    use rustix::io::Errno;
    let place = |cid| place::Place { cid, port: 7367 };
    for (cid, error, kind, parts) in [
        (
            2,
            Errno::CONNRESET,
            std::io::ErrorKind::ConnectionRefused,
            ["port 7367 of the machine with CID 2", "--listen vsock:7367"],
        ),
        (
            2,
            Errno::NODEV,
            std::io::Error::from(Errno::NODEV).kind(),
            ["no vsock device", "vmw_vsock_virtio_transport"],
        ),
        (
            9,
            Errno::NODEV,
            std::io::Error::from(Errno::NODEV).kind(),
            ["no guest with CID 9", "vhost_vsock"],
        ),
        (
            9,
            Errno::TIMEDOUT,
            std::io::ErrorKind::TimedOut,
            ["CID 9 does not answer", "check the CID"],
        ),
        (
            2,
            Errno::AFNOSUPPORT,
            std::io::ErrorKind::Unsupported,
            ["no vsock", "load the module vhost_vsock"],
        ),
    ] {
        let explained = place(cid).explain(error);
        let text = explained.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert_eq!(explained.kind(), kind, "{text}");
    }
    let text = place(77).explain_listening(Errno::ADDRNOTAVAIL).to_string();
    assert!(text.contains("does not have the CID 77"), "{text}");
}

/// Lets a "monitor" answer with these bytes, and returns why the connection failed.
fn failure_after(answer: &'static [u8], patience: Duration) -> LinkError {
    let name = format!("penstock-monitor-{}-{}", std::process::id(), answer.len());
    let path = std::env::temp_dir().join(name);
    let listener = UnixListener::bind(&path).unwrap();
    let monitor = thread::spawn(move || {
        let (mut host, _) = listener.accept().unwrap();
        let mut asked = [0; 13];
        host.read_exact(&mut asked).unwrap();
        host.write_all(answer).unwrap();
        if answer.is_empty() {
            // The silent monitor stays until the client has lost its patience.
            _ = host.read(&mut [0]);
        }
        asked
    });
    let address: Address = format!("vsock:{}:4567", path.display()).parse().unwrap();
    let failure = Stream::connect(&address, Instant::now() + patience).unwrap_err();
    std::fs::remove_file(path).unwrap();
    assert_eq!(&monitor.join().unwrap(), b"CONNECT 4567\n");
    failure
}

#[test]
fn an_answer_that_is_none_of_a_monitor_is_refused() {
    let long = penstock_trial::patience();
    for answer in [&b"ERR 7\n"[..], b"OK\n", b"OK 1 but this line is too long for any monitor\n"] {
        let text = failure_after(answer, long).to_string();
        assert!(text.contains("no monitor of a guest"), "{text}");
    }
    let text = failure_after(b"OK 10", long).to_string();
    assert!(text.contains("nobody listens on port 4567 of the guest"), "{text}");
    let silent = failure_after(b"", Duration::from_millis(500));
    assert!(
        matches!(&silent, LinkError::Connect { source, .. }
            if source.kind() == std::io::ErrorKind::TimedOut),
        "{silent}"
    );
}

#[test]
fn the_guest_behind_a_monitor_has_no_credentials() {
    let folder = std::env::temp_dir().join(format!("penstock-vsock-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let address: Address = addresses_of_a_monitor(&folder).listen.parse().unwrap();
    let listener = Listener::bind(&address).unwrap();
    let soon = penstock_trial::deadline();
    let connecting = Stream::connect(&address, soon).unwrap();
    let accepted = listener.accept().unwrap();
    for stream in [&connecting, &accepted] {
        assert_eq!(stream.credentials(), None);
        assert!(stream.needs_key() && !stream.passes_descriptors() && stream.ends().is_none());
    }
    assert!(accepted.peer().starts_with("the guest of process "), "{}", accepted.peer());
    drop(listener);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_listener_that_is_stopped_wakes_its_thread() {
    let TestAddresses { listen, lacks, .. } = addresses(Path::new("/"));
    if let Some((need, why)) = lacks {
        return penstock_trial::skip(need, why);
    }
    let listener = Listener::bind(&listen.parse().unwrap()).unwrap();
    thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().map(drop));
        thread::sleep(Duration::from_millis(20));
        listener.stop();
        assert!(accepting.join().unwrap().is_err());
    });
}

/// Silence alone is no loss, and a machine that answers keeps its connections.
#[test]
fn a_silent_peer_on_a_living_machine_is_not_lost() {
    let TestAddresses { listen, lacks, .. } = addresses(Path::new("/"));
    if let Some((need, why)) = lacks {
        return penstock_trial::skip(need, why);
    }
    let listener = Listener::bind(&listen.parse().unwrap()).unwrap();
    let soon = penstock_trial::deadline();
    let connecting = Stream::connect(&listener.address(), soon).unwrap();
    let accepted = listener.accept().unwrap();
    let before = Instant::now();
    let patience = before + Duration::from_secs(9);
    let heard = connecting.read_exact_until(&mut [0], patience);
    assert!(matches!(heard, Err(LinkError::HelloTimeout { .. })), "{heard:?}");
    accepted.write_all_until(b"still here", soon).unwrap();
    connecting.read_exact_until(&mut [0; 10], soon).unwrap();
}
