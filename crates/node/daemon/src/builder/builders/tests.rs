//! Builders that a client's program has taken over.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use penstock_link::LinkError;
use penstock_trial::in_time;
use rustix::fs::{Mode, OFlags};
use rustix::net::SendFlags;

use super::*;
use crate::builder::task::{Goal, Making, Origin};
use crate::message::ToDaemon;

const LIMITS: BuildLimits = BuildLimits { seconds_max: 2, bytes_max: 1 << 30 };

/// What a builder does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conduct {
    Honest,
    /// Sends this file in place of its memory, or nothing.
    WithMemory(Option<&'static str>),
    /// Sends these bytes in place of a message.
    AtStart(&'static [u8]),
    InPlaceOfBegun(&'static [u8]),
    InPlaceOfDone(&'static [u8]),
    /// Answers the first task twice.
    Twice,
    /// Takes a first task, and then none.
    DeafLater,
    /// Takes a task, and is not heard of again.
    Endless,
}

/// A length that needs more bytes than the message has, after each kind of message.
const LENGTHS: [&[u8]; 3] =
    [b"\x00\xff\xff\xff\xff\x0f", b"\x01\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"];

/// Sends no bytes at all, as a connection that is closed.
const NOTHING: &[u8] = b"";

fn play(control: &Control, conduct: Conduct) -> Result<(), LinkError> {
    let raw = |bytes: &[u8]| _ = rustix::net::send(control, bytes, SendFlags::NOSIGNAL);
    if let Conduct::AtStart(bytes) = conduct {
        raw(bytes);
        return Ok(());
    }
    let ready = FromBuilder::Ready { level: Level::Full, resident_bytes: u64::MAX };
    let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let memory = match conduct {
        Conduct::WithMemory(Some(other)) => {
            rustix::fs::open(other, OFlags::RDONLY, Mode::empty()).unwrap()
        }
        _ => memory,
    };
    let comes = conduct != Conduct::WithMemory(None);
    control.send(&ready, comes.then_some(memory.as_fd()))?;
    let mut tasks = 0;
    while let Some((ToBuilder::Build { .. }, _)) = control.receive(Patience::Forever)? {
        tasks += 1;
        match conduct {
            Conduct::InPlaceOfBegun(bytes) => {
                raw(bytes);
                return Ok(());
            }
            Conduct::DeafLater if tasks > 1 => continue,
            _ => control.send(&FromBuilder::Begun, None)?,
        }
        match conduct {
            Conduct::InPlaceOfDone(bytes) => {
                raw(bytes);
                return Ok(());
            }
            Conduct::Endless => continue,
            Conduct::Twice => control.send(&FromBuilder::Done, None)?,
            _ => {}
        }
        control.send(&FromBuilder::Done, None)?;
    }
    Ok(())
}

/// Foremen of whose builders the first one is hostile, and the others are honest.
struct Play {
    builders: Builders,
    /// Number of builders.
    started: Arc<AtomicU32>,
    /// Number of foremen.
    engaged: Arc<AtomicU32>,
    daemon: Option<JoinHandle<()>>,
}

impl Play {
    fn new(first: Conduct) -> Self {
        Self::with_lost(first, 0)
    }

    /// The first foremen, of this number, end before they answer.
    fn with_lost(first: Conduct, lost: u32) -> Self {
        let (started, engaged) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (ours, theirs) = Control::pair().unwrap();
        let foremen = Arc::new(Foremen::of(Arc::new(ours)));
        let (to, count, numbers) = (Arc::downgrade(&foremen), started.clone(), engaged.clone());
        let daemon = thread::spawn(move || {
            let control = Control::of(theirs);
            let mut running = Vec::new();
            while let Ok(Some((message, _))) = control.receive(Patience::Forever) {
                let ToDaemon::Foreman { question } = message else {
                    panic!("the worker says {message:?}");
                };
                let (foreman, worker) = Control::pair().unwrap();
                if numbers.fetch_add(1, Ordering::SeqCst) >= lost {
                    let count = count.clone();
                    running.push(thread::spawn(move || play_foreman(&foreman, first, &count)));
                }
                to.upgrade().unwrap().answered(question, Ok(worker));
            }
            running.into_iter().for_each(|foreman| foreman.join().unwrap());
        });
        let builders = Builders::new(foremen, LIMITS, Level::Full, None);
        Self { builders, started, engaged, daemon: Some(daemon) }
    }

    /// Rehearses a program that no other call has rehearsed.
    fn rehearse(&self, source: &str) -> Result<(), Failure> {
        let origin = Origin::Source(source.into());
        let goal = Goal::Build(Making { origin, options: None, headers: Vec::new() });
        self.builders.rehearse(&Task { devices: vec![0], goal }, &[])
    }

    fn started(&self) -> u32 {
        self.started.load(Ordering::SeqCst)
    }

    fn end(mut self) {
        let daemon = self.daemon.take().unwrap();
        drop(self);
        daemon.join().unwrap();
    }
}

fn play_foreman(control: &Control, first: Conduct, count: &AtomicU32) {
    let exit = Exit { code: None, signal: Some(9), peak_bytes: 7 };
    while let Ok(Some((message, _))) = control.receive(Patience::Forever) {
        let (ours, theirs) = Control::pair().unwrap();
        let answer = match message {
            ToForeman::Start => {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let conduct = if number == 0 { first } else { Conduct::Honest };
                thread::spawn(move || play(&Control::of(theirs), conduct));
                FromForeman::Started(number)
            }
            ToForeman::End(_) => FromForeman::Ended(exit),
        };
        let has_socket = matches!(answer, FromForeman::Started(_));
        control.send(&answer, has_socket.then_some(ours.as_fd())).unwrap();
    }
}

/// Plays one builder. Its task must fail soon, and the next one must be done by another builder.
fn costs_one_build(conduct: Conduct) -> Failure {
    let play = Play::new(conduct);
    let built = in_time(&format!("{conduct:?}"), || play.rehearse("one"));
    let failure = built.expect_err("a hostile builder has done a task");
    assert_eq!(play.rehearse("two"), Ok(()), "{conduct:?}");
    assert_eq!(play.started(), 2, "{conduct:?}");
    play.end();
    failure
}

#[test]
fn what_is_no_message_costs_one_build() {
    for bytes in LENGTHS.into_iter().chain([NOTHING, &[0x55; 100_000]]) {
        let at_start = costs_one_build(Conduct::AtStart(bytes));
        assert!(matches!(at_start, Failure::NoBuilder(_)), "{at_start:?}");
        let at_task = costs_one_build(Conduct::InPlaceOfBegun(bytes));
        assert!(matches!(at_task, Failure::NoBuilder(_)), "{at_task:?}");
        let at_end = costs_one_build(Conduct::InPlaceOfDone(bytes));
        assert!(matches!(at_end, Failure::Crashed(_)), "{at_end:?}");
    }
}

#[test]
fn memory_that_cannot_be_written_costs_one_build() {
    for memory in [None, Some("/dev/null"), Some("/proc/self/exe")] {
        let failure = costs_one_build(Conduct::WithMemory(memory));
        assert!(matches!(failure, Failure::NoBuilder(_)), "{failure:?}");
    }
}

#[test]
fn a_message_out_of_turn_costs_one_build() {
    let done = frame::encode(&FromBuilder::Done).leak();
    let begun = frame::encode(&FromBuilder::Begun).leak();
    costs_one_build(Conduct::AtStart(done));
    costs_one_build(Conduct::InPlaceOfBegun(done));
    costs_one_build(Conduct::InPlaceOfDone(begun));
}

#[test]
fn a_builder_without_an_answer_is_ended_at_the_limit() {
    let failure = costs_one_build(Conduct::Endless);
    assert!(matches!(failure, Failure::TimedOut(exit) if exit.peak_bytes == 0), "{failure:?}");
}

#[test]
fn a_second_answer_is_not_that_to_the_next_task() {
    let play = Play::new(Conduct::Twice);
    for (source, started) in [("one", 1), ("two", 2), ("three", 2)] {
        assert_eq!(play.rehearse(source), Ok(()), "{source}");
        assert_eq!(play.started(), started, "{source}");
    }
    play.end();
}

#[test]
fn a_builder_that_hangs_while_it_is_idle_delays_one_build_by_little() {
    let play = Play::new(Conduct::DeafLater);
    assert_eq!(play.rehearse("one"), Ok(()));
    assert_eq!(in_time("the second build", || play.rehearse("two")), Ok(()));
    assert_eq!(play.started(), 2);
    play.end();
}

#[test]
fn a_foreman_that_ends_at_its_start_costs_one_build() {
    let play = Play::with_lost(Conduct::Honest, 1);
    let failure = play.rehearse("one");
    assert!(matches!(&failure, Err(Failure::NoBuilder(why)) if why.ends_with("it has ended")));
    assert_eq!(play.rehearse("two"), Ok(()));
    assert_eq!((play.engaged.load(Ordering::SeqCst), play.started()), (2, 1));
    play.end();
}

#[test]
fn an_answer_to_an_earlier_question_is_dropped() {
    let (worker, daemon) = Control::pair().unwrap();
    let daemon = Control::of(daemon);
    let foremen = Foremen::of(Arc::new(worker));
    thread::scope(|scope| {
        let asked = scope.spawn(|| foremen.engage());
        let question = daemon.receive::<ToDaemon>(Patience::Forever).unwrap().unwrap().0;
        let ToDaemon::Foreman { question } = question else { panic!("not asked: {question:?}") };
        foremen.answered(question - 1, Err("too late".to_owned()));
        foremen.answered(question, Err("no more".to_owned()));
        foremen.answered(question + 1, Err("too early".to_owned()));
        assert_eq!(asked.join().unwrap().err(), Some("no more".to_owned()));
    });
}
