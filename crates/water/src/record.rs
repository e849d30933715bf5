//! Records what happens in a run if the user asks for it: `WTR_GRAPH`, `WTR_TRACE`, `WTR_SUMMARY`,
//! `WTR_RECORD`, `WTR_WATCHDOG`.
//!
//! The root reports each command when it is issued, each job when it is sent to its rank, and both
//! when they have ended. Commands are what the program asked for; jobs are what the ranks got after
//! replacement. Without a recorder this costs the root one test for each.

pub mod dot;
pub mod path;
pub mod summary;
pub mod trace;
pub mod watch;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use crate::command::{
    CommandId, DeviceInfo, End, Job, Move, ObjectId, Outcome, Rank, Stream, Times, Work,
};
use crate::error::Error;
use crate::root::Request;
use crate::runtime::{RankInfo, Runtime};

/// Number of commands that are kept, and of jobs. Each takes 300 bytes, and about 100 for its name
/// and its waits: at most 100 MiB for all, and as much again while they are written. Beyond the
/// limit only unfinished steps are kept, and the outputs say so.
pub const STEPS_MAX: usize = 1 << 17;
const _: () = assert!(size_of::<Step>() <= 320);

/// Longest wait for the reports of jobs whose commands have ended, in ns. Reports of a lost rank
/// never come.
const SETTLE_NS_MAX: u64 = 500_000_000;

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

/// What the user asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// `WTR_GRAPH`: path of the graphs, written at the end.
    pub graph: Option<PathBuf>,
    /// `WTR_TRACE`: path of the trace, written at the end.
    pub trace: Option<PathBuf>,
    /// `WTR_SUMMARY`: path of the summary; `1` is the standard error output.
    pub summary: Option<PathBuf>,
    /// `WTR_RECORD=1`, or one of the three above: everything is kept, for `wtr_dump_graph`.
    pub record: bool,
    /// Watchdog period from `WTR_WATCHDOG`, in ns.
    pub watchdog_ns: Option<u64>,
}

/// Value of `WTR_SUMMARY` that selects the standard error output.
const TO_STDERR: &str = "1";

impl Settings {
    /// Reads the settings from the environment.
    ///
    /// # Errors
    /// A variable has an invalid value.
    pub fn of_environment() -> Result<Self, Error> {
        Self::of(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// Reads the settings from these variables.
    ///
    /// # Errors
    /// A variable has an invalid value.
    pub fn of(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let record = match variable("WTR_RECORD").as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => {
                return Err(Error::Invalid(format!("WTR_RECORD is {other}, and must be 0 or 1")));
            }
        };
        let watchdog_ns = variable("WTR_WATCHDOG").map(|value| nanoseconds(&value)).transpose()?;
        let path = |name| variable(name).map(PathBuf::from);
        let (graph, trace, summary) = (path("WTR_GRAPH"), path("WTR_TRACE"), path("WTR_SUMMARY"));
        let record = record || graph.is_some() || trace.is_some() || summary.is_some();
        Ok(Self { graph, trace, summary, record, watchdog_ns })
    }

    /// Creates the files, so that a failure is reported before the work and not after it.
    ///
    /// # Errors
    /// A file cannot be created.
    pub fn make_files(&self) -> Result<(), Error> {
        let summary = self.summary.as_deref().filter(|path| *path != Path::new(TO_STDERR));
        for (name, path) in [
            ("WTR_GRAPH", self.graph.as_deref()),
            ("WTR_TRACE", self.trace.as_deref()),
            ("WTR_SUMMARY", summary),
        ] {
            let Some(path) = path else { continue };
            File::create(path).map_err(|reason| {
                Error::Invalid(format!(
                    "{name} names {}, which cannot be created: {reason}",
                    path.display()
                ))
            })?;
        }
        Ok(())
    }
}

/// Parses seconds, and converts them to ns.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn nanoseconds(value: &str) -> Result<u64, Error> {
    let seconds = value.parse::<f64>().ok().filter(|seconds| seconds.is_finite() && *seconds > 0.0);
    let seconds = seconds.ok_or_else(|| {
        Error::Invalid(format!("WTR_WATCHDOG is {value}, and must be a number of seconds above 0"))
    })?;
    Ok((seconds * 1e9) as u64)
}

