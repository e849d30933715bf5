//! Who may say hello: a decision without I/O, threads or clocks.
//!
//! A daemon has a limited number of places for connections whose hello is incomplete. If all are
//! taken, one connection gives way to the new one. It is the oldest of the source that has the most
//! of them, so a source that floods the daemon takes places from itself:
//!
//! * A connection of another source keeps its place as long as it needs, because that source has
//!   fewer connections than the flood.
//! * Connections of the flooding source itself have equal time, which is the number of its places
//!   divided by its rate. So its honest clients still get in if their round trips are short enough.
//!   To refuse new ones at random, as OpenSSH does, would refuse most of these clients and help
//!   those with long round trips little: at 5,000 connections a second and 200 ms, the best
//!   probability lets one of 42 in.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use penstock_link::Source;

/// A connection whose hello is incomplete.
#[derive(Debug)]
struct Pending<T> {
    id: u64,
    source: Source,
    may_be_strange: bool,
    handle: T,
}

/// The connections whose hello is incomplete, the oldest first. `T` closes a connection.
#[derive(Debug)]
pub(crate) struct Admission<T> {
    places: usize,
    next: u64,
    pending: VecDeque<Pending<T>>,
    /// Number of pending connections of each source, and whether a stranger can have made them.
    sizes: HashMap<(bool, Source), usize>,
}

/// What happened to a connection that arrived.
#[derive(Debug)]
pub(crate) struct Admitted<T> {
    pub(crate) id: u64,
    /// Connection that gives way.
    pub(crate) gives_way: Option<T>,
}

