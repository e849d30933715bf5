//! Runs of several processes over each MPI that is installed. They must give the same results as
//! one process, and survive the end of a rank.
//!
//! There is no test harness: the same file is the program that the ranks run ([`program`]), started
//! by the MPI's launcher. The tests of one MPI run one after the other, because each starts up to
//! eight processes. A test that cannot run says why, and counts as skipped.

#[path = "../common/mod.rs"]
mod common;
mod launchers;
mod program;
mod timed;

use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use penstock_trial::{Need, is_required, patience};

use launchers::{Ended, Kind, Run};

/// The verdict of a test.
enum Verdict {
    Passed,
    Skipped(Need, String),
}

type Test = fn(Kind) -> Result<Verdict, String>;

/// The tests. Each runs for each MPI.
const TESTS: [(&str, Test); 18] = [
    ("transfers_of_many_sizes_arrive_unchanged", transfers),
    ("copies_go_from_rank_to_rank", copies),
    ("events_order_kernels_of_different_ranks", events),
    ("many_small_commands_end_in_their_order", commands),
    ("a_message_of_megabytes_arrives_in_its_turn", letters),
    ("a_failure_is_told_once_with_its_rank_and_log", failure),
    ("a_run_without_a_thread_works", unthreaded),
    ("wtrd_serves_a_program", daemons),
    ("a_killed_rank_fails_what_needed_it", killed),
    ("a_killed_rank_of_another_host_is_found_out_by_its_silence", silent),
    ("a_killed_root_ends_the_others", orphaned),
    ("a_rank_that_never_says_hello_is_told_at_once", vanished),
    ("a_stopped_rank_is_not_lost", stopped),
    ("perf_waiting_costs_nothing", idle),
    ("a_killed_rank_ends_the_run_where_the_launcher_says_so", cleaned_up),
    ("the_wrong_mpi_is_found_out", wrong_mpi),
    ("a_missing_shim_is_told_with_what_to_do", missing_shim),
    ("wtrd_says_what_it_is_for", alone),
];

fn main() -> ExitCode {
    if let Ok(case) = std::env::var(program::CASE) {
        return program::rank(&case);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let list = arguments.iter().any(|argument| argument == "--list");
    let filters: Vec<&String> =
        arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let (only_ignored, all) = (has("--ignored"), has("--include-ignored"));
    let chosen: &(dyn Fn(Kind, &str) -> Option<String> + Sync) = &|kind, name| {
        // As if it had the attribute `ignore`.
        let is_ignored = name.starts_with("perf_");
        if !all && is_ignored != only_ignored {
            return None;
        }
        let name = format!("{}::{name}", kind.name());
        (filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str())))
            .then_some(name)
    };
    let began = Instant::now();
    // Tests mostly wait, so the MPIs are tested in parallel.
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let runs =
            Kind::ALL.map(|kind| scope.spawn(move || one_after_the_other(kind, list, chosen)));
        runs.into_iter()
            .map(|run| run.join().unwrap_or(Tally { failed: 1, ..Tally::default() }))
            .collect()
    });
    if list {
        return ExitCode::SUCCESS;
    }
    let sum = |of: fn(&Tally) -> u32| tallies.iter().map(of).sum::<u32>();
    let (passed, failed, skipped) =
        (sum(|it| it.passed), sum(|it| it.failed), sum(|it| it.skipped));
    if failed == 0 {
        launchers::clean();
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    let took = began.elapsed().as_secs_f64();
    println!(
        "\ntest result: {verdict}. {passed} passed; {failed} failed; {skipped} ignored; 0 measured; 0 filtered out; finished in {took:.2}s"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Default)]
struct Tally {
    passed: u32,
    failed: u32,
    skipped: u32,
}

