//! Runs random OpenCL and CUDA host programs and compares them with a sequential model. Finds wrong
//! bytes, hangs, lost errors and wrong statuses of any driver.
//!
//! The [`planner`] makes a program from a seed, and the [`ledger`] orders it. A program is valid if
//! the ledger accepts all its operations. The [`model`] predicts what the program sees, and [`run`]
//! runs it on an implementation ([`backend`]). A [`campaign`] runs many programs in child
//! processes. [`cuda`] has the same parts for CUDA programs, and [`kernels`] for CUDA kernels. The
//! model of kernels is an emulator. The [`interface`] is what a campaign knows of them.
//!
//! A module imports only modules of its own row or of rows below:
//!
//! | layer | modules |
//! |---|---|
//! | campaigns over many programs | [`args`], [`campaign`], [`child`], [`message`], [`report`] |
//! | what a campaign knows of OpenCL and CUDA | [`cuda`], [`interface`], [`kernels`], [`shrink`] |
//! | one program is made, run and printed | [`c`], [`planner`], [`run`] |
//! | what a program must see, and implementations | [`cl`], [`fake`], [`ledger`], [`model`] |
//! | what OpenCL's and CUDA's parts share | `draft`, `machine`, [`moments`] |
//! | data | [`backend`], [`bits`], [`feature`], [`finding`], [`plan`], [`random`] |
#![deny(unsafe_code)]

pub mod args;
pub mod backend;
pub mod bits;
pub mod c;
pub mod campaign;
pub mod child;
pub mod cl;
pub mod cuda;
mod draft;
pub mod fake;
pub mod feature;
pub mod finding;
pub mod interface;
pub mod kernels;
pub mod ledger;
mod machine;
pub mod message;
pub mod model;
pub mod moments;
pub mod plan;
pub mod planner;
pub mod random;
pub mod report;
pub mod run;
pub mod shrink;

use std::process::ExitCode;

use feature::Named as _;
use interface::Interface;

/// Executes the command line. `prefix` is what stands before the options, such as the name of a
/// subcommand.
pub fn main(args: &args::CheckArgs, prefix: &[&str]) -> ExitCode {
    if args.kernels {
        serve::<kernels::Kernels>(args, prefix)
    } else if args.cuda {
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
