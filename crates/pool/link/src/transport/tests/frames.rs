//! Frames and payloads: what arrives, and what is refused.

use std::thread;
use std::time::Duration;

use penstock_wire::calls::to_worker;
use penstock_wire::hello::feature;
use penstock_wire::id::kind;
use penstock_wire::{Call, Frame, FrameError, Id, Payload};
use zerocopy::{FromBytes, IntoBytes};

use super::support::{Random, anything, pattern, soon};
use super::{Way, bulk, number_of, ping, receive_number};
use crate::error::LinkError;
use crate::establish::establish;
use crate::receiver::{Received, Receiver};
use crate::sender::Sender;
use crate::transport::contract::Side;
use crate::wait::Patience;

pub(crate) fn body_waits_and_payload_arrive(way: &Way) {
    let ((sender, _back), (_reply, mut receiver)) = way.links();
    let waits: Vec<Id<kind::Event>> = (1..=300).map(Id::new).collect();
    sender.send(&bulk(5), &waits, b"payload").unwrap();
    sender.flush().unwrap();
    let mut served = 0;
    receiver
        .receive(Patience::Until(soon()), &mut |frame, payload| {
            assert_eq!(frame.header.opcode.get(), to_worker::InitBuffer::OPCODE);
            assert_eq!(to_worker::InitBuffer::read_from_bytes(frame.body).unwrap(), bulk(5));
            assert_eq!(frame.waits, waits);
            assert_eq!(payload.left(), 7);
            assert_eq!(payload.read_all()?, b"payload");
            assert_eq!(payload.read(&mut [0]), Err(FrameError::PayloadTooShort));
            served += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(served, 1);
}

/// One frame of the random stream; its number and the seed determine it.
struct Planned {
    waits: Vec<Id<kind::Event>>,
    payload: Vec<u8>,
    /// Number of bytes that the handler reads; it leaves the rest.
    read: usize,
}

fn plan(seed: u64, number: u64) -> Planned {
    let mut random = Random::new(seed ^ (number << 20));
    let bytes = match random.index(20) {
        0..8 => 0,
        8..14 => random.index(300),
        14..17 => random.index(9_000),
        17..19 => random.index(200_000),
        _ => random.index(6 << 20),
    };
    let waits = if random.index(4) == 0 { random.index(2_000) } else { random.index(4) };
    let read = if random.index(5) == 0 { random.index(bytes + 1) } else { bytes };
    Planned {
        waits: (0..waits as u64).map(Id::new).collect(),
        payload: pattern(number, bytes),
        read,
    }
}

fn send_planned(sender: &Sender, seed: u64, count: u64) {
    let mut random = Random::new(seed + 1);
    for number in 0..count {
        let Planned { waits, payload, .. } = plan(seed, number);
        if random.index(3) == 0 {
            let cut = 1 + random.index(payload.len() + 10);
            let mut pieces = payload.chunks(cut);
            sender.send_pieces(&bulk(number), &waits, payload.len() as u64, &mut pieces).unwrap();
        } else {
            sender.send(&bulk(number), &waits, &payload).unwrap();
        }
        if random.index(10) == 0 {
            sender.flush().unwrap();
        }
    }
    sender.flush().unwrap();
}

fn receive_planned(receiver: &mut Receiver, seed: u64, count: u64) {
    for number in 0..count {
        let expected = plan(seed, number);
        let mut serve = |frame: &Frame<'_>, payload: &mut dyn Payload| {
            assert_eq!(number_of(frame), number);
            assert!(frame.waits == expected.waits);
            let mut random = Random::new(number);
            let mut got = vec![0; expected.read];
            let mut rest = got.as_mut_slice();
            while !rest.is_empty() {
                let step = (1 + random.index(300_000)).min(rest.len());
                let (now, later) = rest.split_at_mut(step);
                payload.read(now)?;
                rest = later;
            }
            assert!(got == expected.payload[..expected.read], "the payload of {number} is wrong");
            assert_eq!(payload.left(), (expected.payload.len() - expected.read) as u64);
            Ok(())
        };
        assert_eq!(receiver.receive(Patience::Until(soon()), &mut serve).unwrap(), Received::Frame);
    }
}

pub(crate) fn random_frames_in_both_directions_at_once(way: &Way) {
    let ((one_out, mut one_in), (two_out, mut two_in)) = way.links();
    thread::scope(|scope| {
        scope.spawn(|| send_planned(&one_out, 11, 250));
        scope.spawn(|| send_planned(&two_out, 22, 250));
        scope.spawn(|| receive_planned(&mut two_in, 11, 250));
        scope.spawn(|| receive_planned(&mut one_in, 22, 250));
    });
}

pub(crate) fn payloads_up_to_64_mib_arrive(way: &Way) {
    let ((sender, _back), (_reply, mut receiver)) = way.links();
    let sizes = [0, 1, 4096, 4097, 65_535, 1 << 20, (4 << 20) - 1, (4 << 20) + 1, 64 << 20];
    thread::scope(|scope| {
        scope.spawn(|| {
            for bytes in sizes {
                sender.send(&bulk(bytes as u64), &[], &pattern(bytes as u64, bytes)).unwrap();
            }
            sender.flush().unwrap();
        });
        for bytes in sizes {
            let mut got = Vec::new();
            let served = receiver.receive(Patience::Until(soon()), &mut |_, payload| {
                got = payload.read_all()?;
                Ok(())
            });
            served.unwrap();
            assert!(got == pattern(bytes as u64, bytes), "{bytes}");
        }
    });
}

pub(crate) fn frames_of_several_threads_do_not_mix(way: &Way) {
    let ((sender, _back), (_reply, mut receiver)) = way.links();
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let sender = sender.clone();
            scope.spawn(move || {
                for at in 0..500 {
                    let number = (thread << 32) | at;
                    let payload = pattern(number, (number % 7_001) as usize);
                    sender.send(&bulk(number), &[], &payload).unwrap();
                }
                sender.flush().unwrap();
            });
        }
        let mut next = [0_u64; 4];
        for _ in 0..2_000 {
            let served = receiver.receive(Patience::Until(soon()), &mut |frame, payload| {
                let number = number_of(frame);
                assert!(payload.read_all()? == pattern(number, (number % 7_001) as usize));
                let next = &mut next[(number >> 32) as usize];
                assert_eq!(number & 0xffff_ffff, *next, "order");
                *next += 1;
                Ok(())
            });
            served.unwrap();
        }
    });
}

