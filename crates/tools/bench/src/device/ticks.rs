//! The processor's clock, which kernels of this host's CPU devices read, too.

use std::time::{Duration, Instant};

/// How long two clocks are compared. Each is read within 100 ns, so the result is exact to one part
/// in 10^5.
const COMPARED: Duration = Duration::from_millis(20);

/// Returns the ticks now, or `None` if kernels have no such clock.
#[cfg(target_arch = "x86_64")]
fn now() -> Option<u64> {
    // Without this flag the clock may stop or change its speed.
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if !flags.contains("constant_tsc") {
        return None;
    }
    Some(raw())
}

#[cfg(target_arch = "x86_64")]
fn raw() -> u64 {
    // SAFETY: each x86-64 processor has the instruction, and Linux lets programs use it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
fn now() -> Option<u64> {
    Some(raw())
}

#[cfg(target_arch = "aarch64")]
fn raw() -> u64 {
    let ticks: u64;
    // SAFETY: the instruction only reads a register that programs may read.
    unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks) };
    ticks
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn now() -> Option<u64> {
    None
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn raw() -> u64 {
    0
}

/// Returns the ticks per microsecond, or `None` if kernels have no such clock.
#[must_use]
pub fn per_us() -> Option<f64> {
    now()?;
    let (began, first) = (Instant::now(), raw());
    std::thread::sleep(COMPARED);
    let (us, last) = (began.elapsed().as_secs_f64() * 1e6, raw());
    #[expect(clippy::cast_precision_loss, reason = "ticks of milliseconds")]
    let ticks = last.saturating_sub(first) as f64;
    (ticks > 0.0).then_some(ticks / us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_go_on_with_the_time() {
        let Some(per_us) = per_us() else {
            use penstock_trial::{Need, skip};
            skip(Need::Clock, "no clock that kernels and host share");
            return;
        };
        // From the slow counters of Arm (1 MHz) to the fastest processors.
        assert!((0.9..10_000.0).contains(&per_us), "{per_us}");
    }

    #[test]
    #[ignore = "perf: two measurements of the same rate"]
    fn perf_ticks_have_one_rate() {
        let Some(per_us) = per_us() else { return };
        let again = super::per_us().unwrap();
        assert!((again / per_us - 1.0).abs() < 0.05, "{per_us} {again}");
    }
}
