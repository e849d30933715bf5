//! Decides whether accesses to shared memory by different lanes of one warp can overlap.
//!
//! The forms of two addresses (`address_form`) are compared for all pairs of lanes. In blocks of
//! more than one dimension, only the forms themselves are compared. If both have the same form,
//! which contains every dimension that the kernel reads, the address is taken for the thread's own.

use super::address_form::AddressForm;
use super::conditions::{ThreadConditions, ThreadRange};
use super::linear::Term;
use super::values;
use crate::ir::WARP_SIZE;

/// Number of lanes of a warp, as a signed integer.
const LANES: i64 = WARP_SIZE as i64;

/// Result of the comparison of two accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overlap {
    /// No two lanes of a warp access the same byte.
    Never,
    /// Two lanes may access the same byte.
    Perhaps {
        /// Whether the unknown part is a number that the warp shares.
        warp_shares: bool,
    },
    /// Two lanes of a warp access the same byte.
    Surely,
}

/// Returns the greatest common divisor of `start` and the factors of the numbers that are in only
/// one of the two lists.
fn differing(left: &[(Term, i64)], right: &[(Term, i64)], start: i64) -> i64 {
    let missing = |from: &[(Term, i64)], other: &[(Term, i64)], start: i64| {
        from.iter()
            .filter(|entry| !other.contains(entry))
            .fold(start, |sum, (_, factor)| gcd(sum, *factor))
    };
    missing(right, left, missing(left, right, start))
}

fn gcd(left: i64, right: i64) -> i64 {
    let (mut left, mut right) = (left.unsigned_abs(), right.unsigned_abs());
    while right != 0 {
        (left, right) = (right, left % right);
    }
    i64::try_from(left).unwrap_or(1)
}

/// Decides whether two accesses by different lanes of a warp share a byte.
pub(super) fn overlap(
    left: (&AddressForm, &ThreadConditions),
    right: (&AddressForm, &ThreadConditions),
    dimensions: [bool; 2],
) -> Overlap {
    let ((left, left_conditions), (right, right_conditions)) = (left, right);
    if left.roots & right.roots == 0 {
        return Overlap::Never;
    }
    let shared =
        left.changing.iter().chain(&right.changing).fold(0, |sum, (_, factor)| gcd(sum, *factor));
    let shared = differing(&left.fixed, &right.fixed, shared);
    let unknown =
        left.unknown.iter().chain(&right.unknown).fold(0, |sum, (_, factor)| gcd(sum, *factor));
    let step = gcd(shared, unknown);
    let distance = left.constant.wrapping_sub(right.constant);
    let is_flat = !dimensions[0] && !dimensions[1];
    let same_lanes = left.lane == right.lane && left.thread == right.thread;
    let same_for_warp =
        unknown == 0 && same_lanes && left.table == right.table && left.axes == right.axes;
    if !is_flat || left.axes != [0; 2] || right.axes != [0; 2] {
        return of_dimensions((left, right), step, distance, dimensions, same_for_warp);
    }
    let is_plain = left.table.is_empty() && right.table.is_empty();
    let meets = if is_plain
        && same_lanes
        && left_conditions.range == ThreadRange::ALL
        && right_conditions.range == ThreadRange::ALL
    {
        (1 - LANES..LANES).any(|apart| {
            let lanes_apart = (left.lane + left.thread) * apart;
            apart != 0 && touches(lanes_apart + distance, step, left.bytes, right.bytes)
        })
    } else {
        let offsets = (
            offsets_of_threads(left, left_conditions),
            offsets_of_threads(right, right_conditions),
        );
        any_two_lanes(&offsets.0, &offsets.1, |apart| {
            touches(apart + distance, step, left.bytes, right.bytes)
        })
    };
    match (meets, step) {
        (false, _) => Overlap::Never,
        (true, 0) => Overlap::Surely,
        (true, _) => Overlap::Perhaps { warp_shares: same_for_warp },
    }
}

/// Returns the part of the address that differs between threads, for each thread of
/// [`values::threads`] that may execute the access.
fn offsets_of_threads(form: &AddressForm, conditions: &ThreadConditions) -> Vec<Option<i64>> {
    let threads = values::threads().map(i64::from).enumerate();
    let offset = |(index, thread): (usize, i64)| {
        let lane = thread % LANES;
        let more = form.table.get(index).copied().unwrap_or(0);
        let executes = conditions.range.has(thread, lane);
        executes.then_some(form.thread * thread + form.lane * lane + more)
    };
    threads.map(offset).collect()
}

/// Whether `meets` is true for the difference between the offsets of two different lanes of a warp.
fn any_two_lanes(
    ones: &[Option<i64>],
    others: &[Option<i64>],
    meets: impl Fn(i64) -> bool,
) -> bool {
    let warps = ones.chunks(WARP_SIZE as usize).zip(others.chunks(WARP_SIZE as usize));
    warps.into_iter().any(|(ones, others)| {
        ones.iter().enumerate().any(|(lane, one)| {
            others.iter().enumerate().any(|(other_lane, other)| match (one, other) {
                (Some(one), Some(other)) if lane != other_lane => meets(one - other),
                _ => false,
            })
        })
    })
}

/// Whether two accesses share a byte if they are `distance` bytes apart, plus any multiple of
/// `step`.
fn touches(distance: i64, step: i64, left_bytes: i64, right_bytes: i64) -> bool {
    let shares = |distance: i64| -left_bytes < distance && distance < right_bytes;
    if step == 0 {
        return shares(distance);
    }
    let rest = distance.rem_euclid(step);
    shares(rest) || shares(rest - step)
}

/// Like [`overlap`], for a kernel that reads more than one dimension of the thread's number.
fn of_dimensions(
    (left, right): (&AddressForm, &AddressForm),
    step: i64,
    distance: i64,
    dimensions: [bool; 2],
    same_for_warp: bool,
) -> Overlap {
    let is_same = left.lane == right.lane && left.thread == right.thread && left.axes == right.axes;
    let names_all = left.thread != 0
        && dimensions.iter().zip(left.axes).all(|(is_read, factor)| !is_read || factor != 0);
    let apart = |distance: i64, step: i64| !touches(distance, step, left.bytes, right.bytes);
    if is_same && names_all && step == 0 && distance == 0 {
        return Overlap::Never;
    }
    let shape = left.axes.iter().chain(&right.axes).chain([
        &left.lane,
        &right.lane,
        &left.thread,
        &right.thread,
    ]);
    let all = shape.fold(step, |sum, factor| gcd(sum, *factor));
    if all == 0 && apart(distance, 0) || all != 0 && apart(distance, all) {
        return Overlap::Never;
    }
    Overlap::Perhaps { warp_shares: same_for_warp }
}