/// Runs the chosen tests of one MPI.
fn one_after_the_other(
    kind: Kind,
    list: bool,
    chosen: &(dyn Fn(Kind, &str) -> Option<String> + Sync),
) -> Tally {
    let mut tally = Tally::default();
    for (name, test) in TESTS {
        let Some(name) = chosen(kind, name) else { continue };
        if list {
            println!("{name}: test");
            continue;
        }
        let started = Instant::now();
        let verdict = if let Some(missing) = kind.missing() {
            Ok(Verdict::Skipped(Need::Mpi, missing))
        } else {
            test(kind)
        };
        let took = started.elapsed().as_secs_f64();
        match verdict {
            Ok(Verdict::Passed) => {
                tally.passed += 1;
                println!("test {name} ... ok ({took:.1} s)");
            }
            Ok(Verdict::Skipped(need, why)) if is_required(need) => {
                tally.failed += 1;
                println!("test {name} ... FAILED ({took:.1} s)\nmissing, and required: {why}");
            }
            Ok(Verdict::Skipped(_, why)) => {
                tally.skipped += 1;
                println!("test {name} ... SKIPPED: {why}");
            }
            Err(why) => {
                tally.failed += 1;
                println!("test {name} ... FAILED ({took:.1} s)\n{why}");
            }
        }
    }
    tally
}

/// Performs a run that must succeed.
fn good(run: Run) -> Result<Verdict, String> {
    judge(run.go()?)
}

fn judge(Ended { code, output, took }: Ended) -> Result<Verdict, String> {
    match code {
        Some(0) => {
            // These are figures that the root measured.
            for line in output.lines().filter_map(|line| line.split_once("figure: ")) {
                println!("     {}", line.1);
            }
            Ok(Verdict::Passed)
        }
        Some(program::SKIPPED) => {
            Ok(Verdict::Skipped(Need::OpenCl, "no OpenCL device (Debian: pocl-opencl-icd)".into()))
        }
        code => Err(format!("ended with {code:?} after {took:?}:\n{output}")),
    }
}

fn all(runs: impl IntoIterator<Item = Run>) -> Result<Verdict, String> {
    for run in runs {
        if let skipped @ Verdict::Skipped(..) = good(run)? {
            return Ok(skipped);
        }
    }
    Ok(Verdict::Passed)
}

fn transfers(kind: Kind) -> Result<Verdict, String> {
    let sizes = if kind == Kind::OpenMpi { vec![2, 8] } else { vec![2, 4] };
    let host = sizes.into_iter().map(|ranks| Run::new(kind, ranks, "transfers").devices("host"));
    all(host.chain([Run::new(kind, 4, "transfers").devices("opencl")]))
}

fn copies(kind: Kind) -> Result<Verdict, String> {
    all([
        Run::new(kind, 4, "copies").devices("host"),
        Run::new(kind, 2, "copies").devices("opencl"),
    ])
}

fn events(kind: Kind) -> Result<Verdict, String> {
    good(Run::new(kind, 4, "events").devices("opencl"))
}

fn commands(kind: Kind) -> Result<Verdict, String> {
    good(Run::new(kind, 4, "commands").devices("timed"))
}

fn letters(kind: Kind) -> Result<Verdict, String> {
    good(Run::new(kind, 2, "letters").devices("host"))
}

fn failure(kind: Kind) -> Result<Verdict, String> {
    good(Run::new(kind, 2, "failure").devices("opencl"))
}

fn unthreaded(kind: Kind) -> Result<Verdict, String> {
    all([
        Run::new(kind, 2, "transfers").devices("host").variable(program::PUMPED, "1"),
        Run::new(kind, 4, "commands").devices("timed").variable(program::PUMPED, "1"),
    ])
}

fn daemons(kind: Kind) -> Result<Verdict, String> {
    good(Run::new(kind, 3, "events").devices("opencl").with_daemons())
}

fn killed(kind: Kind) -> Result<Verdict, String> {
    lives_on(Run::new(kind, 4, "killed").devices("timed").surviving())
}

fn silent(kind: Kind) -> Result<Verdict, String> {
    if !launchers::can_unshare() {
        let why = "this user may not make name spaces of processes";
        return Ok(Verdict::Skipped(Need::ProcessNamespaces, why.into()));
    }
    lives_on(Run::new(kind, 3, "killed").devices("timed").far_apart())
}

/// Performs a run whose root must come to its end.
fn lives_on(run: Run) -> Result<Verdict, String> {
    let folder = run.folder();
    let mut ended = run.go()?;
    // When ranks may end, Open MPI's launcher always reports success and MPICH's always reports
    // failure, however the root has ended.
    let is_good = std::fs::read_to_string(folder.join("ended.0")).is_ok_and(|text| text == "ended");
    ended.code = ended.code.map(|_| i32::from(!is_good));
    judge(ended)
}

