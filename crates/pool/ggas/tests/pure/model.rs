//! All interleavings of the protocols in the memory model of C11, which allows more than current
//! processors: the ring between kernels and proxy, signals, barriers between PEs, and barriers
//! between the work-groups of a PE.
//!
//! The kernels' part is written here as in `include/ggas.h`; the proxy's side of the ring is the
//! real one. Each model has a weakened variant that must fail, to show that defects are found.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use penstock_ggas::proxy::ring::{Reader, Word};

/// Maximum number of interruptions in one run. Most faults need one or two, and two keep the tests
/// within seconds. `LOOM_MAX_PREEMPTIONS` sets another number.
const INTERRUPTIONS: usize = 2;
/// Limit on the steps of one run, because waits look again and again.
const STEPS_MAX: usize = 20_000;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(INTERRUPTIONS));
    builder.max_branches = STEPS_MAX;
    builder.check(model);
}

struct Sequence(AtomicU64, Ordering);

impl Word for Sequence {
    fn acquire(&self) -> u64 {
        self.0.load(self.1)
    }

    fn release(&self, value: u64) {
        self.0.store(value, if self.1 == Relaxed { Relaxed } else { Release });
    }
}

const ENTRIES: u64 = 2;

struct Ring {
    tail: AtomicU64,
    sequences: Vec<Sequence>,
    values: Vec<UnsafeCell<u64>>,
    /// Ordering with which a kernel publishes an entry.
    publish: Ordering,
}

impl Ring {
    fn new(look: Ordering, publish: Ordering) -> Self {
        Self {
            tail: AtomicU64::new(0),
            sequences: (0..ENTRIES).map(|at| Sequence(AtomicU64::new(at), look)).collect(),
            values: (0..ENTRIES).map(|_| UnsafeCell::new(0)).collect(),
            publish,
        }
    }

    /// Does the same as `ggas_raw_post`.
    fn post(&self, value: u64) {
        loop {
            let at = self.tail.load(Acquire);
            let entry = usize::try_from(at % ENTRIES).unwrap();
            let sequence = self.sequences[entry].0.load(Acquire);
            if sequence == at {
                if self.tail.compare_exchange(at, at + 1, AcqRel, Relaxed).is_err() {
                    continue;
                }
                // SAFETY: the model checker reports a concurrent access.
                self.values[entry].with_mut(|place| unsafe { *place = value });
                self.sequences[entry].0.store(at + 1, self.publish);
                return;
            }
            thread::yield_now();
        }
    }

    /// Takes `count` entries in order, as the proxy does.
    fn take(&self, count: usize) -> Vec<u64> {
        let mut reader = Reader::new(ENTRIES);
        let mut taken = Vec::new();
        while taken.len() < count {
            let entry = reader.index();
            let Some(position) = reader.filled(&self.sequences[entry]) else {
                thread::yield_now();
                continue;
            };
            // SAFETY: as above.
            taken.push(self.values[entry].with(|place| unsafe { *place }));
            reader.step();
            reader.free(&self.sequences[entry], position);
        }
        taken
    }
}

