//! What a node does now: the differences between two looks, divided by the time between them. The
//! daemon's own clock tells that time, because an answer can travel for longer than another one.

use super::look::{Device, Look, Session, Totals};

/// A node that has answered, and what it has done since the look before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Now {
    pub look: Look,
    pub rates: Rates,
    /// Joules per second.
    pub watts: Option<f64>,
    /// For each device of the look, for how much of the time sessions had it in use. It is 2 if two
    /// sessions had it all the time.
    pub in_use: Vec<Option<f64>>,
    /// For each session of the look.
    pub sessions: Vec<SessionNow>,
}

/// What a session has done since the look before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionNow {
    pub rates: Rates,
    pub watts: Option<f64>,
}

/// Figures per second; `None` if there was no look before, or nobody knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Number of cores that are busy.
    pub cores: Option<f64>,
    pub in_use: Option<f64>,
    pub launches: Option<f64>,
    pub moved_bytes: Option<f64>,
}

impl Now {
    /// Returns a node that was not looked at before.
    pub fn first(look: Look) -> Self {
        let in_use = vec![None; look.devices.len()];
        let sessions = vec![SessionNow::default(); look.sessions.len()];
        Self { look, rates: Rates::default(), watts: None, in_use, sessions }
    }

    /// Returns the node as `look` finds it after `before`. It has no rates if the daemon's clock is
    /// unknown or has not gone on.
    pub fn after(before: &Look, look: Look) -> Self {
        // A daemon that was started anew counts from 0, and its processes have other numbers.
        if before.pid != look.pid || look.uptime_s < before.uptime_s {
            return Self::first(look);
        }
        let seconds = match (before.uptime_ms, look.uptime_ms) {
            (Some(before), Some(now)) if now > before => (now - before) / 1e3,
            _ => return Self::first(look),
        };
        let device = |(index, now): (usize, &Device)| {
            let was = before.devices.get(index).filter(|was| was.name == now.name)?;
            rate(was.in_use_seconds, now.in_use_seconds, seconds)
        };
        let in_use = look.devices.iter().enumerate().map(device).collect();
        let session = |now: &Session| {
            let was = before.sessions.iter().find(|was| was.worker == now.worker);
            was.map_or_else(SessionNow::default, |was| SessionNow {
                rates: rates(&was.totals, &now.totals, seconds),
                watts: rate(was.joules, now.joules, seconds),
            })
        };
        let sessions = look.sessions.iter().map(session).collect();
        Self {
            rates: rates(&before.totals, &look.totals, seconds),
            watts: rate(before.joules, look.joules, seconds),
            in_use,
            sessions,
            look,
        }
    }
}

fn rates(before: &Totals, after: &Totals, seconds: f64) -> Rates {
    Rates {
        cores: rate(before.core_seconds, after.core_seconds, seconds),
        in_use: rate(before.in_use_seconds, after.in_use_seconds, seconds),
        launches: rate(before.launches, after.launches, seconds),
        moved_bytes: rate(before.moved_bytes, after.moved_bytes, seconds),
    }
}

/// Returns a figure per second, or `None` if it is unknown or has fallen.
fn rate(before: Option<f64>, after: Option<f64>, seconds: f64) -> Option<f64> {
    let more = after? - before?;
    (more >= 0.0).then(|| more / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(figure: f64) -> Totals {
        let figure = Some(figure);
        Totals {
            core_seconds: figure,
            in_use_seconds: figure,
            launches: figure,
            moved_bytes: figure,
        }
    }

    fn device(name: &str, in_use: f64) -> Device {
        Device { name: name.to_owned(), memory_bytes: None, in_use_seconds: Some(in_use) }
    }

    fn session(worker: u32, figure: f64) -> Session {
        Session { worker, totals: totals(figure), joules: Some(figure), ..Session::default() }
    }

    fn look(figure: f64, devices: Vec<Device>, sessions: Vec<Session>) -> Look {
        let (pid, uptime_s, joules) = (Some(7.0), Some(figure), Some(figure));
        let (uptime_ms, totals) = (Some(figure * 1e3), totals(figure));
        Look { pid, uptime_s, uptime_ms, joules, totals, devices, sessions, ..Look::default() }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let before = look(10.0, vec![device("a", 1.0)], vec![session(5, 2.0)]);
        let at = |uptime_ms| Look {
            uptime_ms,
            ..look(14.0, vec![device("a", 4.0)], vec![session(5, 3.0)])
        };
        let now = Now::after(&before, at(Some(12_000.0)));
        let all = |rate: f64| {
            let rate = Some(rate);
            Rates { cores: rate, in_use: rate, launches: rate, moved_bytes: rate }
        };
        assert_eq!((&now.rates, now.watts), (&all(2.0), Some(2.0)));
        assert_eq!(now.in_use, [Some(1.5)], "of more than one session");
        let session = SessionNow { rates: all(0.5), watts: Some(0.5) };
        assert_eq!(now.sessions, [session]);
        // The clock stands still, goes back, or is unknown.
        for uptime_ms in [Some(10_000.0), Some(9_999.0), None] {
            let now = Now::after(&before, at(uptime_ms));
            assert_eq!((now.rates, now.watts), (Rates::default(), None), "{uptime_ms:?}");
            assert_eq!(Now::after(&at(None), at(uptime_ms)).rates, Rates::default());
        }
    }

    #[test]
    fn a_daemon_that_was_started_anew_has_no_rates_yet() {
        let before = look(10.0, vec![device("a", 1.0)], vec![session(5, 2.0)]);
        let other =
            Look { pid: Some(8.0), ..look(11.0, vec![device("a", 2.0)], vec![session(5, 3.0)]) };
        let now = Now::after(&before, other.clone());
        assert_eq!(now, Now::first(other));
        assert_eq!((now.rates, now.in_use, now.sessions.len()), (Rates::default(), vec![None], 1));
        // It got the same process id, as in a container.
        let again = look(3.0, Vec::new(), Vec::new());
        assert_eq!(Now::after(&before, again.clone()), Now::first(again));
    }

    #[test]
    fn a_total_that_falls_or_is_unknown_has_no_rate() {
        let before = look(10.0, vec![device("a", 5.0)], Vec::new());
        let mut after = look(12.0, vec![device("a", 4.0)], Vec::new());
        after.totals.launches = Some(9.0);
        after.totals.moved_bytes = None;
        let now = Now::after(&before, after);
        assert_eq!((now.rates.launches, now.rates.moved_bytes), (None, None));
        assert_eq!((now.rates.cores, now.in_use), (Some(1.0), vec![None]));
    }

    #[test]
    fn devices_and_sessions_come_and_go() {
        let both = vec![device("a", 1.0), device("b", 1.0)];
        let before = look(10.0, both.clone(), vec![session(5, 1.0), session(6, 1.0)]);
        // The first device has vanished, so the second one has its place.
        let after = look(11.0, vec![device("b", 2.0)], vec![session(7, 9.0), session(6, 2.0)]);
        let now = Now::after(&before, after.clone());
        assert_eq!(now.in_use, [None]);
        let rates = now.sessions.iter().map(|it| it.rates.launches);
        assert_eq!(rates.collect::<Vec<_>>(), [None, Some(1.0)]);
        let now = Now::after(&after, look(12.0, both, Vec::new()));
        assert_eq!((now.in_use, now.sessions), (vec![None, None], Vec::new()));
    }
}
