//! Who is still there. MPI does not tell that a rank has ended: it waits. So root and ranks say at least once a second that they
//! live, and who is silent for too long is taken for lost.
//!
//! A rank that only has no processor for a while must not be lost: where many ranks share few cores that takes seconds. On one's own
//! host there is a better witness than silence, the list of processes, and it also knows earlier who has ended.

use serde::{Deserialize, Serialize};

use crate::command::Rank;

/// A rank says "I live" when it has said nothing else for so long: a fifth of what counts as lost.
const BEAT_NS: u64 = 1_000_000_000;
/// How often silence is looked at.
const LOOK_NS: u64 = 100_000_000;
/// Whoever did not look for so long has no right to call others silent: they may have spoken meanwhile.
const ABSENT_NS: u64 = 500_000_000;
/// A process on this host that is silent for so long is looked for: one beat that did not come, and some time for it.
const DOUBT_NS: u64 = 1_500_000_000;
/// A rank that is silent for so long is lost.
pub const SILENCE_NS: u64 = 5_000_000_000;
/// A rank on this host whose process is there, but silent for so long, is lost too: it is stopped, or stuck.
const STUCK_NS: u64 = 60_000_000_000;

/// A process, known also after it has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The host since it was booted, and its process ids' name space.
    host: String,
    pid: u32,
    /// When it started: tells it from a later one with its number.
    started: u64,
}

impl Identity {
    /// This process. `None` where there is no `/proc`.
    pub fn own() -> Option<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let space = std::fs::read_link("/proc/self/ns/pid").ok()?;
        // The number that those have for this process who see the same `/proc`: in a name space of its own it calls itself something else.
        let pid = std::fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()?;
        let (_, started) = state_of(pid)?;
        Some(Self { host: format!("{} {}", boot.trim(), space.display()), pid, started })
    }

    /// Whether the other is on the same host, so that [`Identity::is_there`] can be asked.
    pub fn shares_host(&self, other: &Self) -> bool {
        self.host == other.host
    }

    /// Whether it has not ended. Only for one of the same host.
    pub fn is_there(&self) -> bool {
        state_of(self.pid).is_some_and(|(state, started)| {
            started == self.started && !matches!(state, b'Z' | b'X')
        })
    }
}

/// State and start time of a process, from `/proc/PID/stat`: its fields 3 and 22. The second, the name, may have spaces.
fn state_of(pid: u32) -> Option<(u8, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let started = fields.nth(18)?.parse().ok()?;
    Some((state, started))
}

/// First thing that neighbours say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// Whether it will say "I live" when it has nothing else to say. A program that is driven without a thread cannot.
    pub beats: bool,
    /// Who it is.
    pub identity: Option<Identity>,
}

/// What to do now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Say "I live" to these.
    pub beats: Vec<Rank>,
    /// These are lost, and why.
    pub lost: Vec<(Rank, String)>,
}

/// What a rank knows of its neighbours: of all for the root, of the root for the others.
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
    /// When something of it last arrived.
    heard: u64,
    /// When something was last said to it.
    told: u64,
    /// Until then its process is looked for although it is not silent for long.
    doubted: u64,
}

impl Liveness {
    /// For these neighbours. `silence_ns` is what counts as lost.
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

    /// What to say first to each neighbour.
    pub fn greeting(&self) -> &Greeting {
        &self.own
    }

    /// Neighbours.
    pub fn peers(&self) -> Vec<Rank> {
        self.peers.iter().map(|peer| peer.rank).collect()
    }

    /// Something was said to this rank.
    pub fn told(&mut self, rank: Rank, now: u64) {
        if let Some(peer) = self.peer(rank) {
            peer.told = now;
        }
    }

    /// Something of this rank arrived.
    pub fn heard(&mut self, rank: Rank, now: u64) {
        if let Some(peer) = self.peer(rank) {
            peer.heard = now;
        }
    }

    /// This rank's greeting arrived.
    pub fn greeted(&mut self, rank: Rank, greeting: Greeting) {
        if let Some(peer) = self.peer(rank) {
            peer.greeting = Some(greeting);
        }
    }

    /// Something says that this rank has ended: a connection of it.
    pub fn doubt(&mut self, rank: Rank) {
        let until = self.looked.saturating_add(DOUBT_NS);
        if let Some(peer) = self.peer(rank) {
            peer.doubted = until;
        }
    }

    /// Nothing more is expected of this rank.
    pub fn forget(&mut self, rank: Rank) {
        self.peers.retain(|peer| peer.rank != rank);
    }

    /// The peers of the root are ranks 1, 2, …, those of another are rank 0: both in order.
    fn peer(&mut self, rank: Rank) -> Option<&mut Peer> {
        let place = self.peers.binary_search_by_key(&rank, |peer| peer.rank).ok()?;
        self.peers.get_mut(place)
    }

    /// What is to be done. To be asked often, after what has arrived was taken in.
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
            // Before its greeting a rank starts MPI, loads drivers: nothing is expected of it.
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

    /// The root with one neighbour, looked after every 100 ms from `from` to `to`; when that neighbour was lost.
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
        assert_eq!(lost_at(&mut root, S, S + S / 2, false), None, "nobody looks yet");
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
