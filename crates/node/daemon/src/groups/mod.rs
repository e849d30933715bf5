//! Control groups: one for each worker, below the daemon's own group.
//!
//! ```text
//! OWN/            the group in which the daemon was started, if it is delegated to the daemon
//! OWN/daemon/     the daemon
//! OWN/worker-N/   one worker and all processes that it starts
//! ```
//! `place` decides whether OWN may be divided, and `limits` what a worker's group allows. This file
//! reads and writes what they say.

mod limits;
mod place;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use penstock_process::Lock;
use rustix::fs::Access;
use serde_json::{Value, json};

use limits::{BUILT_IN_MEMORY, default_memory};
pub(crate) use limits::{GroupLimits, tasks_of_worker};
pub(crate) use place::NoGroups;
use place::{Controller, OWN_LEAF, Ownership, Seen, WORKER_PREFIX, judge, locate};

/// Longest wait for the end of processes that a dead daemon has left, or that were just killed.
const END_MAX: Duration = Duration::from_secs(2);
/// Time between two attempts to remove a group whose last processes are ending.
const LEAVING_LOOK: Duration = Duration::from_millis(100);

/// The groups of a daemon's workers.
#[derive(Debug)]
pub(crate) struct Groups {
    own: PathBuf,
    controllers: Vec<Controller>,
    /// Controllers that the group lacks.
    missing: Vec<Controller>,
    cores: u64,
    host_bytes: u64,
    next: AtomicU64,
    /// Groups whose last processes are ending.
    leaving: Lock<Vec<PathBuf>>,
}

/// The group of one worker. Its processes and the group itself end when it is dropped.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    all: Arc<Groups>,
    written: Option<GroupLimits>,
}

impl Groups {
    /// Divides the group of this process.
    ///
    /// # Errors
    /// Fails with the reason why workers stay in the daemon's group.
    pub(crate) fn divide() -> Result<Arc<Self>, NoGroups> {
        let read = |path: &'static str| fs::read_to_string(path).map_err(system(path));
        let groups = read("/proc/self/cgroup")?;
        let own = locate(&groups, &read("/proc/self/mountinfo")?)?;
        let has_systemd = Path::new("/run/systemd/system").is_dir();
        Self::divide_at(own, &groups, has_systemd).map(Arc::new)
    }

    pub(crate) fn divide_at(
        own: PathBuf,
        groups: &str,
        has_systemd: bool,
    ) -> Result<Self, NoGroups> {
        let controllers = judge(&look(&own, groups, has_systemd))?;
        end_leftovers(&own, END_MAX);
        let leaf = own.join(OWN_LEAF);
        make(&leaf).map_err(system("making a control group for the daemon"))?;
        move_into(&leaf, std::process::id())
            .map_err(system("moving the daemon into its control group"))?;
        let enabled = controllers.into_iter().filter(|controller| {
            let word = format!("+{}", controller.name());
            fs::write(own.join("cgroup.subtree_control"), word).is_ok()
        });
        let controllers: Vec<_> = enabled.collect();
        let missing = Controller::ALL.into_iter().filter(|it| !controllers.contains(it)).collect();
        let host_bytes = host_bytes(&own);
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let made = Self {
            own,
            controllers,
            missing,
            cores: cores as u64,
            host_bytes,
            next: AtomicU64::new(0),
            leaving: Lock::default(),
        };
        if made.controllers.is_empty() {
            // Dropped here, so that the daemon goes back to where it was.
            return Err(NoGroups::NoControllers);
        }
        if made.controllers.contains(&Controller::Cpu) {
            // Otherwise the daemon has the weight that Linux gives each group.
            _ = fs::write(leaf.join("cpu.weight"), limits::WEIGHT_MAX.to_string());
        }
        Ok(made)
    }

    /// Returns the memory that a worker may have if nobody has set a limit.
    pub(crate) fn default_memory(&self) -> u64 {
        default_memory(self.host_bytes)
    }

