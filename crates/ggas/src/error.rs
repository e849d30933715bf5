//! What can go wrong with a heap.

use std::io;

use penstock_link::LinkError;

/// Why a heap could not be made, joined, started or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// The plan asks for more than there can be.
    #[error("a heap has {what} from {min} to {max}, {given} is not among them")]
    Limit {
        /// What there is too much or too little of.
        what: &'static str,
        /// What was asked for.
        given: u64,
        /// The least there can be.
        min: u64,
        /// The most there can be.
        max: u64,
    },
    /// This process is a member without a PE.
    #[error("member {me} holds no PE of the heap")]
    NoOwnPe {
        /// This process.
        me: u32,
    },
    /// The heap has no such PE.
    #[error("the heap has PEs 0 to {last}, no PE {pe}", last = count - 1)]
    NoSuchPe {
        /// What was asked for.
        pe: u32,
        /// How many there are.
        count: u32,
    },
    /// The PE is another member's.
    #[error("PE {pe} belongs to member {member}, not to this process")]
    ForeignPe {
        /// What was asked for.
        pe: u32,
        /// Whose it is.
        member: u32,
    },
    /// The heap has no such other member.
    #[error("the heap has no other member {member}")]
    NoSuchMember {
        /// What was asked for.
        member: u32,
    },
    /// The member has joined, or is joining, already.
    #[error("member {member} has joined the heap already")]
    JoinedTwice {
        /// Who.
        member: u32,
    },
    /// Bytes beyond a PE's part.
    #[error("bytes {offset} to {offset}+{length} do not lie within a part of {bytes} bytes")]
    Range {
        /// Where they begin.
        offset: u64,
        /// How many they are.
        length: u64,
        /// How many there are.
        bytes: u64,
    },
    /// The heap has not started yet.
    #[error("the heap has not started yet")]
    NotStarted,
    /// The heap has started already.
    #[error("the heap has started already")]
    StartedAlready,
    /// Members that did not join in time.
    #[error("member {first} and {more} more did not join the heap in time")]
    Missing {
        /// One of them.
        first: u32,
        /// How many others.
        more: usize,
    },
    /// A member said no to this one, or this one to it.
    #[error("member {member} and this one do not agree: {refusal}")]
    Refused {
        /// The other member.
        member: u32,
        /// Why.
        refusal: Refusal,
    },
    /// Kernels of the heap still run, or what they have sent is still on its way.
    #[error("kernels of the heap still run, or what they sent is still on its way")]
    Busy,
    /// The heap has been aborted for good: a member has gone.
    #[error("the heap can not be used any more: {reason}")]
    Ended {
        /// What happened.
        reason: String,
    },
    /// The connection to a member failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The system refused something.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl HeapError {
    /// For `map_err`: what was tried when the system refused.
    pub(crate) fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { doing, source: error.into() }
    }
}

/// Why two members do not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The bytes are none of this handshake.
    #[error("the other end does not speak the protocol of heaps")]
    NotGgas,
    /// Another layout of the heap.
    #[error("they have different versions; install the same release on all nodes")]
    Version,
    /// Another plan: PEs, bytes or options differ.
    #[error("they were given different plans of the heap")]
    Plan,
    /// Another member than the one awaited.
    #[error("another member than expected is at the other end")]
    Member,
    /// What was sent is not the memory that the plan promises.
    #[error("the memory that was offered is not what the plan says")]
    Memory,
    /// A reason that this version does not know.
    #[error("for a reason that this version does not know")]
    Unknown,
}
