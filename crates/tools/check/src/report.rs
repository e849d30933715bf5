//! Shrinks a failing program and writes it to a file.

use std::time::Duration;

use crate::args::CheckArgs;
use crate::campaign::{Outcome, Starter, Worker};
use crate::finding::{Finding, Kind};
use crate::interface::{Interface, Plan as _, act_name};
use crate::message::Request;
use crate::plan::Platform;
use crate::shrink::{self, Judge};

/// Largest number of runs of one candidate. A program that fails less often can hardly be shrunk.
const RUNS_MAX: usize = 120;

/// Shrinks a program and writes it into the folder of the command line. Calls `written` with the
/// file and its size.
pub fn write<I: Interface>(
    args: &CheckArgs,
    starter: &Starter,
    platform: &Platform<I::Device>,
    program: &I::Program,
    finding: &Finding,
    written: &mut dyn FnMut(String, usize),
) {
    let (small, finding) = if args.shrink_seconds > 0 {
        smaller::<I>(args, starter, platform, program, finding)
    } else {
        (program.clone(), finding.clone())
    };
    let act = act_name::<I>(&small, finding.op).to_lowercase();
    let name = format!("{}-{act}-{}", finding.kind.name().replace(' ', "-"), program.seed());
    let path = args.out.join(format!("{name}.{}", I::EXTENSION));
    let Some(text) = I::print(&small, platform, &finding) else { return };
    let json = serde_json::to_string(&small).unwrap_or_default();
    let kept = std::fs::create_dir_all(&args.out)
        .and_then(|()| std::fs::write(&path, text))
        .and_then(|()| std::fs::write(args.out.join(format!("{name}.json")), json));
    match kept {
        Ok(()) => written(path.display().to_string(), small.ops().len()),
        Err(error) => eprintln!("penstock-check: {}: {error}", path.display()),
    }
}

fn smaller<I: Interface>(
    args: &CheckArgs,
    starter: &Starter,
    platform: &Platform<I::Device>,
    program: &I::Program,
    finding: &Finding,
) -> (I::Program, Finding) {
    let mut judge = Runs::<I> {
        starter: starter.patient(args.hang_seconds.min(I::TRYING.hang_seconds)),
        kind: finding.kind,
        worker: None,
        runs: 1,
        last: None,
    };
    let mut failures = 0;
    // Each run of these kinds takes as long as the time-out.
    let slow = matches!(finding.kind, Kind::Hang | Kind::WrongCallback);
    let trials = if slow { 3 } else { I::TRYING.trials };
    for _ in 0..trials {
        failures += usize::from(judge.fails(program));
    }
    if failures == 0 {
        eprintln!(
            "seed {}: it did not fail again in {trials} runs and stays as it is",
            program.seed()
        );
        return (program.clone(), finding.clone());
    }
    // With this number, a program that fails as often as the original passes all runs once in
    // twenty times.
    let runs = if failures == trials { 1 } else { trials * 3 / failures };
    judge.runs = runs.clamp(I::TRYING.runs_min, RUNS_MAX);
    let time = Duration::from_secs(args.shrink_seconds);
    let (small, tried) = shrink::shrink::<I>(program, platform, finding.op, &mut judge, time);
    eprintln!(
        "seed {}: fails in {failures} of {trials} runs; {} operations made {} by {tried} candidates",
        program.seed(),
        program.ops().len(),
        small.ops().len()
    );
    let finding = match judge.last.take() {
        Some((program, seen)) if program == small => seen,
        _ => finding.clone(),
    };
    (small, finding)
}

/// Runs candidates in a child.
struct Runs<I: Interface> {
    starter: Starter,
    kind: Kind,
    worker: Option<Worker<I>>,
    runs: usize,
    /// The last program that failed, and its finding.
    last: Option<(I::Program, Finding)>,
}

impl<I: Interface> Judge<I> for Runs<I> {
    fn fails(&mut self, program: &I::Program) -> bool {
        let request = Request::Program { program: Box::new(program.clone()), times: self.runs };
        let worker = match self.worker.take() {
            Some(worker) => Ok(worker),
            None => Worker::start(&self.starter, program.seed()).map(|(worker, _)| worker),
        };
        let Ok(mut worker) = worker else { return false };
        match worker.ask(&request, &|_| true) {
            Outcome::Clean => {
                self.worker = Some(worker);
                false
            }
            Outcome::Found(_, finding) if finding.kind == self.kind => {
                self.last = Some((program.clone(), finding));
                true
            }
            _ => false,
        }
    }
}
