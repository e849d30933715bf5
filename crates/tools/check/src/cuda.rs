//! Random programs of CUDA's driver interface, with streams, events and host memory.

pub mod backend;
pub mod driver;
pub mod fake;
pub mod feature;
pub mod ledger;
pub mod model;
pub mod plan;
pub mod planner;
mod print;
pub mod run;
mod simpler;

use crate::finding::Finding;
use crate::interface::Interface;
use crate::run::Progress;
use feature::Feature;
use plan::{Act, Device, Platform, Program};
use run::Prepared;

#[derive(Clone, Copy, Debug)]
pub struct Cuda;

impl Interface for Cuda {
    type Feature = Feature;
    type Device = Device;
    type Program = Program;
    type Driver = driver::Driver;

    const CHILD_OPTIONS: &'static [&'static str] = &["--cuda"];

    fn open(_: &str) -> Result<(Self::Driver, Platform), String> {
        let driver = driver::Driver::open().map_err(|error| error.to_string())?;
        let platform = driver.describe();
        Ok((driver, platform))
    }

    fn plan(seed: u64, platform: &Platform, ops: usize, features: &[Feature]) -> Program {
        planner::plan(seed, platform, ops, features)
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
        Some(print::print(&prepared, platform, finding))
    }

    fn repair(program: &Program, platform: &Platform) -> Option<Program> {
        Some(simpler::repair(program, platform))
    }

    fn is_between_threads(act: &Act) -> bool {
        matches!(act, Act::Signal { .. } | Act::Await { .. })
    }

    fn simpler(act: &Act) -> Vec<Act> {
        simpler::simpler(act)
    }

    fn describe(act: &Act) -> String {
        match act {
            Act::Enqueue { work, .. } | Act::Now { work, .. } => format!("{work:?}"),
            act => format!("{act:?}"),
        }
    }
}
