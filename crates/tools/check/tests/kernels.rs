//! All parts of the search for wrong kernels together. A fake device computes with the emulator,
//! and a planted defect changes the statements that it executes. The search finds each defect, and
//! makes its kernel small.

use std::time::Duration;

use penstock_check::cuda::driver::{Failed, Work};
use penstock_check::cuda::plan::Device;
use penstock_check::feature::Named as _;
use penstock_check::finding::Finding;
use penstock_check::interface::{Interface as _, Plan as _};
use penstock_check::kernels::feature::Feature;
use penstock_check::kernels::planner::{plan, repair};
use penstock_check::kernels::program::{
    Act, Atomic, Compare, Condition, Exchange, Launch, Mask, Meeting, Op, Place, Platform, Program,
    Shuffle, Value, Vote, Width,
};
use penstock_check::kernels::{Kernels, emulate, print, run};
use penstock_check::shrink::{Judge, shrink};
use penstock_process::Lock;

const OPS: usize = 60;
/// Most kernels of a search for a defect.
const SEEDS: u64 = 400;
/// Most statements of a shrunk kernel.
const SMALL: usize = 10;

/// A defect of a device: what it executes in the place of a statement.
type Defect = fn(&Act) -> Option<Act>;

fn program(seed: u64) -> Program {
    plan(seed, OPS, Feature::ALL)
}

fn platform() -> Platform {
    let devices = vec![Device { name: "fake".to_owned(), pools: false }];
    Platform { name: "fake".to_owned(), version: String::new(), devices }
}

fn attempt(program: &Program, defect: Defect) -> Option<Finding> {
    let mut other = program.clone();
    other.ops.iter_mut().for_each(|op| op.act = defect(&op.act).unwrap_or(op.act.clone()));
    let runner = |_: usize, _: &str, work: &[Work]| -> Result<Vec<Vec<u32>>, Failed> {
        let launches = other.launches.iter().zip(work);
        // What has no determined result on the device gives nothing.
        let seen = |(launch, work): (&Launch, &Work)| {
            emulate::after(&other, launch).unwrap_or_else(|_| work.memory.clone())
        };
        Ok(launches.map(seen).collect())
    };
    let found = Lock::new(None);
    let report = |finding: Finding| {
        found.lock().get_or_insert(finding);
    };
    let ran = run::run(program, &platform(), &runner, &report);
    assert_eq!(ran, Ok(()), "seed {}", program.seed);
    found.into_inner()
}

struct Again(Defect);

impl Judge<Kernels> for Again {
    fn fails(&mut self, program: &Program) -> bool {
        attempt(program, self.0).is_some()
    }
}

fn conditions(act: &Act, change: fn(&mut Condition)) -> Option<Act> {
    let mut act = act.clone();
    match &mut act {
        Act::If { condition, .. }
        | Act::Break { condition }
        | Act::Continue { condition }
        | Act::Exit { condition, .. }
        | Act::Meet { condition, .. }
        | Act::Compute { guard: Some(condition), .. }
        | Act::Barrier { guard: Some(condition) } => change(condition),
        _ => return None,
    }
    Some(act)
}

fn row(act: &Act, from: &str, to: &str) -> Option<Act> {
    let mut act = act.clone();
    match &mut act {
        Act::Compute { row, .. } if row == from => *row = to.to_owned(),
        _ => return None,
    }
    Some(act)
}

fn exchanged(act: &Act, change: fn(&Exchange) -> Option<Exchange>) -> Option<Act> {
    match act {
        Act::Exchange { to, what, mask } => {
            change(what).map(|what| Act::Exchange { to: *to, what, mask: *mask })
        }
        _ => None,
    }
}

