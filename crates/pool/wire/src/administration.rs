//! What an administrator's tool orders a daemon to do, and what the daemon answers.
//!
//! The tool opens a link with [`Role::Administration`](crate::hello::Role::Administration). The
//! daemon welcomes only its own user and root, as the kernel names them on a Unix socket. After the
//! hello the tool sends an [`Order`], and the daemon answers with an [`Answer`]. Both have fixed
//! sizes, so that they need no parser.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a daemon shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// End the session of this worker, which its process id names.
    Kill(u32),
    /// Take no new clients.
    Drain,
    /// Take new clients again.
    Undrain,
}

/// An [`Act`] on the wire.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Order {
    act: U16,
    /// Process id of a worker, or zero.
    worker: U32,
}

impl Order {
    #[must_use]
    pub fn of(act: Act) -> Self {
        let (act, worker) = match act {
            Act::Kill(worker) => (1, worker),
            Act::Drain => (2, 0),
            Act::Undrain => (3, 0),
        };
        Self { act: U16::new(act), worker: U32::new(worker) }
    }

    /// Returns the act, or `None` if this release knows no such act.
    #[must_use]
    pub fn act(&self) -> Option<Act> {
        Some(match self.act.get() {
            1 => Act::Kill(self.worker.get()),
            2 => Act::Drain,
            3 => Act::Undrain,
            _ => return None,
        })
    }
}

/// What came of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Outcome {
    Done = 0,
    /// No worker with this process id serves a client.
    NoSession = 1,
    /// The daemon's release knows no such act.
    UnknownAct = 2,
}

/// An [`Outcome`] on the wire.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Answer {
    outcome: U16,
}

impl Answer {
    #[must_use]
    pub fn of(outcome: Outcome) -> Self {
        Self { outcome: U16::new(outcome as u16) }
    }

    /// Returns the outcome, or `None` if this release knows no such outcome.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        Some(match self.outcome.get() {
            0 => Outcome::Done,
            1 => Outcome::NoSession,
            2 => Outcome::UnknownAct,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_outcomes_survive_a_round_trip() {
        for act in [Act::Kill(70_000), Act::Drain, Act::Undrain] {
            let order = Order::of(act);
            assert_eq!(Order::read_from_bytes(order.as_bytes()).unwrap().act(), Some(act));
        }
        assert_eq!(Order::of(Act::Kill(70_000)).as_bytes(), [1, 0, 0x70, 0x11, 1, 0]);
        for outcome in [Outcome::Done, Outcome::NoSession, Outcome::UnknownAct] {
            let answer = Answer::of(outcome);
            assert_eq!(
                Answer::read_from_bytes(answer.as_bytes()).unwrap().outcome(),
                Some(outcome)
            );
        }
        assert_eq!(Order::read_from_bytes(&[0; 6]).unwrap().act(), None);
        assert_eq!(Order::read_from_bytes(&[4, 0, 1, 0, 0, 0]).unwrap().act(), None);
        assert_eq!(Answer::read_from_bytes(&[3, 0]).unwrap().outcome(), None);
    }
}
