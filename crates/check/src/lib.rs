//! Random OpenCL and CUDA host programs against a sequential model: finds wrong bytes, hangs, lost errors and wrong statuses
//! of any driver.
//!
//! A program is planned from a seed ([`planner`]), put in order ([`ledger`]), predicted ([`model`]) and run ([`run`]) on an
//! implementation ([`backend`]). A campaign ([`campaign`]) runs many of them in child processes. Programs of CUDA have the same
//! parts of their own in [`cuda`]; what a campaign knows of both is an [`interface`].
#![deny(unsafe_code)]

pub mod args;
pub mod backend;
pub mod bits;
pub mod c;
pub mod campaign;
pub mod child;
pub mod cl;
pub mod cuda;
pub mod fake;
pub mod feature;
pub mod finding;
pub mod interface;
pub mod ledger;
pub mod message;
pub mod model;
pub mod plan;
pub mod planner;
pub mod random;
pub mod report;
pub mod run;
pub mod shrink;

use std::process::ExitCode;

use feature::Named as _;
use interface::Interface;

/// Does what the command line asks for. `prefix` is what stands before the options, as the name of a subcommand.
pub fn main(args: &args::CheckArgs, prefix: &[&str]) -> ExitCode {
    if args.cuda {
        serve::<cuda::Cuda>(args, prefix)
    } else {
        serve::<interface::OpenCl>(args, prefix)
    }
}

fn serve<I: Interface>(args: &args::CheckArgs, prefix: &[&str]) -> ExitCode {
    if args.child {
        return child::serve::<I>();
    }
    if args.list {
        for feature in <I::Feature as feature::Named>::ALL {
            println!("{:<24} {}", feature.name(), feature.about());
        }
        return ExitCode::SUCCESS;
    }
    campaign::campaign::<I>(args, prefix)
}
