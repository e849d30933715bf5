//! Resource limits of a worker's process.

use rustix::process::Resource;

/// Most tasks that drivers and Penstock start in one worker on a host with this number of cores:
/// one for each core in each of two drivers for CPUs, some 64 for GPUs, peers and links, and the
/// drivers' once more for a builder.
const fn tasks_of_worker(cores: u64) -> u64 {
    cores.saturating_mul(4).saturating_add(64)
}

/// Most tasks of a session on a host with this number of cores: those of its worker, two for each
/// peer, and for each builder the threads of two drivers for CPUs and the linker.
#[must_use]
pub const fn tasks_of_session(cores: u64, builders: u64, peers: u64) -> u64 {
    let of_builder = cores.saturating_mul(2).saturating_add(16);
    tasks_of_worker(cores)
        .saturating_add(builders.saturating_mul(of_builder))
        .saturating_add(peers.saturating_mul(2))
}

/// A limit that a worker sets for itself, soft and hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub resource: Resource,
    pub value: u64,
    pub why: &'static str,
}

/// Returns the most tasks of a user that has all workers of a daemon with this number of sessions.
///
/// The system counts the tasks of a user and not those of a process, and does not count at all for
/// root. So this limit bounds what one session can do to the host, and not to other sessions.
#[must_use]
pub const fn tasks_of_daemon(cores: u64, sessions: u64) -> u64 {
    tasks_of_worker(cores).saturating_mul(sessions)
}

/// Most descriptors that a worker needs: one for each of 1,024 peers, and those of the drivers.
const DESCRIPTORS_MAX: u64 = 2_048;

/// Returns the most descriptors of a worker whose daemon may have this number.
///
/// Linux counts the descriptors that a user's processes have sent and nobody has received yet, and
/// refuses to send more when they exceed the sender's own limit. So a worker comes to its limit
/// while its daemon can still hand sockets to other workers. It sets this limit when it gets a
/// client: a worker that starts must be able to send whatever sessions have done.
#[must_use]
pub const fn descriptors_of_worker(of_daemon: u64) -> u64 {
    let share = of_daemon / 4;
    if share < DESCRIPTORS_MAX { share } else { DESCRIPTORS_MAX }
}

/// Returns the limits of a worker whose user may have this number of tasks.
#[must_use]
pub fn of_worker(tasks: u64) -> [Limit; 3] {
    [
        Limit { resource: Resource::Core, value: 0, why: "no memory of a client on the disk" },
        Limit { resource: Resource::Msgqueue, value: 0, why: "no driver uses message queues" },
        Limit {
            resource: Resource::Nproc,
            value: tasks,
            why: "a fork bomb leaves the host room for other users",
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_leave_room_for_all_sessions() {
        let [core, queues, tasks] = of_worker(tasks_of_daemon(128, 256));
        assert_eq!((core.resource, core.value), (Resource::Core, 0));
        assert_eq!((queues.resource, queues.value), (Resource::Msgqueue, 0));
        assert_eq!((tasks.resource, tasks.value), (Resource::Nproc, (4 * 128 + 64) * 256));
        assert_eq!(tasks_of_daemon(u64::MAX / 4, u64::MAX), u64::MAX);
        assert_eq!(tasks_of_session(2, 16, 1024), 72 + 16 * 20 + 2048);
        assert_eq!(tasks_of_session(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn a_worker_has_far_fewer_descriptors_than_its_daemon() {
        for (daemon, worker) in [(1_024, 256), (4_096, 1_024), (8_192, 2_048), (1 << 30, 2_048)] {
            assert_eq!(descriptors_of_worker(daemon), worker);
        }
    }
}
