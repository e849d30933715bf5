//! The rules of the machine, each by a name.
//!
//! A build for users applies all of them. With the feature `planted` a test can switch one off, to show that the
//! checkers notice the defect that the rule prevents.

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A rule of the machine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Rule {
            $($(#[$doc])* $name,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

rules! {
    /// A command whose wait list names a client event that is not set is held back.
    UnsetEventHolds,
    /// A failed client event fails the commands that name it.
    FailedEventFails,
    /// In an in-order queue, what comes behind a command that is held back is held back.
    BehindHeldInOrder,
    /// In an out-of-order queue, what comes behind a barrier that is held back is held back.
    BehindHeldBarrier,
    /// A marker or barrier without a wait list waits for what its out-of-order queue holds back.
    SyncWaitsForHeld,
    /// What comes behind a command that the client runs itself waits until the client has run it.
    ClientRunHolds,
    /// A command that reads the program's memory waits for commands that are still to write it.
    HostReadAfterWrite,
    /// A command that writes the program's memory waits for commands that are still to write it.
    HostWriteAfterWrite,
    /// Two threads' commands on one allocation are sent one after the other.
    OneSenderPerAllocation,
    /// A command gets the current content of what it reads.
    FetchWhatIsRead,
    /// A command that writes a part gets the current content of the rest.
    FetchAroundPartialWrite,
    /// A write over all of a copy gets the old content as long as its wait list may still fail it.
    FetchUnderDoubt,
    /// Content given at creation reaches the place that uses it.
    FetchInitial,
    /// Where a command has failed, the content is brought again of which nobody has told that it has arrived.
    FailedUseBringsAgain,
    /// Content given at creation is stored after the commands and transfers that use the copy that it replaces.
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
    /// What a transfer takes from a place where it has not arrived yet has arrived nowhere if it does not arrive there.
    DoubtTravelsOn,
    /// Where a write over all of a copy failed, the content that it was to replace is current again.
    FailedOverwriteIsUndone,
    /// Where a command that may write a part has failed, the content from before it is current again in other places.
    FailedWriteIsUndone,
    /// Only later commands of the same in-order queue stand for earlier ones.
    OneUserPerQueue,
    /// Uses of different bytes of an allocation are told apart.
    SplitByRange,
    /// Commands of other queues wait for blocking writes that have returned.
    FollowBlockingWrites,
    /// An end is told only when the commands before it that write the program's memory have ended.
    EndAfterHostWrites,
    /// The host copies in place only while its queue has nothing to do.
    InPlaceWhenIdle,
    /// The host copies in place only when nothing is held back in the queue.
    InPlaceWhenNothingHeld,
    /// The host copies in place only when the wait list has ended.
    InPlaceAfterWaits,
    /// The host copies in place only when no command before it is still to write the program's memory.
    InPlaceAfterWritersBefore,
    /// The host copies in place only when no other queue has a blocking write under way.
    InPlaceAfterBlockingWrites,
}

/// Which rules hold.
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
