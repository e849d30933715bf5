//! Sessions whose workers are threads of the test.

use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use penstock_link::{LinkError, Side, Stream, establish};
use penstock_wire::hello::feature;
use penstock_wire::{Call, FrameError, Payload, U64};

use super::*;
use crate::event::Event;
use crate::event::Times;

/// More bytes than a socket can hold.
pub(crate) const MUCH: usize = 32 << 20;

pub(crate) fn session(node: usize) -> (Arc<Session>, (Sender, Receiver)) {
    session_over(0, node)
}

/// Makes a session and the two ends of its worker, over a link with these features.
pub(crate) fn session_over(features: u64, node: usize) -> (Arc<Session>, (Sender, Receiver)) {
    let (here, there) = UnixStream::pair().unwrap();
    let stream = |end: UnixStream| Stream::from_fd(end.into()).unwrap();
    let worker = thread::spawn(move || {
        establish(stream(there), features, Side::Worker, to_worker::check).unwrap()
    });
    let client = establish(stream(here), features, Side::Client, to_client::check).unwrap();
    (Session::new(node, format!("node {node}").into(), false, None, client), worker.join().unwrap())
}

/// Returns whether the session still waits for the end of this event.
pub(crate) fn expects(session: &Session, event: &Event) -> bool {
    session.open.lock().events.contains_key(&event.0.id.get())
}

/// Plays a worker at its limit: it takes nothing until the client has taken what the worker has
/// sent. Returns when it was told the end of an event.
fn full_worker((sender, mut receiver): (Sender, Receiver), ended: Id<kind::Event>) {
    let done = to_client::EventDone::new(ended, Status::OK, Times::default());
    sender.send(&done, &[], &[]).unwrap();
    let data = to_client::ReadData { event: Id::new(u64::MAX), offset: U64::ZERO };
    sender.send(&data, &[], &vec![0; MUCH]).unwrap();
    sender.flush().unwrap();
    let mut told = false;
    while !told {
        let mut serve = |frame: &penstock_wire::Frame<'_>, _: &mut dyn Payload| {
            told |= frame.header.opcode.get() == to_worker::ResolveEvent::OPCODE;
            Ok(())
        };
        receiver.receive(Patience::Forever, &mut serve).unwrap();
    }
}

#[test]
fn two_full_links_whose_sessions_tell_each_other_do_not_wait_in_a_circle() {
    let (told, heard) = mpsc::channel();
    let ((a, worker_a), (b, worker_b)) = (session(0), session(1));
    let events = [
        Event::of_command(&a, crate::ids::next_id(), true),
        Event::of_command(&b, crate::ids::next_id(), true),
    ];
    for (event, (home, other)) in events.iter().zip([(&a, &b), (&b, &a)]) {
        event.expect_at(home).unwrap();
        // The workers have no link, so the client tells the end.
        assert!(event.id_for(other).is_ok());
        other.flush().unwrap();
    }
    for session in [&a, &b] {
        let (session, told) = (session.clone(), told.clone());
        thread::spawn(move || {
            let call = to_worker::InitBuffer { mem: Id::new(1), offset: U64::ZERO };
            session.send(&call, &[], &vec![0; MUCH]).unwrap();
            told.send("sent").unwrap();
        });
    }
    // Lets both links fill up before the ends come.
    thread::sleep(Duration::from_millis(300));
    for (worker, event) in [(worker_a, &events[0]), (worker_b, &events[1])] {
        let (told, id) = (told.clone(), event.0.id);
        thread::spawn(move || {
            full_worker(worker, id);
            told.send("told").unwrap();
        });
    }
    for _ in 0..4 {
        heard.recv_timeout(penstock_trial::patience()).expect("a thread waits for ever");
    }
}

/// Memory of the program that takes a read's bytes slowly. `is_written` is set while it does.
struct SlowMemory {
    is_written: Arc<AtomicBool>,
}

/// With [`PIECE_PAUSE`] after each piece, the content of a full ring or socket (at least some 200
/// KiB) lasts for 200 ms or more.
const PIECE_BYTES: usize = 1 << 10;
const PIECE_PAUSE: Duration = Duration::from_millis(1);

