//! Traces in Chrome's trace event format, for Perfetto (ui.perfetto.dev) and chrome://tracing.
//!
//! Each rank is a process. Its rows are its scheduler, its devices, and its links in and out; spans
//! that overlap within a row get another row of the same name. Arrows are dependencies. Counters
//! are the unfinished jobs of a rank, and the bytes on their way to it.

use std::collections::BTreeMap;
use std::io::{Result, Write};

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::{Recorder, Step, to_f64};
use crate::command::{CommandId, Rank};

/// Longest gap between jobs that share a span of the scheduler's row, in ns. A batch waits ten
/// times as long.
const GAP_NS: u64 = 20_000;

/// A row of a rank. Rows are shown in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Row {
    Scheduler,
    LinkIn,
    LinkOut,
    Device(u32),
}

impl Row {
    fn of(step: &Step) -> Self {
        match (step.from.is_empty(), step.to.is_empty()) {
            (false, _) => Self::LinkIn,
            (true, false) => Self::LinkOut,
            (true, true) => Self::Device(step.device),
        }
    }

    fn name(self, recorder: &Recorder, rank: Rank) -> String {
        match self {
            Self::Scheduler => "scheduler".into(),
            Self::LinkIn => "link in".into(),
            Self::LinkOut => "link out".into(),
            Self::Device(device) => recorder.device_name(rank, device),
        }
    }
}

#[derive(Clone, Debug)]
struct Span {
    name: String,
    kind: &'static str,
    start: u64,
    end: u64,
    /// The job that the span shows, if any.
    job: Option<CommandId>,
    args: Value,
}

/// Where a job is drawn.
#[derive(Clone, Copy, Debug)]
struct DrawnJob {
    rank: Rank,
    thread: u64,
    start: u64,
    end: u64,
}

/// Writes the trace of a run.
///
/// # Errors
/// The writer fails.
pub fn write(recorder: &Recorder, out: &mut impl Write) -> Result<()> {
    // Times are relative to the first one, so that they are small. That need not be a command's
    // issue, because the clocks of ranks differ slightly.
    let issued = recorder.commands().values().map(|step| step.queued);
    let ran = recorder
        .jobs()
        .values()
        .flat_map(|job| [job.queued, job.times.received, recorder.began(job)]);
    let base = issued.chain(ran).filter(|time| *time > 0).min().unwrap_or_default();
    let mut events = Events { out, base, is_first: true };
    let note = match recorder.forgotten() {
        0 => String::new(),
        count => format!("{count} steps are not kept, the limit is {}", recorder.steps_max()),
    };
    events.out.write_all(b"{\"displayTimeUnit\":\"ns\",\"otherData\":")?;
    serde_json::to_writer(&mut *events.out, &json!({ "note": note }))?;
    events.out.write_all(b",\"traceEvents\":[")?;
    let mut drawn: FxHashMap<CommandId, DrawnJob> = FxHashMap::default();
    for (rank, rows) in rows(recorder) {
        rank_rows(recorder, rank, rows, &mut events, &mut drawn)?;
    }
    arrows(recorder, &drawn, &mut events)?;
    counters(recorder, &mut events)?;
    events.out.write_all(b"\n]}\n")
}

struct Events<'a, W: Write> {
    out: &'a mut W,
    base: u64,
    is_first: bool,
}

impl<W: Write> Events<'_, W> {
    fn put(&mut self, event: &Value) -> Result<()> {
        self.out.write_all(if std::mem::take(&mut self.is_first) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *self.out, event)?;
        Ok(())
    }

    /// Converts a time to µs, the unit of the format.
    fn us(&self, ns: u64) -> f64 {
        to_f64(ns.saturating_sub(self.base)) / 1e3
    }
}

/// Returns all spans, by rank and row.
fn rows(recorder: &Recorder) -> BTreeMap<Rank, BTreeMap<Row, Vec<Span>>> {
    let mut ranks: BTreeMap<Rank, BTreeMap<Row, Vec<Span>>> = BTreeMap::new();
    for rank in 0..u32::try_from(recorder.ranks().len()).unwrap_or_default() {
        ranks.entry(rank).or_default();
    }
    let (mut planned, mut taken): (Vec<u64>, BTreeMap<Rank, Vec<u64>>) =
        (Vec::new(), BTreeMap::new());
    for job in recorder.jobs().values() {
        planned.push(job.queued);
        if job.times.received > 0 {
            taken.entry(job.rank).or_default().push(job.times.received);
        }
        if job.times.ended == 0 {
            continue;
        }
        let args = json!({
            "id": job.id.0,
            "bytes": job.bytes,
            "level": job.level,
            "outcome": match &job.outcome { Some(Err(fault)) => fault.as_str(), _ => "done" },
            "also": job.also.iter().map(|id| id.0).collect::<Vec<_>>(),
            "waited_us": to_f64(recorder.began(job).saturating_sub(job.times.received)) / 1e3,
        });
        let name = if job.name.is_empty() {
            job.what.to_owned()
        } else {
            format!("{} {}", job.what, job.name)
        };
        let start = recorder.began(job);
        let end = job.times.ended.max(start + 1);
        let span = Span { name, kind: job.what, start, end, job: Some(job.id), args };
        ranks.entry(job.rank).or_default().entry(Row::of(job)).or_default().push(span);
    }
    ranks.entry(0).or_default().entry(Row::Scheduler).or_default().extend(merged("plan", planned));
    for (rank, times) in taken {
        ranks
            .entry(rank)
            .or_default()
            .entry(Row::Scheduler)
            .or_default()
            .extend(merged("take", times));
    }
    ranks
}

