//! Queues: creation and release, and the calls that flush a queue or wait for it.

use std::sync::Arc;

use penstock_cl_sys::CL_QUEUE_PROFILING_ENABLE;
use penstock_device as device;
use penstock_link::Body;
use penstock_wire::calls::{Attached, Serve, Served, to_client, to_worker};
use penstock_wire::id::kind;
use penstock_wire::{I32, Id, Status, TimesOf};

use crate::session::Session;
use crate::session::launches::Traits;
use crate::session::queue::{LastCommand, Queue, QueuePosition};
use crate::session::shared_session::SharedSession;
use crate::session::turns::Turns;

impl Session {
    fn finish(&mut self, request: Id<kind::Request>, id: Id<kind::Queue>) -> Result<(), Status> {
        let queue = self.queues.get_mut(id)?;
        let shared = self.shared.clone();
        let failure = queue.begin_finish();
        let answer = move |shared: &SharedSession, last: Status| {
            shared.drain_output();
            shared.reply(request, &failure.map_or(Ok(()), Err).and(last.ok()));
        };
        if queue.is_idle() {
            answer(&shared, Status::OK);
            return Ok(());
        }
        match queue.take_last() {
            Some(LastCommand::Event(last)) => {
                queue.flush();
                // The event itself tells the client how it ended.
                last.follow(move |_| answer(&shared, Status::OK));
            }
            Some(LastCommand::Native(last, mark)) => {
                queue.flush();
                // Only this finish reports its failure.
                answer_behind(shared, &last, mark, answer);
            }
            None => {
                let (marker, mark) = queue.marker()?;
                queue.flush();
                // A marker fails because of a command before it, which has reported that.
                answer_behind(shared, &marker, mark, move |shared, _| answer(shared, Status::OK));
            }
        }
        Ok(())
    }
}

/// Answers a finish when the last command of its queue has ended and all earlier ends are reported.
fn answer_behind(
    shared: Arc<SharedSession>,
    last: &device::Event,
    mark: QueuePosition,
    answer: impl FnOnce(&SharedSession, Status) + Send + 'static,
) {
    let turn = mark.expect();
    last.on_complete(Box::new(move |status, _| {
        // If it waited for a failed event, the device did not refuse it: see `fail_in_order`.
        let status = if status == Status::WAIT_LIST_FAILED { Status::OK } else { status };
        turn.take(move |mark| {
            mark.reach();
            answer(&shared, status);
        });
    }));
}

/// Returns what tells the client of a queue's failures. A failure arrives before the end of its
/// command, so the client knows of it before it can know that the queue has become idle.
fn teller(shared: &Arc<SharedSession>, queue: Id<kind::Queue>) -> device::Failed {
    let shared = Arc::downgrade(shared);
    Arc::new(move |status: Status| {
        let Some(shared) = shared.upgrade() else { return };
        let failure = to_client::QueueFailed { queue, status: I32::new(status.0) };
        shared.outbox.post(&failure, &[], Body::None);
    })
}

impl Serve<to_worker::CreateQueue> for Session {
    fn serve(&mut self, call: &to_worker::CreateQueue, _: Attached<'_>) -> Served {
        self.queues.vacant(call.queue)?;
        let make = || {
            let context = self.objects.contexts.get(call.context)?;
            let device = self.objects.device(call.device.get())?;
            device::Queue::new(context, device, call.properties.get(), call.size.get())
        };
        let meter = self.objects.meter(call.device.get());
        let profiles = call.properties.get() & CL_QUEUE_PROFILING_ENABLE != 0;
        let queue = make().and_then(|device| {
            device.on_failure(teller(&self.shared, call.queue));
            let times = TimesOf::from_wire(call.times.get()).ok_or(Status::INVALID_VALUE)?;
            let timed = profiles && times == TimesOf::Commands;
            let turn = self.objects.whole(call.device.get()).map_or(0, Turns::bit_of);
            let work = Traits::of(device.device());
            Ok(Queue::new(device, timed, meter, turn, work, self.shared.flights.clone()))
        });
        if let Ok(queue) = &queue {
            self.shared.queues.lock().insert(call.queue, queue.device.clone());
        }
        self.queues.insert(call.queue, queue)
    }
}

impl Serve<to_worker::ReleaseQueue> for Session {
    fn serve(&mut self, call: &to_worker::ReleaseQueue, _: Attached<'_>) -> Served {
        if let Some(mut queue) = self.queues.remove(call.queue) {
            // "clReleaseCommandQueue performs an implicit flush to issue any previously queued
            // OpenCL commands."
            // Its commands count until they have ended.
            queue.mark_flight();
            queue.flush();
            self.shared.queues.lock().remove(&call.queue);
        }
        Ok(())
    }
}

impl Serve<to_worker::Flush> for Session {
    fn serve(&mut self, call: &to_worker::Flush, _: Attached<'_>) -> Served {
        if let Ok(queue) = self.queues.get_mut(call.queue) {
            queue.flush();
        }
        Ok(())
    }
}

impl Serve<to_worker::Finish> for Session {
    fn serve(&mut self, call: &to_worker::Finish, _: Attached<'_>) -> Served {
        if let Err(status) = self.finish(call.request, call.queue) {
            self.shared.reply::<()>(call.request, &Err(status));
        }
        Ok(())
    }
}
