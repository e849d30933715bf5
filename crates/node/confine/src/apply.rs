//! Does what the descriptions say, in two steps: before the drivers, and after them.

use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus,
    PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    RulesetError, Scope,
};
use rustix::process::{DumpableBehavior, Gid, Resource, Rlimit, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};

use crate::calls::{self, Context};
use crate::drivers;
use crate::files::{self, Access, Plan};
use crate::filter::Filter;
use crate::level::Level;
use crate::limits;
use crate::report::{Lack, Network, Report, Steps};
use crate::threads;

/// The interface of Landlock that the rules are written for. Kernels with an older one enforce
/// what they know.
const ABI_KNOWN: ABI = ABI::V7;

/// The oldest interface that also keeps a worker from emptying files (Linux 6.2).
const ABI_OF_FILES: ABI = ABI::V3;

/// The oldest interface with borders for signals and abstract sockets (Linux 6.12).
const ABI_OF_SCOPES: ABI = ABI::V6;

/// What a worker is told to do about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub level: Level,
    pub network: Network,
    /// The worker's own folder.
    pub folder: Option<PathBuf>,
    /// The file of the pool's key, which must be out of reach.
    pub key: Option<PathBuf>,
    /// The home of the daemon's user, which must be out of reach.
    pub home: Option<PathBuf>,
    /// The folder with the files of all sessions, which must be out of reach, too.
    pub sessions: Option<PathBuf>,
    /// Most tasks of the worker's user.
    pub tasks_max: u64,
    /// The user that the worker becomes, if the daemon has users for its workers.
    pub user: Option<WorkerUser>,
}

/// The user of one worker. Its main group has the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerUser {
    pub number: u32,
    /// Groups that own the nodes of devices.
    pub groups: Vec<u32>,
}

/// A worker after the first step.
#[derive(Debug)]
pub struct Begun {
    level: Level,
    network: Network,
    steps: Steps,
    lacks: Vec<Lack>,
    notes: Vec<Lack>,
}

/// Keeps others of the same user from inspecting this process, and the system from writing its
/// memory to the disk: a daemon has the pool's key, and a worker the data of its client.
///
/// # Errors
/// Fails if the system refuses.
pub fn harden() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    lower(Resource::Core, 0)
}

impl Order {
    /// Makes this process one of the worker's user, for good. Call this before the first thread and
    /// before anything of a client.
    ///
    /// # Errors
    /// Fails if the process has threads, or if the system refuses. Such a process must end.
    pub fn change_user(&self) -> io::Result<()> {
        let Some(WorkerUser { number, groups }) = &self.user else { return Ok(()) };
        // The calls below change one thread.
        if threads::of_this_process()?.len() != 1 {
            return Err(io::Error::other("a thread had started before the user was changed"));
        }
        rustix::thread::set_no_new_privs(true)?;
        let (user, group) = (Uid::from_raw(*number), Gid::from_raw(*number));
        let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_res_gid(group, group, group)?;
        rustix::thread::set_thread_res_uid(user, user, user)?;
        no_capabilities()?;
        // The daemon must be able to end all processes of this user, at each level.
        lower(Resource::Nproc, self.tasks_max)?;
        // The change has hidden the process from itself: what is in /proc/self belonged to root.
        Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?)
    }

    /// Restricts what must be restricted before the first thread starts: rights, limits and files.
    /// A worker opens before it what it needs from elsewhere.
    #[must_use]
    pub fn begin(&self) -> Begun {
        let mut begun = Begun {
            level: self.level,
            network: self.network,
            steps: Steps::default(),
            lacks: Vec::new(),
            notes: Vec::new(),
        };
        if self.level >= Level::Basic {
            begun.steps.basic = begun.note("the rights of the process", self.basic());
        }
        if self.level >= Level::Files {
            let started = threads::of_this_process().map(|threads| threads.len());
            match started {
                Ok(1) => self.restrict_files(&mut begun),
                _ => begun.lack(
                    "files are in reach, because a thread had started before they were restricted",
                    "report this defect of Penstock",
                ),
            }
        }
        begun
    }

    fn basic(&self) -> io::Result<()> {
        rustix::thread::set_no_new_privs(true)?;
        no_capabilities()?;
        for limit in limits::of_worker(self.tasks_max) {
            lower(limit.resource, limit.value)?;
        }
        harden()
    }

    fn restrict_files(&self, begun: &mut Begun) {
        let around = drivers::surroundings(self);
        let plan = files::plan(&around);
        for folder in &plan.refused {
            let what = format!(
                "workers cannot use the folder `{}`, which a variable names, because the home, \
                 the pool's key or the files of other sessions lie below it",
                folder.display()
            );
            begun.notes.push(Lack::new(what, "name a folder of its own"));
        }
        for folder in &plan.exposing {
            begun.lack(
                format!("kernels can read the pool's key, because it lies in {}", folder.display()),
                "move it to another folder, such as /etc/penstock",
            );
        }
        for folder in &plan.sharing {
            begun.lack(
                format!("kernels can read files of other sessions in {}", folder.display()),
                "let PENSTOCK_CACHE name another folder, such as /var/cache/penstock",
            );
        }
        let has_borders = self.level >= Level::Full;
        match restrict(&plan, &ports(self.network, around.uses_ucx), has_borders) {
            Ok(status) => {
                begun.judge(&status, plan.exposing.is_empty() && plan.sharing.is_empty());
            }
            Err(error) => begun
                .lack(format!("files are in reach: Landlock: {error}"), "look at the kernel's log"),
        }
    }
}

