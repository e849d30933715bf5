//! One figure, and its cost.

use penstock_energy::{Meter, Options, Report};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::plan::{Kind, Path};

/// A figure of one path, for one message size or number of devices. Times are in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub kind: Kind,
    pub path: Path,
    /// Bytes per message; 0 for barriers.
    pub bytes: u64,
    /// Number of devices that took part.
    pub devices: u32,
    /// Number of samples behind the median.
    pub samples: u64,
    /// Number of messages (one way) or barriers that were measured.
    pub count: u64,
    /// Median time: half a round trip, one message of a stream, or one barrier.
    pub us: f64,
    /// Mean of these times.
    pub us_mean: f64,
    /// A tenth of the samples was shorter.
    pub us_p10: f64,
    /// A tenth of the samples was longer.
    pub us_p90: f64,
    /// Bytes divided by the median time, in 10^6 per second; `None` for barriers.
    pub mb_s: Option<f64>,
    /// Core time of all processes that took part, per message or barrier.
    pub core_us: Option<f64>,
    pub energy: Energy,
    /// Description of the way, if there was a choice.
    pub way: Option<String>,
    /// Number of message stamps that were compared. All of them were right.
    pub checked: u64,
}

/// Energy per word of a message, or per barrier.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Energy {
    /// Energy of everything that `covered` names.
    pub joules: Option<f64>,
    /// Energy without what the same components take when idle.
    pub net_joules: Option<f64>,
    /// Mean power, in watts.
    pub watts: Option<f64>,
    /// Components that are measured.
    pub covered: Vec<String>,
    /// Components that are not measured.
    pub missing: Vec<String>,
    /// Why there are no figures.
    pub unavailable: Option<String>,
}

/// Times of single samples, in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Keeps the valid samples, sorted.
    #[must_use]
    pub fn of(mut samples: Vec<f64>) -> Self {
        samples.retain(|sample| sample.is_finite() && *sample >= 0.0);
        samples.sort_by(f64::total_cmp);
        Self(samples)
    }

    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value below which `part` of the samples lie.
    #[must_use]
    pub fn quantile(&self, part: f64) -> f64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index: far below 2^52"
        )]
        let index = (part * self.0.len().saturating_sub(1) as f64).round() as usize;
        self.0.get(index).copied().unwrap_or(f64::NAN)
    }

    #[must_use]
    pub fn mean(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let count = self.0.len() as f64;
        self.0.iter().sum::<f64>() / count
    }
}

/// The result of one run of a measurement.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Times of one message or barrier each, in microseconds.
    pub samples: Samples,
    /// Number of messages or barriers in the run.
    pub count: u64,
    /// Core time of all processes that took part, in seconds.
    pub core_seconds: Option<f64>,
    /// Number of stamps that were compared.
    pub checked: u64,
}

impl Point {
    /// Makes the figure of a run.
    #[must_use]
    pub fn of(kind: Kind, path: Path, bytes: u64, devices: u32, run: &Run, energy: Energy) -> Self {
        let us = run.samples.quantile(0.5);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let (size, count) = (bytes as f64, run.count.max(1) as f64);
        Self {
            kind,
            path,
            bytes,
            devices,
            samples: run.samples.len(),
            count: run.count,
            us,
            us_mean: run.samples.mean(),
            us_p10: run.samples.quantile(0.1),
            us_p90: run.samples.quantile(0.9),
            mb_s: (kind != Kind::Barrier).then_some(size / us),
            core_us: run.core_seconds.map(|seconds| seconds * 1e6 / count),
            energy,
            way: None,
            checked: run.checked,
        }
    }
}

/// Measures the energy of runs. The energy is that of the whole host.
#[derive(Debug)]
pub struct Joules {
    meter: Meter,
    why_not: Option<String>,
    step_s: f64,
}

/// Shortest measurement of energy, in seconds.
const SECONDS_MIN: f64 = 2.0;
/// Shortest measurement of energy, in steps of the slowest counter. One step is then 1 % of the
/// result.
const STEPS_MIN: f64 = 100.0;

