//! What is under way between this rank and others.

use crate::command::Rank;
use crate::transport::Token;

/// The kind of a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A message of the runtime.
    Message = 0,
    /// A sign of life.
    Beat = 1,
    /// The first message between neighbours, a [`Greeting`].
    Greeting = 2,
    /// A rank (4 bytes, little-endian) is lost, and why. To the lost rank itself it says that the
    /// others treat it as lost.
    Lost = 3,
}

impl Kind {
    pub(super) fn of(byte: u8) -> Option<Self> {
        [Self::Message, Self::Beat, Self::Greeting, Self::Lost]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

#[derive(Debug)]
pub(super) enum Operation {
    /// A control message under way. Its bytes stay here.
    Message {
        to: Rank,
        bytes: Vec<u8>,
    },
    /// A control message that is being received.
    Arriving {
        from: Rank,
    },
    Send {
        to: Rank,
        token: Token,
    },
    Receive {
        from: Rank,
        token: Token,
    },
    /// The barrier at the end.
    Finish,
    /// An operation with a lost rank, which nobody waits for. MPI may still use these bytes.
    Orphan {
        _bytes: Vec<u8>,
    },
}

#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) id: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) is_there: bool,
}
