//! What a session does when too many of its commands are on their way.

use penstock_wire::FrameError;

use super::Session;
use super::flights::Step;

impl Session {
    /// Waits until there is room for further commands. Call it before a command is read, if
    /// [`Stall::is_due`].
    pub(super) fn wait_for_flights(&mut self) -> Result<(), FrameError> {
        let all_marked = self.mark_flights();
        loop {
            let max = self.shared.allowance.commands_max();
            let cap = self.shared.allowance.terms().commands_in_flight;
            let cap = cap.filter(|cap| cap.max <= max);
            let events = &self.shared.events;
            let flying = self.shared.flights.now();
            let awaits = || events.awaits_others();
            let step =
                self.stall.decide(flying, max, cap.is_none(), penstock_process::now(), awaits);
            // Without the markers nobody would learn of an end.
            if step == Step::GoOn || !all_marked {
                self.stall.looked(self.shared.flights.given(), max);
                return Ok(());
            }
            if step == Step::GiveUp {
                let built_in = || FrameError::Limit("COMMANDS_IN_FLIGHT_MAX");
                return Err(cap.map_or_else(built_in, |cap| FrameError::Quota(cap.said)));
            }
            self.shared.make_room()?;
        }
    }

    /// Puts a marker into each queue with commands whose ends are not known. Returns whether that
    /// was possible.
    fn mark_flights(&mut self) -> bool {
        let mut all = true;
        for queue in self.queues.values_mut() {
            all &= queue.mark_flight();
        }
        all
    }
}
