//! The phases of a member's heap, and which step may follow which. It has no locks, threads or
//! memory, so that a test can visit all its states.
//!
//! ```text
//! Joining --start--> Starting --started--> Started --reset--> Resetting
//!    ^------failed-------/                    ^------- done -------/
//! any phase --close--> Closing
//! ```
//!
//! Launches are counted in every phase. A reset takes effect only while no launch is in flight.

use crate::error::HeapError;

/// Phase of a heap on one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HeapPhase {
    /// The other members join, each over a stream of its own.
    #[default]
    Joining,
    /// A thread waits for the last members and maps the views.
    Starting,
    /// Kernels may run.
    Started,
    /// A thread makes the heap usable again after an abort.
    Resetting,
    /// The owner has dropped the heap.
    Closing,
}

/// Reason why a step is not possible in the present phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseRefusal {
    NotStarted,
    StartedAlready,
    /// Another thread starts or resets the heap.
    Changing,
    /// Launches are in flight.
    Busy,
}

impl From<PhaseRefusal> for HeapError {
    fn from(refusal: PhaseRefusal) -> Self {
        match refusal {
            PhaseRefusal::NotStarted => Self::NotStarted,
            PhaseRefusal::StartedAlready => Self::StartedAlready,
            PhaseRefusal::Changing => Self::Changing,
            PhaseRefusal::Busy => Self::Busy,
        }
    }
}

/// Phase and launches of a heap on one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lifecycle {
    phase: HeapPhase,
    /// Number of launches in flight.
    launches: usize,
}

impl Lifecycle {
    pub fn phase(&self) -> HeapPhase {
        self.phase
    }

    pub fn launches(&self) -> usize {
        self.launches
    }

    /// Checks that another member may join.
    ///
    /// # Errors
    /// [`PhaseRefusal::StartedAlready`].
    pub fn check_join(&self) -> Result<(), PhaseRefusal> {
        match self.phase {
            HeapPhase::Joining | HeapPhase::Starting => Ok(()),
            _ => Err(PhaseRefusal::StartedAlready),
        }
    }

    /// Checks that views and paths are known.
    ///
    /// # Errors
    /// [`PhaseRefusal::NotStarted`].
    pub fn check_started(&self) -> Result<(), PhaseRefusal> {
        match self.phase {
            HeapPhase::Joining | HeapPhase::Starting => Err(PhaseRefusal::NotStarted),
            _ => Ok(()),
        }
    }

    /// Begins the start. The caller must call [`Lifecycle::end_start`] afterwards.
    ///
    /// # Errors
    /// Another thread starts or resets the heap, or the heap has started.
    pub fn begin_start(&mut self) -> Result<(), PhaseRefusal> {
        match self.phase {
            HeapPhase::Joining => self.phase = HeapPhase::Starting,
            HeapPhase::Starting => return Err(PhaseRefusal::Changing),
            _ => return Err(PhaseRefusal::StartedAlready),
        }
        Ok(())
    }

    /// Ends the start. After a failure the heap can be started again.
    pub fn end_start(&mut self, is_started: bool) {
        if self.phase == HeapPhase::Starting {
            self.phase = if is_started { HeapPhase::Started } else { HeapPhase::Joining };
        }
    }

    /// Begins a reset. The caller must call [`Lifecycle::end_reset`] afterwards.
    ///
    /// # Errors
    /// The heap has not started, or another thread resets it.
    pub fn begin_reset(&mut self) -> Result<(), PhaseRefusal> {
        match self.phase {
            HeapPhase::Joining | HeapPhase::Starting => return Err(PhaseRefusal::NotStarted),
            HeapPhase::Resetting | HeapPhase::Closing => return Err(PhaseRefusal::Changing),
            HeapPhase::Started => self.phase = HeapPhase::Resetting,
        }
        Ok(())
    }

    /// Checks that a reset that has begun may take effect now.
    ///
    /// # Errors
    /// [`PhaseRefusal::Busy`] while launches are in flight.
    pub fn check_reset(&self) -> Result<(), PhaseRefusal> {
        if self.phase == HeapPhase::Resetting && self.launches == 0 {
            Ok(())
        } else {
            Err(PhaseRefusal::Busy)
        }
    }

    pub fn end_reset(&mut self) {
        if self.phase == HeapPhase::Resetting {
            self.phase = HeapPhase::Started;
        }
    }

