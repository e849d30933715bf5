//! What a builder is asked to do, and the messages between worker, foreman and builder.

use penstock_confine::Level;
use serde::{Deserialize, Serialize};

use crate::sys::Exit;

/// A build, with everything that it needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// Indices of the devices in the node. All belong to one platform. The parts of a device have
    /// the index of the whole device.
    pub(crate) devices: Vec<u32>,
    pub(crate) goal: Goal,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Goal {
    /// `clBuildProgram`.
    Build(Making),
    /// `clCompileProgram`.
    Compile(Making),
    /// `clLinkProgram`. The builder compiles the inputs first.
    Link { options: Option<String>, inputs: Vec<Making> },
}

/// How a compiler is to make a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Making {
    pub(crate) origin: Origin,
    pub(crate) options: Option<String>,
    /// Sources with the names under which they are included.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
}

/// What a program was created from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Origin {
    Source(Vec<u8>),
    /// An intermediate language, and the specialization constants that the client has set.
    Il {
        code: Vec<u8>,
        constants: Vec<(u32, Vec<u8>)>,
    },
}

/// Messages from a worker to its foreman.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToForeman {
    /// Start a builder.
    Start,
    /// End this builder, unless it has ended, and say how it ended.
    End(u32),
}

/// Answers of a foreman. Each message to it has one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromForeman {
    /// The builder has this number. The worker's end of the connection to it comes with the
    /// message.
    Started(u32),
    /// The builder could not be started, for this reason.
    NotStarted(String),
    Ended(Exit),
}

/// Messages from a worker to a builder.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToBuilder {
    /// Perform the [`Task`] in the builder's memory.
    Build {
        /// Length of the task.
        bytes: u64,
    },
}

/// Messages from a builder to its worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromBuilder {
    /// It has loaded the drivers, and is confined at this level. The memory for its tasks comes
    /// with the message, because the worker may not be able to send any.
    Ready {
        level: Level,
        /// Memory that the drivers have taken.
        resident_bytes: u64,
    },
    /// It has a task. Whatever ends it from here on is the compiler's doing.
    Begun,
    /// The compiler has ended in the ordinary way, with a program or with an error.
    Done,
}
