//! Planted defects: plausible mistakes outside of the state machine of the memory model.
//!
//! The environment variable `PENSTOCK_TEST_PLANT` names the defect to switch on. It may also name a
//! rule of the state machine (`penstock_coherence::Rule`), which the client then switches off.

#[cfg(feature = "planted")]
use std::sync::OnceLock;

macro_rules! defects {
    ($($name:ident $text:literal $about:literal,)*) => {
        /// A mistake that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Defect {
            $(#[doc = $about] $name,)*
        }

        impl Defect {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the defect's name in `PENSTOCK_TEST_PLANT`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Describes the wrong behaviour in one sentence.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$name => $about,)*
                }
            }
        }
    };
}

defects! {
    EarlyEnd "early-end" "A worker reports the end of a write before the device has the bytes.",
    LostWait "lost-wait" "A worker does not wait for the last of several events of a wait list.",
    OldRegion "old-region" "A worker sends a region to another node before the commands that write it have ended.",
    ArrivedEarly "arrived-early" "A transfer counts as arrived before its content has come.",
    FirstPiece "first-piece" "A read that comes in pieces counts as ended after the first of them.",
    LastPiece "last-piece" "The last piece of a large read is missing.",
    FillOffset "fill-offset" "The offset of a sub-buffer is forgotten in a fill.",
    UnmapPage "unmap-page" "Unmapping sends only the first page of the region.",
    MapChain "map-chain" "Unmapping does not wait for a read into the mapped region.",
    DeviceChain "device-chain" "A write does not see that a command of another device has still to write its source.",
    HeldFirst "held-first" "A command that writes host memory waits for held commands that read the memory.",
    FinishEarly "finish-early" "`clFinish` does not wait for reads of other nodes into host memory.",
    SvmFinish "svm-finish" "`clFinish` does not wait for copies within host memory.",
    CallbackEarly "callback-early" "A callback runs before the bytes of earlier reads are in host memory.",
    EventEarly "event-early" "`clWaitForEvents` returns before the bytes of earlier reads are in host memory.",
    LaunchLost "launch-lost" "A launch that the device refuses is reported as a success.",
    FailedLaunchStale "failed-launch-stale" "A refused launch ends before the commands before it have ended.",
    RingOrder "ring-order" "A frame overtakes the frame before it while the link is full.",
    EndsOvertake "ends-overtake" "Ends of an in-order queue are told in the order in which the driver calls back.",
    RectPitch "rect-pitch" "A write of a rectangle forgets the row pitch of the buffer.",
    HostPitch "host-pitch" "A read of a rectangle forgets the row pitch of host memory.",
    UserEventFailure "user-event-failure" "The failure of a user event counts as a success.",
    PumpOne "pump-one" "Setting a user event sends only the first of the commands that the event held back.",
    ViewOverwrite "view-overwrite" "A write over all of an image counts as a write over all of its buffer.",
    TimesEarly "times-early" "A question for the times of a blocking write does not wait for its end.",
    OpenBefore "open-before" "After a command has ended, an event that it waited for counts as open until its own end is told.",
    BarrierPassed "barrier-passed" "A command of an out-of-order queue that does nothing ends although a barrier before it has not ended.",
    TrustConst "trust-const" "A kernel counts as a reader of what it gets as a pointer to const.",
    NewQueue "new-queue" "A new queue does not follow blocking writes of older queues.",
    LateArgs "late-args" "After a held launch was sent, the next launch takes the arguments of the held one.",
    TornRead "torn-read" "Commands behind a blocking read in place do not wait until its bytes are copied.",
    ReleaseEnds "release-ends" "A worker forgets an event that is released, although commands wait for it.",
    CopySwap "copy-swap" "A copy that is longer than a page swaps the offsets of source and target.",
    CreationBytes "creation-bytes" "The content given at creation reaches only the first node.",
    LostBefore "lost-before" "A worker notes a transfer after it has looked for the peer.",
    NamesLost "names-lost" "A transfer between workers without a link is sent without their names.",
    OpenWhenLost "open-when-lost" "A wait that the loss of a node ends leaves its command open.",
}

/// Whether this defect is switched on. Always `false` without the feature `planted`.
#[inline]
#[must_use]
pub fn planted(defect: Defect) -> bool {
    #[cfg(feature = "planted")]
    return planted_name() == Some(defect.name());
    #[cfg(not(feature = "planted"))]
    {
        let _ = defect;
        false
    }
}

/// Returns the name in `PENSTOCK_TEST_PLANT`. Always `None` without the feature `planted`.
#[inline]
#[must_use]
pub fn planted_name() -> Option<&'static str> {
    #[cfg(feature = "planted")]
    {
        static NAME: OnceLock<Option<String>> = OnceLock::new();
        NAME.get_or_init(|| std::env::var("PENSTOCK_TEST_PLANT").ok().filter(|it| !it.is_empty()))
            .as_deref()
    }
    #[cfg(not(feature = "planted"))]
    None
}

#[cfg(all(test, not(any(feature = "planted", feature = "test-delays"))))]
mod tests {
    use super::*;

    #[test]
    fn a_build_for_users_plants_nothing() {
        assert!(planted_name().is_none());
        assert!(Defect::ALL.iter().all(|defect| !planted(*defect)));
        assert!(!crate::is_put_off(crate::Place::LinkPutsOff));
    }
}