/// Runs one kernel for each list of values; the proxy takes all.
fn ring(look: Ordering, publish: Ordering, kernels: &[&'static [u64]]) {
    let ring = Arc::new(Ring::new(look, publish));
    let threads: Vec<_> = kernels
        .iter()
        .map(|&values| {
            let ring = ring.clone();
            thread::spawn(move || values.iter().for_each(|value| ring.post(*value)))
        })
        .collect();
    let taken = ring.take(kernels.concat().len());
    for values in kernels {
        let of_this: Vec<u64> =
            taken.iter().copied().filter(|value| values.contains(value)).collect();
        assert_eq!(of_this, *values, "each kernel's order is kept, and nothing is lost");
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn the_ring_takes_from_several_kernels_at_once() {
    explore(|| ring(Acquire, Release, &[&[10], &[20]]));
}

#[test]
fn the_ring_waits_where_it_is_full() {
    explore(|| ring(Acquire, Release, &[&[10, 11, 12]]));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_ring_without_release_would_be_found() {
    explore(|| ring(Acquire, Relaxed, &[&[10]]));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_proxy_without_acquire_would_be_found() {
    explore(|| ring(Relaxed, Release, &[&[10]]));
}

/// Models put and signal, wait and read, and the answer that allows reuse of the source.
fn signal(store: Ordering, load: Ordering) {
    let shared = Arc::new((UnsafeCell::new(0_u64), AtomicU64::new(0), AtomicU64::new(0)));
    let theirs = shared.clone();
    let receiver = thread::spawn(move || {
        for round in 1..=2 {
            while theirs.1.load(load) < round {
                thread::yield_now();
            }
            // SAFETY: the model checker reports a concurrent write.
            assert_eq!(theirs.0.with(|place| unsafe { *place }), round * 7);
            theirs.2.store(round, store);
        }
    });
    for round in 1..=2 {
        // SAFETY: the model checker reports a concurrent access.
        shared.0.with_mut(|place| unsafe { *place = round * 7 });
        shared.1.store(round, store);
        while shared.2.load(load) < round {
            thread::yield_now();
        }
    }
    receiver.join().unwrap();
}

#[test]
fn who_sees_the_signal_sees_the_put() {
    explore(|| signal(Release, Acquire));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_signal_without_release_would_be_found() {
    explore(|| signal(Relaxed, Acquire));
}

struct Meeting<const PES: usize, const ROUNDS: usize> {
    /// Flags in the order `flags[to][from]`.
    flags: [[AtomicU64; PES]; PES],
    data: [[UnsafeCell<usize>; PES]; ROUNDS],
    store: Ordering,
}

/// Models `ggas_raw_meet` of one PE. Each PE writes data before it, and all PEs read the data after
/// it. With `patient` it waits. Otherwise it looks once and leaves if not all have come; this
/// suffices to check who passes, with far fewer states.
fn meet<const PES: usize, const ROUNDS: usize>(
    meeting: &Meeting<PES, ROUNDS>,
    me: usize,
    patient: bool,
) {
    let mut met = [0; PES];
    for round in 0..ROUNDS {
        // SAFETY: the model checker reports a concurrent access.
        meeting.data[round][me].with_mut(|place| unsafe { *place = 100 * round + me });
        for step in 1..PES {
            let pe = (me + step) % PES;
            met[pe] += 1;
            meeting.flags[pe][me].store(met[pe], meeting.store);
        }
        for step in 1..PES {
            let pe = (me + step) % PES;
            while meeting.flags[me][pe].load(Acquire) < met[pe] {
                if !patient {
                    return;
                }
                thread::yield_now();
            }
        }
        for pe in 0..PES {
            // SAFETY: as above.
            assert_eq!(meeting.data[round][pe].with(|place| unsafe { *place }), 100 * round + pe);
        }
    }
}

fn barrier<const PES: usize, const ROUNDS: usize>(store: Ordering, patient: bool) {
    let meeting = Arc::new(Meeting::<PES, ROUNDS> {
        flags: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
        data: std::array::from_fn(|_| std::array::from_fn(|_| UnsafeCell::new(0))),
        store,
    });
    let others: Vec<_> = (1..PES)
        .map(|me| {
            let meeting = meeting.clone();
            thread::spawn(move || meet(&meeting, me, patient))
        })
        .collect();
    meet(&meeting, 0, patient);
    for other in others {
        other.join().unwrap();
    }
}

#[test]
fn nobody_passes_a_barrier_before_all_have_come() {
    explore(|| barrier::<3, 1>(Release, false));
}

#[test]
fn one_barrier_does_not_take_another_for_itself() {
    explore(|| barrier::<2, 3>(Release, true));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_barrier_without_release_would_be_found() {
    explore(|| barrier::<3, 1>(Relaxed, false));
}

const ROUNDS: usize = 2;

struct Groups {
    arrived: AtomicU64,
    epoch: AtomicU64,
    data: [[UnsafeCell<usize>; 2]; ROUNDS],
    count: Ordering,
}

/// Models `ggas_raw_barrier` of one of two work-groups.
fn arrive(groups: &Groups, me: usize) {
    for round in 0..ROUNDS {
        // SAFETY: the model checker reports a concurrent access.
        groups.data[round][me].with_mut(|place| unsafe { *place = 100 * round + me });
        let epoch = groups.epoch.load(Acquire);
        if groups.arrived.fetch_add(1, groups.count) + 1 == 2 {
            groups.arrived.store(0, Relaxed);
            groups.epoch.store(epoch + 1, Release);
        } else {
            while groups.epoch.load(Acquire) == epoch {
                thread::yield_now();
            }
        }
        for group in 0..2 {
            // SAFETY: as above.
            let found = groups.data[round][group].with(|place| unsafe { *place });
            assert_eq!(found, 100 * round + group);
        }
    }
}

fn groups(count: Ordering) {
    let groups = Arc::new(Groups {
        arrived: AtomicU64::new(0),
        epoch: AtomicU64::new(0),
        data: std::array::from_fn(|_| std::array::from_fn(|_| UnsafeCell::new(0))),
        count,
    });
    let other = groups.clone();
    let other = thread::spawn(move || arrive(&other, 1));
    arrive(&groups, 0);
    other.join().unwrap();
}

#[test]
fn the_work_groups_of_a_pe_meet() {
    explore(|| groups(AcqRel));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn work_groups_that_count_without_order_would_be_found() {
    explore(|| groups(Relaxed));
}
