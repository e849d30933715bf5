//! Runs a kernel, and compares the memory behind each launch with the emulator's.

use super::emulate;
use super::print;
use super::program::{Launch, OWN, Platform, Program, REGISTERS, STRIDE, SUMS};
use crate::cuda::driver::{Failed, Work};
use crate::finding::{Finding, Kind};

/// Loads a module on a device, and launches its kernel. Returns the memory behind each launch, or
/// the call that failed and its code.
pub type Runner<'a> = dyn Fn(usize, &str, &[Work]) -> Result<Vec<Vec<u32>>, Failed> + 'a;

/// Runs a kernel on each device. Calls `report` with the first difference.
///
/// # Errors
///
/// The emulator refuses the kernel.
pub fn run(
    program: &Program,
    platform: &Platform,
    runner: &Runner<'_>,
    report: &(dyn Fn(Finding) + Sync),
) -> Result<(), String> {
    let text = print::module(program).ok_or("brackets are not in order")?;
    let after = |launch| emulate::after(program, launch);
    let expected: Result<Vec<_>, _> = program.launches.iter().map(after).collect();
    let expected = expected.map_err(|refusal| format!("{refusal:?}"))?;
    let work = |launch: &Launch| Work {
        blocks: launch.blocks,
        block: program.block,
        parameter: launch.parameter,
        memory: emulate::before(program, launch),
    };
    let work: Vec<Work> = program.launches.iter().map(work).collect();
    for (device, about) in platform.devices.iter().enumerate() {
        let found = |kind, at, what: String| {
            report(Finding { kind, op: None, at, what: format!("{what} on {}", about.name) });
        };
        match runner(device, &text, &work) {
            Err(Failed { call, code }) => {
                found(Kind::WrongCode, None, format!("{call} returned {code}"));
                return Ok(());
            }
            Ok(seen) => {
                for (index, (expected, seen)) in expected.iter().zip(&seen).enumerate() {
                    let mut both = expected.iter().zip(seen);
                    let Some(at) = both.position(|(one, other)| one != other) else { continue };
                    let what = format!(
                        "launch {index}, {}: {:#x} instead of {:#x}",
                        name(at, program.block),
                        seen[at],
                        expected[at]
                    );
                    found(Kind::WrongBytes, Some(at * 4), what);
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Says what a word of memory is.
fn name(at: usize, block: usize) -> String {
    let Some(at) = at.checked_sub(SUMS) else { return format!("sum {at}") };
    let (thread, word) = (at / STRIDE, at % STRIDE);
    let what = match word.checked_sub(REGISTERS) {
        None => format!("first register {word}"),
        Some(own) if own < OWN => format!("own word {own}"),
        Some(last) => format!("register {}", last - OWN),
    };
    format!("block {}, thread {}, {what}", thread / block, thread % block)
}

/// Returns the PTX text of a kernel, with what was seen.
pub fn text(program: &Program, platform: &Platform, finding: &Finding) -> Option<String> {
    let mut head = format!(
        "// {}: {}\n// Seed {} on {} ({}). A block has {} threads.\n",
        finding.kind.name(),
        finding.what,
        program.seed,
        platform.name,
        platform.version,
        program.block
    );
    for launch in &program.launches {
        head.push_str(&format!("// {launch:?}\n"));
    }
    for op in &program.ops {
        head.push_str(&format!("//   {:?}\n", op.act));
    }
    Some(head + &print::module(program)?)
}
