//! What the control group of a worker allows. No I/O.

use penstock_confine::limits::tasks_of_session;

use super::place::Controller;
use crate::builder::BUILDS_AT_ONCE_MAX;
use crate::dials::PEERS_PER_SESSION_MAX;

/// Weight of the daemon's own group, and of all sessions of one user together. The largest number
/// that Linux takes, so that it can be divided among the sessions of a user.
pub(super) const WEIGHT_MAX: u64 = 10_000;

/// A session that is held back keeps its weight divided by this number. It is what the lowest
/// priority of Linux has of the usual one (a weight of 15, and one of 1,024).
const HELD_PART: u64 = 68;

/// The part of the host's memory that one worker leaves to others, and the most that it leaves: a
/// system with its services takes some 2 GiB.
const RESERVE_PART: u64 = 8;
const RESERVE_MAX: u64 = 4 << 30;

/// Name of the built-in limit of memory, as the status shows it.
pub(super) const BUILT_IN_MEMORY: &str = "the host's memory without an eighth, or without 4 GiB";

/// What limits the group of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupLimits {
    pub(crate) memory_bytes: u64,
    /// Sessions of the same user, this one included.
    pub(crate) sessions_of_user: u64,
    /// Whether the session is held back, because its user is ahead of others.
    pub(crate) is_held: bool,
}

/// Returns the memory that a worker may have if nobody has set a limit.
pub(super) fn default_memory(host_bytes: u64) -> u64 {
    host_bytes - (host_bytes / RESERVE_PART).min(RESERVE_MAX)
}

/// Returns the most tasks of a worker and all that it starts.
pub(crate) fn tasks_of_worker(cores: u64) -> u64 {
    tasks_of_session(cores, BUILDS_AT_ONCE_MAX as u64, PEERS_PER_SESSION_MAX as u64)
}

/// Returns the files of a worker's group, and what they should hold.
pub(super) fn files(
    limits: GroupLimits,
    cores: u64,
    controllers: &[Controller],
) -> Vec<(&'static str, String)> {
    let of = |controller: &Controller| {
        let value = match controller {
            Controller::Memory => limits.memory_bytes,
            Controller::Pids => tasks_of_worker(cores),
            Controller::Cpu => {
                let part = if limits.is_held { HELD_PART } else { 1 };
                (WEIGHT_MAX / limits.sessions_of_user.max(1) / part).max(1)
            }
        };
        (controller.limits().0, value.to_string())
    };
    controllers.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_leaves_memory_to_the_host() {
        assert_eq!(default_memory(8 << 30), 7 << 30);
        assert_eq!(default_memory(1 << 40), (1 << 40) - (4 << 30));
        assert_eq!(default_memory(0), 0);
    }

    #[test]
    fn sessions_of_a_user_share_its_weight() {
        let value = |sessions_of_user, file| {
            let limits = GroupLimits { memory_bytes: 5, sessions_of_user, is_held: false };
            let files = files(limits, 2, &Controller::ALL);
            files.into_iter().find(|it| it.0 == file).map(|it| it.1)
        };
        assert_eq!(value(1, "cpu.weight").unwrap(), "10000");
        assert_eq!(value(4, "cpu.weight").unwrap(), "2500");
        assert_eq!(value(u64::MAX, "cpu.weight").unwrap(), "1");
        assert_eq!(value(0, "cpu.weight").unwrap(), "10000");
        assert_eq!(value(1, "memory.max").unwrap(), "5");
        let limits = GroupLimits { memory_bytes: 5, sessions_of_user: 1, is_held: true };
        assert_eq!(files(limits, 2, &[Controller::Cpu]), [("cpu.weight", "147".to_owned())]);
        assert_eq!(files(limits, 2, &[Controller::Memory]), [("memory.max", "5".to_owned())]);
    }
}
