//! The command `penstock-check`.

use std::process::ExitCode;

use clap::Parser;

/// Compares random OpenCL or CUDA host programs with a sequential model
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Line {
    #[command(flatten)]
    args: penstock_check::args::CheckArgs,
}

fn main() -> ExitCode {
    penstock_check::main(&Line::parse().args, &[])
}
