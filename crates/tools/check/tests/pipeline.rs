//! All parts together on the implementation in memory: correct programs find nothing, planted
//! defects are found, and failing programs become small.

use std::time::Duration;

use penstock_check::fake::{Defect, Fake, platform};
use penstock_check::feature::{Feature, Named as _};
use penstock_check::finding::Finding;
use penstock_check::interface::OpenCl;
use penstock_check::ledger::Ledger;
use penstock_check::model::predict;
use penstock_check::plan::Program;
use penstock_check::planner::{Limits, plan};
use penstock_check::random::Random;
use penstock_check::run::{Prepared, Progress, run};
use penstock_check::shrink::{Judge, shrink};
use penstock_process::Lock;

const DEVICES: usize = 2;

fn limits() -> Limits {
    // Large buffers only cost time here.
    let features = Feature::ALL.iter().copied().filter(|it| *it != Feature::Large).collect();
    Limits { ops: 50, features }
}

fn attempt(program: &Program, seed: u64, defect: Option<Defect>) -> Option<Finding> {
    let prepared = Prepared::new(program, &platform(DEVICES)).unwrap_or_else(|(op, reject)| {
        panic!("seed {}: operation {op}, {:?}: {reject}", program.seed, program.ops.get(op))
    });
    let fake = Fake::new(seed, defect);
    let found = Lock::new(None);
    let report = |finding: Finding| {
        found.lock().get_or_insert(finding);
    };
    // Some defects lose a callback. Without one, only a slow host is late.
    let patience = Duration::from_secs(if defect.is_some() { 2 } else { 60 });
    run(&prepared, &fake, &Progress::new(patience), &report);
    found.into_inner()
}

#[test]
fn a_seed_always_gives_the_same_program() {
    for seed in 0..50 {
        assert_eq!(
            plan(seed, &platform(DEVICES), &limits()),
            plan(seed, &platform(DEVICES), &limits())
        );
    }
}

/// What the model predicts does not depend on which of the allowed orders it takes.
#[test]
fn every_order_that_respects_the_ledger_gives_the_same_bytes() {
    for seed in 0..150 {
        let program = plan(seed, &platform(DEVICES), &limits());
        let ledger = in_order(&program);
        let expected = predict(&program, &ledger, &ledger.nodes.sequence());
        for other in 0..4 {
            let order = any_order(&ledger, &mut Random::new(seed * 100 + other));
            let seen = predict(&program, &ledger, &order);
            assert_eq!(seen.hot, expected.hot, "seed {seed}, order {other}");
            for (op, bytes) in &expected.checks {
                let same = *bytes == seen.checks[op];
                if !same {
                    show(&program);
                    let first = (0..bytes.data.len()).find(|&at| {
                        bytes.known[at] != seen.checks[op].known[at]
                            || bytes.data[at] != seen.checks[op].data[at]
                    });
                    panic!(
                        "seed {seed}, order {other}: operation {op} sees other bytes from {first:?} on"
                    );
                }
            }
        }
    }
}

fn show(program: &Program) {
    for (index, op) in program.ops.iter().enumerate() {
        eprintln!("{index}: thread {}: {:?}", op.thread, op.act);
    }
}

fn in_order(program: &Program) -> Ledger {
    Ledger::of(program, &platform(DEVICES)).unwrap_or_else(|(op, reject)| {
        show(program);
        panic!("seed {}: operation {op}: {reject}", program.seed)
    })
}

#[test]
fn all_programs_are_in_order() {
    for seed in 0..3000 {
        in_order(&plan(seed, &platform(DEVICES), &limits()));
    }
}

fn any_order(ledger: &Ledger, random: &mut Random) -> Vec<usize> {
    let mut left: Vec<usize> = (0..ledger.nodes.iter().len()).collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        let free = |&&node: &&usize| {
            !left.iter().any(|&it| it != node && ledger.nodes[node].before.has(it))
        };
        let ready: Vec<usize> = left.iter().filter(free).copied().collect();
        let next = random.pick(&ready).expect("there is no circle");
        left.retain(|&node| node != next);
        order.push(next);
    }
    order
}

/// The fake executes commands in any order that the rules of queues, wait lists and barriers allow,
/// and does not use the ledger. A program with a race, or one that never ends, would differ from
/// the model here.
#[test]
fn right_programs_find_nothing() {
    for seed in 0..400 {
        let program = plan(seed, &platform(DEVICES), &limits());
        let found = attempt(&program, seed, None);
        assert_eq!(found, None, "seed {seed}");
    }
}

#[test]
fn every_planted_defect_is_found() {
    for &defect in Defect::ALL {
        let found = (0..1500).find(|&seed| {
            let program = plan(seed, &platform(DEVICES), &limits());
            attempt(&program, seed, Some(defect)).is_some()
        });
        assert!(found.is_some(), "{defect:?} was not found by 1500 programs");
        println!("{defect:?}: program {}", found.unwrap());
    }
}

struct Fakes {
    defect: Defect,
}

impl Judge<OpenCl> for Fakes {
    fn fails(&mut self, program: &Program) -> bool {
        (0..4).any(|seed| attempt(program, seed, Some(self.defect)).is_some())
    }
}

#[test]
fn failing_programs_become_small_and_stay_in_order() {
    for defect in
        [Defect::EarlyCapture, Defect::ShortUnmap, Defect::WrongPitch, Defect::IgnoredFailure]
    {
        let found = (0..1500).find_map(|seed| {
            let program = plan(seed, &platform(DEVICES), &limits());
            attempt(&program, seed, Some(defect)).map(|finding| (program, finding))
        });
        let (program, finding) = found.expect("the defect is found");
        let mut judge = Fakes { defect };
        let (small, _) = shrink::<OpenCl>(
            &program,
            &platform(DEVICES),
            finding.op,
            &mut judge,
            Duration::from_secs(600),
        );
        assert!(
            Ledger::of(&small, &platform(DEVICES)).is_ok(),
            "{defect:?}: the smaller program is not in order"
        );
        assert!(
            small.ops.len() <= 14,
            "{defect:?}: {} operations are left: {:#?}",
            small.ops.len(),
            small.ops
        );
        println!("{defect:?}: {} operations became {}", program.ops.len(), small.ops.len());
    }
}
