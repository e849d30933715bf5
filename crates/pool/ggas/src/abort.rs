//! What a member knows about the end of its heap's waits and about resets. It has no locks and
//! memory, so tests can explore every order in which kernels, hosts and notes of abort meet.
//!
//! A heap starts with generation 0, and each reset begins a new generation. Members reset one after
//! the other while notes of abort are under way, so each note names its generation.

use crate::frame::AbortNote;

/// Bits of a barrier count: 2^48 barriers take over a year. The bits above hold the generation.
pub const COUNT_BITS: u32 = 48;

/// Returns the first barrier count of a generation. It exceeds every flag of earlier generations,
/// so flags need not be cleared.
pub const fn first_count(generation: u64) -> u64 {
    generation << COUNT_BITS
}

/// An end of waits and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Abort {
    /// One or two sentences for users.
    pub reason: String,
    /// Generation that ends: a member may hear of an abort between the others' reset and its own.
    pub generation: u64,
    /// Whether a member has gone, so that no reset helps.
    pub is_final: bool,
}

/// Generation of one member, and the end of its waits, if they have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AbortState {
    generation: u64,
    abort: Option<Abort>,
}

impl AbortState {
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns why waits end, if they do.
    pub fn aborted(&self) -> Option<&Abort> {
        self.abort.as_ref()
    }

    /// Ends the waits of this generation. The first reason stays, unless a final one comes.
    pub fn abort(&mut self, reason: &str, is_final: bool) {
        self.abort_generation(0, reason, is_final);
    }

    /// Handles another member's note of abort. Returns `false` for an abort of an older generation.
    pub fn receive(&mut self, note: &AbortNote) -> bool {
        let counts = note.is_final || note.generation >= self.generation;
        if counts {
            self.abort_generation(note.generation, &note.reason, note.is_final);
        }
        counts
    }

    /// Ends the waits of a generation, which another member's reset may have begun already.
    fn abort_generation(&mut self, generation: u64, reason: &str, is_final: bool) {
        let generation = generation.max(self.generation);
        match &mut self.abort {
            Some(had) if had.is_final => {}
            Some(had) if !is_final => had.generation = had.generation.max(generation),
            abort => *abort = Some(Abort { reason: reason.to_owned(), generation, is_final }),
        }
    }

    /// Begins `generation`, which must exceed the present one. Returns whether a member that was
    /// reset earlier has already aborted the new generation.
    ///
    /// # Errors
    /// Returns the final abort if a member has gone.
    pub fn begin_generation(&mut self, generation: u64) -> Result<bool, Abort> {
        if let Some(abort) = self.abort.as_ref().filter(|abort| abort.is_final) {
            return Err(abort.clone());
        }
        self.generation = generation;
        self.abort.take_if(|abort| abort.generation < generation);
        Ok(self.abort.is_some())
    }

    /// Returns the note for the other members, unless they know it. `told` is the generation of
    /// the last note.
    pub fn note_for_others(&self, told: Option<u64>) -> Option<AbortNote> {
        let abort = self.abort.as_ref().filter(|_| told != Some(self.generation))?;
        Some(AbortNote {
            generation: self.generation,
            is_final: abort.is_final,
            reason: abort.reason.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(generation: u64, is_final: bool) -> AbortNote {
        AbortNote { generation, is_final, reason: "theirs".to_owned() }
    }

    #[test]
    fn an_abort_ends_its_generation_and_no_later_one() {
        let mut state = AbortState::default();
        state.abort("ours", false);
        assert_eq!(
            state.note_for_others(None),
            Some(AbortNote { reason: "ours".to_owned(), ..note(0, false) })
        );
        assert_eq!(state.note_for_others(Some(0)), None);
        assert_eq!(state.begin_generation(1), Ok(false));
        assert!(!state.receive(&note(0, false)));
        assert_eq!((state.aborted(), state.note_for_others(Some(0))), (None, None));
    }

    #[test]
    fn an_abort_of_the_next_generation_outlives_the_reset() {
        let mut state = AbortState::default();
        state.abort("ours", false);
        assert!(state.receive(&note(1, false)));
        assert_eq!(state.begin_generation(1), Ok(true));
        assert_eq!(state.begin_generation(2), Ok(false));
    }

    #[test]
    fn who_has_gone_does_not_come_back() {
        let mut state = AbortState::default();
        state.abort("ours", false);
        state.begin_generation(3).unwrap();
        assert!(state.receive(&note(0, true)), "the loss of a member holds in every generation");
        state.abort("later", false);
        assert_eq!(state.begin_generation(4).unwrap_err().reason, "theirs");
        assert_eq!(state.generation(), 3);
    }
}
