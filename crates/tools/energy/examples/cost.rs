//! Measures what readings cost, for programs that keep a meter running or account for clients.

use std::time::Instant;

use penstock_energy::cores::{self, Host};
use penstock_energy::{Meter, Options, Roots};

const ROUNDS: u32 = 10_000;

fn time(what: &str, mut body: impl FnMut()) {
    let began = Instant::now();
    for _ in 0..ROUNDS {
        body();
    }
    let micros = began.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
    println!("{what:40} {micros:8.2} us");
}

fn main() -> Result<(), penstock_energy::Error> {
    let pid = std::process::id();
    let roots = Roots::of_process();
    time("core-seconds of a process", || _ = cores::of_process(pid));
    time("core-seconds of the host", || _ = Host::read(&roots));
    let mut meter = Meter::open(&Options::of_process());
    let live = meter.channels().iter().filter(|it| it.unavailable.is_none()).count();
    meter.start()?;
    time(&format!("a report of {live} live channels"), || _ = meter.report_so_far());
    meter.stop()
}
