//! Errors of heaps.

use std::io;

use penstock_link::LinkError;

/// Reason why a heap could not be made, joined, started or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// The plan exceeds a limit.
    #[error("a heap has {what} from {min} to {max}, not {given}")]
    Limit {
        /// Quantity that is limited.
        what: &'static str,
        given: u64,
        min: u64,
        max: u64,
    },
    /// This process is a member without a PE.
    #[error("member {me} holds no PE of the heap")]
    NoOwnPe { me: u32 },
    /// The heap has no such PE.
    #[error("the heap has PEs 0 to {last}, no PE {pe}", last = count - 1)]
    NoSuchPe {
        pe: u32,
        /// Number of PEs of the heap.
        count: u32,
    },
    /// The PE belongs to another member.
    #[error("PE {pe} belongs to member {member}, not to this process")]
    ForeignPe {
        pe: u32,
        /// Member that holds the PE.
        member: u32,
    },
    /// The heap has no such other member.
    #[error("the heap has no other member {member}")]
    NoSuchMember { member: u32 },
    /// The member has joined or is joining.
    #[error("member {member} has joined the heap already")]
    JoinedTwice { member: u32 },
    /// The range exceeds a PE's part.
    #[error("bytes {offset} to {offset}+{length} do not lie within a part of {bytes} bytes")]
    Range {
        /// Start of the range in bytes.
        offset: u64,
        length: u64,
        /// Size of the part in bytes.
        bytes: u64,
    },
    #[error("the heap has not started yet")]
    NotStarted,
    #[error("the heap has started already")]
    StartedAlready,
    /// Another thread starts or resets the heap.
    #[error("the heap is being started or reset at this moment")]
    Changing,
    /// Members did not join in time.
    #[error("member {first} and {more} more did not join the heap in time")]
    Missing {
        /// One of the missing members.
        first: u32,
        /// Number of other missing members.
        more: usize,
    },
    /// A member refused this one, or this one refused the member.
    #[error("member {member} and this one do not agree: {refusal}")]
    Refused { member: u32, refusal: Refusal },
    /// Kernels of the heap still run, or their bytes are still under way.
    #[error("kernels of the heap still run, or what they sent is still on its way")]
    Busy,
    /// The heap was aborted for good: a member has gone.
    #[error("the heap can not be used any more: {reason}")]
    Ended { reason: String },
    /// The connection to a member failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// Operation that was attempted.
        doing: &'static str,
        source: io::Error,
    },
}

impl HeapError {
    /// Returns a function for `map_err` that adds what was attempted.
    pub(crate) fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { doing, source: error.into() }
    }
}

/// Reason why two members do not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The bytes do not belong to this handshake.
    #[error("the other end does not speak the protocol of heaps")]
    NotGgas,
    /// The layout of the heap differs.
    #[error("they have different versions; install the same release on all nodes")]
    Version,
    /// The plans differ in PEs, bytes or options.
    #[error("they were given different plans of the heap")]
    Plan,
    /// Another member than the expected one.
    #[error("another member than expected is at the other end")]
    Member,
    /// The memory that was sent differs from the plan.
    #[error("the offered memory differs from the plan")]
    Memory,
    /// This version does not know the reason.
    #[error("for a reason that this version does not know")]
    Unknown,
}
