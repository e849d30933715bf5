//! Where the daemon's control group is, and whether the daemon may divide it. No I/O.
//!
//! A group belongs to whoever made it: systemd, a container's manager, or the daemon's user. The
//! daemon divides a group only if it is *delegated*: if its owner has said that it will not touch
//! what is below it. A group with controllers for its children may have no processes of its own.
//! So the daemon must be alone in the group, and moves into a leaf of it.

use std::path::{Path, PathBuf};

/// Name of the leaf into which the daemon moves.
pub(super) const OWN_LEAF: &str = "daemon";

/// Beginning of the name of a worker's group.
pub(super) const WORKER_PREFIX: &str = "worker-";

/// A controller that limits workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Controller {
    Memory,
    Pids,
    Cpu,
}

impl Controller {
    pub(super) const ALL: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }

    /// Returns the file that limits a group, and what it limits.
    pub(super) const fn limits(self) -> (&'static str, &'static str) {
        match self {
            Self::Memory => ("memory.max", "memory"),
            Self::Pids => ("pids.max", "the number of tasks"),
            Self::Cpu => ("cpu.weight", "the share of the processors"),
        }
    }
}

/// Why workers have no control groups.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoGroups {
    #[error("the daemon is a part of another program")]
    NotAsked,
    #[error("this system has no control groups of version 2")]
    NoVersion2,
    #[error("the controllers memory, pids and cpu of this system belong to version 1")]
    Version1,
    #[error("the daemon is in the system's root control group")]
    Root,
    #[error("the daemon's control group has no controllers")]
    NoControllers,
    #[error("the daemon shares its control group with {others} other processes")]
    Shared { others: usize },
    #[error("another daemon has its workers in this control group")]
    Occupied,
    #[error("this user may not write to the daemon's control group")]
    NotWritable,
    #[error("the daemon's control group is not delegated to it")]
    NotDelegated,
    #[error("{doing}: {why}")]
    System { doing: &'static str, why: String },
}

impl NoGroups {
    /// Returns what the administrator can do.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::NoVersion2 | Self::Version1 => {
                "start the system with systemd.unified_cgroup_hierarchy=1"
            }
            Self::Occupied => "start each daemon in a group of its own",
            Self::System { .. } => "look at the permissions of the daemon's control group",
            _ => {
                "start the daemon by its unit, or with `systemd-run --user --scope -p Delegate=yes`"
            }
        }
    }
}

/// Returns the folder of this process's group, from `/proc/self/cgroup` and `/proc/self/mountinfo`.
pub(super) fn locate(groups: &str, mounts: &str) -> Result<PathBuf, NoGroups> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let own = own.ok_or(NoGroups::NoVersion2)?;
    let folder = mounts.lines().filter_map(mount_of_version_2).find_map(|(root, place)| {
        let below = Path::new(own).strip_prefix(&root).ok()?;
        Some(if below.as_os_str().is_empty() { place } else { place.join(below) })
    });
    // A path that leads out of the namespace of control groups is none that can be used.
    let usable = folder.filter(|folder| folder.components().all(|it| it.as_os_str() != ".."));
    usable.ok_or(NoGroups::NoVersion2)
}

/// Returns root and place of the mount that this line of `mountinfo` describes.
fn mount_of_version_2(line: &str) -> Option<(PathBuf, PathBuf)> {
    let (before, after) = line.split_once(" - ")?;
    if after.split(' ').next() != Some("cgroup2") {
        return None;
    }
    let mut fields = before.split(' ').skip(3);
    Some((plain(fields.next()?), plain(fields.next()?)))
}

/// Returns a path without the escapes of `mountinfo`: `\040` is a space.
fn plain(field: &str) -> PathBuf {
    let mut text = String::new();
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                text.push(char::from(code));
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                text.push('\\');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text.into()
}

/// Returns the controllers that `/proc/self/cgroup` shows as those of version 1.
pub(super) fn of_version_1(groups: &str) -> Vec<Controller> {
    let names = groups.lines().filter_map(|line| line.split(':').nth(1));
    let names: Vec<&str> = names.flat_map(|names| names.split(',')).collect();
    Controller::ALL.into_iter().filter(|it| names.contains(&it.name())).collect()
}

/// Says whether the daemon may divide a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    /// systemd has marked it as delegated, or it belongs to the daemon's user and the group above
    /// it does not.
    Delegated,
    /// There is no systemd that could use it.
    Unmanaged,
    /// systemd may put processes into it.
    Managed,
}

