//! What a campaign knows of the interface that its programs use: OpenCL, or CUDA's driver
//! interface.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::feature::{Feature, Named};
use crate::finding::Finding;
use crate::plan::{Act, Device, Op, Platform, Program};
use crate::planner::{self, Limits};
use crate::run::{self, Prepared, Progress};
use crate::shrink;

/// Data that a campaign and its children can exchange.
pub trait Message: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static> Message for T {}

/// A program, as far as a campaign examines it.
pub trait Plan: Message + PartialEq {
    /// What an operation does.
    type Act: Message + PartialEq;

    fn seed(&self) -> u64;

    /// Number of host threads.
    fn threads(&self) -> usize;

    fn ops(&self) -> &[Op<Self::Act>];

    /// Returns the same program with other operations.
    #[must_use]
    fn with(&self, ops: Vec<Op<Self::Act>>) -> Self;
}

/// Implements [`Plan`] for a type with the fields `seed`, `threads` and `ops`.
macro_rules! plan {
    ($program:ty, $act:ty) => {
        impl $crate::interface::Plan for $program {
            type Act = $act;

            fn seed(&self) -> u64 {
                self.seed
            }

            fn threads(&self) -> usize {
                self.threads
            }

            fn ops(&self) -> &[$crate::plan::Op<$act>] {
                &self.ops
            }

            fn with(&self, ops: Vec<$crate::plan::Op<$act>>) -> Self {
                Self { ops, ..self.clone() }
            }
        }
    };
}

pub(crate) use plan;

/// How the shrinker tries programs.
#[derive(Clone, Copy, Debug)]
pub struct Trying {
    /// Number of runs that measure how often a program fails.
    pub trials: usize,
    /// Smallest number of runs of one candidate.
    pub runs_min: usize,
    /// Time-out for candidates in seconds, at most that of the first run.
    pub hang_seconds: u64,
}

pub trait Interface: Clone + Debug + Send + Sync + 'static {
    type Feature: Named + Message;
    /// Description of a device.
    type Device: Message + AsRef<str>;
    type Program: Plan;
    /// The object that runs programs.
    type Driver;

    /// Options that tell a child to serve this interface.
    const CHILD_OPTIONS: &'static [&'static str];

    /// What the names of files with programs end with.
    const EXTENSION: &'static str = "c";

    const TRYING: Trying = Trying { trials: 30, runs_min: 3, hang_seconds: 4 };

    /// Loads the driver. `wanted` is a part of the platform's name.
    ///
    /// # Errors
    ///
    /// Why programs cannot run.
    fn open(wanted: &str) -> Result<(Self::Driver, Platform<Self::Device>), String>;

    /// Returns the program of a seed.
    fn plan(
        seed: u64,
        platform: &Platform<Self::Device>,
        ops: usize,
        features: &[Self::Feature],
    ) -> Self::Program;

    /// Runs a program. Calls `report` at once with the first finding.
    ///
    /// # Errors
    ///
    /// Why the ledger rejects the program.
    fn run(
        program: &Self::Program,
        platform: &Platform<Self::Device>,
        driver: &Self::Driver,
        progress: &Progress,
        report: &(dyn Fn(Finding) + Sync),
    ) -> Result<(), String>;

    /// Returns the C file of a program, or `None` if the ledger rejects the program.
    fn print(
        program: &Self::Program,
        platform: &Platform<Self::Device>,
        finding: &Finding,
    ) -> Option<String>;

    /// Drops the operations that the ledger rejects. Returns `None` if the rest is not a program.
    fn repair(program: &Self::Program, platform: &Platform<Self::Device>) -> Option<Self::Program>;

    /// Whether an operation only keeps two threads in order.
    fn is_between_threads(act: &ActOf<Self>) -> bool;

    /// Returns simpler forms of an operation.
    fn simpler(act: &ActOf<Self>) -> Vec<ActOf<Self>>;

    /// Describes an operation, beginning with the name of the call.
    fn describe(act: &ActOf<Self>) -> String;
}

/// An operation's action in the programs of an interface.
pub type ActOf<I> = <<I as Interface>::Program as Plan>::Act;

/// Returns the name of an operation's call.
pub fn act_name<I: Interface>(program: &I::Program, op: Option<usize>) -> String {
    let Some(op) = op.and_then(|op| program.ops().get(op)) else { return "start".to_owned() };
    I::describe(&op.act).split([' ', '{', '(']).next().unwrap_or_default().to_owned()
}

#[derive(Clone, Copy, Debug)]
pub struct OpenCl;

plan!(Program, Act);

impl AsRef<str> for Device {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl Interface for OpenCl {
    type Feature = Feature;
    type Device = Device;
    type Program = Program;
    type Driver = crate::cl::Cl;

    const CHILD_OPTIONS: &'static [&'static str] = &[];

    fn open(wanted: &str) -> Result<(Self::Driver, Platform), String> {
        let cl = crate::cl::Cl::open(wanted).map_err(|error| error.to_string())?;
        let platform = cl.describe();
        Ok((cl, platform))
    }

    fn plan(seed: u64, platform: &Platform, ops: usize, features: &[Feature]) -> Program {
        planner::plan(seed, platform, &Limits { ops, features: features.to_vec() })
    }

    fn run(
        program: &Program,
        platform: &Platform,
        driver: &Self::Driver,
        progress: &Progress,
        report: &(dyn Fn(Finding) + Sync),
    ) -> Result<(), String> {
        let prepared = Prepared::new(program, platform);
        let prepared = prepared.map_err(|(op, reject)| format!("operation {op}: {reject}"))?;
        run::run(&prepared, driver, progress, report);
        Ok(())
    }

    fn print(program: &Program, platform: &Platform, finding: &Finding) -> Option<String> {
        let prepared = Prepared::new(program, platform).ok()?;
        Some(crate::c::print(&prepared, platform, finding))
    }

    fn repair(program: &Program, platform: &Platform) -> Option<Program> {
        shrink::repair(program, platform)
    }

    fn is_between_threads(act: &Act) -> bool {
        matches!(act, Act::Signal { .. } | Act::Await { .. })
    }

    fn simpler(act: &Act) -> Vec<Act> {
        shrink::simpler(act)
    }

    fn describe(act: &Act) -> String {
        match act {
            Act::Enqueue { cmd, .. } => format!("{cmd:?}"),
            act => format!("{act:?}"),
        }
    }
}
