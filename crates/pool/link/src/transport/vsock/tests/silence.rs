//! Silent peers behind a monitor: who is lost, and who is not.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use penstock_trial::{deadline, in_time, wait_for};
use penstock_wire::calls::{to_client, to_worker};
use penstock_wire::hello::feature;
use penstock_wire::{Call as _, Id, U64};

use super::monitor::{self, Guest};
use crate::address::Address;
use crate::error::LinkError;
use crate::establish::{establish, establish_within};
use crate::listener::Listener;
use crate::receiver::{Received, Receiver};
use crate::sender::Sender;
use crate::stream::Stream;
use crate::transport::contract::Side;
use crate::wait::Patience;

/// Time after which a machine that answers nothing is lost.
const LOSS_MAX: Duration = Duration::from_secs(8);
/// Silence of a worker that these tests allow. A waiting thread looks once a second.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Time between two beats. A busy host may add nine times as much.
const BEAT: Duration = Duration::from_millis(500);

/// A connection through a monitor: its ends, and what the test makes of the guest.
struct Through {
    connecting: Stream,
    accepted: Stream,
    guest: Arc<Guest>,
    /// The monitor lives as long as its folder.
    folder: Folder,
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A link through a monitor.
struct Linked {
    client: (Sender, Receiver),
    worker: (Sender, Receiver),
    guest: Arc<Guest>,
    _folder: Folder,
}

impl Through {
    fn begin() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("penstock-silence-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let guest: Arc<Guest> = Arc::default();
        let address: Address = monitor::start(&folder, guest.clone()).parse().unwrap();
        let listener = Listener::bind(&address).unwrap();
        let connecting = Stream::connect(&address, deadline()).unwrap();
        let accepted = listener.accept().unwrap();
        Self { connecting, accepted, guest, folder: Folder(folder) }
    }

    /// Makes a link whose client counts a silent worker as gone after [`SILENCE_MAX`].
    fn link(self) -> Linked {
        let (beats, max) = (feature::BEATS, Some(SILENCE_MAX));
        let client = establish_within(self.connecting, beats, Side::Client, to_client::check, max);
        let worker = establish(self.accepted, beats, Side::Worker, to_worker::check);
        let (client, worker) = (client.unwrap(), worker.unwrap());
        Linked { client, worker, guest: self.guest, _folder: self.folder }
    }
}

/// Waits until an end of a link has heard that the guest's kernel answers, because a machine that
/// never answers is never lost. The end looks at least once in the time of `look`.
fn hear_answer(guest: &Guest, mut look: impl FnMut()) {
    let before = guest.refusals.load(Ordering::Relaxed);
    wait_for("an answer of the guest", || {
        look();
        guest.refusals.load(Ordering::Relaxed) > before
    });
    look();
}

#[test]
fn a_guest_that_is_paused_is_lost_at_both_ends() {
    let Through { connecting, accepted, guest, folder: _folder } = Through::begin();
    for stream in [&connecting, &accepted] {
        hear_answer(&guest, || {
            let limit = Instant::now() + Duration::from_secs(2);
            let heard = stream.read_exact_until(&mut [0], limit);
            assert!(matches!(heard, Err(LinkError::HelloTimeout { .. })), "{heard:?}");
        });
    }
    guest.is_paused.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        for stream in [&connecting, &accepted] {
            scope.spawn(|| {
                let read = || stream.read_exact_until(&mut [0], deadline());
                let heard = in_time("the loss of a guest", read);
                assert!(matches!(heard, Err(LinkError::Vanished)), "{heard:?}");
            });
        }
    });
    guest.is_paused.store(false, Ordering::Relaxed);
}

