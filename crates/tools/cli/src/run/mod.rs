//! `penstock run`: an OpenCL or CUDA program on the pool.
//!
//! Everything is prepared in a private directory (the entry for the ICD loader, perhaps a daemon's
//! socket). Then this process *becomes* the program. So signals, job control, the exit status and
//! the process id are the program's own, and standard input and output are untouched. However the
//! program ends, a [`guard`], which is not its child, then removes the directory and ends the
//! daemon.

pub mod args;
pub mod cuda;
pub mod guard;
pub mod library;
mod mpi;
mod nodes;
mod private;
mod probe;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use penstock_client::config::{self, Config, NodeAddress, Surroundings, Wanted};
use penstock_client::select_described;
use penstock_dql::Query;
use penstock_link::Address;
use penstock_process::{signals, variable};
use penstock_wire::describe::NodeDescription;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::failure::Failure;
use crate::table;
use crate::words;
use args::RunArgs;
pub use nodes::{Found, Wishes, find_nodes};
use private::can_be_listed;
pub use private::{PrivateDirectory, daemons};
pub use probe::{
    Answer, Described, Probed, ask_node, distinct_of, is_this_host, keys_for, probe_all, survey_all,
};

/// Name of the entry for the ICD loader in a directory.
pub const ENTRY_NAME: &str = "penstock.icd";

/// Sets the pool up and becomes the program.
pub fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let (program, program_args) = words::split("run", &args.program)?;
    if let Some(parent) = args.bound_to {
        bind_to(parent)?;
    }
    let mut command = Command::new(program);
    command.args(program_args);
    // Held until this process becomes the program. Then the kernel closes them, but each guard has
    // its own hold on its directory.
    let directories =
        set_up(args, &mut command).map_err(|failure| Failure::Run(Box::new(failure)))?;
    signals::as_before();
    let source = command.exec();
    drop(directories);
    Err(Failure::Execute { program: PathBuf::from(program), source })
}

/// Has the kernel kill this process, and the program that it becomes, when its parent ends.
fn bind_to(parent: i32) -> Result<(), Failure> {
    let failed = |reason: String| Failure::Argument { argument: "--bound-to".into(), reason };
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| failed(error.to_string()))?;
    // The parent may have ended before the kernel was asked.
    match getppid().map(Pid::as_raw_nonzero) {
        Some(its) if its.get() == parent => Ok(()),
        _ => Err(failed("this process has another parent".into())),
    }
}

fn set_up(args: &RunArgs, program: &mut Command) -> Result<Vec<PrivateDirectory>, Failure> {
    let library = library::find()?;
    let mpi = args.mpi.map(|name| mpi::find(name, program, &library)).transpose()?;
    let query = args.devices.as_deref().map(Query::parse).transpose().map_err(Failure::Query)?;
    let config = configured(args.nodes.as_deref())?;
    let given = args.directory.clone().map(PrivateDirectory::hold).transpose()?;
    let shared = share_logins(&config)?;
    if let Some(directory) = &shared {
        program.env(variable::SSH_SHARED.name, directory.path());
    }
    let wishes = Wishes {
        no_local: args.no_local,
        allow_missing: args.allow_missing,
        wait: Duration::from_secs(args.wait.unwrap_or_default()),
    };
    let found = find_nodes(&config, wishes)?;
    let query = match (&query, &config.devices) {
        (Some(query), _) => Some((query, "--devices")),
        (None, query) => query.as_ref().map(|query| (query, config::DEVICES_VARIABLE)),
    };
    check_devices(query, &found)?;
    if let Some(text) = &args.devices {
        program.env(config::DEVICES_VARIABLE, text);
    }
    if let Some(file) = &args.summary {
        program.env(variable::SUMMARY.name, summary_in(file.as_deref()));
    }
    let Found { nodes, directory, .. } = found;
    let is_given = given.is_some();
    let mut directories: Vec<_> = given.into_iter().chain(directory).chain(shared).collect();
    if directories.is_empty() {
        directories.push(guarded_directory()?);
    }
    // Any of them will do.
    let Some(directory) = directories.first() else { return Ok(directories) };
    if !is_given {
        directory.write(ENTRY_NAME, library::entry(&library))?;
    }
    // The path of the own socket may have what a list cannot have.
    let own = Some(Surroundings::of_process().own_socket());
    let own = own.filter(|path| !can_be_listed(path)).map(Address::unix);
    let listed = |node: &NodeAddress| match Some(&node.address) == own.as_ref() {
        true => config::LOCAL.to_owned(),
        false => node.to_string(),
    };
    let list: Vec<_> = if is_given {
        // What the program starts on another node finds the daemon there at another address.
        config.nodes.iter().map(listed).collect()
    } else {
        nodes.iter().map(|(node, _)| listed(node)).collect()
    };
    let list = list.join(",");
    show_pool(program, directory.path(), &list);
    cuda::show(program, &library, mpi.as_deref());
    Ok(directories)
}

