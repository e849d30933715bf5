//! How many workers are started, and how many are kept ready: a state machine without I/O, threads
//! or clocks.
//!
//! A worker's start loads drivers, which costs CPU time and little else. So as many workers start
//! at the same time as there are cores: more would only make each start take longer. One worker is
//! started for each client in line. In addition, some workers are kept ready (spares), as many as
//! clients came within the busiest of the last seconds.

use std::time::{Duration, Instant};

use penstock_wire::limits::SESSIONS_PER_DAEMON_MAX;

/// Fewest workers that a daemon keeps ready. Without one, a client waits some 100 ms for a start.
pub(crate) const SPARES_MIN: usize = 2;

/// The same for a daemon inside another program. Most such programs have one session.
pub(crate) const SPARES_MIN_INSIDE: usize = 1;

/// Most workers that are kept ready, per core. Each is a process of some 60 MB. More would not
/// help: a larger burst of clients keeps the cores busy for longer than their workers' starts take.
const SPARES_PER_CORE_MAX: usize = 2;

/// Most workers that start at the same time, per core: a start computes and does not wait.
const STARTS_PER_CORE_MAX: usize = 1;

/// Number of last seconds whose greatest demand decides the number of spares. A script that starts
/// programs one after the other comes back within that time.
const DEMAND_SECONDS: usize = 10;

/// Delay after a failed start, ...
const RETRY_MIN: Duration = Duration::from_millis(100);
/// ... which doubles with each further failure, up to this.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Delay before the last spare that was taken is replaced, so that loading drivers does not slow
/// down the client that took it.
const REPLACE_AFTER: Duration = Duration::from_millis(500);

/// Number of failed starts in a row (both first spares, and one more) after which clients are
/// refused.
const FAILURES_HOPELESS: u32 = 3;

/// Numbers of workers and of waiting clients.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Census {
    /// Workers without a client.
    pub(crate) spares: usize,
    /// Workers that load their drivers.
    pub(crate) starting: usize,
    /// Workers with a client.
    pub(crate) serving: usize,
    pub(crate) waiting: usize,
}

/// Past events that decide how many workers to start.
#[derive(Debug)]
pub(crate) struct Refill {
    cores: usize,
    spares_min: usize,
    began: Instant,
    /// Clients that came in each of the last seconds: the second, and their number.
    came: [(u64, usize); DEMAND_SECONDS],
    /// Number of failed starts since the last good one.
    failures: u32,
    retry_at: Option<Instant>,
    /// When the spares are filled up again.
    replace_at: Option<Instant>,
}

impl Refill {
    /// Makes the state of a daemon that may use `cores` cores, and keeps at least `spares_min`
    /// workers ready.
    pub(crate) fn new(cores: usize, spares_min: usize, now: Instant) -> Self {
        let came = [(0, 0); DEMAND_SECONDS];
        Self {
            cores: cores.max(1),
            spares_min,
            began: now,
            came,
            failures: 0,
            retry_at: None,
            replace_at: None,
        }
    }

    /// Notes that a client has come.
    pub(crate) fn client_came(&mut self, now: Instant) {
        let second = self.second(now);
        let slot = usize::try_from(second).unwrap_or(0) % DEMAND_SECONDS;
        if let Some(came) = self.came.get_mut(slot) {
            *came = if came.0 == second { (second, came.1 + 1) } else { (second, 1) };
        }
    }

    /// Notes that a client got a spare.
    pub(crate) fn spare_taken(&mut self, now: Instant) {
        self.replace_at = Some(now + REPLACE_AFTER);
    }

    /// Notes that a start was begun.
    pub(crate) fn start_began(&mut self) {
        self.retry_at = None;
        self.replace_at = None;
    }

    /// Notes that a worker is ready.
    pub(crate) fn start_succeeded(&mut self) {
        self.failures = 0;
    }

