//! `penstock vm`: programs in virtual machines.

pub mod args;
mod link;
mod root;
mod run;

use std::process::ExitCode;

use crate::failure::Failure;
use args::VmCommand;

pub fn vm(command: &VmCommand) -> Result<ExitCode, Failure> {
    match command {
        VmCommand::Run(args) => run::run(args),
    }
}
