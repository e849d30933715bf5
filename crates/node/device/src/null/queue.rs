//! Queues: every command becomes work of the engine.

use std::sync::Arc;

use penstock_cl_sys::CL_QUEUE_PROFILING_ENABLE;
use penstock_process::Lock;
use penstock_wire::status::Status;

use super::engine::{Engine, Event as OwnEvent};
use super::kernel::Kernel;
use super::machine::Place;
use super::memory::Rows;
use super::transfer::Work;
use crate::command::{Command, Source};
use crate::driver::{QueueDriver, Want};
use crate::event::{Event, ReadBytes, Reading};
use crate::staging::Staged;

pub(super) struct Queue {
    engine: Arc<Engine>,
    number: u64,
    has_times: bool,
}

impl Queue {
    pub(super) fn new(engine: &Arc<Engine>, properties: u64, in_order: bool) -> Self {
        let number = engine.change(|state| state.machine.add_queue(in_order));
        let has_times = properties & CL_QUEUE_PROFILING_ENABLE != 0;
        Self { engine: engine.clone(), number, has_times }
    }

    fn add(&self, place: Place, work: Work, waits: &[&Event]) -> Result<Arc<OwnEvent>, Status> {
        let waits: Vec<_> = waits
            .iter()
            .map(|event| Ok(event.driver::<OwnEvent>()?.parts()))
            .collect::<Result<_, Status>>()?;
        let made =
            self.engine.change(|state| state.machine.add(self.number, place, &waits, work))?;
        Ok(OwnEvent::new(&self.engine, made, self.has_times))
    }
}

impl QueueDriver for Queue {
    fn enqueue(
        &self,
        command: Command<'_>,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let (place, work) = work(command)?;
        let event = self.add(place, work, waits)?;
        Ok((want == Want::Event).then(|| Event(event)))
    }

    fn read(&self, source: &Source<'_>, into: Staged, waits: &[&Event]) -> Result<Reading, Status> {
        let from = match source {
            Source::Buffer { mem, offset } => Rows::line(mem, *offset, into.len()),
            Source::Rect { mem, at, region } => Rows::rect(mem, *at, *region),
            Source::Image { .. } => Err(Status::INVALID_OPERATION),
        }?;
        let into = Arc::new(Lock::new(into));
        let work = Work::Read { from, into: into.clone() };
        Ok(Reading::new(Event(self.add(Place::Free, work, waits)?), ReadBytes::Shared(into)))
    }

    /// Commands run as soon as they may.
    fn flush(&self) -> Result<(), Status> {
        Ok(())
    }

    fn finish(&self) -> Result<(), Status> {
        self.add(Place::Marker, Work::Nothing, &[])?.wait_for_end()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.engine.change(|state| state.machine.close_queue(self.number));
    }
}

/// Returns the work of a command, which keeps all that it needs.
fn work(command: Command<'_>) -> Result<(Place, Work), Status> {
    let work = match command {
        Command::Marker => return Ok((Place::Marker, Work::Nothing)),
        Command::Barrier => return Ok((Place::Barrier, Work::Nothing)),
        Command::Migrate { .. } => Work::Nothing,
        Command::Launch { kernel, space } => {
            Work::Launch(kernel.driver::<Kernel>()?.launch(space)?)
        }
        Command::Write { mem, offset, bytes } => {
            Work::Write { to: Rows::line(mem, offset, bytes.len())?, bytes }
        }
        Command::WriteRect { mem, at, region, bytes } => {
            Work::Write { to: Rows::rect(mem, at, region)?, bytes }
        }
        Command::Copy { source, from, target, to, bytes } => {
            let (from, to) = (Rows::line(source, from, bytes)?, Rows::line(target, to, bytes)?);
            Work::Copy { from, to }
        }
        Command::CopyRect { source, from, target, to, region } => Work::Copy {
            from: Rows::rect(source, from, region)?,
            to: Rows::rect(target, to, region)?,
        },
        Command::Fill { mem, pattern, offset, bytes } => {
            Work::Fill { to: Rows::line(mem, offset, bytes)?, pattern: pattern.to_vec() }
        }
        // The device has no images, and says that it runs no tasks.
        Command::Image(_) | Command::Library { .. } | Command::Task(_) => {
            return Err(Status::INVALID_OPERATION);
        }
    };
    Ok((Place::Free, work))
}
