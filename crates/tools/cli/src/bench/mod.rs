//! `penstock bench`: measures the pool and the local OpenCL platform, or communication between
//! devices.

mod comm;
mod show;

use std::process::{Command, ExitCode};

use crate::args::{BenchArgs, BenchCommand};
use crate::failure::Failure;
use crate::programs;

/// Program that measures the pool.
const PROGRAM: &str = "penstock-bench";

/// Runs the program that measures the pool, or measures communication.
pub fn bench(args: &BenchArgs) -> Result<ExitCode, Failure> {
    if let Some(BenchCommand::Comm(args)) = &args.command {
        return comm::comm(args);
    }
    let mut command = Command::new(programs::find(PROGRAM)?);
    command.env(
        "PENSTOCK",
        std::env::current_exe().map_err(Failure::file("penstock".as_ref(), "find"))?,
    );
    if args.json {
        command.arg("--json");
    }
    if args.quick {
        command.arg("--quick");
    }
    if let Some(directory) = &args.output {
        command.arg("--output").arg(directory);
    }
    programs::finish(&mut command, "the measurement")?;
    Ok(ExitCode::SUCCESS)
}
