//! The calls that workers send, to their client and to each other.

#[allow(unused_imports, reason = "the generated modules take what they need from here")]
use super::*;

calls! {
    /// Calls of a worker to its client.
    mod to_client / ServeWorker;

    /// The answer to a [`Request`]. Payload: the request's `Reply` if the status is a success (for
    /// a build, in any case).
    0x8000 Reply [PayloadRule::UpTo(limits::REPLY_BYTES_MAX)] {
        request: Id<kind::Request>,
        status: I32,
    }
    /// A command with an event has ended. In an in-order queue ends come in the order of the
    /// commands. In any queue the end of a marker or barrier without a wait list comes after the
    /// ends of all earlier commands. Exceptions are commands that were refused, or that never
    /// started because their wait list failed: their ends may come at once. Times are those of the
    /// device's clock in ns, or 0 if the queue does not tell them (`CreateQueue`).
    0x8001 EventDone [PayloadRule::None] {
        event: Id<kind::Event>,
        /// 0, or the failure's status.
        status: I32,
        queued: U64,
        submitted: U64,
        started: U64,
        ended: U64,
        /// Time of `CL_PROFILING_COMMAND_COMPLETE`, in ns.
        completed: U64,
    }
    /// Bytes that a read brought. Payload: the bytes; `offset` is relative to the range of the
    /// read.
    0x8002 ReadData [PayloadRule::Stream] { event: Id<kind::Event>, offset: U64 }
    /// Text that kernels printed. Payload: its bytes.
    0x8003 Output [PayloadRule::UpTo(limits::OUTPUT_BYTES_MAX)] {}
    /// An error that the driver reported through the context (`pfn_notify`). Payload: the text. If
    /// the context is none, the text is for the person who runs the program: a limit was reached.
    0x8004 ContextError [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] { context: Id<kind::Context> }
    /// The last frame of a worker that ends the session. Payload: the reason, a text.
    0x8005 Fault [PayloadRule::UpTo(limits::SMALL_BYTES_MAX)] { status: I32 }
    /// Neither the worker nor a device will touch the memory of this
    /// [`to_worker::CreateSharedBuffer`] again.
    0x8006 MemGone [PayloadRule::None] { mem: Id<kind::Mem> }
    /// The link to another worker has ended, although that worker may still live. What was awaited
    /// from it has failed, and from now on the client relays between the two.
    0x8007 PeerLost [PayloadRule::None] { peer: Id<kind::Peer> }
    /// The device has refused a command without an event, the first since the worker last told a
    /// failure of this queue. The worker sends this before the end of the queue's next command that
    /// has an event, so that a thread that waits for that end knows of the failure. A
    /// [`to_worker::Finish`] tells such a failure by its own status instead.
    0x8008 QueueFailed [PayloadRule::None] { queue: Id<kind::Queue>, status: I32 }
    /// A sign of life, without any meaning beyond that. Only with
    /// [`BEATS`](crate::hello::feature::BEATS).
    0x8009 Beat [PayloadRule::None] {}
}

calls! {
    /// Calls between workers of one client.
    mod to_peer / ServePeer;

    /// An event of the sending worker has ended.
    0x9000 PeerEvent [PayloadRule::None] { event: Id<kind::Event>, status: I32 }
    /// The content for a [`to_worker::ReceiveMem`]. If the sender could not obtain it, the status
    /// is an error and the payload is empty.
    0x9001 TransferData [PayloadRule::Stream] { transfer: Id<kind::Transfer>, status: I32 }
    /// A sign of life, as [`to_client::Beat`].
    0x9002 Beat [PayloadRule::None] {}
}

calls! {
    /// Calls of a worker to the worker of another client that has granted it memory.
    mod to_host / ServeHost;

    /// Claims a [`to_worker::GrantMem`] for `size` bytes. Answered by [`to_guest::ClaimAnswered`].
    0xa000 Claim [PayloadRule::None] { transfer: Id<kind::Transfer>, size: U64 }
    /// The bytes of a claimed grant. If the sender could not obtain them, the status is an error
    /// and the payload is empty.
    0xa001 GrantData [PayloadRule::Stream] { transfer: Id<kind::Transfer>, status: I32 }
    /// A sign of life, as [`to_client::Beat`].
    0xa002 Beat [PayloadRule::None] {}
}

calls! {
    /// Calls of a worker to the worker of another client that claims its grants.
    mod to_guest / ServeGuest;

    /// The answer to a [`to_host::Claim`]. After a success, the claiming worker sends the bytes.
    0xb000 ClaimAnswered [PayloadRule::None] { transfer: Id<kind::Transfer>, status: I32 }
    /// A sign of life, as [`to_client::Beat`].
    0xb001 Beat [PayloadRule::None] {}
}
