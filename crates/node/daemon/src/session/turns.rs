//! The gate before launches on devices that users take turns on.
//!
//! While nobody else wants a device, a launch costs one relaxed load. Otherwise the daemon says on
//! which devices this session begins no launches for now (`closed`), and on which it gives the
//! driver only a few at a time (`paced`): what the driver has can no longer be held back.
//!
//! Nothing waits for a session at this gate for ever. Only launches wait, and what the driver has
//! goes on. The thread that waits holds no lock. It is the one that reads the client's link, so no
//! later call of this client is served meanwhile, and a launch may depend on such a call. So each
//! wait has a limit, after which the launch begins anyway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use penstock_device as device;
use penstock_process::{Lock, Signal};
use penstock_quota::HELD_MAX;

use crate::sharing::Gates;

/// Longest wait at a closed gate. The daemon opens it after [`HELD_MAX`] at the latest. If it does
/// not, it hangs or is gone.
const CLOSED_MAX: Duration = HELD_MAX.saturating_mul(2);

/// Most launches of a session that a paced device has at a time. With one less than two, the device
/// would wait for the worker between them; launches of some 10 µs need some more. Four kernels of
/// 5 ms are a slice.
const PACED_LAUNCHES_MAX: u64 = 4;

/// Longest wait for one of these launches to end. It may wait for the client's next call.
const PACED_MAX: Duration = Duration::from_millis(50);

/// Interval at which a thread that waits looks whether the session has ended.
const LOOK: Duration = Duration::from_millis(10);

/// A session's gate.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Longest wait at a closed gate, and for a launch of a paced device.
    closed_max: Duration,
    paced_max: Duration,
    /// Devices that are closed or paced.
    concerned: AtomicU64,
    gates: Lock<PassedGates>,
    changed: Signal,
    /// Whether a launch waits.
    waits: AtomicBool,
}

#[derive(Debug, Default)]
struct PassedGates {
    gates: Gates,
    /// Number of launches that paced devices have.
    running: u64,
}

impl Default for Turns {
    fn default() -> Self {
        Self::with_limits(CLOSED_MAX, PACED_MAX)
    }
}

impl Turns {
    fn with_limits(closed_max: Duration, paced_max: Duration) -> Self {
        Self {
            closed_max,
            paced_max,
            concerned: AtomicU64::default(),
            gates: Lock::default(),
            changed: Signal::default(),
            waits: AtomicBool::default(),
        }
    }

    /// Returns the bit of a device; 0 for devices that have no turns.
    pub(crate) fn bit_of(index: u32) -> u64 {
        1_u64.checked_shl(index).unwrap_or(0)
    }

    pub(crate) fn set(&self, gates: Gates) {
        let mut passed = self.gates.lock();
        passed.gates = gates;
        self.concerned.store(gates.closed | gates.paced, Ordering::Relaxed);
        drop(passed);
        self.changed.notify_all();
    }

    /// Returns whether a launch on this device must call [`Turns::pass`] first.
    pub(crate) fn concerns(&self, device: u64) -> bool {
        self.concerned.load(Ordering::Relaxed) & device != 0
    }

    /// Waits until a launch on this device may begin. `gives_up` returns that the session has
    /// ended, and `awaits_client` that launches may wait for the client's next call. Returns `true`
    /// if the launch's end must be noted, by [`Turns::note_launch`].
    pub(crate) fn pass(
        &self,
        device: u64,
        gives_up: &dyn Fn() -> bool,
        awaits_client: &dyn Fn() -> bool,
    ) -> bool {
        self.waits.store(true, Ordering::Relaxed);
        let is_closed = |passed: &PassedGates| passed.gates.closed & device != 0;
        self.wait(self.closed_max, &|passed| is_closed(passed) && !gives_up());
        let is_full = |passed: &PassedGates| {
            passed.gates.paced & device != 0 && passed.running >= PACED_LAUNCHES_MAX
        };
        // Asked without the lock, because the ends of launches need it.
        if !awaits_client() {
            self.wait(self.paced_max, &|passed| is_full(passed) && !gives_up());
        }
        self.waits.store(false, Ordering::Relaxed);
        self.gates.lock().gates.paced & device != 0
    }

