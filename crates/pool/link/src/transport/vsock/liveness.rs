//! Finds out whether the other end of a connection still lives: does what [`vigil`](super::vigil)
//! decides.
//!
//! vsock has no acknowledgements and no keep-alive. If a guest hangs or is paused, the kernel says
//! nothing about it, and neither does a monitor. So after some time of silence this side begins
//! another connection to the same machine, to a port on which nobody listens, and waits for the
//! refusal. With the kernel's vsock it also pokes the connection itself: see [`Buffers::poke`]. A
//! machine that was started anew resets the connection. Behind a monitor, the beats of a worker do
//! the same: see [`crate::silence`].

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use penstock_process::Lock;

use super::super::contract;
use super::machine::{Machine, Question};
use super::place::{Buffers, Place};
use super::vigil::{Signs, Vigil};

#[derive(Debug)]
pub(super) struct Liveness {
    machine: Machine,
    /// Whether bytes have come since the last look.
    pub(super) heard: Arc<AtomicBool>,
    watch: Lock<Watch>,
}

#[derive(Debug)]
struct Watch {
    vigil: Vigil,
    question: Option<Question>,
    /// `None` behind a monitor.
    buffers: Option<Buffers>,
}

impl Liveness {
    /// Watches over a connection of the kernel's vsock.
    pub(super) fn of_kernel(there: Place, buffers: Buffers) -> Self {
        Self::new(Machine::Number(there.cid), Some(buffers))
    }

    /// Watches over a connection to the guest behind a monitor.
    pub(super) fn of_monitor(path: PathBuf) -> Self {
        Self::new(Machine::Behind(path), None)
    }

    fn new(machine: Machine, buffers: Option<Buffers>) -> Self {
        let vigil = Vigil::new(Instant::now());
        let watch = Lock::new(Watch { vigil, question: None, buffers });
        Self { machine, heard: Arc::default(), watch }
    }
}

impl contract::Liveness for Liveness {
    fn has_vanished(&self, connection: BorrowedFd<'_>) -> bool {
        let mut watch = self.watch.lock();
        let watch = &mut *watch;
        let heard = self.heard.swap(false, Ordering::Relaxed);
        let answer = watch.question.as_ref().and_then(|it| it.answer(&self.machine));
        let deeds = watch.vigil.look(Instant::now(), Signs { heard, answer });
        if !watch.vigil.is_asking() {
            watch.question = None;
        }
        if deeds.poke && let Some(buffers) = &mut watch.buffers {
            buffers.poke(connection);
        }
        if deeds.ask {
            match Question::put(&self.machine) {
                Ok(question) => watch.question = Some(question),
                Err(why) => return watch.vigil.could_not_ask(why, Instant::now()),
            }
        }
        deeds.is_lost
    }
}
