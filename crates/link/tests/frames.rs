//! Frames over every transport.

mod common;

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{ALL, ALLOWANCE, Random, Transport, anything, in_time, pair, pattern, sockets, soon};
use penstock_link::{LinkError, Patience, Received, Receiver, Sender, Side, Stream, establish};
use penstock_wire::calls::{to_client, to_worker};
use penstock_wire::id::kind;
use penstock_wire::{Call, Frame, FrameError, I32, Id, Payload, U64};
use zerocopy::{FromBytes, IntoBytes};

fn ping(number: u64) -> to_worker::Ping {
    to_worker::Ping { request: Id::new(number) }
}

fn marker(number: u64) -> to_worker::Marker {
    to_worker::Marker { queue: Id::new(number), event: Id::new(!number) }
}

fn bulk(number: u64) -> to_worker::InitBuffer {
    to_worker::InitBuffer { mem: Id::new(number), offset: U64::new(7) }
}

fn number_of(frame: &Frame<'_>) -> u64 {
    u64::from_le_bytes(frame.body[..8].try_into().unwrap())
}

fn receive_number(receiver: &mut Receiver) -> u64 {
    let mut number = 0;
    let served = receiver.receive(Patience::Until(soon()), &mut |frame, _| {
        number = number_of(frame);
        Ok(())
    });
    assert_eq!(served.unwrap(), Received::Frame);
    number
}

fn ends(result: Result<Received, LinkError>) -> bool {
    matches!(result, Err(LinkError::Closed | LinkError::System { .. }))
}

#[test]
fn body_waits_and_payload_arrive() {
    for transport in ALL {
        let ((sender, _back), (_reply, mut receiver)) = pair(transport);
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
        assert_eq!(served, 1, "{transport:?}");
    }
}

/// One frame of the random stream; its number and the seed determine it.
struct Planned {
    waits: Vec<Id<kind::Event>>,
    payload: Vec<u8>,
    /// Number of bytes that the handler reads; it leaves the rest.
    read: usize,
}

fn plan(seed: u64, number: u64) -> Planned {
    let mut random = Random(seed ^ (number << 20));
    let bytes = match random.below(20) {
        0..8 => 0,
        8..14 => random.below(300),
        14..17 => random.below(9_000),
        17..19 => random.below(200_000),
        _ => random.below(6 << 20),
    };
    let waits = if random.below(4) == 0 { random.below(2_000) } else { random.below(4) };
    let read = if random.below(5) == 0 { random.below(bytes + 1) } else { bytes };
    Planned {
        waits: (0..waits as u64).map(Id::new).collect(),
        payload: pattern(number, bytes),
        read,
    }
}