pub(crate) fn a_frame_that_came_in_part_is_not_lost_when_patience_ends(way: &Way) {
    let (ours, theirs) = way.streams();
    let (_out, mut receiver) = establish(theirs, 0, Side::Worker, anything).unwrap();
    let header = to_worker::Ping::header(0, 0).unwrap();
    ours.write_all_until(&header.as_bytes()[..9], soon()).unwrap();
    thread::sleep(Duration::from_millis(20));
    let mut never = |_: &Frame<'_>, _: &mut dyn Payload| panic!("half a frame was served");
    assert_eq!(receiver.receive(Patience::Never, &mut never).unwrap(), Received::TimedOut);
    ours.write_all_until(&header.as_bytes()[9..], soon()).unwrap();
    ours.write_all_until(&ping(3).as_bytes()[..1], soon()).unwrap();
    thread::sleep(Duration::from_millis(20));
    assert_eq!(receiver.receive(Patience::Never, &mut never).unwrap(), Received::TimedOut);
    ours.write_all_until(&ping(3).as_bytes()[1..], soon()).unwrap();
    assert_eq!(receive_number(&mut receiver), 3);
}

pub(crate) fn small_frames_arrive_without_a_flush(way: &Way) {
    let ((sender, _back), (_reply, mut receiver)) = way.links();
    for number in 0..20 {
        sender.send(&ping(number), &[], &[]).unwrap();
        assert_eq!(receive_number(&mut receiver), number);
        // The helper is awake for some calls and asleep for others.
        thread::sleep(Duration::from_millis(number % 3 * 4));
    }
}

