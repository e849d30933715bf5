use proptest::prelude::*;

use super::*;

/// Seconds that each of the four devices of the paper's Table 5 needs for the whole product.
const TABLE_5_S: [f64; 4] = [63.3, 63.3, 29.4, 68.4];
/// The best time that the paper reports for all four.
const PAPER_BEST_S: f64 = 17.3;
/// Number of rows of the product.
const ROWS: usize = 7168;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

fn ideal_s(seconds: &[f64]) -> f64 {
    1.0 / seconds.iter().map(|seconds| 1.0 / seconds).sum::<f64>()
}

/// Simulates devices that compute slices one after the other, on a clock of their own. Returns when
/// the last has ended, and how many units each device did.
fn self_scheduled(seconds: &[f64], total: usize, minimum: usize) -> (f64, Vec<usize>) {
    let mut guide = Guide::new(seconds.len(), total, minimum).unwrap();
    let mut free_at = vec![0.0_f64; seconds.len()];
    let mut done = vec![0; seconds.len()];
    let mut under_way: Vec<(f64, f64, usize, usize)> = Vec::new();
    let (mut now, mut next) = (0.0_f64, 0);
    loop {
        while let Some(device) = guide.hungry() {
            let slice = guide.take(device).unwrap();
            assert_eq!(slice.first, next, "slices follow each other");
            assert!(slice.units >= minimum || next + slice.units == total, "{slice:?}");
            next += slice.units;
            let duration = seconds[device] * slice.units as f64 / total as f64;
            free_at[device] = free_at[device].max(now) + duration;
            under_way.push((free_at[device], duration, device, slice.units));
        }
        under_way.sort_by(|one, other| other.0.total_cmp(&one.0));
        let Some((end, duration, device, units)) = under_way.pop() else { break };
        now = end;
        done[device] += units;
        guide.ended(device, units, nanoseconds(duration));
    }
    assert_eq!(next, total);
    (now, done)
}

#[test]
fn static_split_by_measured_weights_is_near_the_ideal_of_table_5() {
    let weights = TABLE_5_S.map(|seconds| 1.0 / seconds);
    let parts = split(ROWS, 64, &weights).unwrap();
    let time = parts
        .iter()
        .zip(TABLE_5_S)
        .map(|(part, seconds)| *part as f64 / ROWS as f64 * seconds)
        .fold(0.0, f64::max);
    println!("static: {parts:?}, {time:.2} s; ideal {:.2} s", ideal_s(&TABLE_5_S));
    assert!((12.4..12.6).contains(&ideal_s(&TABLE_5_S)));
    assert!(time <= PAPER_BEST_S && time < 1.06 * ideal_s(&TABLE_5_S), "{time} s");
}

#[test]
fn self_scheduling_is_near_the_ideal_of_table_5() {
    for minimum in [16, 64, 128] {
        let (time, done) = self_scheduled(&TABLE_5_S, ROWS, minimum);
        println!("self-scheduled, at least {minimum}: {done:?}, {time:.2} s");
        assert!(time <= PAPER_BEST_S && time < 1.10 * ideal_s(&TABLE_5_S), "{minimum}: {time} s");
    }
}

#[test]
fn a_device_so_slow_that_it_only_delays_gets_little() {
    let (time, done) = self_scheduled(&[1.0, 1.0, 100.0], 1000, 10);
    assert!(done[2] <= 30, "{done:?}");
    // Its first slice, before its speed is known, is 20 units, which take 2 s. No scheduler can
    // take it back.
    assert!(time <= 2.5, "{time} s");
}

#[test]
fn leftover_units_go_to_the_last_that_works() {
    assert_eq!(split(103, 10, &[1.0, 1.0, 0.0]).unwrap(), [50, 53, 0]);
    assert_eq!(split(7, 10, &[1.0, 2.0]).unwrap(), [0, 7]);
    assert_eq!(split(0, 1, &[1.0, 2.0]).unwrap(), [0, 0]);
}

#[test]
fn what_cannot_be_split_is_told() {
    assert_eq!(split(1, 1, &[]), Err(Unsplittable::NoDevices));
    assert_eq!(split(1, 0, &[1.0]), Err(Unsplittable::NoGranularity));
    assert_eq!(split(1, 1, &[1.0, -1.0]), Err(Unsplittable::Weight(1)));
    assert_eq!(split(1, 1, &[f64::NAN]), Err(Unsplittable::Weight(0)));
    assert_eq!(split(1, 1, &[f64::INFINITY]), Err(Unsplittable::Weight(0)));
    assert_eq!(split(1, 1, &[0.0, 0.0]), Err(Unsplittable::NoWeight));
    assert_eq!(Guide::new(1, 1, 0).err(), Some(Unsplittable::NoMinimum));
    assert!(Guide::new(0, 1, 1).is_err());
}

proptest! {
    #[test]
    fn parts_add_up_are_multiples_and_are_proportional(
        total in 0_usize..1_000_000_000,
        granularity in 1_usize..10_000,
        weights in prop::collection::vec(prop_oneof![Just(0.0), 1e-3..1e3_f64], 1..40),
    ) {
        prop_assume!(weights.iter().any(|weight| *weight > 0.0));
        let parts = split(total, granularity, &weights).unwrap();
        prop_assert_eq!(parts.iter().sum::<usize>(), total);
        let last = weights.iter().rposition(|weight| *weight > 0.0).unwrap();
        let all: f64 = weights.iter().sum();
        for (place, (part, weight)) in parts.iter().zip(&weights).enumerate() {
            let left_over = if place == last { total % granularity } else { 0 };
            prop_assert_eq!((part - left_over) % granularity, 0);
            let exact = (total - total % granularity) as f64 * weight / all;
            let off = ((part - left_over) as f64 - exact).abs();
            prop_assert!(off <= granularity as f64 * 1.000_001, "part {} is {}, exactly {}", place, part, exact);
            prop_assert!(*weight > 0.0 || *part == 0);
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow(granularity in 1_usize..100, weights in prop::collection::vec(0.1..1e300_f64, 1..9)) {
        let parts = split(usize::MAX, granularity, &weights).unwrap();
        prop_assert_eq!(parts.iter().map(|part| *part as u128).sum::<u128>(), usize::MAX as u128);
    }

    #[test]
    fn self_scheduling_does_all_work_and_is_bounded_by_the_ideal_and_two_slices(
        seconds in prop::collection::vec(0.5..20.0_f64, 1..9),
        total in 1_usize..200_000,
        minimum in 1_usize..2_000,
    ) {
        let (time, done) = self_scheduled(&seconds, total, minimum);
        prop_assert_eq!(done.iter().sum::<usize>(), total);
        // Before speeds are known, and at the end, the slowest device may get two slices of the
        // smallest size.
        let slowest = seconds.iter().copied().fold(0.0, f64::max);
        let first = (total / seconds.len() / 16).max(minimum) as f64 / total as f64;
        let slice = slowest * (minimum as f64 / total as f64).max(first).min(1.0);
        let bound = ideal_s(&seconds) * 1.3 + 3.0 * slice;
        prop_assert!(time <= bound, "{} s, bound {} s", time, bound);
    }
}