/// A program that a debugger has stopped says nothing, but the kernel of its guest answers.
#[test]
fn a_silent_program_in_a_living_guest_is_not_lost() {
    let Through { connecting, accepted, folder: _folder, .. } = Through::begin();
    let heard = accepted.read_exact_until(&mut [0], Instant::now() + LOSS_MAX * 3 / 2);
    assert!(matches!(heard, Err(LinkError::HelloTimeout { .. })), "{heard:?}");
    connecting.write_all_until(b"still here", deadline()).unwrap();
    accepted.read_exact_until(&mut [0; 10], deadline()).unwrap();
}

/// The guest's kernel lives, so only the beats tell that the worker or the monitor has gone.
#[test]
fn a_worker_without_beats_is_lost_and_a_busy_one_is_not() {
    let Linked { client: (_sender, mut receiver), worker: (worker, _calls), _folder, .. } =
        Through::begin().link();
    let (end, ends) = mpsc::channel::<()>();
    let beats = thread::spawn(move || {
        // The worker's reader is busy in a driver: it takes nothing and answers nothing.
        while ends.recv_timeout(BEAT).is_err() {
            worker.tend(&to_client::Beat {}).unwrap();
        }
        worker
    });
    let mut hear = || {
        receiver.receive(Patience::Until(deadline()), &mut |frame, _| {
            assert_eq!(frame.header.opcode.get(), to_client::Beat::OPCODE);
            Ok(())
        })
    };
    let busy_until = Instant::now() + SILENCE_MAX * 3 / 2;
    while Instant::now() < busy_until {
        assert_eq!(hear().expect("lost while the beats came"), Received::Frame);
    }
    end.send(()).unwrap();
    let _worker = beats.join().unwrap();
    let failure = in_time("the loss of a worker", || {
        loop {
            match hear() {
                // Beats were on their way.
                Ok(Received::Frame) => {}
                other => break other,
            }
        }
    });
    assert!(matches!(failure, Err(LinkError::Silent { seconds: 5 })), "{failure:?}");
}

/// A payload that takes longer than the silence that is allowed. No beat can come while the
/// worker sends it, and its bytes come in place of beats.
#[test]
fn a_slow_payload_is_a_sign_of_life() {
    let Linked { client: (_sender, mut receiver), worker: (worker, _calls), guest, _folder } =
        Through::begin().link();
    guest.slowness_ms.store(500, Ordering::Relaxed);
    let bytes = 1 << 20;
    let payload = vec![7; bytes];
    let begun = Instant::now();
    let sending = thread::spawn(move || {
        let call = to_client::ReadData { event: Id::new(1), offset: U64::new(0) };
        worker.send(&call, &[], &payload).unwrap();
        worker
    });
    let received = receiver.receive(Patience::Forever, &mut |_, payload| {
        assert_eq!(payload.read_all()?, vec![7; bytes]);
        Ok(())
    });
    assert_eq!(received.unwrap(), Received::Frame);
    assert!(Instant::now() > begun + SILENCE_MAX, "no slow payload");
    sending.join().unwrap();
}

/// The worker's thread that tends the link finds the loss even if no thread waits for the link.
#[test]
fn a_worker_inside_a_driver_notices_that_its_guest_is_paused() {
    let Linked { client: _client, worker: (worker, _calls), guest, _folder } =
        Through::begin().link();
    hear_answer(&guest, || {
        worker.tend(&to_client::Beat {}).unwrap();
        thread::sleep(Duration::from_millis(200));
    });
    guest.is_paused.store(true, Ordering::Relaxed);
    let mut tended = Ok(());
    wait_for("the loss of a guest", || {
        tended = worker.tend(&to_client::Beat {});
        tended.is_err()
    });
    assert!(matches!(tended, Err(LinkError::Vanished)), "{tended:?}");
    assert!(worker.is_closed());
    guest.is_paused.store(false, Ordering::Relaxed);
}

#[test]
fn both_ends_agree_on_beats() {
    let Through { connecting, accepted, folder: _folder, .. } = Through::begin();
    let both = connecting.features() & accepted.features();
    assert_eq!(both, feature::PEERS | feature::BEATS | feature::HEADERS);
}
