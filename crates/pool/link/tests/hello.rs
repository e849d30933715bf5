//! What of the hello depends on the transport or on a file. The suite of all transports
//! (`src/transport/tests`) has the rest.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use common::{Transport, in_time, patience, sockets, soon, wait_for};
use penstock_link::{
    Accepted, Address, Instance, Key, LinkError, Listener, Opened, Patience, Progress, Stream,
    accept_hello, accept_hello_as, open, open_on, open_patiently, recv_fd, send_fd,
};
use penstock_wire::hello::{Answer, Hello, MAGIC, Role, Verdict, Welcome, feature};
use penstock_wire::limits::PROTOCOL_VERSION;
use penstock_wire::{U16, U64};
use zerocopy::{FromBytes, IntoBytes};

fn key(byte: u8) -> Key {
    Key::from_bytes(&[byte; 32])
}

fn raw(stream: Stream) -> fs::File {
    stream.into_socket().unwrap().into()
}

/// Runs both sides of a hello that the accepting side ends with `verdict`.
fn meet(
    transport: Transport,
    ours: Option<&Key>,
    theirs: Option<&Key>,
    allow: bool,
    verdict: Verdict,
) -> (Result<Opened, LinkError>, Result<Stream, LinkError>) {
    let (one, two) = sockets(transport);
    thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let accepted = accept_hello(two, theirs, &|_| allow, soon())?;
            assert_eq!((accepted.role, accepted.ticket), (Role::Peer, [7; 32]));
            assert_eq!(accepted.credentials.is_some(), transport != Transport::Tcp);
            accepted.finish(verdict)
        });
        let opened = open_on(one, "the daemon", Role::Peer, Some([7; 32]), ours, soon());
        (opened, accepting.join().unwrap())
    })
}

fn refused(result: Result<Opened, LinkError>) -> Verdict {
    match result {
        Err(LinkError::Refused { verdict, .. }) => verdict,
        other => panic!("not refused: {other:?}"),
    }
}

fn turned(result: Result<Stream, LinkError>) -> Verdict {
    match result {
        Err(LinkError::Turned { verdict, .. }) => verdict,
        other => panic!("not turned away: {other:?}"),
    }
}

#[test]
fn another_user_is_refused() {
    let (opened, accepted) = meet(Transport::Unix, None, None, false, Verdict::Welcome);
    assert_eq!(refused(opened), Verdict::WrongUser);
    assert_eq!(turned(accepted), Verdict::WrongUser);
}

#[test]
fn without_a_key_nobody_comes_in_over_tcp() {
    let (opened, accepted) = meet(Transport::Tcp, Some(&key(1)), None, true, Verdict::Welcome);
    assert_eq!(refused(opened), Verdict::NoKey);
    assert_eq!(turned(accepted), Verdict::NoKey);
    let nowhere = "tcp:127.0.0.1:1".parse::<Address>().unwrap();
    assert!(matches!(
        open(&nowhere, Role::Client, None, None, soon()),
        Err(LinkError::NoKey { .. })
    ));
}

fn hello(version: u16) -> Hello {
    Hello {
        magic: MAGIC,
        version: U16::new(version),
        role: U16::new(Role::Client as u16),
        features: U64::new(feature::ALL),
        nonce: [5; 32],
    }
}

fn read<T: FromBytes>(from: &mut impl Read) -> T {
    let mut bytes = vec![0; size_of::<T>()];
    from.read_exact(&mut bytes).unwrap();
    T::read_from_bytes(&bytes).unwrap()
}

