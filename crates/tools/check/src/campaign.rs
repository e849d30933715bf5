//! A campaign runs many programs in child processes.

mod worker;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use penstock_process::Lock;
use serde::Serialize;

use crate::args::CheckArgs;
use crate::feature::Named as _;
use crate::finding::Finding;
use crate::interface::{Interface, Plan as _, act_name};
use crate::message::Request;
use crate::plan::Platform;
pub use worker::{Outcome, Starter, Worker};

/// Exit status: nothing was found.
pub const CLEAN: u8 = 0;
/// Exit status: something was found.
pub const FOUND: u8 = 1;
/// Exit status: no program could be run.
pub const UNABLE: u8 = 2;
/// Number of programs that a child runs before the next child starts. What a child leaks ends
/// with it.
const BATCH: u64 = 250;
/// Default duration of a campaign, in seconds.
const SECONDS_DEFAULT: u64 = 60;

#[derive(Clone, Debug)]
pub struct Found {
    pub seed: u64,
    pub finding: Finding,
    /// Time since the start of the campaign.
    pub after: Duration,
    /// Number of programs that had run.
    pub programs: u64,
}

#[derive(Serialize)]
struct Summary<'a> {
    platform: &'a str,
    version: &'a str,
    devices: Vec<&'a str>,
    programs: u64,
    seconds: f64,
    left_out: Vec<&'static str>,
    findings: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    seed: u64,
    kind: &'static str,
    act: String,
    what: String,
    after_seconds: f64,
    after_programs: u64,
    file: Option<String>,
    operations: Option<usize>,
}

/// Runs a campaign. `prefix` precedes the arguments of a child: the name of the subcommand, if this
/// program is one.
pub fn campaign<I: Interface>(args: &CheckArgs, prefix: &[&str]) -> ExitCode {
    let features = match args.features::<I::Feature>() {
        Ok(features) => features,
        Err(reason) => {
            eprintln!("penstock-check: {reason}");
            return ExitCode::from(UNABLE);
        }
    };
    let starter = Starter::new(args, prefix);
    let platform = match Worker::<I>::start(&starter, args.seed) {
        Ok((_, platform)) => platform,
        Err(reason) => {
            eprintln!("penstock-check: {reason}");
            return ExitCode::from(UNABLE);
        }
    };
    eprintln!("{} ({}): {} devices", platform.name, platform.version, platform.devices.len());
    if let Some(file) = &args.replay {
        return replay::<I>(args, &starter, file);
    }
    let state = CampaignState::<I>::new(args, features);
    std::thread::scope(|scope| {
        let work = || {
            let ended = catch_unwind(AssertUnwindSafe(|| state.work(&starter)));
            if ended.is_err() {
                // The other jobs end, and the findings so far are told.
                state.trouble("a job panicked".to_owned());
            }
        };
        let job = |_| penstock_process::start_scoped(scope, "job", work);
        match (0..args.jobs.max(1)).map(job).collect::<Result<Vec<_>, _>>() {
            Ok(jobs) => state.tell(&jobs),
            Err(error) => state.trouble(format!("a job has no thread: {error}")),
        }
    });
    state.conclude(&starter, &platform)
}

/// Default number of runs of a replayed program.
const REPLAYS_DEFAULT: u64 = 20;

fn replay<I: Interface>(args: &CheckArgs, starter: &Starter, file: &std::path::Path) -> ExitCode {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
    let program = text.and_then(|text| {
        serde_json::from_str::<I::Program>(&text).map_err(|error| error.to_string())
    });
    let program = match program {
        Ok(program) => Box::new(program),
        Err(reason) => {
            eprintln!("penstock-check: {}: {reason}", file.display());
            return ExitCode::from(UNABLE);
        }
    };
    let times = usize::try_from(args.programs.unwrap_or(REPLAYS_DEFAULT)).unwrap_or(usize::MAX);
    let outcome = Worker::<I>::start(starter, program.seed())
        .map(|(mut worker, _)| worker.ask(&Request::Program { program, times }, &|_| true));
    match outcome {
        Ok(Outcome::Clean) => {
            println!("right in {times} runs");
            ExitCode::from(CLEAN)
        }
        Ok(Outcome::Found(_, finding)) => {
            println!("{}: operation {:?}: {}", finding.kind.name(), finding.op, finding.what);
            ExitCode::from(FOUND)
        }
        Ok(Outcome::Invalid(_, reason) | Outcome::Broken(reason)) | Err(reason) => {
            eprintln!("penstock-check: {reason}");
            ExitCode::from(UNABLE)
        }
    }
}

struct CampaignState<'a, I: Interface> {
    args: &'a CheckArgs,
    features: Vec<I::Feature>,
    begun: Instant,
    next: AtomicU64,
    programs: AtomicU64,
    found: Lock<Vec<Found>>,
    trouble: Lock<Option<String>>,
}

impl<'a, I: Interface> CampaignState<'a, I> {
    fn new(args: &'a CheckArgs, features: Vec<I::Feature>) -> Self {
        Self {
            args,
            features,
            begun: Instant::now(),
            next: AtomicU64::new(args.seed),
            programs: AtomicU64::new(0),
            found: Lock::default(),
            trouble: Lock::default(),
        }
    }

