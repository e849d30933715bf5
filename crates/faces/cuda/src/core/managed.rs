//! Managed memory: memory of the unified device, which the program and kernels use at the same
//! address. The device works on the host's memory, so nothing moves, and advice about where to keep
//! the memory changes nothing. It is only remembered, because programs can ask for it.
//!
//! The host never sees stale data. A kernel's stores go to the pages that the program has mapped,
//! and the caches of a host's cores are coherent. The worker reports the end of a kernel after the
//! driver has, and the program's call returns after this report has come, by a socket or an atomic
//! word of shared memory. So the stores come before everything that the program does behind a
//! synchronisation. In the other direction, the host's stores come before the launch that is sent
//! after them. Copies and fills are done by the client when the device is known to have finished,
//! or by the worker in the order of their stream; both work on the same pages.

use std::ffi::c_int;
use std::ops::Range;
use std::sync::Arc;

use penstock_cuda_sys::driver::*;
use penstock_process::{notice, variable};

use super::context::Context;
use super::device::Device;
use super::{host, platform};
use crate::edge::{CuResult, require, window};

/// Returns why a device has no managed memory; `None` if it has.
fn why_not(device: &Device) -> Option<String> {
    let pool = &device.pool;
    if device.is_native {
        return Some("NVIDIA's driver runs it, whose memory this program cannot see".into());
    }
    if !pool.shares_host_memory() {
        return Some("it has memory of its own".into());
    }
    if !pool.shares_client_memory() {
        let host = pool.host();
        return Some(format!(
            "its node on {host} shares no memory with this program; it would on the same host, \
             without TCP, {} and limits of addresses (ulimit -v)",
            variable::TRACE.name
        ));
    }
    match platform::unified() {
        Some(unified) if unified.ordinal == device.ordinal => None,
        Some(unified) => {
            Some(format!("only one device can have it, and device {} does", unified.ordinal))
        }
        None => Some("this process has no free range of addresses for it (ulimit -v)".into()),
    }
}

/// Returns whether a device has managed memory.
pub(crate) fn is_on(device: &Device) -> bool {
    platform::unified().is_some_and(|unified| unified.ordinal == device.ordinal)
}

/// Returns what a person must know if `what` needs managed memory and the device has none.
pub(crate) fn refusal(what: &str, device: &Device) -> Option<String> {
    let reason = why_not(device)?;
    let (ordinal, name) = (device.ordinal, &device.facts.name);
    Some(format!(
        "{what} is not supported on device {ordinal} ({name}): {reason}; use cudaMalloc and \
         copies, or a node on this host"
    ))
}

/// Checks that the device has managed memory, and says once what is wrong if it has not.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED`
pub(crate) fn require_on(device: &Device, what: &str) -> CuResult {
    let Some(text) = refusal(what, device) else { return Ok(()) };
    notice::once_about(what, format_args!("{text}"));
    Err(CUDA_ERROR_NOT_SUPPORTED)
}

/// Implements `cuMemAllocManaged`.
pub(crate) fn allocate(context: &Context, size: usize, flags: u32) -> CuResult<u64> {
    let known = [CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST].contains(&flags);
    require(size > 0 && known, CUDA_ERROR_INVALID_VALUE)?;
    require_on(&context.device, "cuMemAllocManaged (cudaMallocManaged)")?;
    host::allocate_managed(context, size)
}

/// Lets the program use a managed variable, which is part of a module's memory.
pub(crate) fn show_variable(device: &Arc<Device>, address: u64, size: u64) -> CuResult {
    // An array without elements has no bytes.
    let size = size.max(1);
    require(device.space.is_joined(address), CUDA_ERROR_OUT_OF_MEMORY)?;
    window::open(address, size)?;
    host::enter_variable(device, address, size)
}

/// Ends the use of the managed variables within a module's memory.
pub(crate) fn hide_variables(start: u64, size: u64) {
    if host::forget_variables(start, size) {
        window::close(start, size);
    }
}

/// A place to which advice refers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Host,
    Device(c_int),
}

