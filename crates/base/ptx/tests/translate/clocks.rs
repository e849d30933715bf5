//! Registers that count time.

use std::time::{Duration, Instant};

use super::{BASE, FREE, HEAD, OUT, kernel, machines};

/// Pause between two launches, so that the duration of a launch does not hide a wrong unit.
const PAUSE: Duration = Duration::from_millis(20);

/// The test takes the time before and after each launch, so the difference of the two values lies
/// between two times that the host knows.
#[test]
fn the_global_timer_counts_nanoseconds() {
    let parts = "mov.u32 %r2, %globaltimer_lo; mov.u32 %r3, %globaltimer_hi; cvt.u64.u32 %rd2, %r3; shl.b64 %rd2, %rd2, 32; cvt.u64.u32 %rd3, %r2; or.b64 %rd1, %rd2, %rd3;";
    for read in ["mov.u64 %rd1, %globaltimer;", parts] {
        let text = format!("{HEAD}{}", kernel(&format!("{read} st.global.u64 [%out], %rd1; ret;")));
        for machine in machines() {
            let ready =
                machine.build(&text).unwrap_or_else(|error| panic!("{}: {error}", machine.name));
            let look = || {
                let before = Instant::now();
                machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, 0], 1, 1, 0);
                let bytes = machine.read(OUT, 8);
                let value = u64::from_le_bytes(bytes.as_slice().try_into().unwrap());
                (before, value, Instant::now())
            };
            let (began, first, between) = look();
            std::thread::sleep(PAUSE);
            let (again, second, ended) = look();
            let passed = Duration::from_nanos(second - first);
            let (least, most) = (again - between, ended - began);
            assert!(
                passed >= least && passed <= most,
                "{}: {passed:?}, not {least:?} to {most:?}",
                machine.name
            );
        }
    }
}
