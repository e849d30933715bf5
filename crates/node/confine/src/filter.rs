//! The filter of system calls in the kernel, made of the rows of [`crate::calls`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use crate::calls::{Argument, Call, Test};
use crate::permitted;

/// The filter could not be made, or the kernel did not take it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The library makes no filters for this kind of processor.
    #[error("there are no filters of system calls for processors of type {0}")]
    Processor(&'static str),
    /// A row cannot be translated.
    #[error("the filter of system calls: {0}")]
    Made(#[from] seccompiler::BackendError),
    /// The kernel refused the filter.
    #[error("the kernel takes no filter of system calls: {0}")]
    Applied(#[from] seccompiler::Error),
}

/// The two programs that the kernel runs before each call.
#[derive(Debug)]
pub(crate) struct Filter {
    forbidden: BpfProgram,
    unknown: BpfProgram,
}

impl Filter {
    pub(crate) fn of(calls: &[Call]) -> Result<Self, FilterError> {
        let arch = std::env::consts::ARCH;
        let processor = TargetArch::try_from(arch).map_err(|_| FilterError::Processor(arch))?;
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
        for call in calls {
            let cases = call.cases.iter().map(|case| rule(case)).collect::<Result<Vec<_>, _>>()?;
            rules.entry(call.number).or_default().extend(cases);
        }
        let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, processor)?;
        Ok(Self { forbidden: filter.try_into()?, unknown: unknown_calls(calls) })
    }

    /// Restricts all threads of the process.
    pub(crate) fn apply(&self) -> Result<(), FilterError> {
        seccompiler::apply_filter_all_threads(&self.unknown)?;
        self.apply_more()
    }

    /// Restricts all threads of a process that has applied a filter already.
    pub(crate) fn apply_more(&self) -> Result<(), FilterError> {
        Ok(seccompiler::apply_filter_all_threads(&self.forbidden)?)
    }
}

/// Restricts only the calling thread, for tests and tools.
///
/// # Errors
/// Fails if the filter cannot be made, or if the kernel does not take it.
pub fn restrict_this_thread(calls: &[Call]) -> Result<(), FilterError> {
    let filter = Filter::of(calls)?;
    seccompiler::apply_filter(&filter.unknown)?;
    Ok(seccompiler::apply_filter(&filter.forbidden)?)
}

fn rule(case: &[Argument]) -> Result<SeccompRule, seccompiler::BackendError> {
    let condition = |argument: &Argument| {
        use SeccompCmpArgLen::{Dword, Qword};
        let (length, test, value) = match argument.test {
            Test::Is(value) => (Dword, SeccompCmpOp::Eq, value.into()),
            Test::IsNot(value) => (Dword, SeccompCmpOp::Ne, value.into()),
            Test::IsNotWord(value) => (Qword, SeccompCmpOp::Ne, value),
            Test::Has(bits) => (Qword, SeccompCmpOp::MaskedEq(bits), bits),
            Test::Lacks(bits) => (Qword, SeccompCmpOp::MaskedEq(bits), 0),
        };
        SeccompCondition::new(argument.place, length, test, value)
    };
    SeccompRule::new(case.iter().map(condition).collect::<Result<_, _>>()?)
}

/// Returns a program that answers ENOSYS to the calls that are in no list, and to `clone3`, whose
/// flags lie in memory, where no filter sees them. The C library then uses `clone`. The calls of
/// the x32 interface, on processors that have it, have numbers of their own, which are in no list.
fn unknown_calls(calls: &[Call]) -> BpfProgram {
    let step = |code: u32, jt, k| sock_filter {
        // All codes of classic BPF fit into 16 bits.
        code: u16::try_from(code).unwrap_or_default(),
        jt,
        jf: 0,
        k,
    };
    let answer = |action: SeccompAction| step(libc::BPF_RET | libc::BPF_K, 0, action.into());
    let unknown = || answer(SeccompAction::Errno(libc::ENOSYS.unsigned_abs()));
    let at_least = |number| step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, number);
    // The number of the call is the first word of what the program sees.
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for run in runs(calls) {
        // What lies before this run and behind the last one is unknown.
        program.extend([at_least(*run.start()), unknown()]);
        program.extend([at_least(run.end() + 1), answer(SeccompAction::Allow)]);
    }
    program.push(unknown());
    program
}

/// Returns the numbers that the lists have, as runs without gaps, in their order.
fn runs(calls: &[Call]) -> Vec<RangeInclusive<u32>> {
    let listed = permitted::calls().map(|call| call.number);
    let listed = listed.chain(calls.iter().map(|call| call.number));
    let numbers: BTreeSet<u32> = listed.filter_map(|number| u32::try_from(number).ok()).collect();
    let mut runs: Vec<RangeInclusive<u32>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(last) if *last.end() + 1 == number => *last = *last.start()..=number,
            _ => runs.push(number..=number),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::{Context, forbidden};

    #[test]
    fn the_filter_fits_into_the_kernel() {
        for has_network in [false, true] {
            let context =
                Context { process: 1, has_network, has_services: has_network, runs_programs: true };
            let filter = Filter::of(&forbidden(&context)).unwrap();
            // BPF_MAXINSNS.
            assert!(filter.forbidden.len() < 4096, "{}", filter.forbidden.len());
        }
    }

    #[test]
    fn the_program_for_unknown_calls_knows_the_listed_ones() {
        let context =
            Context { process: 1, has_network: false, has_services: false, runs_programs: false };
        let calls = forbidden(&context);
        let program = unknown_calls(&calls);
        // Runs the program as the kernel does.
        let allows = |number: u32| {
            let mut at = 0;
            loop {
                let step = &program[at];
                at += 1;
                match u32::from(step.code) {
                    code if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => {
                        at += usize::from(if number >= step.k { step.jt } else { step.jf });
                    }
                    code if code == libc::BPF_RET | libc::BPF_K => {
                        return step.k == u32::from(SeccompAction::Allow);
                    }
                    _ => {}
                }
            }
        };
        let is_listed = |number: u32| {
            let number = i64::from(number);
            permitted::calls().any(|call| call.number == number)
                || calls.iter().any(|call| call.number == number)
        };
        for number in (0..1000).chain([0x4000_0000, 0x4000_0001, u32::MAX]) {
            assert_eq!(allows(number), is_listed(number), "{number}");
        }
    }
}
