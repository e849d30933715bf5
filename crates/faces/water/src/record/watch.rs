//! The watchdog: if commands are outstanding and nothing has happened for long, it reports once
//! what waits for what.

use std::fmt::Write as _;

use super::{Recorder, Step, sized};
use crate::command::CommandId;

/// Largest number of steps in each list. The cause is among the first, which nothing else holds up.
const LISTED_MAX: usize = 100;

/// Called with the report of the watchdog.
pub type Tell = Box<dyn FnMut(&str) + Send>;

/// Checks that the run makes progress.
pub struct Watchdog {
    period_ns: u64,
    tell: Tell,
    /// The counts of events and pieces at the last change, and when that was.
    seen: (u64, u64),
    since_ns: Option<u64>,
    is_told: bool,
}

impl std::fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watchdog")
            .field("period_ns", &self.period_ns)
            .field("is_told", &self.is_told)
            .finish_non_exhaustive()
    }
}

impl Watchdog {
    /// Creates a watchdog that reports when nothing has happened for `period_ns`.
    pub fn new(period_ns: u64, tell: Tell) -> Self {
        Self { period_ns, tell, seen: (0, 0), since_ns: None, is_told: false }
    }

    /// Returns when it has to look again. `None` if it has reported already, or nothing is
    /// outstanding.
    pub fn due(&self) -> Option<u64> {
        let since = self.since_ns.filter(|_| !self.is_told)?;
        Some(since.saturating_add(self.period_ns))
    }

    /// Checks for progress. `pieces` is the number of pieces of streams that have moved here.
    pub fn look(&mut self, now: u64, outstanding: usize, pieces: u64, recorder: &Recorder) {
        if self.is_told {
            return;
        }
        let seen = (recorder.changes(), pieces);
        if outstanding == 0 {
            self.since_ns = None;
        } else if self.since_ns.is_none() || seen != self.seen {
            self.seen = seen;
            self.since_ns = Some(now);
        } else if self.due().is_some_and(|due| due <= now) {
            self.is_told = true;
            (self.tell)(&report(recorder, self.period_ns));
        }
    }
}

/// Returns the report: what is outstanding, and what it waits for.
fn report(recorder: &Recorder, period_ns: u64) -> String {
    let open = |step: &&Step| step.outcome.is_none();
    let commands: Vec<&Step> = recorder.commands().values().filter(open).collect();
    let jobs: Vec<&Step> = recorder.jobs().values().filter(open).collect();
    let mut text = format!(
        "libwater: nothing has happened for {:.1} s, and {} commands have not ended (WTR_WATCHDOG; told once)\n",
        super::to_f64(period_ns) / 1e9,
        commands.len()
    );
    let waiting = |job: &Step| -> Vec<CommandId> {
        let waits = job.waits.iter().chain(&job.senders).copied();
        waits
            .filter(|wait| recorder.jobs().get(wait).is_some_and(|step| step.outcome.is_none()))
            .collect()
    };
    let (free, blocked): (Vec<&Step>, Vec<&Step>) =
        jobs.iter().partition(|job| waiting(job).is_empty());
    _ = writeln!(
        text,
        "these wait for nothing else, so it is their device, link or rank that does not go on:"
    );
    for job in free.iter().take(LISTED_MAX) {
        _ = writeln!(text, "  {}", described(recorder, job));
    }
    more(&mut text, free.len());
    if !blocked.is_empty() {
        _ = writeln!(text, "these wait for others:");
    }
    for job in blocked.iter().take(LISTED_MAX) {
        let waits: Vec<String> = waiting(job).iter().map(|wait| name(recorder, *wait)).collect();
        _ = writeln!(text, "  {}: waits for {}", described(recorder, job), waits.join("; "));
    }
    more(&mut text, blocked.len());
    let unsent = commands
        .iter()
        .filter(|command| command.done_by.is_none() && !recorder.jobs().contains_key(&command.id))
        .count();
    if unsent > 0 {
        _ = writeln!(text, "{unsent} commands were not sent to their rank yet");
    }
    text
}

fn more(text: &mut String, all: usize) {
    if all > LISTED_MAX {
        _ = writeln!(text, "  and {} more", all - LISTED_MAX);
    }
}

fn described(recorder: &Recorder, step: &Step) -> String {
    let bytes = if step.bytes > 0 { format!(", {}", sized(step.bytes)) } else { String::new() };
    let (rank, device) =
        (recorder.rank_name(step.rank), recorder.device_name(step.rank, step.device));
    format!("{} on {rank}, {device}{bytes}", named(step))
}

fn named(step: &Step) -> String {
    format!("{} {} {}", step.id.0, step.what, step.name).trim_end().to_owned()
}

fn name(recorder: &Recorder, id: CommandId) -> String {
    let step = recorder.jobs().get(&id);
    step.map_or_else(|| id.0.to_string(), |step| format!("{} on rank {}", named(step), step.rank))
}
