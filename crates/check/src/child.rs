//! A child process: runs programs, and says what it finds. A driver that hangs or crashes takes only this process with it.

use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::cl::Cl;
use crate::finding::{Finding, Kind};
use crate::message::{Answer, Request};
use crate::plan::{Platform, Program};
use crate::planner::{self, Limits};
use crate::run::{self, Prepared, Progress};

/// Serves requests until standard input ends.
pub fn serve() -> ExitCode {
    let (sender, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let request = line.ok().and_then(|line| serde_json::from_str::<Request>(&line).ok());
            if request.is_none_or(|request| sender.send(request).is_err()) {
                break;
            }
        }
        // The campaign has ended, and a program that hangs must not outlive it.
        std::process::abort();
    });
    let mut child: Option<Child> = None;
    for request in requests {
        match (request, &child) {
            (Request::Open { platform, hang_seconds }, _) => match Cl::open(&platform) {
                Ok(cl) => {
                    let platform = cl.describe();
                    tell(&Answer::Opened(platform.clone()));
                    let watch = Arc::new(Watch::default());
                    watch.start(hang_seconds);
                    // A little less than what counts as hanging, so that the finding names the callback.
                    let patience = Duration::from_secs(hang_seconds) * 3 / 4;
                    child = Some(Child { cl, platform, watch, patience });
                }
                Err(error) => tell(&Answer::Unable(error.to_string())),
            },
            (Request::Seeds { first, count, ops, features }, Some(child)) => {
                let limits = Limits { ops, features };
                for seed in first..first.saturating_add(count) {
                    tell(&Answer::Started(seed));
                    child.run(&planner::plan(seed, &child.platform, &limits));
                }
                tell(&Answer::Done);
            }
            (Request::Program { program, times }, Some(child)) => {
                for _ in 0..times {
                    tell(&Answer::Started(program.seed));
                    if !child.run(&program) {
                        break;
                    }
                }
                tell(&Answer::Done);
            }
            _ => tell(&Answer::Unable("no platform was opened".to_owned())),
        }
    }
    ExitCode::SUCCESS
}

struct Child {
    cl: Cl,
    platform: Platform,
    watch: Arc<Watch>,
    patience: Duration,
}

impl Child {
    /// Runs a program. Does not return if something was found.
    fn run(&self, program: &Program) -> bool {
        let prepared = match Prepared::new(program, &self.platform) {
            Ok(prepared) => prepared,
            Err((op, reject)) => {
                tell(&Answer::Invalid(program.seed, format!("operation {op}: {reject}")));
                return false;
            }
        };
        let progress = Arc::new(Progress::new(self.patience));
        self.watch.begin(program, &progress);
        run::run(&prepared, &self.cl, &progress, &|finding| found(program.seed, finding));
        self.watch.end();
        true
    }
}

/// Tells what was found and waits to be ended: the program's other threads may be anywhere in the driver.
fn found(seed: u64, finding: Finding) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::SeqCst) {
        tell(&Answer::Found(seed, finding));
    }
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn tell(answer: &Answer) {
    let line = serde_json::to_string(answer).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    // Nobody is there to be told if this fails; standard input has ended too then.
    _ = writeln!(out, "{line}");
    _ = out.flush();
}

/// Looks whether a program takes too long.
#[derive(Default)]
struct Watch {
    current: Mutex<Option<(Program, Arc<Progress>, Instant)>>,
    beats: AtomicU64,
}

impl Watch {
    fn start(self: &Arc<Self>, hang_seconds: u64) {
        let watch = Arc::clone(self);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(100));
                watch.beats.fetch_add(1, Ordering::Relaxed);
                let current = watch.current.lock().ok().and_then(|it| it.clone());
                if let Some((program, progress, since)) = current
                    && since.elapsed() > Duration::from_secs(hang_seconds)
                {
                    let at = progress.positions(program.threads);
                    let text = |(thread, op): (usize, &usize)| match program.ops.get(*op) {
                        Some(it) => format!("thread {thread} is in operation {op}, {:?}", it.act),
                        None => format!("thread {thread} has ended"),
                    };
                    let places: Vec<_> = at.iter().enumerate().map(text).collect();
                    let op = at.iter().copied().find(|&op| op < program.ops.len());
                    let what =
                        format!("the program has not ended after {hang_seconds} s: {}", places.join("; "));
                    found(program.seed, Finding { kind: Kind::Hang, op, at: None, what });
                }
            }
        });
    }

    fn begin(&self, program: &Program, progress: &Arc<Progress>) {
        if let Ok(mut current) = self.current.lock() {
            *current = Some((program.clone(), Arc::clone(progress), Instant::now()));
        }
    }

    fn end(&self) {
        if let Ok(mut current) = self.current.lock() {
            *current = None;
        }
    }
}