#[test]
fn a_proof_can_not_be_reflected() {
    // An attacker without a key opens a link to the victim and returns the victim's own proof.
    let (one, two) = sockets(Transport::Tcp);
    let mut one = raw(one);
    thread::scope(|scope| {
        let victim =
            scope.spawn(|| accept_hello(two, Some(&key(1)), &|_| true, soon()).map(|_| ()));
        one.write_all(hello(PROTOCOL_VERSION).as_bytes()).unwrap();
        let welcome: Welcome = read(&mut one);
        assert_ne!(welcome.proof, [0; 32]);
        one.write_all(Answer { proof: welcome.proof, ticket: [0; 32] }.as_bytes()).unwrap();
        assert!(victim.join().unwrap().is_err());
    });
    // An attacker plays a daemon and sends the proof of another meeting.
    let (one, two) = sockets(Transport::Tcp);
    let mut two = raw(two);
    thread::scope(|scope| {
        let victim = scope
            .spawn(|| open_on(one, "x", Role::Client, None, Some(&key(1)), soon()).map(|_| ()));
        let heard: Hello = read(&mut two);
        let old = Welcome {
            magic: MAGIC,
            version: heard.version,
            verdict: U16::new(0),
            features: heard.features,
            nonce: heard.nonce,
            instance: [0; 32],
            signature: [0; 64],
            proof: [3; 32],
        };
        two.write_all(old.as_bytes()).unwrap();
        assert!(matches!(victim.join().unwrap(), Err(LinkError::WrongKey { .. })));
    });
}

#[test]
fn both_sides_name_both_versions() {
    let other = PROTOCOL_VERSION + 1;
    let (one, two) = sockets(Transport::Unix);
    let mut one = raw(one);
    one.write_all(hello(other).as_bytes()).unwrap();
    let accepted = accept_hello(two, None, &|_| true, soon());
    let welcome: Welcome = read(&mut one);
    assert_eq!(
        (welcome.verdict.get(), welcome.version.get()),
        (Verdict::WrongVersion as u16, PROTOCOL_VERSION)
    );
    let text = accepted.unwrap_err().to_string();
    assert!(
        text.contains(&format!("version {other}"))
            && text.contains(&format!("version {PROTOCOL_VERSION}"))
    );

    // A later version may answer with another length: only the first ten bytes are fixed.
    let (one, two) = sockets(Transport::Unix);
    let mut two = raw(two);
    two.write_all(&[&MAGIC[..], &other.to_le_bytes()].concat()).unwrap();
    let text = open_on(one, "node7", Role::Client, None, None, soon()).unwrap_err().to_string();
    assert!(text.contains("node7") && text.contains(&format!("version {other}")), "{text}");
}

#[test]
fn an_unknown_role_is_not_understood() {
    let (one, two) = sockets(Transport::Unix);
    let mut one = raw(one);
    one.write_all(Hello { role: U16::new(77), ..hello(PROTOCOL_VERSION) }.as_bytes()).unwrap();
    assert!(accept_hello(two, None, &|_| true, soon()).is_err());
    let welcome: Welcome = read(&mut one);
    assert_eq!(Verdict::from_wire(welcome.verdict.get()), Some(Verdict::NotUnderstood));
}

#[test]
fn a_silent_daemon_gets_no_more_than_its_time() {
    // The daemon accepts and sends nothing.
    let (one, _two) = sockets(Transport::Tcp);
    let deadline = Instant::now() + Duration::from_millis(100);
    let opened =
        in_time("a hello", || open_on(one, "x", Role::Client, None, Some(&key(1)), deadline));
    assert!(matches!(opened, Err(LinkError::HelloTimeout { .. })), "{opened:?}");
}

#[test]
fn a_client_in_line_hears_where_it_stands() {
    let address = Address::unix(place("line"));
    let listener = Listener::bind(&address).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let accepted =
                accept_hello(listener.accept().unwrap(), None, &|_| true, soon()).unwrap();
            for ahead in [70_000, 1, 0] {
                accepted.tell_in_line(ahead).unwrap();
            }
            accepted.finish(Verdict::Welcome).unwrap();
        });
        let mut heard = Vec::new();
        let mut watch = |progress| {
            heard.push(progress);
            ControlFlow::Continue(())
        };
        open_patiently(&address, Role::Client, None, patience(), false, &mut watch).unwrap();
        let line = |ahead| Progress::InLine { ahead };
        assert_eq!(heard, [Progress::Met(None), line(70_000), line(1), line(0)]);
    });
    // A client may give up, and the daemon then sees the hang-up.
    thread::scope(|scope| {
        let daemon = scope.spawn(|| {
            let accepted =
                accept_hello(listener.accept().unwrap(), None, &|_| true, soon()).unwrap();
            wait_for("the hang-up", || accepted.tell_in_line(3).is_err());
        });
        let mut watch = |progress| match progress {
            Progress::InLine { .. } => ControlFlow::Break(()),
            Progress::Met(_) => ControlFlow::Continue(()),
        };
        let opened = open_patiently(&address, Role::Client, None, patience(), true, &mut watch);
        assert!(matches!(opened, Err(LinkError::GivenUp { .. })), "{opened:?}");
        daemon.join().unwrap();
    });
}

