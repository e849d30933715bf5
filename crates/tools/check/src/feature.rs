//! Features of programs. Without any, they use buffers, in-order queues, transfers, copies, fills
//! and launches.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

/// A feature of the programs of one interface.
pub trait Named: Copy + Eq + Debug + Send + Sync + 'static {
    const ALL: &'static [Self];

    /// The word that selects the feature on the command line.
    fn name(self) -> &'static str;

    /// Description of the feature for the list.
    fn about(self) -> &'static str;
}

/// Returns the features with these names.
///
/// # Errors
///
/// A name is not that of a feature. The text lists all names.
pub fn named<F: Named>(names: &[String]) -> Result<Vec<F>, String> {
    let known = |name: &String| {
        F::ALL.iter().copied().find(|feature| feature.name() == name).ok_or_else(|| {
            let all: Vec<_> = F::ALL.iter().map(|feature| feature.name()).collect();
            format!("no such feature: {name}; there are: {}", all.join(", "))
        })
    };
    names.iter().map(known).collect()
}

macro_rules! features {
    ($what:literal $Feature:ident { $($variant:ident $name:literal $about:literal,)* }) => {
        #[doc = $what]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $Feature {
            $(#[doc = $about] $variant,)*
        }

        impl Named for $Feature {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => $about,)*
                }
            }
        }
    };
}
pub(crate) use features;

features! { "Something that programs may contain." Feature {
    Threads "threads" "several host threads",
    Contexts "contexts" "several contexts",
    Devices "devices" "several devices in one program",
    OutOfOrder "out-of-order" "out-of-order queues",
    Profiling "profiling" "queues with profiling, and questions for times",
    SubBuffers "sub-buffers" "sub-buffers, also overlapping ones",
    Images "images" "two-dimensional images",
    ImageViews "image-views" "images over buffers",
    ImageViewFills "image-view-fills" "fills and copies of images over buffers",
    Maps "maps" "mapping and unmapping",
    Svm "svm" "coarse-grained shared virtual memory",
    UseHostPtr "use-host-ptr" "buffers that use the program's memory",
    HostChains "host-chains" "host memory that one transfer writes and the next one reads",
    Rects "rects" "transfers of rectangles",
    RectCopies "rect-copies" "copies of rectangles between buffers",
    UserEvents "user-events" "user events",
    UserEventsOutOfOrder "user-events-out-of-order" "user events that hold back commands of out-of-order queues",
    FailingEvents "failing-events" "user events that are set to an error",
    FailingCallbacks "failing-callbacks" "callbacks of commands whose wait list fails",
    FailingBlocking "failing-blocking" "blocking calls whose wait list fails",
    FailingLaunches "failing-launches" "launches that ask for too much local memory",
    Callbacks "callbacks" "callbacks of events",
    Markers "markers" "markers and barriers",
    Migrate "migrate" "migrations",
    Releases "releases" "releases at odd moments, and objects made later",
    SharedQueues "shared-queues" "one in-order queue whose commands two threads enqueue without further order",
    WritesEnd "writes-end" "programs that rely on the end of a write when the blocking call returns",
    Delays "delays" "rests of host threads",
    ConstCast "const-cast" "kernels that write through a cast of a pointer to const",
    Slow "slow" "kernels that take some milliseconds",
    Large "large" "buffers of some mebibytes",
}}
