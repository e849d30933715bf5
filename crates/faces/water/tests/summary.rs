//! Tests of what the summary says bounded a run. The tests play the ranks, and say when each job
//! ran.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use water::clock::Clock;
use water::command::{
    Command, CommandEnd, CommandId, DeviceId, DeviceInfo, IndexSpace, ObjectId, Rank, RankInfo,
    Times,
};
use water::record::summary::{Spent, Summary};
use water::record::{Recorder, Settings};
use water::request::Request;
use water::root::Root;

/// A clock that stands still until it is set.
#[derive(Debug, Default)]
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep(&self, _: u64) {}
}

/// A root whose ranks are this test.
struct Told {
    root: Root,
    clock: Arc<Hand>,
}

impl Told {
    fn new(ranks: u32) -> Self {
        let clock = Arc::new(Hand::default());
        let mut root = Root::new(ranks, Arc::clone(&clock) as Arc<dyn Clock>);
        let device = || DeviceInfo {
            info: Vec::new(),
            platform: String::new(),
            platform_version: String::new(),
            hostname: String::new(),
            in_pool: None,
        };
        let infos: Vec<_> = (0..ranks)
            .map(|rank| RankInfo { hostname: format!("n{rank}"), devices: vec![device()] })
            .collect();
        root.set_recorder(Recorder::new(Settings { record: true, ..Settings::default() }, &infos));
        root.set_mode(water::root::mode::Mode::Off);
        Self { root, clock }
    }

    /// Issues a kernel at a given time.
    fn run(&mut self, time: u64, rank: Rank, waits: &[CommandId]) -> CommandId {
        let range = IndexSpace::line(1, None);
        self.issue(time, rank, waits, Command::Run { kernel: ObjectId(1), range, args: Vec::new() })
    }

    fn issue(&mut self, time: u64, rank: Rank, waits: &[CommandId], command: Command) -> CommandId {
        self.clock.0.store(time, Ordering::SeqCst);
        let id = self.root.issue(waits.to_vec(), Request::new(DeviceId::new(rank, 0), command));
        while self.root.close_batch(usize::MAX) {}
        id
    }

    fn ended(&mut self, id: CommandId, received: u64, started: u64, ended: u64) {
        let times = Times { received, started, ended };
        self.root.ended(CommandEnd { id, outcome: Ok(()), times });
    }

    fn summary(&self) -> Summary {
        Summary::of(self.root.recorder().unwrap())
    }
}

#[test]
fn a_summary_says_that_the_devices_bounded_it() {
    let mut told = Told::new(2);
    let (one, two) = (told.run(100, 0, &[]), told.run(100, 1, &[]));
    told.ended(one, 110, 120, 1120);
    told.ended(two, 130, 140, 1100);
    let summary = told.summary();
    assert_eq!(
        (summary.total_ns, summary.spent[&Spent::Device], summary.spent[&Spent::Scheduler]),
        (1020, 1000, 20)
    );
    assert_eq!(summary.devices[&(1, 0)], 960);
    assert_eq!(summary.bound(), "devices");
}

#[test]
fn a_summary_says_that_dependencies_bounded_it() {
    let mut told = Told::new(4);
    let mut before = Vec::new();
    for rank in 0..4_u64 {
        let id = told.run(100, u32::try_from(rank).unwrap(), &before);
        told.ended(id, 110, 120 + rank * 1000, 1110 + rank * 1000);
        before = vec![id];
    }
    let summary = told.summary();
    assert!(summary.bound().starts_with("dependencies"), "{}", summary.bound());
    assert_eq!((summary.spent[&Spent::Device], summary.spent[&Spent::Scheduler]), (4 * 990, 50));
}

#[test]
fn a_summary_says_that_the_program_bounded_it() {
    let mut told = Told::new(1);
    for step in 0..3 {
        // The program thinks for 900 ns after each result.
        let id = told.run(100 + step * 1000, 0, &[]);
        told.ended(id, 110 + step * 1000, 110 + step * 1000, 200 + step * 1000);
    }
    let summary = told.summary();
    assert_eq!(
        (
            summary.spent[&Spent::Program],
            summary.spent[&Spent::Device],
            summary.spent[&Spent::Scheduler]
        ),
        (1800, 270, 30)
    );
    assert_eq!(summary.bound(), "the program itself");
}

#[test]
fn a_summary_says_that_the_roots_link_or_the_scheduler_bounded_it() {
    let mut told = Told::new(2);
    let (buffer, address) = (ObjectId(1), 4096);
    let ran = told.run(100, 1, &[]);
    let write =
        told.issue(100, 1, &[ran], Command::Write { buffer, offset: 0, size: 1 << 20, address });
    let part = CommandId(write.0 + 1);
    told.ended(ran, 110, 120, 2120);
    // The root could send long before the device could receive; until then the link was idle.
    told.ended(part, 100, 110, 5100);
    told.ended(write, 120, 2130, 5110);
    let summary = told.summary();
    assert_eq!(
        (summary.bound(), summary.root_link_ns, summary.bytes),
        ("the root's link".into(), 2970, 1 << 20)
    );
    let spent = |what| summary.spent.get(&what).copied();
    assert_eq!(
        (spent(Spent::RootLink), spent(Spent::Device), spent(Spent::Scheduler)),
        (Some(2980), Some(2000), Some(30))
    );
    let mut told = Told::new(2);
    let one = told.run(100, 1, &[]);
    told.ended(one, 5000, 5010, 5100);
    assert_eq!(
        (told.summary().bound(), told.summary().spent[&Spent::Scheduler]),
        ("the scheduler".into(), 4910)
    );
}

#[test]
fn a_rank_whose_clock_is_behind_has_its_spans_apart_in_the_trace() {
    let mut told = Told::new(2);
    let (one, two) = (told.run(5000, 1, &[]), told.run(5000, 1, &[]));
    // By the clock of the rank this was before the command was issued.
    told.ended(one, 4000, 4010, 4900);
    told.ended(two, 4000, 4900, 5900);
    let mut text = Vec::new();
    water::record::trace::write(told.root.recorder().unwrap(), &mut text).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let spans = trace["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["cat"] == "run_kernel");
    let spans: Vec<_> = spans
        .map(|span| (span["tid"].as_u64(), span["ts"].as_f64(), span["dur"].as_f64()))
        .collect();
    let row = spans[0].0;
    assert_eq!(spans, [(row, Some(0.01), Some(0.89)), (row, Some(0.9), Some(1.0))]);
}
