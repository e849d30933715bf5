//! `penstock bench comm --as-rank`: one process of a host path. The first process reports on
//! standard output, one line of JSON per message.

use std::io::{Read as _, Write as _};
use std::path::Path as FilePath;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::local::Local;
use super::measure::Part;
use super::stream::{How, Way};
use crate::error::{Error, Result};
use crate::plan::{Kind, Meeting, PASSES, Path, Plan, RankPlan};
use crate::point::{Joules, Point, parts};
use crate::wire::Wire;
use crate::wire::mpi::Mpi;
use crate::wire::tcp::Tcp;

/// Chunk sizes to try, in bytes: from a quarter of a core's own cache to a size at which the
/// start-up cost no longer matters.
const CHUNKS: [u64; 3] = [64 << 10, 256 << 10, 1 << 20];
/// Time that the first process needs to open its counters. The others sleep longer by this time,
/// because the measurement of idle power begins later.
const IDLE_SPARE: Duration = Duration::from_millis(500);
/// Duration of the trial of each way, in seconds, unless the measurement itself is shorter. After
/// the trials, the best way is measured.
const TRIAL_SECONDS: f64 = 0.03;

/// A message of the first process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    Hello {
        device: String,
        wire: String,
    },
    Begin {
        kind: Kind,
        path: Path,
        /// Bytes per message; 0 for a barrier.
        bytes: u64,
        devices: u32,
    },
    /// The result of a measurement.
    Point(Box<Point>),
    /// The process cannot go on.
    Failed(String),
    /// Everything has been measured.
    End,
}

fn say(said: &Said) -> Result<()> {
    let mut line = serde_json::to_vec(said).unwrap_or_default();
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).map_err(Error::io("standard output"))
}

/// Takes part as the file describes. `rank` is this process's number, unless MPI's launcher sets
/// it.
///
/// # Errors
/// Returns the reason. The first process has also reported it.
pub fn run(file: &FilePath, rank: Option<u32>) -> Result<()> {
    let told = run_plan(file, rank);
    if let Err(error) = &told {
        // The starter reads the message of the first process. MPI's launcher shows those of the
        // others.
        _ = say(&Said::Failed(error.to_string()));
    }
    told
}

fn run_plan(file: &FilePath, rank: Option<u32>) -> Result<()> {
    let text = std::fs::read(file).map_err(Error::io(file.display().to_string()))?;
    let RankPlan { plan, ranks, meeting } = serde_json::from_slice(&text).map_err(|error| {
        Error::Language { who: file.display().to_string(), text: error.to_string() }
    })?;
    let wire: Box<dyn Wire> = match meeting {
        Meeting::Mpi { shim } => Box::new(Mpi::open(&shim)?),
        Meeting::Tcp { directory, token } => {
            Box::new(Tcp::open(&directory, token, rank.unwrap_or(0), ranks)?)
        }
    };
    let own = wire.rank();
    let is_first = own == 0;
    if is_first || rank.is_some() {
        end_with_parent()?;
    }
    let bytes_max = plan.sizes.iter().copied().max().unwrap_or(8);
    let mut part = Part::new(Local::open(own, plan.gpus)?, wire, bytes_max)?;
    part.meet()?;
    if !is_first {
        // A process that waits for an order may spin, but not while idle power is measured.
        if plan.idle_seconds > 0.0 && Joules::are_there() {
            std::thread::sleep(Duration::from_secs_f64(plan.idle_seconds) + IDLE_SPARE);
        }
        return part.follow();
    }
    let (device, wire) = part.names()?;
    say(&Said::Hello { device, wire })?;
    lead(&mut part, &plan, ranks)?;
    // Reported before `end`, so that the starter does not wait for MPI's end.
    say(&Said::End)?;
    part.end()
}

/// Ends this process when its standard input closes: the process that started it holds the other
/// end. No other mechanism ends a process that waits for a lost rank.
fn end_with_parent() -> Result<()> {
    let watch = || {
        let mut byte = [0];
        while std::io::stdin().read(&mut byte).is_ok_and(|count| count > 0) {}
        std::process::exit(1);
    };
    penstock_process::start("parent", watch).map(drop).map_err(Error::io("starting a thread"))
}

fn lead(part: &mut Part, plan: &Plan, ranks: u32) -> Result<()> {
    let mut joules = Joules::open(plan.idle_seconds)?;
    let passes = (0..PASSES).flat_map(|_| &plan.paths);
    for &path in passes {
        for kind in plan.kinds.iter().copied().filter(|kind| path.has(*kind)) {
            let sizes: &[u64] = if kind == Kind::Barrier { &[0] } else { &plan.sizes };
            for &bytes in sizes {
                say(&Said::Begin { kind, path, bytes, devices: ranks })?;
                let point = point(part, plan, &mut joules, Case { path, kind, bytes, ranks })?;
                say(&Said::Point(Box::new(point)))?;
            }
        }
    }
    Ok(())
}

/// What one point of the results measures.
#[derive(Clone, Copy, Debug)]
struct Case {
    path: Path,
    kind: Kind,
    /// Size of a message.
    bytes: u64,
    /// Number of processes.
    ranks: u32,
}

fn point(
    part: &mut Part,
    plan: &Plan,
    joules: &mut Joules,
    Case { path, kind, bytes, ranks }: Case,
) -> Result<Point> {
    let trial_seconds = plan.pass_seconds().min(TRIAL_SECONDS);
    let how = best(part, path, kind, bytes, trial_seconds)?;
    let seconds = joules.seconds_min().unwrap_or(0.0).max(plan.pass_seconds());
    let samples = part.samples_for(path, kind, bytes, how, seconds)?;
    let run = || part.measure(path, kind, bytes, how, samples);
    let (run, energy) = joules.around(run, |run| parts(kind, bytes, plan.word, run.count))?;
    let mut point = Point::of(kind, path, bytes, ranks, &run, energy);
    point.way = match (path.is_pipelined(), path.needs_mpi()) {
        (true, _) => Some(how.name(bytes)),
        (false, true) => None,
        (false, false) => Some(if how.spins { "spinning" } else { "sleeping" }.to_owned()),
    };
    Ok(point)
}

/// Returns the fastest of the ways that the path may use for messages of this size.
fn best(part: &mut Part, path: Path, kind: Kind, bytes: u64, trial_seconds: f64) -> Result<How> {
    let mut ways = vec![Way::Plain];
    if path.is_pipelined() {
        let chunks = CHUNKS.into_iter().filter(|chunk| chunk * 2 <= bytes);
        for chunk in std::iter::once(bytes).chain(chunks) {
            ways.push(Way::Copy(chunk));
            // The first process has a GPU if any process has one, so its abilities are those of
            // all.
            ways.extend(part.maps().then_some(Way::Map(chunk)));
        }
    }
    // For MPI, the way of waiting was chosen when it was started.
    let waits: &[bool] = if path.needs_mpi() { &[false] } else { &[false, true] };
    let all: Vec<_> = ways
        .into_iter()
        .flat_map(|way| waits.iter().map(move |&spins| How { way, spins }))
        .collect();
    if let [only] = all.as_slice() {
        return Ok(*only);
    }
    let mut best = (f64::INFINITY, How::PLAIN);
    for how in all {
        let samples = part.samples_for(path, kind, bytes, how, trial_seconds)?;
        let us = part.measure(path, kind, bytes, how, samples)?.samples.quantile(0.5);
        if us < best.0 {
            best = (us, how);
        }
    }
    Ok(best.1)
}
