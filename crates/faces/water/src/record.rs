//! Records what happens in a run if the user asks for it: `WTR_GRAPH`, `WTR_TRACE`, `WTR_SUMMARY`,
//! `WTR_RECORD`, `WTR_WATCHDOG`.
//!
//! The root reports each command when it is issued, each job when it is sent to its rank, and both
//! when they have ended. Commands are what the program asked for; jobs are what the ranks got after
//! replacement. Without a recorder this costs the root one test for each.

pub mod dot;
pub mod output;
pub mod path;
pub mod settings;
pub mod summary;
pub mod trace;
pub mod watch;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::command::{
    Command, CommandId, DeviceInfo, End, Job, Move, ObjectId, Outcome, Rank, RankInfo, Stream,
    Times,
};
use crate::request::IssuedCommand;
pub use settings::Settings;

/// Number of commands that are kept, and of jobs. Each takes 300 bytes, and about 100 for its name
/// and its waits: at most 100 MiB for all, and as much again while they are written. Beyond the
/// limit only unfinished steps are kept, and the outputs say so.
pub const STEPS_MAX: usize = 1 << 17;
const _: () = assert!(size_of::<Step>() <= 320);

/// A command of the program, or a job of a rank.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub id: CommandId,
    /// `write_buffer`, `run_kernel`, `send` and so on.
    pub what: &'static str,
    /// Name of its kernel, or of its buffer.
    pub name: String,
    pub bytes: u64,
    pub rank: Rank,
    /// Index of its device on the rank.
    pub device: u32,
    pub waits: Vec<CommandId>,
    /// Jobs of other ranks that send bytes to it.
    pub senders: Vec<CommandId>,
    /// Jobs of other ranks that get bytes from it.
    pub receivers: Vec<CommandId>,
    pub from: Vec<Rank>,
    pub to: Vec<Rank>,
    /// Length of the longest path to it from a step that waits for nothing.
    pub level: u32,
    /// When the command was issued, or the job was sent to its rank. In ns, like all times.
    pub queued: u64,
    /// When it ran; 0 means not yet.
    pub times: Times,
    /// How it ended, with the message of a fault.
    pub outcome: Option<Result<(), String>>,
    /// For a command: the job of another command that does its work as well.
    pub done_by: Option<CommandId>,
    /// For a job: the commands that it does as well.
    pub also: Vec<CommandId>,
    /// It came beyond the limit, and is forgotten at its end.
    is_beyond: bool,
}

impl Step {
    /// Whether bytes come from or go to another rank.
    pub fn crosses_ranks(&self) -> bool {
        !self.from.is_empty() || !self.to.is_empty()
    }

    fn end(&mut self, outcome: &Outcome, times: Times) {
        self.times = times;
        self.outcome = Some(match outcome {
            Ok(()) => Ok(()),
            Err(fault) => Err(fault.to_string()),
        });
    }
}

/// The names of a rank and its devices.
#[derive(Clone, Debug, Default)]
pub struct RankName {
    pub host: String,
    pub devices: Vec<String>,
}

/// A stream between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StreamKey {
    from: Rank,
    to: Rank,
    stream: Stream,
}

/// The steps of a run so far.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    settings: Settings,
    ranks: Vec<RankName>,
    commands: BTreeMap<CommandId, Step>,
    jobs: BTreeMap<CommandId, Step>,
    kernels: FxHashMap<ObjectId, String>,
    /// Streams with one end sent so far, and the job of that end.
    open: FxHashMap<StreamKey, CommandId>,
    /// For jobs not sent yet: the commands that they will do as well.
    also: FxHashMap<CommandId, Vec<CommandId>>,
    /// Number of commands and jobs that were not kept.
    forgotten: u64,
    /// Number of commands that are kept, and of jobs.
    steps_max: usize,
    /// Number of events. The watchdog compares it.
    changes: u64,
}

impl Recorder {
    pub fn new(settings: Settings, ranks: &[RankInfo]) -> Self {
        let ranks = ranks.iter().map(|info| RankName {
            host: info.hostname.clone(),
            devices: info.devices.iter().map(DeviceInfo::name).collect(),
        });
        Self { settings, ranks: ranks.collect(), steps_max: STEPS_MAX, ..Self::default() }
    }

    /// Sets a limit other than [`STEPS_MAX`].
    #[must_use]
    pub fn with_steps_max(mut self, steps_max: usize) -> Self {
        self.steps_max = steps_max;
        self
    }

    /// Returns the number of commands that are kept, and of jobs.
    pub fn steps_max(&self) -> usize {
        self.steps_max
    }

    /// Returns what the user asked for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the program's commands, by id.
    pub fn commands(&self) -> &BTreeMap<CommandId, Step> {
        &self.commands
    }

    /// Returns the ranks' jobs, by id.
    pub fn jobs(&self) -> &BTreeMap<CommandId, Step> {
        &self.jobs
    }

    pub fn ranks(&self) -> &[RankName] {
        &self.ranks
    }

    /// Returns the number of ended commands and jobs beyond the limit.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Returns the number of events so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns a text like "rank 1 (host)".
    pub fn rank_name(&self, rank: Rank) -> String {
        match self.ranks.get(rank as usize) {
            Some(name) => format!("rank {rank} ({})", name.host),
            None => format!("rank {rank}"),
        }
    }

