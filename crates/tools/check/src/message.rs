//! Messages between a campaign and its child processes: one line of JSON each.

use serde::{Deserialize, Serialize};

use crate::finding::Finding;
use crate::interface::Interface;
use crate::plan::Platform;

/// A request to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Request<I: Interface> {
    Open {
        /// Part of the platform's name.
        platform: String,
        /// Seconds after which a program counts as hanging.
        hang_seconds: u64,
    },
    /// Runs the programs of some seeds.
    Seeds {
        first: u64,
        count: u64,
        /// Approximate number of operations in a program.
        ops: usize,
        /// The features that programs may contain.
        features: Vec<I::Feature>,
    },
    /// Runs one program several times.
    Program {
        program: Box<I::Program>,
        /// Largest number of runs.
        times: usize,
    },
}

/// An answer from a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Answer<I: Interface> {
    Opened(Platform<I::Device>),
    /// The child cannot run any program.
    Unable(String),
    /// The program of this seed starts.
    Started(u64),
    /// The child has a finding and runs no more programs.
    Found(u64, Finding),
    /// The ledger rejects the program, which is a defect of the planner.
    Invalid(u64, String),
    /// All programs of the request have ended.
    Done,
}
