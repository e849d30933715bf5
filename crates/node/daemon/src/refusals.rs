//! The connections that a daemon has refused, by kind of reason.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_link::LinkError;
use penstock_wire::hello::Verdict;

/// Kinds of reasons for which a daemon refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The key is missing, wrong, unknown or revoked.
    Key,
    /// The daemon does not serve this Unix user.
    User,
    /// A limit of the administrator is reached.
    Limit,
    /// An administrator drains the daemon.
    Drained,
    /// All sessions are taken, and so are the places in line.
    Full,
    /// No worker can be started, or workers are less confined than required.
    Worker,
    /// The peer speaks another version of the protocol or another protocol, or one side encrypts
    /// and the other does not.
    Protocol,
    /// The peer hung up, or did not finish its hello in time.
    Gone,
    Other,
}

impl Reason {
    pub(crate) const ALL: [(Self, &str); 9] = [
        (Self::Key, "key"),
        (Self::User, "user"),
        (Self::Limit, "limit"),
        (Self::Drained, "drained"),
        (Self::Full, "full"),
        (Self::Worker, "worker"),
        (Self::Protocol, "protocol"),
        (Self::Gone, "gone"),
        (Self::Other, "other"),
    ];

    pub(crate) fn of(error: &LinkError) -> Self {
        match error {
            LinkError::Turned { verdict, .. } => Self::of_verdict(*verdict),
            LinkError::OverLimit { .. } => Self::Limit,
            LinkError::NoKey { .. } | LinkError::WrongKey { .. } => Self::Key,
            // Whoever has no key can cause these.
            LinkError::Handshake { .. }
            | LinkError::Record(_)
            | LinkError::WrongVersion { .. }
            | LinkError::NotPenstock { .. }
            | LinkError::Frame(_) => Self::Protocol,
            LinkError::Closed | LinkError::Vanished | LinkError::HelloTimeout { .. } => Self::Gone,
            _ => Self::Other,
        }
    }

    fn of_verdict(verdict: Verdict) -> Self {
        match verdict {
            Verdict::WrongKey
            | Verdict::NoKey
            | Verdict::NotEnrolled
            | Verdict::Revoked
            | Verdict::NotInvited => Self::Key,
            Verdict::WrongUser => Self::User,
            Verdict::OverLimit | Verdict::Restricted => Self::Limit,
            Verdict::Full => Self::Full,
            Verdict::NoWorker | Verdict::Unconfined => Self::Worker,
            Verdict::WrongVersion
            | Verdict::NotUnderstood
            | Verdict::NeedsEncryption
            | Verdict::PlainOnly => Self::Protocol,
            // A session that has ended leaves such tickets behind.
            Verdict::WrongTicket | Verdict::Welcome | Verdict::InLine => Self::Other,
        }
    }
}

/// The connections that a daemon has refused.
#[derive(Debug, Default)]
pub(crate) struct Refusals([AtomicU64; Reason::ALL.len()]);

impl Refusals {
    pub(crate) fn count(&self, reason: Reason) {
        let counts = self.0.iter().zip(Reason::ALL);
        for (count, _) in counts.filter(|(_, (of, _))| *of == reason) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of refusals for each kind of reason.
    pub(crate) fn told(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.0.iter().zip(Reason::ALL);
        counts.map(|(count, (_, name))| (name, count.load(Ordering::Relaxed))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_kind() {
        let peer = || "p".to_owned();
        let turned = |verdict| LinkError::Turned { peer: peer(), verdict };
        for (error, reason) in [
            (turned(Verdict::Revoked), Reason::Key),
            (turned(Verdict::WrongUser), Reason::User),
            (turned(Verdict::OverLimit), Reason::Limit),
            (turned(Verdict::Full), Reason::Full),
            (turned(Verdict::Unconfined), Reason::Worker),
            (LinkError::NotPenstock { peer: peer() }, Reason::Protocol),
            (turned(Verdict::NeedsEncryption), Reason::Protocol),
            (LinkError::WrongKey { peer: peer() }, Reason::Key),
            (turned(Verdict::WrongTicket), Reason::Other),
            (LinkError::Closed, Reason::Gone),
            (LinkError::Forked, Reason::Other),
        ] {
            assert_eq!(Reason::of(&error), reason, "{error}");
        }
        let refusals = Refusals::default();
        Reason::ALL.iter().for_each(|(reason, _)| refusals.count(*reason));
        refusals.count(Reason::Gone);
        let told = refusals.told();
        assert!(told.iter().all(|(name, count)| *count == 1 + u64::from(*name == "gone")));
        assert_eq!(told.len(), 9);
    }
}