impl Location {
    /// Reads the number of a device, or `CU_DEVICE_CPU`.
    pub(crate) fn of_device(device: CUdevice) -> CuResult<Self> {
        if device == CU_DEVICE_CPU {
            return Ok(Self::Host);
        }
        // "must have a non-zero value for the device attribute
        // CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS"
        require(is_on(platform::device(device)?), CUDA_ERROR_INVALID_DEVICE)?;
        Ok(Self::Device(device))
    }

    pub(crate) fn of(location: CUmemLocation) -> CuResult<Self> {
        match location.kind {
            CU_MEM_LOCATION_TYPE_DEVICE => Self::of_device(location.id),
            CU_MEM_LOCATION_TYPE_HOST
            | CU_MEM_LOCATION_TYPE_HOST_NUMA
            | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(Self::Host),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn number(self) -> c_int {
        match self {
            Self::Host => CU_DEVICE_CPU,
            Self::Device(device) => device,
        }
    }
}

/// What can be known of a byte of managed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fact {
    ReadMostly,
    Preferred,
    AccessedBy(Location),
    Prefetched,
}

#[derive(Clone, Debug)]
struct Entry {
    fact: Fact,
    bytes: Range<usize>,
    value: c_int,
}

/// The advice for one allocation: what was said of which bytes, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Advice(Vec<Entry>);

impl Advice {
    fn note(&mut self, fact: Fact, bytes: Range<usize>, value: c_int) {
        // What was said before of only these bytes counts no more.
        self.0.retain(|old| {
            old.fact != fact || old.bytes.start < bytes.start || bytes.end < old.bytes.end
        });
        self.0.push(Entry { fact, bytes, value });
    }

    /// Returns what holds for all of these bytes, and `otherwise` if it differs among them. Bytes
    /// of which nothing was said have the value `otherwise`, too.
    fn common(&self, fact: Fact, bytes: &Range<usize>, otherwise: c_int) -> c_int {
        let entries = || self.0.iter().filter(move |entry| entry.fact == fact);
        let at = |byte: usize| {
            let newest = entries().rev().find(|entry| entry.bytes.contains(&byte));
            newest.map_or(otherwise, |entry| entry.value)
        };
        let first = at(bytes.start);
        let mut ends = entries().flat_map(|entry| [entry.bytes.start, entry.bytes.end]);
        let differs = ends.any(|end| bytes.contains(&end) && at(end) != first);
        if differs { otherwise } else { first }
    }

