//! What clients cost: core-seconds of their workers, and joules of the node while they were served.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use penstock_energy::{Meter, Options};
use serde_json::{Value, json};

/// Joules by component, since the meter was started.
pub(crate) type Joules = BTreeMap<String, f64>;

/// How often the counters are read. A client is charged from the last reading before it came: of a node that takes 1 kW, 500 J too
/// much at most.
const READ_EVERY: Duration = Duration::from_millis(500);

/// A reading that is older is told no more: the counters hang.
const READING_AGE_MAX: Duration = Duration::from_secs(10);

/// The node's meter. It is opened when the first client comes, and read by a thread of its own: finding that a counter is dead takes
/// a second, and a driver that hangs must not stop the daemon.
#[derive(Clone, Default)]
pub(crate) struct Account(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
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
    /// What was taken up to the last reading; the reason where that is not known. Does not wait.
    pub(crate) fn now(&self) -> Result<Joules, String> {
        match &*self.state() {
            State::NotOpened => Err("no client was served yet".to_owned()),
            State::Opening => Err("the counters are being looked for".to_owned()),
            State::Unavailable(reason) => Err(reason.clone()),
            State::Running { taken, at } if at.elapsed() <= READING_AGE_MAX => taken.clone(),
            State::Running { at, .. } => {
                Err(format!("the counters have not answered for {} s", at.elapsed().as_secs()))
            }
        }
    }

    /// Looks for counters, once.
    pub(crate) fn open(&self) {
        let mut state = self.state();
        if !matches!(*state, State::NotOpened) {
            return;
        }
        *state = State::Opening;
        drop(state);
        // It ends with the daemon.
        let account = Arc::downgrade(&self.0);
        let started = thread::Builder::new().name("energy".into()).spawn(move || {
            let opened = open();
            while let Some(account) = account.upgrade().map(Self) {
                match &opened {
                    Ok(meter) => account.note(read(meter)),
                    Err(reason) => {
                        *account.state() = State::Unavailable(reason.clone());
                        return;
                    }
                }
                drop(account);
                thread::sleep(READ_EVERY);
            }
        });
        if let Err(error) = started {
            *self.state() = State::Unavailable(error.to_string());
        }
    }

    fn note(&self, taken: Result<Joules, String>) {
        *self.state() = State::Running { taken, at: Instant::now() };
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open() -> Result<Meter, String> {
    let mut meter = Meter::open(&Options::of_process());
    let is_live = meter.channels().iter().any(|it| it.class.is_in_total() && it.unavailable.is_none());
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

/// Joules of the node since `mark`; from the meter's start without one.
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

/// Core-seconds of a client's worker: all its threads, those of the drivers' CPU devices too. And of each device of the node, as far as they
/// can be told apart: the kernel counts by process, so only where there is one device.
pub(crate) fn cores(worker: u32, devices: &[String]) -> (Value, Value) {
    let (seconds, reason) = match penstock_energy::cores::of_process(worker) {
        Ok(time) => (Some(time.as_secs_f64()), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let of_device = |device: &String| match devices {
        [_] => json!({ "device": device, "core_seconds": seconds, "unavailable": reason }),
        _ => json!({
            "device": device,
            "core_seconds": null,
            "unavailable": "the worker's devices share its threads",
        }),
    };
    (json!({ "busy": seconds, "unavailable": reason }), devices.iter().map(of_device).collect())
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
        *account.state() = State::Running { taken: Ok(Joules::new()), at: long_ago };
        assert!(account.now().is_err_and(|why| why.contains("20 s")));
    }

    #[test]
    fn core_time_is_a_processs_and_a_devices_only_where_it_is_alone() {
        let one = ["a".to_owned()];
        let (busy, devices) = cores(std::process::id(), &one);
        assert!(busy["busy"].as_f64().is_some_and(|seconds| seconds > 0.0), "{busy}");
        assert!(devices[0]["core_seconds"].is_f64(), "{devices}");
        let (_, devices) = cores(std::process::id(), &["a".to_owned(), "b".to_owned()]);
        assert!(devices[1]["core_seconds"].is_null() && devices[1]["unavailable"].is_string(), "{devices}");
        let (gone, _) = cores(u32::MAX, &one);
        assert!(gone["busy"].is_null() && gone["unavailable"].is_string(), "{gone}");
    }
}
