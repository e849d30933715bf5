//! Conversion of one channel's readings to joules. Uses no clock: the caller gives the times.

use std::time::Duration;

use crate::component::Method;
use crate::reason::Reason;
use crate::sources::Scale;

/// Maximum power of a RAPL domain in watts: four times the largest package of today. A counter must
/// be read before that power could make it wrap.
pub(crate) const DOMAIN_WATTS_MAX: f64 = 2000.0;
/// Maximum time that a single step of a counter may account for: ten steps of RAPL.
const STEP_SECONDS_MAX: f64 = 0.01;

/// Result of one channel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Taken {
    pub(crate) joules: f64,
    /// Seconds from the first to the last reading.
    pub(crate) seconds: f64,
    pub(crate) readings: u64,
    /// Smallest and largest power in watts. Only for samples.
    pub(crate) watts: Option<(f64, f64)>,
    /// Whether readings were so far apart that a wrap, and so joules, may have been missed.
    pub(crate) may_lack_wraps: bool,
}

/// Adds up one channel from start to stop.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    method: Method,
    scale: Scale,
    first_at: Option<Duration>,
    last: Option<(Duration, u64)>,
    /// For a counter: units since the start.
    units: u128,
    /// For samples: the integral until now.
    joules: f64,
    readings: u64,
    watts: Option<(f64, f64)>,
    may_lack_wraps: bool,
    fault: Option<Reason>,
}

impl Tally {
    pub(crate) fn new(method: Method, scale: Scale) -> Self {
        Self {
            method,
            scale,
            first_at: None,
            last: None,
            units: 0,
            joules: 0.0,
            readings: 0,
            watts: None,
            may_lack_wraps: false,
            fault: None,
        }
    }

    /// Adds a reading taken at `at`, on a clock that never goes back. After a fault, nothing is
    /// added because joules are missing.
    pub(crate) fn add(&mut self, at: Duration, reading: Result<u64, Reason>) {
        if self.fault.is_some() {
            return;
        }
        let value = match reading {
            Ok(value) => value,
            Err(reason) => {
                self.fault = Some(reason);
                return;
            }
        };
        let before = self.last.replace((at, value));
        self.first_at.get_or_insert(at);
        self.readings += 1;
        match self.method {
            Method::Counter => self.count(before, at, value),
            Method::Samples => self.integrate(before, at, value),
        }
    }

    fn count(&mut self, before: Option<(Duration, u64)>, at: Duration, to: u64) {
        let Some((before_at, from)) = before else { return };
        let Some(range) = self.scale.wraps_after else {
            match to.checked_sub(from) {
                Some(units) => self.units += u128::from(units),
                None => self.fault = Some(Reason::Reset { from, to }),
            }
            return;
        };
        let apart = at.saturating_sub(before_at).as_secs_f64();
        self.may_lack_wraps |= apart * DOMAIN_WATTS_MAX > to_f64(range) * self.scale.per_unit;
        if let Some(units) = to.checked_sub(from) {
            self.units += u128::from(units);
            return;
        }
        // The rest up to the wrap, and what came after it.
        let units = range.saturating_sub(from).saturating_add(to);
        let most = (apart + STEP_SECONDS_MAX) * DOMAIN_WATTS_MAX;
        if to_f64(units) * self.scale.per_unit > most {
            // No power explains the difference: the counter was reset, for example by a suspension
            // or a reloaded driver.
            self.fault = Some(Reason::Reset { from, to });
        } else {
            self.units += u128::from(units);
        }
    }

    fn integrate(&mut self, before: Option<(Duration, u64)>, at: Duration, value: u64) {
        let watts = to_f64(value) * self.scale.per_unit;
        let (least, most) = self.watts.unwrap_or((watts, watts));
        self.watts = Some((least.min(watts), most.max(watts)));
        if let Some((before_at, before)) = before {
            // Trapezoidal rule: the power is assumed to change evenly between two samples.
            let before = to_f64(before) * self.scale.per_unit;
            self.joules += (before + watts) / 2.0 * at.saturating_sub(before_at).as_secs_f64();
        }
    }

    /// Returns the result. A counter that did not advance at all in `watch` or longer has stopped.
    pub(crate) fn taken(&self, watch: Duration) -> Result<Taken, Reason> {
        if let Some(reason) = &self.fault {
            return Err(reason.clone());
        }
        let (Some(first_at), Some((last_at, _))) = (self.first_at, self.last) else {
            return Err(Reason::NotMeasured("it was not read"));
        };
        let apart = last_at.saturating_sub(first_at);
        let seconds = apart.as_secs_f64();
        if self.method == Method::Counter && self.units == 0 && apart >= watch {
            return Err(Reason::Stopped { seconds });
        }
        let joules = match self.method {
            #[expect(clippy::cast_precision_loss, reason = "a part in 2^53 of the joules")]
            Method::Counter => self.units as f64 * self.scale.per_unit,
            Method::Samples => self.joules,
        };
        let Self { readings, watts, may_lack_wraps, .. } = *self;
        Ok(Taken { joules, seconds, readings, watts, may_lack_wraps })
    }