#[test]
fn a_line_that_falls_silent_is_left() {
    // A slow host may need longer for the hello itself.
    for limit_ms in [500, 5_000, 50_000] {
        let (one, two) = sockets(Transport::Unix);
        let accepting = thread::spawn(move || {
            let accepted = accept_hello(two, None, &|_| true, soon())?;
            accepted.tell_in_line(4)?;
            Ok::<_, LinkError>(accepted)
        });
        let deadline = Instant::now() + Duration::from_millis(limit_ms);
        let opened = open_on(one, "x", Role::Client, None, None, deadline);
        drop(accepting.join().unwrap());
        match opened {
            Err(LinkError::SilentLine { .. }) => return,
            Err(LinkError::HelloTimeout { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("no hello within 50 s");
}

#[test]
fn only_who_wants_a_worker_waits_in_line() {
    for role in [Role::Peer, Role::Control] {
        let (one, two) = sockets(Transport::Unix);
        let accepting = thread::spawn(move || {
            accept_hello(two, None, &|_| true, soon()).and_then(|accepted| accepted.tell_in_line(4))
        });
        let opened = open_on(one, "x", role, None, None, soon());
        assert!(matches!(opened, Err(LinkError::NotPenstock { .. })), "{opened:?}");
        accepting.join().unwrap().unwrap();
    }
}

/// Returns the instance that a client sees of a daemon that it reaches through `way`.
fn instance_through(
    transport: Transport,
    daemon: &Instance,
    way: impl FnOnce(Stream) -> Stream,
) -> Option<[u8; 32]> {
    let (one, two) = sockets(transport);
    let key = key(1);
    thread::scope(|scope| {
        let two = way(two);
        let accepting = scope.spawn(|| {
            accept_hello_as(Some(daemon), two, Some(&key), &|_| true, soon())?
                .finish(Verdict::Welcome)
        });
        let opened = open_on(one, "x", Role::Control, None, Some(&key), soon()).unwrap();
        accepting.join().unwrap().unwrap();
        opened.instance
    })
}

#[test]
fn a_daemon_is_known_by_its_instance_and_not_through_a_relay() {
    let daemon = Instance::create().unwrap();
    for transport in [Transport::Unix, Transport::Tcp] {
        assert_eq!(instance_through(transport, &daemon, |straight| straight), Some(daemon.id()));
    }
    // A relay that has the key can pass everything on, but cannot claim to be the daemon.
    let relayed = instance_through(Transport::Tcp, &daemon, |client_side| {
        let (to_daemon, daemon_side) = sockets(Transport::Tcp);
        let (client_side, to_daemon) = (raw(client_side), raw(to_daemon));
        for (mut from, mut to) in [
            (client_side.try_clone().unwrap(), to_daemon.try_clone().unwrap()),
            (to_daemon.try_clone().unwrap(), client_side.try_clone().unwrap()),
        ] {
            thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
        daemon_side
    });
    assert_eq!(relayed, None);
}

#[test]
fn a_thousand_silent_connections_time_out() {
    let address = Address::unix(place("silent"));
    let listener = Listener::bind(&address).unwrap();
    let deadline = Instant::now() + Duration::from_millis(1_500);
    let mut silent = Vec::new();
    let mut accepted = Vec::new();
    for _ in 0..1_000.min(descriptors(2_500) / 2 - 100) {
        silent.push(Stream::connect(&address, soon()).unwrap());
        accepted.push(listener.accept().unwrap());
    }
    in_time("a thousand hellos with one limit", || {
        for stream in accepted {
            let result = accept_hello(stream, None, &|_| true, deadline);
            assert!(matches!(result, Err(LinkError::HelloTimeout { .. })));
        }
    });
    // A peer that speaks is still served.
    thread::scope(|scope| {
        scope.spawn(|| {
            accept_hello(listener.accept()?, None, &|_| true, soon())?.finish(Verdict::Welcome)
        });
        open(&address, Role::Client, None, None, soon()).unwrap();
    });
}

/// Returns how many descriptors this process may have: `wanted` if the system allows it. Usually
/// 1,024.
fn descriptors(wanted: u64) -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        setrlimit(Resource::Nofile, limit).unwrap();
    }
    limit.current.unwrap_or(u64::MAX)
}

/// Returns a path for a socket.
fn place(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("penstock-link-{name}-{}", std::process::id()));
    let _ = fs::remove_file(&path);
    path
}

#[test]
fn a_stale_socket_is_replaced_and_a_served_one_is_not() {
    let path = place("stale");
    let address = Address::unix(path.clone());
    drop(UnixListener::bind(&path).unwrap()); // leaves its file behind
    let listener = Listener::bind(&address).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert!(matches!(Listener::bind(&address), Err(LinkError::InUse { .. })));
    drop(listener);
    assert!(!path.exists());
    let wide = Listener::bind_with_mode(&address, 0o666).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
    drop(wide);

    fs::write(&path, "not a socket").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(Listener::bind(&address).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"not a socket");
    fs::remove_file(path).unwrap();
}

#[test]
fn a_listener_tells_its_real_port() {
    let listener = Listener::bind(&"tcp:127.0.0.1:0".parse::<Address>().unwrap()).unwrap();
    let text = listener.address().to_string();
    let port = text.strip_prefix("tcp:127.0.0.1:").unwrap().parse().unwrap();
    std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
}

#[test]
fn nobody_there_is_said_so() {
    let text = Stream::connect(&Address::unix(place("nobody")), soon()).unwrap_err().to_string();
    assert!(text.contains("penstock-link-nobody") && text.contains("penstock serve"), "{text}");
}

#[test]
fn a_connection_goes_from_daemon_to_worker() {
    let (daemon, worker) = UnixStream::pair().unwrap();
    let (one, two) = sockets(Transport::Tcp);
    send_fd(daemon.as_fd(), two.as_fd(), b"for you", Patience::Never).unwrap();
    drop(two);
    let mut note = [0; 64];
    let (bytes, fd) = recv_fd(worker.as_fd(), &mut note, Patience::Until(soon())).unwrap();
    assert_eq!(&note[..bytes], b"for you");
    let taken = Stream::try_from(fd.unwrap()).unwrap();
    assert!(!taken.passes_descriptors());
    one.write_all_until(b"hello", soon()).unwrap();
    let mut heard = [0; 5];
    taken.read_exact_until(&mut heard, soon()).unwrap();
    assert_eq!(&heard, b"hello");

    let nothing = recv_fd(worker.as_fd(), &mut note, Patience::Never).unwrap();
    assert!(matches!(nothing, (0, None)));
    drop(daemon);
    assert!(matches!(
        recv_fd(worker.as_fd(), &mut note, Patience::Forever),
        Err(LinkError::Closed)
    ));
}

#[test]
fn what_is_no_socket_is_no_stream() {
    let file: OwnedFd = fs::File::open("/dev/null").unwrap().into();
    assert!(Stream::from_fd(file).is_err());
    let datagram = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    assert!(Stream::from_fd(datagram.into()).is_err());
}

#[test]
fn an_accepted_one_that_hangs_up_is_noticed() {
    let (one, two) = sockets(Transport::Unix);
    thread::scope(|scope| {
        let accepting =
            scope.spawn(|| accept_hello(two, None, &|_| true, soon()).map(|_: Accepted| ()));
        drop(one);
        assert!(matches!(accepting.join().unwrap(), Err(LinkError::Closed)));
    });
}