const DEFECTS: &[(&str, Defect)] = &[
    ("a shift does not clamp", |act| row(act, "shl near", "rem.u32")),
    ("a shift right loses the sign", |act| row(act, "shr.s32 near", "shr.u32 near")),
    ("a product has a wrong upper half", |act| row(act, "mul.hi.s32", "mul.hi.u32")),
    ("a field has no sign", |act| row(act, "bfe.s32 small", "bfe.u32")),
    ("a comparison has the wrong sign", |act| {
        conditions(act, |it| {
            it.compare = match it.compare {
                Compare::LtSigned => Compare::Lt,
                Compare::GeSigned => Compare::Ge,
                other => other,
            };
        })
    }),
    ("a guard is missing", |act| match act {
        Act::Compute { row, to, from, guard: Some(_) } => {
            Some(Act::Compute { row: row.clone(), to: *to, from: *from, guard: None })
        }
        _ => None,
    }),
    ("a barrier does nothing", |act| match act {
        Act::Barrier { .. } => Some(Act::MeetWarp { mask: Mask::All }),
        _ => None,
    }),
    ("a count at a barrier is an or", |act| match act {
        Act::Meet { how: Meeting::Count, to, condition } => {
            Some(Act::Meet { how: Meeting::Or, to: *to, condition: *condition })
        }
        _ => None,
    }),
    ("a thread that ends goes on", |act| match act {
        Act::Exit { .. } => Some(Act::MeetWarp { mask: Mask::All }),
        _ => None,
    }),
    ("a loop has a turn more", |act| match act {
        Act::Loop { id, turns, at_head: true, votes } => {
            Some(Act::Loop { id: *id, turns: *turns, at_head: false, votes: *votes })
        }
        _ => None,
    }),
    ("a break goes on", |act| match act {
        Act::Break { condition } => Some(Act::Continue { condition: *condition }),
        _ => None,
    }),
    ("a shuffle ignores its segment", |act| {
        exchanged(act, |what| match *what {
            Exchange::Shuffle { mode, from, lane, segment, holds } if segment < 32 => {
                Some(Exchange::Shuffle { mode, from, lane, segment: 32, holds })
            }
            _ => None,
        })
    }),
    ("a shuffle goes the wrong way", |act| {
        exchanged(act, |what| match *what {
            Exchange::Shuffle { mode: Shuffle::Up, from, lane, segment, holds } => {
                Some(Exchange::Shuffle { mode: Shuffle::Down, from, lane, segment, holds })
            }
            _ => None,
        })
    }),
    ("a vote for all is one for any", |act| {
        exchanged(act, |what| match *what {
            Exchange::Vote { mode: Vote::All, condition } => {
                Some(Exchange::Vote { mode: Vote::Any, condition })
            }
            _ => None,
        })
    }),
    ("a match for all is one for any", |act| {
        exchanged(act, |what| match *what {
            Exchange::Match { all: true, from } => Some(Exchange::Match { all: false, from }),
            _ => None,
        })
    }),
    ("a byte has no sign", |act| match act {
        Act::LoadOwn { to, at, width: Width::ByteSigned } => {
            Some(Act::LoadOwn { to: *to, at: *at, width: Width::Byte })
        }
        _ => None,
    }),
    ("an increment does not wrap", |act| match act {
        Act::AtomicOwn { how: Atomic::Increment, to, at, from } => {
            Some(Act::AtomicOwn { how: Atomic::Exchange, to: *to, at: *at, from: *from })
        }
        _ => None,
    }),
];

#[test]
fn a_seed_always_gives_the_same_kernel() {
    for seed in 0..30 {
        assert_eq!(program(seed), program(seed));
    }
}

/// A right device finds nothing, and the emulator determines what each kernel gives.
#[test]
fn right_kernels_find_nothing() {
    for seed in 0..SEEDS {
        let program = program(seed);
        assert_eq!(repair(&program).as_ref(), Some(&program), "seed {seed}");
        assert!(print::module(&program).is_some(), "seed {seed}");
        assert_eq!(attempt(&program, |_| None), None, "seed {seed}");
    }
}

