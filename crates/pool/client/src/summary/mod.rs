//! Summary of a run, if `PENSTOCK_SUMMARY` asks for one: the commands of the program, and for what
//! its threads waited. The process writes it when it ends.
//!
//! * This file counts. The counters are atomic numbers of each session. A session without a summary
//!   has none.
//! * `kinds` has what is told apart, and `figures` what was counted, as plain numbers.
//! * `sentences` decides what bounded the run.
//! * `text` and `json` show both.

mod figures;
mod json;
mod kinds;
mod number;
mod sentences;
mod text;

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use penstock_process::exit::{at_exit, write_without_signal};
use penstock_process::{Lock, is_own, variable};
use penstock_wire::Call;

use figures::{Amount, Counts, Figures, NodeFigures};
use kinds::{COMMANDS, REASONS};
pub use kinds::{Command, Reason};

/// Shortest wait that counts. The answer of a worker takes longer, and a thread that finds what it
/// waits for is back sooner.
const WAIT_MIN: Duration = Duration::from_micros(1);

/// The figures of one node, or of waits for no particular node.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    name: String,
    /// Numbers of commands, and bytes.
    commands: [Pair; COMMANDS],
    /// Numbers of waits, and ns.
    waits: [Pair; REASONS],
    is_lost: AtomicBool,
}

#[derive(Debug, Default)]
struct Pair {
    count: AtomicU64,
    sum: AtomicU64,
}

impl Pair {
    fn add(&self, count: u64, sum: u64) {
        self.count.fetch_add(count, Relaxed);
        self.sum.fetch_add(sum, Relaxed);
    }

    fn amount(&self) -> Amount {
        Amount { count: self.count.load(Relaxed), sum: self.sum.load(Relaxed) }
    }
}

impl Tally {
    /// Counts a command that moves this number of bytes between the program and the node.
    pub(crate) fn count(&self, command: Command, bytes: u64) {
        self.commands[command as usize].add(1, bytes);
    }

    /// Counts bytes of a read that have arrived.
    pub(crate) fn arrived(&self, bytes: u64) {
        self.commands[Command::Read as usize].add(0, bytes);
    }

    /// Counts the time in which this thread has waited for room on the link.
    pub(crate) fn add_room_wait(&self) {
        let room = penstock_link::take_room_wait();
        if !room.is_zero() && !is_own() {
            self.add_wait(Reason::Room, room);
        }
    }

    /// Counts a call that was sent.
    pub(crate) fn sent<C: Call>(&self, bytes: u64) {
        match const { Command::of_call(C::OPCODE) } {
            Some(command @ Command::Write) => self.count(command, bytes),
            Some(command) => self.count(command, 0),
            None => {}
        }
    }

    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Relaxed);
    }

    /// Adds a wait of this thread, to the wait that it is part of if there is one.
    fn add_wait(&self, reason: Reason, waited: Duration) {
        if let Some(sum) = WITHIN.get() {
            WITHIN.set(Some(sum + waited));
        } else if waited >= WAIT_MIN {
            let ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
            self.waits[reason as usize].add(1, ns);
            if let Some(run) = run().filter(|_| !HAS_WAITED.replace(true)) {
                run.threads.fetch_add(1, Relaxed);
            }
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            commands: std::array::from_fn(|at| self.commands[at].amount()),
            waits: std::array::from_fn(|at| self.waits[at].amount()),
        }
    }
}

thread_local! {
    /// Time that this thread has waited within the wait that counts as one.
    static WITHIN: Cell<Option<Duration>> = const { Cell::new(None) };
    static HAS_WAITED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, whose waits count as one wait for `reason`. Around other calls of this function the
/// outermost one counts.
pub(crate) fn within<R>(tally: Option<&Tally>, reason: Reason, work: impl FnOnce() -> R) -> R {
    let Some(tally) = tally.filter(|_| WITHIN.get().is_none()) else { return work() };
    let (done, waited) = collected(work);
    tally.add_wait(reason, waited);
    done
}

/// Runs `wait`, in which this thread does nothing but wait for the pool. Penstock's own threads are
/// not counted.
pub(crate) fn waiting<R>(tally: Option<&Tally>, reason: Reason, wait: impl FnOnce() -> R) -> R {
    let Some(tally) = tally.filter(|_| !is_own()) else { return wait() };
    let since = penstock_process::now();
    // What it waits for inside is part of the same time.
    let (done, _) = collected(wait);
    _ = penstock_link::take_room_wait();
    tally.add_wait(reason, penstock_process::since(since));
    done
}

/// Runs `work`. Returns the time of the waits in it, which are not added to any other.
fn collected<R>(work: impl FnOnce() -> R) -> (R, Duration) {
    let outer = WITHIN.replace(Some(Duration::ZERO));
    let run = run().filter(|_| outer.is_none());
    run.inspect(|run| _ = run.open.fetch_add(1, Relaxed));
    let done = work();
    run.inspect(|run| _ = run.open.fetch_sub(1, Relaxed));
    (done, WITHIN.replace(outer).unwrap_or_default())
}

/// The summary of this process.
#[derive(Debug)]
struct Run {
    face: &'static str,
    process: u32,
    began: Instant,
    /// The file, or `None` for standard error.
    file: Option<PathBuf>,
    /// Number of threads of the program that have waited.
    threads: AtomicU64,
    /// Number of waits that have begun and not ended.
    open: AtomicU64,
    others: Tally,
    nodes: Lock<Vec<Arc<Tally>>>,
}

static RUN: OnceLock<Option<Run>> = OnceLock::new();

fn run() -> Option<&'static Run> {
    RUN.get()?.as_ref()
}

