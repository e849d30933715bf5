//! Random CUDA kernels, against an emulator of a block and its warps.
//!
//! A kernel is a tree of statements ([`program`]). The [`planner`] makes it, [`print`](mod@print)
//! writes it as PTX, and [`emulate`] computes what it must give. Only the driver translates PTX.

pub mod emulate;
pub mod feature;
mod floats;
pub mod planner;
pub mod print;
pub mod program;
mod races;
mod rules;
pub mod run;
mod simpler;

use crate::cuda::driver::Driver;
use crate::finding::Finding;
use crate::interface::{Interface, Trying};
use crate::run::Progress;
use feature::Feature;
use program::{Act, Platform, Program};

#[derive(Clone, Copy, Debug)]
pub struct Kernels;

impl Interface for Kernels {
    type Feature = Feature;
    type Device = crate::cuda::plan::Device;
    type Program = Program;
    type Driver = Driver;

    const CHILD_OPTIONS: &'static [&'static str] = &["--kernels"];
    const EXTENSION: &'static str = "ptx";
    // A kernel seldom depends on timing, and its build takes longer than its run.
    const TRYING: Trying = Trying { trials: 5, runs_min: 1, hang_seconds: 20 };

    fn open(_: &str) -> Result<(Self::Driver, Platform), String> {
        let driver = Driver::open().map_err(|error| error.to_string())?;
        let platform = driver.describe();
        Ok((driver, platform))
    }

    fn plan(seed: u64, _: &Platform, ops: usize, features: &[Feature]) -> Program {
        planner::plan(seed, ops, features)
    }

    fn run(
        program: &Program,
        platform: &Platform,
        driver: &Self::Driver,
        _: &Progress,
        report: &(dyn Fn(Finding) + Sync),
    ) -> Result<(), String> {
        let run = |device: usize, text: &str, launches: &[_]| {
            driver.compute(device, text, print::NAME, launches)
        };
        run::run(program, platform, &run, report)
    }

    fn print(program: &Program, platform: &Platform, finding: &Finding) -> Option<String> {
        run::text(program, platform, finding)
    }

    fn repair(program: &Program, _: &Platform) -> Option<Program> {
        planner::repair(program)
    }

    fn is_between_threads(_: &Act) -> bool {
        false
    }

    fn simpler(act: &Act) -> Vec<Act> {
        simpler::simpler(act)
    }

    fn describe(act: &Act) -> String {
        format!("{act:?}")
    }
}
