//! The hello: which processes may connect, and what the others are told.

use std::ops::ControlFlow;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use penstock_wire::hello::{Answer, Final, Hello, MAGIC, Role, Verdict, Welcome, feature};
use penstock_wire::limits::PROTOCOL_VERSION;
use penstock_wire::{U16, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::support::{in_time, patience, pattern, soon};
use super::{Way, key};
use crate::error::LinkError;
use crate::hello::{
    Opened, Progress, accept_hello, accept_hello_as, open, open_on, open_patiently,
};
use crate::instance::Instance;
use crate::key::Key;
use crate::stream::Stream;

/// Runs both sides of a hello that the accepting side ends with `verdict`. Returns what both got.
fn meet(
    way: &Way,
    ours: Option<&Key>,
    theirs: Option<&Key>,
    verdict: Verdict,
) -> (Result<Opened, LinkError>, Result<(Stream, u64), LinkError>) {
    let (connecting, accepting) = way.streams();
    thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let accepted = accept_hello(accepting, theirs, &|_| true, soon())?;
            assert_eq!((accepted.role, accepted.ticket), (Role::Peer, [7; 32]));
            let features = accepted.features;
            let way = accepted.way();
            assert_eq!(way.shares_memory, features & feature::SHARED_RINGS != 0);
            assert_eq!(way.why_not_better.is_none(), way.shares_memory, "{way:?}");
            accepted.finish(verdict).map(|stream| (stream, features))
        });
        let opened = open_on(connecting, "the daemon", Role::Peer, Some([7; 32]), ours, soon());
        (opened, accepting.join().unwrap())
    })
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

/// Sends the hello of a client.
pub(crate) fn say_hello(on: &Stream) {
    on.write_all_until(hello(PROTOCOL_VERSION).as_bytes(), soon()).unwrap();
}

fn read<T: FromZeros + IntoBytes + zerocopy::FromBytes>(from: &Stream) -> T {
    let mut message = T::new_zeroed();
    from.read_exact_until(message.as_mut_bytes(), soon()).unwrap();
    message
}

pub(crate) fn friends_come_in(way: &Way) {
    let (opened, accepted) = meet(way, Some(&key(1)), Some(&key(1)), Verdict::Welcome);
    let (opened, (accepted, _)) = (opened.unwrap(), accepted.unwrap());
    opened.stream.write_all_until(b"after", soon()).unwrap();
    let mut heard = [0; 5];
    accepted.read_exact_until(&mut heard, soon()).unwrap();
    assert_eq!(&heard, b"after");
}

pub(crate) fn features_are_those_of_the_connection(way: &Way) {
    let (opened, accepted) = meet(way, Some(&key(1)), Some(&key(1)), Verdict::Welcome);
    let (opened, (accepted, features)) = (opened.unwrap(), accepted.unwrap());
    // Only the connecting side knows that it comes through a bridge.
    let accepting = accepted.features() | feature::THROUGH_SSH;
    assert_eq!(opened.features, opened.stream.features() & accepting);
    assert_eq!(features, opened.features);
    assert_ne!(features & feature::PEERS, 0);
}

pub(crate) fn the_last_verdict_is_told(way: &Way) {
    for verdict in [Verdict::Full, Verdict::NoWorker, Verdict::WrongTicket] {
        let (opened, accepted) = meet(way, Some(&key(1)), Some(&key(1)), verdict);
        assert!(matches!(opened, Err(LinkError::Refused { verdict: told, .. }) if told == verdict));
        assert!(
            matches!(accepted, Err(LinkError::Turned { verdict: told, .. }) if told == verdict)
        );
    }
}

pub(crate) fn a_wrong_key_is_refused_if_one_is_needed(way: &Way) {
    let (connecting, accepting) = way.streams();
    let is_needed = accepting.needs_key();
    drop((connecting, accepting));
    let (opened, accepted) = meet(way, Some(&key(1)), Some(&key(2)), Verdict::Welcome);
    // The connecting side sees the wrong key in the accepting side's proof and falls silent.
    assert_eq!(matches!(opened, Err(LinkError::WrongKey { .. })), is_needed, "{opened:?}");
    assert_eq!(accepted.is_err(), is_needed, "{accepted:?}");
    if !is_needed {
        return;
    }
    // A peer that ignores our proof and has none itself.
    let (one, other) = way.streams();
    thread::scope(|scope| {
        let accepting =
            scope.spawn(|| accept_hello(other, Some(&key(2)), &|_| true, soon()).map(|_| ()));
        one.write_all_until(hello(PROTOCOL_VERSION).as_bytes(), soon()).unwrap();
        let _: Welcome = read(&one);
        let answer = Answer { proof: [0; 32], ticket: [0; 32] };
        one.write_all_until(answer.as_bytes(), soon()).unwrap();
        let last: Final = read(&one);
        assert_eq!(Verdict::from_wire(last.verdict.get()), Some(Verdict::WrongKey));
        let accepted = accepting.join().unwrap();
        assert!(matches!(accepted, Err(LinkError::Turned { verdict: Verdict::WrongKey, .. })));
    });
}