/// Returns the value of `PENSTOCK_SUMMARY` for a summary in `file`, or on standard error.
fn summary_in(file: Option<&Path>) -> PathBuf {
    // A name without a folder could be one of the variable's words.
    file.map_or_else(
        || "1".into(),
        |file| std::path::absolute(file).unwrap_or_else(|_| file.into()),
    )
}

/// Makes a directory that a guard removes after this process has ended.
fn guarded_directory() -> Result<PrivateDirectory, Failure> {
    let directory = PrivateDirectory::create(&Surroundings::of_process())?;
    guard::start(&directory, false)?;
    Ok(directory)
}

/// Has this process share its SSH connections, so that a node costs one login and a person types a
/// password once. Their sockets lie in a directory whose guard ends the connections.
pub fn share_logins(config: &Config) -> Result<Option<PrivateDirectory>, Failure> {
    if !config.nodes.iter().any(|node| node.address.logs_in()) {
        return Ok(None);
    }
    let directory = guarded_directory()?;
    penstock_link::share_ssh_in(directory.path());
    Ok(Some(directory))
}

/// Refuses a pool that has no device for the program, before the program starts.
fn check_devices(query: Option<(&Query, &'static str)>, found: &Found) -> Result<(), Failure> {
    let count = |node: &NodeDescription| {
        node.platforms.iter().map(|platform| platform.devices.len()).sum::<usize>()
    };
    let all = found.nodes.iter().map(|(_, survey)| count(&survey.node)).sum();
    if all == 0 {
        // If other nodes have devices, the library in the program names the nodes that have none.
        for (node, survey) in &found.nodes {
            let why = survey
                .problem
                .as_deref()
                .unwrap_or("is an OpenCL driver installed there (clinfo -l)?");
            table::say(&format!("node {} has no devices: {why}", node.name));
        }
        return Err(Failure::NoDevices);
    }
    let nodes: Vec<_> =
        found.nodes.iter().map(|(node, survey)| (&node.address, &survey.node)).collect();
    match query {
        Some((query, by)) if select_described(query, &nodes).is_empty() => {
            Err(Failure::NoneSelected { by, all })
        }
        _ => Ok(()),
    }
}

/// The failure of a command that needs nodes when none are named.
pub fn no_nodes() -> Failure {
    Failure::NoNodes {
        path: Surroundings::of_process()
            .pool_file()
            .unwrap_or_else(|| "~/.config/penstock/pool.toml".into()),
    }
}

/// Loads the configuration. The list `nodes` of the command line, if given, replaces its nodes.
pub fn configured(nodes: Option<&str>) -> Result<Config, Failure> {
    let place = config::Where::Argument("--nodes");
    let wanted = nodes.map_or(Wanted::Configured, |list| Wanted::Listed { list, place: &place });
    Ok(Config::load_for(wanted, &Surroundings::of_process())?)
}

/// Makes the ICD loader of `program` find only Penstock (by the entry in `directory`), and Penstock
/// find `nodes`.
pub fn show_pool(program: &mut Command, directory: &Path, nodes: &str) {
    program.env(config::NODES_VARIABLE, nodes);
    let folder = library::vendors(directory);
    program.envs(library::VENDORS.map(|name| (name, &folder)));
    // This variable would add drivers to those of the directory, so that local devices appeared
    // twice.
    program.env_remove("OCL_ICD_FILENAMES");
}
