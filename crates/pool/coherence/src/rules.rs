//! The rules of the machine, each with a name.
//!
//! A build for users applies all of them. With the feature `planted` a test can switch one off, to
//! show that the checkers notice the defect that the rule prevents.

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A rule of the machine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Rule {
            $($(#[$doc])* $name,)*
        }

        impl Rule {
            /// All rules of the machine.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

rules! {
    /// A command whose wait list names a client event that is not set is held back.
    UnsetEventHolds,
    /// A failed client event fails the commands that name it.
    FailedEventFails,
    /// In an in-order queue, commands behind one that is held back are held back.
    BehindHeldInOrder,
    /// In an out-of-order queue, commands behind a barrier that is held back are held back.
    BehindHeldBarrier,
    /// A marker or barrier without a wait list waits for the commands that its out-of-order queue
    /// holds back.
    SyncWaitsForHeld,
    /// Commands behind work that the client does itself wait until the client has done it.
    ClientRunHolds,
    /// A command that reads the program's memory waits for commands that have still to write it.
    HostReadAfterWrite,
    /// A command that writes the program's memory waits for commands that have still to write it.
    HostWriteAfterWrite,
    /// Commands of two threads on one allocation are sent one after the other.
    OneSenderPerAllocation,
    /// A command gets the current content of the bytes that it reads.
    FetchWhatIsRead,
    /// A command that writes a part of a range gets the current content of the rest.
    FetchAroundPartialWrite,
    /// A write over all of a copy gets the old content if its wait list may still make it fail.
    FetchUnderDoubt,
    /// Content given at creation reaches the place that uses it.
    FetchInitial,
    /// If a command has failed, content at its place is brought again unless its arrival was told.
    FailedUseBringsAgain,
    /// Content given at creation is stored after the commands and transfers that use the copy that
    /// it replaces.
    InitialAfterUsers,
    /// A write makes the copies of other places old.
    WriteMakesOthersOld,
    /// A transfer leaves after the writers of its source.
    LeaveAfterWriters,
    /// A transfer leaves after the transfer that brought its source.
    LeaveAfterArrival,
    /// A transfer is stored after the commands that use the copy that it replaces.
    ArriveAfterUsers,
    /// A command waits for the transfers that bring what it reads.
    ReadAfterArrival,
    /// A write over all of a copy waits for a transfer that is still on its way to it.
    OverwriteAfterArrival,
    /// A transfer that failed has brought nothing.
    FailedArrivalIsNone,
    /// If a transfer leaves a place before its content has arrived there and that arrival fails,
    /// the content has arrived nowhere.
    DoubtTravelsOn,
    /// If a write over all of a copy fails, the content that it was to replace is current again.
    FailedOverwriteIsUndone,
    /// If a command that may write a part fails, the content from before it is current again in
    /// other places.
    FailedWriteIsUndone,
    /// A command stands for earlier ones only in the same in-order queue.
    OneUserPerQueue,
    /// Uses of different bytes of an allocation do not wait for each other.
    SplitByRange,
    /// Commands of other queues wait for blocking writes that have returned.
    FollowBlockingWrites,
    /// An end is told only when earlier commands that write the program's memory have ended.
    EndAfterHostWrites,
    /// The host copies in place only while its queue is idle.
    InPlaceWhenIdle,
    /// The host copies in place only when nothing is held back in the queue.
    InPlaceWhenNothingHeld,
    /// The host copies in place only when the wait list has ended.
    InPlaceAfterWaits,
    /// The host copies in place only if no earlier command has still to write the program's memory.
    InPlaceAfterWritersBefore,
    /// The host copies in place only if no other queue has an open blocking write that has
    /// returned.
    InPlaceAfterBlockingWrites,
}

/// The rules that apply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    #[cfg(feature = "planted")]
    pub(crate) off: Option<Rule>,
}

impl Rules {
    #[inline]
    #[allow(clippy::unused_self, reason = "it is used with the feature `planted`")]
    pub(crate) fn hold(self, rule: Rule) -> bool {
        #[cfg(feature = "planted")]
        return self.off != Some(rule);
        #[cfg(not(feature = "planted"))]
        {
            _ = rule;
            true
        }
    }
}
