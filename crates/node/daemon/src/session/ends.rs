//! The ends of commands: the client learns them first, then the commands here that wait for them.

use std::sync::Arc;

use penstock_device as device;
use penstock_link::Body;
use penstock_wire::Status;
use penstock_wire::calls::to_client;

use super::event::Event;
use super::queue::EndTurn;
use super::shared_session::SharedSession;

impl SharedSession {
    /// Ends an event that is in no order with others: tells the client, then the followers here.
    pub(crate) fn end_event(
        self: &Arc<Self>,
        event: &Arc<Event>,
        status: Status,
        times: device::Times,
    ) {
        let (shared, told) = (self.clone(), event.clone());
        event.when_known(status, move |status| {
            shared.tell_event(&told, status, times);
            told.end(status);
        });
    }

    /// Does the same as [`SharedSession::end_event`] for a command of a queue. Its end comes after
    /// those of the commands before it.
    pub(crate) fn end_command(
        self: &Arc<Self>,
        event: &Arc<Event>,
        status: Status,
        times: device::Times,
        turn: EndTurn,
    ) {
        let (shared, told) = (self.clone(), event.clone());
        event.when_known(status, move |status| {
            turn.take(move |mark| {
                // The client first: the answer to a finish that finds the queue idle must come
                // after this.
                shared.tell_event(&told, status, times);
                mark.reach();
                told.end(status);
            });
        });
    }

    pub(crate) fn tell_event(&self, event: &Event, status: Status, times: device::Times) {
        penstock_trial::delay(penstock_trial::Place::WorkerReports);
        self.drain_output();
        let call = to_client::EventDone::new(event.id(), status, times);
        self.outbox.post(&call, &[], Body::None);
    }
}
