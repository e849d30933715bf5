//! What users may have: the sessions that the daemon lets in, the loans of its workers, and the
//! file of limits.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use penstock_link::{Accepted, Enrolled, Source};
use penstock_quota::{
    FILE_BYTES_MAX, FileError, Ledger, Limit, Limits, Loan, NOT_ENFORCED, Refusal, Resource, Row,
    Scope, Terms, User,
};
use penstock_wire::limits::CLIENTS_IN_LINE_MAX;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::groups::{Groups, NoGroups};
use crate::message::{Control, ToWorker};

/// Interval at which the file of limits is looked at. An administrator who has changed it waits
/// that long at most, and a look costs one system call.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time that a client beyond its user's limit of sessions waits for a session to end. A script that
/// starts one program after the other must not be refused because the last worker is still ending:
/// that takes at most half a second, see `worker.rs` and `workers.rs`.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// Most clients of one user that wait in line although the user is beyond its limit of sessions.
/// The line has room for 32 such users, so that one user alone locks nobody out.
const WAITING_BEYOND_LIMIT_MAX: usize = CLIENTS_IN_LINE_MAX / 32;

/// Why a file of limits cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    #[error("cannot read the limits from {}: {source}; look at --limits", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} has more than {FILE_BYTES_MAX} bytes; is this the file of limits?", path.display())]
    TooLong { path: PathBuf },
    #[error(transparent)]
    Wrong(#[from] FileError),
}

/// Returns the user that a client belongs to. A client with a one-time key belongs to the user
/// whose bridge has got the key. A quota in the list of clients makes it one of the holders of this
/// quota, wherever it connects from. Otherwise its host counts: with the pool's key, a client can
/// enrol as many keys as it likes.
pub(crate) fn user_of(client: &Accepted) -> User {
    let quota = client.client.as_ref().and_then(|known| match &known.enrolled {
        Enrolled::Known { quota, .. } => quota.clone(),
        _ => None,
    });
    if let Some(user) = client.user() {
        return User::Number(user);
    }
    quota.map_or_else(|| user_at(client.source()), User::Key)
}

fn user_at(source: Source) -> User {
    match source {
        Source::User(number) => User::Number(number),
        Source::Network(address) => User::of_address(address),
        Source::Machine(number) => User::Machine(number),
        Source::Guest(path) => User::Guest(path.display().to_string()),
        _ => User::Unknown,
    }
}

/// A client in line.
pub(crate) struct Waiting {
    pub(crate) client: Accepted,
    pub(crate) user: User,
    /// When it is refused, if it is beyond a limit of its user then.
    refuse_at: Option<Instant>,
}

impl Waiting {
    pub(crate) fn new(client: Accepted, user: User) -> Self {
        Self { client, user, refuse_at: None }
    }
}

/// The limits of a daemon, and what its workers hold.
pub(crate) struct Quota {
    pub(crate) ledger: Ledger,
    /// What each worker was told last.
    told: FxHashMap<u32, Terms>,
    /// Version of the ledger that all workers know.
    known: u64,
}

