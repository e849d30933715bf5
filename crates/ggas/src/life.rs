//! What a member knows of the end of its heap's waits, and of its resets: apart from locks and memory, so that tests can explore every
//! order in which kernels, hosts and notes of abort meet.
//!
//! A heap lives in generations: 0 from its start, and a new one from each reset on. Members reset one after the other, while notes of
//! abort are under way, so each note names the generation that it is about.

use crate::frame::Note;

/// Bits of a count of barriers: 2^48 of them take more than a year. Above them is the generation.
pub const COUNT_BITS: u32 = 48;

/// What counts of barriers begin with in a generation: no flag of a generation before is as high, so flags need not be cleared.
pub const fn first_count(generation: u64) -> u64 {
    generation << COUNT_BITS
}

/// Why waits end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct End {
    /// A sentence or two, for users.
    pub reason: String,
    /// The generation that it ends: a member may be told of an abort after the others' reset, and before its own.
    pub generation: u64,
    /// A member has gone: no reset helps.
    pub last: bool,
}

/// One member's generation, and what ends its waits, if anything does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Life {
    generation: u64,
    end: Option<End>,
}

impl Life {
    /// The present generation.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Why waits end, if they do.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Waits of this generation end. The first reason stays, unless a last one comes.
    pub fn abort(&mut self, reason: &str, last: bool) {
        self.abort_generation(0, reason, last);
    }

    /// Another member tells of an abort; `false`: it is about what a reset has made good.
    pub fn told(&mut self, note: &Note) -> bool {
        let counts = note.last || note.generation >= self.generation;
        if counts {
            self.abort_generation(note.generation, &note.reason, note.last);
        }
        counts
    }

    /// The same for what another member's reset may have begun already.
    fn abort_generation(&mut self, generation: u64, reason: &str, last: bool) {
        let generation = generation.max(self.generation);
        match &mut self.end {
            Some(had) if had.last => {}
            Some(had) if !last => had.generation = had.generation.max(generation),
            end => *end = Some(End { reason: reason.to_owned(), generation, last }),
        }
    }

    /// Begins `generation`, which is above the present one. Whether that one has been aborted already, by a member that was reset
    /// before this one.
    ///
    /// # Errors
    /// Why it can not begin, when a member has gone.
    pub fn renew(&mut self, generation: u64) -> Result<bool, End> {
        if let Some(end) = self.end.as_ref().filter(|end| end.last) {
            return Err(end.clone());
        }
        self.generation = generation;
        self.end.take_if(|end| end.generation < generation);
        Ok(self.end.is_some())
    }

    /// What the others are to be told, and of which generation they are told then, unless they know: `told` is the one of the last time.
    pub fn news(&self, told: Option<u64>) -> Option<Note> {
        let end = self.end.as_ref().filter(|_| told != Some(self.generation))?;
        Some(Note { generation: self.generation, last: end.last, reason: end.reason.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(generation: u64, last: bool) -> Note {
        Note { generation, last, reason: "theirs".to_owned() }
    }

    #[test]
    fn an_abort_ends_its_generation_and_no_later_one() {
        let mut life = Life::default();
        life.abort("ours", false);
        assert_eq!(life.news(None), Some(Note { reason: "ours".to_owned(), ..note(0, false) }));
        assert_eq!(life.news(Some(0)), None);
        assert_eq!(life.renew(1), Ok(false));
        assert!(!life.told(&note(0, false)));
        assert_eq!((life.end(), life.news(Some(0))), (None, None));
    }

    #[test]
    fn an_abort_of_the_next_generation_outlives_the_reset() {
        let mut life = Life::default();
        life.abort("ours", false);
        assert!(life.told(&note(1, false)));
        assert_eq!(life.renew(1), Ok(true));
        assert_eq!(life.renew(2), Ok(false));
    }

    #[test]
    fn who_has_gone_does_not_come_back() {
        let mut life = Life::default();
        life.abort("ours", false);
        life.renew(3).unwrap();
        assert!(life.told(&note(0, true)), "that a member has gone is true in every generation");
        life.abort("later", false);
        assert_eq!(life.renew(4).unwrap_err().reason, "theirs");
        assert_eq!(life.generation(), 3);
    }
}
