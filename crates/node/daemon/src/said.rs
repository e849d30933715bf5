//! What a worker writes to standard error: the lines of its log, and whatever drivers and kernels
//! write there.
//!
//! It is a pipe that a thread of the daemon reads, because the daemon's own standard error is a
//! file or a terminal that code of clients must not reach. All of it is hostile: the thread writes
//! each line into the log under the number of the worker, and not more lines than a session needs.
//! Each worker has a thread of its own, so if the log takes no more, only writers wait.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};

use crate::log::Log;

/// Longest line in bytes; longer ones are cut. A line of the log has some values of 500 characters.
const LINE_BYTES_MAX: usize = 8 << 10;

/// Most bytes that are read at a time: what a pipe holds.
const READ_BYTES_MAX: usize = 64 << 10;

/// Time between two reads from a worker that writes too much. So a flood costs the daemon no more
/// than 200 pipes of text in a second.
const FLOOD_PAUSE: Duration = Duration::from_millis(5);

/// Longest wait for the last lines of workers when the daemon ends.
const END_MAX: Duration = Duration::from_secs(1);

/// Most lines of a worker at once. Its start, and drivers that explain themselves, take some 100;
/// a log of everything takes more.
const LINES_MAX: u32 = 4_096;

/// Most lines that come back each second.
const LINES_PER_SECOND: u32 = 64;

/// Makes the standard error of a worker. Returns the end to read, and the end of the worker.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

/// The threads that read what workers write. Each has a copy of this while it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Relays(Arc<()>);

impl Relays {
    /// Starts the thread that writes into the log what comes from a worker, until nobody can write
    /// into the pipe any more.
    pub(crate) fn start(&self, format: Log, worker: u32, pipe: OwnedFd) -> io::Result<()> {
        let (running, heard) = (self.clone(), Heard::new(format, worker));
        let relay = move || {
            heard.relay(File::from(pipe), &mut io::stderr());
            drop(running);
        };
        penstock_process::start("worker's log", relay).map(drop)
    }

    /// Waits for the last lines of workers that have ended.
    pub(crate) fn finish(&self) {
        let end = Instant::now() + END_MAX;
        while Arc::strong_count(&self.0) > 1 && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What has been read so far.
#[derive(Debug)]
struct Heard {
    format: Log,
    worker: u32,
    /// The beginning of a line.
    line: Vec<u8>,
    budget: Budget,
    /// Lines for the log.
    text: String,
}

impl Heard {
    fn new(format: Log, worker: u32) -> Self {
        let budget = Budget::new(Instant::now());
        Self { format, worker, line: Vec::new(), budget, text: String::new() }
    }

    fn relay(mut self, mut pipe: File, log: &mut dyn io::Write) {
        let mut bytes = vec![0; READ_BYTES_MAX];
        loop {
            let count = match pipe.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            self.take(bytes.get(..count).unwrap_or_default(), Instant::now());
            // As in the log itself, an error has no place to go.
            _ = log.write_all(std::mem::take(&mut self.text).as_bytes());
            if self.budget.left_out > 0 {
                thread::sleep(FLOOD_PAUSE);
            }
        }
        let left_out = std::mem::take(&mut self.budget.left_out);
        self.text.push_str(&self.format.left_out(self.worker, left_out));
        if !self.line.is_empty() {
            self.text.push_str(&self.format.relayed(self.worker, &self.line));
        }
        _ = log.write_all(self.text.as_bytes());
    }

    /// Takes the next bytes, and adds the lines that they complete to the text.
    fn take(&mut self, bytes: &[u8], now: Instant) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let end = piece.strip_suffix(b"\n");
            let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
            self.line.extend(end.unwrap_or(piece).iter().take(room));
            if end.is_none() {
                continue;
            }
            if !self.line.is_empty()
                && let Some(left_out) = self.budget.pass(now)
            {
                self.text.push_str(&self.format.left_out(self.worker, left_out));
                self.text.push_str(&self.format.relayed(self.worker, &self.line));
            }
            self.line.clear();
        }
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
    use std::io::Write as _;

    use super::*;

    /// Returns what the log gets from a worker that writes this and ends.
    fn relayed(said: &[u8]) -> String {
        let (pipe, writer) = pipe().unwrap();
        let mut log = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| File::from(writer).write_all(said).unwrap());
            Heard::new(Log::Text, 7).relay(File::from(pipe), &mut log);
        });
        String::from_utf8(log).unwrap()
    }

    #[test]
    fn lines_are_whole_and_cut_and_the_last_one_needs_no_end() {
        let log = relayed(b"half a line\n\nanother\nrest");
        let texts: Vec<_> = log.lines().map(|line| line.split_once(" text=").unwrap().1).collect();
        assert_eq!(texts, ["\"half a line\"", "another", "rest"]);
        let mut heard = Heard::new(Log::Text, 7);
        heard.take(b"half", Instant::now());
        heard.take(&[b'x'; 3 * LINE_BYTES_MAX], Instant::now());
        assert_eq!((heard.line.len(), heard.text.len()), (LINE_BYTES_MAX, 0));
        heard.take(b"\n", Instant::now());
        assert_eq!((heard.line.len(), heard.text.lines().count()), (0, 1));
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
    fn the_end_of_a_flood_says_how_many_lines_are_missing() {
        let mut heard = Heard::new(Log::Text, 7);
        let now = Instant::now();
        heard.take(&b"x\n".repeat(LINES_MAX as usize + 5), now);
        assert_eq!(heard.text.lines().count(), LINES_MAX as usize);
        let (pipe, writer) = pipe().unwrap();
        drop(writer);
        heard.text.clear();
        let mut log = Vec::new();
        heard.relay(File::from(pipe), &mut log);
        let log = String::from_utf8(log).unwrap();
        assert!(log.contains("lines are left out worker=7 lines=5"), "{log}");
    }

    #[test]
    fn threads_end_with_their_workers() {
        let relays = Relays::default();
        let (pipe, writer) = pipe().unwrap();
        relays.start(Log::Text, 7, pipe).unwrap();
        assert_eq!(Arc::strong_count(&relays.0), 2);
        drop(writer);
        relays.finish();
        assert_eq!(Arc::strong_count(&relays.0), 1);
    }
}