    /// Returns whether a launch waits, so that the session is not idle.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// Counts a launch until it has ended.
    pub(crate) fn note_launch(self: &Arc<Self>, launch: &device::Event) {
        self.gates.lock().running += 1;
        let turns = self.clone();
        launch.on_complete(Box::new(move |_, _| turns.note_end()));
    }

    fn note_end(&self) {
        let mut passed = self.gates.lock();
        passed.running = passed.running.saturating_sub(1);
        drop(passed);
        self.changed.notify_all();
    }

    fn wait(&self, longest: Duration, must_wait: &dyn Fn(&PassedGates) -> bool) {
        let deadline = penstock_process::now() + longest;
        let mut passed = self.gates.lock();
        while must_wait(&passed) {
            let left = deadline.saturating_duration_since(penstock_process::now());
            if left.is_zero() {
                return;
            }
            (passed, _) = self.changed.wait_timeout(passed, left.min(LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use penstock_trial::{in_time, patience};

    use super::*;

    const DEVICE: u64 = 1 << 3;

    /// A gate at which a wait that nobody ends is told from one that somebody ends.
    fn patient() -> Turns {
        Turns::with_limits(2 * patience(), 2 * patience())
    }

    fn pass(turns: &Turns) -> bool {
        turns.pass(DEVICE, &|| false, &|| false)
    }

    #[test]
    fn an_open_gate_asks_for_one_load() {
        let turns = Turns::default();
        assert!(!turns.concerns(DEVICE) && !pass(&turns));
        turns.set(Gates { closed: !DEVICE, paced: !DEVICE });
        assert!(!turns.concerns(DEVICE) && turns.concerns(1));
        assert_eq!((Turns::bit_of(3), Turns::bit_of(64)), (DEVICE, 0));
    }

    #[test]
    fn a_launch_waits_until_the_gate_opens() {
        let (turns, has_passed) = (patient(), AtomicBool::new(false));
        turns.set(Gates { closed: DEVICE, paced: 0 });
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pass(&turns);
                has_passed.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(30));
            assert!(!has_passed.load(Ordering::SeqCst));
            turns.set(Gates::default());
        });
        assert!(has_passed.load(Ordering::SeqCst));
    }

    #[test]
    fn no_wait_lasts_for_ever() {
        let turns = Turns::default();
        turns.set(Gates { closed: DEVICE, paced: DEVICE });
        turns.gates.lock().running = PACED_LAUNCHES_MAX;
        let began = Instant::now();
        assert!(pass(&turns));
        assert!(Instant::now() >= began + CLOSED_MAX + PACED_MAX);
    }

    #[test]
    fn nobody_waits_for_a_session_that_has_ended() {
        let turns = patient();
        turns.set(Gates { closed: DEVICE, paced: DEVICE });
        in_time("a launch", || turns.pass(DEVICE, &|| true, &|| true));
    }

    #[test]
    fn a_paced_device_has_few_launches() {
        let turns = patient();
        turns.set(Gates { closed: 0, paced: DEVICE });
        turns.gates.lock().running = PACED_LAUNCHES_MAX;
        std::thread::scope(|scope| {
            scope.spawn(|| in_time("a launch behind another one", || pass(&turns)));
            turns.note_end();
        });
        assert_eq!(turns.gates.lock().running, PACED_LAUNCHES_MAX - 1);
        // A launch that may wait for its client is not held back by those before it.
        turns.gates.lock().running = PACED_LAUNCHES_MAX;
        in_time("a launch beside others", || turns.pass(DEVICE, &|| false, &|| true));
    }
}
