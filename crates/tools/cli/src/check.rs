//! `penstock check`: random programs on a driver, or on the client's memory model alone.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use penstock_coherence::explore;

/// Number of programs that run if the command line gives neither a number nor a time.
const PROGRAMS_DEFAULT: u64 = 100_000;
/// With one turn, all programs of three operations take about a minute.
const TURNS_DEFAULT: usize = 1;
/// Time between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

#[derive(Args, Clone, Debug)]
pub struct CheckCommand {
    /// Run small programs on the client's memory model alone, without a driver; uses --seed,
    /// --programs and --seconds
    #[arg(long)]
    machine: bool,
    /// With --machine: run all programs of up to this many operations instead of random ones
    #[arg(long, requires = "machine", value_name = "OPERATIONS")]
    exhaustive: Option<usize>,
    /// With --exhaustive: number of points in a run at which a step other than the first possible
    /// one is taken
    #[arg(long, requires = "exhaustive", value_name = "NUMBER", default_value_t = TURNS_DEFAULT)]
    turns: usize,
    #[command(flatten)]
    driver: penstock_check::args::CheckArgs,
}

/// Runs the command. The exit status is 0 without a finding, and 1 with one.
pub fn run(command: &CheckCommand) -> ExitCode {
    if command.machine {
        machine(command)
    } else {
        penstock_check::main(&command.driver, &["check"])
    }
}

fn machine(command: &CheckCommand) -> ExitCode {
    let args = &command.driver;
    let programs = match (args.programs, args.seconds) {
        (Some(programs), _) => programs,
        (None, Some(_)) => u64::MAX,
        (None, None) if command.exhaustive.is_some() => u64::MAX,
        (None, None) => PROGRAMS_DEFAULT,
    };
    let limit = args.programs.is_none().then_some(args.seconds).flatten().map(Duration::from_secs);
    let began = Instant::now();
    let mut told = Duration::ZERO;
    let mut go_on = |done: u64| {
        let elapsed = began.elapsed();
        if elapsed >= told + PROGRESS_EVERY {
            told = elapsed;
            eprintln!("{} s: {done} programs, no finding", elapsed.as_secs());
        }
        done < programs && limit.is_none_or(|limit| elapsed < limit)
    };
    let report = match command.exhaustive {
        Some(ops) => {
            explore::run_all(explore::Bounds { ops, turns: command.turns }, None, &mut go_on)
        }
        None => explore::run(args.seed, programs, None, &mut go_on),
    };
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} programs with {} operations in {seconds:.1} s ({:.0} programs per second): {}",
        report.programs,
        report.ops,
        report.programs as f64 / seconds.max(f64::MIN_POSITIVE),
        if report.finding.is_some() { "1 finding" } else { "no finding" }
    );
    println!(
        "{} runs; {} of them held commands back; {} transfers between places; {} copies in place",
        report.runs, report.with_held, report.transfers, report.in_place
    );
    match report.finding {
        Some(finding) => {
            println!("{finding}");
            ExitCode::from(1)
        }
        None => ExitCode::SUCCESS,
    }
}
