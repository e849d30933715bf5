//! How work is split among devices: at once by their speeds, or slice by slice as they become free. Pure: no clock, no commands.

/// Weights are taken to be whole numbers up to this one, so that the arithmetic is exact: 2^40 tells speeds apart that differ
/// by 10^-12 of the fastest, and its product with a `usize` fits into 128 bits.
const WEIGHT_MAX: f64 = (1_u64 << 40) as f64;

/// Slices of one device under way at a time: one is computed while the other's bytes travel.
pub const SLICES_UNDER_WAY: usize = 2;

/// A slice is this part of what the device would have to do of what is left: it has two slices under way, and half of its share
/// stays free for whoever turns out to be faster than thought.
const SHARE_DIVISOR: f64 = 2.0 * SLICES_UNDER_WAY as f64;

/// Before any speed is known a device gets this part of an even share: small, as it says how fast the device is, and may go to the slowest.
const FIRST_DIVISOR: usize = 8;

/// A slice is at most so many times as large as the device's largest before it. The first speeds include what it takes to get going; nobody shall
/// get half of the work because the others were late once.
const GROWTH: usize = 2;

/// How much a new slice's speed counts beside those before it: devices that share their host get slower and faster.
const NEWEST: f64 = 0.5;

/// Why work cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsplittable {
    /// Nobody is there to do it.
    #[error("there are no devices to split the work among")]
    NoDevices,
    /// Parts cannot be multiples of nothing.
    #[error("the granularity is 0")]
    NoGranularity,
    /// Slices of nothing would never end.
    #[error("the smallest slice is 0")]
    NoMinimum,
    /// A weight is negative or no number.
    #[error("weight {0} is negative or no finite number")]
    Weight(usize),
    /// Nobody would get anything.
    #[error("all weights are 0")]
    NoWeight,
}

/// Splits `total` units in proportion to `weights`, in multiples of `granularity`. What is left over (less than a multiple) goes to
/// the last device whose weight is not 0. Every part differs from its exact share by less than a multiple, but for that.
///
/// # Errors
/// No devices, a granularity of 0, weights that are no weights.
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
    // The largest remainders get what rounding down has left; of equal ones the first.
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

/// A weight that is not 0 stays more than 0: who has one gets the left over units.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(weight: f64) -> u128 {
    if weight > 0.0 { weight.round().max(1.0) as u128 } else { 0 }
}

/// Hands out slices of work to devices that are free: large ones first, smaller ones as the work runs out, in proportion to the
/// speeds seen so far.
#[derive(Clone, Debug)]
pub struct Guide {
    total: usize,
    minimum: usize,
    next: usize,
    /// Units a ns of each device; unknown before its first slice has ended.
    speeds: Vec<Option<f64>>,
    /// Slices of each device under way.
    under_way: Vec<usize>,
    /// Slices of each device that have ended.
    ended: Vec<usize>,
    /// Units of each device's largest slice so far.
    largest: Vec<usize>,
}

/// A part of the work for one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Its first unit.
    pub first: usize,
    /// Its units.
    pub units: usize,
}

impl Guide {
    /// Hands out `total` units to `count` devices, at least `minimum` at a time but for the last slice.
    ///
    /// # Errors
    /// No devices; a minimum of 0.
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

    /// Whether all was handed out.
    pub fn is_empty(&self) -> bool {
        self.next >= self.total
    }

    /// The device to be served next: the one with the fewest slices under way, if it may have one more; of equal ones the fastest. One whose
    /// speed is not known gets one slice only: it may be the slowest.
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

    /// Near the end a slow device would keep all others waiting for one slice more. It gets it only if the smallest one would end there
    /// before the others could have done all that is left. The fastest is always worth it.
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

    /// The speed of a device; before it is known the mean of those that are.
    fn speed(&self, device: usize) -> f64 {
        if let Some(Some(speed)) = self.speeds.get(device) {
            return *speed;
        }
        let known: Vec<f64> = self.speeds.iter().flatten().copied().collect();
        if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / to_f64(known.len()) }
    }

    /// The next slice for this device; none if all was handed out.
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
        // No slice of less than the minimum is left over.
        let units = if left - units.min(left) < self.minimum { left } else { units };
        let slice = Slice { first: self.next, units };
        self.next += units;
        *self.under_way.get_mut(device)? += 1;
        Some(slice)
    }

    /// A slice of a device has ended after so many ns of work.
    pub fn ended(&mut self, device: usize, units: usize, ns: u64) {
        if let Some(slices) = self.under_way.get_mut(device) {
            *slices = slices.saturating_sub(1);
        }
        let newest = to_f64(units) / to_f64(usize::try_from(ns.max(1)).unwrap_or(usize::MAX));
        if let (Some(speed), Some(ended)) =
            (self.speeds.get_mut(device), self.ended.get_mut(device))
        {
            // The first one's speed includes what it took to get going, the others' slices follow each other.
            let before = speed.filter(|_| *ended > 1);
            *speed =
                Some(before.map_or(newest, |before| before * (1.0 - NEWEST) + newest * NEWEST));
            *ended += 1;
        }
    }
}

/// Counts beyond 2^53 lose their last bits: sizes of slices are not that exact.
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
