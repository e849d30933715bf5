//! What a campaign knows of the interface whose programs it runs: OpenCL, or CUDA's driver interface.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::feature::{Feature, Named};
use crate::finding::Finding;
use crate::plan::{Act, Device, Op, Platform, Program};
use crate::planner::{self, Limits};
use crate::run::{self, Prepared, Progress};
use crate::shrink;

/// What can travel between a campaign and its children.
pub trait Message: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static> Message for T {}

/// A program, as far as a campaign looks into it.
pub trait Plan: Message + PartialEq {
    /// What an operation does.
    type Act: Message + PartialEq;

    /// The seed that it was made from.
    fn seed(&self) -> u64;

    /// How many host threads it has.
    fn threads(&self) -> usize;

    /// What is done.
    fn ops(&self) -> &[Op<Self::Act>];

    /// The same program with other operations.
    #[must_use]
    fn with(&self, ops: Vec<Op<Self::Act>>) -> Self;
}

/// An interface.
pub trait Interface: Clone + Debug + Send + Sync + 'static {
    /// What programs may contain.
    type Feature: Named + Message;
    /// What is known of a device.
    type Device: Message + AsRef<str>;
    /// A program.
    type Program: Plan;
    /// What runs programs.
    type Driver;

    /// What tells a child that it serves this interface.
    const CHILD_OPTIONS: &'static [&'static str];

    /// Loads the driver. `wanted` is part of the platform's name.
    ///
    /// # Errors
    ///
    /// Why there is nothing to run on.
    fn open(wanted: &str) -> Result<(Self::Driver, Platform<Self::Device>), String>;

    /// The program of a seed.
    fn plan(
        seed: u64,
        platform: &Platform<Self::Device>,
        ops: usize,
        features: &[Self::Feature],
    ) -> Self::Program;

    /// Runs a program. `report` gets the first finding, at once.
    ///
    /// # Errors
    ///
    /// Why the program is not in order.
    fn run(
        program: &Self::Program,
        platform: &Platform<Self::Device>,
        driver: &Self::Driver,
        progress: &Progress,
        report: &(dyn Fn(Finding) + Sync),
    ) -> Result<(), String>;

    /// The C file of a program, if it is in order.
    fn print(
        program: &Self::Program,
        platform: &Platform<Self::Device>,
        finding: &Finding,
    ) -> Option<String>;

    /// Drops what is not in order. Nothing comes back if the rest is no program.
    fn repair(program: &Self::Program, platform: &Platform<Self::Device>) -> Option<Self::Program>;

    /// Whether an operation only keeps two threads in order.
    fn is_between_threads(act: &ActOf<Self>) -> bool;

    /// Simpler forms of an operation.
    fn simpler(act: &ActOf<Self>) -> Vec<ActOf<Self>>;

    /// What an operation does, beginning with the name of the call.
    fn describe(act: &ActOf<Self>) -> String;
}

/// What an operation of an interface's programs does.
pub type ActOf<I> = <<I as Interface>::Program as Plan>::Act;

/// The name of what an operation does.
pub fn act_name<I: Interface>(program: &I::Program, op: Option<usize>) -> String {
    let Some(op) = op.and_then(|op| program.ops().get(op)) else { return "start".to_owned() };
    I::describe(&op.act).split([' ', '{', '(']).next().unwrap_or_default().to_owned()
}

/// OpenCL.
#[derive(Clone, Copy, Debug)]
pub struct OpenCl;

impl Plan for Program {
    type Act = Act;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn with(&self, ops: Vec<Op>) -> Self {
        Self { ops, ..self.clone() }
    }
}

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
