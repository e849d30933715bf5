//! Detects lost ranks. MPI does not tell that a rank has ended: it waits. So the root and the ranks
//! send a sign of life at least once a second, and a rank that is silent for too long counts as
//! lost.
//!
//! A rank that only gets no processor for a while must not count as lost. If many ranks share few
//! cores, this takes seconds. For ranks on the same host the list of processes is a better witness
//! than silence, and it also shows earlier that a process has ended.

use serde::{Deserialize, Serialize};

use crate::command::Rank;

/// Time after which a rank that has sent nothing else sends a sign of life, in ns: a fifth of
/// [`SILENCE_NS`].
const BEAT_NS: u64 = 1_000_000_000;
/// Time between two checks for silence, in ns.
const LOOK_NS: u64 = 100_000_000;
/// A rank that did not check for this time, in ns, does not count it as silence of others: they may
/// have spoken meanwhile.
const ABSENT_NS: u64 = 500_000_000;
/// Silence after which a process on this host is looked up, in ns: one missing sign of life, and
/// some time for it to come.
const DOUBT_NS: u64 = 1_500_000_000;
/// Silence after which a rank is lost, in ns.
pub const SILENCE_NS: u64 = 5_000_000_000;
/// Silence after which a rank is lost although its process on this host exists, in ns: it is
/// stopped or stuck.
const STUCK_NS: u64 = 60_000_000_000;

/// The identity of a process, which stays valid after the process has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The host since its boot, and the name space of process ids.
    host: String,
    pid: u32,
    /// Start time of the process. It distinguishes the process from a later one with the same
    /// number.
    started: u64,
}

impl Identity {
    /// Returns the identity of this process, or `None` without `/proc`.
    pub fn own() -> Option<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let space = std::fs::read_link("/proc/self/ns/pid").ok()?;
        // This is the number that processes with the same `/proc` see. In a pid name space of its
        // own the process has another number for itself.
        let pid = std::fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()?;
        let (_, started) = state_of(pid)?;
        Some(Self { host: format!("{} {}", boot.trim(), space.display()), pid, started })
    }

    /// Whether the other process is on the same host, so that [`Identity::is_there`] may be asked.
    pub fn shares_host(&self, other: &Self) -> bool {
        self.host == other.host
    }

    /// Whether the process has not ended. The process must be on this host.
    pub fn is_there(&self) -> bool {
        state_of(self.pid).is_some_and(|(state, started)| {
            started == self.started && !matches!(state, b'Z' | b'X')
        })
    }
}

/// Returns state and start time of a process: fields 3 and 22 of `/proc/PID/stat`. Field 2, the
/// name, may contain spaces.
fn state_of(pid: u32) -> Option<(u8, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let started = fields.nth(18)?.parse().ok()?;
    Some((state, started))
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// Whether the rank will send signs of life. A program that is driven without a thread cannot.
    pub beats: bool,
    /// The process of the sender.
    pub identity: Option<Identity>,
}

/// What a check asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Ranks that need a sign of life from this one.
    pub beats: Vec<Rank>,
    /// Ranks that are lost, and why.
    pub lost: Vec<(Rank, String)>,
}

/// What a rank knows of its neighbours. The root's neighbours are all other ranks; those of the
/// others are the root.
#[derive(Debug)]
pub struct Liveness {
    own: Greeting,
    silence_ns: u64,
    looked: u64,
    peers: Vec<Peer>,
}

#[derive(Debug)]
struct Peer {
    rank: Rank,
    greeting: Option<Greeting>,
    /// When a message from it last arrived.
    heard: u64,
    /// When a message was last sent to it.
    told: u64,
    /// Time until which its process is looked up even without silence.
    doubted: u64,
}

impl Liveness {
    /// Starts with these neighbours. `silence_ns` is the silence after which a rank is lost.
    pub fn new(
        own: Greeting,
        peers: impl Iterator<Item = Rank>,
        silence_ns: u64,
        now: u64,
    ) -> Self {
        let peers = peers
            .map(|rank| Peer { rank, greeting: None, heard: now, told: now, doubted: 0 })
            .collect();
        Self { own, silence_ns: silence_ns.max(2 * BEAT_NS), looked: now, peers }
    }

    /// Returns the first message for each neighbour.
    pub fn greeting(&self) -> &Greeting {
        &self.own
    }

    /// Returns the ranks of the neighbours.
    pub fn peers(&self) -> Vec<Rank> {
        self.peers.iter().map(|peer| peer.rank).collect()
    }

    /// Notes that a message was sent to this rank.
    pub fn told(&mut self, rank: Rank, now: u64) {
        if let Some(peer) = self.peer(rank) {
            peer.told = now;
        }
    }

    /// Notes that a message from this rank has arrived.
    pub fn heard(&mut self, rank: Rank, now: u64) {
        if let Some(peer) = self.peer(rank) {
            peer.heard = now;
        }
    }

    /// Stores the greeting of this rank.
    pub fn greeted(&mut self, rank: Rank, greeting: Greeting) {
        if let Some(peer) = self.peer(rank) {
            peer.greeting = Some(greeting);
        }
    }

    /// Notes that another connection of this rank has ended.
    pub fn doubt(&mut self, rank: Rank) {
        let until = self.looked.saturating_add(DOUBT_NS);
        if let Some(peer) = self.peer(rank) {
            peer.doubted = until;
        }
    }

    /// Stops expecting anything from this rank.
    pub fn forget(&mut self, rank: Rank) {
        self.peers.retain(|peer| peer.rank != rank);
    }

    /// Returns the record of a rank. The neighbours are in ascending order: 1, 2, … for the root, 0
    /// for the others.
    fn peer(&mut self, rank: Rank) -> Option<&mut Peer> {
        let place = self.peers.binary_search_by_key(&rank, |peer| peer.rank).ok()?;
        self.peers.get_mut(place)
    }

