//! `penstock trace replay`: sends what a client sent once more, to another worker, and compares
//! what the worker answers with the trace.
//!
//! The order of calls is that of the trace. A call that the client made after an answer waits for
//! the same answer here, because the client may have needed it. Times are not those of the trace.

use std::collections::{HashMap, HashSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use penstock_link::{LinkError, Patience, Received, Receiver, Sender};
use penstock_wire::calls::{Attached, Serve, Served, to_client, to_worker};
use penstock_wire::trace::Writer;
use penstock_wire::{Call as _, Frame, FrameError, Payload, Status};

use super::{Direction, Entry, Event, File, Traced};
use penstock_client::open_link;

use crate::args::TraceReplayArgs;
use crate::failure::Failure;
use crate::run::{Wishes, configured, find_nodes, keys_for};
use crate::table;

/// Calls that name another worker. A replay has one worker, so it refuses them.
const OF_SEVERAL_WORKERS: [u16; 10] = [
    to_worker::ConnectPeer::OPCODE,
    to_worker::AdmitPeer::OPCODE,
    to_worker::TellPeer::OPCODE,
    to_worker::AdmitHeapMember::OPCODE,
    to_worker::ConnectHeapMember::OPCODE,
    to_worker::AdmitGuest::OPCODE,
    to_worker::ConnectHost::OPCODE,
    to_worker::GrantMem::OPCODE,
    to_worker::RevokeGrant::OPCODE,
    to_worker::ClaimGrant::OPCODE,
];

/// Most differences that are shown. More have the same cause as a rule.
const DIFFERENCES_SHOWN_MAX: usize = 20;

pub fn replay(args: &TraceReplayArgs) -> Result<ExitCode, Failure> {
    let file = File::load(&args.file)?;
    let entries = file.entries()?;
    let frames = frames_of_one_link(&entries, args)?;
    let config = configured(args.nodes.as_deref())?;
    // A replay needs one worker, so the first node that answers will do.
    let wishes = Wishes { allow_missing: true, ..Wishes::default() };
    let found = find_nodes(&config, wishes)?;
    let Some((node, _)) = found.nodes.first() else { return Err(Failure::NoneAnswers) };
    let keys = keys_for(node, &config)?;
    let (sender, receiver) = open_link(&node.address, &keys, config.timeout)?;
    let mut replay = Replay {
        sender,
        receiver,
        answers: HashMap::new(),
        patience: Duration::from_secs(args.patience.into()),
        calls: 0,
        compared: 0,
        differences: Vec::new(),
    };
    for frame in &frames {
        match frame.direction {
            Direction::Sent => replay.send(frame)?,
            Direction::Received => replay.expect(frame)?,
        }
    }
    replay.report()
}

/// Returns the frames of the link that is replayed, after checking that one worker can serve them.
fn frames_of_one_link<'a>(
    entries: &'a [Entry<'a>],
    args: &TraceReplayArgs,
) -> Result<Vec<&'a Traced<'a>>, Failure> {
    let wrong = |reason: &str| Failure::Argument {
        argument: args.file.display().to_string(),
        reason: reason.to_owned(),
    };
    if entries.iter().any(|entry| entry.writer != Writer::Client) {
        return Err(wrong("this is the trace of a worker; a replay needs the trace of a client"));
    }
    let links: HashSet<u32> = entries.iter().map(|entry| entry.link).collect();
    let link = match (args.link, links.len()) {
        (Some(link), _) => link,
        (None, 1) => links.into_iter().next().unwrap_or_default(),
        (None, _) => return Err(wrong("the trace has several links; select one with --link")),
    };
    let mut frames = Vec::new();
    for entry in entries.iter().filter(|entry| entry.link == link) {
        let Event::Frame(frame) = &entry.event else { continue };
        if OF_SEVERAL_WORKERS.contains(&frame.opcode) {
            return Err(wrong("the session used several workers; a replay has only one"));
        }
        if frame.direction == Direction::Sent && frame.is_cut() {
            return Err(wrong("the trace lacks payloads; was PENSTOCK_TRACE_PAYLOAD set?"));
        }
        frames.push(frame);
    }
    if frames.is_empty() {
        return Err(wrong("the trace has no frames of this link"));
    }
    Ok(frames)
}

