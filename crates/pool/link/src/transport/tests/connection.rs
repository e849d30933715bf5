//! Connections before any hello: addresses, bytes, hang-ups and time limits.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use penstock_wire::hello::Role;

use super::support::{in_time, pattern, soon};
use super::{Way, key};
use crate::address::Address;
use crate::error::LinkError;
use crate::fds::{recv_fd, send_fd};
use crate::hello::open;
use crate::listener::Listener;
use crate::stream::Stream;
use crate::wait::Patience;

pub(crate) fn a_listener_tells_an_address_that_can_be_written_and_read(way: &Way) {
    let (listener, address, _folder) = way.listen();
    for address in [listener.address(), address] {
        let text = address.to_string();
        assert_eq!(text.parse::<Address>().unwrap(), address, "{text}");
        let (scheme, _) = text.split_once(':').unwrap();
        assert!(Address::forms(&[]).contains(&format!("{scheme}:")), "{text}");
        assert!(!address.transport_name().is_empty());
    }
    let Some(advertised) = listener.address().advertised("localhost") else { return };
    assert_eq!(advertised.transport_name(), listener.address().transport_name());
    Stream::connect(&advertised, soon()).unwrap();
}

pub(crate) fn a_served_address_is_refused(way: &Way) {
    let (listener, _address, _folder) = way.listen();
    let again = Listener::bind(&listener.address());
    assert!(matches!(again, Err(LinkError::InUse { .. })), "{again:?}");
    let address = listener.address();
    drop(listener);
    Listener::bind(&address).unwrap();
}

pub(crate) fn an_address_without_a_listener_fails_in_time(way: &Way) {
    let (listener, address, _folder) = way.listen();
    drop(listener);
    let opened = open(&address, Role::Client, None, Some(&key(1)), soon());
    let text = opened.unwrap_err().to_string();
    assert!(text.contains(&address.to_string()) || text.contains("closed"), "{text}");
}

pub(crate) fn bytes_arrive_in_both_directions(way: &Way) {
    let (one, other) = way.streams();
    let bytes = pattern(3, 3 << 20);
    let exchange = |stream: &Stream| {
        thread::scope(|scope| {
            scope.spawn(|| stream.write_all_until(&bytes, soon()).unwrap());
            let mut heard = vec![0; bytes.len()];
            stream.read_exact_until(&mut heard, soon()).unwrap();
            assert!(heard == bytes);
        });
    };
    thread::scope(|scope| {
        scope.spawn(|| exchange(&one));
        exchange(&other);
    });
    assert!(matches!(one.recv_now(&mut [0; 8]), Ok(None)));
    assert!(!one.has_hung_up() && !one.vanished() && !one.peer().is_empty());
}

/// As a daemon hands a client to a worker: the descriptor passes over a Unix socket, the note
/// beside it, and bytes are on their way.
pub(crate) fn a_connection_continues_in_another_process(way: &Way) {
    let (one, other) = way.streams();
    one.write_all_until(b"hello, daemon", soon()).unwrap();
    other.read_exact_until(&mut [0; 7], soon()).unwrap();
    let (daemon, worker) = UnixStream::pair().unwrap();
    send_fd(daemon.as_fd(), other.as_fd(), &other.note().unwrap(), Patience::Never).unwrap();
    drop(other);
    let mut note = [0; 4096];
    let (bytes, fd) = recv_fd(worker.as_fd(), &mut note, Patience::Until(soon())).unwrap();
    let other = Stream::resume(fd.unwrap(), &note[..bytes]).unwrap();
    let mut heard = [0; 6];
    other.read_exact_until(&mut heard, soon()).unwrap();
    assert_eq!(&heard, b"daemon");
    other.write_all_until(b"hello, client", soon()).unwrap();
    let mut heard = [0; 13];
    one.read_exact_until(&mut heard, soon()).unwrap();
    assert_eq!(&heard, b"hello, client");
}

pub(crate) fn a_note_for_another_transport_is_refused(way: &Way) {
    let other = |fd: &Stream| rustix::io::fcntl_dupfd_cloexec(fd, 0).unwrap();
    let (one, _other) = way.streams();
    for note in [&b""[..], b":", b"no scheme", b"nothing:x", b"\xff\xfe:"] {
        assert!(Stream::resume(other(&one), note).is_err(), "{note:?}");
    }
    // A transport that ignored such a note could continue an encrypted connection without
    // encryption.
    let note = one.note().unwrap();
    let scheme = note.split_inclusive(|byte| *byte == b':').next().unwrap();
    assert!(Stream::resume(other(&one), &[scheme, b"junk"].concat()).is_err());
    let file: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    assert!(Stream::resume(file, &one.note().unwrap()).is_err());
    let (datagrams, _other) = UnixDatagram::pair().unwrap();
    assert!(Stream::resume(datagrams.into(), &one.note().unwrap()).is_err());
}

pub(crate) fn a_peer_that_hangs_up_is_noticed(way: &Way) {
    for how in ["drop", "shutdown"] {
        let (one, other) = way.streams();
        one.write_all_until(b"last words", soon()).unwrap();
        let _kept = match how {
            "drop" => {
                drop(one);
                None
            }
            _ => {
                one.shutdown();
                Some(one)
            }
        };
        let mut heard = [0; 10];
        other.read_exact_until(&mut heard, soon()).unwrap();
        assert_eq!(&heard, b"last words");
        let end = other.read_exact_until(&mut [0], soon());
        assert!(matches!(end, Err(LinkError::Closed)), "{how}: {end:?}");
        assert!(other.has_hung_up());
    }
}

pub(crate) fn a_silent_peer_gets_no_more_than_its_time(way: &Way) {
    let (one, _other) = way.streams();
    let limit = Instant::now() + Duration::from_millis(50);
    let heard = in_time("a read", || one.read_exact_until(&mut [0], limit));
    assert!(matches!(heard, Err(LinkError::HelloTimeout { .. })), "{heard:?}");
    assert!(Instant::now() >= limit);
}

pub(crate) fn a_peer_that_does_not_read_gets_no_more_than_its_time(way: &Way) {
    let (one, _other) = way.streams();
    let limit = Instant::now() + Duration::from_millis(50);
    let sent = in_time("a write", || one.write_all_until(&vec![0; 64 << 20], limit));
    assert!(matches!(sent, Err(LinkError::HelloTimeout { .. })), "{sent:?}");
}

/// A forked child of a program has copies of its descriptors.
pub(crate) fn a_child_keeps_no_connection_alive_that_was_shut_down(way: &Way) {
    let (one, other) = way.streams();
    let _copy = rustix::io::fcntl_dupfd_cloexec(&one, 0).unwrap();
    one.shutdown();
    drop(one);
    let end = other.read_exact_until(&mut [0], soon());
    assert!(matches!(end, Err(LinkError::Closed)), "{end:?}");
}