    /// Implements `cuMemAdvise` for these bytes of the allocation.
    pub(crate) fn take(
        &mut self,
        advice: u32,
        location: CuResult<Location>,
        bytes: Range<usize>,
    ) -> CuResult {
        let (fact, value) = match advice {
            // "the device argument is ignored for this advice"
            CU_MEM_ADVISE_SET_READ_MOSTLY => (Fact::ReadMostly, 1),
            CU_MEM_ADVISE_UNSET_READ_MOSTLY => (Fact::ReadMostly, 0),
            CU_MEM_ADVISE_SET_PREFERRED_LOCATION => (Fact::Preferred, location?.number()),
            CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => (Fact::Preferred, CU_DEVICE_INVALID),
            CU_MEM_ADVISE_SET_ACCESSED_BY => (Fact::AccessedBy(location?), 1),
            CU_MEM_ADVISE_UNSET_ACCESSED_BY => (Fact::AccessedBy(location?), 0),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        self.note(fact, bytes, value);
        Ok(())
    }

    /// Implements `cuMemPrefetchAsync` for these bytes of the allocation.
    pub(crate) fn prefetched(&mut self, location: Location, bytes: Range<usize>) {
        self.note(Fact::Prefetched, bytes, location.number());
    }

    /// Answers `cuMemRangeGetAttribute` for these bytes of the allocation, with `room` numbers.
    pub(crate) fn answer(
        &self,
        attribute: u32,
        bytes: &Range<usize>,
        room: usize,
    ) -> CuResult<Vec<c_int>> {
        let one = |number| require(room == 1, CUDA_ERROR_INVALID_VALUE).map(|()| vec![number]);
        let place = |fact| self.common(fact, bytes, CU_DEVICE_INVALID);
        match attribute {
            CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => one(self.common(Fact::ReadMostly, bytes, 0)),
            CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION => one(place(Fact::Preferred)),
            CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => one(place(Fact::Prefetched)),
            CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE => one(kind_of(place(Fact::Preferred))),
            CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID => one(place(Fact::Preferred).max(0)),
            CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE => {
                one(kind_of(place(Fact::Prefetched)))
            }
            CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID => one(place(Fact::Prefetched).max(0)),
            CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY => {
                require(room > 0, CUDA_ERROR_INVALID_VALUE)?;
                let mut users: Vec<c_int> = Vec::new();
                for entry in &self.0 {
                    if let Fact::AccessedBy(location) = entry.fact
                        && !users.contains(&location.number())
                        && self.common(entry.fact, bytes, 0) == 1
                    {
                        users.push(location.number());
                    }
                }
                users.resize(room, CU_DEVICE_INVALID);
                Ok(users)
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// Returns the kind of a location, from its number.
fn kind_of(number: c_int) -> c_int {
    let kind = match number {
        CU_DEVICE_INVALID => CU_MEM_LOCATION_TYPE_INVALID,
        CU_DEVICE_CPU => CU_MEM_LOCATION_TYPE_HOST,
        _ => CU_MEM_LOCATION_TYPE_DEVICE,
    };
    c_int::try_from(kind).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_holds_for_a_range_if_it_holds_for_all_its_bytes() {
        let mut advice = Advice::default();
        let ask = |advice: &Advice, attribute, bytes| advice.answer(attribute, &bytes, 1).unwrap();
        let set = CU_MEM_ADVISE_SET_READ_MOSTLY;
        let mostly = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
        advice.take(set, Err(CUDA_ERROR_INVALID_DEVICE), 0..100).unwrap();
        advice.take(CU_MEM_ADVISE_UNSET_READ_MOSTLY, Ok(Location::Host), 40..60).unwrap();
        let seen = [0..40, 60..100, 0..41, 59..61, 50..51, 99..101]
            .map(|bytes| ask(&advice, mostly, bytes)[0]);
        assert_eq!(seen, [1, 1, 0, 0, 0, 0]);
        advice.take(set, Ok(Location::Host), 0..100).unwrap();
        assert_eq!((ask(&advice, mostly, 0..100), advice.0.len()), (vec![1], 1));

        let prefetched = CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION;
        assert_eq!(ask(&advice, prefetched, 0..100), [CU_DEVICE_INVALID]);
        advice.prefetched(Location::Device(3), 0..100);
        assert_eq!(ask(&advice, prefetched, 20..30), [3]);
        advice.prefetched(Location::Host, 25..26);
        assert_eq!(ask(&advice, prefetched, 20..30), [CU_DEVICE_INVALID]);
        assert_eq!(ask(&advice, prefetched, 25..26), [CU_DEVICE_CPU]);
    }

    #[test]
    fn places_that_access_memory_are_listed_once() {
        let mut advice = Advice::default();
        let users = CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
        for (action, location) in [
            (CU_MEM_ADVISE_SET_ACCESSED_BY, Location::Device(0)),
            (CU_MEM_ADVISE_SET_ACCESSED_BY, Location::Host),
            (CU_MEM_ADVISE_SET_ACCESSED_BY, Location::Device(0)),
        ] {
            advice.take(action, Ok(location), 0..10).unwrap();
        }
        assert_eq!(advice.answer(users, &(0..10), 3).unwrap(), [-1, 0, -2]);
        advice.take(CU_MEM_ADVISE_UNSET_ACCESSED_BY, Ok(Location::Host), 0..10).unwrap();
        assert_eq!(advice.answer(users, &(0..10), 2).unwrap(), [0, -2]);
        assert_eq!(advice.answer(users, &(0..11), 2).unwrap(), [-2, -2]);
        assert_eq!(advice.answer(users, &(0..10), 0), Err(CUDA_ERROR_INVALID_VALUE));
        assert_eq!(advice.answer(99, &(0..10), 1), Err(CUDA_ERROR_INVALID_VALUE));
        assert_eq!(advice.take(9, Ok(Location::Host), 0..10), Err(CUDA_ERROR_INVALID_VALUE));
    }
}
