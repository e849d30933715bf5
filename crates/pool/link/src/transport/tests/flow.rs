//! Back-pressure and patience.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use penstock_wire::calls::{to_client, to_worker};
use penstock_wire::{Frame, I32, Id, Payload};

use super::support::{Random, in_time, pattern, soon, wait_for};
use super::{Way, bulk, number_of, receive_number};
use crate::receiver::Received;
use crate::wait::{Patience, take_room_wait};

pub(crate) fn patience_ends(way: &Way) {
    let ((_sender, _back), (_reply, mut receiver)) = way.links();
    let mut never = |_: &Frame<'_>, _: &mut dyn Payload| panic!("no frame was sent");
    assert_eq!(receiver.receive(Patience::Never, &mut never).unwrap(), Received::TimedOut);
    let limit = Instant::now() + Duration::from_millis(50);
    let received = in_time("patience", || receiver.receive(Patience::Until(limit), &mut never));
    assert_eq!(received.unwrap(), Received::TimedOut);
    assert!(Instant::now() >= limit);
}

pub(crate) fn try_send_sends_all_or_nothing_and_never_blocks(way: &Way) {
    let ((sender, _back), (_reply, mut receiver)) = way.links();
    let mut random = Random::new(3);
    let mut sent = Vec::new();
    let mut refused = 0;
    while refused < 20 && sent.len() < 1_000_000 {
        let number = sent.len() as u64;
        let bytes = if random.index(10) == 0 { random.index(200_000) } else { random.index(200) };
        // Nobody reads, so a call that waited would wait for ever.
        if sender.try_send(&bulk(number), &[], &pattern(number, bytes)).unwrap() {
            sent.push(bytes);
        } else {
            refused += 1;
        }
    }
    assert_eq!(refused, 20, "the link takes everything");
    for (number, bytes) in sent.into_iter().enumerate() {
        let number = number as u64;
        let served = receiver.receive(Patience::Until(soon()), &mut |frame, payload| {
            assert_eq!(number_of(frame), number);
            assert!(payload.read_all()? == pattern(number, bytes));
            Ok(())
        });
        assert_eq!(served.unwrap(), Received::Frame, "{number}");
    }
}

pub(crate) fn a_sender_without_room_waits_for_the_reader_and_says_so(way: &Way) {
    let ((sender, _back), (_reply, mut receiver)) = way.links();
    let stalls = Arc::new(AtomicU64::new(0));
    let counted = stalls.clone();
    sender.on_stall(move || _ = counted.fetch_add(1, Ordering::Relaxed));
    let payload = pattern(1, 64 << 20);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            sender.send(&bulk(1), &[], &payload).unwrap();
            sender.flush().unwrap();
            assert!(!take_room_wait().is_zero() && take_room_wait().is_zero());
            done.store(true, Ordering::Relaxed);
        });
        wait_for("a stall", || stalls.load(Ordering::Relaxed) > 0);
        assert!(!done.load(Ordering::Relaxed), "the link takes everything");
        let served = receiver.receive(Patience::Until(soon()), &mut |_, got| {
            assert!(got.read_all()? == payload);
            Ok(())
        });
        assert_eq!(served.unwrap(), Received::Frame);
    });
    assert!(done.load(Ordering::Relaxed));
}

fn marker(number: u64) -> to_worker::Marker {
    to_worker::Marker { queue: Id::new(number), event: Id::new(!number) }
}

pub(crate) fn sleepers_are_always_woken(way: &Way) {
    // The pauses of the round trips fall around the moment at which the other side goes to sleep.
    // After that the link is full most of the time. A lost wake-up shows as a time-out.
    let rounds = 20_000_u64;
    let ((client_out, mut client_in), (worker_out, mut worker_in)) = way.links();
    let served = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while served.load(Ordering::Relaxed) < rounds {
                let number = receive_number(&mut worker_in);
                served.fetch_add(1, Ordering::Relaxed);
                let done = to_client::Reply { request: Id::new(number), status: I32::new(0) };
                worker_out.send(&done, &[], &[]).unwrap();
                worker_out.flush().unwrap();
            }
        });
        let mut random = Random::new(5);
        for number in 0..rounds {
            client_out.send(&marker(number), &[], &[]).unwrap();
            client_out.flush().unwrap();
            assert_eq!(receive_number(&mut client_in), number);
            let pause = Duration::from_nanos(random.number() % 120_000);
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
            for number in 0..rounds {
                client_out.send(&bulk(number), &[], &payload).unwrap();
            }
        });
        let mut random = Random::new(6);
        for number in 0..rounds {
            if random.index(64) == 0 {
                thread::sleep(Duration::from_micros(random.number() % 300));
            }
            assert_eq!(receive_number(&mut worker_in), number);
        }
    });
}