    /// Returns how soon the channel must be read again: half of the shortest time until it wraps.
    /// `None` if it does not wrap.
    pub(crate) fn reading_due(scale: Scale) -> Option<Duration> {
        let joules = to_f64(scale.wraps_after?) * scale.per_unit;
        Duration::try_from_secs_f64(joules / DOMAIN_WATTS_MAX / 2.0).ok()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a part in 2^53 of the value")]
fn to_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const WATCH: Duration = Duration::from_secs(1);

    fn counter(wraps_after: Option<u64>) -> Tally {
        Tally::new(Method::Counter, Scale { per_unit: 1e-6, wraps_after })
    }

    fn add(tally: &mut Tally, ms: u64, value: u64) {
        tally.add(Duration::from_millis(ms), Ok(value));
    }

    #[test]
    fn a_counter_is_its_difference() {
        let mut tally = counter(None);
        add(&mut tally, 0, 5_000_000);
        add(&mut tally, 2_000, 25_000_000);
        let taken = tally.taken(WATCH).unwrap();
        assert!(
            (taken.joules - 20.0).abs() < 1e-9 && (taken.seconds - 2.0).abs() < 1e-9,
            "{taken:?}"
        );
    }

    #[test]
    fn every_wrap_is_counted() {
        let range = 262_143_328_850;
        let mut tally = counter(Some(range));
        let mut sum: u128 = 0;
        let mut value = 12;
        add(&mut tally, 0, value);
        for step in 1..=1000_u64 {
            // Up to 1.3 kW, read every 100 s.
            let units = range / 10 * (1 + step % 5);
            sum += u128::from(units);
            value = if value + units > range { value + units - range } else { value + units };
            add(&mut tally, step * 100_000, value);
        }
        assert_eq!(tally.units, sum);
        assert!(!tally.taken(WATCH).unwrap().may_lack_wraps);
        // If readings are further apart than the range lasts, the result says so.
        add(&mut tally, 100_200_000, value);
        assert!(tally.taken(WATCH).unwrap().may_lack_wraps);
    }

    #[test]
    fn a_counter_that_wraps_too_early_was_reset() {
        let mut tally = counter(Some(262_143_328_850));
        add(&mut tally, 0, 100_000_000_000);
        add(&mut tally, 1000, 100_050_000_000);
        // As a wrap, this would be 162 kJ in a second.
        add(&mut tally, 2000, 7);
        assert_eq!(tally.taken(WATCH), Err(Reason::Reset { from: 100_050_000_000, to: 7 }));
    }

    #[test]
    fn a_counter_that_does_not_wrap_must_not_go_back() {
        let mut tally = counter(None);
        add(&mut tally, 0, 10);
        add(&mut tally, 1, 9);
        add(&mut tally, 2, 20);
        assert_eq!(tally.taken(WATCH), Err(Reason::Reset { from: 10, to: 9 }));
    }

    #[test]
    fn a_counter_that_stops_is_not_zero_joules() {
        let mut tally = counter(None);
        add(&mut tally, 0, 10);
        add(&mut tally, 999, 10);
        assert!(tally.taken(WATCH).unwrap().joules.abs() < 1e-12, "too short to know");
        add(&mut tally, 1000, 10);
        assert!(matches!(tally.taken(WATCH), Err(Reason::Stopped { .. })));
    }

    #[test]
    fn samples_are_integrated_over_uneven_times() {
        let mut tally = Tally::new(Method::Samples, Scale { per_unit: 1e-3, wraps_after: None });
        // A ramp from 0 to 100 W in 10 s, sampled at uneven times: 500 J.
        for ms in [0, 10, 500, 4_000, 4_001, 9_999, 10_000] {
            add(&mut tally, ms, ms * 10);
        }
        let taken = tally.taken(WATCH).unwrap();
        assert!((taken.joules - 500.0).abs() < 1e-6, "{taken:?}");
        assert_eq!(taken.watts, Some((0.0, 100.0)));
    }

    #[test]
    fn a_fault_is_kept() {
        let mut tally = counter(None);
        add(&mut tally, 0, 1);
        tally.add(Duration::from_millis(1), Err(Reason::NoDevice("x")));
        add(&mut tally, 2, 9);
        assert_eq!(tally.taken(WATCH), Err(Reason::NoDevice("x")));
        assert!(matches!(counter(None).taken(WATCH), Err(Reason::NotMeasured(_))));
    }

    #[test]
    fn what_can_wrap_is_read_in_time() {
        let due = |uj| Tally::reading_due(Scale { per_unit: 1e-6, wraps_after: Some(uj) }).unwrap();
        // A package of Intel's and one of AMD's.
        assert_eq!(due(262_143_328_850).as_secs(), 65);
        assert_eq!(due(65_532_610_987).as_secs(), 16);
        assert_eq!(Tally::reading_due(Scale { per_unit: 1e-6, wraps_after: None }), None);
    }
}