impl Joules {
    /// Opens the counters, and measures idle power if there are any. Sleeps during that
    /// measurement.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started.
    pub fn open(idle_seconds: f64) -> Result<Self> {
        let mut meter = Meter::open(&Options::of_process());
        let steps = live_steps(&meter);
        let step_s = steps.iter().copied().fold(0.0, f64::max);
        let why_not = steps.is_empty().then(|| "no counter of this host can be read".to_owned());
        if why_not.is_none() && idle_seconds > 0.0 {
            meter.idle(std::time::Duration::from_secs_f64(idle_seconds))?;
        }
        Ok(Self { meter, why_not, step_s })
    }

    #[must_use]
    pub fn are_there() -> bool {
        !live_steps(&Meter::open(&Options::of_process())).is_empty()
    }

    /// Returns the shortest run with a meaningful energy, or `None` without counters.
    #[must_use]
    pub fn seconds_min(&self) -> Option<f64> {
        self.why_not.is_none().then_some(SECONDS_MIN.max(STEPS_MIN * self.step_s))
    }

    /// Runs `run` and divides its energy by `parts` of the result: a number of words or barriers.
    ///
    /// # Errors
    /// Returns those of `run` and of the counters.
    pub fn around(
        &mut self,
        run: impl FnOnce() -> Result<Run>,
        parts: impl FnOnce(&Run) -> f64,
    ) -> Result<(Run, Energy)> {
        self.meter.start()?;
        let done = run();
        self.meter.stop()?;
        let done = done?;
        let energy = Energy::of(&self.meter.report()?, parts(&done), self.why_not.as_deref());
        Ok((done, energy))
    }
}

/// Returns the seconds between two changes of the value of each counter that can be read and
/// belongs to the total.
fn live_steps(meter: &Meter) -> Vec<f64> {
    let channels = meter.channels();
    let live = channels.iter().filter(|it| it.class.is_in_total() && it.unavailable.is_none());
    live.map(|it| it.step_s).collect()
}

impl Energy {
    fn of(report: &Report, parts: f64, why_not: Option<&str>) -> Self {
        let total = &report.total;
        let reason =
            |it: &penstock_energy::Missing| format!("{}: {}", it.component, it.reasons.join("; "));
        let missing: Vec<_> = total.missing.iter().map(reason).collect();
        let unavailable = (total.joules.is_none()).then(|| {
            let told = total.unavailable.clone().or_else(|| why_not.map(str::to_owned));
            told.unwrap_or_else(|| "no counter of this host can be read".to_owned())
        });
        Self {
            joules: total.joules.map(|joules| joules / parts),
            net_joules: total.net_joules.map(|joules| joules / parts),
            watts: total.mean_watts,
            covered: total.covered.clone(),
            missing,
            unavailable,
        }
    }
}

/// Returns the number of words in `count` messages. For barriers, returns `count`.
#[must_use]
pub fn parts(kind: Kind, bytes: u64, word: u64, count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a quotient")]
    let (words, count) = (bytes as f64 / word.max(1) as f64, count.max(1) as f64);
    if kind == Kind::Barrier { count } else { words * count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_sorted_samples_and_bandwidth_is_by_them() {
        let samples = Samples::of(vec![5.0, 1.0, f64::NAN, 3.0, 2.0, 100.0]);
        assert_eq!((samples.len(), samples.quantile(0.5)), (5, 3.0));
        let run = Run { samples, count: 10, core_seconds: Some(1e-3), checked: 0 };
        let point = Point::of(Kind::Bandwidth, Path::Device, 600, 2, &run, Energy::default());
        assert_eq!((point.mb_s, point.core_us), (Some(200.0), Some(100.0)));
        assert!(Samples::default().quantile(0.5).is_nan());
    }

    #[test]
    fn energy_is_by_word_or_by_barrier() {
        assert_eq!(parts(Kind::PingPong, 64, 8, 10), 80.0);
        assert_eq!(parts(Kind::Bandwidth, 8, 16, 10), 5.0);
        assert_eq!(parts(Kind::Barrier, 0, 8, 10), 10.0);
    }
}
