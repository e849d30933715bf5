//! All parts together for CUDA programs, on the implementation in memory: correct programs find
//! nothing, planted defects are found, and failing programs become small.

use std::time::Duration;

use penstock_check::cuda::Cuda;
use penstock_check::cuda::fake::{Defect, Fake, platform};
use penstock_check::cuda::feature::Feature;
use penstock_check::cuda::ledger::Ledger;
use penstock_check::cuda::model::predict;
use penstock_check::cuda::plan::Program;
use penstock_check::cuda::planner::plan;
use penstock_check::cuda::run::{Prepared, run};
use penstock_check::feature::Named as _;
use penstock_check::finding::Finding;
use penstock_check::interface::Interface as _;
use penstock_check::random::Random;
use penstock_check::run::Progress;
use penstock_check::shrink::{Judge, shrink};
use penstock_process::Lock;

const DEVICES: usize = 2;
const OPS: usize = 50;
/// Behaviours that programs rely on and that a weak implementation does not have.
const RELIED: [Feature; 3] = [Feature::WritesEnd, Feature::PageableChains, Feature::EarlyFrees];

fn features() -> Vec<Feature> {
    // Large memory only costs time here.
    Feature::ALL.iter().copied().filter(|it| *it != Feature::Large).collect()
}

fn program(seed: u64) -> Program {
    plan(seed, &platform(DEVICES), OPS, &features())
}

/// `seconds` is the time after which a call hangs. Some defects lose one; without a defect, only a
/// slow host is late.
fn attempt(program: &Program, fake: &Fake, seconds: u64) -> Option<Finding> {
    let prepared = Prepared::new(program, &platform(DEVICES)).unwrap_or_else(|(op, reject)| {
        panic!("seed {}: operation {op}, {:?}: {reject}", program.seed, program.ops.get(op))
    });
    let found = Lock::new(None);
    let report = |finding: Finding| {
        found.lock().get_or_insert(finding);
    };
    run(&prepared, fake, &Progress::new(Duration::from_secs(seconds)), &report);
    found.into_inner()
}

fn show(program: &Program) {
    for (index, op) in program.ops.iter().enumerate() {
        eprintln!("{index}: thread {}: {:?}", op.thread, op.act);
    }
}

#[test]
fn a_seed_always_gives_the_same_program() {
    for seed in 0..50 {
        assert_eq!(program(seed), program(seed));
    }
}

#[test]
fn all_programs_are_in_order() {
    for seed in 0..3000 {
        let program = program(seed);
        if let Err((op, reject)) = Ledger::of(&program, &platform(DEVICES)) {
            show(&program);
            panic!("seed {seed}: operation {op}: {reject}");
        }
    }
}

/// Every feature must be used.
#[test]
fn programs_contain_what_they_may_contain() {
    let all: String = (0..300).map(|seed| format!("{:?}", program(seed).ops)).collect();
    let names = [
        "Legacy",
        "PerThread",
        "blocking: true",
        "StreamWait",
        "query: true",
        "Register",
        "Unregister",
        "Now",
        "Copy2D",
        "Fill2D",
        "Peer",
        "Store",
        "Move",
        "AllocAsync",
        "FreeAsync",
        "NewGraph",
        "second: true",
        "Graph {",
        "Free {",
        "DropStream",
        "DropEvent",
        "Slow",
        "ContextSync",
        "EventWait",
    ];
    for name in names {
        assert!(all.contains(name), "no program contains {name}");
    }
}

/// What the model predicts does not depend on which of the allowed orders it takes.
#[test]
fn every_order_that_respects_the_ledger_gives_the_same_bytes() {
    for seed in 0..150 {
        let program = program(seed);
        let ledger = Ledger::of(&program, &platform(DEVICES)).unwrap();
        let expected = predict(&program, &ledger, &ledger.nodes.sequence());
        for other in 0..4 {
            let order = any_order(&ledger, &mut Random::new(seed * 100 + other));
            assert_eq!(predict(&program, &ledger, &order), expected, "seed {seed}, order {other}");
        }
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

/// The fake executes commands in any order that streams and events allow, and does not use the
/// ledger. A program with a race, or one that never ends, would differ from the model here.
#[test]
fn right_programs_find_nothing() {
    for seed in 0..400 {
        let found = attempt(&program(seed), &Fake::new(seed, None, false), 60);
        assert_eq!(found, None, "seed {seed}");
    }
}

/// Programs that rely only on the documentation find nothing in an implementation that does only
/// what the documentation promises.
#[test]
fn strict_programs_find_nothing_in_a_weak_implementation() {
    let features: Vec<Feature> = features().into_iter().filter(|it| !RELIED.contains(it)).collect();
    for seed in 0..400 {
        let program = plan(seed, &platform(DEVICES), OPS, &features);
        let found = attempt(&program, &Fake::new(seed, None, true), 60);
        assert_eq!(found, None, "seed {seed}");
    }
}

/// The rarest defect is found by one of about 600 programs, and which ones find it depends on the
/// order in which the system runs threads. That this many programs miss it has a chance of e^-33.
const PROGRAMS_MAX: u64 = 20_000;

#[test]
fn every_planted_defect_is_found() {
    for &defect in Defect::ALL {
        let found = (0..PROGRAMS_MAX).find(|&seed| {
            attempt(&program(seed), &Fake::new(seed, Some(defect), false), 2).is_some()
        });
        assert!(found.is_some(), "{defect:?} was not found by {PROGRAMS_MAX} programs");
        println!("{defect:?}: program {}", found.unwrap());
    }
}

struct Fakes {
    defect: Defect,
}

/// Runs until a program counts as right. The fake's threads run as the system lets them, so a
/// wrong program may give the right result in some runs: with 4 runs, shrinking stopped at up to 23
/// operations.
const RUNS: u64 = 24;

impl Judge<Cuda> for Fakes {
    fn fails(&mut self, program: &Program) -> bool {
        (0..RUNS)
            .any(|seed| attempt(program, &Fake::new(seed, Some(self.defect), false), 2).is_some())
    }
}

#[test]
fn failing_programs_become_small_and_print_as_c() {
    for defect in
        [Defect::EarlyCapture, Defect::WrongPitch, Defect::LegacyWaitsForNone, Defect::LooseBranch]
    {
        let found = (0..PROGRAMS_MAX).find_map(|seed| {
            let program = program(seed);
            attempt(&program, &Fake::new(seed, Some(defect), false), 2)
                .map(|finding| (program, finding))
        });
        let (program, finding) = found.expect("the defect is found");
        let mut judge = Fakes { defect };
        let time = Duration::from_secs(600);
        let (small, _) = shrink::<Cuda>(&program, &platform(DEVICES), finding.op, &mut judge, time);
        assert!(Ledger::of(&small, &platform(DEVICES)).is_ok(), "{defect:?}: it is not in order");
        assert!(small.ops.len() <= 14, "{defect:?}: {} operations are left", small.ops.len());
        println!("{defect:?}: {} operations became {}", program.ops.len(), small.ops.len());
        let text = Cuda::print(&small, &platform(DEVICES), &finding).expect("it is in order");
        assert!(text.contains("int main(") && text.contains(".visible .entry put"), "{text}");
    }
}
