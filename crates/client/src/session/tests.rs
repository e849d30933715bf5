//! Sessions against workers that are played by threads.

use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use penstock_link::{Side, Stream, establish};
use penstock_wire::U64;

use super::*;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// More than a socket holds on its way.
const MUCH: usize = 32 << 20;

fn session(node: usize) -> (Arc<Session>, (Sender, Receiver)) {
    let (here, there) = UnixStream::pair().unwrap();
    let stream = |end: UnixStream| Stream::from_fd(end.into()).unwrap();
    let client = establish(stream(here), 0, Side::Client, to_client::check).unwrap();
    let worker = establish(stream(there), 0, Side::Worker, to_worker::check).unwrap();
    (Session::new(node, format!("node {node}").into(), client), worker)
}

/// A worker at its limit: it takes nothing before the client has taken what it has for it. Returns when it was told an end.
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
    let events = [Event::of_command(&a, None), Event::of_command(&b, None)];
    for (event, (home, other)) in events.iter().zip([(&a, &b), (&b, &a)]) {
        home.expect(event).unwrap();
        // Without a link between the workers the client tells the end.
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
    // Both links are full when the ends come.
    thread::sleep(Duration::from_millis(300));
    for (worker, event) in [(worker_a, &events[0]), (worker_b, &events[1])] {
        let (told, id) = (told.clone(), event.0.id);
        thread::spawn(move || {
            full_worker(worker, id);
            told.send("told").unwrap();
        });
    }
    for _ in 0..4 {
        heard.recv_timeout(PATIENCE).expect("somebody waits for ever");
    }
}
