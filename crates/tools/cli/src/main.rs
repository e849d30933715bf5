//! The command `penstock`: runs the daemon of a node, and everything that a person does with a
//! pool.
#![forbid(unsafe_code)]

mod administer;
mod args;
mod bench;
mod bridge;
mod check;
mod config;
mod confinement;
mod container;
mod demo;
mod devices;
mod discover;
mod doctor;
mod embedded;
mod energy;
#[cfg(test)]
mod facts;
mod failure;
mod key;
mod limits;
mod metrics;
mod pages;
mod programs;
mod run;
mod serve;
mod sim;
mod slurm;
mod status;
mod table;
mod top;
mod trace;
mod vm;
mod words;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser as _;
use penstock_process::variable;

use args::{Cli, Command};
use failure::Failure;

fn main() -> ExitCode {
    penstock_process::signals::prepare();
    // The daemon starts this program once more for each of its workers. A worker gets its orders
    // from the daemon, not from the command line.
    let word = std::env::args_os().nth(1).unwrap_or_default();
    if word == "worker" {
        return penstock_daemon::worker_main();
    }
    // `penstock vm run` starts it as the first process of a guest, and before the helpers of one.
    if word == penstock_vm::guest::WORD {
        penstock_vm::guest::main();
    }
    if word == penstock_vm::host::bound::WORD {
        return penstock_vm::host::bound::become_program(std::env::args_os().skip(2)).into();
    }
    // Slurm runs it so after the guard of a node.
    if word.is_empty()
        && let Some(name) = variable::SLURM_DIRECTORY.text()
    {
        return ended(slurm::node::remove(&name));
    }
    let command = Cli::parse().command;
    // Questions about a login go to the terminal, and a person must be there to answer.
    if std::io::stderr().is_terminal() && std::io::stdin().is_terminal() {
        penstock_link::let_ssh_ask();
    }
    ended(obey(command))
}

fn ended(outcome: Result<ExitCode, Failure>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            table::say(&failure.to_string());
            ExitCode::from(failure.exit_code())
        }
    }
}

fn obey(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Serve(args) => serve::serve(&args),
        Command::Bridge(args) => bridge::bridge(&args),
        Command::Devices(args) => devices::devices(&args),
        Command::Discover(args) => discover::discover(&args),
        Command::Run(args) => run::run(&args),
        Command::Slurm(args) => slurm::slurm(&args),
        Command::SlurmNode(args) => slurm::node::node(&args),
        Command::Status(args) => status::status(&args),
        Command::Top(args) => top::top(&args),
        Command::Kill(args) => administer::kill(&args),
        Command::Drain(args) => administer::drain(&args),
        Command::Metrics(args) => metrics::metrics(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Check(command) => Ok(check::run(&command)),
        Command::Demo(args) => demo::demo(&args),
        Command::Sim(args) => sim::sim(&args),
        Command::Energy(args) => energy::energy(&args),
        Command::Key(args) => key::key(&args),
        Command::Trace(command) => trace::trace(&command),
        Command::Config => config::config(),
        Command::Container(args) => container::container(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Vm(command) => vm::vm(&command),
        Command::Man(args) => pages::man(&args.directory),
        Command::Completions(args) => pages::completions(args.shell),
        Command::Guard(args) => run::guard::guard(&args),
    }
}