/// An answer that has to be the same in a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// The status of the reply to a request.
    Reply { request: u64, status: i32 },
    /// The status with which an event ended.
    End { event: u64, status: i32 },
    /// Bytes that a read brought.
    Read { event: u64, offset: u64, bytes: Vec<u8> },
    /// The worker ends the session.
    Fault { reason: String },
    /// Something that depends on time or on the process.
    Other,
}

/// What an answer answers. The answer of the trace and that of the replay have the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AnswerKey {
    /// Kind of the answer, in the words of a message.
    what: &'static str,
    /// Number of the request or of the event, or 0 if the answer belongs to neither.
    id: u64,
    /// Offset of the bytes of a read, otherwise 0.
    offset: u64,
}

impl Answer {
    /// Decodes a frame of a worker.
    fn decode(frame: &Frame<'_>, payload: &mut dyn Payload) -> Result<Self, FrameError> {
        let mut decoder = Decoder(Self::Other);
        to_client::dispatch(&mut decoder, frame, payload)?;
        Ok(decoder.0)
    }

    /// Returns what the answer answers, by which a replay finds the answer of the trace again.
    fn key(&self) -> Option<AnswerKey> {
        let key = |what, id, offset| Some(AnswerKey { what, id, offset });
        match self {
            Self::Reply { request, .. } => key("the reply to request", *request, 0),
            Self::End { event, .. } => key("the end of event", *event, 0),
            Self::Read { event, offset, .. } => key("the bytes of read", *event, *offset),
            Self::Fault { .. } => key("the end of the session", 0, 0),
            Self::Other => None,
        }
    }

    /// Returns whether this answer is the one of the trace, as far as the trace has its payload.
    fn agrees_with(&self, traced: &Self, is_cut: bool) -> bool {
        match (self, traced) {
            (Self::Read { bytes: now, .. }, Self::Read { bytes: then, .. }) if is_cut => {
                now.starts_with(then)
            }
            (Self::Fault { reason: now }, Self::Fault { reason: then }) if is_cut => {
                // The trace may end inside a letter.
                now.starts_with(then.trim_end_matches(char::REPLACEMENT_CHARACTER))
            }
            _ => self == traced,
        }
    }

    /// Describes the content, for a message about a difference.
    fn content(&self) -> String {
        match self {
            Self::Reply { status, .. } | Self::End { status, .. } => Status(*status).to_string(),
            Self::Read { bytes, .. } => {
                let sum = bytes
                    .iter()
                    .fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
                format!("{} bytes (sum {sum:016x})", bytes.len())
            }
            Self::Fault { reason } => reason.clone(),
            Self::Other => String::new(),
        }
    }
}

/// Keeps the answer of the frame that is dispatched to it.
struct Decoder(Answer);

impl Serve<to_client::Reply> for Decoder {
    fn serve(&mut self, call: &to_client::Reply, _: Attached<'_>) -> Served {
        self.0 = Answer::Reply { request: call.request.get(), status: call.status.get() };
        Ok(())
    }
}

impl Serve<to_client::EventDone> for Decoder {
    fn serve(&mut self, call: &to_client::EventDone, _: Attached<'_>) -> Served {
        self.0 = Answer::End { event: call.event.get(), status: call.status.get() };
        Ok(())
    }
}

impl Serve<to_client::ReadData> for Decoder {
    fn serve(&mut self, call: &to_client::ReadData, with: Attached<'_>) -> Served {
        let (event, offset, bytes) =
            (call.event.get(), call.offset.get(), with.payload.read_all()?);
        self.0 = Answer::Read { event, offset, bytes };
        Ok(())
    }
}

