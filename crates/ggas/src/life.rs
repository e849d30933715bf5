//! What a member knows about the end of its heap's waits and about resets. It has no locks and
//! memory, so tests can explore every order in which kernels, hosts and notes of abort meet.
//!
//! A heap starts with generation 0, and each reset begins a new generation. Members reset one after
//! the other while notes of abort are under way, so each note names its generation.

use crate::frame::Note;

/// Bits of a barrier count: 2^48 barriers take over a year. The bits above hold the generation.
pub const COUNT_BITS: u32 = 48;

/// Returns the first barrier count of a generation. It exceeds every flag of earlier generations,
/// so flags need not be cleared.
pub const fn first_count(generation: u64) -> u64 {
    generation << COUNT_BITS
}

/// End of waits and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct End {
    /// One or two sentences for users.
    pub reason: String,
    /// Generation that ends: a member may hear of an abort between the others' reset and its own.
    pub generation: u64,
    /// Whether a member has gone, so that no reset helps.
    pub last: bool,
}

/// Generation of one member, and the end of its waits, if they have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Life {
    generation: u64,
    end: Option<End>,
}

impl Life {
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns why waits end, if they do.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Ends the waits of this generation. The first reason stays, unless a `last` one comes.
    pub fn abort(&mut self, reason: &str, last: bool) {
        self.abort_generation(0, reason, last);
    }

    /// Handles another member's note of abort. Returns `false` for an abort of an older generation.
    pub fn told(&mut self, note: &Note) -> bool {
        let counts = note.last || note.generation >= self.generation;
        if counts {
            self.abort_generation(note.generation, &note.reason, note.last);
        }
        counts
    }

    /// Ends the waits of a generation, which another member's reset may have begun already.
    fn abort_generation(&mut self, generation: u64, reason: &str, last: bool) {
        let generation = generation.max(self.generation);
        match &mut self.end {
            Some(had) if had.last => {}
            Some(had) if !last => had.generation = had.generation.max(generation),
            end => *end = Some(End { reason: reason.to_owned(), generation, last }),
        }
    }

    /// Begins `generation`, which must exceed the present one. Returns whether a member that was
    /// reset earlier has already aborted the new generation.
    ///
    /// # Errors
    /// Returns the end of the heap if a member has gone.
    pub fn renew(&mut self, generation: u64) -> Result<bool, End> {
        if let Some(end) = self.end.as_ref().filter(|end| end.last) {
            return Err(end.clone());
        }
        self.generation = generation;
        self.end.take_if(|end| end.generation < generation);
        Ok(self.end.is_some())
    }

    /// Returns the note for the other members, unless they know it. `told` is the last note's
    /// generation.
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
        assert!(life.told(&note(0, true)), "the loss of a member holds in every generation");
        life.abort("later", false);
        assert_eq!(life.renew(4).unwrap_err().reason, "theirs");
        assert_eq!(life.generation(), 3);
    }
}
