//! Runs random small programs against the machine.
//!
//! A program is planned as a whole from a seed. It has one result, because conflicting accesses are
//! always ordered. The world runs it with workers, links and threads whose steps come in a random
//! order, and asks the machine for every decision. At the end all memory is compared with that of a
//! sequential run of the program.
//!
//! [`run_all`] enumerates all small programs instead, with all orders of steps up to a bound.

mod chooser;
mod client;
mod effects;
mod order;
mod outcome;
mod plan;
mod program;
mod random;
mod small;
mod workers;
mod world;

use std::fmt;

use crate::Rule;
use crate::machine::Machine;
use chooser::Chooser;
use outcome::Planned;
pub use program::{Act, Command, Fault, Op, Program, Span};
use random::Random;
pub use small::{Bounds, run_all};
use world::World;

/// Number of orders of steps in which each program runs.
const ORDERS_PER_PROGRAM: u64 = 4;

/// Number of orders of steps that are tried with a program from which an operation was removed.
const ORDERS_TO_SHRINK: u64 = 200;
/// A program whose run gave a wrong result.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Seed of the program.
    pub seed: u64,
    /// Seed of the order of steps.
    pub order: u64,
    /// The program, as small as removing operations makes it.
    pub program: Program,
    /// Description of what is wrong.
    pub what: String,
}

/// The counts and the finding of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of programs that were run.
    pub programs: u64,
    /// Number of operations in all programs.
    pub ops: u64,
    /// Number of runs of programs, each with a different order of steps.
    pub runs: u64,
    /// Number of runs in which the machine held a command back.
    pub with_held: u64,
    /// Number of transfers between places.
    pub transfers: u64,
    /// Number of copies that the host made in place.
    pub in_place: u64,
    /// The first finding, if any.
    pub finding: Option<Finding>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} (order {}): {}", self.seed, self.order, self.what)?;
        write!(f, "{}", self.program)
    }
}

/// Runs `programs` random programs, beginning with seed `seed`, until the first finding. `off` is a
/// rule to switch off, which requires the feature `planted`. `go_on` is asked before each program.
pub fn run(
    seed: u64,
    programs: u64,
    off: Option<Rule>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Report {
    let mut report = Report::default();
    for number in 0..programs {
        if !go_on(number) {
            break;
        }
        let seed = seed.wrapping_add(number);
        let program = Program::plan(&mut Random::new(seed));
        report.programs += 1;
        report.ops += program.ops.len() as u64;
        let Some(planned) = Planned::of(&program) else { continue };
        for order in 0..ORDERS_PER_PROGRAM {
            let mut chooser = Chooser::random(seed, order);
            report.runs += 1;
            if let Err(what) = run_once(
                (&program, &planned),
                &mut chooser,
                limited(machine(off), order),
                &mut report,
            ) {
                let (program, what) = shrink(program, (seed, order), off, what);
                report.finding = Some(Finding { seed, order, program, what });
                return report;
            }
        }
    }
    report
}

#[cfg_attr(
    not(feature = "planted"),
    expect(unused_variables, reason = "rules are switched off by the feature")
)]
fn machine(off: Option<Rule>) -> Machine {
    #[cfg(feature = "planted")]
    if let Some(rule) = off {
        return Machine::without(rule);
    }
    Machine::default()
}

/// In half of the orders, more than one or two transfers on their way to a copy hold commands back.
fn limited(machine: Machine, order: u64) -> Machine {
    match order & 3 {
        2 => machine.with_arrivals_max(1),
        3 => machine.with_arrivals_max(2),
        _ => machine,
    }
}

fn run_once(
    program: (&Program, &Planned),
    chooser: &mut Chooser,
    machine: Machine,
    report: &mut Report,
) -> Result<(), String> {
    let mut world = World::new(program, machine, chooser);
    let ended = world.run();
    report.with_held += u64::from(world.held > 0);
    report.transfers += world.started as u64;
    report.in_place += world.in_place;
    ended
}

/// Removes operations as long as an order of steps still gives a wrong result.
fn shrink(
    program: Program,
    (seed, order): (u64, u64),
    off: Option<Rule>,
    what: String,
) -> (Program, String) {
    let mut best = (program, what);
    let mut at = best.0.ops.len();
    while at > 0 {
        at -= 1;
        let Some(smaller) = best.0.without(at) else { continue };
        let Some(planned) = Planned::of(&smaller) else { continue };
        let mut scratch = Report::default();
        let found = (0..ORDERS_TO_SHRINK).find_map(|more| {
            let order = order.wrapping_add(more * ORDERS_PER_PROGRAM);
            let mut chooser = Chooser::random(seed, order);
            run_once((&smaller, &planned), &mut chooser, limited(machine(off), order), &mut scratch)
                .err()
        });
        if let Some(what) = found {
            at = smaller.ops.len().min(at + 1);
            best = (smaller, what);
        }
    }
    best
}