/// Restricts which descriptors this process can send, as far as it is confined at all: few of them,
/// or none unless it `may_send`. Call this before anything of a client. UCX and MPS need the calls
/// that send them.
///
/// # Errors
/// Fails if the system refuses. Such a process must end.
pub fn keep_descriptors(report: &Report, may_send: bool) -> io::Result<()> {
    if report.level >= Level::Basic {
        // That of the daemon, which its workers inherit.
        let of_daemon = rustix::process::getrlimit(Resource::Nofile).current;
        let most = limits::descriptors_of_worker(of_daemon.unwrap_or(u64::MAX));
        lower(Resource::Nofile, most)?;
    }
    let needs_calls = may_send || report.network == Network::Open || report.has_services;
    if report.level < Level::Calls || needs_calls {
        return Ok(());
    }
    let filter = Filter::of(&calls::sends()).and_then(|filter| filter.apply_more());
    filter.map_err(io::Error::other)
}

impl Begun {
    /// Restricts the system calls of all threads, and looks at each thread. `runs_programs` says
    /// whether a driver runs programs.
    #[must_use]
    pub fn finish(mut self, runs_programs: bool) -> Report {
        if self.level == Level::Off {
            return Report::off();
        }
        let has_services = drivers::has_mps();
        if self.level >= Level::Calls {
            if has_services {
                let what =
                    "NVIDIA's MPS runs here, so kernels may connect to services of this host";
                self.notes.push(Lack::new(what, "serve CPU devices by another daemon"));
            }
            let context = Context {
                process: std::process::id(),
                has_network: self.network == Network::Open,
                has_services,
                runs_programs,
            };
            let applied = Filter::of(&calls::forbidden(&context)).and_then(|filter| filter.apply());
            self.steps.calls = self.note("system calls", applied);
        }
        let threads = threads::of_this_process().unwrap_or_default();
        let all =
            |has: fn(&threads::Thread) -> bool| !threads.is_empty() && threads.iter().all(has);
        if self.steps.basic && !all(|thread| thread.no_new_privs) {
            self.steps.basic = false;
            self.lack("a thread may gain rights", "report this defect of Penstock");
        }
        if self.steps.calls && !all(|thread| thread.has_filter) {
            self.steps.calls = false;
            self.lack("a thread has no filter of calls", "report this defect of Penstock");
        }
        if self.level < Level::Full && self.lacks.is_empty() {
            let what = format!("the daemon was told `--confine {}`", self.level);
            self.lack(what, "start it without this option");
        }
        Report {
            level: self.steps.level(),
            wanted: self.level,
            network: self.network,
            runs_programs,
            has_services,
            threads: threads.len(),
            lacks: self.lacks,
            notes: self.notes,
        }
    }

