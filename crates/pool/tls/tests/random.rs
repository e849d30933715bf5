//! The price of a first random number, in a process of its own.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use rustix::time::{ClockId, clock_gettime};

/// Every client pays this when it starts, encrypted or not: its hello has random bytes.
/// `.cargo/config.toml` keeps the library from measuring the noise of the processor, which takes
/// 30 ms. A build that does not read that file has no other fault than this.
#[test]
#[ignore = "perf: time of the processor"]
fn perf_a_first_random_number_is_there_at_once() {
    let cpu_ns = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    let before = cpu_ns();
    SystemRandom::new().fill(&mut [0; 16]).unwrap();
    let took = cpu_ns() - before;
    assert!(took < 5_000_000, "it took {took} ns of the processor");
}
