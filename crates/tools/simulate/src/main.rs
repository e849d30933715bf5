//! Runs clients and workers in a world that a seed determines (`penstock_process::world`).
//!
//! The client's crate, the links, the sessions of workers and the simulated device are the real
//! ones. Each seed gives a random program, random faults, and a random order of all threads. The
//! results are compared with a model.
//!
//!     penstock-simulate SEED [--trace]
//!     penstock-simulate FROM..TO [--twice]
//!     penstock-simulate FROM..TO --planted
//!
//! The first form runs one world and says how it went. The second form runs many, each in a process
//! of its own, and prints each seed with a finding. With `--twice` it runs each world again and
//! compares the digests of both runs. The third form plants defects in turn, and prints the first
//! seed that finds each.
//!
//! * `plan` is what a seed decides before the world begins.
//! * `node` starts workers, and plays their daemons.
//! * `program` is the random program, and `model` says what it should have computed.
//! * `seeds` runs many seeds.

mod model;
mod node;
mod plan;
mod program;
mod seeds;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use penstock_client::Error;
use penstock_process::world::{self, Rules, spawn};
use penstock_trial::{Random, patience};

use plan::{Draws, Fault, Plan};
use program::Running;

/// Threads that wait for ever when a process has nothing more to do. A process has one of each,
/// however many pools and nodes there are: the device is one, and all pools share the others.
const MAY_STAY: [&str; 3] = ["null device", "penstock-callback", "penstock-send"];

/// Exit status of a run of many seeds if the process of a world cannot start.
const CANNOT_START: u8 = 4;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| words.iter().any(|word| word == flag);
    let range = words.first().and_then(|word| word.split_once(".."));
    let number = |text: &str| text.parse::<u64>().ok();
    match (words.first(), range) {
        (_, Some((from, to))) => match (number(from), number(to)) {
            (Some(from), Some(to)) => {
                let ran = if has("--planted") {
                    seeds::plant(from..to)
                } else {
                    seeds::run(from..to, has("--twice"))
                };
                ran.unwrap_or_else(|why| {
                    println!("the process of a world cannot start: {why}");
                    ExitCode::from(CANNOT_START)
                })
            }
            _ => usage(),
        },
        (Some(seed), None) => match number(seed) {
            Some(seed) => one(seed, has("--trace")),
            None => usage(),
        },
        (None, None) => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("penstock-simulate SEED [--trace] | FROM..TO [--twice] | FROM..TO --planted");
    ExitCode::from(2)
}

/// Runs the world of a seed.
fn one(seed: u64, is_traced: bool) -> ! {
    let plan = Plan::of(seed);
    if is_traced {
        eprintln!("{plan:?}");
    }
    stay_on_one_core();
    // Client and device go on after a panic in a callback, which must not hide it.
    std::panic::set_hook(Box::new(|what| {
        println!("broken: {what}");
        std::process::exit(seeds::BROKEN);
    }));
    // What waits in the system instead of in the world would wait for ever.
    let watch = || {
        std::thread::sleep(patience());
        println!("broken: a thread waits outside of its world");
        std::process::exit(seeds::BROKEN);
    };
    penstock_process::start("patience", watch).expect("threads are left");
    let mut random = Draws::Schedule.random(seed);
    let rules = Rules { is_traced, ..Rules::default() };
    let outcome = world::run(rules, move || random.number(), move || programs(&plan));
    let (mut problems, begun) = match outcome.result {
        Ok(ended) => ended,
        Err(finding) => (vec![finding.to_string()], 0),
    };
    let mut left = outcome.left;
    for name in MAY_STAY {
        if let Some(one) = left.iter().position(|it| it == name) {
            left.swap_remove(one);
        }
    }
    if problems.is_empty() && !left.is_empty() {
        problems.push(format!("threads are left: {left:?}"));
    }
    println!(
        "seed {seed} digest {:016x} steps {} time {:?} {}{begun}",
        outcome.digest,
        outcome.steps,
        outcome.passed,
        seeds::BEGUN
    );
    for problem in &problems {
        println!("finding: {problem}");
    }
    let code = if problems.is_empty() { 0 } else { seeds::FINDING };
    std::process::exit(code)
}

/// One thread runs at a time, and wakes the next one fastest on its own core.
fn stay_on_one_core() {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(rustix::thread::sched_getcpu());
    // Elsewhere it is only slower.
    _ = rustix::thread::sched_setaffinity(None, &cores);
}

/// Runs a client with faults, and beside it one without, which must not notice. Returns what is
/// wrong, and how many programs of the client with faults ran commands.
fn programs(plan: &Plan) -> (Vec<String>, usize) {
    let quiet = Plan { fault: Fault::Nothing, threads: 1, commands: 6, ..*plan };
    let pools = [*plan, quiet].map(|plan| (plan, Arc::new(node::pool(&plan))));
    let draws: [fn(u64) -> Draws; 2] = [Draws::Program, Draws::Quiet];
    let clients = pools.clone().into_iter().zip(draws).map(|((plan, pool), draws)| {
        let threads: Vec<_> = (0..plan.threads as u64).collect();
        let threads = threads.into_iter().map(|thread| {
            let (pool, random) = (pool.clone(), draws(thread).random(plan.seed));
            spawn(&format!("client {thread}"), move || client(&plan, &pool, random))
        });
        threads.collect::<Vec<_>>()
    });
    let threads: Vec<_> = clients.flatten().collect();
    let ran: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
    let begun = ran.iter().take(plan.threads).filter(|ran| ran.has_begun).count();
    // A session lives until the client has taken the ends of its transfers, for which nobody waits.
    for _ in 0..3 {
        penstock_process::sleep(Duration::from_secs(1));
        pools.iter().flat_map(|(_, pool)| pool.nodes()).for_each(|node| node.session().poll());
    }
    (ran.into_iter().flat_map(|ran| ran.problems).collect(), begun)
}

/// How the program of one thread went.
#[derive(Debug, Default)]
struct Ran {
    problems: Vec<String>,
    /// Whether it had its objects, and ran commands.
    has_begun: bool,
}

/// Returns whether a call may fail with this error.
fn is_excused(plan: &Plan, error: &Error) -> bool {
    let (Error::Lost { node: host, .. } | Error::Refused { node: host, .. }) = error else {
        return false;
    };
    let mut named = (0..plan.nodes).filter(|node| **host == node::host(*node));
    named.any(|node| plan.fault.is_at(node) && plan.fault.gives().contains(&error.status()))
}

/// Runs the program of one thread.
fn client(plan: &Plan, pool: &penstock_client::Pool, random: Random) -> Ran {
    let mut running = match Running::begin(plan, pool, random) {
        Ok(running) => running,
        // A node was lost before the program had its objects.
        Err(error) if is_excused(plan, &error) => return Ran::default(),
        Err(error) => {
            let problems = vec![format!("no objects: {error}")];
            return Ran { problems, has_begun: false };
        }
    };
    for _ in 0..plan.commands {
        running.go_on();
    }
    let initial = running.initial();
    let seen = running.end();
    let mut problems = model::check(plan, initial, &seen);
    let is_unexcused =
        |(node, error): &&(usize, Error)| !(plan.fault.is_at(*node) && is_excused(plan, error));
    let unexcused = seen.failures.iter().filter(is_unexcused);
    problems.extend(unexcused.map(|(node, why)| format!("a call on node {node} failed: {why}")));
    Ran { problems, has_begun: true }
}
