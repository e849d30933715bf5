//! Blocking collectives, for comparison with the paper: see [`Together`].

use std::collections::BTreeMap;

use crate::command::{CommandId, Together};

/// The blocking collectives that this rank has jobs of.
#[derive(Debug, Default)]
pub struct Gatherings {
    /// By number: the first is entered first.
    waiting: BTreeMap<u64, Gathering>,
    /// The one that this rank is in, and how many of its jobs have not ended.
    inside: Option<Inside>,
    /// Jobs that could have started meanwhile.
    shelved: Vec<CommandId>,
}

#[derive(Debug)]
struct Gathering {
    count: u32,
    /// The place of its first job among all that this rank was given.
    place: u64,
    ready: Vec<CommandId>,
}

#[derive(Debug)]
struct Inside {
    number: u64,
    /// Jobs that have not ended.
    left: u32,
    /// As in [`Gathering`].
    place: u64,
}

impl Gatherings {
    /// A job of one was taken, as the so manyth of this rank.
    pub fn announce(&mut self, together: Together, place: u64) {
        self.waiting.entry(together.number).or_insert(Gathering {
            count: together.count,
            place,
            ready: Vec::new(),
        });
    }

    /// Whether a job that can start must wait: outside for who else is of its collective, or because this rank is inside one. If it was the
    /// last to come, all come back to be started.
    ///
    /// Jobs that were given before the collective do not wait for it: other ranks may not enter before these have ended.
    pub fn must_wait(
        &mut self,
        id: CommandId,
        together: Option<Together>,
        place: u64,
    ) -> Option<Vec<CommandId>> {
        let Some(together) = together else {
            if self.inside.as_ref().is_none_or(|inside| place < inside.place) {
                return None;
            }
            self.shelved.push(id);
            return Some(Vec::new());
        };
        if self.inside.as_ref().is_some_and(|inside| inside.number == together.number) {
            return None;
        }
        if let Some(gathering) = self.waiting.get_mut(&together.number) {
            gathering.ready.push(id);
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
        let (number, gathering) = first.remove_entry();
        self.inside = Some(Inside { number, left: gathering.count, place: gathering.place });
        gathering.ready
    }

    /// A job of one has ended. What can start now comes back.
    pub fn ended(&mut self, together: Together) -> Vec<CommandId> {
        let Some(inside) = self.inside.as_mut().filter(|inside| inside.number == together.number)
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

    const FIRST: Together = Together { number: 1, count: 2 };
    const SECOND: Together = Together { number: 2, count: 1 };

    #[test]
    fn a_rank_enters_when_all_its_jobs_are_there_and_starts_no_later_ones_inside() {
        let mut gatherings = Gatherings::default();
        gatherings.announce(FIRST, 5);
        gatherings.announce(SECOND, 7);
        assert_eq!(
            gatherings.must_wait(CommandId(3), Some(SECOND), 7),
            Some(vec![]),
            "the first comes first"
        );
        assert_eq!(gatherings.must_wait(CommandId(9), None, 9), None);
        assert_eq!(gatherings.must_wait(CommandId(1), Some(FIRST), 5), Some(vec![]));
        assert_eq!(
            gatherings.must_wait(CommandId(2), Some(FIRST), 6),
            Some(vec![CommandId(1), CommandId(2)])
        );
        assert_eq!(gatherings.must_wait(CommandId(1), Some(FIRST), 5), None);
        assert_eq!(gatherings.must_wait(CommandId(4), None, 4), None, "it was there before");
        assert_eq!(gatherings.must_wait(CommandId(8), None, 8), Some(vec![]));
        assert_eq!(gatherings.ended(FIRST), []);
        assert_eq!(gatherings.ended(FIRST), [CommandId(8), CommandId(3)]);
        assert_eq!(gatherings.must_wait(CommandId(8), None, 8), Some(vec![]), "inside the second");
        assert_eq!(gatherings.ended(SECOND), [CommandId(8)]);
    }
}
