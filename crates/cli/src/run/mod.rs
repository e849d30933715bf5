//! `penstock run`: an OpenCL or CUDA program on the pool.
//!
//! Everything is prepared in a private directory (the entry for the ICD loader, perhaps a daemon's socket), then this
//! process *becomes* the program. So signals, job control, the exit status and the process id are the program's own, and
//! standard input and output are not touched. A [`guard`], which is no child of the program, removes the directory and
//! ends the daemon when the program has ended, in whatever way.

mod cuda;
pub mod guard;
pub mod library;
mod private;
mod probe;

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use penstock_client::config::{self, Config, NodeAddress, Source, Surroundings};
use penstock_client::{notice, select_described};
use penstock_link::LinkError;
use penstock_wire::describe::{NodeDescription, Survey};

use crate::args::RunArgs;
use crate::failure::Failure;
pub use private::PrivateDirectory;
pub use probe::{Described, Probed, is_this_host, probe_all, survey_all};

/// Sets the pool up and becomes the program.
pub fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let Some((program, program_args)) = args.program.split_first() else {
        return Err(Failure::Argument {
            argument: "PROGRAM".into(),
            reason: "name the program to run".into(),
        });
    };
    let mut command = Command::new(program);
    command.args(program_args);
    // Kept until this process is the program: then the kernel closes it, and the guard has its own hold on the directory.
    let directory =
        set_up(args, &mut command).map_err(|failure| Failure::Run(Box::new(failure)))?;
    let source = command.exec();
    drop(directory);
    Err(Failure::Execute { program: PathBuf::from(program), source })
}

fn set_up(args: &RunArgs, program: &mut Command) -> Result<PrivateDirectory, Failure> {
    let library = library::find()?;
    let config = configured(args.nodes.as_deref())?;
    let found = find_nodes(&config, args.no_local)?;
    check_devices(&config, &found)?;
    let Found { nodes, directory, .. } = found;
    let directory = match directory {
        Some(directory) => directory,
        None => {
            let directory = PrivateDirectory::create(&Surroundings::of_process())?;
            guard::start(&directory, false)?;
            directory
        }
    };
    directory.write("penstock.icd", &format!("{}\n", library.display()))?;
    let list = nodes.iter().map(|(node, _)| node.to_string()).collect::<Vec<_>>().join(",");
    show_pool(program, directory.path(), &list);
    cuda::show(program, &library);
    Ok(directory)
}

/// The nodes of the pool.
#[derive(Debug)]
pub struct Found {
    /// Those that answer, at least one, and what they are like.
    pub nodes: Vec<(NodeAddress, Survey)>,
    /// Those that do not, and why.
    pub silent: Vec<(NodeAddress, LinkError)>,
    /// If one of the nodes is for the local devices alone: its directory, guarded. It ends with this process.
    pub directory: Option<PrivateDirectory>,
}

/// Asks all nodes, names those that do not answer, one line each, and adds one for the devices of this host if no daemon of
/// the configuration has them.
pub fn find_nodes(config: &Config, no_local: bool) -> Result<Found, Failure> {
    let mut found = Found { nodes: Vec::new(), silent: Vec::new(), directory: None };
    found.sort(survey_all(config, &config.nodes), config);
    // Who names a node on this host has its devices by it or not at all. But nobody has asked for the nodes of an
    // allocation or for the own daemon: if this host's does not run, its devices are wanted none the less.
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
                    eprintln!("penstock: node {} is left out: {why}", node.name);
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
        // Where others have devices, the library in the program names those that have none.
        for (node, survey) in &found.nodes {
            let why = survey
                .problem
                .as_deref()
                .unwrap_or("is an OpenCL driver installed there (clinfo -l)?");
            eprintln!("penstock: node {} has no devices: {why}", node.name);
        }
        return Err(Failure::NoDevices);
    }
    let nodes: Vec<_> =
        found.nodes.iter().map(|(node, survey)| (&node.address, &survey.node)).collect();
    match &config.devices {
        Some(query) if select_described(query, &nodes).is_empty() => {
            Err(Failure::NoneSelected { all })
        }
        _ => Ok(()),
    }
}

/// The failure of a command that needs nodes where none are named.
pub fn no_nodes() -> Failure {
    Failure::NoNodes {
        path: Surroundings::of_process()
            .pool_file()
            .unwrap_or_else(|| "~/.config/penstock/pool.toml".into()),
    }
}

/// The configuration, with the nodes of the command line if it names any.
pub fn configured(nodes: Option<&str>) -> Result<Config, Failure> {
    let mut config = Config::load()?;
    if let Some(list) = nodes {
        let place = config::Where::Argument("--nodes");
        config.nodes = config::nodes::read_list_at(list, &place, &Surroundings::of_process())?;
        config.source = Source::Variable;
    }
    Ok(config)
}

/// Makes the ICD loader of `program` find Penstock (by the entry in `directory`) and nothing else, and Penstock find `nodes`.
pub fn show_pool(program: &mut Command, directory: &Path, nodes: &str) {
    program.env(config::NODES_VARIABLE, nodes);
    // "OCL_ICD_VENDORS" is understood by ocl-icd and by the Khronos loader, the other one by their older versions.
    program
        .env("OCL_ICD_VENDORS", vendors(directory))
        .env("OPENCL_VENDOR_PATH", vendors(directory));
    // This one would add drivers to the directory's: local devices would be seen twice.
    program.env_remove("OCL_ICD_FILENAMES");
}

/// ocl-icd takes a path for a directory only if it is one; the Khronos loader puts a file's name straight behind some
/// versions of it, so that the last slash is needed.
fn vendors(directory: &Path) -> impl AsRef<OsStr> {
    let mut path = directory.as_os_str().to_owned();
    path.push("/");
    path
}
