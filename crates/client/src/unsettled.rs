//! Blocking writes that their queue has not come to yet.
//!
//! A blocking write returns when its bytes are taken, which OpenCL allows, and the client waits for nothing. But drivers return when the
//! bytes are in the buffer, so programs use them from other queues without an event. Here those queues' commands wait instead of the program.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use penstock_wire::Id;
use penstock_wire::id::kind;

use crate::event::Event;
use crate::queue::Queue;

/// Those of one context.
#[derive(Default)]
pub(crate) struct Unsettled {
    /// Queues of the context: with one, in order, there is nobody to wait. (A queue that is made while the only other one has such writes under way is
    /// not held back by them.)
    queues: AtomicUsize,
    /// Length of the list.
    count: AtomicUsize,
    writes: Mutex<Vec<(Id<kind::Queue>, Event)>>,
}

impl Unsettled {
    /// A queue was made.
    pub(crate) fn join(&self) {
        self.queues.fetch_add(1, Ordering::AcqRel);
    }

    /// A queue is gone.
    pub(crate) fn leave(&self) {
        self.queues.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether there are commands that do not follow a write of this queue anyway.
    pub(crate) fn concerns_others(&self, in_order: bool) -> bool {
        !in_order || self.queues.load(Ordering::Acquire) > 1
    }

    /// A blocking write of `queue` has returned, and ends with `event`. In order it stands for those before it.
    pub(crate) fn note(&self, queue: Id<kind::Queue>, in_order: bool, event: &Event) {
        self.change(|writes| {
            writes.retain(|(of, _)| !(in_order && *of == queue));
            writes.push((queue, event.clone()));
        });
    }

    /// What a command of `queue` has to wait for.
    pub(crate) fn before(&self, queue: Id<kind::Queue>, in_order: bool) -> Vec<Event> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        self.change(|writes| {
            let others = writes.iter().filter(|(of, _)| !(in_order && *of == queue));
            others.map(|(_, event)| event.clone()).collect()
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<(Id<kind::Queue>, Event)>) -> T) -> T {
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.retain(|(_, event)| event.known_status().is_none());
        let changed = change(&mut writes);
        self.count.store(writes.len(), Ordering::Release);
        changed
    }
}

impl Queue {
    /// What the command of this event does counts as done, as after a blocking write: later commands of the context's other queues, and of an
    /// out-of-order one, wait for it.
    pub fn settle(&self, event: &Event) {
        if self.concerns_others() && event.known_status().is_none() {
            self.context().unsettled().note(self.id(), self.is_in_order(), event);
        }
    }

    /// Whether commands of the context may not follow those of this queue anyway.
    pub(crate) fn concerns_others(&self) -> bool {
        self.context().unsettled().concerns_others(self.is_in_order())
    }

    /// Blocking writes that a command has to wait for.
    pub(crate) fn unsettled(&self) -> Vec<Event> {
        self.context().unsettled().before(self.id(), self.is_in_order())
    }
}
