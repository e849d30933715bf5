//! The meter's thread exists only while something must be sampled, and it sleeps. This test is
//! alone in its process because it counts threads.

mod common;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use common::{Dial, Mill, Tree};
use penstock_energy::{Meter, Options, cores};

fn samplers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks
        .filter(|task| {
            fs::read_to_string(task.path().join("comm"))
                .is_ok_and(|name| name == "penstock-energy\n")
        })
        .count()
}

/// Waits for a number of sampler threads. A thread names itself when it begins, and stays listed
/// for a moment after its end.
fn samplers_become(count: usize) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    while samplers() != count && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    samplers() == count
}

#[test]
fn there_is_one_thread_while_power_is_sampled_and_it_sleeps() {
    let tree = Tree::new();
    // Counters that do not wrap need no reading in between.
    let counters = tree.pmu(&[("energy-pkg", 2)], &[0]);
    let mill = Mill::start(counters.into_iter().map(|dial| (dial, 1 << 32)).collect());
    let mut plain = Meter::open(&tree.options());
    plain.start().unwrap();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(samplers(), 0);
    plain.stop().unwrap();

    tree.nvml("nvml.c");
    tree.put("gpus", "4\n");
    let mut powers: Vec<_> =
        (0..4).map(|card| Dial::new(&tree.put(&format!("gpu{card}.power"), ""), None)).collect();
    powers.iter_mut().for_each(|power| power.set(50_000));
    let mut sampled =
        Meter::open(&Options { interval: Duration::from_millis(20), ..tree.options() });
    drop(mill);
    assert_eq!(samplers(), 0);
    sampled.start().unwrap();
    assert!(samplers_become(1));
    let began = cores::of_process(std::process::id()).unwrap();
    thread::sleep(Duration::from_millis(1000));
    let used = cores::of_process(std::process::id()).unwrap() - began;
    // 50 samples of 4 cards, through files and in a debug build.
    assert!(used < Duration::from_millis(200), "{used:?}");
    sampled.stop().unwrap();
    assert!(samplers_become(0));

    // A running meter that is dropped ends its thread at once.
    let mut dropped = Meter::open(&Options { interval: Duration::from_secs(60), ..tree.options() });
    dropped.start().unwrap();
    assert!(samplers_become(1));
    let began = Instant::now();
    drop(dropped);
    assert!(samplers_become(0) && began.elapsed() < Duration::from_secs(10));
}