    /// Returns whether each worker has a share of the processors of its own.
    pub(crate) fn shares_processors(&self) -> bool {
        self.controllers.contains(&Controller::Cpu)
    }

    /// Makes the group of a worker.
    pub(crate) fn worker(self: &Arc<Self>) -> io::Result<Group> {
        self.sweep();
        let name = format!("{WORKER_PREFIX}{}", self.next.fetch_add(1, Ordering::Relaxed));
        let path = self.own.join(name);
        fs::create_dir(&path)?;
        let mut group = Group { path, all: self.clone(), written: None };
        let memory_bytes = self.default_memory();
        group.limit(GroupLimits { memory_bytes, sessions_of_user: 1, is_held: false })?;
        Ok(group)
    }

    /// Returns what the status says.
    pub(crate) fn told(of: &Result<Arc<Self>, NoGroups>) -> Value {
        match of {
            Ok(groups) => {
                let files: Vec<_> = groups.controllers.iter().map(|it| it.limits().0).collect();
                let lack = |it: &Controller| {
                    json!({
                        "what": format!("nothing limits {} of a worker", it.limits().1),
                        "remedy": format!("delegate the controller {} to the daemon", it.name()),
                    })
                };
                json!({
                    "path": groups.own.display().to_string(),
                    "limits": files,
                    "lacks": groups.missing.iter().map(lack).collect::<Vec<_>>(),
                })
            }
            Err(why) => json!({
                "path": null,
                "limits": [],
                "lacks": [{
                    "what": format!("workers have no control groups, because {why}"),
                    "remedy": why.remedy(),
                }],
            }),
        }
    }

    /// Returns what a worker may have if nobody has set a limit of memory.
    ///
    /// # Errors
    /// Fails with the reason why nothing limits the memory of workers, and what to do.
    pub(crate) fn memory_told(of: &Result<Arc<Self>, NoGroups>) -> Result<String, String> {
        match of {
            Ok(groups) if groups.controllers.contains(&Controller::Memory) => {
                let most = penstock_quota::Unit::Bytes.show(groups.default_memory());
                Ok(format!("Without an entry a worker has {most}, {BUILT_IN_MEMORY}"))
            }
            Ok(_) => Err("the controller memory is not delegated to the daemon".into()),
            Err(why) => Err(format!("{why}; {}", why.remedy())),
        }
    }

    /// Removes groups whose last processes have ended, and returns when to look again, if some have
    /// not: Linux ends processes in its own time, and tells nobody.
    pub(crate) fn look_again(&self, now: Instant) -> Option<Instant> {
        self.sweep();
        (!self.leaving.lock().is_empty()).then(|| now + LEAVING_LOOK)
    }

    /// Removes groups whose last processes have ended.
    fn sweep(&self) {
        self.leaving.lock().retain(|path| !is_removed(path));
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let end = Instant::now() + END_MAX;
        while !self.leaving.lock().is_empty() && Instant::now() < end {
            self.sweep();
            std::thread::sleep(Duration::from_millis(1));
        }
        // The daemon goes back to where it was started. A group with controllers for its children
        // takes no processes. If any of this fails, the group's owner removes it.
        for controller in &self.controllers {
            let word = format!("-{}", controller.name());
            _ = fs::write(self.own.join("cgroup.subtree_control"), word);
        }
        _ = move_into(&self.own, std::process::id());
        _ = fs::remove_dir(self.own.join(OWN_LEAF));
    }
}

/// Moves a process into the control group with this folder.
pub(crate) fn move_into(group: &Path, process: u32) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), process.to_string())
}

impl Group {
    /// Returns the folder of this group.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves a process into this group. What it starts from now on is in the group, too.
    pub(crate) fn take(&self, process: u32) -> io::Result<()> {
        move_into(&self.path, process)
    }