    /// Notes that a worker could not be started, or ended before it had a client.
    pub(crate) fn start_failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        let delay = RETRY_MIN.saturating_mul(1 << (self.failures - 1).min(10)).min(RETRY_MAX);
        self.retry_at = Some(now + delay);
    }

    /// Whether the last start failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Whether waiting for a worker is in vain.
    pub(crate) fn is_hopeless(&self, census: Census) -> bool {
        self.failures >= FAILURES_HOPELESS && census.spares == 0
    }

    /// Returns how many workers to start now.
    pub(crate) fn starts(&self, census: Census, now: Instant) -> usize {
        if self.retry_at.is_some_and(|at| now < at) {
            return 0;
        }
        let spares = match self.replace_at {
            Some(at) if now < at => self.spares_min - 1,
            _ => self.spares_wanted(now),
        };
        // Clients beyond the limit of sessions wait for the end of a session, not for a start.
        let servable = census.waiting.min(SESSIONS_PER_DAEMON_MAX.saturating_sub(census.serving));
        let wanted = (spares + servable).saturating_sub(census.spares + census.starting);
        // While starts fail, one worker at a time tries the driver.
        let at_once = if self.failures > 0 { 1 } else { STARTS_PER_CORE_MAX * self.cores };
        let workers = census.serving + census.spares + census.starting;
        let room = (SESSIONS_PER_DAEMON_MAX + self.spares_min).saturating_sub(workers);
        wanted.min(at_once.saturating_sub(census.starting)).min(room)
    }

    /// Returns how many spares to end, because the demand for them is over.
    pub(crate) fn surplus(&self, census: Census, now: Instant) -> usize {
        if census.waiting > 0 || census.starting > 0 {
            return 0;
        }
        census.spares.saturating_sub(self.spares_wanted(now))
    }

    /// Returns when the answers can change even if nothing happens.
    pub(crate) fn next_look(&self, census: Census, now: Instant) -> Option<Instant> {
        // The demand is counted in whole seconds.
        let demand = (census.spares > self.spares_min).then(|| now + Duration::from_secs(1));
        let pauses = self.retry_at.into_iter().chain(self.replace_at).filter(|at| *at > now);
        pauses.chain(demand).min()
    }

    fn spares_wanted(&self, now: Instant) -> usize {
        let oldest = (self.second(now) + 1).saturating_sub(DEMAND_SECONDS as u64);
        let demand =
            self.came.iter().filter(|(second, _)| *second >= oldest).map(|(_, count)| *count);
        let most = (SPARES_PER_CORE_MAX * self.cores).max(self.spares_min);
        demand.max().unwrap_or(0).clamp(self.spares_min, most)
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Line;

    const SECOND: Duration = Duration::from_secs(1);

    fn of_two_cores() -> (Refill, Instant) {
        let now = Instant::now();
        (Refill::new(2, SPARES_MIN, now), now)
    }

    #[test]
    fn failures_slow_down_the_next_start() {
        let (mut refill, now) = of_two_cores();
        let none = Census::default();
        assert_eq!(refill.starts(none, now), SPARES_MIN);
        refill.start_failed(now);
        assert_eq!(refill.starts(none, now), 0);
        assert_eq!(refill.next_look(none, now), Some(now + RETRY_MIN));
        assert!(!refill.is_hopeless(none), "one failure may be an accident");
        assert_eq!(refill.starts(none, now + RETRY_MIN), 1);
        for _ in 0..40 {
            refill.start_failed(now);
        }
        assert_eq!(refill.starts(none, now + RETRY_MAX), 1);
        assert!(refill.is_hopeless(none) && !refill.is_hopeless(Census { spares: 1, ..none }));
        refill.start_succeeded();
        assert!(!refill.is_hopeless(none) && !refill.is_failing());
    }

    #[test]
    fn starts_are_limited_to_the_cores() {
        for cores in [1, 2, 64] {
            let now = Instant::now();
            let refill = Refill::new(cores, SPARES_MIN, now);
            let burst = Census { waiting: 200, ..Census::default() };
            assert_eq!(refill.starts(burst, now), cores);
            assert_eq!(refill.starts(Census { starting: cores, ..burst }, now), 0);
            assert_eq!(refill.starts(Census { starting: cores - 1, ..burst }, now), 1);
        }
    }

    #[test]
    fn no_worker_is_started_for_a_client_without_a_session() {
        let (refill, now) = of_two_cores();
        let full = Census { serving: SESSIONS_PER_DAEMON_MAX, waiting: 100, ..Census::default() };
        assert_eq!(refill.starts(Census { spares: SPARES_MIN, ..full }, now), 0);
        assert_eq!(refill.starts(Census { spares: SPARES_MIN - 1, ..full }, now), 1);
    }

    #[test]
    fn a_taken_spare_is_replaced_after_its_client_has_started() {
        let (mut refill, now) = of_two_cores();
        refill.client_came(now);
        refill.spare_taken(now);
        let left = Census { spares: 1, serving: 1, ..Census::default() };
        assert_eq!(refill.starts(left, now), 0);
        assert_eq!(refill.next_look(left, now), Some(now + REPLACE_AFTER));
        assert_eq!(refill.starts(left, now + REPLACE_AFTER), 1);
        // Replacement is not delayed when no spare is left or another client waits.
        assert_eq!(refill.starts(Census { spares: 0, ..left }, now), 1);
        assert_eq!(refill.starts(Census { spares: 0, waiting: 5, ..left }, now), 2);
    }

    #[test]
    fn a_daemon_inside_a_program_starts_one_worker_at_first() {
        let now = Instant::now();
        let mut refill = Refill::new(2, SPARES_MIN_INSIDE, now);
        assert_eq!(refill.starts(Census::default(), now), 1);
        refill.client_came(now);
        refill.spare_taken(now);
        let left = Census { serving: 1, ..Census::default() };
        assert_eq!(refill.starts(left, now), 0);
        // A second client does not wait for the pause.
        assert_eq!(refill.starts(Census { waiting: 1, ..left }, now), 1);
        assert_eq!(refill.next_look(left, now), Some(now + REPLACE_AFTER));
        assert_eq!(refill.starts(left, now + REPLACE_AFTER), 1);
    }

    #[test]
    fn spares_follow_the_demand_up_and_down() {
        let (mut refill, now) = of_two_cores();
        let spares = |count| Census { spares: count, ..Census::default() };
        for _ in 0..3 {
            refill.client_came(now);
        }
        assert_eq!(refill.starts(spares(2), now), 1);
        for _ in 0..300 {
            refill.client_came(now + SECOND);
        }
        let later = now + 2 * SECOND;
        let most = SPARES_PER_CORE_MAX * 2;
        assert_eq!(refill.starts(spares(2), later), most - 2);
        assert_eq!(refill.surplus(spares(most), later), 0);
        assert_eq!(refill.next_look(spares(most), later), Some(later + SECOND));
        let over = now + SECOND + SECOND * u32::try_from(DEMAND_SECONDS).unwrap();
        assert_eq!(refill.surplus(spares(most), over), most - SPARES_MIN);
        assert_eq!(refill.surplus(Census { waiting: 1, ..spares(most) }, over), 0);
        assert_eq!(refill.next_look(spares(SPARES_MIN), over), None, "a daemon at rest sleeps");
    }

    /// Workers that start on some cores in virtual time, each with one second of work.
    struct Model {
        refill: Refill,
        line: Line<usize>,
        now: Instant,
        cores: usize,
        /// Work that is left of each start, in ms.
        starting: Vec<usize>,
        spares: usize,
        served: Vec<usize>,
        most_starting: usize,
    }

    impl Model {
        fn census(&self) -> Census {
            let (spares, starting) = (self.spares, self.starting.len());
            Census { spares, starting, serving: self.served.len(), waiting: self.line.len() }
        }

        /// Simulates one millisecond. All starts share the cores.
        fn step(&mut self) {
            let starts = self.refill.starts(self.census(), self.now);
            for _ in 0..starts {
                self.refill.start_began();
                self.starting.push(1_000);
            }
            self.most_starting = self.most_starting.max(self.starting.len());
            for left in self.starting.iter_mut().take(self.cores) {
                *left -= 1;
            }
            let before = self.starting.len();
            self.starting.retain(|left| *left > 0);
            self.spares += before - self.starting.len();
            while self.spares > 0
                && self.served.len() < SESSIONS_PER_DAEMON_MAX
                && let Some(client) = self.line.next()
            {
                self.spares -= 1;
                self.served.push(client);
                self.refill.spare_taken(self.now);
            }
            self.now += Duration::from_millis(1);
        }
    }

    #[test]
    fn a_burst_is_served_in_order_as_fast_as_the_cores_allow() {
        let (refill, now) = of_two_cores();
        let mut model = Model {
            refill,
            line: Line::default(),
            now,
            cores: 2,
            starting: Vec::new(),
            spares: SPARES_MIN,
            served: Vec::new(),
            most_starting: 0,
        };
        for client in 0..200 {
            model.refill.client_came(now);
            model.line.join(client, now).unwrap();
        }
        while model.served.len() < 200 {
            model.step();
            assert!(model.now < now + 101 * SECOND, "{} clients are served", model.served.len());
        }
        assert!(model.served.iter().copied().eq(0..200));
        assert_eq!(model.most_starting, 2);
        // 198 starts of one second on two cores, and not a moment more.
        assert!(model.now <= now + 99 * SECOND + Duration::from_millis(2), "{:?}", model.now - now);
    }
}
