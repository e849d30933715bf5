//! A child process, which runs programs and reports findings. A driver that hangs or crashes
//! affects only this process.

use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use penstock_process::Lock;

use crate::finding::{Finding, Kind};
use crate::interface::{Interface, Plan as _};
use crate::message::{Answer, Request};
use crate::plan::Platform;
use crate::run::Progress;

/// Serves requests until standard input ends.
pub fn serve<I: Interface>() -> ExitCode {
    let (sender, requests) = std::sync::mpsc::channel();
    let hear = move || {
        for line in std::io::stdin().lock().lines() {
            let request = line.ok().and_then(|line| serde_json::from_str::<Request<I>>(&line).ok());
            if request.is_none_or(|request| sender.send(request).is_err()) {
                break;
            }
        }
        // The campaign has ended. A hanging program must not outlive it.
        std::process::abort();
    };
    if let Err(error) = penstock_process::start("requests", hear) {
        tell(&Answer::<I>::Unable(format!("a child has no thread: {error}")));
    }
    let mut child: Option<Child<I>> = None;
    for request in requests {
        match (request, &child) {
            (Request::Open { platform, hang_seconds }, _) => match I::open(&platform) {
                Ok((driver, platform)) => {
                    tell(&Answer::<I>::Opened(platform.clone()));
                    let watch = Arc::new(Watch::<I>::default());
                    watch.start(hang_seconds);
                    // Shorter than the time-out for a hang, so that the finding names the callback.
                    let patience = Duration::from_secs(hang_seconds) * 3 / 4;
                    child = Some(Child { driver, platform, watch, patience });
                }
                Err(reason) => tell(&Answer::<I>::Unable(reason)),
            },
            (Request::Seeds { first, count, ops, features }, Some(child)) => {
                for seed in first..first.saturating_add(count) {
                    tell(&Answer::<I>::Started(seed));
                    child.run(&I::plan(seed, &child.platform, ops, &features));
                }
                tell(&Answer::<I>::Done);
            }
            (Request::Program { program, times }, Some(child)) => {
                for _ in 0..times {
                    tell(&Answer::<I>::Started(program.seed()));
                    if !child.run(&program) {
                        break;
                    }
                }
                tell(&Answer::<I>::Done);
            }
            _ => tell(&Answer::<I>::Unable("no platform was opened".to_owned())),
        }
    }
    ExitCode::SUCCESS
}

struct Child<I: Interface> {
    driver: I::Driver,
    platform: Platform<I::Device>,
    watch: Arc<Watch<I>>,
    patience: Duration,
}

impl<I: Interface> Child<I> {
    /// Runs a program. Does not return if there is a finding.
    fn run(&self, program: &I::Program) -> bool {
        let progress = Arc::new(Progress::new(self.patience));
        self.watch.begin(program, &progress);
        let report = |finding| found::<I>(program.seed(), finding);
        let ran = I::run(program, &self.platform, &self.driver, &progress, &report);
        self.watch.end();
        match ran {
            Ok(()) => true,
            Err(reason) => {
                tell(&Answer::<I>::Invalid(program.seed(), reason));
                false
            }
        }
    }
}

/// Reports a finding and waits to be killed: the program's other threads may be anywhere in the
/// driver.
fn found<I: Interface>(seed: u64, finding: Finding) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::SeqCst) {
        tell(&Answer::<I>::Found(seed, finding));
    }
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn tell<I: Interface>(answer: &Answer<I>) {
    let line = serde_json::to_string(answer).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    // If this fails, standard input has ended, too, and nobody reads.
    _ = writeln!(out, "{line}");
    _ = out.flush();
}

/// A program that runs.
#[derive(Clone)]
struct RunningProgram<P> {
    program: P,
    /// The positions of the program's threads.
    progress: Arc<Progress>,
    since: Instant,
}

/// Watches whether a program takes too long.
struct Watch<I: Interface> {
    current: Lock<Option<RunningProgram<I::Program>>>,
    beats: AtomicU64,
}

impl<I: Interface> Default for Watch<I> {
    fn default() -> Self {
        Self { current: Lock::new(None), beats: AtomicU64::new(0) }
    }
}

impl<I: Interface> Watch<I> {
    fn start(self: &Arc<Self>, hang_seconds: u64) {
        let watch = Arc::clone(self);
        // Without a thread, the campaign notices that the child says nothing.
        _ = penstock_process::start("watch", move || {
            loop {
                std::thread::sleep(Duration::from_millis(100));
                watch.beats.fetch_add(1, Ordering::Relaxed);
                let current = watch.current.lock().clone();
                if let Some(RunningProgram { program, progress, since }) = current
                    && since.elapsed() > Duration::from_secs(hang_seconds)
                {
                    let at = progress.positions(program.threads());
                    let text = |(thread, op): (usize, &usize)| match program.ops().get(*op) {
                        Some(it) => format!("thread {thread} is in operation {op}, {:?}", it.act),
                        None => format!("thread {thread} has ended"),
                    };
                    let places: Vec<_> = at.iter().enumerate().map(text).collect();
                    let op = at.iter().copied().find(|&op| op < program.ops().len());
                    let what = format!(
                        "the program has not ended after {hang_seconds} s: {}",
                        places.join("; ")
                    );
                    found::<I>(program.seed(), Finding { kind: Kind::Hang, op, at: None, what });
                }
            }
        });
    }

    fn begin(&self, program: &I::Program, progress: &Arc<Progress>) {
        let (program, progress) = (program.clone(), Arc::clone(progress));
        let running = RunningProgram { program, progress, since: Instant::now() };
        *self.current.lock() = Some(running);
    }

    fn end(&self) {
        *self.current.lock() = None;
    }
}
