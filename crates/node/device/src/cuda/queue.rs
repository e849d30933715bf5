//! Command queues: streams, under OpenCL's name.

use std::sync::Arc;

use penstock_cl_sys::CL_QUEUE_PROFILING_ENABLE;
use penstock_process::Lock;
use penstock_wire::library::LibraryCall;
use penstock_wire::status::Status;

use super::command::{CopyWay, Kept, Work};
use super::context::Context;
use super::event::Event as OwnEvent;
use super::kernel::Kernel;
use super::library::Call;
use super::memory::{Memory, memory};
use super::stream::{Stream, Wish};
use crate::command::{Command, Source};
use crate::driver::{Failed, QueueDriver, Want};
use crate::event::{Event, ReadBytes, Reading};
use crate::library::LibraryOperand;
use crate::staging::Staged;

/// A queue. When it is dropped, its remaining commands still run.
pub(super) struct Queue(Arc<Stream>);

impl Drop for Queue {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn keep(memory: &Arc<Memory>) -> Kept {
    Some(memory.clone())
}

/// Returns what a command does, and the memory that must stay until the stream has it.
fn work_of(command: Command<'_>) -> Result<(Work, [Kept; 2]), Status> {
    Ok(match command {
        // A context has one device, so all memory is already there.
        Command::Marker | Command::Barrier | Command::Migrate { .. } => {
            (Work::Nothing, [None, None])
        }
        Command::Launch { kernel, space } => {
            (Work::Launch(kernel.driver::<Kernel>()?.launch(space)?), [None, None])
        }
        Command::Library { call, operands } => {
            (Work::Library(library_call(call, operands)?), [None, None])
        }
        Command::Write { mem, offset, bytes } => {
            let mem = memory(mem)?;
            let to = mem.range(offset, bytes.len());
            (Work::Write { from: bytes, to, done: 0 }, [keep(mem), None])
        }
        Command::WriteRect { mem, at, region, bytes } => {
            let mem = memory(mem)?;
            let to = mem.rect(&at, region).merged();
            (Work::Write { from: bytes, to, done: 0 }, [keep(mem), None])
        }
        Command::Copy { source, from, target, to, bytes } => {
            let (source, target) = (memory(source)?, memory(target)?);
            let (from, to) = (source.range(from, bytes), target.range(to, bytes));
            let way = CopyWay::between(source.host_distance(), target.host_distance());
            (Work::Copy { from, to, way }, [keep(source), keep(target)])
        }
        Command::CopyRect { source, from, target, to, region } => {
            let (source, target) = (memory(source)?, memory(target)?);
            let (from, to) = (source.rect(&from, region), target.rect(&to, region));
            let way = CopyWay::between(source.host_distance(), target.host_distance());
            (Work::Copy { from, to, way }, [keep(source), keep(target)])
        }
        Command::Fill { mem, pattern, offset, bytes } => {
            let mem = memory(mem)?;
            let to = mem.range(offset, bytes).address;
            (Work::Fill { to, bytes, pattern: pattern.to_vec() }, [keep(mem), None])
        }
        // CUDA has no such command.
        _ => return Err(Status::INVALID_OPERATION),
    })
}

/// Makes a call of operands whose bounds have been checked.
fn library_call(call: &LibraryCall, operands: &[LibraryOperand<'_>]) -> Result<Call, Status> {
    let mut made = Call { call: *call, addresses: Vec::new(), keep: Vec::new() };
    for operand in operands {
        let Some(mem) = operand.mem.filter(|_| operand.bytes > 0) else {
            made.addresses.push(0);
            continue;
        };
        let memory = memory(mem)?;
        let offset = usize::try_from(operand.offset).map_err(|_| Status::INVALID_VALUE)?;
        made.addresses.push(memory.range(offset, 0).address);
        made.keep.push(keep(memory));
    }
    Ok(made)
}

impl Queue {
    pub(super) fn new(context: &Context, properties: u64) -> Result<Self, Status> {
        // Streams are in order.
        if properties & !CL_QUEUE_PROFILING_ENABLE != 0 {
            return Err(Status::INVALID_QUEUE_PROPERTIES);
        }
        Ok(Self(Stream::new(context.id, context.device, properties != 0)?))
    }

    fn give(
        &self,
        work: Work,
        keep: [Kept; 2],
        waits: &[&Event],
        event: bool,
    ) -> Result<Option<Event>, Status> {
        let waits = waits.iter().map(|event| event.shared_driver::<OwnEvent>());
        let waits = waits.collect::<Result<Vec<_>, Status>>()?;
        let event = self.0.enqueue(work, Wish { waits, event, keep })?;
        Ok(event.map(|event| Event(event)))
    }
}

impl QueueDriver for Queue {
    fn enqueue(
        &self,
        command: Command<'_>,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let (work, keep) = work_of(command)?;
        self.give(work, keep, waits, want == Want::Event)
    }

    fn read(&self, source: &Source<'_>, into: Staged, waits: &[&Event]) -> Result<Reading, Status> {
        let (mem, from) = match source {
            Source::Buffer { mem, offset } => {
                let mem = memory(mem)?;
                (mem, mem.range(*offset, into.len()))
            }
            Source::Rect { mem, at, region } => {
                let mem = memory(mem)?;
                (mem, mem.rect(at, *region).merged())
            }
            Source::Image { .. } => return Err(Status::INVALID_OPERATION),
        };
        let to = Arc::new(Lock::new(into));
        let work = Work::Read { from, to: to.clone(), done: 0 };
        // A command with an event returns it.
        let event = self.give(work, [keep(mem), None], waits, true)?;
        let event = event.ok_or(Status::OUT_OF_RESOURCES)?;
        Ok(Reading::new(event, ReadBytes::Shared(to)))
    }

    /// Does nothing: streams start by themselves.
    fn flush(&self) -> Result<(), Status> {
        Ok(())
    }

    fn finish(&self) -> Result<(), Status> {
        self.0.finish()
    }

    fn on_failure(&self, failed: &Failed) {
        self.0.on_failure(failed.clone());
    }
}
