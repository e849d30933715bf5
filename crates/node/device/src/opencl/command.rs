//! Gives commands to the driver.

use penstock_wire::IndexSpace;
use penstock_wire::status::Status;

use super::api::{self, function};
use super::event::Event as OwnEvent;
use super::kernel::Kernel;
use super::memory::raw;
use super::queue::Queue;
use super::watch::Inside;
use crate::command::{Command, Source};
use crate::driver::{DeviceDriver, Kernel as AnyKernel, Mem, QueueDriver, Want};
use crate::event::{Event, EventDriver as _, ReadBytes, Reading};
use crate::region;
use crate::staging::Staged;

/// What the driver returned for a command.
pub(super) type Enqueued = Result<Option<std::sync::Arc<OwnEvent>>, Status>;

impl QueueDriver for Queue {
    fn enqueue(
        &self,
        command: Command<'_>,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let enqueued = match command {
            Command::Marker => self.marker(waits, want),
            Command::Barrier => self.barrier(waits, want),
            Command::Migrate { mems, flags } => self.migrate(mems, flags, waits, want),
            Command::Launch { kernel, space } => self.launch(kernel, space, waits, want),
            Command::Write { mem, offset, bytes } => self.write(mem, offset, bytes, waits, want),
            Command::WriteRect { mem, at, region, bytes } => {
                self.write_rect(mem, &at, region, bytes, waits, want)
            }
            Command::Copy { source, from, target, to, bytes } => {
                self.copy((source, from), (target, to), bytes, waits, want)
            }
            Command::CopyRect { source, from, target, to, region } => {
                self.copy_rect((source, &from), (target, &to), region, waits, want)
            }
            Command::Fill { mem, pattern, offset, bytes } => {
                self.fill(mem, pattern, (offset, bytes), waits, want)
            }
            Command::Image(command) => self.enqueue_image(command, waits, want),
            Command::Library { .. } => Err(Status::INVALID_OPERATION),
            Command::Task(task) => self.enqueue_task(task, waits, want),
        };
        Ok(enqueued?.map(|event| Event(event)))
    }

    fn read(&self, source: &Source<'_>, into: Staged, waits: &[&Event]) -> Result<Reading, Status> {
        let mut bytes = into;
        let start = bytes.as_mut_ptr();
        let event = match source {
            Source::Buffer { mem, offset } => {
                self.read_buffer(mem, *offset, bytes.len(), start, waits)
            }
            Source::Rect { mem, at, region } => self.read_rect(mem, at, *region, start, waits),
            Source::Image { mem, at } => self.read_image(mem, *at, start, waits),
        }?;
        Ok(Reading::new(Event(event), ReadBytes::Kept(bytes)))
    }

    fn flush(&self) -> Result<(), Status> {
        let flush = function!(clFlush)?;
        let _inside = Inside::enter();
        // SAFETY: the queue lives.
        api::check(unsafe { flush(self.raw()) })
    }

    fn finish(&self) -> Result<(), Status> {
        let slabs = self.reclaim_state().take_doubtful();
        let finished = {
            let _inside = Inside::enter();
            self.kept().finish()
        };
        let mut reclaim = self.reclaim_state();
        if finished.is_ok() {
            reclaim.all_ended(slabs);
        } else {
            reclaim.none_ended(slabs);
        }
        finished
    }

    fn reclaim(&self) {
        self.reclaim_state().sweep();
    }
}

impl Queue {
    /// `clEnqueueNDRangeKernel`, with the current arguments.
    fn launch(
        &self,
        kernel: &AnyKernel,
        space: &IndexSpace,
        waits: &[&Event],
        want: Want,
    ) -> Enqueued {
        let kernel = kernel.driver::<Kernel>()?;
        let launch = function!(clEnqueueNDRangeKernel)?;
        let (offset, global) = (region::triple(space.offset)?, region::triple(space.global)?);
        let local = space.local.map(region::triple).transpose()?;
        let local = local.as_ref().map_or(std::ptr::null(), |local| local.as_ptr());
        let _inside = Inside::enter();
        let mut args = kernel.args();
        args.check_local(self.device().limits().local)?;
        args.hold()?;
        let samplers = args.samplers();
        let follow = if samplers.is_empty() { want } else { Want::Event };
        let launched = self.enqueue_with(waits, follow, |length, list, event| {
            // SAFETY: queue, kernel and the memory among its arguments live; the sizes have three
            // entries, of which the driver reads `dims`, and the space has been checked, so `dims`
            // is at most 3; `enqueue_with` made list and event.
            unsafe {
                launch(
                    self.raw(),
                    kernel.raw(),
                    space.dims,
                    offset.as_ptr(),
                    global.as_ptr(),
                    local,
                    length,
                    list,
                    event,
                )
            }
        });
        args.let_go();
        match launched {
            Ok(Some(event)) if !samplers.is_empty() => {
                event.clone().on_complete(Box::new(move |_, _| drop(samplers)));
                Ok((want == Want::Event).then_some(event))
            }
            launched => launched,
        }
    }

    /// `clEnqueueBarrierWithWaitList`.
    fn barrier(&self, waits: &[&Event], want: Want) -> Enqueued {
        let barrier = function!(clEnqueueBarrierWithWaitList)?;
        self.enqueue_with(waits, want, |length, list, event| {
            // SAFETY: the queue lives; `enqueue_with` made list and event.
            unsafe { barrier(self.raw(), length, list, event) }
        })
    }

    /// `clEnqueueMigrateMemObjects`.
    fn migrate(&self, mems: &[&Mem], flags: u64, waits: &[&Event], want: Want) -> Enqueued {
        let migrate = function!(clEnqueueMigrateMemObjects)?;
        let handles: Vec<_> = mems.iter().map(|mem| raw(mem)).collect::<Result<_, Status>>()?;
        let number = api::count(handles.len())?;
        self.enqueue_with(waits, want, |length, list, event| {
            // SAFETY: the queue lives; the list has `number` entries; `enqueue_with` made list and
            // event.
            unsafe { migrate(self.raw(), number, handles.as_ptr(), flags, length, list, event) }
        })
    }
}
