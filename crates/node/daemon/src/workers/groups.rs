//! What the control groups and the folders of workers allow: it depends on who their clients are.

use std::time::Instant;

use penstock_quota::{Limit, Limits, User};
use rustc_hash::FxHashMap;

use super::Workers;
use crate::folders::{DiskLimit, Full};
use crate::groups::{GroupLimits, Groups};
use crate::message::ToWorker;

impl Workers {
    /// Says in the log that a limit of the file has no effect here, if that is so.
    pub(crate) fn note_unenforced(&self) {
        if self.quota.ledger.limits().sets(Limit::WorkerMemory)
            && let Err(why) = Groups::memory_told(&self.groups)
        {
            tracing::warn!(why, "worker_memory of the file of limits is NOT enforced");
        }
    }

    /// Sets what the files of each session's user may take anew.
    pub(crate) fn limit_folders(&mut self) {
        let ledger = &self.quota.ledger;
        for (id, worker) in &mut self.table {
            if let (Some(user), Some(folder)) = (ledger.user(*id), &mut worker.folder) {
                folder.limit_disk(DiskLimit::of(ledger.limits(), user));
            }
        }
    }

    /// Ends sessions whose files take too much. A worker tells its client which limit of its user
    /// was reached. One that does not end until the next look is killed.
    pub(crate) fn end_full(&mut self, full: &[Full]) {
        for Full { worker: id, limit } in full {
            let Some(worker) = self.table.get_mut(id) else { continue };
            let is_new = worker.over_since.is_none();
            let told = limit.clone().filter(|_| is_new).is_some_and(|why| {
                worker.over_since = Some(Instant::now());
                worker.control.send(&ToWorker::Over(why), None).is_ok()
            });
            if !told {
                // If it has ended meanwhile, it is reaped as well.
                _ = worker.child.kill();
            }
        }
    }

    /// Sets the limits of all groups anew. Sessions have come or gone, or the limits have changed.
    pub(crate) fn limit_groups(&mut self) {
        let Ok(groups) = &self.groups else { return };
        let ledger = &self.quota.ledger;
        let mut sessions: FxHashMap<&User, u64> = FxHashMap::default();
        for user in ledger.sessions().filter_map(|id| ledger.user(id)) {
            *sessions.entry(user).or_default() += 1;
        }
        for (id, worker) in &mut self.table {
            let Some(user) = ledger.user(*id) else { continue };
            let limits = GroupLimits {
                memory_bytes: memory_of(ledger.limits(), user).unwrap_or(groups.default_memory()),
                sessions_of_user: sessions.get(user).copied().unwrap_or(1),
                is_held: self.sharing.is_low(*id),
            };
            let done = worker.group.as_mut().map_or(Ok(()), |group| group.limit(limits));
            if let Err(error) = done {
                // What is not enforced must not look as if it were.
                tracing::warn!(worker = id, %error, "a session ends: its group takes no limits");
                // If it has ended meanwhile, it is reaped as well.
                _ = worker.child.kill();
            }
        }
    }
}

/// Returns the memory that the file of limits gives a worker of this user, if it says so.
fn memory_of(limits: &Limits, user: &User) -> Option<u64> {
    let rule = limits.of_user(user, Limit::WorkerMemory)?;
    Some(rule.max.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::sync::Arc;
    use std::time::Instant;

    use penstock_confine::{Level, Network, Order};
    use rustc_hash::FxHashSet;

    use super::super::{State, Worker};
    use super::*;
    use crate::asks::Asks;
    use crate::message::Control;

    /// A process in a group, as a worker that has no client yet.
    fn worker(groups: &Arc<Groups>) -> Worker {
        let mut sleeps = Command::new("sleep");
        let sleeps = sleeps.arg("1000").stdin(Stdio::null()).process_group(0).spawn().unwrap();
        Worker {
            child: sleeps,
            control: Arc::new(Control::pair().unwrap().0),
            exit: None,
            state: State::Starting(Instant::now()),
            tickets: 0,
            ended: None,
            usage: None,
            part: None,
            folder: None,
            group: Some(groups.worker().unwrap()),
            order: Order {
                level: Level::Off,
                network: Network::Closed,
                folder: None,
                key: None,
                home: None,
                sessions: None,
                tasks_max: 0,
                user: None,
            },
            foremen: 0,
            level: Level::Off,
            nodes: FxHashSet::default(),
            asks: Asks::new(Instant::now()),
            client: crate::workers::Presence::default(),
            over_since: None,
            stray: penstock_quota::Stray::default(),
        }
    }

    #[test]
    fn groups_have_the_limits_of_their_users() {
        let own = crate::groups::tree("users", "memory cpu\n");
        let groups = Arc::new(Groups::divide_at(own.clone(), "0::/x\n", false).unwrap());
        let limits = |text| Limits::parse(text, Path::new("/l.toml")).unwrap();
        let first = limits("[user.7]\nworker_memory = \"1G\"\n");
        let mut workers = Workers::new(Level::Off, first, Ok(groups.clone()));
        for (id, user) in [(1, 7), (2, 7), (3, 8)] {
            workers.table.insert(id, worker(&groups));
            workers.quota.enter(id, User::Number(user));
        }
        let text = |file: &str| std::fs::read_to_string(own.join(file)).unwrap();
        workers.limit_groups();
        let gib = (1_u64 << 30).to_string();
        assert_eq!([text("worker-0/memory.max"), text("worker-1/memory.max")], [&*gib, &*gib]);
        assert_eq!(text("worker-2/memory.max"), groups.default_memory().to_string());
        assert_eq!([text("worker-1/cpu.weight"), text("worker-2/cpu.weight")], ["5000", "10000"]);
        // The file changes, and a session of the user ends.
        workers.quota.leave(1);
        let later = "[user.default]\nworker_memory = \"unlimited\"\n";
        workers.quota.ledger.set_limits(limits(later));
        workers.limit_groups();
        assert_eq!(text("worker-1/memory.max"), u64::MAX.to_string());
        assert_eq!(text("worker-1/cpu.weight"), "10000");
        workers.end_all();
        std::fs::remove_dir_all(&own).unwrap();
    }
}