    fn lack(&mut self, what: impl Into<String>, remedy: &str) {
        self.lacks.push(Lack::new(what, remedy));
    }

    fn note<E: std::fmt::Display>(&mut self, what: &str, done: Result<(), E>) -> bool {
        if let Err(error) = &done {
            let what = format!("{what} cannot be restricted: {error}");
            self.lack(what, "use a newer kernel, or a container that permits it");
        }
        done.is_ok()
    }

    /// Notes what Landlock enforces.
    fn judge(&mut self, status: &RestrictionStatus, hides_secrets: bool) {
        let abi = match status.landlock {
            LandlockStatus::NotImplemented => {
                return self.lack(
                    "files are in reach, because this kernel has no Landlock",
                    "use Linux 6.2 or newer, built with CONFIG_SECURITY_LANDLOCK",
                );
            }
            LandlockStatus::NotEnabled => {
                return self.lack(
                    "files are in reach, because this kernel was started without Landlock",
                    "add landlock to the option lsm= of the kernel's command line",
                );
            }
            LandlockStatus::Available { effective_abi, .. } => effective_abi,
        };
        if abi < ABI_OF_FILES {
            return self.lack(
                format!(
                    "the Landlock of this kernel (version {}) lets files be emptied",
                    abi as i32
                ),
                "use Linux 6.2 or newer",
            );
        }
        self.steps.files = hides_secrets;
        self.steps.scopes = self.level >= Level::Full && abi >= ABI_OF_SCOPES;
        if self.level >= Level::Full && !self.steps.scopes {
            self.lack(
                format!(
                    "the Landlock of this kernel (version {}) knows no borders for abstract \
                     sockets",
                    abi as i32
                ),
                "use Linux 6.12 or newer",
            );
        }
    }
}

fn no_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Lowers a limit of this process for good, and leaves a lower one as it is.
fn lower(resource: Resource, value: u64) -> io::Result<()> {
    let now = rustix::process::getrlimit(resource);
    let least = |limit: Option<u64>| Some(limit.map_or(value, |limit| limit.min(value)));
    let limit = Rlimit { current: least(now.current), maximum: least(now.maximum) };
    Ok(rustix::process::setrlimit(resource, limit)?)
}

/// Returns what a worker may not do with ports of TCP. UCX listens itself.
fn ports(network: Network, uses_ucx: bool) -> Vec<AccessNet> {
    match network {
        Network::Closed => vec![AccessNet::BindTcp, AccessNet::ConnectTcp],
        Network::Open if uses_ucx => Vec::new(),
        Network::Open => vec![AccessNet::BindTcp],
    }
}

/// Restricts the calling thread, and all threads that it starts from now on. With borders, signals
/// and abstract sockets end at the border of the process.
fn restrict(
    plan: &Plan,
    ports: &[AccessNet],
    has_borders: bool,
) -> Result<RestrictionStatus, RulesetError> {
    let everything = AccessFs::from_all(ABI_KNOWN);
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(everything)?;
    if has_borders {
        ruleset = ruleset.scope(Scope::from_all(ABI_KNOWN))?;
    }
    for port in ports {
        ruleset = ruleset.handle_access(*port)?;
    }
    let mut ruleset = ruleset.create()?;
    for rule in &plan.rules {
        // Otherwise it does not exist here, or this user cannot reach it anyway.
        let Ok(file) = PathFd::new(&rule.path) else { continue };
        let mut access = access_of(rule.access);
        if !rule.path.is_dir() {
            access &= AccessFs::from_file(ABI_KNOWN);
        }
        ruleset = ruleset.add_rule(PathBeneath::new(file, access))?;
    }
    ruleset.restrict_self()
}

fn access_of(access: Access) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    match access {
        Access::Read => read,
        Access::Run => read | AccessFs::Execute,
        Access::Device => read | AccessFs::WriteFile | AccessFs::IoctlDev,
        Access::Write => read | AccessFs::WriteFile | AccessFs::Truncate,
        Access::Own => {
            let nodes = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::Execute;
            AccessFs::from_all(ABI_KNOWN) & !nodes
        }
    }
}
