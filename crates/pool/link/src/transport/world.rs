//! Waiting for descriptors in a world, where the threads that make them ready run one at a time.
#![allow(unsafe_code, reason = "keeps borrowed descriptors during a wait")]

use std::mem::transmute;
use std::time::Instant;

use rustix::event::{PollFd, Timespec, poll};

/// Waits until one of the descriptors is ready, or until the deadline. Returns `false`, without
/// waiting, in a thread of no world.
#[track_caller]
pub(super) fn wait_for(fds: &[PollFd<'_>], deadline: Option<Instant>) -> bool {
    // SAFETY: the world drops what it gets here before `wait_until` returns, or never returns. So
    // the copies are not used after the descriptors that `fds` borrows.
    let mut kept = unsafe { transmute::<Vec<PollFd<'_>>, Vec<PollFd<'static>>>(fds.to_vec()) };
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = move || poll(&mut kept, Some(&now)).is_ok_and(|ready| ready > 0);
    penstock_process::world::wait_until(deadline, Box::new(ready)).is_some()
}