/// What a receiver makes of bytes is the same over each transport, so each byte is the last one
/// only over memory and over records.
pub(crate) fn frames_cut_anywhere_are_a_hang_up_and_nothing_more(way: &Way) {
    let whole = a_whole_frame();
    frames_of_lengths_are_a_hang_up(way, &whole, 0..whole.len());
}

/// How the system tells a hang-up differs: nothing, a part of the header, and a part of the payload
/// come before it.
pub(crate) fn cut_frames_are_a_hang_up_and_nothing_more(way: &Way) {
    let whole = a_whole_frame();
    frames_of_lengths_are_a_hang_up(way, &whole, [0, 3, whole.len() - 10]);
}

fn a_whole_frame() -> Vec<u8> {
    let waits: [Id<kind::Event>; 2] = [Id::new(1), Id::new(2)];
    let header = to_worker::InitBuffer::header(waits.len(), 100).unwrap();
    [header.as_bytes(), bulk(1).as_bytes(), waits.as_bytes(), &[7; 100]].concat()
}

fn frames_of_lengths_are_a_hang_up(
    way: &Way,
    whole: &[u8],
    lengths: impl IntoIterator<Item = usize>,
) {
    for length in lengths {
        let (ours, theirs) = way.streams();
        let (_out, mut receiver) = establish(theirs, 0, Side::Worker, to_worker::check).unwrap();
        ours.write_all_until(&whole[..length], soon()).unwrap();
        drop(ours);
        let served = receiver
            .receive(Patience::Until(soon()), &mut |_, payload| payload.read_all().map(|_| ()));
        assert!(matches!(served, Err(LinkError::Closed)), "{length}: {served:?}");
        assert!(matches!(
            receiver.receive(Patience::Never, &mut |_, _| Ok(())),
            Err(LinkError::Closed)
        ));
    }
}

/// Runs over memory and over records alone, as the test before it does.
pub(crate) fn garbage_is_refused_by_the_table(way: &Way) {
    let mut random = Random::new(99);
    for _ in 0..500 {
        let (ours, theirs) = way.streams();
        let (_out, mut receiver) = establish(theirs, 0, Side::Worker, to_worker::check).unwrap();
        let mut bytes = pattern(random.number(), 200);
        if random.index(2) == 0 {
            // A known opcode with wrong lengths.
            bytes[..2].copy_from_slice(&to_worker::InitBuffer::OPCODE.to_le_bytes());
        }
        ours.write_all_until(&bytes, soon()).unwrap();
        drop(ours);
        let served = receiver.receive(Patience::Until(soon()), &mut |_, payload| {
            // Allocates nothing of the announced size.
            let mut scratch = [0; 64];
            let step = payload.left().min(64) as usize;
            payload.read(&mut scratch[..step])
        });
        assert!(served.is_err());
    }
}

pub(crate) fn garbage_in_place_of_shared_memory_is_refused(way: &Way) {
    for seed in 0..20 {
        let (connecting, accepting) = way.streams();
        connecting.write_all_until(&pattern(seed, 64), soon()).unwrap();
        drop(connecting);
        let features = feature::SHARED_RINGS | feature::SHARED_ARENA;
        let passes_descriptors = accepting.passes_descriptors();
        let linked = establish(accepting, features, Side::Worker, to_worker::check);
        // Where no memory can be shared the worker waits for none, and reads the bytes as a frame.
        let Ok((_out, mut receiver)) = linked else { continue };
        assert!(!passes_descriptors, "the worker took garbage for memory");
        assert!(receiver.receive(Patience::Until(soon()), &mut |_, _| Ok(())).is_err());
    }
}