    /// Returns a text like "device 0 (name)".
    pub fn device_name(&self, rank: Rank, device: u32) -> String {
        let name = self.ranks.get(rank as usize).and_then(|rank| rank.devices.get(device as usize));
        name.map_or_else(|| format!("device {device}"), |name| format!("device {device} ({name})"))
    }

    /// Records that the program has issued a command.
    pub(crate) fn issued(&mut self, issued: &IssuedCommand, queued: u64) {
        self.changes += 1;
        let command = &issued.command;
        if let Command::CreateKernel { kernel, name, .. } = command {
            self.kernels.insert(*kernel, name.clone());
        }
        let step = Step {
            id: issued.id,
            // The program calls a launch over a heap by another name.
            what: if command.heap().is_some() { "run_collective" } else { command.name() },
            name: command.subject(|kernel| self.kernel(kernel)),
            bytes: command.bytes(),
            rank: issued.rank,
            device: issued.device,
            waits: issued.waits.clone(),
            queued,
            ..Step::default()
        };
        let most = self.kept_max();
        add(&mut self.commands, step, most);
    }

    /// For the watchdog alone no ended step needs to be kept.
    fn kept_max(&self) -> usize {
        if self.settings.record { self.steps_max } else { 0 }
    }

    fn kernel(&self, id: ObjectId) -> String {
        self.kernels.get(&id).cloned().unwrap_or_default()
    }

    /// Records that the root has sent a job to a rank.
    pub(crate) fn sent(&mut self, rank: Rank, job: &Job, now: u64) {
        self.changes += 1;
        let waits = job.waits.iter().map(|wait| wait.command).collect();
        let also = self.also.remove(&job.id).unwrap_or_default();
        let mut step = Step {
            id: job.id,
            what: job.command.name(),
            name: job.command.subject(|kernel| self.kernel(kernel)),
            bytes: job.command.bytes(),
            rank,
            device: job.device,
            waits,
            queued: now,
            also,
            ..Step::default()
        };
        match &job.command {
            Command::ReleaseKernel { kernel } => _ = self.kernels.remove(kernel),
            Command::Move(order) => self.moved(&mut step, order),
            _ => {}
        }
        let most = self.kept_max();
        add(&mut self.jobs, step, most);
    }

    /// Records between which ranks a move's bytes go, and links its job with those of the other
    /// ends.
    fn moved(&mut self, step: &mut Step, order: &Move) {
        if let End::Rank { rank, stream } = order.source {
            step.from.push(rank);
            let key = StreamKey { from: rank, to: step.rank, stream };
            match self.open.remove(&key) {
                Some(sender) => {
                    step.senders.push(sender);
                    if let Some(sender) = self.jobs.get_mut(&sender) {
                        sender.receivers.push(step.id);
                    }
                }
                None => _ = self.open.insert(key, step.id),
            }
        }
        for sink in &order.sinks {
            let End::Rank { rank, stream } = sink.to else { continue };
            step.to.push(rank);
            let key = StreamKey { from: step.rank, to: rank, stream };
            match self.open.remove(&key) {
                Some(receiver) => {
                    step.receivers.push(receiver);
                    if let Some(receiver) = self.jobs.get_mut(&receiver) {
                        receiver.senders.push(step.id);
                    }
                }
                None => _ = self.open.insert(key, step.id),
            }
        }
        step.what = match (step.from.is_empty(), step.to.is_empty()) {
            (false, false) => "forward",
            (false, true) => "receive",
            (true, false) => "send",
            (true, true) => "move",
        };
    }

    /// Records that the job of `other` does the work of `command` as well.
    pub(crate) fn same_as(&mut self, command: CommandId, other: CommandId) {
        if let Some(step) = self.commands.get_mut(&command) {
            step.done_by = Some(other);
        }
        self.also.entry(other).or_default().push(command);
    }

    /// Records that a command or job has ended.
    pub(crate) fn ended(&mut self, id: CommandId, outcome: &Outcome, times: Times) {
        self.changes += 1;
        for steps in [&mut self.commands, &mut self.jobs] {
            let Some(step) = steps.get_mut(&id) else { continue };
            if step.outcome.is_some() {
                continue;
            }
            step.end(outcome, times);
            if step.is_beyond {
                steps.remove(&id);
                self.forgotten += 1;
            }
        }
    }
}

/// Adds a step. Beyond the limit it is marked to be forgotten at its end.
fn add(steps: &mut BTreeMap<CommandId, Step>, mut step: Step, most: usize) {
    let below = step
        .waits
        .iter()
        .chain(&step.senders)
        .filter_map(|wait| steps.get(wait))
        .map(|wait| wait.level + 1);
    step.level = below.max().unwrap_or_default();
    step.is_beyond = steps.len() >= most;
    steps.insert(step.id, step);
}

/// Formats a number of bytes for people.
pub(crate) fn sized(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (to_f64(bytes), "B");
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// Formats a duration for people.
pub(crate) fn timed(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", to_f64(ns) / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", to_f64(ns) / 1e6),
        _ => format!("{:.3} s", to_f64(ns) / 1e9),
    }
}

/// The result is exact up to 2^53, which is 104 days in ns.
#[expect(clippy::cast_precision_loss)]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}
