//! The clients in line that get no worker, and what workers must know of their limits.

use std::time::Instant;

use penstock_link::Accepted;
use penstock_quota::Refusal;

use super::Workers;
use crate::quota::NewTerms;

impl Workers {
    /// Returns the clients in line if no worker will ever serve them.
    pub(crate) fn give_up_line(&mut self) -> Vec<Accepted> {
        if self.is_hopeless() { self.empty_line() } else { Vec::new() }
    }

    /// Returns the clients in line if an administrator drains the daemon.
    pub(crate) fn give_up_drained(&mut self) -> Vec<Accepted> {
        if self.draining { self.empty_line() } else { Vec::new() }
    }

    fn empty_line(&mut self) -> Vec<Accepted> {
        std::iter::from_fn(|| self.line.next()).map(|waiting| waiting.client).collect()
    }

    /// Returns the clients in line that have waited long enough for a session of their user to end.
    pub(crate) fn refuse_overdue(&mut self, now: Instant) -> Vec<(Accepted, Refusal)> {
        self.quota.refuse_overdue(&mut self.line, now)
    }

    /// Returns the workers whose limits have changed.
    pub(crate) fn new_terms(&mut self) -> Vec<NewTerms> {
        let changes = self.quota.changes().into_iter();
        let control = |id| Some(self.table.get(&id)?.control.clone());
        changes.filter_map(|(id, terms)| Some((control(id)?, terms))).collect()
    }

    /// If it is time, tells clients in line that the daemon lives. Returns how many had left.
    pub(crate) fn note_line(&mut self, now: Instant) -> usize {
        self.line.note(now, |it, ahead| it.client.tell_in_line(ahead).is_ok()).len()
    }
}
