//! Command queues: each command is one call, sent and not waited for.

use std::fmt;
use std::sync::Arc;

use penstock_wire::calls::to_worker;
use penstock_wire::id::kind;
use penstock_wire::{Id, Status, TimesOf, U32, U64};

use crate::arena::Part;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::event::{Event, Progress};
use crate::kernel::Kernel;
use crate::memory::Memory;
use crate::pool::Device;
use crate::residency::Use;
use crate::session::failure::Failure;
use crate::session::{Session, Target};

/// `CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE`.
const OUT_OF_ORDER: u64 = 1 << 0;
/// `CL_QUEUE_PROFILING_ENABLE`.
const PROFILING: u64 = 1 << 1;

/// Whether the program asked for a command's event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// It did not: the worker keeps no event, which is cheaper.
    Nothing,
    /// It did.
    Event,
    /// It did not, and expects what the command does to be done when the call returns: [`Queue::settle`].
    Settled,
}

/// How a command uses a memory object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It only reads.
    Read,
    /// It may write some of it.
    Write,
    /// It writes all of it, and reads nothing.
    Overwrite,
}

/// Bytes of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub size: u64,
}

/// A box in a buffer: `x` and width in bytes, the rest in rows and slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rect {
    /// Where it starts.
    pub origin: [u64; 3],
    /// Bytes from row to row.
    pub row_pitch: u64,
    /// Bytes from slice to slice.
    pub slice_pitch: u64,
}

impl Rect {
    /// The bytes from the first to the last of a box of `region`.
    fn reach(&self, [width, rows, slices]: [u64; 3]) -> Range {
        let row_pitch = if self.row_pitch == 0 { width } else { self.row_pitch };
        let slice_pitch = if self.slice_pitch == 0 { row_pitch * rows } else { self.slice_pitch };
        let at = |x: u64, y: u64, z: u64| x + y * row_pitch + z * slice_pitch;
        let [x, y, z] = self.origin;
        let size = at(width, rows.saturating_sub(1), slices.saturating_sub(1));
        Range { offset: at(x, y, z), size }
    }
}

/// A command queue of one device.
pub struct Queue {
    id: Id<kind::Queue>,
    context: Arc<Context>,
    device: Arc<Device>,
    place: usize,
    in_order: bool,
    /// Whether each command has times, which only the device can tell.
    timed: bool,
    /// Whether markers have.
    profiles: bool,
    progress: Arc<Progress>,
    /// Failures of commands that the program has no event of.
    failure: Arc<Failure>,
}

pub(crate) type Enqueued = Result<Option<Event>>;

impl Queue {
    /// `clCreateCommandQueueWithProperties`. `size` 0: not given.
    ///
    /// # Errors
    /// When the node is lost, or the device is not of the context.
    pub fn new(
        context: &Arc<Context>,
        device: &Arc<Device>,
        properties: u64,
        size: u32,
    ) -> Result<Arc<Self>> {
        Self::make(context, device, (properties, size), TimesOf::Commands)
    }

    /// An in-order queue of which only the times of markers can be asked for: all other commands are as those of a queue without times.
    ///
    /// # Errors
    /// As [`Queue::new`].
    pub fn timing_markers(context: &Arc<Context>, device: &Arc<Device>) -> Result<Arc<Self>> {
        Self::make(context, device, (PROFILING, 0), TimesOf::Markers)
    }

    fn make(
        context: &Arc<Context>,
        device: &Arc<Device>,
        (properties, size): (u64, u32),
        times: TimesOf,
    ) -> Result<Arc<Self>> {
        let place = context.place_of(device);
        let Some((index, place)) = place.and_then(|index| Some((index, context.places().get(index)?))) else {
            return Err(Error::Config("the device does not belong to the context".into()));
        };
        let id = crate::next_id();
        let call = to_worker::CreateQueue {
            queue: id,
            context: place.id,
            device: U32::new(device.index()),
            properties: U64::new(properties),
            size: U32::new(size),
            times: U32::new(times as u32),
        };
        place.session.send(&call, &[], &[])?;
        let in_order = properties & OUT_OF_ORDER == 0;
        context.unsettled().join();
        let failure = place.session.watch_queue(id);
        Ok(Arc::new(Self {
            id,
            context: context.clone(),
            device: device.clone(),
            place: index,
            in_order,
            timed: properties & PROFILING != 0 && times == TimesOf::Commands,
            profiles: properties & PROFILING != 0,
            progress: Arc::default(),
            failure,
        }))
    }

    /// The context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its name on the wire.
    pub fn id(&self) -> Id<kind::Queue> {
        self.id
    }

