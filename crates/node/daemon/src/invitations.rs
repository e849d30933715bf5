//! The one-time keys that a daemon has given out: a state machine without I/O, threads or clocks.

use std::time::{Duration, Instant};

use penstock_link::Guest;
use penstock_wire::hello::TICKET_BYTES;
use penstock_wire::limits::{INVITATION_MS_MAX, INVITATIONS_MAX};

/// One-time keys that are neither used nor expired, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Invitations(Vec<Invited>);

#[derive(Debug)]
struct Invited {
    ticket: [u8; TICKET_BYTES],
    guest: Guest,
    until: Instant,
}

impl Invitations {
    /// Enters a key. Returns `false` if there are too many.
    pub(crate) fn invite(&mut self, guest: Guest, now: Instant) -> bool {
        self.expire(now);
        if self.0.len() >= INVITATIONS_MAX {
            return false;
        }
        let until = now + Duration::from_millis(INVITATION_MS_MAX);
        self.0.push(Invited { ticket: guest.ticket(), guest, until });
        true
    }

    /// Takes out the key with this name, if it is still good.
    pub(crate) fn redeem(&mut self, ticket: &[u8; TICKET_BYTES], now: Instant) -> Option<Guest> {
        self.expire(now);
        let at = self.0.iter().position(|invited| invited.ticket == *ticket)?;
        Some(self.0.remove(at).guest)
    }

    /// Forgets the keys that are not good any more.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.0.retain(|invited| now < invited.until);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns when the next key expires.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.0.iter().map(|invited| invited.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest() -> Guest {
        Guest::create(5).unwrap()
    }

    #[test]
    fn a_key_is_good_once() {
        let (now, mut invitations) = (Instant::now(), Invitations::default());
        let (one, other) = (guest(), guest());
        let (first, second) = (one.ticket(), other.ticket());
        assert!(invitations.invite(one, now) && invitations.invite(other, now));
        assert!(invitations.redeem(&[0; TICKET_BYTES], now).is_none());
        assert_eq!(invitations.redeem(&first, now).unwrap().ticket(), first);
        assert!(invitations.redeem(&first, now).is_none());
        assert!(!invitations.is_empty());
        assert_eq!(invitations.redeem(&second, now).unwrap().user, 5);
        assert!(invitations.is_empty() && invitations.next_look().is_none());
    }

    #[test]
    fn a_key_that_nobody_uses_expires() {
        let (start, mut invitations) = (Instant::now(), Invitations::default());
        let end = start + Duration::from_millis(INVITATION_MS_MAX);
        let (one, ticket) = (guest(), guest().ticket());
        let first = one.ticket();
        assert!(invitations.invite(one, start));
        assert_eq!(invitations.next_look(), Some(end));
        assert!(invitations.redeem(&ticket, end - Duration::from_millis(1)).is_none());
        assert!(invitations.redeem(&first, end).is_none());
        assert!(invitations.is_empty());
    }

    #[test]
    fn the_number_of_keys_has_a_limit_that_expired_ones_leave() {
        let (start, mut invitations) = (Instant::now(), Invitations::default());
        for _ in 0..INVITATIONS_MAX {
            assert!(invitations.invite(guest(), start));
        }
        assert!(!invitations.invite(guest(), start));
        let end = start + Duration::from_millis(INVITATION_MS_MAX);
        assert!(invitations.invite(guest(), end));
        invitations.expire(end);
        assert!(!invitations.is_empty());
    }
}
