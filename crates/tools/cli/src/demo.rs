//! `penstock demo`: a matrix product on the local platform, then on a pool of two nodes on this
//! host.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use penstock_client::config::{KEY_VARIABLE, NODES_VARIABLE, Surroundings};
use penstock_link::Key;

use crate::args::DemoArgs;
use crate::embedded::Embedded;
use crate::failure::Failure;
use crate::programs;
use crate::run::{PrivateDirectory, guard, library, show_pool};
use crate::table;

/// The program: plain OpenCL, linked only with `libOpenCL.so`.
const PROGRAM: &str = "matmul";

/// PoCL's variable for the number of cores that a device uses.
const POCL_CORES_VARIABLE: &str = "POCL_MAX_PTHREAD_COUNT";

/// Runs the program on the local platform and then on the pool.
pub fn demo(args: &DemoArgs) -> Result<ExitCode, Failure> {
    let program = programs::find(PROGRAM)?;
    std::fs::create_dir_all(&args.output).map_err(Failure::file(&args.output, "create"))?;
    let library = library::find()?;
    let directory = PrivateDirectory::create(&Surroundings::of_process())?;
    // The guard removes the directory, also if this process is interrupted.
    guard::start(&directory, false)?;
    let key = directory.path().join("key");
    Key::create(&key)?;
    let nodes = start_nodes(&directory, &key)?;
    let list = nodes.iter().map(Embedded::address).collect::<Vec<_>>().join(",");

    table::print(&format!(
        "The same program twice: {}\n\n1. On the local platform\n\n",
        program.display()
    ))?;
    let local = timeline(args, "local")?;
    let mut command = program_command(&program, args, &local);
    // The local run must not use the pool, even if Penstock is installed on this host.
    programs::finish(command.env(NODES_VARIABLE, "none"), "the program on the local platform")?;

    table::print(&format!("\n2. On a pool of two nodes, each with half of the cores: {list}\n\n"))?;
    let pool = timeline(args, "pool")?;
    let mut command = program_command(&program, args, &pool);
    directory.write("penstock.icd", library::entry(&library))?;
    show_pool(&mut command, directory.path(), &list);
    programs::finish(command.env(KEY_VARIABLE, &key), "the program on the pool")?;
    table::print("\nThe timelines show what ran on which device, when: open them in a browser.\n")?;
    Ok(ExitCode::SUCCESS)
}

/// Starts two daemons: one behind a Unix socket, one behind TCP.
fn start_nodes(directory: &PrivateDirectory, key: &Path) -> Result<[Embedded; 2], Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let half = PathBuf::from((cores / 2).max(1).to_string());
    let socket = format!("unix:{}", directory.path().join("node.sock").display());
    let start = |listen: &str, log: &str| {
        let variables = [(KEY_VARIABLE, key), (POCL_CORES_VARIABLE, half.as_path())];
        Embedded::start(listen, &variables, directory.path().join(log))
    };
    Ok([start(&socket, "1.log")?, start("tcp:127.0.0.1:0", "2.log")?])
}

fn timeline(args: &DemoArgs, name: &str) -> Result<PathBuf, Failure> {
    let directory =
        std::path::absolute(&args.output).map_err(Failure::file(&args.output, "find"))?;
    Ok(directory.join(format!("matmul-{name}.svg")))
}

fn program_command(program: &Path, args: &DemoArgs, timeline: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--timeline").arg(timeline).args(&args.program_args);
    command
}
