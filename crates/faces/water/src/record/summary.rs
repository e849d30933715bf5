//! A short text that says what bounded a run.
//!
//! The critical path is followed back to the begin of the run. Each moment on it is attributed to
//! what it was spent on: a device, a link, the scheduler, or the program itself, which had not
//! issued the next command yet.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rustc_hash::FxHashSet;

use super::path::{covered, union};
use super::{Recorder, Step, sized, timed, to_f64};
use crate::command::{CommandId, Rank};

/// Average share of time from which devices count as busy. Below it they waited for each other, or
/// for something else.
const BUSY_SHARE: f64 = 0.5;

const DEVICES_LISTED_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spent {
    /// Kernels and transfers within a rank.
    Device,
    /// Builds of OpenCL programs.
    Build,
    /// Bytes from or to the root.
    RootLink,
    /// Bytes between other ranks.
    Link,
    /// Planning, messages, and other work of libwater.
    Scheduler,
    /// The program had not issued the next command.
    Program,
}

impl Spent {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "devices",
            Self::Build => "building programs",
            Self::RootLink => "the root's link",
            Self::Link => "links between other ranks",
            Self::Scheduler => "the scheduler",
            Self::Program => "the program itself",
        }
    }

    fn of(job: &Step) -> Self {
        let touches_root = job.rank == 0 || job.from.contains(&0) || job.to.contains(&0);
        match (job.crosses_ranks(), touches_root) {
            (true, true) => Self::RootLink,
            (true, false) => Self::Link,
            _ if job.what == "create_kernel" => Self::Build,
            _ => Self::Device,
        }
    }
}

/// The figures of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Time from the first command's issue to the last end, in ns.
    pub total_ns: u64,
    /// What the critical path was spent on, in ns.
    pub spent: BTreeMap<Spent, u64>,
    /// How long each device worked, in ns.
    pub devices: BTreeMap<(Rank, u32), u64>,
    /// How long bytes passed the root, in ns.
    pub root_link_ns: u64,
    /// Number of bytes that went from rank to rank.
    pub bytes: u64,
}

impl Summary {
    /// Computes the summary of a recorded run.
    pub fn of(recorder: &Recorder) -> Self {
        let jobs: Vec<&Step> = recorder.jobs().values().filter(|job| job.times.ended > 0).collect();
        let begin = recorder.commands().values().map(|step| step.queued).min().unwrap_or_default();
        let end = jobs.iter().map(|job| job.times.ended).max().unwrap_or(begin);
        let busy = Busy::of(recorder, &jobs);
        let sum = |spans: &[(u64, u64)]| spans.iter().map(|(start, end)| end - start).sum::<u64>();
        Self {
            total_ns: end.saturating_sub(begin),
            spent: walk(recorder, &jobs, &busy, begin),
            devices: busy.devices.iter().map(|(device, spans)| (*device, sum(spans))).collect(),
            root_link_ns: busy.links.get(&0).map_or(0, |spans| sum(spans)),
            bytes: jobs.iter().filter(|job| !job.from.is_empty()).map(|job| job.bytes).sum(),
        }
    }

    pub fn bound(&self) -> String {
        let most = self.spent.iter().max_by_key(|(_, ns)| **ns).map(|(spent, _)| *spent);
        match most {
            None => "nothing: there were no commands".into(),
            Some(Spent::Device) if self.devices.len() > 1 && self.mean_share() < BUSY_SHARE => {
                format!(
                    "dependencies: the devices were busy for {:.0} % of the time on average, one after the other",
                    self.mean_share() * 100.0
                )
            }
            Some(spent) => spent.name().into(),
        }
    }

    /// Returns how busy the devices that did anything were, on average.
    fn mean_share(&self) -> f64 {
        let all: u64 = self.devices.values().sum();
        to_f64(all) / (to_f64(self.total_ns.max(1)) * to_f64(self.devices.len().max(1) as u64))
    }
}

/// When devices and links were busy. The spans of each are in order and do not overlap.
#[derive(Debug, Default)]
struct Busy {
    devices: BTreeMap<(Rank, u32), Vec<(u64, u64)>>,
    /// Spans of each rank's transfers.
    links: BTreeMap<Rank, Vec<(u64, u64)>>,
}

impl Busy {
    fn of(recorder: &Recorder, jobs: &[&Step]) -> Self {
        let mut busy = Self::default();
        for job in jobs {
            let span = (recorder.began(job), job.times.ended);
            if job.crosses_ranks() {
                busy.links.entry(job.rank).or_default().push(span);
            } else if Spent::of(job) == Spent::Device {
                busy.devices.entry((job.rank, job.device)).or_default().push(span);
            }
        }
        for spans in busy.devices.values_mut().chain(busy.links.values_mut()) {
            *spans = union(std::mem::take(spans));
        }
        busy
    }

