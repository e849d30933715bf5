//! The limits of time of a session: when they are looked at, and which one is exceeded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_device as device;
use penstock_quota::{Account, Cap, Doing, Terms, look_every};
use penstock_wire::Status;

use super::allowance::Allowance;
use super::compiles::{self, Compiles, Probe, Seen, Submitted};
use super::shared_session::SharedSession;
use crate::usage::Teller;

/// Looks at the limits of time of one session.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// When the limits are looked at next, and the kernels that may be being compiled.
    limits_at: Option<Instant>,
    compiles_at: Option<Instant>,
    quiet: Quiet,
    account: Account,
    unwatched: Unwatched,
    teller: Option<Teller>,
    compiles: Compiles<Arc<Probe>>,
}

impl Times {
    /// Begins. Tells the daemon through `teller` which core time is explained.
    pub(crate) fn new(teller: Option<Teller>, terms: &Terms, now: Instant) -> Self {
        let mut times = Self { teller, ..Self::default() };
        times.set(terms, now);
        times
    }

    /// Returns when to look next; `None` if no limit of time is set.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.limits_at.into_iter().chain(self.compiles_at).min()
    }

    /// Notes the limits, which may have changed. That puts off no look.
    pub(crate) fn set(&mut self, terms: &Terms, now: Instant) {
        if terms.kernel_time.is_none() {
            self.account.rest();
            self.unwatched = Unwatched::Given;
        }
        let caps = [&terms.kernel_time, &terms.compile_time, &terms.idle_time];
        let shortest = caps.into_iter().flatten().map(|cap| cap.max).min();
        let next = shortest.map(|seconds| now + look_every(seconds));
        self.limits_at = next.map(|next| self.limits_at.map_or(next, |at| at.min(next)));
    }

    /// Looks at the session, if it has begun, at the time `now`. Returns the reason if it must end,
    /// which the client is then told.
    pub(crate) fn look(
        &mut self,
        session: Option<&SharedSession>,
        allowance: &Allowance,
        now: Instant,
    ) -> Option<String> {
        let terms = allowance.terms();
        let looked = session.map(|it| it.launches.look(now)).unwrap_or_default();
        if self.limits_at.is_some_and(|at| now >= at) {
            self.limits_at = None;
            if terms.kernel_time.is_some() {
                self.explain(session, looked.is_busy);
            }
        }
        self.set(&terms, now);
        let (session, longest) = (session?, looked.longest);
        if let Some(why) = self.look_at_compiles(session, looked.submitted, now) {
            session.fault(Status::OUT_OF_RESOURCES, &why);
            return Some(why);
        }
        let is_over = |cap: &&Cap, time: Option<Duration>| {
            time.is_some_and(|time| time > Duration::from_secs(cap.max))
        };
        let kernel = terms.kernel_time.as_ref().filter(|cap| is_over(cap, longest));
        let build = terms.compile_time.as_ref();
        let build = build.filter(|cap| is_over(cap, session.builds.longest(now)));
        let idle = terms.idle_time.as_ref().filter(|cap| {
            let quiet = self.quiet.note(session.frames(), now);
            is_over(cap, quiet)
                && !allowance.turns.is_waiting()
                && self.quiet.has_nothing_to_do(session)
        });
        let over = [
            ("a kernel ran for too long", kernel),
            ("a build ran for too long", build),
            ("the session was idle for too long", idle),
        ];
        let why =
            over.into_iter().find_map(|(what, cap)| Some(format!("{what}: {}", cap?.said)))?;
        session.fault(Status::OUT_OF_RESOURCES, &why);
        Some(why)
    }

    /// Looks at the kernels that a driver may be compiling because they were launched. Returns why
    /// the session ends, if that takes too much.
    fn look_at_compiles(
        &mut self,
        session: &SharedSession,
        submitted: Option<Submitted>,
        now: Instant,
    ) -> Option<String> {
        let compiler = session.compiler.as_ref()?;
        self.compiles_at = submitted.is_some().then(|| now + compiles::LOOK_EVERY);
        let seen = Seen {
            now,
            used: penstock_energy::cores::of_process(std::process::id()).unwrap_or_default(),
            submitted,
            builds: session.builds.running(),
            memory: crate::sys::own_memory(),
            objects: device::Share::held() + device::Staged::held() + device::Staged::pooled(),
        };
        self.compiles.look(&compiler.limits, &seen, || compiler.probe(), |it| it.progress())
    }

    /// Tells the daemon which core time is explained. Before a kernel has had this process, all of
    /// it is.
    fn explain(&mut self, session: Option<&SharedSession>, is_busy: bool) {
        let Some(teller) = &self.teller else { return };
        let own = penstock_link::own_time();
        let Ok(used) = penstock_energy::cores::of_process(std::process::id()) else { return };
        let doing = match session.filter(|session| session.launches.were_here()) {
            Some(session) => Doing {
                used,
                own,
                is_busy: is_busy || !session.builds.are_idle() || self.unwatched.may_run(session),
                steps: session.steps(),
                staged: device::Staged::held(),
            },
            None => Doing { used, is_busy: true, ..Doing::default() },
        };
        teller.tell(self.account.look(doing));
    }
}