/// Merges moments that are near each other into spans.
fn merged(what: &'static str, mut times: Vec<u64>) -> Vec<Span> {
    /// Moments that are near each other.
    struct Burst {
        start: u64,
        end: u64,
        count: u64,
    }
    times.sort_unstable();
    let mut bursts: Vec<Burst> = Vec::new();
    for time in times {
        match bursts.last_mut() {
            Some(burst) if time <= burst.end.saturating_add(GAP_NS) => {
                (burst.end, burst.count) = (time, burst.count + 1);
            }
            _ => bursts.push(Burst { start: time, end: time, count: 1 }),
        }
    }
    let span = |Burst { start, end, count }| Span {
        name: format!("{what} {count} jobs"),
        kind: what,
        start,
        end: end.max(start + 1),
        job: None,
        args: json!({ "jobs": count }),
    };
    bursts.into_iter().map(span).collect()
}

fn rank_rows<W: Write>(
    recorder: &Recorder,
    rank: Rank,
    rows: BTreeMap<Row, Vec<Span>>,
    events: &mut Events<'_, W>,
    drawn: &mut FxHashMap<CommandId, DrawnJob>,
) -> Result<()> {
    events.put(&json!({ "ph": "M", "pid": rank, "name": "process_name", "args": { "name": recorder.rank_name(rank) } }))?;
    events.put(
        &json!({ "ph": "M", "pid": rank, "name": "process_sort_index", "args": { "sort_index": rank } }),
    )?;
    let mut thread = 0_u64;
    for (row, mut spans) in rows {
        spans.sort_by_key(|span| (span.start, span.end));
        // When each row of this name is free again.
        let mut lanes: Vec<u64> = Vec::new();
        for span in spans {
            let lane = lanes.iter().position(|free| *free <= span.start).unwrap_or(lanes.len());
            if lane == lanes.len() {
                lanes.push(0);
                let name = row.name(recorder, rank);
                let name =
                    if lane == 0 { name } else { format!("{name}, at the same time {}", lane + 1) };
                let tid = thread + lane as u64;
                events.put(&json!({ "ph": "M", "pid": rank, "tid": tid, "name": "thread_name", "args": { "name": name } }))?;
                events.put(&json!({ "ph": "M", "pid": rank, "tid": tid, "name": "thread_sort_index", "args": { "sort_index": tid } }))?;
            }
            if let Some(free) = lanes.get_mut(lane) {
                *free = span.end;
            }
            let tid = thread + lane as u64;
            if let Some(job) = span.job {
                drawn.insert(job, DrawnJob { rank, thread: tid, start: span.start, end: span.end });
            }
            events.put(&json!({
                "ph": "X", "pid": rank, "tid": tid, "name": span.name, "cat": span.kind,
                "ts": events.us(span.start), "dur": to_f64(span.end - span.start) / 1e3, "args": span.args,
            }))?;
        }
        thread += lanes.len() as u64;
    }
    Ok(())
}

/// Writes the dependencies. Bytes go from the sender's begin to the receiver's end, because both
/// work at the same time. Other arrows go from end to begin.
fn arrows<W: Write>(
    recorder: &Recorder,
    drawn: &FxHashMap<CommandId, DrawnJob>,
    events: &mut Events<'_, W>,
) -> Result<()> {
    let mut id = 0_u64;
    for job in recorder.jobs().values() {
        let Some(to) = drawn.get(&job.id) else { continue };
        for before in recorder.predecessors(job) {
            let Some(from) = drawn.get(&before) else { continue };
            let is_stream = job.senders.contains(&before);
            let (leaves, arrives) =
                if is_stream { (from.start, to.end - 1) } else { (from.end - 1, to.start) };
            let name = if is_stream { "bytes" } else { "waits" };
            id += 1;
            events.put(&json!({
                "ph": "s", "pid": from.rank, "tid": from.thread, "ts": events.us(leaves), "id": id, "name": name, "cat": "dependency",
                "args": { "from": before.0, "to": job.id.0 },
            }))?;
            events.put(&json!({
                "ph": "f", "bp": "e", "pid": to.rank, "tid": to.thread, "ts": events.us(arrives.max(leaves)), "id": id, "name": name,
                "cat": "dependency",
            }))?;
        }
    }
    Ok(())
}

/// Writes the counters: the unfinished jobs of each rank, and the bytes on their way to it.
fn counters<W: Write>(recorder: &Recorder, events: &mut Events<'_, W>) -> Result<()> {
    let mut changes: BTreeMap<(Rank, u64), (i64, i64)> = BTreeMap::new();
    for job in recorder.jobs().values().filter(|job| job.times.received > 0 && job.times.ended > 0)
    {
        changes.entry((job.rank, job.times.received)).or_default().0 += 1;
        changes.entry((job.rank, job.times.ended)).or_default().0 -= 1;
        if !job.from.is_empty() {
            let bytes = i64::try_from(job.bytes).unwrap_or(i64::MAX);
            changes.entry((job.rank, recorder.began(job))).or_default().1 += bytes;
            changes.entry((job.rank, job.times.ended)).or_default().1 -= bytes;
        }
    }
    let mut now: FxHashMap<Rank, (i64, i64)> = FxHashMap::default();
    for ((rank, time), (jobs, bytes)) in changes {
        let value = now.entry(rank).or_default();
        *value = (value.0 + jobs, value.1 + bytes);
        let ts = events.us(time);
        if jobs != 0 {
            events.put(&json!({ "ph": "C", "pid": rank, "ts": ts, "name": "queue depth", "args": { "jobs": value.0 } }))?;
        }
        if bytes != 0 {
            events.put(&json!({ "ph": "C", "pid": rank, "ts": ts, "name": "bytes in flight", "args": { "bytes": value.1 } }))?;
        }
    }
    Ok(())
}