/// What is known of the daemon's group.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Whether it is the root of the hierarchy, to which no limits apply.
    pub(super) is_root: bool,
    pub(super) controllers: Vec<Controller>,
    pub(super) of_version_1: Vec<Controller>,
    /// Number of processes in it.
    pub(super) processes: usize,
    /// Whether a daemon lives in the leaf below it.
    pub(super) is_occupied: bool,
    pub(super) is_writable: bool,
    pub(super) ownership: Ownership,
}

/// Returns the controllers with which the daemon may limit workers.
pub(super) fn judge(seen: &Seen) -> Result<Vec<Controller>, NoGroups> {
    if seen.controllers.is_empty() && !seen.of_version_1.is_empty() {
        return Err(NoGroups::Version1);
    }
    if seen.is_root {
        return Err(NoGroups::Root);
    }
    if !seen.is_writable {
        return Err(NoGroups::NotWritable);
    }
    if seen.ownership == Ownership::Managed {
        return Err(NoGroups::NotDelegated);
    }
    if seen.is_occupied {
        return Err(NoGroups::Occupied);
    }
    if seen.processes > 1 {
        return Err(NoGroups::Shared { others: seen.processes - 1 });
    }
    if seen.controllers.is_empty() {
        return Err(NoGroups::NoControllers);
    }
    Ok(seen.controllers.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PURE: &str = "29 22 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID: &str = "\
30 22 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
31 22 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw
";

    fn seen() -> Seen {
        Seen {
            is_root: false,
            controllers: Controller::ALL.to_vec(),
            of_version_1: Vec::new(),
            processes: 1,
            is_occupied: false,
            is_writable: true,
            ownership: Ownership::Delegated,
        }
    }

    #[test]
    fn the_own_group_is_found_in_each_layout() {
        let unit = "0::/system.slice/penstockd.service\n";
        let found = |groups: &str, mounts: &str| locate(groups, mounts);
        assert_eq!(found(unit, PURE), Ok("/sys/fs/cgroup/system.slice/penstockd.service".into()));
        assert_eq!(found("4:memory:/a\n0::/\n", HYBRID), Ok("/sys/fs/cgroup/unified".into()));
        assert_eq!(found("4:memory:/a\n", HYBRID), Err(NoGroups::NoVersion2));
        assert_eq!(found(unit, ""), Err(NoGroups::NoVersion2));
        // A container that sees a part of the hierarchy, at a place with a space.
        let part = "1 2 0:3 /box /my\\040groups rw - cgroup2 cgroup2 rw\n";
        assert_eq!(found("0::/box/a\n", part), Ok("/my groups/a".into()));
        assert_eq!(found("0::/other\n", part), Err(NoGroups::NoVersion2));
        assert_eq!(found("0::/../other\n", PURE), Err(NoGroups::NoVersion2));
    }

    #[test]
    fn controllers_of_version_1_are_known() {
        assert_eq!(of_version_1("0::/\n"), []);
        let groups = "4:memory:/a\n2:cpu,cpuacct:/\n8:pids:/\n1:name=systemd:/\n0::/\n";
        assert_eq!(of_version_1(groups), Controller::ALL);
    }

    #[test]
    fn only_a_delegated_group_is_divided() {
        assert_eq!(judge(&seen()), Ok(Controller::ALL.to_vec()));
        let unmanaged = Seen { ownership: Ownership::Unmanaged, ..seen() };
        assert!(judge(&unmanaged).is_ok());
        let pids = vec![Controller::Pids];
        assert_eq!(judge(&Seen { controllers: pids.clone(), ..seen() }), Ok(pids));
        let none = Vec::new();
        for (seen, why) in [
            (Seen { is_root: true, ..seen() }, NoGroups::Root),
            (Seen { is_writable: false, ..seen() }, NoGroups::NotWritable),
            (Seen { ownership: Ownership::Managed, ..seen() }, NoGroups::NotDelegated),
            (Seen { is_occupied: true, processes: 2, ..seen() }, NoGroups::Occupied),
            (Seen { processes: 3, ..seen() }, NoGroups::Shared { others: 2 }),
            (Seen { controllers: none.clone(), ..seen() }, NoGroups::NoControllers),
            (
                Seen {
                    controllers: none.clone(),
                    of_version_1: vec![Controller::Memory],
                    is_root: true,
                    ..seen()
                },
                NoGroups::Version1,
            ),
        ] {
            assert_eq!(judge(&seen), Err(why.clone()));
            assert!(!why.remedy().is_empty());
        }
    }
}
