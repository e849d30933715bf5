//! Two carriers without heaps.

use std::io::IoSlice;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use penstock_link::Stream;
use penstock_trial::{deadline, wait_for};

use super::super::arrivals::Label;
use super::super::carrier::UcxCarrier;
use super::super::engine::{Engine, SendSlot};
use super::super::library::UcxContext;
use super::super::{UcxAgreement, agree};
use super::with_ucx;
use crate::proxy::carrier::{Carrier, CarrierError};

pub(super) fn engine() -> Arc<Engine> {
    Arc::new(Engine::new(&UcxContext::get().unwrap()).unwrap())
}

/// Returns two ends of a connection.
pub(super) fn tcp() -> [Stream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let other = listener.accept().unwrap().0;
    [one, other].map(|end| Stream::from_fd(end.into()).unwrap())
}

/// Returns the carrier of one side of a meeting.
pub(super) fn carrier(engine: Arc<Engine>, stream: Stream) -> UcxCarrier {
    match agree(Ok(engine), 1, stream, deadline()).unwrap() {
        UcxAgreement::Carrier(carrier, transports) => {
            assert_eq!(transports, std::env::var("UCX_TLS").unwrap());
            carrier
        }
        UcxAgreement::Stream(_, why) => panic!("{why}"),
    }
}

fn pair() -> [UcxCarrier; 2] {
    let [one, other] = tcp();
    let thread = thread::spawn(move || carrier(engine(), other));
    [carrier(engine(), one), thread.join().unwrap()]
}

fn send_all(carrier: &mut UcxCarrier, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let sent = carrier.send(&[IoSlice::new(bytes)]).unwrap().unwrap_or_default();
        bytes = &bytes[sent..];
    }
}

/// Returns a byte for each place. Equal places of adjacent messages have different bytes.
fn pattern(at: usize) -> u8 {
    u8::try_from((at ^ (at >> 8) ^ (at >> 15)) & 0xFF).unwrap()
}

#[test]
fn bytes_arrive_whole_and_in_order_however_they_are_cut() {
    if !with_ucx("carriers::bytes_arrive_whole_and_in_order_however_they_are_cut") {
        return;
    }
    let [mut one, mut other] = pair();
    let bytes: Vec<u8> = (0..8 << 20).map(pattern).collect();
    let sender = thread::spawn({
        let bytes = bytes.clone();
        move || {
            // Bytes not sent when the carrier leaves are lost, as with any carrier.
            let (mut at, mut length) = (0, 1);
            while at < bytes.len() {
                let end = bytes.len().min(at + length);
                send_all(&mut one, &bytes[at..end]);
                (at, length) = (end, length * 7 % 100_003 + 1);
            }
            one.finish(deadline());
        }
    });
    let mut heard = vec![0; bytes.len()];
    let (mut at, mut length) = (0, 1);
    wait_for("the last byte", || {
        while at < heard.len() {
            let end = heard.len().min(at + length);
            let Some(got) = other.receive(&mut heard[at..end]).unwrap() else { return false };
            (at, length) = (at + got, length * 11 % 70_001 + 1);
        }
        true
    });
    assert!(heard == bytes);
    sender.join().unwrap();
}

#[test]
fn who_is_not_read_can_not_send_for_ever() {
    if !with_ucx("carriers::who_is_not_read_can_not_send_for_ever") {
        return;
    }
    let [mut one, mut other] = pair();
    let message = vec![7; 1 << 20];
    let (mut sent, mut last) = (0, Instant::now());
    // Bytes that the system's sockets, UCX and this side hold together at most. A second brings far
    // more.
    const HELD_MAX: usize = 64 << 20;
    while last.elapsed() < Duration::from_millis(300) {
        if let Some(got) = one.send(&[IoSlice::new(&message)]).unwrap() {
            (sent, last) = (sent + got, Instant::now());
        }
        assert!(sent < HELD_MAX, "{sent} bytes are held");
        // The other side looks, as a proxy does for its other members, but reads nothing.
        other.receive(&mut []).unwrap();
    }
    assert!(sent > 0);
    let mut into = vec![0; 1 << 20];
    let mut heard = 0;
    wait_for("the last byte", || {
        while let Some(got) = other.receive(&mut into).unwrap() {
            assert!(into[..got].iter().all(|byte| *byte == 7));
            heard += got;
        }
        // Meanwhile this side sends what it holds.
        one.receive(&mut []).unwrap();
        heard == sent
    });
}

#[test]
fn the_last_bytes_of_who_leaves_arrive_before_the_end() {
    if !with_ucx("carriers::the_last_bytes_of_who_leaves_arrive_before_the_end") {
        return;
    }
    let [mut one, mut other] = pair();
    let leaver = thread::spawn(move || {
        send_all(&mut one, &vec![9; 300_000]);
        one.finish(deadline());
    });
    let (mut heard, mut into) = (0, vec![0; 10_000]);
    let mut end = None;
    wait_for("the end", || {
        match other.receive(&mut into) {
            Ok(got) => heard += got.unwrap_or_default(),
            Err(broken) => end = Some(broken),
        }
        end.is_some()
    });
    leaver.join().unwrap();
    assert_eq!(heard, 300_000);
    assert!(matches!(end, Some(CarrierError::Closed)));
}

#[test]
fn who_ends_without_a_word_is_missed() {
    if !with_ucx("carriers::who_ends_without_a_word_is_missed") {
        return;
    }
    let [mut one, mut other] = pair();
    assert!(other.receive(&mut [0; 8]).unwrap().is_none());
    // As the system does for a killed process.
    one.end();
    wait_for("the end", || other.receive(&mut [0; 8]).is_err());
}

#[test]
fn a_stranger_that_knows_the_address_is_not_heard() {
    if !with_ucx("carriers::a_stranger_that_knows_the_address_is_not_heard") {
        return;
    }
    let [one, other] = tcp();
    let (ours, theirs) = (engine(), engine());
    let thread = thread::spawn({
        let theirs = theirs.clone();
        move || carrier(theirs, other)
    });
    let mut here = carrier(ours.clone(), one);
    let mut there = thread.join().unwrap();
    let stranger = engine();
    let way = stranger.connect(ours.address(), true).unwrap();
    for secret in [[0; 16], [1; 16]] {
        for number in 0..3 {
            let mut slot = SendSlot::new();
            slot.bytes()[..4].copy_from_slice(b"EVIL");
            let header = Label { secret, inbox: 0 }.header(number);
            stranger.send(&way, &mut slot, header, 4).unwrap();
            wait_for("it is sent", || {
                stranger.progress();
                ours.progress();
                stranger.is_done(&mut slot)
            });
        }
    }
    send_all(&mut there, b"good");
    let mut into = [0; 64];
    wait_for("a member's bytes", || here.receive(&mut into).unwrap() == Some(4));
    assert_eq!(&into[..4], b"good");
    assert!(here.receive(&mut into).unwrap().is_none());
}

#[test]
fn a_worker_goes_whose_ways_are_not_closed_yet() {
    if !with_ucx("carriers::a_worker_goes_whose_ways_are_not_closed_yet") {
        return;
    }
    for ends in [
        UcxCarrier::end,
        |carrier: &mut UcxCarrier| carrier.finish(Instant::now()),
        |_: &mut UcxCarrier| (),
    ] {
        let [mut one, other] = pair();
        while one.send(&[IoSlice::new(&[7; 1 << 20])]).unwrap().is_some() {}
        ends(&mut one);
        // UCX would end the process here.
        drop((one, other));
    }
}
