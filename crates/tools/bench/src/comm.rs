//! Performs all measurements of a plan, one path after the other.

use std::path::{Path as FilePath, PathBuf};
use std::time::Instant;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::group::{Group, Launcher, Start};
use crate::host::rank::Said;
use crate::plan::{Kind, Path, Plan, window_bytes_max, window_of};
use crate::point::{Point, Samples};

/// What the caller provides for the measurements.
#[derive(Debug)]
pub struct Tools<'a> {
    /// The program that runs as a process of a host path: see [`Start`].
    pub program: &'a FilePath,
    /// The arguments that make the program such a process.
    pub arguments: &'a [&'a str],
    /// A directory that other users cannot read.
    pub directory: &'a FilePath,
    /// Directories in which libWater's MPI shims may be.
    pub shims: &'a [PathBuf],
}

/// A message about the progress of the measurements.
#[derive(Debug)]
pub enum Progress<'a> {
    Begin {
        kind: Kind,
        path: Path,
        /// Bytes per message; 0 for a barrier.
        bytes: u64,
        devices: u32,
    },
    Without(&'a Without),
}

/// Paths that could not be measured.
#[derive(Clone, Debug, Serialize)]
pub struct Without {
    pub paths: Vec<Path>,
    pub devices: u32,
    pub reason: String,
    /// Whether a measurement failed. Otherwise a requirement is missing on this host.
    pub is_failure: bool,
}

/// Speed of copies within one process.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memcpy {
    pub bytes: u64,
    /// Median, in 10^6 bytes per second.
    pub mb_s: f64,
}

/// All results of a plan.
#[derive(Debug, Default, Serialize)]
pub struct Results {
    /// In the order of their measurement.
    pub points: Vec<Point>,
    /// Measurements that were left out.
    pub without: Vec<Without>,
    /// Copies of the same sizes by one core, over as many messages as are under way elsewhere.
    pub memcpy: Vec<Memcpy>,
    /// The devices and transports of the paths.
    pub parties: Vec<Party>,
}

/// The device and the transport of some paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Party {
    pub paths: Vec<Path>,
    pub device: String,
    /// The transport between the processes.
    pub wire: String,
}

impl Results {
    /// Finds the figure of a path. `bytes` is 0 for barriers.
    #[must_use]
    pub fn find(&self, kind: Kind, path: Path, bytes: u64, devices: u32) -> Option<&Point> {
        self.points.iter().find(|it| {
            (it.kind, it.path, it.bytes) == (kind, path, bytes)
                && (kind != Kind::Barrier || it.devices == devices)
        })
    }

    /// Adds a figure. Of two figures of the same measurement, keeps the faster one.
    pub fn keep(&mut self, point: Point) {
        let of = |it: &Point| (it.kind, it.path, it.bytes, it.devices);
        match self.points.iter_mut().find(|it| of(it) == of(&point)) {
            None => self.points.push(point),
            Some(known) if point.us < known.us => *known = point,
            Some(_) => {}
        }
    }

    /// Records a measurement that was left out.
    pub fn lack(
        &mut self,
        paths: &[Path],
        devices: u32,
        error: &Error,
        watch: &mut dyn FnMut(Progress<'_>),
    ) {
        let is_failure = !matches!(error, Error::Absent(_));
        let without =
            Without { paths: paths.to_vec(), devices, reason: error.to_string(), is_failure };
        watch(Progress::Without(&without));
        self.without.push(without);
    }

    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.without.iter().any(|it| it.is_failure)
    }
}

/// Measures the host paths of a plan.
pub fn measure_hosts(
    plan: &Plan,
    tools: &Tools<'_>,
    results: &mut Results,
    watch: &mut dyn FnMut(Progress<'_>),
) {
    for needs_mpi in [true, false] {
        let of_wire = |path: &Path| path.is_host() && path.needs_mpi() == needs_mpi;
        let paths: Vec<Path> = plan.paths.iter().copied().filter(of_wire).collect();
        if paths.is_empty() {
            continue;
        }
        let launcher = needs_mpi.then(|| Launcher::find(tools.shims)).transpose();
        let launcher = match launcher {
            Ok(launcher) => launcher,
            Err(error) => {
                results.lack(&paths, 2, &error, watch);
                continue;
            }
        };
        let all = groups(plan);
        let is_pair = all.iter().any(|(ranks, _)| *ranks == 2);
        let yields = launcher.as_ref().is_some_and(|it| is_pair && should_yield(it, plan, tools));
        for (ranks, kinds) in all {
            let part = Plan { paths: paths.clone(), kinds, ..plan.clone() };
            let over =
                launcher.as_ref().map(|launcher| Mpi { launcher, yields: yields || crowds(ranks) });
            if let Err(error) = measure_group(&part, tools, over, ranks, results, watch) {
                results.lack(&paths, ranks, &error, watch);
            }
        }
    }
}

/// An MPI, and how its ranks wait.
#[derive(Clone, Copy, Debug)]
struct Mpi<'a> {
    launcher: &'a Launcher,
    yields: bool,
}

/// Whether there are more ranks than cores. Then a barrier takes milliseconds unless the ranks
/// yield.
fn crowds(ranks: u32) -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| ranks as usize > cores.get())
}

/// Duration of the trial of each way of waiting, in seconds.
const TRIAL_SECONDS: f64 = 0.1;

