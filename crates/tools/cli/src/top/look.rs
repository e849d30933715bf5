//! What one answer of a daemon says. The text comes from another host, and so do the numbers: none
//! is longer or larger than is good for a terminal, and what is no figure is unknown.

use serde::Deserialize;
use serde_json::Value;

use crate::table;

/// Longest name in characters. Names of devices are shorter.
const NAME_CHARS_MAX: usize = 128;

/// Most devices and counters of a node that are shown, as in `penstock metrics`.
const VALUES_MAX: usize = 128;

/// Most sessions of a node that are shown. A daemon has 256 at most.
const SESSIONS_MAX: usize = 1024;

/// Most joules, seconds and bytes that a figure may be. A double holds each whole number up to it.
const FIGURE_MAX: f64 = 9.007_199_254_740_992e15;

/// The part of a status that is shown. The rest is most of it, and is skipped as it is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    host: Value,
    pid: Value,
    uptime_s: Value,
    uptime_ms: Value,
    draining: Value,
    problem: Value,
    waiting_clients: Value,
    devices: Value,
    device_memory_bytes: Value,
    totals: Value,
    sessions: Value,
}

/// A node at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    pub host: String,
    /// Process of the daemon.
    pub pid: Option<f64>,
    pub uptime_s: Option<f64>,
    /// The daemon's clock when it read its figures.
    pub uptime_ms: Option<f64>,
    pub is_draining: bool,
    /// Whether workers have no devices or do not start.
    pub has_problem: bool,
    pub waiting: Option<f64>,
    /// What all sessions hold of the devices' memory.
    pub held_bytes: Option<f64>,
    pub totals: Totals,
    /// Energy of the node, if a counter tells it.
    pub joules: Option<f64>,
    pub devices: Vec<Device>,
    pub sessions: Vec<Session>,
}

/// Figures that do not fall while a daemon or a session lives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    pub core_seconds: Option<f64>,
    /// Time in use of all devices together.
    pub in_use_seconds: Option<f64>,
    pub launches: Option<f64>,
    pub moved_bytes: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    pub name: String,
    pub memory_bytes: Option<f64>,
    pub in_use_seconds: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    /// Process of its worker, which is also the number of the session.
    pub worker: u32,
    pub client: String,
    pub seconds: Option<f64>,
    pub held_bytes: Option<f64>,
    pub totals: Totals,
    /// Energy of its devices, as far as a counter tells it of each alone.
    pub joules: Option<f64>,
}

impl Look {
    /// Reads the status of a daemon.
    pub fn read(status: &Status) -> Self {
        let sums = status.totals.get("sessions").unwrap_or(&Value::Null);
        let in_use: Vec<_> = list(sums, "in_use_seconds").take(VALUES_MAX).map(figure).collect();
        let memory = elements(&status.device_memory_bytes).take(VALUES_MAX).map(figure);
        let memory: Vec<_> = memory.collect();
        let of = |list: &[Option<f64>], index: usize| list.get(index).copied().flatten();
        let device = |(index, name): (usize, &Value)| Device {
            name: short(name.as_str().unwrap_or("-")),
            memory_bytes: of(&memory, index),
            // Before the first session there is none.
            in_use_seconds: sums.get("in_use_seconds").map(|_| of(&in_use, index).unwrap_or(0.0)),
        };
        let joules = status.totals.get("joules").and_then(Value::as_object);
        let sessions = elements(&status.sessions).filter_map(session).take(SESSIONS_MAX);
        let sessions: Vec<Session> = sessions.collect();
        Self {
            host: short(status.host.as_str().unwrap_or("-")),
            pid: figure(&status.pid),
            uptime_s: figure(&status.uptime_s),
            uptime_ms: figure(&status.uptime_ms),
            is_draining: status.draining == true,
            has_problem: !status.problem.is_null(),
            waiting: figure(&status.waiting_clients),
            // Only sessions hold any.
            held_bytes: held(&sessions),
            totals: Totals {
                in_use_seconds: (!in_use.is_empty()).then(|| sum(in_use.iter().copied())).flatten(),
                ..totals(sums, number(sums, "core_seconds"))
            },
            joules: joules.and_then(|it| sum(it.values().take(VALUES_MAX).map(figure))),
            devices: elements(&status.devices).take(VALUES_MAX).enumerate().map(device).collect(),
            sessions,
        }
    }
}

