//! The world itself: it repeats what a seed says, and finds what nobody can end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use penstock_process::world::{Finding, Outcome, Rules, note, run, spawn, wait_until};
use penstock_process::{Lock, Signal, now, since, sleep};
use penstock_trial::Random;

fn world<T: Send + 'static>(seed: u64, program: impl FnOnce() -> T + Send + 'static) -> Outcome<T> {
    let mut random = Random::new(seed);
    run(Rules::default(), move || random.number(), program)
}

/// Two threads add to a list. Returns the list.
fn race() -> Vec<u32> {
    let list = Arc::new(Lock::new(Vec::new()));
    let threads = [1_u32, 2].map(|number| {
        let list = list.clone();
        spawn("adder", move || {
            for _ in 0..4 {
                list.lock().push(number);
            }
        })
    });
    threads.into_iter().for_each(|thread| thread.join());
    let list = list.lock();
    note(&list.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>());
    list.clone()
}

#[test]
fn a_seed_repeats_its_order_and_seeds_have_different_orders() {
    let mut orders = BTreeSet::new();
    for seed in 0..60 {
        let (one, other) = (world(seed, race), world(seed, race));
        assert_eq!(
            (&one.result, one.digest, one.steps),
            (&other.result, other.digest, other.steps)
        );
        assert!(one.left.is_empty());
        orders.insert(one.result.unwrap());
    }
    assert!(orders.len() >= 8, "{orders:?}");
}

/// Returns the findings of `count` seeds.
fn findings(count: u64, program: fn()) -> Vec<Finding> {
    (0..count).filter_map(|seed| world(seed, program).result.err()).collect()
}

#[test]
fn locks_in_two_orders_are_found_as_a_deadlock_in_some_orders() {
    let found = findings(100, || {
        let locks = Arc::new((Lock::new(()), Lock::new(())));
        let other = locks.clone();
        let thread = spawn("second first", move || {
            let _second = other.1.lock();
            drop(other.0.lock());
        });
        {
            let _first = locks.0.lock();
            drop(locks.1.lock());
        }
        thread.join();
    });
    assert!((1..100).contains(&found.len()), "{found:?}");
    for finding in found {
        let Finding::Deadlock(why) = finding else { panic!("{finding:?}") };
        assert!(
            why.contains("second first waits for a lock at ") && why.contains("world.rs"),
            "{why}"
        );
    }
}

#[test]
fn a_condition_that_is_looked_at_without_its_lock_loses_a_notification() {
    let found = findings(200, || {
        let shared = Arc::new((Lock::new(false), Signal::new()));
        let told = shared.clone();
        spawn("teller", move || {
            *told.0.lock() = true;
            told.1.notify_all();
        });
        let is_ready = *shared.0.lock();
        if !is_ready {
            drop(shared.1.wait(shared.0.lock()));
        }
    });
    assert!((1..200).contains(&found.len()), "{}", found.len());
    assert!(found.iter().all(|it| matches!(it, Finding::Deadlock(_))));
}

#[test]
fn a_notification_that_nobody_sends_is_found_at_once() {
    let found = findings(5, || {
        let (lock, signal) = (Lock::new(()), Signal::new());
        drop(signal.wait(lock.lock()));
    });
    assert_eq!(found.len(), 5);
}

#[test]
fn one_notification_wakes_one_thread_and_the_seed_says_which() {
    let program = || {
        let shared = Arc::new((Lock::new(Vec::new()), Signal::new()));
        for name in ["a", "b"] {
            let shared = shared.clone();
            spawn(name, move || {
                let mut woken = shared.1.wait(shared.0.lock());
                woken.push(name);
            });
        }
        sleep(Duration::from_secs(1));
        shared.1.notify_one();
        sleep(Duration::from_secs(1));
        shared.0.lock().clone()
    };
    let mut woken = BTreeSet::new();
    for seed in 0..40 {
        let outcome = world(seed, program);
        woken.insert(outcome.result.unwrap());
        assert_eq!(outcome.left.len(), 1);
    }
    assert_eq!(woken, [vec!["a"], vec!["b"]].into());
}

#[test]
fn an_hour_of_waiting_takes_no_time() {
    let outcome = world(1, || {
        let (began, hour) = (now(), Duration::from_secs(3600));
        let (lock, signal) = (Lock::new(()), Signal::new());
        let (_guard, waited) = signal.wait_timeout_while(lock.lock(), hour, |()| true);
        assert!(waited.timed_out());
        sleep(hour);
        assert_eq!(wait_until(Some(now() + hour), Box::new(|| false)), Some(false));
        since(began)
    });
    assert_eq!(outcome.result.unwrap().as_secs() / 3600, 3);
}

#[test]
fn a_panic_ends_the_world_and_names_the_thread() {
    let outcome = world(3, || spawn("unlucky", || panic!("a planted panic")).join());
    assert_eq!(outcome.result, Err(Finding::Panic("unlucky: a planted panic".to_owned())));
}

#[test]
fn threads_without_an_end_are_found() {
    let program = || {
        spawn("busy", || {
            loop {
                _ = now();
            }
        })
        .join()
    };
    let rules = Rules { steps_max: 10_000, ..Rules::default() };
    let outcome = run(rules, || 0, program);
    assert!(matches!(outcome.result, Err(Finding::Endless(why)) if why.contains("busy can run")));
}

#[test]
fn locks_and_signals_serve_threads_of_no_world() {
    let (is_ready, changed) = (Lock::new(false), Signal::new());
    std::thread::scope(|scope| {
        scope.spawn(|| drop(changed.wait_while(is_ready.lock(), |is_ready| !*is_ready)));
        *is_ready.lock() = true;
        changed.notify_all();
    });
    let most = Duration::from_millis(1);
    assert!(changed.wait_timeout_while(is_ready.lock(), most, |_| true).1.timed_out());
    assert!(wait_until(None, Box::new(|| true)).is_none());
    let guard = is_ready.lock();
    assert!(is_ready.try_lock().is_none());
    assert_eq!(format!("{is_ready:?} {guard:?}"), "Lock(<locked>) true");
}
