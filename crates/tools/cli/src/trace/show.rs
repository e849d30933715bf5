//! `penstock trace show`: the frames of one or more traces, in the order of their times.

use std::fmt::Write as _;
use std::process::ExitCode;

use penstock_wire::calls::{self, Shown};
use serde_json::{Map, Value, json};

use super::{Direction, Entry, Event, File, Traced, writer_name};
use crate::args::TraceShowArgs;
use crate::failure::Failure;
use crate::table;

/// Number of payload bytes in a line of text; a launch with a few arguments fits.
const PREVIEW_BYTES: usize = 16;

pub fn show(args: &TraceShowArgs) -> Result<ExitCode, Failure> {
    let files: Vec<File> =
        args.files.iter().map(|path| File::load(path)).collect::<Result<_, _>>()?;
    let mut entries = Vec::new();
    for file in &files {
        entries.extend(file.entries()?);
    }
    // Stable, so that records of one process with the same time keep their order.
    entries.sort_by_key(|entry| entry.time);
    let Some(first) = entries.first().map(|entry| entry.time) else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut text = String::new();
    for entry in entries.iter().filter(|entry| is_wanted(entry, args)) {
        if args.json {
            _ = writeln!(text, "{}", as_json(entry, args.payload));
        } else {
            line(&mut text, entry, first, args.payload);
        }
    }
    table::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn is_wanted(entry: &Entry<'_>, args: &TraceShowArgs) -> bool {
    let call = match &entry.event {
        Event::Frame(frame) => Some(name(frame)),
        Event::Opened(_) | Event::Closed => None,
    };
    args.link.is_none_or(|link| link == entry.link)
        && args.process.is_none_or(|process| process == entry.process)
        && (args.call.is_empty()
            || call.is_some_and(|call| args.call.iter().any(|it| it.eq_ignore_ascii_case(&call))))
}

fn name(frame: &Traced<'_>) -> String {
    calls::show(frame.opcode, frame.body)
        .map_or_else(|| format!("{:#06x}", frame.opcode), |shown| shown.name.to_owned())
}

fn fields(frame: &Traced<'_>) -> Vec<(&'static str, String)> {
    calls::show(frame.opcode, frame.body).map(|Shown { fields, .. }| fields).unwrap_or_default()
}

/// Returns the wait list as text. An event whose failure does not fail the command has a `?`.
fn waits(frame: &Traced<'_>) -> Vec<String> {
    let entry = |id: &penstock_wire::Id<penstock_wire::id::kind::Event>| {
        let (event, fails) = id.of_entry();
        format!("{}{}", event.get(), if fails { "" } else { "?" })
    };
    frame.waits.iter().map(entry).collect()
}

fn line(text: &mut String, entry: &Entry<'_>, first: u64, whole: bool) {
    let nanoseconds = entry.time - first;
    let (ms, ns) = (nanoseconds / 1_000_000, nanoseconds % 1_000_000);
    let (who, process, link) = (writer_name(entry.writer), entry.process, entry.link);
    _ = write!(text, "{ms:7}.{ns:06} {who} {process} {link} ");
    match &entry.event {
        Event::Opened(peer) => _ = writeln!(text, "== link to {peer}"),
        Event::Closed => _ = writeln!(text, "== the link has ended"),
        Event::Frame(frame) => {
            let arrow = match frame.direction {
                Direction::Sent => "->",
                Direction::Received => "<-",
            };
            _ = write!(text, "{arrow} {}", name(frame));
            for (name, value) in fields(frame) {
                _ = write!(text, " {name}={value}");
            }
            if !frame.waits.is_empty() {
                _ = write!(text, " waits=[{}]", waits(frame).join(" "));
            }
            payload(text, frame, whole);
        }
    }
}

fn payload(text: &mut String, frame: &Traced<'_>, whole: bool) {
    if frame.payload_bytes == 0 {
        text.push('\n');
        return;
    }
    _ = write!(text, " + {} bytes", frame.payload_bytes);
    if whole {
        text.push('\n');
        for (row, bytes) in frame.payload.chunks(PREVIEW_BYTES).enumerate() {
            _ = writeln!(text, "    {:08x}  {}", row * PREVIEW_BYTES, hex(bytes));
        }
        return;
    }
    let shown = frame.payload.get(..PREVIEW_BYTES).unwrap_or(&frame.payload);
    let more = if frame.payload_bytes > shown.len() as u64 { " ..." } else { "" };
    _ = writeln!(text, ": {}{more}", hex(shown));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

fn as_json(entry: &Entry<'_>, whole: bool) -> Value {
    let mut value = json!({
        "time_ns": entry.time,
        "writer": writer_name(entry.writer),
        "process": entry.process,
        "link": entry.link,
    });
    let more = match &entry.event {
        Event::Opened(peer) => json!({ "event": "opened", "peer": peer }),
        Event::Closed => json!({ "event": "closed" }),
        Event::Frame(frame) => {
            let numbers = fields(frame).into_iter().map(|(name, value)| {
                let number = serde_json::from_str(&value);
                (name.to_owned(), number.unwrap_or(Value::String(value)))
            });
            let direction = match frame.direction {
                Direction::Sent => "sent",
                Direction::Received => "received",
            };
            json!({
                "event": direction,
                "call": name(frame),
                "fields": Value::Object(numbers.collect::<Map<_, _>>()),
                "waits": waits(frame),
                "payload_bytes": frame.payload_bytes,
                "payload": whole.then(|| hex(&frame.payload)),
            })
        }
    };
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    value
}
