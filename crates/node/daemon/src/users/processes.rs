//! The processes of a user.

use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Interval at which processes that were killed are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Returns the processes that have a user, as real, effective or saved one, that `is_one` accepts.
/// Processes that have ended and that nobody has waited for do not count.
pub(super) fn that(is_one: impl Fn(u32) -> bool) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // If there is no such file, the process has ended meanwhile.
        let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
        if lives_as(&status, &is_one) {
            found.push(number);
        }
    }
    Ok(found)
}

/// Returns whether `/proc/PID/status` tells of a process that runs as such a user.
fn lives_as(status: &str, is_one: &impl Fn(u32) -> bool) -> bool {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let has_ended = field("State:").is_some_and(|state| state.trim_start().starts_with(['Z', 'X']));
    let users = field("Uid:").unwrap_or_default();
    !has_ended && users.split_whitespace().filter_map(|it| it.parse().ok()).any(is_one)
}

/// Ends all processes of a user, and returns when none is left. They may start others meanwhile.
///
/// # Errors
/// Fails if some are left after this time.
pub(super) fn end_all_of(user: u32, wait_max: Duration) -> io::Result<()> {
    let end = Instant::now() + wait_max;
    loop {
        let left = that(|it| it == user)?;
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(io::Error::other(format!("{} of its processes do not end", left.len())));
        }
        for process in left {
            end_one(process, user);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Kills a process if it is the user's. Its number may belong to another process meanwhile.
fn end_one(process: u32, user: u32) {
    let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return };
    let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    // What the descriptor holds is looked at, so that nobody else's process is killed.
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    if lives_as(&status, &|it| it == user) {
        // If it has ended meanwhile, there is nothing to do.
        _ = pidfd_send_signal(held, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_the_user() {
        let status = "Name:\ta\nState:\tS (sleeping)\nUid:\t0\t0\t7\t0\nGid:\t5\t5\t5\t5\n";
        assert!(lives_as(status, &|user| user == 7));
        assert!(!lives_as(status, &|user| user == 5));
        assert!(!lives_as(&status.replace("S (", "Z ("), &|user| user == 7));
        assert!(!lives_as("", &|_| true));
    }

    #[test]
    fn this_process_is_found() {
        let user = rustix::process::geteuid().as_raw();
        assert!(that(|it| it == user).unwrap().contains(&std::process::id()));
        end_all_of(3_123_456_789, Duration::ZERO).unwrap();
    }
}