/// The steps of a run so far.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    settings: Settings,
    ranks: Vec<RankName>,
    commands: BTreeMap<CommandId, Step>,
    jobs: BTreeMap<CommandId, Step>,
    kernels: FxHashMap<ObjectId, String>,
    /// Streams with one end sent so far: the two ranks, the stream, and the job of that end.
    open: FxHashMap<(Rank, Rank, Stream), CommandId>,
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
    pub(crate) fn issued(
        &mut self,
        id: CommandId,
        (rank, device): (Rank, u32),
        waits: &[CommandId],
        request: &Request,
        queued: u64,
    ) {
        self.changes += 1;
        if let Request::CreateKernel { kernel, name, .. } = request {
            self.kernels.insert(*kernel, name.clone());
        }
        let (what, name, bytes) = self.asked(request);
        let waits = waits.to_vec();
        let step = Step { id, what, name, bytes, rank, device, waits, queued, ..Step::default() };
        let most = self.kept_max();
        add(&mut self.commands, step, most);
    }

    fn asked(&self, request: &Request) -> (&'static str, String, u64) {
        let buffer = |id: &ObjectId| format!("buffer {}", id.0);
        let heap = |id: &ObjectId| format!("heap {}", id.0);
        match request {
            Request::CreateBuffer { buffer: id, size, .. } => ("create_buffer", buffer(id), *size),
            Request::ReleaseBuffer { buffer: id } => ("release_buffer", buffer(id), 0),
            Request::CreateKernel { name, .. } => ("create_kernel", name.clone(), 0),
            Request::ReleaseKernel { kernel } => ("release_kernel", self.kernel(*kernel), 0),
            Request::Run { kernel, .. } => ("run_kernel", self.kernel(*kernel), 0),
            Request::Write { buffer: id, size, .. } => ("write_buffer", buffer(id), *size),
            Request::Read { buffer: id, size, .. } => ("read_buffer", buffer(id), *size),
            Request::Copy { from, to, size, .. } => {
                ("copy_buffer", format!("buffer {} to {}", from.0, to.0), *size)
            }
            Request::Marker => ("marker", String::new(), 0),
            Request::CreateHeap { plan, .. } => ("create_heap", heap(&plan.heap), plan.bytes),
            Request::ReleaseHeap { heap: id } => ("release_heap", heap(id), 0),
            Request::AbortHeap { heap: id, .. } => ("abort_heap", heap(id), 0),
            Request::ResetHeap { heap: id, .. } => ("reset_heap", heap(id), 0),
            Request::Collective { kernel, .. } => ("run_collective", self.kernel(*kernel), 0),
        }
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
        let buffer = |id: &ObjectId| format!("buffer {}", id.0);
        let waits = job.waits.iter().map(|wait| wait.command).collect();
        let also = self.also.remove(&job.id).unwrap_or_default();
        let mut step = Step {
            id: job.id,
            what: job.work.name(),
            rank,
            device: job.device,
            waits,
            queued: now,
            also,
            ..Step::default()
        };
        match &job.work {
            Work::CreateBuffer { buffer: id, size, .. } => {
                (step.name, step.bytes) = (buffer(id), *size)
            }
            Work::ReleaseBuffer { buffer: id } => step.name = buffer(id),
            Work::CreateKernel { name, .. } => step.name.clone_from(name),
            Work::Run { kernel, .. } => step.name = self.kernel(*kernel),
            Work::ReleaseKernel { kernel } => {
                step.name = self.kernels.remove(kernel).unwrap_or_default()
            }
            Work::Move(order) => self.moved(&mut step, order),
            Work::CreateHeap { plan, .. } => {
                (step.name, step.bytes) = (format!("heap {}", plan.heap.0), plan.bytes);
            }
            Work::ReleaseHeap { heap }
            | Work::AbortHeap { heap, .. }
            | Work::ResetHeap { heap, .. } => step.name = format!("heap {}", heap.0),
            Work::Marker => {}
        }
        let most = self.kept_max();
        add(&mut self.jobs, step, most);
    }

    /// Records between which ranks a move's bytes go, and links its job with those of the other
    /// ends.
    fn moved(&mut self, step: &mut Step, order: &Move) {
        step.bytes = order.size;
        step.name = ends(order);
        if let End::Rank { rank, stream } = order.source {
            step.from.push(rank);
            match self.open.remove(&(rank, step.rank, stream)) {
                Some(sender) => {
                    step.senders.push(sender);
                    if let Some(sender) = self.jobs.get_mut(&sender) {
                        sender.receivers.push(step.id);
                    }
                }
                None => _ = self.open.insert((rank, step.rank, stream), step.id),
            }
        }
        for sink in &order.sinks {
            let End::Rank { rank, stream } = sink.to else { continue };
            step.to.push(rank);
            match self.open.remove(&(step.rank, rank, stream)) {
                Some(receiver) => {
                    step.receivers.push(receiver);
                    if let Some(receiver) = self.jobs.get_mut(&receiver) {
                        receiver.senders.push(step.id);
                    }
                }
                None => _ = self.open.insert((step.rank, rank, stream), step.id),
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

    /// Writes the graph of the commands to `path`, and that of the jobs to [`after`] of it.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_graphs(&self, path: &Path) -> Result<(), Error> {
        write_file(path, |file| dot::commands(self, file))?;
        write_file(&after(path), |file| dot::jobs(self, file))
    }

    /// Writes all files that the settings ask for.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_all(&self) -> Result<(), Error> {
        if let Some(path) = &self.settings.graph {
            self.write_graphs(path)?;
        }
        if let Some(path) = &self.settings.trace {
            write_file(path, |file| trace::write(self, file))?;
        }
        match self.settings.summary.as_deref() {
            None => Ok(()),
            Some(path) if path == Path::new(TO_STDERR) => {
                eprint!("{}", summary::text(self));
                Ok(())
            }
            Some(path) => write_file(path, |file| file.write_all(summary::text(self).as_bytes())),
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

/// Returns a text like "program to buffer 3, rank 2".
fn ends(order: &Move) -> String {
    let end = |end: &End| match end {
        End::Host { .. } => "program".to_owned(),
        End::Buffer { buffer, .. } => format!("buffer {}", buffer.0),
        End::Rank { rank, .. } => format!("rank {rank}"),
    };
    let sinks: Vec<String> = order.sinks.iter().map(|sink| end(&sink.to)).collect();
    format!("{} to {}", end(&order.source), sinks.join(", "))
}

/// Returns the path of the graph after replacement: `x.after.dot` for `x.dot`.
pub fn after(path: &Path) -> PathBuf {
    path.with_extension("after.dot")
}

fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<(), Error> {
    let written = File::create(path).map(BufWriter::new).and_then(|mut file| {
        write(&mut file)?;
        file.flush()
    });
    written.map_err(|reason| Error::Invalid(format!("cannot write {}: {reason}", path.display())))
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

/// Starts to record this run if the settings ask for anything.
pub fn begin(runtime: &Runtime, settings: Settings) {
    if !settings.record && settings.watchdog_ns.is_none() {
        return;
    }
    let ranks = runtime.ranks();
    let watchdog_ns = settings.watchdog_ns;
    runtime.with_root(|root| root.set_recorder(Recorder::new(settings, &ranks)));
    if let Some(period_ns) = watchdog_ns {
        runtime
            .set_watchdog(watch::Watchdog::new(period_ns, Box::new(|report| eprint!("{report}"))));
    }
}

/// Waits a short time until all jobs are reported. The job at the other end of a transfer may be
/// reported after the command has ended.
pub fn settle(runtime: &Runtime) {
    let is_settled = |recorder: &Recorder| recorder.jobs.values().all(|job| job.outcome.is_some());
    runtime.wait_until(|root| root.recorder().is_none_or(is_settled), SETTLE_NS_MAX);
}

/// Writes all files that the settings ask for. A failure is only printed, because the run itself is
/// done.
pub fn finish(runtime: &Runtime) {
    settle(runtime);
    if let Some(Err(error)) = copied(runtime).map(|recorder| recorder.write_all()) {
        eprintln!("libwater: {error}");
    }
}

/// Returns a copy of the recorder. Writing takes long, and the scheduler must go on meanwhile.
fn copied(runtime: &Runtime) -> Option<Recorder> {
    runtime.with_root(|root| root.recorder().cloned()).flatten()
}

/// Writes the graphs of the run so far.
///
/// # Errors
/// Nothing is recorded, or a file cannot be written.
pub fn dump(runtime: &Runtime, path: &Path) -> Result<(), Error> {
    runtime.flush();
    let recorder = copied(runtime).filter(|recorder| recorder.settings.record).ok_or(Error::State(
        "nothing is recorded in this run: set WTR_RECORD=1 (or WTR_GRAPH, to have it written at the end) before it begins",
    ))?;
    recorder.write_graphs(path)
}
