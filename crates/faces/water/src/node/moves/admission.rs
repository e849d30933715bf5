//! Decides which streams this rank receives now. Hundreds of moves may have been started early, but
//! only the first few come next, and polling the transport for all of them takes long. So only some
//! are admitted, in the order in which the root gave them. The others are admitted when their
//! senders offer them.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::command::{CommandId, Rank, Stream};

/// Number of early streams admitted at a time without an offer. There are several, so that a sender
/// finds its receiver ready. Each may have up to 16 awaited pieces, and the transport checks every
/// one in each poll.
const EARLY_STREAMS_MAX: u32 = 4;

#[derive(Debug, Default)]
pub struct Admission {
    /// Moves not admitted yet, each after its job's ordinal.
    waiting: BTreeSet<(u64, CommandId)>,
    streams: FxHashMap<(Rank, Stream), (u64, CommandId)>,
    admitted: FxHashSet<CommandId>,
    /// Streams that were offered before their moves arrived.
    offers: FxHashSet<(Rank, Stream)>,
}

impl Admission {
    /// Makes a move wait for admission, unless its stream was offered already. Returns whether it
    /// waits.
    pub fn add(&mut self, ordinal: u64, id: CommandId, stream: (Rank, Stream)) -> bool {
        if self.offers.remove(&stream) {
            self.admitted.insert(id);
            return false;
        }
        self.waiting.insert((ordinal, id));
        self.streams.insert(stream, (ordinal, id));
        true
    }

    /// Returns the move of an offered stream if it waits for admission.
    pub fn offered(&mut self, stream: (Rank, Stream)) -> Option<CommandId> {
        let Some((ordinal, id)) = self.streams.get(&stream).copied() else {
            self.offers.insert(stream);
            return None;
        };
        self.waiting.remove(&(ordinal, id)).then_some(id)
    }

    /// Admits the next move if there is room for it.
    pub fn next(&mut self) -> Option<CommandId> {
        if self.admitted.len() >= EARLY_STREAMS_MAX as usize {
            return None;
        }
        let (_, id) = self.waiting.pop_first()?;
        self.admitted.insert(id);
        Some(id)
    }

    /// Notes that all bytes of a move have arrived. Returns whether that makes room for a waiting
    /// move.
    pub fn end(&mut self, id: CommandId) -> bool {
        self.admitted.remove(&id) && !self.waiting.is_empty()
    }

    pub fn forget(&mut self, ordinal: u64, id: CommandId, stream: (Rank, Stream)) {
        self.waiting.remove(&(ordinal, id));
        self.admitted.remove(&id);
        self.streams.remove(&stream);
        self.offers.remove(&stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn stream(number: u32) -> (Rank, Stream) {
        (1, Stream(number))
    }

    #[test]
    fn the_first_are_awaited_and_others_when_they_are_offered() {
        let mut admission = Admission::default();
        let (count, mut number) = (u64::from(EARLY_STREAMS_MAX) + 2, EARLY_STREAMS_MAX + 2);
        for ordinal in (0..count).rev() {
            number -= 1;
            assert!(admission.add(ordinal, CommandId(100 + ordinal), stream(number)));
        }
        for ordinal in 0..u64::from(EARLY_STREAMS_MAX) {
            assert_eq!(admission.next(), Some(CommandId(100 + ordinal)));
        }
        assert_eq!(admission.next(), None, "there is no room");
        assert_eq!(
            admission.offered(stream(EARLY_STREAMS_MAX + 1)),
            Some(CommandId(100 + count - 1))
        );
        assert_eq!(admission.offered(stream(0)), None, "it is admitted already");
        assert!(admission.end(CommandId(103)));
        assert_eq!(admission.next(), Some(CommandId(100 + count - 2)));
    }

    #[test]
    fn an_offer_may_come_before_its_move() {
        let mut admission = Admission::default();
        assert_eq!(admission.offered(stream(7)), None);
        assert!(!admission.add(1, CommandId(1), stream(7)), "it is admitted at once");
        assert!(admission.add(2, CommandId(2), stream(8)));
    }
}
