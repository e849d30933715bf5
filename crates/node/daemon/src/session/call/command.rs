//! What all commands have in common, and the commands that move no bytes between link and device.

use std::sync::Arc;

use penstock_device as device;
use penstock_device::{Rect, Want};
use penstock_trial::{Defect, planted};
use penstock_wire::calls::{Attached, Serve, Served, to_worker};
use penstock_wire::id::kind;
use penstock_wire::{FrameError, Id, Status, U64, frame};

use crate::session::event::Event;
use crate::session::launches::Launched;
use crate::session::queue::{Queue, QueuePosition};
use crate::session::shared_session::SharedSession;
use crate::session::table::Table;
use crate::session::{Objects, Session, triple};

/// Ids that every command names.
#[derive(Clone, Copy)]
pub(crate) struct CommandIds<'a> {
    pub(crate) queue: Id<kind::Queue>,
    pub(crate) event: Id<kind::Event>,
    pub(crate) waits: &'a [Id<kind::Event>],
}

/// What the closure that enqueues a command gets. `waits` is the wait list as the device knows it.
pub(crate) struct CommandInputs<'a> {
    pub(crate) objects: &'a mut Objects,
    pub(crate) queue: &'a device::Queue,
    pub(crate) waits: &'a [&'a device::Event],
    /// Whether the client's wait list had entries, including events that have ended.
    listed: bool,
    /// Whether the command ends after all earlier ones even in an out-of-order queue.
    after_all: &'a mut bool,
    /// Whether the command is a marker or barrier that waits only for commands of its queue.
    only_marks: &'a mut bool,
    /// How the command is watched.
    pub(crate) watch: &'a mut Watch,
    pub(crate) want: Want,
}

/// How a command is watched.
pub(crate) struct Watch {
    /// Whether it is watched, so that its event must be seen.
    pub(crate) is_on: bool,
    /// Whether the driver compiles kernels when they are launched, within limits.
    pub(crate) compiles: bool,
    pub(crate) kernel: Option<Launched>,
}

impl CommandInputs<'_> {
    /// Returns the source and the target of a copy.
    fn mems(
        &self,
        source: Id<kind::Mem>,
        target: Id<kind::Mem>,
    ) -> Result<(&device::Mem, &device::Mem), Status> {
        Ok((self.objects.mems.get(source)?, self.objects.mems.get(target)?))
    }

    /// Enqueues a marker or barrier. Without a wait list it waits for all earlier commands; a list
    /// whose events have all ended must not have that effect. A barrier stands for both then,
    /// because a marker of PoCL 3.1 waits for all earlier commands whatever its list is.
    fn listed_only(
        self,
        enqueue: impl FnOnce(
            &device::Queue,
            &[&device::Event],
            Want,
        ) -> Result<Option<device::Event>, Status>,
    ) -> Result<Option<device::Event>, Status> {
        *self.after_all |= !self.listed;
        *self.only_marks = !self.listed;
        // The device does not work for it.
        self.watch.is_on = false;
        if !self.listed || !self.waits.is_empty() || !self.queue.is_out_of_order() {
            return enqueue(self.queue, self.waits, self.want);
        }
        let ended = device::Event::user(self.queue.context())?;
        ended.complete(Status::OK)?;
        self.queue.barrier(&[&ended], self.want)
    }
}

