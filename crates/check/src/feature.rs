//! What programs may contain besides buffers, in-order queues, transfers, copies, fills and launches.

use serde::{Deserialize, Serialize};

macro_rules! features {
    ($($variant:ident $name:literal $about:literal,)*) => {
        /// Something that programs may contain.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Feature {
            $(#[doc = $about] $variant,)*
        }

        impl Feature {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name on the command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What it is.
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => $about,)*
                }
            }
        }
    };
}

features! {
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
}

impl std::str::FromStr for Feature {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|feature| feature.name() == text);
        found.copied().ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|feature| feature.name()).collect();
            format!("no such feature; there are: {}", names.join(", "))
        })
    }
}
