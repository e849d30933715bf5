//! Peers that send beats, and peers that were stopped.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use penstock_wire::calls::to_client::Beat;
use penstock_wire::hello::feature;

use super::support::{in_time, pattern, soon};
use super::{Way, bulk};
use crate::error::LinkError;
use crate::receiver::{Received, Receiver};
use crate::wait::Patience;

/// Silence that these tests allow. A waiting thread looks once a second.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// Time between two beats. A busy host may add seven times as much.
const BEAT: Duration = Duration::from_millis(500);
/// More than a link holds.
const MUCH_BYTES: usize = 64 << 20;

fn hear(receiver: &mut Receiver) -> Result<Received, LinkError> {
    receiver.receive(Patience::Until(soon()), &mut |_, _| Ok(()))
}

fn hear_the_end(receiver: &mut Receiver) -> LinkError {
    in_time("the loss of a peer", || {
        loop {
            match hear(receiver) {
                // Beats were on their way.
                Ok(Received::Frame) => {}
                Ok(Received::TimedOut) => panic!("the peer is not given up"),
                Err(error) => break error,
            }
        }
    })
}

/// The peer takes nothing while it lives, as a worker inside a driver. Nobody gives it up then.
pub(crate) fn a_peer_that_stops_is_given_up_by_readers_and_writers(way: &Way) {
    let features = way.features | feature::BEATS;
    let ((sender, mut receiver), (worker, _calls)) = way.links_within(features, Some(SILENCE_MAX));
    let (stop, stopped) = mpsc::channel::<()>();
    let beats = thread::spawn(move || {
        while stopped.recv_timeout(BEAT).is_err() {
            worker.tend(&Beat {}).unwrap();
        }
        worker
    });
    let writer = thread::spawn(move || {
        let sent = sender.send(&bulk(1), &[], &pattern(1, MUCH_BYTES));
        (sent, sender)
    });
    let busy_until = Instant::now() + SILENCE_MAX * 3 / 2;
    while Instant::now() < busy_until {
        assert_eq!(hear(&mut receiver).expect("lost while it beats"), Received::Frame);
    }
    assert!(!writer.is_finished(), "the link takes everything");
    stop.send(()).unwrap();
    let _worker = beats.join().unwrap();
    let seconds = SILENCE_MAX.as_secs();
    let end = hear_the_end(&mut receiver);
    assert!(matches!(end, LinkError::Silent { seconds: it } if it == seconds), "{end:?}");
    let (sent, sender) = in_time("the end of a writer", || writer.join().unwrap());
    assert!(matches!(sent, Err(LinkError::Silent { seconds: it }) if it == seconds), "{sent:?}");
    assert!(sender.check_peer().is_err());
}

/// A program that computes for long, or that is stopped, looks rarely. It finds the beats that came
/// meanwhile, and takes none of its own absence for the silence of its peer.
pub(crate) fn a_reader_that_was_away_gives_nobody_up(way: &Way) {
    let features = way.features | feature::BEATS;
    let ((sender, mut receiver), (worker, _calls)) = way.links_within(features, Some(SILENCE_MAX));
    worker.tend(&Beat {}).unwrap();
    thread::sleep(SILENCE_MAX * 3 / 2);
    sender.check_peer().unwrap();
    assert_eq!(hear(&mut receiver).unwrap(), Received::Frame);
    thread::sleep(SILENCE_MAX * 3 / 2);
    sender.check_peer().unwrap();
    worker.tend(&Beat {}).unwrap();
    assert_eq!(hear(&mut receiver).unwrap(), Received::Frame);
    // Without anything for the reader to take, a thread that only polls finds the silence as well.
    let end = in_time("the loss of a peer", || {
        loop {
            thread::sleep(BEAT);
            if let Err(end) = sender.check_peer() {
                break end;
            }
        }
    });
    assert!(matches!(end, LinkError::Silent { .. }), "{end:?}");
}
