//! The builders of a worker, as the worker sees them.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_confine::Level;
use penstock_link::{LinkError, Patience};
use penstock_process::Lock;
use penstock_wire::frame;

use super::failure::Failure;
use super::foremen::Foremen;
use super::known::{Known, Mark};
use super::limits::BuildLimits;
use super::task::{FromBuilder, FromForeman, Task, ToBuilder, ToForeman};
use crate::message::{Control, Received};
use crate::sys::Exit;

/// Longest start of a builder, as of a worker: it loads the same drivers. A foreman may take as
/// long, because the fork server may load them before it copies itself.
const START_MAX: Duration = Duration::from_secs(60);

/// Longest answer of the foreman to the end of a builder. The system takes some seconds at most to
/// take back the memory of a process that it ends.
const FOREMAN_MAX: Duration = Duration::from_secs(20);

/// Longest time until a new builder takes a task. It takes it in microseconds, or on a busy machine
/// in some seconds.
const TAKE_MAX: Duration = Duration::from_secs(20);

/// As [`TAKE_MAX`], for a builder that has waited for a task. If it is too slow, the task costs the
/// start of another builder, and not the build. Even on a busy machine, a process that wakes up
/// waits less than a second for a core.
const IDLE_TAKE_MAX: Duration = Duration::from_secs(2);

/// All builders of this worker.
#[derive(Debug)]
pub(crate) struct Builders {
    /// `None` before the first builder, and after the foreman has not answered: a late answer would
    /// be taken for that to another message.
    foreman: Lock<Option<Control>>,
    foremen: Arc<Foremen>,
    limits: BuildLimits,
    /// Level of confinement that this worker has reached, and that its builders must reach.
    level: Level,
    known: Known,
    /// Builders without a task, the last one used at the end.
    idle: Lock<Vec<Builder>>,
}

#[derive(Debug)]
struct Builder {
    number: u32,
    control: Control,
    /// Where its tasks are written.
    memory: File,
    /// Memory that the drivers took at its start.
    resident_bytes: u64,
}

/// What became of a task.
enum Tried {
    Done(Builder),
    /// The builder had ended before it took the task.
    NotTaken,
}

impl Builders {
    /// `folder` is the worker's own folder.
    pub(crate) fn new(
        foremen: Arc<Foremen>,
        limits: BuildLimits,
        level: Level,
        folder: Option<PathBuf>,
    ) -> Self {
        let known = Known::new(folder);
        Self { foreman: Lock::default(), foremen, limits, level, known, idle: Lock::default() }
    }

    pub(super) fn limits(&self) -> BuildLimits {
        self.limits
    }

    /// Returns once the compiler has come to an end with this task, now or earlier. `facts` tell
    /// the devices and their drivers from others.
    ///
    /// # Errors
    /// The compiler did not come to an end, or there was no process for it.
    pub(super) fn rehearse(&self, task: &Task, facts: &[u8]) -> Result<(), Failure> {
        let bytes = frame::encode(task);
        let limits = [self.limits.seconds_max, self.limits.bytes_max].map(u64::to_le_bytes);
        let mark = Mark::of(&[&bytes, facts, limits.as_flattened()]);
        if self.known.has(mark) {
            return Ok(());
        }
        self.perform(&bytes)?;
        self.known.add(mark);
        Ok(())
    }

    fn perform(&self, task: &[u8]) -> Result<(), Failure> {
        // A builder ends if it has been idle for a while, maybe just now.
        loop {
            let Some(idle) = self.idle.lock().pop() else { break };
            if let Tried::Done(builder) = self.try_with(idle, task, IDLE_TAKE_MAX)? {
                self.idle.lock().push(builder);
                return Ok(());
            }
        }
        match self.try_with(self.start()?, task, TAKE_MAX)? {
            Tried::Done(builder) => {
                self.idle.lock().push(builder);
                Ok(())
            }
            Tried::NotTaken => Err(Failure::NoBuilder("it ended before it began".into())),
        }
    }

    /// Lets a builder perform a task that it takes within `take_max`. Ends the builder unless it
    /// has done the task.
    fn try_with(
        &self,
        builder: Builder,
        task: &[u8],
        take_max: Duration,
    ) -> Result<Tried, Failure> {
        let begun = builder.tell(task)
            && matches!(builder.hear(take_max), Heard::Said(FromBuilder::Begun, _));
        if !begun {
            // If its foreman is gone, so is the builder.
            _ = self.end(builder.number, builder.resident_bytes);
            return Ok(Tried::NotTaken);
        }
        match builder.hear(Duration::from_secs(self.limits.seconds_max)) {
            Heard::Said(FromBuilder::Done, _) => Ok(Tried::Done(builder)),
            Heard::Nothing => {
                Err(Failure::TimedOut(self.end(builder.number, builder.resident_bytes)?))
            }
            // A builder that says something else is no longer ours.
            Heard::Said(..) | Heard::Closed => {
                Err(Failure::Crashed(self.end(builder.number, builder.resident_bytes)?))
            }
        }
    }

