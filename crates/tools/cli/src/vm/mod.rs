//! `penstock vm`: programs in virtual machines.

pub mod args;
mod check;
mod define;
mod link;
mod root;
mod run;

use std::process::ExitCode;

use crate::failure::Failure;
use args::VmCommand;

pub fn vm(command: &VmCommand) -> Result<ExitCode, Failure> {
    match command {
        VmCommand::Run(args) => run::run(args),
        VmCommand::Define(args) => define::define(args),
        VmCommand::Check(args) => check::check(args),
    }
}