fn session(of: &Value) -> Option<Session> {
    let worker = of.get("worker").and_then(Value::as_u64);
    let devices = || list(of, "devices").take(VALUES_MAX);
    let in_use = sum(devices().map(|it| number(it, "in_use_seconds")));
    let joules = devices().filter_map(|it| number(it.get("joules")?, "device"));
    let joules: Vec<_> = joules.map(Some).collect();
    let cores = of.get("core_seconds").and_then(|it| number(it, "busy"));
    Some(Session {
        // Without it nobody could end the session.
        worker: worker.and_then(|worker| u32::try_from(worker).ok())?,
        client: short(&crate::status::client(of)),
        seconds: number(of, "seconds"),
        held_bytes: number(of, "held_device_memory_bytes"),
        totals: Totals { in_use_seconds: in_use, ..totals(of, cores) },
        joules: sum(joules.into_iter()),
    })
}

fn totals(of: &Value, core_seconds: Option<f64>) -> Totals {
    let (launches, moved_bytes) = (number(of, "launches"), number(of, "moved_bytes"));
    Totals { core_seconds, in_use_seconds: None, launches, moved_bytes }
}

/// Returns what all sessions hold of the devices' memory.
fn held(sessions: &[Session]) -> Option<f64> {
    let held: Option<Vec<f64>> = sessions.iter().map(|session| session.held_bytes).collect();
    held.map(|held| held.iter().sum())
}

/// Returns the sum, or `None` if there is nothing to add or a part is unknown.
fn sum(parts: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let parts: Vec<f64> = parts.collect::<Option<_>>()?;
    (!parts.is_empty()).then(|| parts.iter().sum())
}

fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of.get(name).into_iter().flat_map(elements)
}

fn elements(of: &Value) -> impl Iterator<Item = &Value> {
    of.as_array().into_iter().flatten()
}

fn number(of: &Value, name: &str) -> Option<f64> {
    figure(of.get(name)?)
}

fn figure(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| (0.0..=FIGURE_MAX).contains(number))
}

