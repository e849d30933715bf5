//! The filter of system calls in the kernel, made of the rows of [`crate::calls`].

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use crate::calls::{Argument, Call, Test};

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
        Ok(Self { forbidden: filter.try_into()?, unknown: unknown_calls() })
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

/// Returns a program that answers ENOSYS to calls that the other program cannot judge:
///
/// * `clone3`, whose flags lie in memory. The C library then uses `clone`.
/// * All calls of the x32 interface, on processors that have it. They have numbers of their own.
fn unknown_calls() -> BpfProgram {
    let step = |code: u32, jt, jf, k| sock_filter {
        // All codes of classic BPF fit into 16 bits.
        code: u16::try_from(code).unwrap_or_default(),
        jt,
        jf,
        k,
    };
    let answer = |action: SeccompAction| step(libc::BPF_RET | libc::BPF_K, 0, 0, action.into());
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or_default();
    vec![
        // The number of the call is the first word of what the program sees.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 2, 0, clone3),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, 0, X32_FIRST),
        answer(SeccompAction::Allow),
        answer(SeccompAction::Errno(libc::ENOSYS.unsigned_abs())),
    ]
}

/// Number of the first call of the x32 interface (`__X32_SYSCALL_BIT`). Other processors have no
/// call with such a high number.
const X32_FIRST: u32 = 0x4000_0000;

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
    fn jumps_of_the_short_program_stay_within_it() {
        let program = unknown_calls();
        for (at, step) in program.iter().enumerate() {
            let far = usize::from(step.jt.max(step.jf));
            assert!(far == 0 || at + 1 + far < program.len());
        }
    }
}
