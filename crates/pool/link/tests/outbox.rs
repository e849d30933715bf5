//! Posting from threads that must not block.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{ALL, Random, pair, pattern, soon, wait_for};
use penstock_link::{Body, Outbox, Patience, Received};
use penstock_wire::calls::to_client::{EventDone, ReadData, Reply};
use penstock_wire::{I32, Id, U64};

fn done(number: u64) -> EventDone {
    EventDone {
        event: Id::new(number),
        status: I32::new(0),
        queued: U64::ZERO,
        submitted: U64::ZERO,
        started: U64::ZERO,
        ended: U64::ZERO,
        completed: U64::ZERO,
    }
}

fn data(number: u64) -> ReadData {
    ReadData { event: Id::new(number), offset: U64::ZERO }
}

fn size_of_post(number: u64) -> usize {
    let mut random = Random::new(number);
    match random.index(10) {
        0..6 => 0,
        6..8 => random.index(5_000),
        8 => random.index(300_000),
        _ => random.index(2 << 20),
    }
}

fn body(number: u64) -> Body {
    let bytes = pattern(number, size_of_post(number));
    match number % 3 {
        _ if bytes.is_empty() => Body::None,
        0 => Body::Bytes(bytes),
        _ => Body::Shared(Box::new(bytes)),
    }
}

#[test]
fn posts_arrive_in_order_and_never_block() {
    for transport in ALL {
        let ((_out, mut input), (sender, _worker_in)) = pair(transport);
        let outbox = Outbox::new(sender);
        let count = 600;
        // Nobody reads yet, so a post that waited would wait for ever.
        for number in 0..count {
            outbox.post(&data(number), &[], body(number));
        }
        assert!(outbox.queued_bytes() > 0, "{transport:?}: the link held everything");
        assert!(!outbox.drain(Instant::now() + Duration::from_millis(20)));
        for number in 0..count {
            let served = input.receive(Patience::Until(soon()), &mut |frame, payload| {
                assert_eq!(frame.body[..8], number.to_le_bytes());
                assert!(payload.read_all()? == pattern(number, size_of_post(number)), "{number}");
                Ok(())
            });
            assert_eq!(served.unwrap(), Received::Frame, "{transport:?} {number}");
        }
        assert!(outbox.drain(soon()));
        assert_eq!(outbox.queued_bytes(), 0);
    }
}

#[test]
fn a_small_post_arrives_without_a_flush() {
    for transport in ALL {
        let ((_out, mut input), (sender, _worker_in)) = pair(transport);
        let outbox = Outbox::new(sender);
        for number in 0..50_u64 {
            outbox.post(&done(number), &[], Body::None);
            let served = input.receive(Patience::Until(soon()), &mut |frame, _| {
                assert_eq!(frame.body[..8], number.to_le_bytes());
                Ok(())
            });
            assert_eq!(served.unwrap(), Received::Frame);
        }
    }
}

#[test]
fn posts_of_many_threads_all_arrive() {
    for transport in ALL {
        let ((_out, mut input), (sender, _worker_in)) = pair(transport);
        let outbox = Outbox::new(sender);
        thread::scope(|scope| {
            for thread in 0..4_u64 {
                let outbox = outbox.clone();
                scope.spawn(move || {
                    for at in 0..2_000 {
                        outbox.post(&done((thread << 32) | at), &[], Body::None);
                    }
                });
            }
            let mut next = [0_u64; 4];
            for _ in 0..8_000 {
                let served = input.receive(Patience::Until(soon()), &mut |frame, _| {
                    let number = u64::from_le_bytes(frame.body[..8].try_into().unwrap());
                    let next = &mut next[usize::try_from(number >> 32).unwrap()];
                    assert_eq!(number & 0xffff_ffff, *next);
                    *next += 1;
                    Ok(())
                });
                assert_eq!(served.unwrap(), Received::Frame);
            }
        });
    }
}

/// Counts when it is dropped, and then posts, as the owner of a read's bytes does.
struct Owned {
    bytes: Vec<u8>,
    outbox: Outbox,
    ended: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.outbox.post(&Reply { request: Id::new(1), status: I32::new(0) }, &[], Body::None);
    }
}

#[test]
fn owners_of_bytes_may_post_when_they_are_dropped() {
    for transport in ALL {
        for read in [true, false] {
            let ((_out, mut input), (sender, _worker_in)) = pair(transport);
            let outbox = Outbox::new(sender);
            let ended = Arc::new(AtomicUsize::new(0));
            for bytes in [10, 3 << 20, 100, 20 << 20, 5] {
                let owned =
                    Owned { bytes: vec![1; bytes], outbox: outbox.clone(), ended: ended.clone() };
                outbox.post(&data(bytes as u64), &[], Body::Shared(Box::new(owned)));
            }
            if read {
                for _ in 0..10 {
                    assert_eq!(
                        input.receive(Patience::Until(soon()), &mut |_, _| Ok(())).unwrap(),
                        Received::Frame
                    );
                }
            } else {
                drop(input);
                drop(_out);
            }
            let what = format!("the end of all posts ({transport:?}, {read})");
            wait_for(&what, || ended.load(Ordering::Relaxed) == 5);
        }
    }
}

#[test]
fn closing_wakes_a_blocked_writer() {
    for transport in ALL {
        let ((_out, _input), (sender, _worker_in)) = pair(transport);
        let outbox = Outbox::new(sender.clone());
        let ended = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let owned =
                Owned { bytes: vec![1; 64 << 20], outbox: outbox.clone(), ended: ended.clone() };
            outbox.post(&data(1), &[], Body::Shared(Box::new(owned)));
        }
        thread::sleep(Duration::from_millis(50));
        outbox.close();
        wait_for("the end of all posts", || ended.load(Ordering::Relaxed) == 3);
        assert!(sender.is_closed());
        outbox.post(&done(1), &[], Body::None);
        assert_eq!(outbox.queued_bytes(), 0);
    }
}

#[test]
fn what_was_posted_is_sent_although_the_outbox_is_dropped() {
    for transport in ALL {
        let ((_out, mut input), (sender, _worker_in)) = pair(transport);
        let outbox = Outbox::new(sender);
        for number in 0..20 {
            outbox.post(&data(number), &[], Body::Bytes(vec![1; 1 << 20]));
        }
        drop(outbox);
        for _ in 0..20 {
            assert_eq!(
                input.receive(Patience::Until(soon()), &mut |_, _| Ok(())).unwrap(),
                Received::Frame
            );
        }
    }
}