    /// Checks for silence, at most every [`LOOK_NS`]. The caller must have taken in the messages
    /// that have arrived.
    pub fn look(&mut self, now: u64, is_there: impl Fn(&Identity) -> bool) -> Option<Due> {
        let passed = now.saturating_sub(self.looked);
        if passed < LOOK_NS {
            return None;
        }
        self.looked = now;
        if passed > ABSENT_NS {
            for peer in &mut self.peers {
                peer.heard = peer.heard.saturating_add(passed).min(now);
            }
        }
        let mut due = Due::default();
        for peer in &mut self.peers {
            if self.own.beats && now.saturating_sub(peer.told) >= BEAT_NS {
                due.beats.push(peer.rank);
                peer.told = now;
            }
            // Before its greeting a rank starts MPI and loads drivers, so nothing is expected of
            // it.
            let Some(greeting) = &peer.greeting else { continue };
            let silent = now.saturating_sub(peer.heard);
            let near = match (&self.own.identity, &greeting.identity) {
                (Some(own), Some(other)) if own.shares_host(other) => Some(other),
                _ => None,
            };
            if silent < DOUBT_NS && now >= peer.doubted {
                continue;
            }
            match near {
                Some(identity) if !is_there(identity) => {
                    due.lost.push((peer.rank, format!("its process {} has ended", identity.pid)))
                }
                _ if greeting.beats
                    && silent
                        >= if near.is_some() {
                            STUCK_NS.max(self.silence_ns)
                        } else {
                            self.silence_ns
                        } =>
                {
                    due.lost.push((
                        peer.rank,
                        format!("it has been silent for {} s", silent / 1_000_000_000),
                    ));
                }
                _ => {}
            }
        }
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn identity(host: &str, pid: u32) -> Identity {
        Identity { host: host.into(), pid, started: 7 }
    }

    fn greeting(host: &str, beats: bool) -> Greeting {
        Greeting { beats, identity: Some(identity(host, 1)) }
    }

    /// Checks the root's only neighbour every 100 ms from `from` to `to`. Returns when it was lost.
    fn lost_at(root: &mut Liveness, from: u64, to: u64, is_there: bool) -> Option<u64> {
        (from..=to)
            .step_by(100_000_000)
            .find(|now| root.look(*now, |_| is_there).is_some_and(|due| !due.lost.is_empty()))
    }

    fn root(host: &str, beats: bool) -> Liveness {
        let mut root = Liveness::new(greeting("here", true), 1..2, SILENCE_NS, S);
        root.greeted(1, greeting(host, beats));
        root.heard(1, S);
        root
    }

    #[test]
    fn a_silent_rank_of_another_host_is_lost_after_five_seconds() {
        assert_eq!(lost_at(&mut root("there", true), S, 20 * S, true), Some(6 * S));
    }

    #[test]
    fn a_process_that_is_doubted_is_looked_for_at_once() {
        let mut root = root("here", true);
        assert_eq!(lost_at(&mut root, S, S + S / 2, false), None, "no look is due yet");
        root.doubt(1);
        let soon = S + S / 2 + 100_000_000;
        assert!(lost_at(&mut root, soon, 2 * S, false).is_some_and(|at| at <= soon + 100_000_000));
        let mut alive = self::root("here", true);
        alive.doubt(1);
        assert_eq!(lost_at(&mut alive, S, 3 * S, true), None, "it is there");
    }

    #[test]
    fn a_rank_that_speaks_is_not_lost() {
        let mut root = root("there", true);
        for second in 1..30 {
            root.heard(1, second * S);
            assert_eq!(lost_at(&mut root, second * S, second * S + S - 1, true), None);
        }
    }

    #[test]
    fn a_process_of_this_host_that_has_ended_is_lost_at_once_and_one_that_is_there_is_not() {
        assert_eq!(lost_at(&mut root("here", true), S, 20 * S, false), Some(S + DOUBT_NS));
        assert_eq!(lost_at(&mut root("here", true), S, 50 * S, true), None);
        assert_eq!(lost_at(&mut root("here", true), S, 80 * S, true), Some(S + STUCK_NS));
    }

    #[test]
    fn nothing_is_expected_of_who_did_not_greet_or_promised_no_beats() {
        let mut mute = Liveness::new(greeting("here", true), 1..2, SILENCE_NS, S);
        assert_eq!(lost_at(&mut mute, S, 100 * S, false), None);
        assert_eq!(lost_at(&mut root("there", false), S, 100 * S, true), None);
    }

    #[test]
    fn time_in_which_nobody_looked_is_no_silence() {
        let mut root = root("there", true);
        assert_eq!(lost_at(&mut root, S, 4 * S, true), None);
        // This process was stopped for a minute.
        assert_eq!(lost_at(&mut root, 64 * S, 65 * S, true), None);
        assert_eq!(lost_at(&mut root, 65 * S + 100_000_000, 80 * S, true), Some(66 * S));
    }

    #[test]
    fn beats_are_due_only_where_nothing_else_was_said() {
        let mut root = Liveness::new(greeting("here", true), 1..3, SILENCE_NS, 0);
        root.told(1, S / 2);
        assert_eq!(root.look(S, |_| true).map(|due| due.beats), Some(vec![2]));
        assert_eq!(root.look(S + S / 2, |_| true).map(|due| due.beats), Some(vec![1]));
    }

    #[test]
    fn the_own_process_is_there_and_one_with_another_start_is_not() {
        let own = Identity::own().expect("this host has /proc");
        assert!(own.is_there());
        assert!(!Identity { started: own.started + 1, ..own }.is_there());
    }
}
