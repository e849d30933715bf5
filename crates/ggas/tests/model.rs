//! Every interleaving of the protocols, in the memory model of C11, which allows more than the processors here do: the ring between
//! kernels and proxy, signals, barriers between PEs and between the work-groups of one.
//!
//! What kernels do is written here as `include/ggas.h` has it; the proxy's side of the ring is the real one. Each model also has a
//! weakened twin that must fail: else it would show nothing.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use penstock_ggas::proxy::ring::{Reader, Word};

/// Threads are interrupted so often in one run at most: most faults need one or two, and two keep the tests within seconds. More by
/// `LOOM_MAX_PREEMPTIONS`.
const INTERRUPTIONS: usize = 2;
/// Steps of one run: waits look again and again.
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
    /// How a kernel makes an entry known.
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

    /// `ggas_raw_post`.
    fn post(&self, value: u64) {
        loop {
            let at = self.tail.load(Acquire);
            let entry = usize::try_from(at % ENTRIES).unwrap();
            let sequence = self.sequences[entry].0.load(Acquire);
            if sequence == at {
                if self.tail.compare_exchange(at, at + 1, AcqRel, Relaxed).is_err() {
                    continue;
                }
                // SAFETY: the model checker says if anybody else has it.
                self.values[entry].with_mut(|place| unsafe { *place = value });
                self.sequences[entry].0.store(at + 1, self.publish);
                return;
            }
            thread::yield_now();
        }
    }

    /// The proxy: takes so many, in order.
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

/// One kernel for each list of values; the proxy takes all.
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
        assert_eq!(of_this, *values, "each one's order is kept, and nothing is lost");
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

/// Put, then signal; wait, then read; and the answer that lets the source be used again.
fn signal(store: Ordering, load: Ordering) {
    let shared = Arc::new((UnsafeCell::new(0_u64), AtomicU64::new(0), AtomicU64::new(0)));
    let theirs = shared.clone();
    let receiver = thread::spawn(move || {
        for round in 1..=2 {
            while theirs.1.load(load) < round {
                thread::yield_now();
            }
            // SAFETY: the model checker says if anybody writes it.
            assert_eq!(theirs.0.with(|place| unsafe { *place }), round * 7);
            theirs.2.store(round, store);
        }
    });
    for round in 1..=2 {
        // SAFETY: the model checker says if anybody else has it.
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
    /// `flags[to][from]`.
    flags: [[AtomicU64; PES]; PES],
    data: [[UnsafeCell<usize>; PES]; ROUNDS],
    store: Ordering,
}

/// `ggas_raw_meet` of one PE, with data that each writes before and all read after. `patient`: it waits; else it looks once, and goes
/// if not all have come, which is all that matters for who passes and leaves far less to explore.
fn meet<const PES: usize, const ROUNDS: usize>(
    meeting: &Meeting<PES, ROUNDS>,
    me: usize,
    patient: bool,
) {
    let mut met = [0; PES];
    for round in 0..ROUNDS {
        // SAFETY: the model checker says if anybody else has it.
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

/// `ggas_raw_barrier` of one work-group of two.
fn arrive(groups: &Groups, me: usize) {
    for round in 0..ROUNDS {
        // SAFETY: the model checker says if anybody else has it.
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
            assert_eq!(
                groups.data[round][group].with(|place| unsafe { *place }),
                100 * round + group
            );
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
