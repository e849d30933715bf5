//! Splits work among devices: at once by their speeds, or slice by slice as they become free. This
//! code is pure: it has no clock and no commands.

/// Weights are scaled to whole numbers up to this one, so that the arithmetic is exact. 2^40
/// distinguishes speeds that differ by 10^-12 of the fastest, and its product with a `usize` fits
/// into 128 bits.
const WEIGHT_MAX: f64 = (1_u64 << 40) as f64;

/// Number of slices of one device under way: one is computed while the bytes of the other travel.
pub const SLICES_UNDER_WAY: usize = 2;

/// Divisor of a device's share of the remaining work that gives the size of a slice. A device has
/// two slices under way, and half of its share stays free for devices that turn out to be faster
/// than expected.
const SHARE_DIVISOR: f64 = 2.0 * SLICES_UNDER_WAY as f64;

/// Divisor of an even share for the first slice of a device. That slice is small, because it only
/// measures the speed, and the device may be the slowest.
const FIRST_DIVISOR: usize = 8;

/// Largest growth of a slice over the largest one of the device before it. The first speeds include
/// start-up costs, and no device must get half of the work because the others were late once.
const GROWTH: usize = 2;

/// Weight of a new slice's speed beside the speed so far. Devices that share their host become
/// slower and faster.
const NEWEST: f64 = 0.5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsplittable {
    #[error("there are no devices to split the work among")]
    NoDevices,
    /// Parts cannot be multiples of 0.
    #[error("the granularity is 0")]
    NoGranularity,
    /// Slices of 0 units would never end.
    #[error("the smallest slice is 0")]
    NoMinimum,
    /// A weight is negative or not finite.
    #[error("weight {0} is negative or not finite")]
    Weight(usize),
    #[error("all weights are 0")]
    NoWeight,
}

/// Splits `total` units in proportion to `weights`, in multiples of `granularity`. The last device
/// whose weight is not 0 also gets the remainder below one multiple. Apart from this, every part
/// differs from its exact share by less than a multiple.
///
/// # Errors
/// There are no devices, the granularity is 0, or the weights are invalid.
pub fn split(
    total: usize,
    granularity: usize,
    weights: &[f64],
) -> Result<Vec<usize>, Unsplittable> {
    if weights.is_empty() {
        return Err(Unsplittable::NoDevices);
    }
    if let Some(wrong) = weights.iter().position(|weight| !weight.is_finite() || *weight < 0.0) {
        return Err(Unsplittable::Weight(wrong));
    }
    if granularity == 0 {
        return Err(Unsplittable::NoGranularity);
    }
    let most = weights.iter().copied().fold(0.0, f64::max);
    if most == 0.0 {
        return Err(Unsplittable::NoWeight);
    }
    let whole: Vec<u128> = weights.iter().map(|weight| whole(weight / most * WEIGHT_MAX)).collect();
    let all: u128 = whole.iter().sum();
    let grains = (total / granularity) as u128;
    let mut parts: Vec<u128> = whole.iter().map(|weight| grains * weight / all).collect();
    // The parts with the largest remainders get what rounding down has left; of equal ones the
    // first.
    let mut order: Vec<usize> = (0..parts.len()).collect();
    let remainder = |place: &usize| whole.get(*place).map_or(0, |weight| grains * weight % all);
    order.sort_by_key(|place| std::cmp::Reverse(remainder(place)));
    let left = grains - parts.iter().sum::<u128>();
    for place in order.into_iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
        if let Some(part) = parts.get_mut(place) {
            *part += 1;
        }
    }
    let mut sizes: Vec<usize> = parts
        .into_iter()
        .map(|part| usize::try_from(part).unwrap_or(usize::MAX) * granularity)
        .collect();
    if let Some(last) =
        whole.iter().rposition(|weight| *weight > 0).and_then(|last| sizes.get_mut(last))
    {
        *last += total % granularity;
    }
    Ok(sizes)
}

/// Rounds a weight. One that is not 0 stays above 0, because the last such device gets the
/// remainder.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(weight: f64) -> u128 {
    if weight > 0.0 { weight.round().max(1.0) as u128 } else { 0 }
}

/// Hands out slices of work to devices that are free: large ones first, smaller ones as the work
/// runs out, in proportion to the speeds seen so far.
#[derive(Clone, Debug)]
pub struct Guide {
    total: usize,
    minimum: usize,
    next: usize,
    /// Units per ns of each device; `None` before its first slice has ended.
    speeds: Vec<Option<f64>>,
    /// Number of each device's slices under way.
    under_way: Vec<usize>,
    /// Number of each device's ended slices.
    ended: Vec<usize>,
    /// Units of each device's largest slice so far.
    largest: Vec<usize>,
}

/// A part of the work for one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    pub first: usize,
    pub units: usize,
}