impl Session {
    /// Serves a call that is one command of the device.
    pub(super) fn command(
        &mut self,
        names: CommandIds<'_>,
        enqueue: impl FnOnce(CommandInputs<'_>) -> Result<Option<device::Event>, Status>,
    ) -> Result<(), FrameError> {
        let event = self.shared.events.announce(names.event)?;
        let Some((queue, waits)) = prepare(&self.shared, &mut self.queues, names, event.as_ref())
        else {
            return Ok(());
        };
        let is_on = self.shared.allowance.watches_kernels();
        let compiles = queue.work.compiles && self.shared.compiler.is_some();
        let mut watch = Watch { is_on, compiles, kernel: None };
        let want = queue.want(event.is_some() || is_on);
        let waits: Vec<&device::Event> = waits.iter().collect();
        let passed = queue.pass_gate();
        let listed = !names.waits.is_empty();
        let mut after_all = queue.in_order;
        let mut only_marks = false;
        let inputs = CommandInputs {
            objects: &mut self.objects,
            queue: &queue.device,
            waits: &waits,
            listed,
            after_all: &mut after_all,
            only_marks: &mut only_marks,
            watch: &mut watch,
            want,
        };
        match passed.and_then(|()| enqueue(inputs)) {
            Ok(native) => {
                let mut mark = if only_marks { queue.count_marker() } else { queue.count() };
                mark.after_all = after_all;
                if let Some(native) = native.as_ref().filter(|_| watch.is_on) {
                    self.shared.launches.watch(native.clone(), queue.work, watch.kernel);
                }
                match (event, native) {
                    (Some(event), Some(native)) => {
                        queue.set_last(&event);
                        follow(&self.shared, event, &native, mark);
                    }
                    (None, Some(native)) => queue.set_last_native(native, mark),
                    (_, None) => {}
                }
            }
            Err(status) => refuse(&self.shared, Some(queue), event.as_ref(), status),
        }
        self.note_unflushed(names.queue);
        Ok(())
    }
}

/// Finds the queue of a command and its wait list as the device knows it. Returns `None` if the
/// command has failed; the failure is then reported.
pub(crate) fn prepare<'a>(
    shared: &Arc<SharedSession>,
    queues: &'a mut Table<kind::Queue, Queue>,
    names: CommandIds<'_>,
    event: Option<&Arc<Event>>,
) -> Option<(&'a mut Queue, Vec<device::Event>)> {
    let queue = match queues.get_mut(names.queue) {
        Ok(queue) => queue,
        Err(status) => {
            refuse(shared, None, event, status);
            return None;
        }
    };
    if event.is_some() {
        queue.tell_failure(&shared.outbox, names.queue);
    }
    penstock_trial::delay(penstock_trial::Place::WorkerSubmits);
    queue.weigh(names.waits.len());
    match shared.events.natives(names.waits, queue.device.context()) {
        Ok(waits) => {
            if let Some(event) = event.filter(|_| !waits.is_empty()) {
                shared.events.note_waits(event, names.waits);
            }
            Some((queue, waits))
        }
        Err(Status::WAIT_LIST_FAILED) => {
            fail_in_order(shared, queue, event);
            None
        }
        Err(status) => {
            refuse(shared, Some(queue), event, status);
            None
        }
    }
}

/// Makes `event` end with the driver's event.
pub(crate) fn follow(
    shared: &Arc<SharedSession>,
    event: Arc<Event>,
    native: &device::Event,
    mark: QueuePosition,
) {
    event.set_native(native);
    let (shared, turn) = (shared.clone(), mark.expect());
    native.on_complete(Box::new(move |status, times| {
        shared.end_command(&event, status, times, turn);
    }));
}

/// Ends a command that the device did not get. Without an event, [`Queue::fail`] reports it.
pub(crate) fn refuse(
    shared: &Arc<SharedSession>,
    queue: Option<&mut Queue>,
    event: Option<&Arc<Event>>,
    status: Status,
) {
    let status = if planted(Defect::LaunchLost) { Status::OK } else { status };
    match (event, queue) {
        (Some(event), Some(queue)) if !planted(Defect::FailedLaunchStale) => {
            end_in_turn(shared, queue, event, status)
        }
        (Some(event), _) => shared.end_event(event, status, device::Times::default()),
        (None, Some(queue)) if status.is_error() => queue.fail(status),
        (None, _) => {}
    }
}

/// Ends a command whose wait list has failed: it does not run, and ends in its turn.
///
/// Without an event nothing reports it, as with drivers: in PoCL and Intel's runtime a `clFinish`
/// or a blocking read behind it succeeds. The failed event has been reported already.
fn fail_in_order(shared: &Arc<SharedSession>, queue: &mut Queue, event: Option<&Arc<Event>>) {
    let status = Status::WAIT_LIST_FAILED;
    let Some(event) = event else { return };
    end_in_turn(shared, queue, event, status);
}

/// Ends the event of a command that does not run, in its turn. In an in-order queue the client
/// takes the end of a command for the end of all before it, whatever the status.
fn end_in_turn(shared: &Arc<SharedSession>, queue: &mut Queue, event: &Arc<Event>, status: Status) {
    let turn = if queue.in_order && !queue.is_idle() { queue.marker().ok() } else { None };
    let Some((turn, mark)) = turn else {
        return shared.end_event(event, status, device::Times::default());
    };
    queue.set_last(event);
    let (shared, event, end_turn) = (shared.clone(), event.clone(), mark.expect());
    turn.on_complete(Box::new(move |_, _| {
        shared.end_command(&event, status, device::Times::default(), end_turn);
    }));
}

