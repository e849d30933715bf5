//! What the machine is told and what it answers.

use crate::host::HostShape;
use crate::names::{AllocationId, CommandId, ContextId, Place, QueueId};

/// How a command uses bytes of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The command only reads.
    Read,
    /// The command may write some of the bytes.
    Write,
    /// The command writes all of the bytes and reads none.
    Overwrite,
}

/// Bytes of an allocation that a command uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The allocation.
    pub allocation: AllocationId,
    /// First byte.
    pub start: u64,
    /// The byte behind the last one.
    pub end: u64,
    /// How the command uses them.
    pub access: Access,
}

/// A command that the program enqueues.
#[derive(Clone, Copy, Debug)]
pub struct Submit<'a> {
    /// Its name, which is that of its event.
    pub id: CommandId,
    /// Its queue.
    pub queue: QueueId,
    /// Whether the commands of the queue run in order.
    pub in_order: bool,
    /// The queue's context.
    pub context: ContextId,
    /// The place of the queue's device.
    pub place: Place,
    /// The events of its wait list that are not known to have ended well.
    pub waits: &'a [CommandId],
    /// Given for a marker or barrier.
    pub sync: Option<Sync>,
    /// What it uses of memory that spans places. A driver keeps the memory of a single place coherent, so commands of
    /// such a context name nothing here.
    pub uses: &'a [Use],
    /// The program's memory that it reads when it is sent.
    pub reads_host: Option<HostShape>,
    /// The program's memory that it writes until it has ended.
    pub writes_host: Option<HostShape>,
    /// A client event that what comes behind the command in its queue waits for: the client runs something itself when
    /// the command has ended, and sets the event after that.
    pub gate: Option<CommandId>,
}

/// A marker or a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// It has a wait list. Without one it waits for all commands before it.
    pub is_listed: bool,
    /// Later commands of the queue wait for it.
    pub is_barrier: bool,
}

/// What becomes of a command that was submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The caller sends it now, and says [`Machine::sent`](crate::Machine::sent) afterwards if `is_tracked`; then it also tells the end.
    Send {
        /// What goes with it.
        plan: Plan,
        /// Whether the machine has to hear of it again.
        is_tracked: bool,
    },
    /// The caller keeps it until an [`Action`] names it. It waits for the ends of `until_ended`, which were sent, so
    /// the caller has to go on receiving.
    Hold {
        /// Commands whose ends it waits for.
        until_ended: Vec<CommandId>,
    },
    /// Content that it needs went with a node that is lost.
    ContentLost,
}

/// What goes with a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Transfers to start before it is sent, in this order.
    pub fetches: Vec<Fetch>,
    /// What it waits for at its worker beside its wait list. It fails if one of them fails.
    pub waits: Vec<CommandId>,
    /// What it waits for at its worker, however that ends.
    pub ends: Vec<CommandId>,
    /// Commands that happen before it and have still to write the program's memory. Their bytes may come by another
    /// link than its own end. So its end is not told to the program before these have ended, and a blocking write
    /// returns before it has ended only if there are none.
    pub behind: Vec<CommandId>,
    /// Whether commands that happen before it, also in its own queue, have still to write the program's memory. Then a
    /// blocking write returns when it has ended, and not before.
    pub is_behind_writers: bool,
}

/// A transfer of bytes of an allocation from one place to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The allocation.
    pub allocation: AllocationId,
    /// First byte.
    pub start: u64,
    /// The byte behind the last one.
    pub end: u64,
    /// Where the bytes come from.
    pub source: Source,
    /// Where they go.
    pub target: Place,
    /// Ends when the source may change again.
    pub departure: CommandId,
    /// Ends when the bytes have arrived. Without a meaning for initial content, which the link itself keeps in order.
    pub arrival: CommandId,
    /// What must have ended before the bytes leave, however it ends.
    pub source_waits: Vec<CommandId>,
    /// What must have ended before the bytes are stored, however it ends.
    pub target_waits: Vec<CommandId>,
}

/// Where the bytes of a transfer come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From the copy of another place.
    Place(Place),
    /// From what the program gave when it made the allocation.
    Initial,
}

/// What becomes of a command that was held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The caller sends it, says [`Machine::sent`](crate::Machine::sent), and tells its end.
    Send(CommandId, Plan),
    /// It goes on being held until these have ended, which were sent: the caller has to go on receiving.
    Await(CommandId, Vec<CommandId>),
    /// It does not run, because an event of its wait list has failed. The caller ends its event.
    Fail(CommandId),
    /// Content that it needs is lost. The caller ends its event.
    ContentLost(CommandId),
}

/// A copy that the host could make itself, because it shares the memory with the device.
#[derive(Clone, Copy, Debug)]
pub struct InPlace {
    /// The queue of the command that the copy stands for.
    pub queue: QueueId,
    /// Whether that queue's commands run in order.
    pub in_order: bool,
    /// Its context.
    pub context: ContextId,
    /// Whether all commands that were sent in the queue have ended.
    pub is_idle: bool,
    /// Whether all events of the wait list have ended well, and the program may be told so.
    pub waits_ended: bool,
}