pub(crate) fn a_missing_key_is_refused_if_one_is_needed(way: &Way) {
    let (listener, address, _folder) = way.listen();
    assert_eq!(address.needs_key(), listener.address().needs_key());
    if address.needs_key() {
        let opened = open(&address, Role::Client, None, None, soon());
        assert!(matches!(opened, Err(LinkError::NoKey { .. })), "{opened:?}");
    }
    let (opened, accepted) = meet(way, Some(&key(1)), None, Verdict::Welcome);
    let no_key = matches!(opened, Err(LinkError::Refused { verdict: Verdict::NoKey, .. }));
    assert_eq!(no_key, address.needs_key(), "{opened:?}");
    assert_eq!(accepted.is_err(), address.needs_key(), "{accepted:?}");
}

pub(crate) fn garbage_is_told_that_it_was_not_understood(way: &Way) {
    for seed in 0..30 {
        let (one, other) = way.streams();
        let mut bytes = pattern(seed, 11 + usize::try_from(seed).unwrap() * 40);
        if seed % 2 == 0 {
            bytes.splice(..0, b"GET / HTTP/1.1\r\n\r\n".iter().copied());
        }
        one.write_all_until(&bytes, soon()).unwrap();
        let accepted = accept_hello(other, Some(&key(1)), &|_| true, soon());
        assert!(matches!(accepted, Err(LinkError::NotPenstock { .. })), "{accepted:?}");
        let welcome: Welcome = read(&one);
        assert_eq!(Verdict::from_wire(welcome.verdict.get()), Some(Verdict::NotUnderstood));
        // A hang-up follows without another byte.
        let end = one.read_exact_until(&mut [0], soon());
        assert!(matches!(end, Err(LinkError::Closed | LinkError::System { .. })), "{end:?}");
    }
    // The other direction: the answer does not come from a daemon.
    let (one, other) = way.streams();
    other.write_all_until(b"HTTP/1.1 400 Bad Request\r\n\r\n", soon()).unwrap();
    let opened = open_on(one, "x", Role::Client, None, Some(&key(1)), soon());
    assert!(matches!(opened, Err(LinkError::NotPenstock { .. })), "{opened:?}");
}

pub(crate) fn another_version_is_told(way: &Way) {
    let theirs = PROTOCOL_VERSION + 1;
    let (one, other) = way.streams();
    one.write_all_until(hello(theirs).as_bytes(), soon()).unwrap();
    let accepted = accept_hello(other, Some(&key(1)), &|_| true, soon());
    assert!(matches!(accepted, Err(LinkError::WrongVersion { .. })), "{accepted:?}");
    let welcome: Welcome = read(&one);
    assert_eq!(Verdict::from_wire(welcome.verdict.get()), Some(Verdict::WrongVersion));
}

pub(crate) fn a_slow_peer_gets_no_more_time_than_a_silent_one(way: &Way) {
    let (one, other) = way.streams();
    let (end, ends) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            for byte in hello(PROTOCOL_VERSION).as_bytes() {
                // The hello takes 36 s in total, so it is late even if the other thread is late.
                if one.write_all_until(&[*byte], soon()).is_err()
                    || ends.recv_timeout(Duration::from_millis(700)).is_ok()
                {
                    return;
                }
            }
        });
        let key = key(1);
        // A byte arrives within the limit, and would make it longer if it counted from the last.
        let limit = Instant::now() + Duration::from_secs(1);
        let accepted = in_time("a hello", || accept_hello(other, Some(&key), &|_| true, limit));
        assert!(matches!(accepted, Err(LinkError::HelloTimeout { .. })), "{accepted:?}");
        _ = end.send(());
    });
}

/// A transport whose two ends see each other alike lets a daemon prove which one it is. Any other
/// transport must report no instance, because the proof would be somebody else's.
pub(crate) fn a_daemon_proves_its_instance_or_has_none(way: &Way) {
    let (connecting, accepting) = way.streams();
    let alike = connecting.ends().zip(accepting.ends());
    let alike = alike.is_some_and(|(ours, theirs)| (ours.0, ours.1) == (theirs.1, theirs.0));
    let instance = Instance::create().unwrap();
    let opened = thread::scope(|scope| {
        scope.spawn(|| {
            let key = key(1);
            let hello = accept_hello_as(Some(&instance), accepting, Some(&key), &|_| true, soon());
            hello.unwrap().finish(Verdict::Welcome).unwrap();
        });
        open_on(connecting, "x", Role::Control, None, Some(&key(1)), soon()).unwrap()
    });
    assert_eq!(opened.instance, alike.then(|| instance.id()));
}

pub(crate) fn a_client_in_line_hears_where_it_stands(way: &Way) {
    let (listener, address, _folder) = way.listen();
    let key = key(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            let stream = listener.accept().unwrap();
            let accepted = accept_hello(stream, Some(&key), &|_| true, soon()).unwrap();
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
        let role = Role::Client;
        open_patiently(&address, role, Some(&key), patience(), false, &mut watch).unwrap();
        let line = |ahead| Progress::InLine { ahead };
        assert_eq!(heard, [Progress::Met(None), line(70_000), line(1), line(0)]);
    });
}