/// What is known of the commands that were given while kernels had no limit of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Unwatched {
    #[default]
    Ended,
    Given,
    /// The queues have been asked whether they have ended.
    Asked,
}

impl Unwatched {
    /// Returns whether some of them may still run.
    fn may_run(&mut self, session: &SharedSession) -> bool {
        *self = match *self {
            Self::Given => {
                session.probe_queues();
                Self::Asked
            }
            Self::Asked if !session.is_at_rest() => Self::Asked,
            _ => Self::Ended,
        };
        *self != Self::Ended
    }
}

/// How long a client has sent nothing, and whether its devices have nothing to do.
#[derive(Debug, Default)]
struct Quiet {
    /// Number of frames at the last look, and when it was seen for the first time.
    seen: Option<(u64, Instant)>,
    /// Whether the queues have been asked since the last frame.
    asked: bool,
}

impl Quiet {
    /// Notes the number of frames that have come. Returns for how long none has come.
    fn note(&mut self, frames: u64, now: Instant) -> Option<Duration> {
        match self.seen {
            Some((seen, since)) if seen == frames => Some(now.saturating_duration_since(since)),
            _ => {
                self.seen = Some((frames, now));
                self.asked = false;
                None
            }
        }
    }

    /// Returns whether all commands of the session have ended. Asks the queues once, because the
    /// worker does not know the end of a command without an event. Their answers count at a later
    /// look.
    fn has_nothing_to_do(&mut self, session: &SharedSession) -> bool {
        if !std::mem::replace(&mut self.asked, true) {
            session.probe_queues();
            return false;
        }
        session.is_at_rest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cap(max: u64) -> Option<Cap> {
        Some(Cap { max, said: String::new() })
    }

    #[test]
    fn the_shortest_limit_decides_when_to_look() {
        let (mut times, start) = (Times::default(), Instant::now());
        assert_eq!(times.next(), None);
        let mut next = |after, terms: &Terms| {
            times.set(terms, start + Duration::from_millis(after));
            times.next().map(|at| (at - start).as_millis())
        };
        let both = Terms { kernel_time: cap(4), idle_time: cap(40), ..Terms::default() };
        let long = Terms { idle_time: cap(100_000), ..Terms::default() };
        assert_eq!(next(0, &both), Some(500));
        // Who notes limits often does not put off the look.
        assert_eq!(next(400, &both), Some(500));
        assert_eq!(next(450, &long), Some(500));
        assert_eq!(next(500, &Terms::default()), None);
        assert_eq!(next(600, &long), Some(10_600));
        assert_eq!(next(700, &both), Some(1_200));
    }

    #[test]
    fn a_client_is_quiet_from_its_last_frame_on() {
        let (mut quiet, start) = (Quiet::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(quiet.note(5, at(0)), None);
        assert_eq!(quiet.note(5, at(9)), Some(Duration::from_secs(9)));
        assert_eq!(quiet.note(6, at(10)), None);
        assert_eq!(quiet.note(6, at(12)), Some(Duration::from_secs(2)));
    }
}