/// Opens a face's pool. From now on this process counts, if it was asked to.
pub fn open<R>(face: &'static str, open: impl FnOnce() -> R) -> R {
    _ = RUN.get_or_init(|| Run::begin(face));
    waiting(others(), Reason::Open, open)
}

/// Returns the tally of a new session with a node, if this process counts.
pub(crate) fn of_node(name: &str) -> Option<Arc<Tally>> {
    let run = run()?;
    let tally = Arc::new(Tally { name: name.to_owned(), ..Tally::default() });
    run.nodes.lock().push(tally.clone());
    Some(tally)
}

/// Returns the tally of waits for no particular node, if this process counts.
pub(crate) fn others() -> Option<&'static Tally> {
    run().map(|run| &run.others)
}

extern "C" fn write_at_exit() {
    // A panic must not leave a C function, and the program's exit status is its own.
    _ = std::panic::catch_unwind(|| run().map(Run::write));
}

impl Run {
    fn begin(face: &'static str) -> Option<Self> {
        let value = variable::SUMMARY.value()?;
        let file = match value.to_str().and_then(variable::flag) {
            Some(false) => return None,
            Some(true) => None,
            // The program may change its directory.
            None => Some(std::path::absolute(&value).unwrap_or_else(|_| PathBuf::from(&value))),
        };
        at_exit(write_at_exit).then(|| Self {
            face,
            process: std::process::id(),
            began: penstock_process::now(),
            file,
            threads: AtomicU64::new(0),
            open: AtomicU64::new(0),
            others: Tally::default(),
            nodes: Lock::default(),
        })
    }

    /// Writes the summary. No other thread and no node holds this up. A full pipe on standard error
    /// does.
    fn write(&self) {
        // A forked child has a copy of its parent's figures, and cannot use its pool.
        if std::process::id() != self.process {
            return;
        }
        let Some(figures) = self.figures().filter(|figures| !figures.nodes.is_empty()) else {
            return;
        };
        let Some(file) = &self.file else { return tell(&text::of(&figures)) };
        if let Err(error) = append(file, &json::of(&figures)) {
            tell(&format!("penstock: the summary {}: {error}\n", file.display()));
        }
    }

    fn figures(&self) -> Option<Figures> {
        let nodes = self.nodes.try_lock()?;
        let node = |tally: &Arc<Tally>| NodeFigures {
            name: tally.name.clone(),
            is_lost: tally.is_lost.load(Relaxed),
            counts: tally.counts(),
        };
        Some(Figures {
            process: self.process,
            program: program(),
            face: self.face,
            ran: penstock_process::since(self.began),
            threads: self.threads.load(Relaxed),
            open: self.open.load(Relaxed).max(penstock_link::waiting_for_room()),
            others: self.others.counts(),
            nodes: nodes.iter().map(node).collect(),
        })
    }
}

fn program() -> String {
    let name = std::env::args_os().next().unwrap_or_default();
    Path::new(&name).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn tell(text: &str) {
    // Another thread may hold the lock of the standard library's handle.
    let own = rustix::stdio::stderr().try_clone_to_owned();
    // If standard error is closed, nobody can be told.
    _ = own.and_then(|own| write_without_signal(&mut File::from(own), text.as_bytes()));
}

/// Adds a line to a file, in one write, because other processes may do so at the same time.
fn append(file: &Path, line: &str) -> io::Result<()> {
    // Without waiting for the reader of a pipe.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut file = OpenOptions::new().append(true).create(true).custom_flags(flags).open(file)?;
    write_without_signal(&mut file, line.as_bytes())
}

#[cfg(test)]
mod tests;
