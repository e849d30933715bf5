//! The command `penstock-check`.

use std::process::ExitCode;

use clap::Parser;

/// Random OpenCL or CUDA host programs against a sequential model
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Line {
    #[command(flatten)]
    args: penstock_check::args::CheckArgs,
}

fn main() -> ExitCode {
    penstock_check::main(&Line::parse().args, &[])
}