impl<T> Admission<T> {
    pub(crate) fn new(places: usize) -> Self {
        Self { places, next: 0, pending: VecDeque::new(), sizes: HashMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns whether a connection must give way to the next one.
    pub(crate) fn is_full(&self) -> bool {
        self.pending.len() >= self.places
    }

    /// Gives a place to a connection. `may_be_strange` says whether a stranger can have made it.
    pub(crate) fn arrive(
        &mut self,
        source: Source,
        may_be_strange: bool,
        handle: T,
    ) -> Admitted<T> {
        let gives_way = if self.is_full() { self.give_way(&source) } else { None };
        let id = self.next;
        self.next += 1;
        *self.sizes.entry((may_be_strange, source.clone())).or_default() += 1;
        self.pending.push_back(Pending { id, source, may_be_strange, handle });
        Admitted { id, gives_way }
    }

    /// Removes a connection whose hello is complete or which is gone, if it still has its place.
    pub(crate) fn leave(&mut self, id: u64) {
        let index = self.index_of(id);
        _ = index.and_then(|index| self.remove(index));
    }

    fn index_of(&self, id: u64) -> Option<usize> {
        // Connections arrive at the end, in the order of their numbers.
        self.pending.binary_search_by_key(&id, |pending| pending.id).ok()
    }

    /// Returns the handle of a connection that still has its place.
    pub(crate) fn handle(&mut self, id: u64) -> Option<&mut T> {
        let index = self.index_of(id)?;
        self.pending.get_mut(index).map(|pending| &mut pending.handle)
    }

    /// Returns the connections, the oldest first.
    pub(crate) fn handles(&self) -> impl Iterator<Item = (u64, &T)> {
        self.pending.iter().map(|pending| (pending.id, &pending.handle))
    }

    /// Removes all connections.
    pub(crate) fn end(&mut self) -> impl Iterator<Item = T> + '_ {
        self.sizes.clear();
        self.pending.drain(..).map(|pending| pending.handle)
    }

    /// Removes the connection that gives way to one from `arriving`. Connections that a stranger
    /// can have made go first.
    fn give_way(&mut self, arriving: &Source) -> Option<T> {
        let strange = self.sizes.keys().any(|(may_be_strange, _)| *may_be_strange);
        // The arriving connection counts, too, so that its source does not grow beyond another one.
        let size = |(source, size): (&Source, &usize)| size + usize::from(source == arriving);
        let sources = self.sizes.iter().filter(|((is_strange, _), _)| *is_strange == strange);
        let most = sources.map(|((_, source), pending)| size((source, pending))).max()?;
        // The first of equals has been there for the longest time.
        let index = self.pending.iter().position(|pending| {
            let key = (pending.may_be_strange, pending.source.clone());
            pending.may_be_strange == strange
                && self.sizes.get(&key).is_some_and(|it| size((&pending.source, it)) == most)
        })?;
        self.remove(index)
    }

    fn remove(&mut self, index: usize) -> Option<T> {
        let Pending { source, may_be_strange, handle, .. } = self.pending.remove(index)?;
        if let Entry::Occupied(mut size) = self.sizes.entry((may_be_strange, source)) {
            *size.get_mut() -= 1;
            if *size.get() == 0 {
                size.remove();
            }
        }
        Some(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: usize = 256;

    fn host(last: u8) -> Source {
        Source::of_address([10, 0, 0, last].into())
    }

    /// A flood of `rate` connections a second from `flooding` and one connection from `honest`,
    /// whose hello takes `hello_ms`. Returns whether its hello gets complete.
    fn survives(flooding: &[Source], rate: u64, honest: Source, hello_ms: u64) -> bool {
        let mut admission = Admission::new(PLACES);
        let mut sources = flooding.iter().cycle();
        let mut flood = |admission: &mut Admission<bool>, connections: u64| {
            (0..connections).any(|_| {
                let source = sources.next().unwrap().clone();
                admission.arrive(source, true, false).gives_way == Some(true)
            })
        };
        flood(&mut admission, rate);
        assert_eq!(admission.arrive(honest, true, true).gives_way, Some(false));
        !flood(&mut admission, rate * hello_ms / 1_000)
    }

    #[test]
    fn a_flood_from_one_source_takes_no_place_from_another() {
        assert!(survives(&[host(1)], 5_000, host(2), 800));
        assert!(survives(&[host(1)], 50_000, host(2), 5_000));
        assert!(survives(&[host(1), host(3)], 50_000, host(2), 5_000));
    }

    #[test]
    fn clients_beside_a_flood_of_their_own_source_have_time_for_short_round_trips() {
        assert!(survives(&[host(1)], 5_000, host(1), 40));
        assert!(!survives(&[host(1)], 5_000, host(1), 800));
    }

    #[test]
    fn sources_of_the_same_size_give_way_in_the_order_of_their_age() {
        let mut admission = Admission::new(3);
        for last in 0..3 {
            assert_eq!(admission.arrive(host(last), true, last).gives_way, None);
        }
        assert_eq!(admission.arrive(host(7), true, 7).gives_way, Some(0));
        assert_eq!(admission.arrive(host(8), true, 8).gives_way, Some(1));
        // Two connections are more than one.
        assert_eq!(admission.arrive(host(8), true, 9).gives_way, Some(8));
    }

    #[test]
    fn connections_of_users_of_the_host_stay_while_there_are_strangers() {
        let mut admission = Admission::new(4);
        for number in 0..3 {
            assert_eq!(admission.arrive(Source::User(1), false, number).gives_way, None);
        }
        assert_eq!(admission.arrive(host(1), true, 3).gives_way, None);
        assert_eq!(admission.arrive(Source::User(2), false, 4).gives_way, Some(3));
        assert_eq!(admission.arrive(Source::User(3), false, 5).gives_way, Some(0));
    }

    #[test]
    fn a_place_is_free_after_its_connection_left() {
        let mut admission = Admission::new(2);
        let first = admission.arrive(host(1), true, 0).id;
        admission.arrive(host(1), true, 1);
        admission.leave(first);
        assert_eq!(admission.arrive(host(2), true, 2).gives_way, None);
        // One that left already changes nothing.
        admission.leave(first);
        assert_eq!(admission.end().collect::<Vec<_>>(), [1, 2]);
    }
}
