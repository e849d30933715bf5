//! Blocking collectives, for comparison with the paper: see [`BlockingCollective`].

use std::collections::BTreeMap;

use crate::command::{BlockingCollective, CommandId};

/// The blocking collectives in which this rank has jobs.
#[derive(Debug, Default)]
pub struct BlockingCollectives {
    /// Collectives not entered yet, by number. The lowest number is entered first.
    waiting: BTreeMap<u64, WaitingCollective>,
    /// The collective that this rank is in.
    inside: Option<EnteredCollective>,
    /// Jobs that became ready in the meantime.
    shelved: Vec<CommandId>,
}

#[derive(Debug)]
struct WaitingCollective {
    count: u32,
    /// Ordinal of its first job on this rank.
    ordinal: u64,
    ready: Vec<CommandId>,
}

#[derive(Debug)]
struct EnteredCollective {
    number: u64,
    /// Number of its jobs that have not ended.
    left: u32,
    /// Ordinal of its first job on this rank.
    ordinal: u64,
}

impl BlockingCollectives {
    /// Notes a job of a collective; `ordinal` is the job's ordinal on this rank.
    pub fn announce(&mut self, collective: BlockingCollective, ordinal: u64) {
        self.waiting.entry(collective.number).or_insert(WaitingCollective {
            count: collective.count,
            ordinal,
            ready: Vec::new(),
        });
    }

    /// Decides whether a ready job must wait: until all jobs of its collective are ready, or until
    /// this rank has left the collective it is in. `None` lets the job start. If the job was the
    /// last of its collective to become ready, the result lists all jobs of that collective, to be
    /// started again.
    ///
    /// A job that was given before the collective does not wait: other ranks may not enter the
    /// collective before that job has ended.
    pub fn must_wait(
        &mut self,
        id: CommandId,
        collective: Option<BlockingCollective>,
        ordinal: u64,
    ) -> Option<Vec<CommandId>> {
        let Some(collective) = collective else {
            if self.inside.as_ref().is_none_or(|inside| ordinal < inside.ordinal) {
                return None;
            }
            self.shelved.push(id);
            return Some(Vec::new());
        };
        if self.inside.as_ref().is_some_and(|inside| inside.number == collective.number) {
            return None;
        }
        if let Some(waiting) = self.waiting.get_mut(&collective.number) {
            waiting.ready.push(id);
        }
        Some(self.enter())
    }

    /// Enters the first collective if all its jobs are there.
    fn enter(&mut self) -> Vec<CommandId> {
        if self.inside.is_some() {
            return Vec::new();
        }
        let Some(first) = self.waiting.first_entry() else { return Vec::new() };
        if (first.get().ready.len() as u64) < u64::from(first.get().count) {
            return Vec::new();
        }
        let (number, waiting) = first.remove_entry();
        self.inside =
            Some(EnteredCollective { number, left: waiting.count, ordinal: waiting.ordinal });
        waiting.ready
    }

    /// Notes the end of a job of a collective. Returns the jobs that can start now.
    pub fn ended(&mut self, collective: BlockingCollective) -> Vec<CommandId> {
        let Some(inside) = self.inside.as_mut().filter(|inside| inside.number == collective.number)
        else {
            return Vec::new();
        };
        inside.left = inside.left.saturating_sub(1);
        if inside.left > 0 {
            return Vec::new();
        }
        self.inside = None;
        let mut free = std::mem::take(&mut self.shelved);
        free.append(&mut self.enter());
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: BlockingCollective = BlockingCollective { number: 1, count: 2 };
    const SECOND: BlockingCollective = BlockingCollective { number: 2, count: 1 };

    #[test]
    fn a_rank_enters_when_all_its_jobs_are_there_and_starts_no_later_ones_inside() {
        let mut collectives = BlockingCollectives::default();
        collectives.announce(FIRST, 5);
        collectives.announce(SECOND, 7);
        assert_eq!(
            collectives.must_wait(CommandId(3), Some(SECOND), 7),
            Some(vec![]),
            "the first comes first"
        );
        assert_eq!(collectives.must_wait(CommandId(9), None, 9), None);
        assert_eq!(collectives.must_wait(CommandId(1), Some(FIRST), 5), Some(vec![]));
        assert_eq!(
            collectives.must_wait(CommandId(2), Some(FIRST), 6),
            Some(vec![CommandId(1), CommandId(2)])
        );
        assert_eq!(collectives.must_wait(CommandId(1), Some(FIRST), 5), None);
        assert_eq!(collectives.must_wait(CommandId(4), None, 4), None, "it was there before");
        assert_eq!(collectives.must_wait(CommandId(8), None, 8), Some(vec![]));
        assert_eq!(collectives.ended(FIRST), []);
        assert_eq!(collectives.ended(FIRST), [CommandId(8), CommandId(3)]);
        assert_eq!(collectives.must_wait(CommandId(8), None, 8), Some(vec![]), "inside the second");
        assert_eq!(collectives.ended(SECOND), [CommandId(8)]);
    }
}
