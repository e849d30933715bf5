//! The faults of commands that have failed, for jobs and questions that arrive later.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::command::{CommandId, Fault};
use crate::error::code;

/// Number of faults whose cause is kept. A fault takes a few hundred bytes without its build log,
/// so they take some ten MiB. Of the failures before them only the command's number is kept.
const FAULTS_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Faults {
    known: FxHashMap<CommandId, Box<Fault>>,
    /// The commands in `known`, in the order of their failures.
    order: VecDeque<CommandId>,
    /// Commands that have failed and whose cause is no longer kept. A job that waits for one of
    /// them must still fail, so the set has no limit: eight bytes of a number for each failure.
    forgotten: FxHashSet<CommandId>,
}

impl Faults {
    pub(super) fn insert(&mut self, id: CommandId, fault: Box<Fault>) {
        if self.known.insert(id, fault).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > FAULTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
            self.forgotten.insert(oldest);
        }
    }

    /// Returns why a command failed, or `None` if it has not failed.
    pub(super) fn get(&self, id: CommandId) -> Option<Box<Fault>> {
        let known = self.known.get(&id).cloned();
        known.or_else(|| self.forgotten.contains(&id).then(|| Box::new(forgotten(id))))
    }
}

/// Returns a fault for a command whose cause is no longer kept.
fn forgotten(command: CommandId) -> Fault {
    Fault {
        code: code::WAIT_LIST_FAILED,
        command,
        work: "an earlier command".into(),
        node: String::new(),
        rank: 0,
        device: String::new(),
        message: format!("its cause is not known, because {FAULTS_MAX} commands failed after it"),
        log: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_known_after_any_number_of_others() {
        let mut faults = Faults::default();
        let last = FAULTS_MAX as u64 + 9;
        for id in (0..=last).map(CommandId) {
            let cause = Fault { code: -5, ..forgotten(id) };
            faults.insert(id, Box::new(cause.clone()));
            faults.insert(id, Box::new(cause));
        }
        let code = |id| faults.get(CommandId(id)).map(|fault| (fault.command.0, fault.code));
        assert_eq!(code(0), Some((0, code::WAIT_LIST_FAILED)));
        assert_eq!(code(9), Some((9, code::WAIT_LIST_FAILED)));
        assert_eq!(code(10), Some((10, -5)));
        assert_eq!(code(last), Some((last, -5)));
        assert_eq!(code(last + 1), None);
        assert_eq!(faults.known.len(), FAULTS_MAX);
    }
}
