//! The bell that wakes the scheduler. Any thread that has something for it rings.

use std::sync::Arc;
use std::time::Duration;

use penstock_process::{Lock, Signal};

/// A doorbell. All clones ring the same bell.
#[derive(Clone, Debug, Default)]
pub struct Doorbell(Arc<Bell>);

#[derive(Debug, Default)]
struct Bell {
    rung: Lock<bool>,
    bell: Signal,
}

impl Doorbell {
    /// Wakes the waiting thread, or makes the next wait return at once.
    pub fn ring(&self) {
        let mut rung = self.0.rung.lock();
        if !*rung {
            *rung = true;
            self.0.bell.notify_one();
        }
    }

    /// Waits until the bell has rung, or until the time is over. `None` waits without a limit.
    pub fn wait(&self, most: Option<Duration>) {
        let mut rung = self.0.rung.lock();
        match most {
            Some(most) => {
                if !*rung {
                    rung = self.0.bell.wait_timeout(rung, most).0;
                }
            }
            None => {
                while !*rung {
                    rung = self.0.bell.wait(rung);
                }
            }
        }
        *rung = false;
    }
}
