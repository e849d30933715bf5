//! The inputs and outputs of the machine.

use crate::host::HostShape;
use crate::names::{AllocationId, CommandId, ContextId, Place, QueueId};

/// A command's access to bytes of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The command only reads.
    Read,
    /// The command may write some of the bytes.
    Write,
    /// The command writes all of the bytes and reads none.
    Overwrite,
}

/// A range of an allocation that a command uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    pub allocation: AllocationId,
    /// Offset of the first byte.
    pub start: u64,
    /// Offset behind the last byte.
    pub end: u64,
    pub access: Access,
}

/// A command that the program enqueues.
#[derive(Clone, Copy, Debug)]
pub struct Submit<'a> {
    /// Name of the command and of its event.
    pub id: CommandId,
    pub queue: QueueId,
    /// Whether the commands of the queue run in order.
    pub in_order: bool,
    pub context: ContextId,
    /// The place of the queue's device.
    pub place: Place,
    /// The events of the wait list that are not known to have ended well.
    pub waits: &'a [CommandId],
    /// Given for a marker or barrier.
    pub sync: Option<Sync>,
    /// Uses of memory that spans places. A driver keeps the memory of a single place coherent, so
    /// commands of such a context list nothing here.
    pub uses: &'a [Use],
    /// The program's memory that the command reads when it is sent.
    pub reads_host: Option<HostShape>,
    /// The program's memory that the command writes until it has ended.
    pub writes_host: Option<HostShape>,
    /// A client event that later commands of the queue wait for. The client does work of its own
    /// after the command has ended, and then sets the event.
    pub gate: Option<CommandId>,
}

/// A marker or a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// Whether the command has a wait list. Without one it waits for all earlier commands of the
    /// queue.
    pub is_listed: bool,
    /// Whether later commands of the queue wait for it.
    pub is_barrier: bool,
}

/// The verdict on a submitted command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The caller sends the command now. If `is_tracked`, it then calls
    /// [`Machine::sent`](crate::Machine::sent), and later tells the end.
    Send {
        plan: Plan,
        /// Whether the machine must hear that the command was sent and that it has ended.
        is_tracked: bool,
    },
    /// The caller keeps the command until an [`Action`] names it. The command waits for the ends of
    /// `until_ended`, which were sent, so the caller must go on receiving.
    Hold {
        /// Commands whose ends the command waits for.
        until_ended: Vec<CommandId>,
    },
    /// No place has content that the command needs: it was lost with a node, or did not come from
    /// it.
    ContentLost,
}

/// The transfers and waits that go with a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Transfers to start before the command is sent, in this order.
    pub fetches: Vec<Fetch>,
    /// What the command waits for at its worker beside its wait list. It fails if one of these
    /// fails.
    pub waits: Vec<CommandId>,
    /// Commands and transfers that the command waits for at its worker, whether they fail or not.
    pub ends: Vec<CommandId>,
    /// Commands that happen before this one and have still to write the program's memory, maybe
    /// over another link. This command's end is told to the program only after theirs. If there are
    /// none, a blocking write may return before its end.
    pub behind: Vec<CommandId>,
    /// Whether commands before this one, including those of its queue, have still to write the
    /// program's memory. If so, a blocking write returns at its end.
    pub is_behind_writers: bool,
}

/// A transfer of bytes of an allocation from one place to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    pub allocation: AllocationId,
    /// Offset of the first byte.
    pub start: u64,
    /// Offset behind the last byte.
    pub end: u64,
    /// Place or content from which the bytes come.
    pub source: Source,
    /// Place that receives the bytes.
    pub target: Place,
    /// Event that ends when the source may change again.
    pub departure: CommandId,
    /// Event that ends when the bytes have arrived. It has no meaning for initial content, which
    /// the link keeps in order.
    pub arrival: CommandId,
    /// Commands and transfers that must have ended, well or not, before the bytes leave.
    pub source_waits: Vec<CommandId>,
    /// Commands and transfers that must have ended, well or not, before the bytes are stored.
    pub target_waits: Vec<CommandId>,
}

/// The source of the bytes of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The copy of another place.
    Place(Place),
    /// The content that the program gave when it made the allocation.
    Initial,
}

/// The next step for a command that was held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The caller sends the command, calls [`Machine::sent`](crate::Machine::sent), and later tells
    /// the end.
    Send(CommandId, Plan),
    /// The command stays held until these have ended. They were sent, so the caller must go on
    /// receiving.
    Await(CommandId, Vec<CommandId>),
    /// An event of the command's wait list has failed. The caller ends the command's event and does
    /// not send the command.
    Fail(CommandId),
    /// Content that the command needs is lost. The caller ends the command's event.
    ContentLost(CommandId),
}

/// A copy that the host could make itself, because it shares memory with the device.
#[derive(Clone, Copy, Debug)]
pub struct InPlace {
    /// The queue of the command that the copy replaces.
    pub queue: QueueId,
    /// Whether the commands of that queue run in order.
    pub in_order: bool,
    /// Context of the queue.
    pub context: ContextId,
    /// Whether all commands that were sent in the queue have ended.
    pub is_idle: bool,
    /// Whether all events of the wait list have ended well and their ends may be told to the
    /// program.
    pub waits_ended: bool,
}