macro_rules! commands {
    ($($name:ident |$call:ident, $inputs:ident, $payload:ident| $enqueue:expr;)*) => {$(
        impl Serve<to_worker::$name> for Session {
            fn serve(&mut self, $call: &to_worker::$name, with: Attached<'_>) -> Served {
                let bytes = with.payload.read_all()?;
                let $payload = bytes.as_slice();
                let (queue, event) = ($call.queue, $call.event);
                let names = CommandIds { queue, event, waits: with.waits };
                self.command(names, |$inputs| {
                    let _: &[u8] = $payload;
                    $enqueue
                })
            }
        }
    )*};
}

commands! {
    CopyBuffer |call, inputs, bytes| {
        let (source, target) = inputs.mems(call.source, call.target)?;
        let (from, to) = (call.source_offset.get(), call.target_offset.get());
        let size = call.size.get();
        inputs.queue.copy(source, from, target, to, size, inputs.waits, inputs.want)
    };
    CopyBufferRect |call, inputs, bytes| {
        let (source, target) = inputs.mems(call.source, call.target)?;
        let from = rect(call.source_origin, call.source_row_pitch, call.source_slice_pitch);
        let to = rect(call.target_origin, call.target_row_pitch, call.target_slice_pitch);
        let queue = inputs.queue;
        queue.copy_rect(source, &from, target, &to, triple(call.region), inputs.waits, inputs.want)
    };
    FillBuffer |call, inputs, bytes| {
        let mem = inputs.objects.mems.get(call.mem)?;
        inputs.queue.fill(mem, bytes, call.offset.get(), call.size.get(), inputs.waits, inputs.want)
    };
    CopyImage |call, inputs, bytes| {
        let (source, target) = inputs.mems(call.source, call.target)?;
        let (from, to) = (triple(call.source_origin), triple(call.target_origin));
        let queue = inputs.queue;
        queue.copy_image(source, from, target, to, triple(call.region), inputs.waits, inputs.want)
    };
    CopyImageToBuffer |call, inputs, bytes| {
        let (source, target) = inputs.mems(call.source, call.target)?;
        let (origin, region) = (triple(call.origin), triple(call.region));
        let offset = call.target_offset.get();
        let (queue, waits, want) = (inputs.queue, inputs.waits, inputs.want);
        queue.copy_image_to_buffer(source, origin, region, target, offset, waits, want)
    };
    CopyBufferToImage |call, inputs, bytes| {
        let (source, target) = inputs.mems(call.source, call.target)?;
        let (origin, region) = (triple(call.origin), triple(call.region));
        let offset = call.source_offset.get();
        let (queue, waits, want) = (inputs.queue, inputs.waits, inputs.want);
        queue.copy_buffer_to_image(source, offset, target, origin, region, waits, want)
    };
    FillImage |call, inputs, bytes| {
        let mem = inputs.objects.mems.get(call.mem)?;
        let colour: &[u8; 16] = bytes.try_into().map_err(|_| Status::INVALID_VALUE)?;
        let (queue, waits, want) = (inputs.queue, inputs.waits, inputs.want);
        queue.fill_image(mem, colour, triple(call.origin), triple(call.region), waits, want)
    };
    Marker |call, inputs, bytes| inputs.listed_only(device::Queue::marker);
    Barrier |call, inputs, bytes| inputs.listed_only(device::Queue::barrier);
}

impl Serve<to_worker::Migrate> for Session {
    fn serve(&mut self, call: &to_worker::Migrate, with: Attached<'_>) -> Served {
        let ids: Vec<u64> = frame::decode("Migrate", &with.payload.read_all()?)?;
        self.command(
            CommandIds { queue: call.queue, event: call.event, waits: with.waits },
            |inputs| {
                let mems = ids.iter().map(|id| inputs.objects.mems.get(Id::new(*id)));
                let mems = mems.collect::<Result<Vec<_>, _>>()?;
                inputs.queue.migrate(&mems, call.flags.get(), inputs.waits, inputs.want)
            },
        )
    }
}

/// Converts a call's numbers to a rectangle's place in a buffer.
pub(crate) fn rect(origin: [U64; 3], row_pitch: U64, slice_pitch: U64) -> Rect {
    Rect { origin: triple(origin), row_pitch: row_pitch.get(), slice_pitch: slice_pitch.get() }
}