    /// Returns how long the device or link of a job was busy in this span, with any job.
    fn with_others(&self, job: &Step, start: u64, end: u64) -> u64 {
        let spans = if job.crosses_ranks() {
            self.links.get(&job.rank)
        } else {
            self.devices.get(&(job.rank, job.device))
        };
        spans.map_or(0, |spans| covered(spans, start, end))
    }
}

/// Follows the critical path from its end to the begin of the run.
fn walk(recorder: &Recorder, jobs: &[&Step], busy: &Busy, begin: u64) -> BTreeMap<Spent, u64> {
    let mut by_end: Vec<&Step> = jobs.to_vec();
    by_end.sort_by_key(|job| (job.times.ended, job.id));
    let mut spent = BTreeMap::new();
    let mut seen: FxHashSet<CommandId> = FxHashSet::default();
    let mut at = by_end.last().copied();
    // The time from here to the end is attributed.
    let mut until = at.map_or(begin, |job| job.times.ended);
    let mut give = |what: Spent, from: u64, until: &mut u64| {
        if from < *until {
            *spent.entry(what).or_insert(0) += *until - from;
            *until = from;
        }
    };
    while let Some(job) = at {
        if !seen.insert(job.id) {
            break;
        }
        // For a command this is when the program issued it, for other jobs when they were sent.
        let queued = recorder.commands().get(&job.id).map_or(job.queued, |command| command.queued);
        let waited = recorder
            .predecessors_of_begin(job)
            .into_iter()
            .filter_map(|id| recorder.jobs().get(&id))
            .filter(|job| job.times.ended > 0);
        let mut earlier = waited.max_by_key(|job| job.times.ended);
        if earlier.is_none_or(|earlier| earlier.times.ended < queued) {
            // The program issued the command later, most likely after waiting for something else
            // that had ended.
            let place = by_end.partition_point(|other| other.times.ended <= queued);
            let other = place.checked_sub(1).and_then(|place| by_end.get(place).copied());
            earlier = other.filter(|other| !seen.contains(&other.id)).or(earlier);
        }
        let free = earlier.map_or(begin, |earlier| earlier.times.ended).max(begin);
        let (received, started) = (job.times.received.max(free), recorder.began(job).max(free));
        give(Spent::of(job), started, &mut until);
        // The job was ready, but others were served first.
        let others = busy.with_others(job, received, started);
        let queue = until.saturating_sub(others).max(received);
        give(Spent::of(job), queue, &mut until);
        give(Spent::Scheduler, queued.max(free), &mut until);
        give(Spent::Program, free, &mut until);
        at = earlier;
    }
    spent
}

pub fn text(recorder: &Recorder) -> String {
    let summary = Summary::of(recorder);
    let share = |ns: u64| to_f64(ns) / to_f64(summary.total_ns.max(1)) * 100.0;
    let mut text = format!(
        "libwater: {} commands in {}, as {} jobs on {} ranks; {} went between ranks\n",
        recorder.commands().len(),
        timed(summary.total_ns),
        recorder.jobs().len(),
        recorder.ranks().len(),
        sized(summary.bytes)
    );
    _ = writeln!(text, "  bounded by {}", summary.bound());
    _ = writeln!(text, "  the path of what ended last was spent on");
    let mut spent: Vec<(&Spent, &u64)> = summary.spent.iter().collect();
    spent.sort_by_key(|(spent, ns)| (std::cmp::Reverse(**ns), **spent));
    for (what, ns) in spent {
        _ = writeln!(text, "    {:<26} {:>5.1} %  {}", what.name(), share(*ns), timed(*ns));
    }
    _ = writeln!(text, "  busy");
    if summary.root_link_ns > 0 {
        _ = writeln!(text, "    {:<26} {:>5.1} %", "the root's link", share(summary.root_link_ns));
    }
    for ((rank, device), ns) in summary.devices.iter().take(DEVICES_LISTED_MAX) {
        let name =
            format!("{}, {}", recorder.rank_name(*rank), recorder.device_name(*rank, *device));
        _ = writeln!(text, "    {name:<26} {:>5.1} %", share(*ns));
    }
    if summary.devices.len() > DEVICES_LISTED_MAX {
        _ = writeln!(text, "    and {} devices more", summary.devices.len() - DEVICES_LISTED_MAX);
    }
    let failed =
        recorder.commands().values().filter(|step| matches!(step.outcome, Some(Err(_)))).count();
    if failed > 0 {
        _ = writeln!(text, "  {failed} commands failed");
    }
    if recorder.forgotten() > 0 {
        _ = writeln!(
            text,
            "  {} steps are not counted: {} are kept",
            recorder.forgotten(),
            recorder.steps_max()
        );
    }
    text
}
