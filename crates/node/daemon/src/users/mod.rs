//! Unix users of workers. A daemon of root can give each worker a user of its own, so that Linux
//! keeps sessions apart, whatever the level of confinement is.
//!
//! The worker changes its user itself, right after its start (`penstock_confine::Order`). The
//! daemon chooses the user, gives it the worker's folder, and makes sure that no process of the
//! user is left before another worker gets it.

mod processes;
mod range;

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_confine::WorkerUser;
use penstock_process::Lock;

use range::Roll;
pub use range::{NotARange, UserRange, WORKER_USERS_MIN};

/// Longest wait for the end of processes that were killed.
const END_MAX: Duration = Duration::from_secs(2);

/// Most groups of a worker, because devices of more kinds are not known.
const GROUPS_MAX: usize = 16;

/// Why workers cannot have users of their own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    #[error("--worker-users needs a daemon that root runs")]
    NotRoot,
    #[error("{name} has the number {number}, so --worker-users {range} must not have it")]
    Taken { name: String, number: u32, range: UserRange },
    #[error(
        "the process {process} belongs to a user of --worker-users {range}; end it, or give each \
         daemon a range of its own"
    )]
    InUse { process: u32, range: UserRange },
    #[error("--allow-user {number} is in the range --worker-users {range}; choose another range")]
    Allowed { number: u32, range: UserRange },
    #[error(
        "this daemon cannot see the processes of other users, so it could not end those of \
         workers; mount /proc without hidepid, or leave out ProtectProc= in its unit"
    )]
    Blind,
    #[error("{doing}: {source}")]
    System { doing: &'static str, source: io::Error },
}

/// The users of a daemon's workers.
#[derive(Debug)]
pub(crate) struct Users {
    range: UserRange,
    roll: Lock<Roll>,
    groups: Vec<u32>,
}

/// A user that one worker has. Another worker can have it after [`Lease::end`].
#[derive(Debug)]
pub(crate) struct Lease {
    number: u32,
    all: Arc<Users>,
}

impl Users {
    /// Takes a range for the workers of this daemon.
    ///
    /// # Errors
    /// Fails if this process is not root or cannot see processes, or if somebody else has a user of
    /// the range. `allowed` are the users who may connect.
    pub(crate) fn of_range(range: UserRange, allowed: &[u32]) -> Result<Arc<Self>, UsersError> {
        if let Some(number) = allowed.iter().copied().find(|number| range.has(*number)) {
            return Err(UsersError::Allowed { number, range });
        }
        if !rustix::process::geteuid().is_root() {
            return Err(UsersError::NotRoot);
        }
        for path in ["/etc/passwd", "/etc/group"] {
            // A system without such a file has no names.
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if let Some((name, number)) = text.lines().find_map(|line| range.taken_by(line)) {
                return Err(UsersError::Taken { name: name.to_owned(), number, range });
            }
        }
        // The first process belongs to somebody else, or is this one.
        if std::fs::read_to_string("/proc/1/status").is_err() {
            return Err(UsersError::Blind);
        }
        let end = Instant::now() + END_MAX;
        loop {
            let found = processes::that(|user| range.has(user))
                .map_err(|source| UsersError::System { doing: "looking at processes", source })?;
            let Some(process) = found.first().copied() else { break };
            // Workers of a daemon that was killed end at any moment.
            if Instant::now() >= end {
                return Err(UsersError::InUse { process, range });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Arc::new(Self { range, roll: Lock::new(Roll::new(range)), groups: groups_of_devices() }))
    }

    pub(crate) fn range(&self) -> UserRange {
        self.range
    }

    /// Returns a user that nobody has.
    ///
    /// # Errors
    /// Fails if workers have all users of the range.
    pub(crate) fn lease(self: &Arc<Self>) -> io::Result<Lease> {
        let number = self.roll.lock().take();
        let why = || io::Error::other(format!("workers have all users of {}", self.range));
        Ok(Lease { number: number.ok_or_else(why)?, all: self.clone() })
    }
}

impl Lease {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn worker(&self) -> WorkerUser {
        WorkerUser { number: self.number, groups: self.all.groups.clone() }
    }

    /// Ends all processes of the user. Returns whether none is left.
    pub(crate) fn end_processes(&self) -> bool {
        let ended = processes::end_all_of(self.number, END_MAX);
        if let Err(error) = &ended {
            tracing::warn!(user = self.number, %error, "no other worker gets the user of a worker");
        }
        ended.is_ok()
    }

    /// Lets other workers have the user. Its processes must have ended, and its files must be gone.
    /// A lease that is dropped otherwise is lost until the daemon ends.
    pub(crate) fn end(self) {
        self.all.roll.lock().give_back(self.number);
    }
}

/// Returns whether no process has one of these users.
pub(crate) fn are_idle(users: &[u32]) -> bool {
    let found = || processes::that(|user| users.contains(&user));
    users.is_empty() || found().is_ok_and(|found| found.is_empty())
}

/// Returns the groups that own nodes of devices, such as `render`.
fn groups_of_devices() -> Vec<u32> {
    let below = |folder: &str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let mut paths = below("/dev/dri");
    paths.extend(below("/dev/accel"));
    paths.push("/dev/kfd".into());
    let mut groups: Vec<u32> = paths.iter().filter_map(|path| group_of_node(path)).collect();
    groups.sort_unstable();
    groups.dedup();
    groups.truncate(GROUPS_MAX);
    groups
}

/// Returns the group of a device's node, if the group may use the device, and it is not root's.
fn group_of_node(path: &Path) -> Option<u32> {
    let about = std::fs::metadata(path).ok()?;
    let may_use = about.mode() & 0o060 == 0o060 && about.gid() != 0;
    (about.file_type().is_char_device() && may_use).then(|| about.gid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_has_users_for_workers() {
        let range: UserRange = "3000000000-3000000511".parse().unwrap();
        let allowed = Users::of_range(range, &[5, 3_000_000_007]);
        assert!(matches!(allowed, Err(UsersError::Allowed { number: 3_000_000_007, .. })));
        let users = Users::of_range(range, &[5]);
        if rustix::process::geteuid().is_root() {
            let users = users.unwrap();
            let (one, two) = (users.lease().unwrap(), users.lease().unwrap());
            assert_ne!(one.number(), two.number());
            assert!(one.end_processes());
            one.end();
            assert!(!users.groups.contains(&0));
            assert!(are_idle(&[]) && are_idle(&[3_000_000_001]) && !are_idle(&[0]));
        } else {
            assert!(matches!(users, Err(UsersError::NotRoot)));
        }
    }

    #[test]
    fn a_file_is_no_device() {
        assert_eq!(group_of_node(Path::new("/etc/passwd")), None);
        assert_eq!(group_of_node(Path::new("/nowhere")), None);
    }
}