#[test]
fn planted_defects_are_found_and_become_small() {
    for (name, defect) in DEFECTS {
        let found = (0..SEEDS).find_map(|seed| {
            let program = program(seed);
            attempt(&program, *defect).map(|finding| (program, finding))
        });
        let (program, finding) = found.unwrap_or_else(|| panic!("not found: {name}"));
        let mut judge = Again(*defect);
        let (small, _) = shrink::<Kernels>(
            &program,
            &platform(),
            finding.op,
            &mut judge,
            Duration::from_mins(1),
        );
        println!("{name}: seed {}, {} statements", program.seed, small.ops.len());
        assert!(small.ops().len() <= SMALL, "{name}: {:?}", small.ops);
        let text = Kernels::print(&small, &platform(), &finding).expect("it is in order");
        assert!(text.contains(".visible .entry") && text.contains("Seed"), "{text}");
    }
}

fn of(block: usize, acts: Vec<Act>) -> Program {
    let ops = acts.into_iter().map(|act| Op { thread: 0, delay_us: 0, act }).collect();
    let launches = vec![Launch { blocks: 1, parameter: 1, seed: 1 }];
    Program { seed: 0, threads: 1, block, launches, ops }
}

fn refused(block: usize, acts: Vec<Act>) -> Option<emulate::Refusal> {
    let program = of(block, acts);
    emulate::after(&program, &program.launches[0]).err()
}

fn below(with: u32) -> Condition {
    let (value, with) = (Value::Thread, Value::Constant(with));
    Condition { value, bits: u32::MAX, compare: Compare::Lt, with }
}

/// What has no determined result must not become a finding.
#[test]
fn the_emulator_refuses_what_is_not_determined() {
    let store = |at| Act::Store { at, from: 0, width: Width::Word };
    let load = |at| Act::Load { to: 0, at, width: Width::Word };
    let branch =
        |act, votes| vec![Act::If { id: 1, condition: below(7), votes }, act, Act::End { id: 1 }];
    let barrier = || Act::Barrier { guard: None };
    let shuffle = |mask| Act::Exchange {
        to: 0,
        what: Exchange::Shuffle {
            mode: Shuffle::Down,
            from: 0,
            lane: Value::Constant(1),
            segment: 32,
            holds: false,
        },
        mask,
    };
    let own = Place::Thread(0);
    let next = Place::Thread(1);
    use emulate::Refusal;
    assert_eq!(refused(64, vec![load(own)]), Some(Refusal::Race));
    assert_eq!(refused(64, vec![store(own), load(next)]), Some(Refusal::Race));
    assert_eq!(refused(64, vec![store(Place::Fixed(0))]), Some(Refusal::Race));
    assert_eq!(refused(64, vec![store(own), barrier(), load(next)]), None);
    assert_eq!(
        refused(64, vec![store(own), barrier(), load(next), store(own)]),
        Some(Refusal::Race)
    );
    let warp = |mask| vec![store(own), Act::MeetWarp { mask }, load(next)];
    assert_eq!(refused(64, warp(Mask::All)), None);
    assert_eq!(refused(64, warp(Mask::Group(2))), None);
    assert_eq!(refused(64, warp(Mask::Group(1))), Some(Refusal::Race));
    assert_eq!(refused(64, branch(barrier(), false)), Some(Refusal::Barrier));
    assert_eq!(refused(64, branch(shuffle(Mask::All), true)), Some(Refusal::Mask));
    assert_eq!(refused(64, branch(shuffle(Mask::Here), false)), Some(Refusal::Mask));
    // Lane 6 would read lane 7, which is not there.
    assert_eq!(refused(64, branch(shuffle(Mask::Here), true)), Some(Refusal::Mask));
    assert_eq!(refused(64, vec![shuffle(Mask::All)]), None);
    assert_eq!(refused(20, vec![shuffle(Mask::All)]), Some(Refusal::Mask));
    let ends = Act::Exit { condition: below(7), tells: true };
    assert_eq!(refused(64, vec![ends, barrier()]), None);
}