    /// Holds the group's processes back, or lets them go on, if it has a share of the processors of
    /// its own. Returns whether it has: between such groups the priority of threads says nothing.
    pub(crate) fn hold(&mut self, is_held: bool) -> io::Result<bool> {
        let has_weight = self.all.shares_processors();
        if let (true, Some(limits)) = (has_weight, self.written) {
            self.limit(GroupLimits { is_held, ..limits })?;
        }
        Ok(has_weight)
    }

    /// Sets the limits of the group, unless it has them already.
    pub(crate) fn limit(&mut self, limits: GroupLimits) -> io::Result<()> {
        let files = |limits| limits::files(limits, self.all.cores, &self.all.controllers);
        let written = self.written.map(files).unwrap_or_default();
        for (file, value) in files(limits).into_iter().filter(|it| !written.contains(it)) {
            fs::write(self.path.join(file), &value)?;
            if file == "memory.max" {
                // Otherwise a worker could fill the swap. Not every system counts swap.
                _ = fs::write(self.path.join("memory.swap.max"), value);
            }
        }
        self.written = Some(limits);
        Ok(())
    }

    /// Returns the limit of memory that Linux has ended a process of this group for, if it has.
    pub(crate) fn memory_exceeded(&self) -> Option<u64> {
        let events = fs::read_to_string(self.path.join("memory.events")).ok()?;
        let ended = events.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        let limits = self.written?;
        (ended.trim() != "0").then_some(limits.memory_bytes)
    }

    /// Ends all processes of the group, also those that have left the worker's process group.
    pub(crate) fn end(&self) {
        // Before Linux 5.14 there is no such file. The daemon also ends the process group.
        _ = fs::write(self.path.join("cgroup.kill"), "1");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
        if !is_removed(&self.path) {
            self.all.leaving.lock().push(std::mem::take(&mut self.path));
        }
    }
}

/// Says in the log what is in force.
pub(crate) fn note_groups(groups: &Result<Arc<Groups>, NoGroups>) {
    match groups {
        Ok(groups) => tracing::info!(group = %groups.own.display(), "workers have control groups"),
        Err(why) => tracing::info!(%why, "workers have no control groups"),
    }
}