    /// Counts a launch. Returns whether it is the only one in flight.
    pub fn launch(&mut self) -> bool {
        self.launches += 1;
        self.launches == 1
    }

    /// Counts the end of a launch. Returns whether none is left in flight.
    pub fn land(&mut self) -> bool {
        self.launches = self.launches.saturating_sub(1);
        self.launches == 0
    }

    pub fn close(&mut self) {
        self.phase = HeapPhase::Closing;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// A heap and the threads that change it.
    #[derive(Clone, Default, PartialEq, Eq, Hash)]
    struct World {
        heap: Lifecycle,
        /// Number of threads that may start the heap.
        starters: u8,
        /// Number of threads that may reset the heap.
        resetters: u8,
        was_started: bool,
        is_closed: bool,
    }

    /// Largest number of launches in flight in the search.
    const LAUNCHES_MAX: usize = 2;

    impl World {
        fn after(&self, change: impl FnOnce(&mut Self)) -> Self {
            let mut next = self.clone();
            change(&mut next);
            next
        }

        /// Returns all worlds that one step of any thread leads to.
        fn next(&self) -> Vec<Self> {
            let mut worlds = vec![
                self.after(|it| it.starters += u8::from(it.heap.begin_start().is_ok())),
                self.after(|it| it.resetters += u8::from(it.heap.begin_reset().is_ok())),
                self.after(|it| {
                    it.heap.close();
                    it.is_closed = true;
                }),
            ];
            for is_started in [false, true] {
                if self.starters > 0 {
                    worlds.push(self.after(|it| {
                        it.starters -= 1;
                        it.was_started |= is_started;
                        it.heap.end_start(is_started);
                    }));
                }
            }
            if self.resetters > 0 {
                worlds.push(self.after(|it| {
                    it.resetters -= 1;
                    it.heap.end_reset();
                }));
            }
            if self.heap.launches() < LAUNCHES_MAX {
                worlds.push(self.after(|it| _ = it.heap.launch()));
            }
            if self.heap.launches() > 0 {
                worlds.push(self.after(|it| _ = it.heap.land()));
            }
            worlds
        }

        fn check(&self) {
            assert!(self.starters + self.resetters <= 1, "one thread at a time changes the heap");
            if self.heap.check_reset().is_ok() {
                assert_eq!((self.heap.launches(), self.resetters), (0, 1));
            }
            if self.is_closed {
                assert_eq!(self.heap.phase(), HeapPhase::Closing, "a closed heap stays closed");
            } else {
                assert_eq!(self.heap.check_started().is_ok(), self.was_started);
                assert_eq!(self.heap.check_join().is_ok(), !self.was_started);
            }
        }
    }

    #[test]
    fn in_every_order_of_steps_one_thread_changes_the_heap_and_none_resets_it_under_a_launch() {
        let (mut found, mut left) = (HashSet::new(), vec![World::default()]);
        while let Some(world) = left.pop() {
            world.check();
            if found.insert(world.clone()) {
                left.extend(world.next());
            }
        }
        let phases: HashSet<_> = found.iter().map(|world| world.heap.phase()).collect();
        assert_eq!(phases.len(), 5, "the search visits every phase");
    }

    #[test]
    fn a_start_that_failed_can_be_repeated_and_a_start_that_succeeded_can_not() {
        let mut heap = Lifecycle::default();
        heap.begin_start().unwrap();
        assert_eq!(heap.begin_start(), Err(PhaseRefusal::Changing));
        heap.end_start(false);
        heap.begin_start().unwrap();
        heap.end_start(true);
        assert_eq!(heap.begin_start(), Err(PhaseRefusal::StartedAlready));
    }

    #[test]
    fn a_reset_waits_for_launches_and_excludes_another_reset() {
        let mut heap = Lifecycle::default();
        assert_eq!(heap.begin_reset(), Err(PhaseRefusal::NotStarted));
        heap.begin_start().unwrap();
        heap.end_start(true);
        assert!(heap.launch());
        assert!(!heap.launch());
        heap.begin_reset().unwrap();
        assert_eq!(heap.begin_reset(), Err(PhaseRefusal::Changing));
        assert!(!heap.land());
        assert_eq!(heap.check_reset(), Err(PhaseRefusal::Busy));
        assert!(heap.land());
        heap.check_reset().unwrap();
        heap.end_reset();
        assert_eq!(heap.phase(), HeapPhase::Started);
    }
}
