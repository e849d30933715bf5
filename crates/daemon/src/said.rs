//! What a worker writes to standard error: the lines of its log, and whatever drivers and kernels
//! write there.
//!
//! It is a pipe that the daemon reads, because the daemon's own standard error is a file or a
//! terminal that code of clients must not reach. All of it is hostile: the daemon writes each line
//! into its log under the number of the worker, and not more lines than a session needs.

use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use penstock_process::Lock;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::log::Log;

/// Longest line in bytes; longer ones are cut. A line of the log has some values of 500 characters.
const LINE_BYTES_MAX: usize = 8 << 10;

/// Most bytes that are read from one worker before the others get their turn: what a pipe holds.
const TURN_BYTES_MAX: usize = 64 << 10;

/// Most lines of a worker at once. Its start, and drivers that explain themselves, take some 100;
/// a log of everything takes more.
const LINES_MAX: u32 = 4_096;

/// Most lines that come back each second.
const LINES_PER_SECOND: u32 = 64;

/// The reading end of a worker's standard error.
#[derive(Debug)]
pub(crate) struct Said {
    pipe: OwnedFd,
    format: Log,
    heard: Lock<Heard>,
}

/// What has been read so far.
#[derive(Debug)]
struct Heard {
    /// The beginning of a line.
    line: Vec<u8>,
    budget: Budget,
    /// Whether nobody can write any more.
    is_over: bool,
}

impl Said {
    /// Makes the pipe of a worker. Returns the end for the worker, too.
    pub(crate) fn pipe(format: Log) -> std::io::Result<(Self, OwnedFd)> {
        let (pipe, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        // Code in the worker may not expect EAGAIN: only the reading end never blocks.
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let budget = Budget::new(Instant::now());
        let heard = Lock::new(Heard { line: Vec::new(), budget, is_over: false });
        Ok((Self { pipe, format, heard }, writer))
    }

    /// Returns what to wait on, unless nothing more will come.
    pub(crate) fn source(&self) -> Option<BorrowedFd<'_>> {
        let is_over = self.heard.lock().is_over;
        (!is_over).then(|| self.pipe.as_fd())
    }

    /// Writes into the log what has come from this worker, at most [`TURN_BYTES_MAX`].
    pub(crate) fn relay(&self, worker: u32) {
        let mut text = String::new();
        let mut heard = self.heard.lock();
        let mut bytes = vec![0; TURN_BYTES_MAX];
        let count = match rustix::io::read(&self.pipe, &mut bytes) {
            Ok(count) => count,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            Err(_) => 0,
        };
        heard.is_over = count == 0;
        let now = Instant::now();
        for line in heard.lines(bytes.get(..count).unwrap_or_default()) {
            if let Some(left_out) = heard.budget.pass(now) {
                text.push_str(&self.format.left_out(worker, left_out));
                text.push_str(&self.format.relayed(worker, &line));
            }
        }
        drop(heard);
        // As in the log itself, an error has no place to go.
        _ = std::io::stderr().lock().write_all(text.as_bytes());
    }

    /// Writes into the log what is left of a worker that has ended.
    pub(crate) fn end(&self, worker: u32) {
        self.relay(worker);
        let mut heard = self.heard.lock();
        let line = std::mem::take(&mut heard.line);
        let left_out = std::mem::take(&mut heard.budget.left_out);
        drop(heard);
        let mut text = self.format.left_out(worker, left_out);
        if !line.is_empty() {
            text.push_str(&self.format.relayed(worker, &line));
        }
        _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

impl Heard {
    /// Returns the lines that these bytes complete, without their ends.
    fn lines(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for byte in bytes {
            if *byte == b'\n' {
                lines.push(std::mem::take(&mut self.line));
            } else if self.line.len() < LINE_BYTES_MAX {
                self.line.push(*byte);
            }
        }
        lines.retain(|line| !line.is_empty());
        lines
    }
}

/// How many lines a worker may write now.
#[derive(Debug)]
struct Budget {
    lines: u32,
    /// When the lines of the last second came back.
    since: Instant,
    left_out: u64,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { lines: LINES_MAX, since: now, left_out: 0 }
    }

    /// If a line may be written, returns how many were left out before it.
    fn pass(&mut self, now: Instant) -> Option<u64> {
        let seconds = now.saturating_duration_since(self.since).as_secs();
        if seconds > 0 {
            self.since += Duration::from_secs(seconds);
            let back = u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(LINES_PER_SECOND);
            self.lines = self.lines.saturating_add(back).min(LINES_MAX);
        }
        let Some(lines) = self.lines.checked_sub(1) else {
            self.left_out += 1;
            return None;
        };
        self.lines = lines;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_cut() {
        let (said, _writer) = Said::pipe(Log::Text).unwrap();
        let mut heard = said.heard.lock();
        assert!(heard.lines(b"half").is_empty());
        assert_eq!(heard.lines(b" a line\n\nanother\nrest"), [&b"half a line"[..], b"another"]);
        assert!(heard.lines(&[b'x'; 3 * LINE_BYTES_MAX]).is_empty());
        let lines = heard.lines(b"\n");
        assert_eq!((lines.len(), lines[0].len()), (1, LINE_BYTES_MAX));
    }

    #[test]
    fn a_flood_is_counted_and_not_written() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        assert!((0..LINES_MAX).all(|_| budget.pass(start) == Some(0)));
        assert_eq!((budget.pass(start), budget.pass(start)), (None, None));
        let later = start + Duration::from_secs(1);
        assert_eq!(budget.pass(later), Some(2));
        assert!((1..LINES_PER_SECOND).all(|_| budget.pass(later) == Some(0)));
        assert_eq!(budget.pass(later), None);
        assert_eq!(budget.pass(start + Duration::from_secs(1_000_000)), Some(1));
    }

    #[test]
    fn nothing_is_waited_for_after_the_last_writer() {
        let (said, writer) = Said::pipe(Log::Text).unwrap();
        said.relay(7);
        assert!(said.source().is_some());
        drop(writer);
        said.relay(7);
        assert!(said.source().is_none());
    }
}