    /// Whether its commands run in order.
    pub fn is_in_order(&self) -> bool {
        self.in_order
    }

    pub(crate) fn place(&self) -> usize {
        self.place
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.device.session()
    }

    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// The queue's name if its commands run in order, so that one stands for all before it; else none.
    pub(crate) fn order(&self) -> Id<kind::Queue> {
        if self.in_order { self.id } else { Id::NONE }
    }

    /// `clFlush`: the worker sees all commands so far, and hands them to the device.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn flush(&self) -> Result<()> {
        self.session().send(&to_worker::Flush { queue: self.id }, &[], &[])?;
        self.session().flush()
    }

    /// `clFinish`: waits until all commands so far have ended.
    ///
    /// # Errors
    /// When the node is lost, or a command failed that the program has no event of.
    pub fn finish(&self) -> Result<()> {
        let issued = self.progress.issue();
        let serial = *issued;
        let pending = self.session().request(to_worker::Finish { request: Id::NONE, queue: self.id }, &[]);
        drop(issued);
        let finished = pending.wait();
        self.progress.reach(serial);
        // Both are told now.
        let earlier = self.check();
        finished.and(earlier)
    }

    /// The failure of an earlier command that the program has no event of. To be returned, once, by every call that waits for the
    /// queue.
    ///
    /// # Errors
    /// There is one: the driver's code.
    pub fn check(&self) -> Result<()> {
        self.failure.take().map_or(Ok(()), |status| Err(self.session().refused(status)))
    }

    /// Nobody holds the event of this command: if it fails, or has failed, [`Queue::check`] tells.
    pub fn report(&self, event: &Event) {
        event.report_to(&self.failure);
    }

    /// Starts a kernel with its arguments as they are now. `local` none: the driver chooses.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn launch(
        &self,
        kernel: &Kernel,
        (dims, offset, global, local): (u32, [u64; 3], [u64; 3], Option<[u64; 3]>),
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let mut args = kernel.args();
        let heaps = args.heaps();
        for heap in &heaps {
            heap.check_queue(self)?;
        }
        // It is known by its event when a heap is not used any more.
        let want = if heaps.is_empty() { want } else { Want::Event };
        // Within one place the driver knows what a kernel uses.
        let uses = if self.context.is_single() { Vec::new() } else { args.uses() };
        let uses: Vec<_> = uses.iter().map(|(memory, access)| Use::all(memory, *access)).collect();
        let enqueued = self.command(&uses, waits, want, None, |session, issue| {
            let changed = args.changed(self.place, &self.device)?;
            let call = to_worker::LaunchKernel {
                queue: self.id,
                kernel: kernel.id_at(self.place),
                event: issue.event_id(),
                dims: U32::new(dims),
                has_local: U32::new(local.is_some().into()),
                offset: offset.map(U64::new),
                global: global.map(U64::new),
                local: local.unwrap_or_default().map(U64::new),
            };
            session.send(&call, &issue.waits, changed)
        });
        let enqueued = enqueued.inspect_err(|_| args.resend(Some(self.place)))?;
        if let Some(event) = &enqueued {
            // One whose wait list has failed already is never sent: those on the other devices would wait for it in vain.
            let has_failed = event.known_status().is_some_and(Status::is_error);
            for heap in &heaps {
                heap.note(event);
                if has_failed {
                    heap.abort("a launch of a kernel that uses the heap was not started, because its wait list has failed")?;
                }
            }
        }
        Ok(enqueued)
    }

    /// Writes bytes into a buffer. They are taken before this returns.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn write(
        &self,
        memory: &Arc<Memory>,
        offset: u64,
        bytes: &[u8],
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        if let Some((part, origin)) = self.place_now(memory, waits, want)
            && part.write(origin + offset, bytes)
        {
            return Ok(ended(want));
        }
        let range = Range { offset, size: bytes.len() as u64 };
        self.command(&[Use::part(memory, Access::Overwrite, range)], waits, want, None, |session, issue| {
            let call = to_worker::WriteBuffer {
                queue: self.id,
                mem: memory.id_at(self.place),
                event: issue.event_id(),
                offset: U64::new(offset),
            };
            session.send(&call, &issue.waits, bytes)
        })
    }

    /// As [`Queue::write`], where that takes no command: the host shares the memory, and nothing has to be waited for. `false`:
    /// nothing was done.
    pub fn write_at_once(&self, memory: &Arc<Memory>, offset: u64, bytes: &[u8], waits: &[Event]) -> bool {
        self.place_now(memory, waits, Want::Nothing)
            .is_some_and(|(part, origin)| part.write(origin + offset, bytes))
    }

    /// Reads bytes of a buffer into `target`, which is written to until the event ends.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn read(
        &self,
        memory: &Arc<Memory>,
        range: Range,
        mut target: Box<dyn Target>,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        if let Some((part, origin)) = self.place_now(memory, waits, want) {
            target.take(0, &mut part.payload(origin + range.offset, range.size))?;
            return Ok(ended(want));
        }
        self.command(
            &[Use::part(memory, Access::Read, range)],
            waits,
            Want::Event,
            Some(target),
            |session, issue| {
                let call = to_worker::ReadBuffer {
                    queue: self.id,
                    mem: memory.id_at(self.place),
                    event: issue.event_id(),
                    offset: U64::new(range.offset),
                    size: U64::new(range.size),
                };
                session.send(&call, &issue.waits, &[])
            },
        )
    }

    /// As [`Queue::read`], and waits until the bytes are there. The event has ended.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn read_now(
        &self,
        memory: &Arc<Memory>,
        range: Range,
        mut target: Box<dyn Target>,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let event = match memory.shared_place() {
            None => {
                let event = self.read(memory, range, target, waits, want)?;
                if let Some(event) = &event {
                    _ = event.wait();
                }
                event
            }
            Some((part, origin)) => {
                let event = self.reached(memory, waits, want)?;
                if event.as_ref().is_none_or(|event| event.wait() == Status::OK) {
                    target.take(0, &mut part.payload(origin + range.offset, range.size))?;
                }
                event
            }
        };
        self.check()?;
        Ok(event)
    }

    /// An event that ends when the queue has come so far that the host may use memory that it shares with the device; none
    /// if it may now.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn reached(&self, memory: &Arc<Memory>, waits: &[Event], want: Want) -> Enqueued {
        if self.place_now(memory, waits, want).is_some() {
            Ok(ended(want))
        } else {
            self.marker(None, &[waits, &self.unsettled()].concat(), Want::Event)
        }
    }

    /// Where the host may use a buffer's content at this moment: it shares the memory with the device, and everything that
    /// the command would have to wait for has ended. An event with times can only come from the device.
    fn place_now<'a>(&self, memory: &'a Memory, waits: &[Event], want: Want) -> Option<(&'a Part, u64)> {
        let place = memory.shared_place()?;
        let ended = |event: &Event| event.known_status() == Some(Status::OK);
        let now = (want != Want::Event || !self.timed)
            && self.progress.is_idle()
            && self.unsettled().is_empty()
            && waits.iter().all(ended)
            && self.session().is_usable();
        now.then_some(place)
    }

    /// Writes a box of `region` bytes, rows and slices; `pieces` are its rows in order.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn write_rect(
        &self,
        memory: &Arc<Memory>,
        rect: Rect,
        region: [u64; 3],
        pieces: &mut dyn Iterator<Item = &[u8]>,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        self.command(
            &[Use::part(memory, Access::Write, rect.reach(region))],
            waits,
            want,
            None,
            |session, issue| {
                let call = to_worker::WriteBufferRect {
                    queue: self.id,
                    mem: memory.id_at(self.place),
                    event: issue.event_id(),
                    origin: rect.origin.map(U64::new),
                    region: region.map(U64::new),
                    row_pitch: U64::new(rect.row_pitch),
                    slice_pitch: U64::new(rect.slice_pitch),
                };
                session.send_pieces(&call, &issue.waits, region.iter().product(), pieces)
            },
        )
    }

    /// Reads a box; `target` gets its rows without gaps.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn read_rect(
        &self,
        memory: &Arc<Memory>,
        rect: Rect,
        region: [u64; 3],
        target: Box<dyn Target>,
        waits: &[Event],
    ) -> Enqueued {
        self.command(
            &[Use::part(memory, Access::Read, rect.reach(region))],
            waits,
            Want::Event,
            Some(target),
            |session, issue| {
                let call = to_worker::ReadBufferRect {
                    queue: self.id,
                    mem: memory.id_at(self.place),
                    event: issue.event_id(),
                    origin: rect.origin.map(U64::new),
                    region: region.map(U64::new),
                    row_pitch: U64::new(rect.row_pitch),
                    slice_pitch: U64::new(rect.slice_pitch),
                };
                session.send(&call, &issue.waits, &[])
            },
        )
    }

    /// Copies between buffers.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn copy(
        &self,
        (source, source_offset): (&Arc<Memory>, u64),
        (target, target_offset): (&Arc<Memory>, u64),
        size: u64,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let (from, to) = (Range { offset: source_offset, size }, Range { offset: target_offset, size });
        let uses = [Use::part(source, Access::Read, from), Use::part(target, Access::Overwrite, to)];
        self.command(&uses, waits, want, None, |session, issue| {
            let call = to_worker::CopyBuffer {
                queue: self.id,
                source: source.id_at(self.place),
                target: target.id_at(self.place),
                event: issue.event_id(),
                source_offset: U64::new(source_offset),
                target_offset: U64::new(target_offset),
                size: U64::new(size),
            };
            session.send(&call, &issue.waits, &[])
        })
    }

    /// Copies a box between buffers.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn copy_rect(
        &self,
        (source, from): (&Arc<Memory>, Rect),
        (target, to): (&Arc<Memory>, Rect),
        region: [u64; 3],
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let uses = [
            Use::part(source, Access::Read, from.reach(region)),
            Use::part(target, Access::Write, to.reach(region)),
        ];
        self.command(&uses, waits, want, None, |session, issue| {
            let call = to_worker::CopyBufferRect {
                queue: self.id,
                source: source.id_at(self.place),
                target: target.id_at(self.place),
                event: issue.event_id(),
                source_origin: from.origin.map(U64::new),
                target_origin: to.origin.map(U64::new),
                region: region.map(U64::new),
                source_row_pitch: U64::new(from.row_pitch),
                source_slice_pitch: U64::new(from.slice_pitch),
                target_row_pitch: U64::new(to.row_pitch),
                target_slice_pitch: U64::new(to.slice_pitch),
            };
            session.send(&call, &issue.waits, &[])
        })
    }

    /// Fills a range with a pattern.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn fill(
        &self,
        memory: &Arc<Memory>,
        pattern: &[u8],
        range: Range,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        self.command(&[Use::part(memory, Access::Overwrite, range)], waits, want, None, |session, issue| {
            let call = to_worker::FillBuffer {
                queue: self.id,
                mem: memory.id_at(self.place),
                event: issue.event_id(),
                offset: U64::new(range.offset),
                size: U64::new(range.size),
            };
            session.send(&call, &issue.waits, pattern)
        })
    }

    /// A marker; also for commands that only have to wait for `waits` (all before it, where there are none) and that
    /// have `memory` current when they end.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn marker(&self, memory: Option<(&Arc<Memory>, Access)>, waits: &[Event], want: Want) -> Enqueued {
        if memory.is_none() && self.has_passed(waits) {
            return Ok(ended(want));
        }
        let uses = memory.map(|(memory, access)| Use::all(memory, access));
        self.command_alone(uses.as_slice(), waits, want, None, |session, issue| {
            session.send(&to_worker::Marker { queue: self.id, event: issue.event_id() }, &issue.waits, &[])
        })
    }

    /// Whether a marker or barrier with these waits has nothing to wait for. What has ended is left out of wait lists, and
    /// an empty one means something else: all commands so far.
    fn has_passed(&self, waits: &[Event]) -> bool {
        let ended = |event: &Event| event.known_status() == Some(Status::OK);
        !self.in_order && !self.profiles && !waits.is_empty() && waits.iter().all(ended)
    }

    /// A barrier.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn barrier(&self, waits: &[Event], want: Want) -> Enqueued {
        if self.has_passed(waits) {
            return Ok(ended(want));
        }
        self.command_alone(&[], waits, want, None, |session, issue| {
            session.send(&to_worker::Barrier { queue: self.id, event: issue.event_id() }, &issue.waits, &[])
        })
    }

    /// Moves memory objects to the queue's device. `flags` are `cl_mem_migration_flags`.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn migrate(&self, memory: &[Arc<Memory>], flags: u64, waits: &[Event], want: Want) -> Enqueued {
        /// `CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED`.
        const UNDEFINED: u64 = 1 << 1;
        let access = if flags & UNDEFINED == 0 { Access::Read } else { Access::Overwrite };
        let uses: Vec<_> = memory.iter().map(|memory| Use::all(memory, access)).collect();
        self.command(&uses, waits, want, None, |session, issue| {
            let ids: Vec<u64> = memory.iter().map(|memory| memory.id_at(self.place).get()).collect();
            let call = to_worker::Migrate { queue: self.id, event: issue.event_id(), flags: U64::new(flags) };
            session.send(&call, &issue.waits, &penstock_wire::frame::encode(&ids))
        })
    }
}

/// The event of a command that has ended already.
fn ended(want: Want) -> Option<Event> {
    (want == Want::Event).then(|| Event::ended(Status::OK))
}
impl Drop for Queue {
    fn drop(&mut self) {
        self.context.unsettled().leave();
        self.session().forget_queue(self.id);
        // A lost session has released everything.
        _ = self.session().send(&to_worker::ReleaseQueue { queue: self.id }, &[], &[]);
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("id", &self.id).field("device", &self.device).finish_non_exhaustive()
    }
}
