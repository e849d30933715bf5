//! Commands that end while their bytes are on the way, or before.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use penstock_cl_sys::CL_MEM_READ_WRITE;
use penstock_link::{Patience, Receiver, Sender};
use penstock_process::Lock;
use penstock_wire::Payload;
use penstock_wire::calls::to_client;
use penstock_wire::hello::feature;
use penstock_wire::limits::WAITS_MAX;

use super::*;
use crate::context::Context;
use crate::error::Error;
use crate::order::{set_user_event, user_event};
use crate::pool::Device;
use crate::queue::Range;
use crate::session::tests::{LEARN, Learn, MUCH, expects, session, session_over};

const ROW_BYTES: usize = 64 << 10;

/// Longest time for which a thread keeps the memory of a link that has ended. A program that learns
/// of the end too early does so within this time. Without that defect the time decides nothing.
const LINGER_MAX: Duration = Duration::from_millis(300);

/// Memory of the program: one row, which is read many times.
#[derive(Clone)]
struct Watched {
    row: Arc<[u8]>,
    /// Whether a thread reads the memory.
    is_read: Arc<AtomicBool>,
    /// Whether the program takes the memory for its own again.
    is_free: Arc<AtomicBool>,
}

struct Rows<'a> {
    of: &'a Watched,
    left: usize,
}

impl Watched {
    fn new() -> Self {
        let flag = || Arc::new(AtomicBool::new(false));
        Self { row: vec![7; ROW_BYTES].into(), is_read: flag(), is_free: flag() }
    }

    fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Acquire)
    }

    fn free(&self) {
        self.is_free.store(true, Ordering::Release);
    }

    fn place(&self) -> HostShape {
        HostShape::linear(self.row.as_ptr().addr() as u64, ROW_BYTES as u64)
    }
}

impl Source for Watched {
    fn bytes(&self) -> u64 {
        MUCH as u64
    }

    fn shape(&self) -> Option<HostShape> {
        Some(self.place())
    }

    fn linear(&self) -> Option<&[u8]> {
        None
    }

    fn pieces(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        Box::new(Rows { of: self, left: MUCH / ROW_BYTES })
    }

    fn keep(&self) -> Box<dyn Source + Send> {
        Box::new(self.clone())
    }
}

impl<'a> Iterator for Rows<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.of.is_read.store(true, Ordering::Release);
        self.left = self.left.checked_sub(1)?;
        Some(&self.of.row)
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        let until = Instant::now() + LINGER_MAX;
        while !self.of.is_free.load(Ordering::Acquire) && Instant::now() < until {
            thread::yield_now();
        }
        self.of.is_read.store(false, Ordering::Release);
    }
}

/// A write that a thread sends to a worker that takes no bytes of it.
struct Stuck {
    session: Arc<Session>,
    event: Event,
    memory: Watched,
    sending: thread::JoinHandle<()>,
    worker: thread::JoinHandle<()>,
    /// Has the worker take the bytes.
    goes_on: mpsc::Sender<()>,
    /// Closes the link from the worker's side.
    peer: Sender,
    /// Whether a thread still read the memory when the event ended.
    is_early: Arc<AtomicBool>,
}

fn queue_and_buffer(session: &Arc<Session>) -> (Arc<Queue>, Arc<Memory>) {
    let device = Device::of_test(session);
    let context = Context::new(std::slice::from_ref(&device)).unwrap();
    let queue = Queue::new(&context, &device, 0, 0).unwrap();
    (queue, Memory::buffer(&context, CL_MEM_READ_WRITE, MUCH as u64, None).unwrap())
}