/// Removes a group. Returns `false` if processes in it have not ended yet.
fn is_removed(path: &Path) -> bool {
    match fs::remove_dir(path) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn system(doing: &'static str) -> impl Fn(io::Error) -> NoGroups {
    move |error| NoGroups::System { doing, why: error.to_string() }
}

/// Makes a group, if there is none with this name.
fn make(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Returns what is known of the group at this folder.
fn look(own: &Path, groups: &str, has_systemd: bool) -> Seen {
    let text = |name: &str| fs::read_to_string(own.join(name)).unwrap_or_default();
    let names = text("cgroup.controllers");
    let names: Vec<&str> = names.split_whitespace().collect();
    let is_writable = ["cgroup.procs", "cgroup.subtree_control"]
        .iter()
        .all(|file| rustix::fs::access(own.join(file), Access::WRITE_OK).is_ok())
        && rustix::fs::access(own, Access::WRITE_OK).is_ok();
    Seen {
        is_root: !own.join("cgroup.type").exists(),
        controllers: Controller::ALL.into_iter().filter(|it| names.contains(&it.name())).collect(),
        of_version_1: place::of_version_1(groups),
        processes: text("cgroup.procs").lines().count(),
        is_occupied: is_populated(&own.join(OWN_LEAF)),
        is_writable,
        ownership: ownership(own, has_systemd),
    }
}

fn ownership(own: &Path, has_systemd: bool) -> Ownership {
    if !has_systemd {
        return Ownership::Unmanaged;
    }
    let is_marked = |name: &str| {
        let mut value = [0_u8; 2];
        let length = rustix::fs::getxattr(own, name, &mut value[..]);
        length == Ok(1) && value.first() == Some(&b'1')
    };
    // systemd gives a delegated group to the unit's user. Newer versions mark it, too.
    let owner = |path: Option<&Path>| Some(fs::metadata(path?).ok()?.uid());
    let user = Some(rustix::process::geteuid().as_raw());
    let has_border = user != Some(0) && owner(Some(own)) == user && owner(own.parent()) != user;
    if is_marked("user.delegate") || is_marked("trusted.delegate") || has_border {
        Ownership::Delegated
    } else {
        Ownership::Managed
    }
}

fn is_populated(group: &Path) -> bool {
    let events = fs::read_to_string(group.join("cgroup.events")).unwrap_or_default();
    events.lines().any(|line| line == "populated 1")
}

/// Ends what the workers of a daemon have left that was killed.
fn end_leftovers(own: &Path, wait_max: Duration) {
    let entries = fs::read_dir(own).into_iter().flatten().flatten();
    let is_left =
        |path: &PathBuf| path.file_name().is_some_and(|name| is_of_worker(&name.to_string_lossy()));
    let left: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_left).collect();
    for group in &left {
        _ = fs::write(group.join("cgroup.kill"), "1");
    }
    let end = Instant::now() + wait_max;
    while !left.iter().all(|group| is_removed(group)) {
        if Instant::now() >= end {
            tracing::warn!(group = %own.display(), "processes of an earlier daemon do not end");
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_of_worker(name: &str) -> bool {
    name.strip_prefix(WORKER_PREFIX).is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Returns the memory of the host, or of the daemon's group if that has less.
fn host_bytes(own: &Path) -> u64 {
    let about = rustix::system::sysinfo();
    let all = (about.totalram as u64).saturating_mul(u64::from(about.mem_unit));
    let limit = fs::read_to_string(own.join("memory.max")).ok();
    limit.and_then(|text| text.trim().parse().ok()).map_or(all, |limit: u64| limit.min(all))
}

/// Makes a folder that looks like a group, with these controllers.
#[cfg(test)]
pub(crate) fn tree(name: &str, controllers: &str) -> PathBuf {
    let own = std::env::temp_dir().join(format!("penstock-group-{name}-{}", std::process::id()));
    fs::create_dir_all(&own).unwrap();
    let process = format!("{}\n", std::process::id());
    for (file, content) in [
        ("cgroup.controllers", controllers),
        ("cgroup.type", "domain\n"),
        ("cgroup.procs", process.as_str()),
        ("cgroup.subtree_control", ""),
        ("memory.max", "max\n"),
    ] {
        fs::write(own.join(file), content).unwrap();
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: impl AsRef<Path>) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_delegated_group_is_divided() {
        let own = tree("divided", "cpuset cpu io memory pids\n");
        let groups = Arc::new(Groups::divide_at(own.clone(), "0::/x\n", false).unwrap());
        let me = std::process::id().to_string();
        assert_eq!(text(own.join("daemon/cgroup.procs")), me);
        assert_eq!(text(own.join("daemon/cpu.weight")), "10000");
        let mut group = groups.worker().unwrap();
        let path = own.join("worker-0");
        group.take(77).unwrap();
        assert_eq!(text(path.join("cgroup.procs")), "77");
        assert_eq!(text(path.join("memory.max")), groups.default_memory().to_string());
        assert_eq!(text(path.join("memory.swap.max")), text(path.join("memory.max")));
        assert!(text(path.join("pids.max")).parse::<u64>().unwrap() > 1000);
        group
            .limit(GroupLimits { memory_bytes: 1 << 30, sessions_of_user: 2, is_held: false })
            .unwrap();
        assert_eq!(text(path.join("memory.max")), (1 << 30).to_string());
        assert_eq!(text(path.join("cpu.weight")), "5000");
        assert_eq!(group.memory_exceeded(), None);
        fs::write(path.join("memory.events"), "low 0\noom 3\noom_kill 1\n").unwrap();
        assert_eq!(group.memory_exceeded(), Some(1 << 30));
        let told = Groups::told(&Ok(groups.clone()));
        assert_eq!(told["limits"], json!(["memory.max", "pids.max", "cpu.weight"]));
        assert_eq!(told["lacks"], json!([]));
        assert!(Groups::memory_told(&Ok(groups.clone())).unwrap().contains("an eighth"));
        drop(group);
        assert_eq!(text(path.join("cgroup.kill")), "1");
        // A folder with files cannot be removed, as a group with processes.
        let now = Instant::now();
        assert_eq!(groups.look_again(now), Some(now + LEAVING_LOOK));
        fs::remove_dir_all(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(groups.look_again(now), None);
        assert!(!path.exists());
        drop(groups);
        assert_eq!(text(own.join("cgroup.procs")), me);
        assert_eq!(text(own.join("cgroup.subtree_control")), "-cpu");
        fs::remove_dir_all(own).unwrap();
    }

    #[test]
    fn a_controller_that_is_missing_is_told() {
        let own = tree("missing", "pids\n");
        let groups = Groups::divide_at(own.clone(), "0::/x\n", false).map(Arc::new);
        let told = Groups::told(&groups);
        assert_eq!(told["limits"], json!(["pids.max"]));
        assert_eq!(told["lacks"].as_array().unwrap().len(), 2);
        let groups = groups.unwrap();
        assert!(Groups::memory_told(&Ok(groups.clone())).is_err());
        let group = groups.worker().unwrap();
        assert!(!own.join("worker-0/memory.max").exists());
        fs::remove_dir_all(own.join("worker-0")).unwrap();
        drop((group, groups));
        fs::remove_dir_all(own).unwrap();
    }

    #[test]
    fn a_group_that_is_not_the_daemons_alone_stays_as_it_is() {
        let own = tree("shared", "memory\n");
        fs::write(own.join("cgroup.procs"), "1\n2\n3\n").unwrap();
        let why = Groups::divide_at(own.clone(), "0::/x\n", false).unwrap_err();
        assert_eq!(why, NoGroups::Shared { others: 2 });
        fs::write(own.join("cgroup.procs"), "1\n").unwrap();
        fs::create_dir(own.join("daemon")).unwrap();
        fs::write(own.join("daemon/cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        let why = Groups::divide_at(own.clone(), "0::/x\n", false).unwrap_err();
        assert_eq!(why, NoGroups::Occupied);
        // With systemd, somebody must have given it away. Temporary files belong to their user.
        let seen = look(&own, "0::/x\n", true);
        let is_root = rustix::process::geteuid().is_root();
        assert!(!is_root || seen.ownership == Ownership::Managed);
        assert_eq!(text(own.join("cgroup.subtree_control")), "");
        let told = Groups::told(&Err(why));
        assert!(told["lacks"][0]["what"].as_str().unwrap().contains("another daemon"), "{told}");
        fs::remove_dir_all(own).unwrap();
    }

    #[test]
    fn what_a_killed_daemon_has_left_ends() {
        let own = tree("left", "memory\n");
        for name in ["worker-3", "worker-4"] {
            fs::create_dir(own.join(name)).unwrap();
        }
        fs::create_dir(own.join("worker-x")).unwrap();
        let thread = std::thread::spawn({
            let own = own.clone();
            move || end_leftovers(&own, penstock_trial::patience())
        });
        for name in ["worker-3", "worker-4"] {
            let kill = own.join(name).join("cgroup.kill");
            let is_killed = || fs::read_to_string(&kill).ok().as_deref() == Some("1");
            penstock_trial::wait_for(name, is_killed);
            fs::remove_file(kill).unwrap();
        }
        thread.join().unwrap();
        assert!(!own.join("worker-3").exists() && own.join("worker-x").exists());
        fs::remove_dir_all(own).unwrap();
    }

    #[test]
    fn this_system_is_judged() {
        // It must not change anything here, so it only looks.
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        if let Ok(own) = locate(&groups, &mounts) {
            _ = judge(&look(&own, &groups, true));
        }
    }
}
