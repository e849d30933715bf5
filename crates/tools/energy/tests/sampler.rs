//! The meter's thread exists only while something must be sampled, and it sleeps. These tests
//! are alone in their process because they count threads.

mod common;

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use common::{Dial, Mill, Tree};
use penstock_energy::{Meter, Options, cores};
use penstock_trial::{patience, wait_for};

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
fn samplers_become(count: usize) {
    wait_for(&format!("{count} samplers"), || samplers() == count);
}

/// One test at a time has samplers.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds four cards to a node.
fn cards(tree: &Tree) {
    tree.nvml("nvml.c");
    tree.put("gpus", "4\n");
    for card in 0..4 {
        Dial::new(&tree.put(&format!("gpu{card}.power"), ""), None).set(50_000);
    }
}

#[test]
fn there_is_one_thread_while_power_is_sampled() {
    let (tree, _alone) = (Tree::new(), alone());
    // Counters that do not wrap need no reading in between.
    let counters = tree.pmu(&[("energy-pkg", 2)], &[0]);
    let mill = Mill::start(counters.into_iter().map(|dial| (dial, 1 << 32)).collect());
    let mut plain = Meter::open(&tree.options());
    plain.start().unwrap();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(samplers(), 0);
    plain.stop().unwrap();

    cards(&tree);
    let mut sampled =
        Meter::open(&Options { interval: Duration::from_millis(20), ..tree.options() });
    drop(mill);
    assert_eq!(samplers(), 0);
    sampled.start().unwrap();
    samplers_become(1);
    sampled.stop().unwrap();
    samplers_become(0);

    // A running meter that is dropped ends its thread, however long that would sleep.
    let mut dropped = Meter::open(&Options { interval: 2 * patience(), ..tree.options() });
    dropped.start().unwrap();
    samplers_become(1);
    drop(dropped);
    samplers_become(0);
}

#[test]
#[ignore = "perf: a share of a core"]
fn perf_the_thread_sleeps_between_samples() {
    let (tree, _alone) = (Tree::new(), alone());
    cards(&tree);
    let mut sampled =
        Meter::open(&Options { interval: Duration::from_millis(20), ..tree.options() });
    sampled.start().unwrap();
    samplers_become(1);
    let began = cores::of_process(std::process::id()).unwrap();
    thread::sleep(Duration::from_millis(1000));
    let used = cores::of_process(std::process::id()).unwrap() - began;
    // 50 samples of 4 cards, through files and in a debug build.
    assert!(used < Duration::from_millis(200), "{used:?}");
}