impl Stuck {
    /// Sends a write that was held back, and returns when the worker has its head. If there is a
    /// `refusal`, the worker has refused the write then.
    fn new(features: u64, refusal: Option<Status>) -> Self {
        let (session, (peer, receiver)) = session_over(features, 0);
        let (queue, target) = queue_and_buffer(&session);
        let (memory, gate) = (Watched::new(), user_event());
        let write = queue.write(&target, 0, &memory, std::slice::from_ref(&gate), Want::Event);
        let event = write.unwrap().unwrap();
        let is_early = Arc::new(AtomicBool::new(false));
        let (watched, early) = (memory.clone(), is_early.clone());
        event.when_ended(move |_| {
            early.store(watched.is_read(), Ordering::Release);
            watched.free();
        });
        let (goes_on, may_go_on) = mpsc::channel();
        let (told, heard) = mpsc::channel();
        let id = event.0.id;
        let refuses = peer.clone();
        let worker = thread::spawn(move || {
            let refuse = |status| {
                let done = to_client::EventDone::new(id, status, Times::default());
                refuses.send(&done, &[], &[]).unwrap();
                refuses.flush().unwrap();
            };
            serve_until_gone(receiver, || {
                refusal.into_iter().for_each(refuse);
                told.send(()).unwrap();
                // This is an error if the test only wants the link to end.
                _ = may_go_on.recv();
            });
        });
        let sending = thread::spawn(move || assert!(set_user_event(&gate, Status::OK)));
        heard.recv_timeout(penstock_trial::patience()).expect("the write is not sent");
        while !memory.is_read() {
            thread::yield_now();
        }
        Self { session, event, memory, sending, worker, goes_on, peer, is_early }
    }

    /// Waits until the threads have ended. Returns how the event has ended, when nothing was read.
    fn end(self) -> Status {
        self.memory.free();
        drop(self.goes_on);
        self.sending.join().unwrap();
        let status = self.event.wait();
        // A thread of another test may have sent the write, and may still note its end.
        penstock_trial::wait_for("the end of the write", || !may_be_read(&self.memory.place()));
        assert!(!self.is_early.load(Ordering::Acquire), "the end was told while memory was read");
        self.peer.close();
        self.worker.join().unwrap();
        status
    }
}

/// Serves frames until the link ends. Calls `at_write` at the head of a write.
fn serve_until_gone(mut receiver: Receiver, at_write: impl Fn()) {
    let mut serve = |frame: &penstock_wire::Frame<'_>, _: &mut dyn Payload| {
        if frame.header.opcode.get() == to_worker::WriteBuffer::OPCODE {
            at_write();
        }
        Ok(())
    };
    while receiver.receive(Patience::Forever, &mut serve).is_ok() {}
}

#[test]
fn a_refusal_of_a_write_that_is_being_sent_is_told_when_its_memory_is_free() {
    for features in [feature::SHARED_RINGS, 0] {
        let stuck = Stuck::new(features, Some(Status(-5)));
        while expects(&stuck.session, &stuck.event) {
            stuck.session.poll();
        }
        assert_eq!(stuck.event.known_status(), None);
        assert!(stuck.memory.is_read() && may_be_read(&stuck.memory.place()));
        assert_eq!(stuck.end(), Status(-5));
    }
}

/// The node of a write that is being sent is lost. When the program learns of the loss by `learn`,
/// no thread may read its memory any more.
fn memory_is_free_when_a_loss_is_known(features: u64, learn: Learn) {
    let stuck = Stuck::new(features, None);
    stuck.peer.close();
    learn(&stuck.session, &stuck.event);
    assert!(!stuck.memory.is_read(), "the program's memory is read after the end");
    assert_eq!(stuck.end(), Status::NODE_LOST);
}

#[test]
fn a_write_of_a_lost_session_ends_when_nothing_is_read_any_more() {
    for features in [feature::SHARED_RINGS, 0] {
        LEARN.into_iter().for_each(|learn| memory_is_free_when_a_loss_is_known(features, learn));
    }
}

#[test]
fn a_read_whose_call_exceeds_a_limit_leaves_no_target() {
    let (session, _worker) = session(0);
    let (queue, buffer) = queue_and_buffer(&session);
    let open = |_| Event::of_command(&session, crate::ids::next_id(), true);
    let waits: Vec<_> = (0..=WAITS_MAX).map(open).collect();
    let target: Arc<Lock<Vec<u8>>> = Arc::default();
    let range = Range { offset: 0, size: 4 };
    let read = queue.read(&buffer, range, Box::new(target.clone()), &waits, Want::Event);
    assert!(matches!(read, Err(Error::Frame(_))));
    assert_eq!(Arc::strong_count(&target), 1);
    assert!(!session.has_reads());
}