fn send_planned(sender: &Sender, seed: u64, count: u64) {
    let mut random = Random(seed + 1);
    for number in 0..count {
        let Planned { waits, payload, .. } = plan(seed, number);
        if random.below(3) == 0 {
            let cut = 1 + random.below(payload.len() + 10);
            let mut pieces = payload.chunks(cut);
            sender.send_pieces(&bulk(number), &waits, payload.len() as u64, &mut pieces).unwrap();
        } else {
            sender.send(&bulk(number), &waits, &payload).unwrap();
        }
        if random.below(10) == 0 {
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
            let mut random = Random(number);
            let mut got = vec![0; expected.read];
            let mut rest = got.as_mut_slice();
            while !rest.is_empty() {
                let step = (1 + random.below(300_000)).min(rest.len());
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

#[test]
fn random_frames_in_both_directions_at_once() {
    for transport in ALL {
        let ((one_out, mut one_in), (two_out, mut two_in)) = pair(transport);
        thread::scope(|scope| {
            scope.spawn(|| send_planned(&one_out, 11, 250));
            scope.spawn(|| send_planned(&two_out, 22, 250));
            scope.spawn(|| receive_planned(&mut two_in, 11, 250));
            scope.spawn(|| receive_planned(&mut one_in, 22, 250));
        });
    }
}

#[test]
fn payloads_up_to_64_mib_arrive() {
    for transport in ALL {
        let ((sender, _back), (_reply, mut receiver)) = pair(transport);
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
                assert!(got == pattern(bytes as u64, bytes), "{transport:?} {bytes}");
            }
        });
    }
}

#[test]
fn frames_of_several_threads_do_not_mix() {
    for transport in ALL {
        let ((sender, _back), (_reply, mut receiver)) = pair(transport);
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
}

#[test]
fn patience_ends() {
    for transport in ALL {
        let ((_sender, _back), (_reply, mut receiver)) = pair(transport);
        let mut never = |_: &Frame<'_>, _: &mut dyn Payload| panic!("no frame was sent");
        assert_eq!(receiver.receive(Patience::Never, &mut never).unwrap(), Received::TimedOut);
        let before = Instant::now();
        let until = Patience::Until(before + Duration::from_millis(50));
        assert_eq!(receiver.receive(until, &mut never).unwrap(), Received::TimedOut);
        let took = before.elapsed();
        assert!(took >= Duration::from_millis(50) && took < ALLOWANCE, "{transport:?} {took:?}");
    }
}

#[test]
fn a_frame_that_came_in_part_is_not_lost_when_patience_ends() {
    for transport in [Transport::Unix, Transport::Tcp] {
        let (ours, theirs) = sockets(transport);
        let mut raw = std::fs::File::from(OwnedFd::from(ours));
        let (_out, mut receiver) = establish(theirs, 0, Side::Worker, anything).unwrap();
        let header = to_worker::Ping::header(0, 0).unwrap();
        raw.write_all(&header.as_bytes()[..9]).unwrap();
        thread::sleep(Duration::from_millis(20));
        let mut never = |_: &Frame<'_>, _: &mut dyn Payload| panic!("half a frame was served");
        assert_eq!(receiver.receive(Patience::Never, &mut never).unwrap(), Received::TimedOut);
        raw.write_all(&header.as_bytes()[9..]).unwrap();
        raw.write_all(&ping(3).as_bytes()[..1]).unwrap();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(receiver.receive(Patience::Never, &mut never).unwrap(), Received::TimedOut);
        raw.write_all(&ping(3).as_bytes()[1..]).unwrap();
        assert_eq!(receive_number(&mut receiver), 3);
    }
}

#[test]
fn small_frames_arrive_without_a_flush() {
    for transport in ALL {
        let ((sender, _back), (_reply, mut receiver)) = pair(transport);
        for number in 0..20 {
            sender.send(&ping(number), &[], &[]).unwrap();
            assert_eq!(receive_number(&mut receiver), number, "{transport:?}");
            // The helper is awake for some calls and asleep for others.
            thread::sleep(Duration::from_millis(number % 3 * 4));
        }
    }
}

#[test]
fn a_hang_up_wakes_both_ends_within_a_second() {
    for transport in ALL {
        for how in ["close", "drop"] {
            in_time(&format!("{transport:?} {how}"), Duration::from_secs(1), || {
                hang_up(transport, how)
            });
        }
    }
}

/// Returns the time after a hang-up until both waiting threads have noticed it.
fn hang_up(transport: Transport, how: &str) -> Duration {
    let ((sender, mut back), (reply, mut receiver)) = pair(transport);
    let blocked = sender.clone();
    thread::scope(|scope| {
        // One thread waits for a frame, one for the peer to read, one for the rest of a payload.
        let waits = scope.spawn(move || {
            assert!(ends(back.receive(Patience::Forever, &mut |_, _| Ok(()))), "{transport:?}");
            Instant::now()
        });
        let writes = scope.spawn(move || {
            assert!(blocked.send(&bulk(1), &[], &vec![0; 64 << 20]).is_err(), "{transport:?}");
            Instant::now()
        });
        let served = receiver.receive(Patience::Until(soon()), &mut |_, payload| {
            payload.read(&mut [0; 1000])?;
            thread::sleep(Duration::from_millis(100));
            Err(FrameError::Broken)
        });
        assert!(served.is_err());
        let before = Instant::now();
        if how == "close" {
            reply.close();
        }
        drop(reply);
        drop(receiver);
        let noticed =
            [waits, writes].map(|thread| thread.join().unwrap().saturating_duration_since(before));
        noticed[0].max(noticed[1])
    })
}

#[test]
fn a_hang_up_inside_a_payload_wakes_the_reader() {
    for transport in ALL {
        let ((sender, _back), (_reply, mut receiver)) = pair(transport);
        thread::scope(|scope| {
            scope.spawn(move || {
                // The pieces end early, which closes the link.
                let piece = vec![1; 100_000];
                let sent =
                    sender.send_pieces(&bulk(1), &[], 1 << 30, &mut [&piece[..]].into_iter());
                assert!(matches!(sent, Err(LinkError::Pieces { given: 100_000, .. })), "{sent:?}");
                assert!(matches!(sender.send(&ping(1), &[], &[]), Err(LinkError::Closed)));
            });
            let before = Instant::now();
            let served = receiver.receive(Patience::Forever, &mut |_, payload| {
                payload.read(&mut vec![0; 100_000])?;
                assert_eq!(payload.read(&mut [0; 10]), Err(FrameError::Broken));
                Err(FrameError::Broken)
            });
            assert!(ends(served));
            assert!(before.elapsed() < ALLOWANCE);
        });
    }
}

#[test]
fn what_was_sent_before_a_hang_up_is_received() {
    for transport in ALL {
        let ((sender, back), (_reply, mut receiver)) = pair(transport);
        for number in 0..10 {
            sender.send(&ping(number), &[], &[]).unwrap();
        }
        sender.flush().unwrap();
        drop((sender, back));
        thread::sleep(Duration::from_millis(30));
        for number in 0..10 {
            assert_eq!(receive_number(&mut receiver), number, "{transport:?}");
        }
        assert!(ends(receiver.receive(Patience::Forever, &mut |_, _| Ok(()))));
    }
}

#[test]
fn truncated_frames_are_a_hang_up_and_nothing_more() {
    let waits: [Id<kind::Event>; 2] = [Id::new(1), Id::new(2)];
    let header = to_worker::InitBuffer::header(waits.len(), 100).unwrap();
    let whole = [header.as_bytes(), bulk(1).as_bytes(), waits.as_bytes(), &[7; 100]].concat();
    for length in 0..whole.len() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stream = Stream::from_fd(theirs.into()).unwrap();
        let (_out, mut receiver) = establish(stream, 0, Side::Worker, to_worker::check).unwrap();
        (&ours).write_all(&whole[..length]).unwrap();
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

#[test]
fn garbage_is_refused_by_the_table() {
    let mut random = Random(99);
    for _ in 0..2_000 {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stream = Stream::from_fd(theirs.into()).unwrap();
        let (_out, mut receiver) = establish(stream, 0, Side::Worker, to_worker::check).unwrap();
        let mut bytes = pattern(random.next(), 200);
        if random.below(2) == 0 {
            // A known opcode with wrong lengths.
            bytes[..2].copy_from_slice(&to_worker::InitBuffer::OPCODE.to_le_bytes());
        }
        (&ours).write_all(&bytes).unwrap();
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

#[test]
fn an_error_of_the_handler_ends_the_receiver() {
    for transport in ALL {
        let ((sender, _back), (_reply, mut receiver)) = pair(transport);
        sender.send(&bulk(1), &[], &[0; 100]).unwrap();
        sender.send(&ping(1), &[], &[]).unwrap();
        sender.flush().unwrap();
        let served = receiver
            .receive(Patience::Until(soon()), &mut |_, _| Err(FrameError::BadPayload("test")));
        assert!(matches!(served, Err(LinkError::Frame(FrameError::BadPayload("test")))));
        assert!(ends(receiver.receive(Patience::Forever, &mut |_, _| Ok(()))));
    }
}

#[test]
fn try_send_sends_all_or_nothing_and_never_blocks() {
    for transport in ALL {
        let ((sender, _back), (_reply, mut receiver)) = pair(transport);
        let mut random = Random(3);
        let mut sent = Vec::new();
        let mut refused = 0;
        while refused < 20 && sent.len() < 1_000_000 {
            let number = sent.len() as u64;
            let bytes =
                if random.below(10) == 0 { random.below(200_000) } else { random.below(200) };
            let before = Instant::now();
            if sender.try_send(&bulk(number), &[], &pattern(number, bytes)).unwrap() {
                sent.push(bytes);
            } else {
                refused += 1;
            }
            assert!(before.elapsed() < ALLOWANCE, "{transport:?}");
        }
        assert_eq!(refused, 20, "{transport:?} takes everything");
        for (number, bytes) in sent.into_iter().enumerate() {
            let number = number as u64;
            let served = receiver.receive(Patience::Until(soon()), &mut |frame, payload| {
                assert_eq!(number_of(frame), number);
                assert!(payload.read_all()? == pattern(number, bytes));
                Ok(())
            });
            assert_eq!(served.unwrap(), Received::Frame, "{transport:?} {number}");
        }
    }
}

#[test]
fn sleepers_on_rings_are_always_woken() {
    // The pauses of the round trips fall around the moment at which the other side goes to sleep.
    // After that the ring is full most of the time. A lost wake-up shows as a time-out.
    let ((client_out, mut client_in), (worker_out, mut worker_in)) = pair(Transport::Ring);
    let rounds = 20_000_u64;
    let served = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while served.load(Ordering::Relaxed) < rounds {
                let number = receive_number(&mut worker_in);
                served.fetch_add(1, Ordering::Relaxed);
                let done = to_client::Reply { request: Id::new(number), status: I32::new(0) };
                worker_out.send(&done, &[], &[]).unwrap();
            }
        });
        let mut random = Random(5);
        for number in 0..rounds {
            client_out.send(&marker(number), &[], &[]).unwrap();
            assert_eq!(receive_number(&mut client_in), number);
            let pause = Duration::from_nanos(random.next() % 120_000);
            let until = Instant::now() + pause;
            if number % 4 == 0 {
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
            }
        }
    });
    let bytes = 40 << 10;
    let payload = vec![9; bytes];
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..20_000 {
                client_out.send(&bulk(number), &[], &payload).unwrap();
            }
        });
        let mut random = Random(6);
        for number in 0..20_000 {
            if random.below(64) == 0 {
                thread::sleep(Duration::from_micros(random.next() % 300));
            }
            assert_eq!(receive_number(&mut worker_in), number);
        }
    });
}

#[test]
fn a_forked_child_is_told_and_leaves_its_parent_alone() {
    for transport in ALL {
        let ((sender, mut back), (_reply, mut receiver)) = pair(transport);
        // SAFETY: the child uses the link, which refuses at once, allocates little, and ends with
        // _exit. No other thread of this test holds a lock that the child needs.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let sent = matches!(sender.send(&ping(66), &[], &[]), Err(LinkError::Forked));
            let tried = matches!(sender.try_send(&ping(66), &[], &[]), Err(LinkError::Forked));
            let flushed = matches!(sender.flush(), Err(LinkError::Forked));
            let received = matches!(
                back.receive(Patience::Forever, &mut |_, _| Ok(())),
                Err(LinkError::Forked)
            );
            sender.close();
            drop((sender, back));
            // SAFETY: ends the child without running any code of the parent.
            unsafe { libc::_exit(i32::from(!(sent && tried && flushed && received))) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above; the pointer refers to a local.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0), "{transport:?}");
        sender.send(&ping(1), &[], &[]).unwrap();
        sender.flush().unwrap();
        assert_eq!(
            receive_number(&mut receiver),
            1,
            "{transport:?}: the child closed its parent's link"
        );
    }
}
