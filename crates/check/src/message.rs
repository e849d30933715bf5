//! What a campaign and its child processes tell each other: one line of JSON each.

use serde::{Deserialize, Serialize};

use crate::finding::Finding;
use crate::interface::Interface;
use crate::plan::Platform;

/// What a child is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Request<I: Interface> {
    /// Opens a platform.
    Open {
        /// Part of its name.
        platform: String,
        /// After how many seconds a program counts as hanging.
        hang_seconds: u64,
    },
    /// Runs the programs of some seeds.
    Seeds {
        /// The first one.
        first: u64,
        /// How many.
        count: u64,
        /// Roughly how many operations a program has.
        ops: usize,
        /// What programs may contain.
        features: Vec<I::Feature>,
    },
    /// Runs one program several times.
    Program {
        /// The program.
        program: Box<I::Program>,
        /// How many times at most.
        times: usize,
    },
}

/// What a child answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Answer<I: Interface> {
    /// It has opened a platform.
    Opened(Platform<I::Device>),
    /// It cannot run anything.
    Unable(String),
    /// A program starts.
    Started(u64),
    /// It has found something and runs nothing any more.
    Found(u64, Finding),
    /// The program is not in order; this is a mistake of the planner.
    Invalid(u64, String),
    /// All programs of the request have ended.
    Done,
}
