//! The order in which ends of one queue are reported.
//!
//! Drivers call back on any of their threads, and a command that has ended when it is checked is
//! reported by the checking thread. So ends of an in-order queue may come in another order than the
//! commands, or concurrently. But the client takes the end of a command, or the answer to a finish,
//! for the end of all before it. Here an end that comes too early waits for those before it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use penstock_process::Lock;
use penstock_trial::{Defect, planted};

type Tell = Box<dyn FnOnce() + Send>;

/// Ends of one queue that are still to be reported.
#[derive(Default)]
pub(crate) struct EndOrder(Lock<PendingEnds>);

#[derive(Default)]
struct PendingEnds {
    /// By the command's number; `None` until the command has come back.
    awaited: BTreeMap<u64, Option<Tell>>,
    /// Whether a thread is reporting; it also reports the ends that come meanwhile.
    telling: bool,
}

impl EndOrder {
    /// Announces the end of a command. Call it in the commands' order, before they can come back.
    pub(crate) fn expect(&self, serial: u64) {
        self.0.lock().awaited.insert(serial, None);
    }

    /// Notes that a command has come back. Calls `tell` when all announced earlier ends are
    /// reported, perhaps on another thread; if `after_all` is false, at once.
    ///
    /// Does not block. A report must not depend on a later one.
    pub(crate) fn ended(&self, serial: u64, after_all: bool, tell: impl FnOnce() + Send + 'static) {
        let mut state = if after_all && !planted(Defect::EndsOvertake) {
            let mut state = self.0.lock();
            state.awaited.insert(serial, Some(Box::new(tell)));
            state
        } else {
            // Told before it is removed, because later ends may be reported from then on.
            tell();
            let mut state = self.0.lock();
            state.awaited.remove(&serial);
            state
        };
        if std::mem::replace(&mut state.telling, true) {
            return;
        }
        loop {
            let first = state.awaited.first_entry().filter(|first| first.get().is_some());
            let Some(tell) = first.and_then(|first| first.remove()) else {
                state.telling = false;
                return;
            };
            drop(state);
            // A panic is a defect, but must not hold back later ends of the queue.
            let _ = catch_unwind(AssertUnwindSafe(tell));
            state = self.0.lock();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier, mpsc};
    use std::thread;

    use super::*;

    fn order(
        serials: std::ops::RangeInclusive<u64>,
    ) -> (Arc<EndOrder>, mpsc::Sender<u64>, mpsc::Receiver<u64>) {
        let order = Arc::new(EndOrder::default());
        serials.for_each(|serial| order.expect(serial));
        let (told, heard) = mpsc::channel();
        (order, told, heard)
    }

    #[test]
    fn what_comes_back_too_early_waits_for_what_is_before_it() {
        let (order, told, heard) = order(1..=4);
        for serial in [3, 2, 4, 1] {
            assert!(heard.try_recv().is_err());
            let told = told.clone();
            order.ended(serial, true, move || told.send(serial).unwrap());
        }
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn an_end_that_is_being_told_holds_back_the_next_one() {
        let (order, told, heard) = order(1..=2);
        let (begun, held) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let slow = thread::spawn({
            let (order, told, begun, held) =
                (order.clone(), told.clone(), begun.clone(), held.clone());
            move || {
                order.ended(1, true, move || {
                    begun.wait();
                    held.wait();
                    told.send(1).unwrap();
                });
            }
        });
        begun.wait();
        order.ended(2, true, move || told.send(2).unwrap());
        assert!(
            heard.try_recv().is_err(),
            "the second end must not be told while the first one is"
        );
        held.wait();
        slow.join().unwrap();
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn out_of_order_only_what_comes_after_all_waits() {
        let (order, told, heard) = order(1..=4);
        let tell = |serial: u64, after_all: bool| {
            let told = told.clone();
            order.ended(serial, after_all, move || told.send(serial).unwrap());
        };
        tell(2, false);
        tell(3, true);
        tell(4, false);
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [2, 4]);
        tell(1, false);
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn an_end_told_within_another_one_comes_after_it() {
        let (order, told, heard) = order(1..=2);
        let (inner, first, second) = (order.clone(), told.clone(), told);
        order.ended(1, true, move || {
            inner.ended(2, true, move || second.send(2).unwrap());
            first.send(1).unwrap();
        });
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_panic_keeps_nothing_back() {
        let (order, told, heard) = order(1..=2);
        order.ended(2, true, move || told.send(2).unwrap());
        order.ended(1, true, || panic!("a defect"));
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [2]);
    }
}
