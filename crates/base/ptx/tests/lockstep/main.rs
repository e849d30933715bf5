//! Compares random programs of a warp with a scalar emulator, on every OpenCL device of this
//! machine.
//!
//! The lanes of a warp exchange values through shared memory, by ballots and by shuffles, without
//! synchronisation in the text. They do so in branches, and in loops whose ends depend on values
//! that other lanes store. The results of a program must be those of the emulator.
//!
//! `PENSTOCK_LOCKSTEP_PROGRAMS` is the number of programs, `PENSTOCK_LOCKSTEP_SEED` the number of
//! the first. A failing program is shrunk and printed.

mod emulator;
#[path = "../conformance/machine.rs"]
mod machine;
mod program;
mod text;

use std::time::{Duration, Instant};

use emulator::{Outcome, run};
use machine::{BASE, FREE, Machine, machines};
use program::{LANES, Program, REGISTERS, WORDS};
use text::{THREAD_BYTES, kernel};

/// First lines of every text.
const HEAD: &str = ".version 6.3\n.target sm_60\n.address_size 64\n";

/// Default number of programs of a test.
const PROGRAMS: u64 = 96;

/// Number of programs in one module, because each build has a fixed cost.
const PER_MODULE: usize = 8;

/// Time in which a test looks for failing programs. On a slow device it tries fewer programs.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Number of blocks of a launch, which all do the same.
const BLOCKS: u64 = 1;

/// Largest number of attempts to shrink a failing program.
const SHRINKS_MAX: usize = 400;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn warps_run_in_step() {
    let (wanted, first) = (number("PENSTOCK_LOCKSTEP_PROGRAMS"), number("PENSTOCK_LOCKSTEP_SEED"));
    for machine in machines() {
        let started = Instant::now();
        let (mut seed, mut tried, mut failed) = (first.unwrap_or(1), 0, Vec::new());
        while tried < wanted.unwrap_or(PROGRAMS)
            && (wanted.is_some() || started.elapsed() < TIME_MAX)
        {
            let mut group = Vec::new();
            while group.len() < PER_MODULE {
                let program = Program::random(seed);
                if let Ok(outcomes) = run(&program) {
                    group.push(Case { seed, program, outcomes });
                }
                seed += 1;
            }
            tried += group.len() as u64;
            failed.extend(differing(&machine, &group));
            if failed.len() > 3 {
                break;
            }
        }
        eprintln!(
            "{}: {tried} programs of seeds to {seed} in {:.1} s, {} differ",
            machine.name,
            started.elapsed().as_secs_f64(),
            failed.len()
        );
        if let Some((seed, program)) = failed.first() {
            let small = shrink(&machine, program.clone());
            panic!(
                "{}: seed {seed} (of {} that differ), made smaller:\n{:#?}\n{HEAD}{}\n{}",
                machine.name,
                failed.len(),
                small.body,
                ready_text(&small, "k0"),
                difference(&machine, &small).unwrap_or_default()
            );
        }
    }
}

/// A program, and its results in the emulator.
struct Case {
    seed: u64,
    program: Program,
    outcomes: Vec<Outcome>,
}

/// Returns the programs of a group whose results on a device differ from the emulator's.
fn differing(machine: &Machine, group: &[Case]) -> Vec<(u64, Program)> {
    let mut text = String::from(HEAD);
    for (number, case) in group.iter().enumerate() {
        text.push_str(&ready_text(&case.program, &format!("k{number}")));
    }
    let ready =
        machine.build(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", machine.name));
    let mut failed = Vec::new();
    for (number, Case { seed, program, outcomes }) in group.iter().enumerate() {
        if compare(machine, &ready, &format!("k{number}"), program, outcomes).is_some() {
            failed.push((*seed, program.clone()));
        }
    }
    failed
}

fn ready_text(program: &Program, name: &str) -> String {
    kernel(program, name).replace("STEP", &program.threads.min(LANES).to_string())
}

/// Returns how a device's results differ from the emulator's.
fn difference(machine: &Machine, program: &Program) -> Option<String> {
    let outcomes = run(program).ok()?;
    let text = format!("{HEAD}{}", ready_text(program, "k0"));
    let ready = machine.build(&text).ok()?;
    compare(machine, &ready, "k0", program, &outcomes)
}

fn compare(
    machine: &Machine,
    ready: &machine::Ready,
    name: &str,
    program: &Program,
    outcomes: &[Outcome],
) -> Option<String> {
    let threads = u64::from(program.threads);
    let bytes = threads * THREAD_BYTES;
    machine.write(FREE, &vec![0; usize::try_from(bytes).expect("small")]);
    machine.launch(ready, name, &[BASE + FREE], BLOCKS, threads, 0);
    if machine.fault() != (0, 0) {
        return Some(format!("a fault: {:?}", machine.fault()));
    }
    let found = machine.read(FREE, bytes);
    let words: Vec<u32> =
        found.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let each = 1 + REGISTERS + 3;
    for (warp, outcome) in outcomes.iter().enumerate() {
        for (lane, expected) in outcome.lanes.iter().enumerate() {
            let thread = warp * LANES as usize + lane;
            let got = &words[thread * each..][..each];
            let mut wanted = vec![0; each];
            if let Some(registers) = expected {
                wanted[0] = 1;
                wanted[1..=REGISTERS].copy_from_slice(registers);
                for part in 0..3 {
                    let word = lane + part * LANES as usize;
                    wanted[1 + REGISTERS + part] =
                        if word < WORDS as usize { outcome.words[word] } else { 0 };
                }
            }
            if got != wanted {
                return Some(format!(
                    "thread {thread} of {threads} leaves {got:x?}, not {wanted:x?}"
                ));
            }
        }
    }
    None
}

/// Returns the smallest failing program that can be reached by single steps.
fn shrink(machine: &Machine, mut program: Program) -> Program {
    let mut left = SHRINKS_MAX;
    'again: loop {
        for body in program::smaller(&program.body) {
            let smaller = Program { threads: program.threads, body };
            if left == 0 {
                return program;
            }
            if run(&smaller).is_err() {
                continue;
            }
            left -= 1;
            if difference(machine, &smaller).is_some() {
                program = smaller;
                continue 'again;
            }
        }
        return program;
    }
}
