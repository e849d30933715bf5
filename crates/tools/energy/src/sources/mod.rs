//! The channels of a node, and the trial that distinguishes live counters from dead ones.
//!
//! | file | contains |
//! |---|---|
//! | `channel.rs` | what all sources say of a channel |
//! | `kernel_file.rs` | files in which the kernel shows numbers and names |
//! | `hwmon.rs`, `nvml.rs`, `perf.rs`, `powercap.rs` | one source each |

mod channel;
mod hwmon;
mod kernel_file;
mod nvml;
mod nvml_library;
mod perf;
mod powercap;

use std::time::{Duration, Instant};

use self::channel::RAPL_STEP;
pub(crate) use self::channel::{ChannelInfo, FoundChannel, LiveChannel, Scale};
use crate::component::Method;
use crate::options::Options;
use crate::reason::Reason;

/// Finds all channels of the node, the most trusted sources first. Takes up to [`Options::watch`]
/// if a counter does not advance.
pub(crate) fn find(options: &Options) -> Vec<FoundChannel> {
    let mut found = nvml::find(options);
    found.extend(powercap::find(options));
    found.extend(perf::find(options));
    found.extend(hwmon::find(options));
    try_all(&mut found, options.watch);
    found
}

/// Detects dead channels: a counter must advance, and a power must not be 0. This thread spins, so
/// that not all cores sleep.
fn try_all(found: &mut [FoundChannel], watch: Duration) {
    let began = Instant::now();
    let mut waiting = Vec::new();
    for (index, it) in found.iter_mut().enumerate() {
        let Ok(live) = &mut it.state else { continue };
        match live.sensor.read() {
            Ok(0) => waiting.push((index, 0)),
            Ok(first) if it.info.method == Method::Counter => waiting.push((index, first)),
            Ok(_) => {}
            Err(reason) => it.state = Err(reason),
        }
    }
    while !waiting.is_empty() {
        spin_until(Instant::now() + RAPL_STEP);
        let seconds = began.elapsed().as_secs_f64();
        let is_over = began.elapsed() >= watch;
        waiting.retain(|&(index, first)| {
            let Some(it) = found.get_mut(index) else { return false };
            let Ok(live) = &mut it.state else { return false };
            match live.sensor.read() {
                Ok(value) if value != first => return false,
                Ok(value) if is_over => {
                    it.state = Err(Reason::Dead { what: it.info.detail.clone(), value, seconds });
                }
                Ok(_) => {}
                Err(reason) => it.state = Err(reason),
            }
            it.state.is_ok()
        });
    }
}

fn spin_until(end: Instant) {
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::channel::Sensor;
    use super::*;
    use crate::component::{Class, Component, Source};

    /// A sensor that returns its values one after the other, and then the last one for ever.
    #[derive(Debug)]
    struct Script(Vec<u64>);

    impl Sensor for Script {
        fn read(&mut self) -> Result<u64, Reason> {
            if self.0.len() > 1 { Ok(self.0.remove(0)) } else { Ok(self.0[0]) }
        }
    }

    fn found(method: Method, values: &[u64]) -> FoundChannel {
        FoundChannel {
            info: ChannelInfo {
                component: Component::new(Class::Package, "package-0"),
                source: Source::Perf,
                method,
                detail: "x".to_owned(),
                step: RAPL_STEP,
            },
            state: Ok(LiveChannel {
                sensor: Box::new(Script(values.to_vec())),
                scale: Scale { per_unit: 1.0, wraps_after: None },
            }),
        }
    }

    #[test]
    fn what_does_not_advance_is_dead_and_what_does_is_not() {
        let mut all = [
            found(Method::Counter, &[0, 0, 0]),
            found(Method::Counter, &[7]),
            found(Method::Counter, &[7, 7, 7, 8, 8]),
            found(Method::Samples, &[5]),
            found(Method::Samples, &[0]),
        ];
        try_all(&mut all, Duration::from_millis(30));
        let states: Vec<_> =
            all.iter().map(|it| it.state.as_ref().err().map_or("live", Reason::kind)).collect();
        assert_eq!(states, ["dead_counter", "dead_counter", "live", "live", "dead_counter"]);
        let Err(Reason::Dead { value: 7, seconds, .. }) = all[1].state else {
            panic!("{:?}", all[1])
        };
        assert!(seconds >= 0.03, "{seconds}");
    }

    #[test]
    fn a_trial_ends_at_once_where_all_is_alive() {
        let longest = 2 * penstock_trial::patience();
        let mut all = [found(Method::Counter, &[1, 2])];
        penstock_trial::in_time("a trial", || try_all(&mut all, longest));
    }
}