/// Whether two ranks are faster if they yield while they wait. They are much faster if other
/// programs use this host's cores. The baseline uses the faster way.
fn should_yield(launcher: &Launcher, plan: &Plan, tools: &Tools<'_>) -> bool {
    let trial = Plan {
        paths: vec![Path::HostMpi],
        kinds: vec![Kind::PingPong],
        sizes: vec![8],
        seconds: TRIAL_SECONDS,
        idle_seconds: 0.0,
        ..plan.clone()
    };
    let us = |yields| {
        let (mut results, mut nobody) = (Results::default(), |_: Progress<'_>| ());
        let over = Some(Mpi { launcher, yields });
        // An error here occurs again in the measurement and is reported there.
        _ = measure_group(&trial, tools, over, 2, &mut results, &mut nobody);
        results.points.first().map_or(f64::INFINITY, |point| point.us)
    };
    launcher.can_yield() && us(true) < us(false)
}

/// Returns the numbers of processes, and what each measures: two processes measure everything
/// between two devices, and each number of devices measures its barrier.
#[must_use]
pub fn groups(plan: &Plan) -> Vec<(u32, Vec<Kind>)> {
    let mut groups = Vec::new();
    let mut pair: Vec<Kind> =
        plan.kinds.iter().copied().filter(|kind| *kind != Kind::Barrier).collect();
    let has_barrier = plan.kinds.contains(&Kind::Barrier);
    if has_barrier && plan.devices.contains(&2) {
        pair.push(Kind::Barrier);
    }
    if !pair.is_empty() {
        groups.push((2, pair));
    }
    if has_barrier {
        let more = plan.devices.iter().copied().filter(|&count| count > 2);
        groups.extend(more.map(|count| (count, vec![Kind::Barrier])));
    }
    groups
}

/// Returns the number of cores for each of `devices` devices of this host.
#[must_use]
pub fn cores_each(devices: u32) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / devices.max(1) as usize).max(1)
}

fn measure_group(
    plan: &Plan,
    tools: &Tools<'_>,
    over: Option<Mpi<'_>>,
    ranks: u32,
    results: &mut Results,
    watch: &mut dyn FnMut(Progress<'_>),
) -> Result<()> {
    let Tools { program, arguments, directory, .. } = *tools;
    let start = Start { program, arguments, directory, cores: cores_each(ranks) };
    let mut group = match over {
        Some(Mpi { launcher, yields }) => Group::mpi(&start, launcher, plan, ranks, yields)?,
        None => Group::tcp(&start, plan, ranks)?,
    };
    loop {
        match group.hear()? {
            Said::Hello { device, mut wire } => {
                if let Some(Mpi { launcher, yields }) = over
                    && launcher.can_yield()
                {
                    wire +=
                        if yields { ", ranks that wait yield" } else { ", ranks that wait spin" };
                }
                let party = Party { paths: plan.paths.clone(), device, wire };
                if !results.parties.contains(&party) {
                    results.parties.push(party);
                }
            }
            Said::Begin { kind, path, bytes, devices } => {
                watch(Progress::Begin { kind, path, bytes, devices });
            }
            Said::Point(point) => results.keep(*point),
            // `hear` turns these into errors.
            Said::Failed(_) | Said::End => return Ok(()),
        }
    }
}

/// Number of samples for the speed of copies. Each sample copies at least [`COPY_BYTES`], so that
/// reading the clock is a small part of it.
const COPY_SAMPLES: usize = 60;
const COPY_BYTES: u64 = 256 << 10;

/// Measures how fast one core copies messages of these sizes, over as many messages as are under
/// way elsewhere.
#[must_use]
pub fn memcpy(sizes: &[u64]) -> Vec<Memcpy> {
    let largest = sizes.iter().copied().max().unwrap_or(8);
    let room = usize::try_from(window_bytes_max(largest)).unwrap_or(usize::MAX);
    let (from, mut to) = (vec![1_u8; room], vec![2_u8; room]);
    let one = |&bytes: &u64| {
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let together = bytes * window_of(bytes);
        let window = usize::try_from(together).unwrap_or(usize::MAX);
        let (from, to) = (&from[..window], &mut to[..window]);
        let rounds = (COPY_BYTES / together).max(1);
        let mut sample = || {
            let began = Instant::now();
            for _ in 0..rounds {
                for (from, to) in from.chunks_exact(size).zip(to.chunks_exact_mut(size)) {
                    to.copy_from_slice(std::hint::black_box(from));
                }
                std::hint::black_box(&mut *to);
            }
            #[expect(clippy::cast_precision_loss, reason = "at most 2^40")]
            let bytes = (rounds * together) as f64;
            began.elapsed().as_secs_f64() * 1e6 / bytes
        };
        let samples = if bytes > COPY_BYTES { COPY_SAMPLES / 3 } else { COPY_SAMPLES };
        let us_per_byte = Samples::of((0..samples).map(|_| sample()).collect()).quantile(0.5);
        Memcpy { bytes, mb_s: 1.0 / us_per_byte }
    };
    sizes.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_measure_all_that_two_can() {
        let plan = Plan { devices: vec![2, 4, 8], ..Plan::usual(true) };
        let groups = groups(&plan);
        assert_eq!(groups.iter().map(|it| it.0).collect::<Vec<_>>(), [2, 4, 8]);
        assert_eq!(groups[0].1, [Kind::PingPong, Kind::Bandwidth, Kind::Barrier]);
        assert_eq!(groups[1].1, [Kind::Barrier]);
        let plan = Plan { devices: vec![4], kinds: vec![Kind::Barrier], ..plan };
        assert_eq!(super::groups(&plan), [(4, vec![Kind::Barrier])]);
    }

    #[test]
    fn copies_have_a_plausible_speed() {
        let found = memcpy(&[4096]);
        assert!((10.0..1e7).contains(&found[0].mb_s), "{found:?}");
    }
}