impl Serve<to_client::Fault> for Decoder {
    fn serve(&mut self, _: &to_client::Fault, with: Attached<'_>) -> Served {
        let reason = String::from_utf8_lossy(&with.payload.read_all()?).into_owned();
        self.0 = Answer::Fault { reason };
        Ok(())
    }
}

/// Calls of a worker that are no answers.
macro_rules! ignored {
    ($($call:ident)*) => {$(
        impl Serve<to_client::$call> for Decoder {
            fn serve(&mut self, _: &to_client::$call, _: Attached<'_>) -> Served {
                Ok(())
            }
        }
    )*};
}
ignored!(Output ContextError MemGone PeerLost QueueFailed Beat);

struct Replay {
    sender: Sender,
    receiver: Receiver,
    /// Answers of this worker that the replay has not yet compared.
    answers: HashMap<AnswerKey, Answer>,
    /// Longest wait for one answer.
    patience: Duration,
    calls: usize,
    compared: usize,
    differences: Vec<String>,
}

impl Replay {
    fn send(&mut self, frame: &Traced<'_>) -> Result<(), Failure> {
        self.calls += 1;
        self.sender.send_encoded(frame.head, &frame.payload)?;
        Ok(())
    }

    /// Waits for the answer of the trace and compares it.
    fn expect(&mut self, traced: &Traced<'_>) -> Result<(), Failure> {
        let frame = penstock_wire::trace::head(traced.head).map_err(LinkError::from)?;
        let expected =
            Answer::decode(&frame, &mut traced.payload.as_slice()).map_err(LinkError::from)?;
        let Some(key) = expected.key() else { return Ok(()) };
        self.sender.flush()?;
        let deadline = Instant::now() + self.patience;
        let answer = loop {
            if let Some(answer) = self.answers.remove(&key) {
                break answer;
            }
            let answers = &mut self.answers;
            let received =
                self.receiver.receive(Patience::Until(deadline), &mut |frame, payload| {
                    let answer = Answer::decode(frame, payload)?;
                    if let Some(key) = answer.key() {
                        answers.insert(key, answer);
                    }
                    Ok(())
                })?;
            if received == Received::TimedOut {
                return Err(Failure::Program {
                    what: format!("the replay after {} calls", self.calls),
                    how: format!("{} {} did not come within {:?}", key.what, key.id, self.patience),
                });
            }
        };
        self.compared += 1;
        if !answer.agrees_with(&expected, traced.is_cut()) {
            let (now, then) = (answer.content(), expected.content());
            self.differences
                .push(format!("{} {}: now {now}; in the trace {then}", key.what, key.id));
        }
        Ok(())
    }

    fn report(self) -> Result<ExitCode, Failure> {
        let (calls, compared, count) = (self.calls, self.compared, self.differences.len());
        let mut text =
            format!("{calls} calls replayed; {compared} answers compared; {count} differ\n");
        for difference in self.differences.iter().take(DIFFERENCES_SHOWN_MAX) {
            text.push_str(difference);
            text.push('\n');
        }
        if count > DIFFERENCES_SHOWN_MAX {
            text.push_str(&format!("and {} more\n", count - DIFFERENCES_SHOWN_MAX));
        }
        table::print(&text)?;
        Ok(if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_compared_as_far_as_the_trace_has_it() {
        let read = |bytes: &[u8]| Answer::Read { event: 1, offset: 0, bytes: bytes.to_vec() };
        assert!(read(b"abc").agrees_with(&read(b"abc"), false));
        assert!(!read(b"abc").agrees_with(&read(b"ab"), false));
        assert!(read(b"abc").agrees_with(&read(b"ab"), true));
        assert!(!read(b"abc").agrees_with(&read(b"ax"), true));
        let fault = |reason: &str| Answer::Fault { reason: reason.to_owned() };
        assert!(fault("größe").agrees_with(&fault("gr\u{fffd}"), true));
        assert!(!fault("größe").agrees_with(&fault("gx"), true));
        let end = |status| Answer::End { event: 1, status };
        assert!(end(0).agrees_with(&end(0), true) && !end(0).agrees_with(&end(-5), true));
    }
}