    fn start(&self) -> Result<Builder, Failure> {
        // The builder has the only other end, so its end closes the connection.
        let (number, control) = match self.ask(&ToForeman::Start)? {
            (FromForeman::Started(number), Some(socket)) => (number, Control::of(socket)),
            (FromForeman::NotStarted(why), _) => return Err(Failure::NoBuilder(why)),
            _ => return Err(Failure::NoBuilder("the foreman erred".into())),
        };
        match hear(&control, START_MAX) {
            Heard::Said(FromBuilder::Ready { level, resident_bytes }, Some(memory))
                if level >= self.level =>
            {
                Ok(Builder { number, control, memory: File::from(memory), resident_bytes })
            }
            Heard::Said(FromBuilder::Ready { level, .. }, Some(_)) => {
                self.end(number, 0)?;
                let why = format!(
                    "it reaches the level `{level}` of confinement, and the worker has `{}`",
                    self.level
                );
                Err(Failure::NoBuilder(why))
            }
            heard => {
                let exit = self.end(number, 0)?;
                let why = match heard {
                    Heard::Nothing => format!("its start took {} s", START_MAX.as_secs()),
                    _ => format!("it ended at its start with {exit:?}"),
                };
                Err(Failure::NoBuilder(why))
            }
        }
    }

    /// Ends a builder. Its peak is without what the drivers took at its start.
    fn end(&self, number: u32, resident_bytes: u64) -> Result<Exit, Failure> {
        match self.ask(&ToForeman::End(number))?.0 {
            FromForeman::Ended(exit) => {
                let peak_bytes = exit.peak_bytes.saturating_sub(resident_bytes);
                Ok(Exit { peak_bytes, ..exit })
            }
            FromForeman::NotStarted(why) => Err(Failure::NoBuilder(why)),
            FromForeman::Started(_) => Err(Failure::NoBuilder("the foreman erred".into())),
        }
    }

    /// Asks the foreman. If there is none, or the last one has ended, a start engages another one.
    fn ask(&self, message: &ToForeman) -> Result<Received<FromForeman>, Failure> {
        let why = |why| Failure::NoBuilder(format!("the process that starts builders: {why}"));
        let mut foreman = self.foreman.lock();
        let is_start = matches!(message, ToForeman::Start);
        let most = if is_start { START_MAX } else { FOREMAN_MAX };
        let mut engaged = false;
        loop {
            let control = match foreman.take() {
                Some(control) => control,
                None if is_start && !engaged => {
                    engaged = true;
                    self.foremen.engage().map_err(why)?
                }
                None => return Err(why("it has ended".into())),
            };
            match answer(&control, message, most) {
                Ok(Some(received)) => {
                    *foreman = Some(control);
                    return Ok(received);
                }
                Ok(None) => return Err(why("it does not answer".into())),
                // The next turn engages another one, or fails.
                Err(_) => {}
            }
        }
    }
}

/// Returns the foreman's answer, or `None` if it does not come in time.
fn answer(
    foreman: &Control,
    message: &ToForeman,
    most: Duration,
) -> Result<Option<Received<FromForeman>>, LinkError> {
    foreman.send(message, None)?;
    foreman.receive(Patience::Until(Instant::now() + most))
}

enum Heard {
    /// A message, and what came with it.
    Said(FromBuilder, Option<OwnedFd>),
    Nothing,
    Closed,
}

fn hear(builder: &Control, patience: Duration) -> Heard {
    match builder.receive(Patience::Until(Instant::now() + patience)) {
        Ok(Some((message, came))) => Heard::Said(message, came),
        Ok(None) => Heard::Nothing,
        Err(_) => Heard::Closed,
    }
}

impl Builder {
    fn hear(&self, patience: Duration) -> Heard {
        hear(&self.control, patience)
    }

    /// Writes a task into the builder's memory, and tells it so. The memory is never mapped here,
    /// so a builder that changes it meanwhile harms only its own build.
    fn tell(&self, task: &[u8]) -> bool {
        let bytes = task.len() as u64;
        let written = self.memory.set_len(bytes).and_then(|()| self.memory.write_all_at(task, 0));
        written.is_ok() && self.control.send(&ToBuilder::Build { bytes }, None).is_ok()
    }
}

#[cfg(test)]
mod tests;
