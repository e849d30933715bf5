//! The process of a worker, and those that its drivers or kernels have started.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

/// Kills a worker and all processes that its drivers or kernels have started: they are in its
/// group, and cannot leave it.
pub(super) fn end_group(child: &Child) {
    if let Some(group) = group_of(child) {
        // If they have ended meanwhile, there is nothing to do.
        _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

/// Kills what a worker that has ended has left behind. The worker has not been waited for, so its
/// number cannot belong to another group.
pub(super) fn end_group_of_ended(child: &Child) {
    let Some(process) = group_of(child) else { return };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if matches!(waitid(WaitId::Pid(process), options), Ok(Some(_))) {
        end_group(child);
    }
}

fn group_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown".to_owned(),
    }
}
