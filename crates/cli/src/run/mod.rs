//! `penstock run`: an OpenCL or CUDA program on the pool.
//!
//! Everything is prepared in a private directory (the entry for the ICD loader, perhaps a daemon's
//! socket). Then this process *becomes* the program. So signals, job control, the exit status and
//! the process id are the program's own, and standard input and output are untouched. However the
//! program ends, a [`guard`], which is not its child, then removes the directory and ends the
//! daemon.

pub mod cuda;
pub mod guard;
pub mod library;
mod mpi;
mod private;
mod probe;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use penstock_client::config::{self, Config, NodeAddress, Source, Surroundings, Wanted};
use penstock_client::{notice, select_described};
use penstock_link::LinkError;
use penstock_process::variable;
use penstock_wire::describe::{NodeDescription, Survey};

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::table;
use crate::words;
pub use private::PrivateDirectory;
pub use probe::{Described, Probed, is_this_host, keys_for, probe_all, survey_all};

/// Sets the pool up and becomes the program.
pub fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let (program, program_args) = words::split("run", &args.program)?;
    let mut command = Command::new(program);
    command.args(program_args);
    // Held until this process becomes the program. Then the kernel closes them, but each guard has
    // its own hold on its directory.
    let directories =
        set_up(args, &mut command).map_err(|failure| Failure::Run(Box::new(failure)))?;
    let source = command.exec();
    drop(directories);
    Err(Failure::Execute { program: PathBuf::from(program), source })
}

fn set_up(args: &RunArgs, program: &mut Command) -> Result<Vec<PrivateDirectory>, Failure> {
    let library = library::find()?;
    let mpi = args.mpi.map(|name| mpi::find(name, program, &library)).transpose()?;
    let config = configured(args.nodes.as_deref())?;
    let shared = share_logins(&config, program)?;
    let found = find_nodes(&config, args.no_local)?;
    check_devices(&config, &found)?;
    let Found { nodes, directory, .. } = found;
    let mut directories: Vec<_> = directory.into_iter().chain(shared).collect();
    if directories.is_empty() {
        directories.push(guarded_directory()?);
    }
    // Any of them will do.
    let Some(directory) = directories.first() else { return Ok(directories) };
    directory.write("penstock.icd", &format!("{}\n", library.display()))?;
    let list = nodes.iter().map(|(node, _)| node.to_string()).collect::<Vec<_>>().join(",");
    show_pool(program, directory.path(), &list);
    cuda::show(program, &library, mpi.as_deref());
    Ok(directories)
}

/// Makes a directory that a guard removes after this process has ended.
fn guarded_directory() -> Result<PrivateDirectory, Failure> {
    let directory = PrivateDirectory::create(&Surroundings::of_process())?;
    guard::start(&directory, false)?;
    Ok(directory)
}

/// Has this process and the program share their SSH connections, so that a node costs one login and
/// a person types a password once. Their sockets lie in a directory whose guard ends the
/// connections.
fn share_logins(
    config: &Config,
    program: &mut Command,
) -> Result<Option<PrivateDirectory>, Failure> {
    if !config.nodes.iter().any(|node| node.address.logs_in()) {
        return Ok(None);
    }
    let directory = guarded_directory()?;
    penstock_link::share_ssh_in(directory.path());
    program.env(variable::SSH_SHARED.name, directory.path());
    Ok(Some(directory))
}

#[derive(Debug)]
pub struct Found {
    /// Nodes that answer, at least one, and what their daemons know of them.
    pub nodes: Vec<(NodeAddress, Survey)>,
    /// Nodes that do not answer, and why.
    pub silent: Vec<(NodeAddress, LinkError)>,
    /// Guarded directory of the daemon that serves only the local devices, if there is one. The
    /// daemon ends with this process.
    pub directory: Option<PrivateDirectory>,
}

/// Asks all nodes what they have and names each node that does not answer in one line. Adds a
/// daemon for the devices of this host if no daemon of the configuration has them.
pub fn find_nodes(config: &Config, no_local: bool) -> Result<Found, Failure> {
    let mut found = Found { nodes: Vec::new(), silent: Vec::new(), directory: None };
    found.sort(survey_all(config, &config.nodes), config);
    // If the user names a node on this host, its devices come from that node or not at all. But no
    // user names the nodes of an allocation or the own daemon: if the daemon of this host does not
    // run, its devices are still wanted.
    let is_here = match config.source {
        Source::Slurm | Source::OwnDaemon => found.nodes.iter().any(|(node, _)| is_this_host(node)),
        _ => config.nodes.iter().any(is_this_host),
    };
    if !no_local && !is_here {
        let directory = PrivateDirectory::create(&Surroundings::of_process())?;
        if let Some(socket) = guard::start(&directory, true)? {
            let others = std::mem::take(&mut found.nodes);
            found.sort(survey_all(config, &[NodeAddress::unix("local", socket)]), config);
            found.nodes.extend(others);
        }
        found.directory = Some(directory);
    }
    match (found.nodes.is_empty(), config.nodes.is_empty() && found.silent.is_empty()) {
        (false, _) => Ok(found),
        (true, true) => Err(no_nodes()),
        (true, false) => Err(Failure::NoneAnswers),
    }
}

impl Found {
    fn sort(&mut self, described: Vec<Described>, config: &Config) {
        for Described { node, answer } in described {
            match answer {
                Ok(survey) => self.nodes.push((node, survey)),
                Err(reason) => {
                    let why = notice::why_absent(&reason, config.timeout);
                    table::say(&format!("node {} is left out: {why}", node.name));
                    self.silent.push((node, reason));
                }
            }
        }
    }
}

/// Refuses a pool that has no device for the program, before the program starts.
fn check_devices(config: &Config, found: &Found) -> Result<(), Failure> {
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
    match &config.devices {
        Some(query) if select_described(query, &nodes).is_empty() => {
            Err(Failure::NoneSelected { by: config::DEVICES_VARIABLE, all })
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
