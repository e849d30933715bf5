//! What clients cost: core-seconds of their workers, and joules of the node while they were served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use penstock_energy::{Meter, Options};
use penstock_process::{Guard, Lock};
use serde_json::{Value, json};

use crate::message::Found;

/// Joules by component since the meter was started.
pub(crate) type Joules = BTreeMap<String, f64>;

/// Prefix of the names of cards' counters.
const CARD: &str = "gpu";

/// Interval at which the counters are read. A client is charged from the last reading before it
/// came: on a node that takes 1 kW, at most 500 J too much.
const READ_EVERY: Duration = Duration::from_millis(500);

/// Age at which a reading is no longer reported: the counters hang.
const READING_AGE_MAX: Duration = Duration::from_secs(10);

/// The node's meter. It is opened when the first client comes. A thread of its own reads it,
/// because finding a dead counter takes a second and a driver that hangs must not stop the daemon.
#[derive(Clone, Default)]
pub(crate) struct Account(Arc<Lock<MeterState>>);

#[derive(Default)]
enum MeterState {
    #[default]
    NotOpened,
    Opening,
    Running {
        taken: Result<Joules, String>,
        at: Instant,
    },
    Unavailable(String),
}

impl Account {
    /// Returns the joules up to the last reading, or why they are unknown. Does not block.
    pub(crate) fn now(&self) -> Result<Joules, String> {
        match &*self.state() {
            MeterState::NotOpened => Err("no client was served yet".to_owned()),
            MeterState::Opening => Err("the counters are being looked for".to_owned()),
            MeterState::Unavailable(reason) => Err(reason.clone()),
            MeterState::Running { taken, at } if at.elapsed() <= READING_AGE_MAX => taken.clone(),
            MeterState::Running { at, .. } => {
                Err(format!("the counters have not answered for {} s", at.elapsed().as_secs()))
            }
        }
    }

    /// Starts a thread that looks for counters, and then reads them every [`READ_EVERY`]. Does
    /// nothing if an earlier call has started it.
    pub(crate) fn open(&self) {
        let mut state = self.state();
        if !matches!(*state, MeterState::NotOpened) {
            return;
        }
        *state = MeterState::Opening;
        drop(state);
        // The thread holds the account weakly, so it ends when the daemon drops the account.
        let account = Arc::downgrade(&self.0);
        let started = penstock_process::start("energy", move || {
            let opened = open();
            while let Some(account) = account.upgrade().map(Self) {
                match &opened {
                    Ok(meter) => account.note(read(meter)),
                    Err(reason) => {
                        *account.state() = MeterState::Unavailable(reason.clone());
                        return;
                    }
                }
                drop(account);
                thread::sleep(READ_EVERY);
            }
        });
        if let Err(error) = started {
            *self.state() = MeterState::Unavailable(error.to_string());
        }
    }

    fn note(&self, taken: Result<Joules, String>) {
        *self.state() = MeterState::Running { taken, at: Instant::now() };
    }

    fn state(&self) -> Guard<'_, MeterState> {
        self.0.lock()
    }
}

fn open() -> Result<Meter, String> {
    let mut meter = Meter::open(&Options::of_process());
    let is_live =
        meter.channels().iter().any(|it| it.class.is_in_total() && it.unavailable.is_none());
    if !is_live {
        return Err("no counter of this node can be read; `penstock energy` says why".to_owned());
    }
    meter.start().map_err(|error| error.to_string())?;
    Ok(meter)
}

fn read(meter: &Meter) -> Result<Joules, String> {
    let report = meter.report_so_far().map_err(|error| error.to_string())?;
    let of_total = report.figures.iter().filter(|figure| figure.in_total);
    Ok(of_total.filter_map(|figure| Some((figure.component.clone(), figure.joules?))).collect())
}

/// Returns the node's joules since `mark`, or since the meter's start.
pub(crate) fn joules(now: &Result<Joules, String>, mark: Option<&Joules>) -> Value {
    let since = |(component, joules): (&String, &f64)| {
        let before = mark.and_then(|mark| mark.get(component)).copied().unwrap_or(0.0);
        (component.clone(), joules - before)
    };
    match now {
        Ok(now) => {
            let components: Joules = now.iter().map(since).collect();
            json!({ "node": components.values().sum::<f64>(), "components": components, "unavailable": null })
        }
        Err(reason) => json!({ "node": null, "components": {}, "unavailable": reason }),
    }
}

/// Returns the core-seconds of a client's worker: all its threads, including those of CPU devices.
pub(crate) fn cores(time: &Result<Duration, String>) -> Value {
    let (seconds, reason) = match time {
        Ok(time) => (Some(time.as_secs_f64()), None),
        Err(reason) => (None, Some(reason)),
    };
    json!({ "busy": seconds, "unavailable": reason })
}

/// Reports a client's use of each device: the time, and core-seconds and joules if known for it.
pub(crate) fn devices(
    found: &[Found],
    cores: &Value,
    joules: &Value,
    in_use: &[Duration],
) -> Value {
    let one = |index: usize, device: &Found| {
        let used = in_use.get(index).map(Duration::as_secs_f64);
        let (core_seconds, no_cores) = match cores_of(device, found) {
            Ok(()) => (cores["busy"].clone(), cores["unavailable"].clone()),
            Err(reason) => (Value::Null, reason.into()),
        };
        let (own_joules, no_joules) = match counter_of(device, found, joules) {
            Ok(counter) => (joules["components"][counter].clone(), Value::Null),
            Err(reason) => (Value::Null, reason.into()),
        };
        json!({
            "device": device.name,
            "in_use_seconds": used,
            "core_seconds": core_seconds,
            "unavailable": no_cores,
            "joules": { "device": own_joules, "unavailable": no_joules },
        })
    };
    found.iter().enumerate().map(|(index, device)| one(index, device)).collect()
}

