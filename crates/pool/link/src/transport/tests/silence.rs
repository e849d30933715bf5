//! Peers that send beats, and peers that were stopped. Where a peer must not be lost, the test
//! gives the time, so that a busy host changes nothing.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use penstock_wire::calls::to_client::Beat;
use penstock_wire::hello::feature;

use super::support::{in_time, pattern, soon};
use super::{End, Way, bulk};
use crate::error::LinkError;
use crate::receiver::{Received, Receiver};
use crate::sender::Sender;
use crate::wait::Patience;

/// Silence that these tests allow.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// Silence of a peer that sends nothing at all, which a busy host cannot make shorter. It takes a
/// waiting thread several looks, which are a second apart.
const STOPPED_MAX: Duration = Duration::from_secs(3);
/// Time between two looks of a thread that waits.
const LOOK: Duration = Duration::from_secs(1);
/// Looks in which a peer would be lost several times.
const MANY_LOOKS: u32 = 50;
/// More than a link holds.
const MUCH_BYTES: usize = 64 << 20;

fn links(way: &Way, silence_max: Duration) -> (End, End) {
    way.links_within(way.features | feature::BEATS, Some(silence_max))
}

/// Sends a beat. [`Sender::tend`] sends none while another thread holds the lock for a moment.
fn beat(worker: &Sender) {
    worker.send(&Beat {}, &[], &[]).unwrap();
    worker.flush().unwrap();
}

fn hear(receiver: &mut Receiver) -> Result<Received, LinkError> {
    receiver.receive(Patience::Until(soon()), &mut |_, payload| payload.read_all().map(|_| ()))
}

/// Looks until the peer is lost. Returns how many looks that took.
fn looks_until_lost(sender: &Sender, mut now: Instant) -> u32 {
    for look in 1..=MANY_LOOKS {
        now += LOOK;
        if let Err(end) = sender.look_at(now) {
            assert_silent(&end, SILENCE_MAX);
            return look;
        }
    }
    panic!("the peer is not given up");
}

fn assert_silent(end: &LinkError, max: Duration) {
    assert!(matches!(end, LinkError::Silent { seconds } if *seconds == max.as_secs()), "{end:?}");
}

pub(crate) fn a_peer_that_beats_is_kept_until_it_stops(way: &Way) {
    let ((sender, mut receiver), (worker, _calls)) = links(way, SILENCE_MAX);
    let mut now = Instant::now();
    for _ in 0..MANY_LOOKS {
        beat(&worker);
        assert_eq!(hear(&mut receiver).unwrap(), Received::Frame);
        now += LOOK;
        sender.look_at(now).expect("lost while it beats");
    }
    assert_eq!(looks_until_lost(&sender, now), 4, "{SILENCE_MAX:?} without a byte");
    assert_silent(&hear(&mut receiver).unwrap_err(), SILENCE_MAX);
    assert!(sender.check_peer().is_err());
}

/// A program that computes for long, or that is stopped, looks rarely. It finds the beats that came
/// meanwhile, and takes none of its own absence for the silence of its peer.
pub(crate) fn a_reader_that_was_away_gives_nobody_up(way: &Way) {
    let ((sender, mut receiver), (worker, _calls)) = links(way, SILENCE_MAX);
    let absence = Duration::from_secs(3_600);
    let mut now = Instant::now() + absence;
    beat(&worker);
    sender.look_at(now).expect("the own absence counts");
    assert_eq!(hear(&mut receiver).unwrap(), Received::Frame);
    // Notes that the reader has heard something.
    sender.look_at(now).unwrap();
    now += absence;
    sender.look_at(now).expect("the own absence counts");
    // Only 2 s of the second absence counted.
    assert_eq!(looks_until_lost(&sender, now), 2);
}

/// A worker in the middle of a frame waits for room and can send no beat meanwhile.
pub(crate) fn a_peer_that_finds_no_room_is_kept(way: &Way) {
    let ((sender, mut receiver), (worker, _calls)) = links(way, SILENCE_MAX);
    let (tell, stalled) = mpsc::channel();
    worker.on_stall(move || _ = tell.send(()));
    let sending = thread::spawn(move || {
        worker.send(&bulk(1), &[], &pattern(1, MUCH_BYTES)).unwrap();
        worker.flush().unwrap();
        worker
    });
    in_time("a writer without room", || stalled.recv().unwrap());
    // A bridge of SSH may still have all of it.
    in_time("the first bytes", || {
        while !sender.has_come() {
            thread::yield_now();
        }
    });
    let mut now = Instant::now();
    for _ in 0..MANY_LOOKS {
        now += LOOK;
        sender.look_at(now).expect("lost although nobody takes what it sends");
    }
    assert_eq!(hear(&mut receiver).unwrap(), Received::Frame);
    let _worker = in_time("the end of a writer", || sending.join().unwrap());
}

pub(crate) fn a_peer_that_stops_is_given_up_by_readers_and_writers(way: &Way) {
    let ((_sender, mut receiver), _stopped) = links(way, STOPPED_MAX);
    let ((sender, _receiver), _stopped_too) = links(way, STOPPED_MAX);
    let writer = thread::spawn(move || sender.send(&bulk(1), &[], &pattern(1, MUCH_BYTES)));
    let read = in_time("the end of a reader", || hear(&mut receiver));
    assert_silent(&read.unwrap_err(), STOPPED_MAX);
    let written = in_time("the end of a writer", || writer.join().unwrap());
    assert_silent(&written.unwrap_err(), STOPPED_MAX);
}
