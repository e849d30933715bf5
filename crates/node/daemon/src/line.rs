//! The clients that wait for a worker, in the order in which they came: a state machine without
//! I/O, threads or clocks.
//!
//! The line is fair: it only gives its first client away, and clients only join at its end. It is
//! bounded by [`CLIENTS_IN_LINE_MAX`]. It also says when to tell the clients that the daemon lives
//! ([`LINE_NOTE_MS`]).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use penstock_wire::limits::{CLIENTS_IN_LINE_MAX, LINE_NOTE_MS};

const NOTE_EVERY: Duration = Duration::from_millis(LINE_NOTE_MS);

/// Clients in line, oldest first; `C` is the caller's type of client.
#[derive(Debug)]
pub(crate) struct Line<C> {
    waiting: VecDeque<C>,
    /// When all clients are next told that the daemon lives. Each learns its place when it joins.
    note_at: Option<Instant>,
}

impl<C> Default for Line<C> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), note_at: None }
    }
}

impl<C> Line<C> {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= CLIENTS_IN_LINE_MAX
    }

    /// Adds a client at the end.
    ///
    /// # Errors
    /// Returns the client if the line is full.
    pub(crate) fn join(&mut self, client: C, now: Instant) -> Result<(), C> {
        if self.is_full() {
            return Err(client);
        }
        self.waiting.push_back(client);
        self.note_at.get_or_insert(now + NOTE_EVERY);
        Ok(())
    }

    /// Removes the first client.
    pub(crate) fn next(&mut self) -> Option<C> {
        let next = self.waiting.pop_front();
        if self.waiting.is_empty() {
            self.note_at = None;
        }
        next
    }

    /// Removes the first client for which `fits` returns true.
    pub(crate) fn next_that(&mut self, fits: impl FnMut(&C) -> bool) -> Option<C> {
        let at = self.waiting.iter().position(fits)?;
        let next = self.waiting.remove(at);
        if self.waiting.is_empty() {
            self.note_at = None;
        }
        next
    }

    /// Returns the clients in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &C> {
        self.waiting.iter()
    }

    /// Returns the clients in their order, to change what is known of them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut C> {
        self.waiting.iter_mut()
    }

    /// Returns when the clients must be told something even if nothing happens.
    pub(crate) fn next_note(&self) -> Option<Instant> {
        self.note_at
    }

    /// Calls `tell` for each client, with the number of clients before it, if `now` has reached
    /// [`Line::next_note`]. Removes and returns the clients for which `tell` returned false: they
    /// have gone.
    pub(crate) fn note(&mut self, now: Instant, mut tell: impl FnMut(&C, u32) -> bool) -> Vec<C> {
        if self.note_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let mut gone = Vec::new();
        let mut staying = VecDeque::with_capacity(self.waiting.len());
        for client in self.waiting.drain(..) {
            let ahead = u32::try_from(staying.len()).unwrap_or(u32::MAX);
            if tell(&client, ahead) {
                staying.push_back(client);
            } else {
                gone.push(client);
            }
        }
        self.note_at = (!staying.is_empty()).then_some(now + NOTE_EVERY);
        self.waiting = staying;
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(clients: std::ops::Range<usize>) -> (Line<usize>, Instant) {
        let (mut line, now) = (Line::default(), Instant::now());
        for client in clients {
            line.join(client, now).unwrap();
        }
        (line, now)
    }

    #[test]
    fn who_comes_first_is_served_first() {
        let (mut line, now) = line(0..5);
        assert_eq!((line.next(), line.next()), (Some(0), Some(1)));
        line.join(5, now).unwrap();
        assert_eq!(std::iter::from_fn(|| line.next()).collect::<Vec<_>>(), [2, 3, 4, 5]);
        assert!(line.is_empty() && line.next_note().is_none());
    }

    #[test]
    fn who_cannot_be_served_is_passed() {
        let (mut line, _) = line(0..4);
        assert_eq!(line.next_that(|client| *client >= 2), Some(2));
        assert_eq!(line.next_that(|client| *client > 7), None);
        assert_eq!(std::iter::from_fn(|| line.next()).collect::<Vec<_>>(), [0, 1, 3]);
        assert_eq!(line.next_note(), None);
    }

    #[test]
    fn the_line_is_bounded_and_open_again_when_one_has_left() {
        let (mut line, now) = line(0..CLIENTS_IN_LINE_MAX);
        assert!(line.is_full());
        assert_eq!(line.join(9_999, now), Err(9_999));
        line.next();
        assert_eq!(line.join(9_999, now), Ok(()));
        assert_eq!(line.len(), CLIENTS_IN_LINE_MAX);
    }

    #[test]
    fn all_are_told_their_place_in_a_rhythm() {
        let (mut line, now) = line(0..3);
        let told = |line: &mut Line<usize>, at| {
            let mut told = Vec::new();
            line.note(at, |client, ahead| {
                told.push((*client, ahead));
                true
            });
            told
        };
        assert_eq!(told(&mut line, now), []);
        assert_eq!(line.next_note(), Some(now + NOTE_EVERY));
        assert_eq!(told(&mut line, now + NOTE_EVERY), [(0, 0), (1, 1), (2, 2)]);
        line.next();
        assert_eq!(told(&mut line, now + NOTE_EVERY), []);
        assert_eq!(told(&mut line, now + 2 * NOTE_EVERY), [(1, 0), (2, 1)]);
    }

    #[test]
    fn who_has_died_leaves_and_the_others_move_up() {
        let (mut line, now) = line(0..6);
        let mut told = Vec::new();
        let gone = line.note(now + NOTE_EVERY, |client, ahead| {
            let lives = client % 2 == 1;
            if lives {
                told.push((*client, ahead));
            }
            lives
        });
        assert_eq!((gone, told), (vec![0, 2, 4], vec![(1, 0), (3, 1), (5, 2)]));
        assert_eq!(line.note(now + 2 * NOTE_EVERY, |_, _| false), [1, 3, 5]);
        assert_eq!(line.next_note(), None);
    }
}