/// Succeeds if the worker's core-seconds are this device's. The kernel counts by process.
fn cores_of(device: &Found, found: &[Found]) -> Result<(), &'static str> {
    match found.iter().filter(|it| it.is_of_host).count() {
        _ if !device.is_of_host => Err("it does not compute with the host's cores"),
        1 => Ok(()),
        _ => Err("the worker's devices share its threads"),
    }
}

/// Returns the one counter that counts this device and nothing else.
fn counter_of<'a>(device: &Found, found: &[Found], joules: &'a Value) -> Result<&'a str, String> {
    if let Some(reason) = joules["unavailable"].as_str() {
        return Err(reason.to_owned());
    }
    if device.is_of_host {
        return Err("the counters of packages count all that the host computes".to_owned());
    }
    let components = joules["components"].as_object();
    let names = components.into_iter().flatten().map(|(name, _)| name.as_str());
    let mut cards = names.filter(|name| name.starts_with(CARD));
    let alone = found.iter().filter(|it| !it.is_of_host).count() == 1;
    match (cards.next(), cards.next()) {
        (Some(card), None) if alone => Ok(card),
        (None, _) => Err("no counter of a card".to_owned()),
        // Drivers and counters number cards differently.
        _ => Err("which counter is whose is not known where there are several cards".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_charged_from_its_beginning() {
        let mark = Joules::from([("package-0".to_owned(), 10.0)]);
        let now = Ok(Joules::from([("package-0".to_owned(), 25.0), ("dram-0".to_owned(), 2.0)]));
        let charged = joules(&now, Some(&mark));
        assert_eq!(charged["node"], 17.0);
        assert_eq!(charged["components"]["package-0"], 15.0);
        assert_eq!(joules(&now, None)["node"], 27.0);
        let nothing = joules(&Err("no counter".to_owned()), None);
        assert!(nothing["node"].is_null() && nothing["unavailable"] == "no counter");
    }

    #[test]
    fn counters_that_hang_are_told_and_not_waited_for() {
        let account = Account::default();
        assert!(account.now().is_err());
        account.note(Ok(Joules::from([("package-0".to_owned(), 3.0)])));
        assert_eq!(account.now().unwrap()["package-0"], 3.0);
        let long_ago = Instant::now().checked_sub(2 * READING_AGE_MAX).unwrap();
        *account.state() = MeterState::Running { taken: Ok(Joules::new()), at: long_ago };
        assert!(account.now().is_err_and(|why| why.contains("20 s")));
    }

    fn found(name: &str, is_of_host: bool) -> Found {
        Found { name: name.to_owned(), is_of_host }
    }

    #[test]
    fn core_time_is_a_processs_and_a_devices_only_where_it_is_alone() {
        let busy = cores(&Ok(Duration::from_secs(1)));
        assert_eq!(busy["busy"], 1.0);
        let none = joules(&Err("no counter".to_owned()), None);
        let one = devices(&[found("a", true), found("card", false)], &busy, &none, &[]);
        assert!(one[0]["core_seconds"].is_f64() && one[1]["core_seconds"].is_null(), "{one}");
        assert_eq!(one[1]["joules"]["unavailable"], "no counter");
        let two = devices(&[found("a", true), found("b", true)], &busy, &none, &[]);
        assert!(two[1]["core_seconds"].is_null() && two[1]["unavailable"].is_string(), "{two}");
        let gone = cores(&Err("no such process".to_owned()));
        assert!(gone["busy"].is_null() && gone["unavailable"].is_string(), "{gone}");
    }

    #[test]
    fn joules_are_a_devices_where_one_counter_counts_it_alone() {
        let taken = |cards: &[&str]| {
            let of = |name: &&str| ((*name).to_owned(), 5.0);
            Ok(cards.iter().map(of).chain([("package-0".to_owned(), 7.0)]).collect())
        };
        let both = [found("cpu", true), found("card", false)];
        let told = |found: &[Found], cards: &[&str]| {
            devices(found, &Value::Null, &joules(&taken(cards), None), &[])
        };
        let alone = told(&both, &["gpu-0"]);
        assert_eq!(alone[1]["joules"]["device"], 5.0);
        assert!(
            alone[0]["joules"]["device"].is_null() && alone[0]["joules"]["unavailable"].is_string()
        );
        assert!(told(&both, &[])[1]["joules"]["device"].is_null());
        assert!(told(&both, &["gpu-0", "gpu-1"])[1]["joules"]["device"].is_null());
        let two = [found("card", false), found("card", false)];
        assert!(told(&two, &["gpu-0"])[0]["joules"]["device"].is_null());
    }

    #[test]
    fn the_time_of_use_is_told_of_each_device() {
        let list = [found("a", true), found("b", true)];
        let in_use = [Duration::ZERO, Duration::from_millis(5)];
        let told = devices(&list, &Value::Null, &Value::Null, &in_use);
        assert_eq!(told[0]["in_use_seconds"], 0.0);
        assert_eq!(told[1]["in_use_seconds"], 0.005);
        assert!(devices(&list, &Value::Null, &Value::Null, &[])[0]["in_use_seconds"].is_null());
    }
}
