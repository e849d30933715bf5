//! Resource limits of a worker's process.

use rustix::process::Resource;

/// Most tasks that drivers and Penstock start in one worker on a host with this number of cores:
/// one for each core in each of two drivers for CPUs, some 64 for GPUs, peers and links, and the
/// drivers' once more for a builder.
const fn tasks_of_worker(cores: u64) -> u64 {
    cores.saturating_mul(4).saturating_add(64)
}

/// A limit that a worker sets for itself, soft and hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub resource: Resource,
    pub value: u64,
    pub why: &'static str,
}

/// Returns the limits of a worker on a host with `cores`, whose daemon has at most `sessions`.
///
/// The system counts the tasks of a user and not those of a process, and does not count at all for
/// root. So the limit on tasks bounds what one session can do to the host, and not to other
/// sessions.
#[must_use]
pub fn of_worker(cores: u64, sessions: u64) -> [Limit; 3] {
    [
        Limit { resource: Resource::Core, value: 0, why: "no memory of a client on the disk" },
        Limit { resource: Resource::Msgqueue, value: 0, why: "no driver uses message queues" },
        Limit {
            resource: Resource::Nproc,
            value: tasks_of_worker(cores).saturating_mul(sessions),
            why: "a fork bomb leaves the host room for other users",
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_leave_room_for_all_sessions() {
        let [core, queues, tasks] = of_worker(128, 256);
        assert_eq!((core.resource, core.value), (Resource::Core, 0));
        assert_eq!((queues.resource, queues.value), (Resource::Msgqueue, 0));
        assert_eq!((tasks.resource, tasks.value), (Resource::Nproc, (4 * 128 + 64) * 256));
        assert_eq!(of_worker(u64::MAX / 4, u64::MAX)[2].value, u64::MAX);
    }
}