/// Returns the beginning of a text, without what could control a terminal.
pub fn short(text: &str) -> String {
    table::printable(&text.chars().take(NAME_CHARS_MAX).collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(status: Value) -> Look {
        Look::read(&serde_json::from_value(status).unwrap())
    }

    #[test]
    fn a_status_is_read() {
        let look = read(json!({
            "host": "gpu01", "pid": 7, "uptime_s": 61, "uptime_ms": 61_500, "draining": true,
            "problem": null, "waiting_clients": 3, "devices": ["a", "b"],
            "device_memory_bytes": [1024, null],
            "totals": {
                "sessions": { "core_seconds": 1.5, "in_use_seconds": [2.0, 0.5], "launches": 9,
                              "moved_bytes": 4096 },
                "joules": { "package-0": 10.0, "gpu-0": 2.5 },
            },
            "sessions": [{
                "worker": 24010, "client": "process 7 of user 1000", "program": "matmul",
                "user": "ada", "seconds": 60, "core_seconds": { "busy": 1.0 },
                "launches": 4, "moved_bytes": 99, "held_device_memory_bytes": 256,
                "devices": [
                    { "in_use_seconds": 1.0, "joules": { "device": null } },
                    { "in_use_seconds": 0.5, "joules": { "device": 20.0 } },
                ],
            }],
        }));
        let totals = |cores, in_use, launches, moved| Totals {
            core_seconds: Some(cores),
            in_use_seconds: Some(in_use),
            launches: Some(launches),
            moved_bytes: Some(moved),
        };
        let device = |name: &str, memory_bytes, in_use| Device {
            name: name.to_owned(),
            memory_bytes,
            in_use_seconds: Some(in_use),
        };
        let session = Session {
            worker: 24010,
            client: "matmul (7) of ada".to_owned(),
            seconds: Some(60.0),
            held_bytes: Some(256.0),
            totals: totals(1.0, 1.5, 4.0, 99.0),
            joules: Some(20.0),
        };
        let wanted = Look {
            host: "gpu01".to_owned(),
            pid: Some(7.0),
            uptime_s: Some(61.0),
            uptime_ms: Some(61_500.0),
            is_draining: true,
            has_problem: false,
            waiting: Some(3.0),
            held_bytes: Some(256.0),
            totals: totals(1.5, 2.5, 9.0, 4096.0),
            joules: Some(12.5),
            devices: vec![device("a", Some(1024.0), 2.0), device("b", None, 0.5)],
            sessions: vec![session],
        };
        assert_eq!(look, wanted);
    }

    #[test]
    fn an_older_daemon_tells_less() {
        let old =
            json!({ "host": "a", "sessions": [{ "client": "b", "worker": 3 }], "devices": ["d"] });
        let look = read(old);
        assert_eq!((look.host.as_str(), look.sessions.len()), ("a", 1));
        assert_eq!(
            (&look.totals, &look.sessions[0].totals),
            (&Totals::default(), &Totals::default())
        );
        assert_eq!((look.joules, look.devices[0].in_use_seconds), (None, None));
        let nothing = Look { host: "-".to_owned(), held_bytes: Some(0.0), ..Look::default() };
        assert_eq!(read(json!({})), nothing);
        // A daemon of any release sends an object.
        serde_json::from_value::<Status>(json!(7)).unwrap_err();
    }

    #[test]
    fn a_hostile_daemon_gets_no_more_than_its_place() {
        let long = format!("\u{1b}[2J\u{9b}\n{}", "x".repeat(1 << 12));
        let session = json!({
            "worker": 5, "client": long, "seconds": -1, "launches": 1e300, "moved_bytes": "many",
            "core_seconds": { "busy": u64::MAX }, "devices": [{ "in_use_seconds": [] }],
        });
        let look = read(json!({
            "host": long, "pid": -3, "uptime_s": 1e17, "uptime_ms": -1, "draining": "yes",
            "problem": [1], "waiting_clients": {}, "devices": vec![long.clone(); 1000],
            "device_memory_bytes": [u64::MAX, -1],
            "totals": { "joules": [1], "sessions": { "in_use_seconds": [null] } },
            "sessions": vec![session; 5000],
        }));
        assert_eq!(look.host.chars().count(), NAME_CHARS_MAX);
        let texts = look.devices.iter().map(|it| &it.name);
        let texts = texts.chain(look.sessions.iter().map(|it| &it.client)).chain([&look.host]);
        for text in texts {
            assert!(text.starts_with("\u{fffd}[2J\u{fffd}\u{fffd}xx"), "{text}");
            assert!(text.chars().count() <= NAME_CHARS_MAX && !text.contains(char::is_control));
        }
        assert_eq!((look.devices.len(), look.sessions.len()), (VALUES_MAX, SESSIONS_MAX));
        let numbers = [look.pid, look.uptime_s, look.uptime_ms, look.waiting, look.held_bytes];
        assert_eq!((numbers, look.joules), ([None; 5], None));
        assert_eq!(look.devices[0].memory_bytes, None);
        assert_eq!(look.sessions[0].totals, Totals::default());
        assert!(look.has_problem && !look.is_draining);
        // Nobody could name a session without a number.
        for worker in [json!(null), json!(-1), json!(1_u64 << 40), json!("5")] {
            assert_eq!(read(json!({ "sessions": [{ "worker": worker }] })).sessions, []);
        }
    }
}
