//! `penstock bench comm --as-rank`: one process of a host path. The first one says what it does on standard output, a line of JSON each.

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

/// Chunks that are tried, in bytes: from a quarter of what fits a core's own cache to what no longer shows its start.
const CHUNKS: [u64; 3] = [64 << 10, 256 << 10, 1 << 20];
/// The first process begins to measure idle power later than the others begin to sleep, by the time that its counters take to open.
const IDLE_SPARE: Duration = Duration::from_millis(500);
/// Each way is tried for so long, in seconds, before the best one is measured.
const TRIAL_SECONDS: f64 = 0.03;

/// What the first process says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// First of all.
    Hello {
        /// What it computes on.
        device: String,
        /// How it reaches the others.
        wire: String,
    },
    /// It begins to measure something.
    Begin {
        /// What.
        kind: Kind,
        /// On which path.
        path: Path,
        /// Bytes of a message.
        bytes: u64,
        /// How many take part.
        devices: u32,
    },
    /// It has measured something.
    Point(Box<Point>),
    /// It cannot go on.
    Failed(String),
    /// All is measured.
    End,
}

fn say(said: &Said) -> Result<()> {
    let mut line = serde_json::to_vec(said).unwrap_or_default();
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).map_err(Error::io("standard output"))
}

/// Takes part, as the file says. `rank` is this process's number, unless MPI's launcher gives it one.
///
/// # Errors
/// What was said before by the first process.
pub fn run(file: &FilePath, rank: Option<u32>) -> Result<()> {
    let told = run_plan(file, rank);
    if let Err(error) = &told {
        // The first one's words are read; MPI's launcher shows those of the others.
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
        end_with_parent();
    }
    let bytes_max = plan.sizes.iter().copied().max().unwrap_or(8);
    let mut part = Part::new(Local::open(own, plan.gpus)?, wire, bytes_max)?;
    part.meet()?;
    if !is_first {
        // Who waits for an order may spin: not while idle power is measured.
        if plan.idle_seconds > 0.0 && Joules::are_there() {
            std::thread::sleep(Duration::from_secs_f64(plan.idle_seconds) + IDLE_SPARE);
        }
        return part.follow();
    }
    let (device, wire) = part.names()?;
    say(&Said::Hello { device, wire })?;
    lead(&mut part, &plan, ranks)?;
    // Said before: when all is measured, nobody waits for MPI's end.
    say(&Said::End)?;
    part.end()
}

/// Whoever started this holds the other end of its standard input. Nobody else ends a process that waits for a rank that is gone.
fn end_with_parent() {
    std::thread::spawn(|| {
        let mut byte = [0];
        while std::io::stdin().read(&mut byte).is_ok_and(|count| count > 0) {}
        std::process::exit(1);
    });
}

fn lead(part: &mut Part, plan: &Plan, ranks: u32) -> Result<()> {
    let mut joules = Joules::open(plan.idle_seconds)?;
    let passes = (0..PASSES).flat_map(|_| &plan.paths);
    for &path in passes {
        for kind in plan.kinds.iter().copied().filter(|kind| path.has(*kind)) {
            let sizes: &[u64] = if kind == Kind::Barrier { &[0] } else { &plan.sizes };
            for &bytes in sizes {
                say(&Said::Begin { kind, path, bytes, devices: ranks })?;
                let point = point(part, plan, &mut joules, (path, kind, bytes, ranks))?;
                say(&Said::Point(Box::new(point)))?;
            }
        }
    }
    Ok(())
}

fn point(
    part: &mut Part,
    plan: &Plan,
    joules: &mut Joules,
    (path, kind, bytes, ranks): (Path, Kind, u64, u32),
) -> Result<Point> {
    let how = best(part, path, kind, bytes)?;
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

/// The fastest way for messages of this size, of those that the path may take.
fn best(part: &mut Part, path: Path, kind: Kind, bytes: u64) -> Result<How> {
    let mut ways = vec![Way::Plain];
    if path.is_pipelined() {
        let chunks = CHUNKS.into_iter().filter(|chunk| chunk * 2 <= bytes);
        for chunk in std::iter::once(bytes).chain(chunks) {
            ways.push(Way::Copy(chunk));
            // The first process has a GPU if any has: what it can do all can.
            ways.extend(part.maps().then_some(Way::Map(chunk)));
        }
    }
    // How MPI waits was chosen when it was started.
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
        let samples = part.samples_for(path, kind, bytes, how, TRIAL_SECONDS)?;
        let us = part.measure(path, kind, bytes, how, samples)?.samples.quantile(0.5);
        if us < best.0 {
            best = (us, how);
        }
    }
    Ok(best.1)
}