impl Guide {
    /// Hands out `total` units to `count` devices, at least `minimum` at a time except for the last
    /// slice.
    ///
    /// # Errors
    /// There are no devices, or the minimum is 0.
    pub fn new(count: usize, total: usize, minimum: usize) -> Result<Self, Unsplittable> {
        if count == 0 {
            return Err(Unsplittable::NoDevices);
        }
        if minimum == 0 {
            return Err(Unsplittable::NoMinimum);
        }
        let none = vec![0; count];
        let (under_way, ended, largest) = (none.clone(), none.clone(), none);
        Ok(Self { total, minimum, next: 0, speeds: vec![None; count], under_way, ended, largest })
    }

    pub fn is_empty(&self) -> bool {
        self.next >= self.total
    }

    /// Returns the device to serve next: the one with the fewest slices under way, if it may have
    /// one more; of equal ones the fastest. A device of unknown speed gets only one slice, because
    /// it may be the slowest.
    pub fn hungry(&self) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let most = |device: usize| if self.is_known(device) { SLICES_UNDER_WAY } else { 1 };
        let free =
            |device: &usize| self.slices(*device) < most(*device) && self.is_worth_it(*device);
        (0..self.under_way.len()).filter(free).min_by(|one, other| {
            let by_load = self.slices(*one).cmp(&self.slices(*other));
            by_load.then(self.speed(*other).total_cmp(&self.speed(*one)))
        })
    }

    fn is_known(&self, device: usize) -> bool {
        self.speeds.get(device).is_some_and(Option::is_some)
    }

    fn slices(&self, device: usize) -> usize {
        self.under_way.get(device).copied().unwrap_or_default()
    }

    /// Whether a device is to get one more slice. Near the end all others would wait for a slow
    /// device. It gets a slice only if the smallest one would end there before the others could
    /// have done all remaining work. The fastest device always gets one.
    fn is_worth_it(&self, device: usize) -> bool {
        let speed = self.speed(device);
        let others =
            (0..self.speeds.len()).filter(|other| *other != device).map(|other| self.speed(other));
        let (all, fastest) = others.fold((0.0, 0.0), |(all, fastest): (f64, f64), other| {
            (all + other, fastest.max(other))
        });
        if speed >= fastest {
            return true;
        }
        let left = to_f64(self.total - self.next);
        let before = self.slices(device) + 1;
        // The others still have about a minimum each under way.
        let others_ns = left / all + to_f64(self.minimum) / fastest;
        others_ns >= to_f64(self.minimum * before) / speed
    }

    /// Returns the speed of a device, or the mean of the known speeds if its own is not known.
    fn speed(&self, device: usize) -> f64 {
        if let Some(Some(speed)) = self.speeds.get(device) {
            return *speed;
        }
        let known: Vec<f64> = self.speeds.iter().flatten().copied().collect();
        if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / to_f64(known.len()) }
    }

    /// Returns the next slice for this device, or `None` if all units were handed out.
    pub fn take(&mut self, device: usize) -> Option<Slice> {
        if self.is_empty() {
            return None;
        }
        let left = self.total - self.next;
        let wanted = if self.is_known(device) {
            let all: f64 = (0..self.speeds.len()).map(|other| self.speed(other)).sum();
            to_usize(to_f64(left) * self.speed(device) / all / SHARE_DIVISOR)
        } else {
            self.total / self.speeds.len() / FIRST_DIVISOR / SLICES_UNDER_WAY
        };
        let largest = self.largest.get_mut(device)?;
        let most = if *largest == 0 { wanted } else { largest.saturating_mul(GROWTH) };
        let units = wanted.min(most).max(self.minimum);
        *largest = units.max(*largest);
        // The last slice takes a remainder that is smaller than the minimum.
        let units = if left - units.min(left) < self.minimum { left } else { units };
        let slice = Slice { first: self.next, units };
        self.next += units;
        *self.under_way.get_mut(device)? += 1;
        Some(slice)
    }

    /// Notes that a slice of a device has ended after `ns` of work.
    pub fn ended(&mut self, device: usize, units: usize, ns: u64) {
        if let Some(slices) = self.under_way.get_mut(device) {
            *slices = slices.saturating_sub(1);
        }
        let newest = to_f64(units) / to_f64(usize::try_from(ns.max(1)).unwrap_or(usize::MAX));
        if let (Some(speed), Some(ended)) =
            (self.speeds.get_mut(device), self.ended.get_mut(device))
        {
            // The speed of the first slice includes start-up costs. Later slices follow each other
            // without a gap.
            let before = speed.filter(|_| *ended > 1);
            *speed =
                Some(before.map_or(newest, |before| before * (1.0 - NEWEST) + newest * NEWEST));
            *ended += 1;
        }
    }
}

/// Counts beyond 2^53 lose their last bits; sizes of slices are not that exact.
#[expect(clippy::cast_precision_loss)]
fn to_f64(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn to_usize(count: f64) -> usize {
    count.max(0.0) as usize
}

#[cfg(test)]
mod tests;
