//! Features of CUDA programs. Without any, they use device memory, pageable memory, non-blocking
//! streams, asynchronous copies and launches.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use crate::feature::{Named, features};

features! { "Something that CUDA programs may contain." Feature {
    Threads "threads" "several host threads",
    Devices "devices" "several devices in one program",
    Contexts "contexts" "two contexts on one device",
    Legacy "legacy" "the legacy default stream",
    Blocking "blocking" "blocking streams",
    PerThread "per-thread" "the default streams of threads",
    StreamWaits "stream-waits" "streams that wait for events",
    Queries "queries" "cuEventQuery and cuStreamQuery",
    Pinned "pinned" "memory of cuMemHostAlloc",
    Registered "registered" "memory that is registered and unregistered while the program runs",
    HostChains "host-chains" "host memory that one copy writes and the next one reads",
    PageableChains "pageable-chains" "programs that rely on pageable memory being read in the order of the stream",
    Synchronous "synchronous" "synchronous copies and fills",
    WritesEnd "writes-end" "programs that rely on the end of a synchronous copy to the device when the call returns",
    Rects "rects" "two-dimensional copies and fills",
    Peers "peers" "copies between devices and between contexts",
    HostFunctions "host-functions" "functions of the program in streams",
    AsyncMemory "async-memory" "memory that is allocated and freed in the order of a stream",
    Graphs "graphs" "captured graphs",
    Branches "branches" "graphs with two branches",
    EarlyFrees "early-frees" "cuMemFree while work that uses the memory is under way",
    Releases "releases" "streams and events that are destroyed while their work is under way",
    Slow "slow" "kernels that take some milliseconds",
    Delays "delays" "rests of host threads",
    Large "large" "memory of some mebibytes",
}}