    fn is_over(&self) -> bool {
        let late = match (self.args.programs, self.args.seconds) {
            (Some(_), _) => false,
            (None, seconds) => {
                self.begun.elapsed() > Duration::from_secs(seconds.unwrap_or(SECONDS_DEFAULT))
            }
        };
        let found = self.found.lock().len();
        late || found >= self.args.findings || self.trouble.lock().is_some()
    }

    fn work(&self, starter: &Starter) {
        while !self.is_over() {
            let first = self.next.fetch_add(BATCH, Ordering::Relaxed);
            let mut count = BATCH;
            if let Some(programs) = self.args.programs {
                let done = first - self.args.seed;
                if done >= programs {
                    break;
                }
                count = count.min(programs - done);
            }
            self.batch(starter, first, count);
        }
    }

    fn batch(&self, starter: &Starter, mut first: u64, count: u64) {
        let end = first + count;
        while first < end && !self.is_over() {
            let mut worker = match Worker::<I>::start(starter, first) {
                Ok((worker, _)) => worker,
                Err(reason) => return self.trouble(reason),
            };
            let request = Request::Seeds {
                first,
                count: end - first,
                ops: self.args.ops,
                features: self.features.clone(),
            };
            let counted = |_: u64| {
                self.programs.fetch_add(1, Ordering::Relaxed);
                !self.is_over()
            };
            match worker.ask(&request, &counted) {
                Outcome::Clean => return,
                Outcome::Found(seed, finding) => {
                    self.keep(seed, finding);
                    first = seed + 1;
                }
                Outcome::Invalid(seed, reason) => {
                    return self
                        .trouble(format!("the program of seed {seed} is not in order: {reason}"));
                }
                Outcome::Broken(reason) => return self.trouble(reason),
            }
        }
    }

    fn keep(&self, seed: u64, finding: Finding) {
        eprintln!("seed {seed}: {}: {}", finding.kind.name(), finding.what);
        let found = Found {
            seed,
            finding,
            after: self.begun.elapsed(),
            programs: self.programs.load(Ordering::Relaxed),
        };
        self.found.lock().push(found);
    }

    fn trouble(&self, reason: String) {
        self.trouble.lock().get_or_insert(reason);
    }

    /// Says from time to time how far the campaign is, until its jobs have ended.
    fn tell(&self, jobs: &[ScopedJoinHandle<'_, ()>]) {
        let mut told = Instant::now();
        while !jobs.iter().all(ScopedJoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(50));
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                let programs = self.programs.load(Ordering::Relaxed);
                let found = self.found.lock().len();
                let seconds = self.begun.elapsed().as_secs();
                eprintln!("{seconds} s: {programs} programs, {found} findings");
            }
        }
    }

    fn conclude(&self, starter: &Starter, platform: &Platform<I::Device>) -> ExitCode {
        let seconds = self.begun.elapsed().as_secs_f64();
        let found = std::mem::take(&mut *self.found.lock());
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut lines = Vec::new();
        for one in &found {
            let program = I::plan(one.seed, platform, self.args.ops, &self.features);
            let act = act_name::<I>(&program, one.finding.op);
            let class = format!("{} {act}", one.finding.kind.name());
            let count = seen.entry(class).or_default();
            *count += 1;
            let mut line = Line {
                seed: one.seed,
                kind: one.finding.kind.name(),
                act,
                what: one.finding.what.clone(),
                after_seconds: one.after.as_secs_f64(),
                after_programs: one.programs,
                file: None,
                operations: None,
            };
            if *count == 1 {
                crate::report::write::<I>(
                    self.args,
                    starter,
                    platform,
                    &program,
                    &one.finding,
                    &mut |file, ops| {
                        line.file = Some(file);
                        line.operations = Some(ops);
                    },
                );
            }
            lines.push(line);
        }
        let left_out = <I::Feature as crate::feature::Named>::ALL
            .iter()
            .filter(|it| !self.features.contains(it))
            .map(|it| it.name())
            .collect();
        let summary = Summary {
            platform: &platform.name,
            version: &platform.version,
            devices: platform.devices.iter().map(AsRef::as_ref).collect(),
            programs: self.programs.load(Ordering::Relaxed),
            seconds,
            left_out,
            findings: lines,
        };
        self.print(&summary);
        if let Some(reason) = &*self.trouble.lock() {
            eprintln!("penstock-check: {reason}");
            return ExitCode::from(UNABLE);
        }
        ExitCode::from(if found.is_empty() { CLEAN } else { FOUND })
    }

    fn print(&self, summary: &Summary<'_>) {
        if self.args.json {
            println!("{}", serde_json::to_string_pretty(summary).unwrap_or_default());
            return;
        }
        for line in &summary.findings {
            let file = line.file.as_deref().map(|file| format!(" -> {file}")).unwrap_or_default();
            println!("seed {}: {} in {}: {}{file}", line.seed, line.kind, line.act, line.what);
        }
        if !summary.left_out.is_empty() {
            println!("left out: {}", summary.left_out.join(", "));
        }
        let rate = summary.programs as f64 / summary.seconds.max(0.001);
        println!(
            "{} programs in {:.1} s ({rate:.0} per second) on {}: {} findings",
            summary.programs,
            summary.seconds,
            summary.platform,
            summary.findings.len()
        );
    }
}
