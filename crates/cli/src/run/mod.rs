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

use crate::args::RunArgs;
use crate::failure::Failure;
pub use private::PrivateDirectory;
pub use probe::{Probed, is_this_host, probe_all};

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
    let directory = set_up(args, &mut command).map_err(|failure| Failure::Run(Box::new(failure)))?;
    let source = command.exec();
    drop(directory);
    Err(Failure::Execute { program: PathBuf::from(program), source })
}

fn set_up(args: &RunArgs, program: &mut Command) -> Result<PrivateDirectory, Failure> {
    let library = library::find()?;
    let config = configured(args.nodes.as_deref())?;
    let Found { nodes, directory, .. } = find_nodes(&config, args.no_local)?;
    let directory = match directory {
        Some(directory) => directory,
        None => {
            let directory = PrivateDirectory::create(&Surroundings::of_process())?;
            guard::start(&directory, false)?;
            directory
        }
    };
    directory.write("penstock.icd", &format!("{}\n", library.display()))?;
    let list = nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    show_pool(program, directory.path(), &list);
    cuda::show(program, &library);
    Ok(directory)
}

/// The nodes of the pool.
#[derive(Debug)]
pub struct Found {
    /// Those that answer, at least one.
    pub nodes: Vec<NodeAddress>,
    /// Those that do not.
    pub silent: Vec<Probed>,
    /// If one of the nodes is for the local devices alone: its directory, guarded. It ends with this process.
    pub directory: Option<PrivateDirectory>,
}

/// Asks all nodes, names those that do not answer, one line each, and adds one for the devices of this host if no daemon of
/// the configuration has them.
pub fn find_nodes(config: &Config, no_local: bool) -> Result<Found, Failure> {
    let (answering, silent): (Vec<_>, Vec<_>) =
        probe_all(config).into_iter().partition(|probed| probed.answer.is_ok());
    for Probed { node, answer } in &silent {
        if let Err(reason) = answer {
            eprintln!("penstock: node {} is left out: {reason}", node.name);
        }
    }
    let mut nodes: Vec<_> = answering.into_iter().map(|probed| probed.node).collect();
    // Who names a node on this host has its devices by it or not at all. But nobody has asked for the nodes of an
    // allocation or for the own daemon: if this host's does not run, its devices are wanted none the less.
    let named = match config.source {
        Source::Slurm | Source::OwnDaemon => &nodes,
        _ => &config.nodes,
    };
    let mut directory = None;
    if !no_local && !named.iter().any(is_this_host) {
        let directory = directory.insert(PrivateDirectory::create(&Surroundings::of_process())?);
        let socket = guard::start(directory, true)?;
        nodes.splice(0..0, socket.map(|socket| NodeAddress::unix("local", socket)));
    }
    match (nodes.is_empty(), config.nodes.is_empty()) {
        (false, _) => Ok(Found { nodes, silent, directory }),
        (true, true) => Err(no_nodes()),
        (true, false) => Err(Failure::NoneAnswers),
    }
}

/// The failure of a command that needs nodes where none are named.
pub fn no_nodes() -> Failure {
    Failure::NoNodes {
        path: Surroundings::of_process().pool_file().unwrap_or_else(|| "~/.config/penstock/pool.toml".into()),
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
    program.env("OCL_ICD_VENDORS", vendors(directory)).env("OPENCL_VENDOR_PATH", vendors(directory));
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
