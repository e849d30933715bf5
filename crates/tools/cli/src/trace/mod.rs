//! `penstock trace`: what the processes of a session sent to each other, from the files that
//! `PENSTOCK_TRACE` makes them write.

mod replay;
mod show;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use penstock_wire::trace::{Record, RecordKind, Writer, head, read};
use penstock_wire::{Frame, Id, id::kind};

use crate::args::TraceCommand;
use crate::failure::Failure;

pub fn trace(command: &TraceCommand) -> Result<ExitCode, Failure> {
    match command {
        TraceCommand::Show(args) => show::show(args),
        TraceCommand::Replay(args) => replay::replay(args),
    }
}

/// A trace file in memory.
struct File {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// One thing that happened on a link.
struct Entry<'a> {
    writer: Writer,
    /// Process id of the writer.
    process: u32,
    /// Number of the link among those of the process.
    link: u32,
    /// In ns since the beginning of 1970.
    time: u64,
    event: Event<'a>,
}

enum Event<'a> {
    /// A link to this peer was established.
    Opened(String),
    Frame(Traced<'a>),
    /// The link has ended.
    Closed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Direction {
    Sent,
    Received,
}

/// A frame with its payload.
struct Traced<'a> {
    direction: Direction,
    opcode: u16,
    /// The frame's header, body and wait list, as they were on the link.
    head: &'a [u8],
    body: &'a [u8],
    waits: &'a [Id<kind::Event>],
    /// Size of the payload on the link, in bytes.
    payload_bytes: u64,
    /// The payload, as far as it is in the trace.
    payload: Vec<u8>,
}

impl Traced<'_> {
    /// Returns whether the trace has only a part of the payload.
    fn is_cut(&self) -> bool {
        self.payload.len() as u64 != self.payload_bytes
    }
}

impl File {
    fn load(path: &Path) -> Result<Self, Failure> {
        let bytes = fs::read(path).map_err(Failure::file(path, "read"))?;
        Ok(Self { path: path.to_owned(), bytes })
    }

    /// Returns what happened on each link, in the order of the records.
    fn entries(&self) -> Result<Vec<Entry<'_>>, Failure> {
        let wrong = |reason: String| Failure::Argument {
            argument: self.path.display().to_string(),
            reason,
        };
        let trace = read(&self.bytes).map_err(|error| wrong(error.to_string()))?;
        if trace.cut_off > 0 {
            eprintln!(
                "penstock: {}: the last {} bytes are a part of a record; the process that wrote \
                 them was interrupted",
                self.path.display(),
                trace.cut_off
            );
        }
        let mut entries = Vec::new();
        // Position of the last frame of each link and direction, to which payload belongs.
        let mut last = HashMap::new();
        for record in &trace.records {
            let event = match event(record).map_err(|error| wrong(error.to_string()))? {
                Part::Event(event) => event,
                Part::Payload(direction) => {
                    let frame = last
                        .get(&(record.link, direction))
                        .and_then(|at| entries.get_mut(*at))
                        .map(|entry: &mut Entry<'_>| &mut entry.event);
                    if let Some(Event::Frame(frame)) = frame {
                        frame.payload.extend_from_slice(record.content);
                    }
                    continue;
                }
            };
            if let Event::Frame(frame) = &event {
                last.insert((record.link, frame.direction), entries.len());
            }
            entries.push(Entry {
                writer: trace.writer,
                process: trace.process,
                link: record.link,
                time: trace.started.saturating_add(record.time),
                event,
            });
        }
        Ok(entries)
    }
}

/// What one record of a trace stands for.
enum Part<'a> {
    Event(Event<'a>),
    /// Bytes of the payload of the last frame of this direction.
    Payload(Direction),
}

fn event<'a>(record: &Record<'a>) -> Result<Part<'a>, penstock_wire::FrameError> {
    Ok(match record.kind {
        RecordKind::Opened => {
            Part::Event(Event::Opened(String::from_utf8_lossy(record.content).into_owned()))
        }
        RecordKind::Sent => Part::Event(frame(Direction::Sent, record.content)?),
        RecordKind::Received => Part::Event(frame(Direction::Received, record.content)?),
        RecordKind::SentPayload => Part::Payload(Direction::Sent),
        RecordKind::ReceivedPayload => Part::Payload(Direction::Received),
        RecordKind::Closed => Part::Event(Event::Closed),
    })
}

fn frame(direction: Direction, content: &[u8]) -> Result<Event<'_>, penstock_wire::FrameError> {
    let Frame { header, body, waits } = head(content)?;
    Ok(Event::Frame(Traced {
        direction,
        opcode: header.opcode.get(),
        head: content,
        body,
        waits,
        payload_bytes: header.payload.get(),
        payload: Vec::new(),
    }))
}

fn writer_name(writer: Writer) -> &'static str {
    match writer {
        Writer::Client => "client",
        Writer::Worker => "worker",
    }
}
