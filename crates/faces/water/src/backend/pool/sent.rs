//! The event of an operation that another thread sends.

use penstock_client::Event;
use penstock_process::Lock;
use penstock_wire::Status;

/// The event of an operation, which exists once the operation has been sent. Later commands wait
/// for it.
#[derive(Debug, Default)]
pub(super) struct SentEvent(Lock<SendState>);

#[derive(Debug, Default)]
struct SendState {
    event: Option<Event>,
    /// Whether to report when the event is set.
    tell: bool,
}

impl SentEvent {
    /// Returns the event of an operation that failed before it could be sent.
    pub(super) fn failed(code: i32) -> Self {
        let event = Some(Event::ended(Status(code.min(-1))));
        Self(Lock::new(SendState { event, tell: false }))
    }

    /// Returns whether the operation has been sent. If it has not, asks that its sending be
    /// reported.
    pub(super) fn sent_or_watch(&self) -> bool {
        let mut state = self.0.lock();
        state.tell |= state.event.is_none();
        state.event.is_some()
    }

    /// Sets the event of the operation. Returns whether to report it.
    pub(super) fn set_sent(&self, event: Event) -> bool {
        let mut state = self.0.lock();
        state.event = Some(event);
        state.tell
    }

    pub(super) fn event(&self) -> Option<Event> {
        self.0.lock().event.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_before_an_operation_was_sent_is_told() {
        let sent = SentEvent::default();
        assert!(!sent.sent_or_watch());
        assert!(sent.set_sent(Event::ended(Status::OK)), "somebody asked");
        assert!(sent.sent_or_watch() && sent.event().is_some());
        let unasked = SentEvent::default();
        assert!(!unasked.set_sent(Event::ended(Status::OK)), "nobody asked");
    }
}
