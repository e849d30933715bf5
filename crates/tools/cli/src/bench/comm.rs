//! `penstock bench comm`: the cost of communication between devices.

use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use penstock_bench::comm::{Progress, Results, Tools, cores_each, measure_hosts, memcpy};
use penstock_bench::device::{self, Nodes};
use penstock_bench::host::rank;
use penstock_bench::plan::{self, Kind, Path as Way, Plan};
use penstock_bench::point::Joules;
use penstock_bench::{chart, summary};
use penstock_client::config::{KEY_VARIABLE, Surroundings};
use penstock_link::{Address, Key};
use penstock_process::variable;
use serde_json::{Value, json};

use super::show;
use crate::args::CommArgs;
use crate::embedded::Embedded;
use crate::failure::Failure;
use crate::run::{PrivateDirectory, guard};
use crate::table;

/// PoCL's variable for the number of cores that a device uses.
const POCL_CORES_VARIABLE: &str = "POCL_MAX_PTHREAD_COUNT";

/// Measures, or acts as one process of a measurement.
pub fn comm(args: &CommArgs) -> Result<ExitCode, Failure> {
    if let Some((file, number)) = args.as_rank.split_first() {
        let number = number.first().and_then(|text| text.to_str()?.parse().ok());
        rank::run(file, number).map_err(|error| Failure::Program {
            what: "a process of a host path".to_owned(),
            how: error.to_string(),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let plan = plan(args)?;
    if args.require_energy {
        let joules = Joules::open(0.0).map_err(|error| Failure::Measure(error.to_string()))?;
        if joules.seconds_min().is_none() {
            let reason = "no energy can be measured; `penstock energy` says why for each source";
            return Err(Failure::Measure(reason.to_owned()));
        }
    }
    if let Some(path) = &args.svg {
        // A file that cannot be written is reported now, not after minutes of measurement.
        std::fs::write(path, "").map_err(Failure::file(path, "write"))?;
    }
    let directory = PrivateDirectory::create(&Surroundings::of_process())?;
    // The guard removes the directory, also if this process is interrupted.
    guard::start(&directory, false)?;
    let results = measure(&plan, &directory)?;
    directory.remove();
    if let Some(path) = &args.svg {
        std::fs::write(path, chart::svg(&results, plan.word))
            .map_err(Failure::file(path, "write"))?;
    }
    let has_energy = results.points.iter().any(|point| point.energy.joules.is_some());
    let text = if args.json {
        format!("{:#}\n", document(&plan, &results))
    } else {
        show::tables(&plan, &results, args.bars)
    };
    table::print(&text)?;
    // A counter can become unreadable during the measurement.
    if args.require_energy && !has_energy {
        let told = results.points.iter().find_map(|point| point.energy.unavailable.clone());
        let reason = told.unwrap_or_else(|| "nothing was measured".to_owned());
        return Err(Failure::Measure(format!(
            "no energy was measured: {reason}; `penstock energy` says more"
        )));
    }
    Ok(if results.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn plan(args: &CommArgs) -> Result<Plan, Failure> {
    let mut plan = Plan::usual(args.quick);
    if !args.path.is_empty() {
        plan.paths.retain(|path| args.path.iter().any(|name| name == path.name()));
    }
    if !args.sizes.is_empty() {
        plan.sizes.clone_from(&args.sizes);
        plan.sizes.sort_unstable();
        plan.sizes.dedup();
    }
    if !args.devices.is_empty() {
        plan.devices.clone_from(&args.devices);
        plan.devices.sort_unstable();
        plan.devices.dedup();
    }
    plan.word = args.word;
    plan.gpus = args.gpus;
    plan.seconds = args.seconds.unwrap_or(plan.seconds);
    let is_time = (0.01..=600.0).contains(&plan.seconds);
    let wrong = |argument: &str, reason: String| Failure::Argument {
        argument: argument.to_owned(),
        reason,
    };
    if !is_time {
        return Err(wrong(
            "--seconds",
            format!("{} s is out of range: give 0.01 to 600 seconds", plan.seconds),
        ));
    }
    plan.check().map_err(|error| wrong("bench comm", error.to_string()))?;
    Ok(plan)
}

fn measure(plan: &Plan, directory: &PrivateDirectory) -> Result<Results, Failure> {
    let program = std::env::current_exe().map_err(Failure::file("penstock".as_ref(), "find"))?;
    let mut results = Results::default();
    let line = Line::new();
    let mut watch = |progress: Progress<'_>| line.show(&progress);
    if plan.kinds.contains(&Kind::Bandwidth) {
        results.memcpy = memcpy(&plan.sizes);
    }
    let key = directory.path().join("key");
    let mut started = 0;
    let mut nodes = |count: u32, over_tcp: bool| {
        started += 1;
        start_nodes(directory, &key, started, count, over_tcp)
            .map_err(|failure| failure.to_string())
    };
    device::measure(plan, &mut nodes, &mut results, &mut watch);
    let shims = shims(&program);
    let tools = Tools {
        program: &program,
        arguments: &["bench", "comm", "--as-rank"],
        directory: directory.path(),
        shims: &shims,
    };
    measure_hosts(plan, &tools, &mut results, &mut watch);
    line.clear();
    Ok(results)
}

/// Starts daemons with one device each, which share the cores.
fn start_nodes(
    directory: &PrivateDirectory,
    key: &Path,
    started: u32,
    count: u32,
    over_tcp: bool,
) -> Result<Nodes, Failure> {
    if over_tcp && !key.exists() {
        Key::create(key)?;
    }
    let cores = PathBuf::from(cores_each(count).to_string());
    let mut nodes = Nodes { addresses: Vec::new(), key: None, daemons: Vec::new() };
    for index in 0..count {
        let socket = directory.path().join(format!("{started}-{index}.sock"));
        let listen = if over_tcp {
            "tcp:127.0.0.1:0".to_owned()
        } else {
            format!("unix:{}", socket.display())
        };
        let log = directory.path().join(format!("{started}-{index}.log"));
        let variables = [(KEY_VARIABLE, key), (POCL_CORES_VARIABLE, cores.as_path())];
        let variables = if over_tcp { &variables[..] } else { &variables[1..] };
        let daemon = Embedded::start(&listen, variables, log)?;
        let address: Address =
            daemon.address().parse().map_err(|_| Failure::Embedded(daemon.address().to_owned()))?;
        nodes.addresses.push(address);
        nodes.daemons.push(Box::new(daemon));
    }
    nodes.key = over_tcp.then(|| Key::load(key)).transpose()?;
    Ok(nodes)
}

/// Returns where libWater's MPI shims may be: in the user's directory, beside this program, and
/// where packages install them.
fn shims(program: &Path) -> Vec<PathBuf> {
    let beside = program.parent().map(Path::to_path_buf);
    let packaged = beside.as_deref().and_then(Path::parent).map(|above| above.join("lib/penstock"));
    variable::PROGRAMS.path().into_iter().chain(beside).chain(packaged).collect()
}

fn document(plan: &Plan, results: &Results) -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "word_bytes": plan.word,
        "window": { "messages_max": plan::WINDOW, "bytes": plan::WINDOW_BYTES },
        "plan": plan,
        "parties": results.parties,
        "points": results.points,
        "memcpy": results.memcpy,
        "without": results.without,
        "ratios": summary::ratios(results),
        "bars": summary::bars(results),
    })
}

/// The progress line. It is shown only if standard error is a terminal.
struct Line {
    is_shown: bool,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("is_shown", &self.is_shown).finish()
    }
}

impl Line {
    fn new() -> Self {
        Self { is_shown: std::io::stderr().is_terminal() }
    }

    fn show(&self, progress: &Progress<'_>) {
        match progress {
            Progress::Without(without) => {
                self.clear();
                let paths: Vec<_> = without.paths.iter().map(|path| Way::name(*path)).collect();
                let paths = paths.join(", ");
                let word = if without.is_failure { "failed" } else { "skipped" };
                let (devices, reason) = (without.devices, table::printable(&without.reason));
                table::say(&format!("{word}: {paths} with {devices} devices: {reason}"));
            }
            Progress::Begin { kind, path, bytes, devices } if self.is_shown => {
                let what = match kind {
                    Kind::Barrier => format!("of {devices}"),
                    _ => table::bytes(*bytes),
                };
                eprint!("\r\x1b[K{} {path} {what}", kind.name());
                _ = std::io::stderr().flush();
            }
            Progress::Begin { .. } => {}
        }
    }

    fn clear(&self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
            _ = std::io::stderr().flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> CommArgs {
        use clap::Parser as _;
        let words = ["penstock", "bench", "comm"].iter().chain(words);
        match crate::args::Cli::parse_from(words).command {
            crate::args::Command::Bench(args) => match args.command {
                Some(crate::args::BenchCommand::Comm(args)) => args,
                None => panic!("no subcommand"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_becomes_the_plan() {
        let plan = plan(&args(&[
            "--path",
            "proxy",
            "--path",
            "device",
            "--sizes",
            "64,8,64",
            "--devices",
            "4",
        ]))
        .unwrap();
        assert_eq!(
            (plan.paths, plan.sizes, plan.devices),
            (vec![Way::Device, Way::Proxy], vec![8, 64], vec![4])
        );
        let usual = super::plan(&args(&[])).unwrap();
        assert_eq!((usual.paths.len(), usual.sizes.len(), usual.word), (6, 11, 8));
    }

    #[test]
    fn what_cannot_be_measured_is_refused_before_anything_is() {
        for words in [["--sizes", "7"], ["--devices", "1"], ["--seconds", "0"], ["--word", "0"]] {
            assert!(matches!(plan(&args(&words)), Err(Failure::Argument { .. })), "{words:?}");
        }
    }

    #[test]
    fn the_document_has_null_where_nothing_was_measured() {
        let plan = Plan::usual(true);
        let text = document(&plan, &Results::default());
        assert_eq!(text["bars"][0]["found"], Value::Null);
        assert_eq!(text["word_bytes"], 8);
    }
}