impl Quota {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { ledger: Ledger::new(limits), told: FxHashMap::default(), known: 0 }
    }

    /// Begins a session. Returns what it has from the start.
    pub(crate) fn enter(
        &mut self,
        worker: u32,
        user: User,
    ) -> ([Loan; Resource::ALL.len()], Terms) {
        self.ledger.enter(worker, user);
        let loans = Resource::ALL.map(|resource| self.ledger.first_loan(worker, resource));
        let terms = self.ledger.terms(worker);
        self.told.insert(worker, terms.clone());
        (loans, terms)
    }

    pub(crate) fn leave(&mut self, worker: u32) {
        self.ledger.leave(worker);
        self.told.remove(&worker);
    }

    /// Answers a worker that needs more.
    pub(crate) fn borrow(
        &mut self,
        worker: u32,
        question: u64,
        resource: Resource,
        least: u64,
    ) -> ToWorker {
        let answer = self.ledger.borrow(worker, resource, least);
        ToWorker::Lent { question, resource, answer: answer.map_err(|why| why.to_string()) }
    }

    /// Returns the workers whose terms have changed, with the new terms.
    pub(crate) fn changes(&mut self) -> Vec<(u32, Terms)> {
        let version = self.ledger.version();
        if std::mem::replace(&mut self.known, version) == version {
            return Vec::new();
        }
        let now: Vec<_> =
            self.ledger.sessions().map(|worker| (worker, self.ledger.terms(worker))).collect();
        let is_new = |(worker, terms): &(u32, Terms)| self.told.get(worker) != Some(terms);
        let changed: Vec<_> = now.into_iter().filter(is_new).collect();
        self.told.extend(changed.iter().cloned());
        changed
    }

    /// Returns why a client of this user may not even join the line: the user is beyond its limit,
    /// and as many of its clients wait for that as may wait.
    pub(crate) fn refuses_in_line(
        &self,
        line: &crate::line::Line<Waiting>,
        user: &User,
    ) -> Option<Refusal> {
        self.refuses(user, line.iter().filter(|waiting| waiting.user == *user).count())
    }

    fn refuses(&self, user: &User, waiting: usize) -> Option<Refusal> {
        let refusal = self.ledger.may_enter(user).err();
        refusal.filter(|it| it.scope == Scope::User && waiting >= WAITING_BEYOND_LIMIT_MAX)
    }

    /// Decides about a client that waits: returns the refusal if the user is beyond its limit, and
    /// the client has waited long enough for that. Keeps in `refuse_at` when that will be.
    pub(crate) fn overdue(
        &self,
        user: &User,
        refuse_at: &mut Option<Instant>,
        now: Instant,
    ) -> Option<Refusal> {
        let refusal = self.ledger.may_enter(user).err();
        let Some(refusal) = refusal.filter(|refusal| refusal.scope == Scope::User) else {
            *refuse_at = None;
            return None;
        };
        let at = *refuse_at.get_or_insert(now + WAIT_MAX);
        (now >= at).then_some(refusal)
    }

    /// Removes and returns the clients in line that are refused now.
    pub(crate) fn refuse_overdue(
        &self,
        line: &mut crate::line::Line<Waiting>,
        now: Instant,
    ) -> Vec<(Accepted, Refusal)> {
        let refused: Vec<Option<Refusal>> =
            line.iter_mut().map(|it| self.overdue(&it.user, &mut it.refuse_at, now)).collect();
        let refused = refused.into_iter().flatten();
        let take = |refusal: Refusal| {
            let is_it =
                |it: &Waiting| it.user == refusal.user && it.refuse_at.is_some_and(|at| now >= at);
            line.next_that(is_it).map(|waiting| (waiting.client, refusal))
        };
        refused.filter_map(take).collect()
    }

    /// Returns every limit with its use, who set it, and how it is enforced, as JSON.
    pub(crate) fn status(&self, groups: &Result<Arc<Groups>, NoGroups>) -> Value {
        let row = |row: Row| {
            let scope = match row.scope {
                Scope::Session => "session",
                Scope::User => "user",
                Scope::Total => "total",
            };
            json!({
                "scope": scope,
                "user": row.user.map(|user| user.to_string()),
                "limit": row.limit.name(),
                "unit": format!("{:?}", row.limit.unit()).to_lowercase(),
                "held": row.held,
                "max": row.rule.as_ref().and_then(|rule| rule.max),
                "set_by": row.rule.map(|rule| rule.origin.to_string()),
            })
        };
        let enforced = Limit::ALL.map(|limit| match (limit, Groups::memory_told(groups)) {
            (Limit::WorkerMemory, Err(why)) => way(limit.name(), false, &why),
            (Limit::WorkerMemory, Ok(default)) => {
                way(limit.name(), true, &format!("{}. {default}", limit.enforcement()))
            }
            _ => way(limit.name(), true, limit.enforcement()),
        });
        let not = NOT_ENFORCED.map(|limit| way(limit.name, false, limit.why));
        json!({
            "rows": self.ledger.report().into_iter().map(row).collect::<Vec<_>>(),
            "enforcement": enforced.into_iter().chain(not).collect::<Vec<_>>(),
        })
    }
}

/// Returns how a limit is enforced, or that it is not.
fn way(limit: &str, enforced: bool, how: &str) -> Value {
    json!({ "limit": limit, "enforced": enforced, "how": how })
}

/// What identifies one version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    changed: Option<SystemTime>,
}

/// The file of limits, which may change while the daemon runs.
pub(crate) struct LimitsFile {
    path: PathBuf,
    /// The version whose limits are applied, or that cannot be used.
    read: Option<Stamp>,
    /// The version at the last look.
    seen: Option<Stamp>,
    next: Instant,
    /// Why the limits of the file's last version are not used.
    problem: Option<String>,
}

impl LimitsFile {
    /// Reads the file for the first time.
    pub(crate) fn open(path: PathBuf, now: Instant) -> Result<(Self, Limits), LimitsError> {
        // Refusals name the file to people who do not know where the daemon was started.
        let path = std::path::absolute(&path).unwrap_or(path);
        let seen = stamp(&path);
        let limits = read(&path)?;
        let next = now + LOOK_EVERY;
        Ok((Self { path, read: seen, seen, next, problem: None }, limits))
    }

    pub(crate) fn next_look(&self) -> Instant {
        self.next
    }

    pub(crate) fn status(&self) -> Value {
        json!({ "path": self.path.display().to_string(), "problem": self.problem })
    }