fn orphaned(kind: Kind) -> Result<Verdict, String> {
    let run = Run::new(kind, 3, "orphaned").devices("timed").surviving();
    let folder = run.folder();
    let ended = run.go()?;
    for rank in 1..3 {
        let text =
            std::fs::read_to_string(folder.join(format!("ended.{rank}"))).unwrap_or_default();
        if text != "ended" {
            return Err(format!(
                "rank {rank} did not end by itself when the root was killed:\n{text}\n{}",
                ended.output
            ));
        }
    }
    Ok(Verdict::Passed)
}

fn vanished(kind: Kind) -> Result<Verdict, String> {
    let run = Run::new(kind, 3, "vanished").devices("timed").surviving();
    let folder = run.folder();
    let ended = run.go()?;
    let text = std::fs::read_to_string(folder.join("refused")).unwrap_or_default();
    if !text.contains("rank 1 is lost before it said hello") {
        return Err(format!("after {:?} the root says `{text}`:\n{}", ended.took, ended.output));
    }
    Ok(Verdict::Passed)
}

fn stopped(kind: Kind) -> Result<Verdict, String> {
    good(Run::new(kind, 2, "stopped").devices("timed").variable("WTR_SILENCE", "2"))
}

fn idle(kind: Kind) -> Result<Verdict, String> {
    good(Run::new(kind, 3, "idle").devices("timed"))
}

/// Checks that the launchers end the other ranks, including the root, if nobody tells them
/// otherwise.
fn cleaned_up(kind: Kind) -> Result<Verdict, String> {
    let ended = Run::new(kind, 3, "killed").devices("timed").go()?;
    match ended.code {
        Some(0) => {
            Err(format!("the launcher calls a run good whose rank was killed:\n{}", ended.output))
        }
        None => Err(format!("the launcher did not end after {:?}:\n{}", ended.took, ended.output)),
        Some(_) => {
            println!(
                "     the launcher ended the run {:.1} s after its start",
                ended.took.as_secs_f64()
            );
            Ok(Verdict::Passed)
        }
    }
}

fn wrong_mpi(kind: Kind) -> Result<Verdict, String> {
    let other = kind.other();
    if let Some(missing) = other.missing() {
        return Ok(Verdict::Skipped(Need::Mpi, missing));
    }
    let ended = Run::new(kind, 2, "transfers")
        .devices("host")
        .variable("WTR_MPI", other.shim()?.to_string_lossy())
        .go()?;
    let expected = "the launcher is of another MPI";
    if ended.code == Some(0) || !ended.output.contains(expected) {
        return Err(format!("expected `{expected}`, got {:?}:\n{}", ended.code, ended.output));
    }
    Ok(Verdict::Passed)
}

fn missing_shim(kind: Kind) -> Result<Verdict, String> {
    let folder = launchers::scratch("no-shims");
    let ended = Run::new(kind, 2, "transfers")
        .devices("host")
        .variable("WTR_MPI", folder.to_string_lossy())
        .go()?;
    let expected = format!("is installed ({} on Debian)", kind.packages());
    if ended.code == Some(0) || !ended.output.contains(&expected) {
        return Err(format!("expected `{expected}`, got {:?}:\n{}", ended.code, ended.output));
    }
    Ok(Verdict::Passed)
}

fn alone(_: Kind) -> Result<Verdict, String> {
    for (argument, code, expected) in [
        (Some("--help"), 0, "Usage"),
        (Some("--version"), 0, env!("CARGO_PKG_VERSION")),
        (None, 2, "not started by an MPI launcher"),
        (Some("--nonsense"), 2, "--help"),
    ] {
        let mut command = std::process::Command::new(launchers::DAEMON);
        command.args(argument);
        let ended = launchers::go(command, patience())?;
        if ended.code != Some(code) || !ended.output.contains(expected) {
            return Err(format!(
                "wtrd {argument:?}: expected {code} and `{expected}`, got {:?}:\n{}",
                ended.code, ended.output
            ));
        }
    }
    Ok(Verdict::Passed)
}