impl Target for SlowMemory {
    fn take(&mut self, _: u64, payload: &mut dyn Payload) -> Result<(), FrameError> {
        self.is_written.store(true, Ordering::Release);
        let mut piece = [0; PIECE_BYTES];
        let taken = loop {
            match payload.read(&mut piece) {
                Ok(()) => thread::sleep(PIECE_PAUSE),
                Err(error) => break Err(error),
            }
        };
        self.is_written.store(false, Ordering::Release);
        taken
    }
}

/// A way in which a program learns that a node is lost.
pub(crate) type Learn = fn(&Arc<Session>, &Event);

/// Plays a worker that sends a read's bytes without end and hangs up while some are still on their
/// way. A thread other than the receiving one notices the hang-up. When the program learns of it by
/// `learn`, no thread may write to its memory any more.
fn memory_is_the_programs_when_a_loss_is_known(features: u64, learn: Learn) {
    let (session, (sender, receiver)) = session_over(features, 0);
    let (event, is_written) = (
        Event::of_command(&session, crate::ids::next_id(), true),
        Arc::new(AtomicBool::new(false)),
    );
    event
        .expect_read_at(&session, Box::new(SlowMemory { is_written: is_written.clone() }))
        .unwrap();
    let data = to_client::ReadData { event: event.0.id, offset: U64::ZERO };
    let full = sender.clone();
    let worker = thread::spawn(move || {
        // The call ends when the worker hangs up.
        _ = full.send_pieces(&data, &[], 1 << 40, &mut std::iter::repeat(&[7; MUCH / 32][..]));
    });
    let waiting = (session.clone(), event.clone());
    let reader = thread::spawn(move || waiting.1.wait());
    while !is_written.load(Ordering::Acquire) {
        thread::yield_now();
    }
    // Lets the ring or the socket fill up.
    thread::sleep(Duration::from_millis(100));
    sender.close();
    worker.join().unwrap();
    learn(&session, &event);
    assert!(
        !is_written.load(Ordering::Acquire),
        "the program's memory is written to after the end"
    );
    assert_eq!(reader.join().unwrap(), Status::NODE_LOST);
    drop(receiver);
}

/// The session is lost in this thread while an observer waits for the read's event.
fn by_its_event(session: &Arc<Session>, event: &Event) {
    let observer = event.clone();
    let observer = thread::spawn(move || observer.wait());
    session.lose(&LinkError::Closed);
    observer.join().unwrap();
}

/// Has another thread lose the session, and returns as soon as calls can find the loss.
fn lose_elsewhere(session: &Arc<Session>) {
    let first = session.clone();
    // The thread may wait until this one has learned of the loss.
    thread::spawn(move || first.lose(&LinkError::Closed));
    while session.open.lock().lost.is_none() {
        thread::yield_now();
    }
}

/// This thread learns of the loss by an error from a call.
fn by_another_call(session: &Arc<Session>, _: &Event) {
    lose_elsewhere(session);
    assert!(Event::of_command(session, crate::ids::next_id(), true).expect_at(session).is_err());
}

/// The worker has answered a call with a status, and this thread asks for its error.
fn by_an_answer(session: &Arc<Session>, _: &Event) {
    lose_elsewhere(session);
    assert!(matches!(session.refused(Status(-5)), Error::Lost { .. }));
}

pub(crate) const LEARN: [Learn; 3] = [by_its_event, by_another_call, by_an_answer];

#[test]
fn a_read_of_a_lost_session_ends_when_nothing_is_written_any_more() {
    for features in [feature::SHARED_RINGS, 0] {
        LEARN
            .into_iter()
            .for_each(|learn| memory_is_the_programs_when_a_loss_is_known(features, learn));
    }
}

#[test]
fn a_write_that_begins_after_the_wait_for_copies_takes_nothing() {
    for features in [feature::SHARED_RINGS, 0] {
        let (session, _worker) = session_over(features, 0);
        // Another thread that loses the session has come this far, and has not closed the link.
        session.open.lock().lost = Some("a loss of the test".into());
        session.await_copies();
        let sent =
            session.send_held::<to_worker::WriteBuffer>(1, |_| panic!("the bytes are taken"));
        assert!(matches!(sent, Err(Error::Lost { .. })));
    }
}