    /// Looks at the file if it is time. Returns new limits if the file has changed and was the same
    /// at two looks: the beginning of a file that is just being written is a file of fewer limits.
    ///
    /// # Errors
    /// Fails once for each version of the file that cannot be used.
    pub(crate) fn look(&mut self, now: Instant) -> Result<Option<Limits>, LimitsError> {
        if now < self.next {
            return Ok(None);
        }
        self.next = now + LOOK_EVERY;
        let stamp = stamp(&self.path);
        let was_seen = std::mem::replace(&mut self.seen, stamp) == stamp;
        if stamp == self.read || !was_seen {
            return Ok(None);
        }
        self.read = stamp;
        match read(&self.path) {
            Ok(limits) => {
                self.problem = None;
                Ok(Some(limits))
            }
            Err(error) => {
                self.problem = Some(error.to_string());
                Err(error)
            }
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let about = fs::metadata(path).ok()?;
    Some(Stamp { inode: about.ino(), size: about.len(), changed: about.modified().ok() })
}

fn read(path: &Path) -> Result<Limits, LimitsError> {
    let unreadable = |source| LimitsError::Unreadable { path: path.to_owned(), source };
    let mut text = String::new();
    // One byte more than allowed, to detect a longer file.
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(LimitsError::TooLong { path: path.to_owned() });
    }
    Ok(Limits::parse(&text, path)?)
}

/// A worker and its new terms.
pub(crate) type NewTerms = (Arc<Control>, Terms);

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(text: &str) -> Limits {
        Limits::parse(text, Path::new("/l.toml")).unwrap()
    }

    #[test]
    fn workers_are_told_what_changes_for_them() {
        let mut quota = Quota::new(limits("[user.1]\nbytes_in_flight = \"64M\"\n"));
        let part = |terms: &Terms| terms.bytes_in_flight.as_ref().map(|cap| cap.max >> 20);
        let (_, terms) = quota.enter(10, User::Number(1));
        assert_eq!(part(&terms), Some(64));
        assert_eq!(quota.changes(), []);
        // Another user's session changes nothing.
        quota.enter(11, User::Number(2));
        assert_eq!(quota.changes(), []);
        quota.enter(12, User::Number(1));
        let changes = quota.changes();
        assert_eq!(
            changes.iter().map(|(id, it)| (*id, part(it))).collect::<Vec<_>>(),
            [(10, Some(32))]
        );
        quota.leave(12);
        assert_eq!(quota.changes().len(), 1);
        quota.ledger.set_limits(Limits::default());
        assert_eq!(quota.changes().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [10]);
    }

    #[test]
    fn a_user_beyond_its_limit_leaves_room_in_the_line() {
        let mut quota = Quota::new(limits("[user.1]\nsessions = 1\n"));
        quota.enter(10, User::Number(1));
        let waiting = |user: &User, count| quota.refuses(user, count).is_some();
        let (full, other) = (User::Number(1), User::Number(2));
        assert!(!waiting(&full, WAITING_BEYOND_LIMIT_MAX - 1));
        assert!(waiting(&full, WAITING_BEYOND_LIMIT_MAX));
        assert!(!waiting(&other, CLIENTS_IN_LINE_MAX));
        quota.leave(10);
        assert!(quota.refuses(&full, CLIENTS_IN_LINE_MAX).is_none());
    }

    #[test]
    fn a_file_is_read_again_when_it_has_changed() {
        let folder = std::env::temp_dir().join(format!("penstock-limits-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("limits.toml");
        fs::write(&path, "[total]\nsessions = 7\n").unwrap();
        let start = Instant::now();
        let (mut file, limits) = LimitsFile::open(path.clone(), start).unwrap();
        let sessions = |limits: &Limits| limits.of_all(Limit::Sessions).unwrap().max;
        assert_eq!(sessions(&limits), Some(7));
        assert!(file.look(file.next_look()).unwrap().is_none());
        // Of another length, because the clock of a file system may be coarse.
        fs::write(&path, "[total]\nsessions = 12\n").unwrap();
        assert!(file.look(start).unwrap().is_none(), "it is not time yet");
        assert!(file.look(file.next_look()).unwrap().is_none(), "it may be written just now");
        let limits = file.look(file.next_look()).unwrap().unwrap();
        assert_eq!(sessions(&limits), Some(12));
        fs::write(&path, "").unwrap();
        assert!(file.look(file.next_look()).unwrap().is_none());
        fs::write(&path, "[total]\nsessions = 12\n").unwrap();
        for _ in 0..2 {
            let limits = file.look(file.next_look()).unwrap();
            let is_same = limits.is_none_or(|limits| sessions(&limits) == Some(12));
            assert!(is_same, "a file that is being written is no file without limits");
        }
        fs::write(&path, "[total]\nsessions = many\n").unwrap();
        assert!(file.look(file.next_look()).unwrap().is_none());
        let error = file.look(file.next_look()).unwrap_err().to_string();
        assert!(error.contains("limits.toml, line 2"), "{error}");
        assert_eq!(file.status()["problem"].as_str(), Some(error.as_str()));
        assert!(file.look(file.next_look()).unwrap().is_none(), "told once");
        fs::remove_file(&path).unwrap();
        assert!(file.look(file.next_look()).unwrap().is_none());
        let error = file.look(file.next_look()).unwrap_err().to_string();
        assert!(error.contains("cannot read the limits"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn connections_have_users() {
        let network = Source::of_address([10, 0, 0, 7].into());
        assert_eq!(user_at(network).to_string(), "host:10.0.0.7");
        assert_eq!(user_at(Source::User(5)), User::Number(5));
        assert_eq!(user_at(Source::Guest("/r/v".into())).to_string(), "guest:/r/v");
        assert_eq!(user_at(Source::Unknown), User::Unknown);
    }
}
