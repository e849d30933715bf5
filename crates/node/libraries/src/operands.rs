//! The memory of a call.

use std::ffi::c_void;
use std::ptr::NonNull;

use penstock_wire::library::{LibraryCall, Place};
use penstock_wire::status::Status;

/// Bytes of this process that a library may read and write.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

impl Region {
    /// # Safety
    /// Until the last copy of the result is dropped, the bytes are mapped for reading and writing.
    /// Other threads, kernels and processes may change them at any time.
    pub unsafe fn new(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// A region without bytes.
    pub const EMPTY: Self = Self { start: NonNull::<u128>::dangling().cast(), bytes: 0 };
}

/// The operands of one call. Each has at least the bytes that the call touches.
#[derive(Debug)]
pub struct Operands {
    list: Vec<Region>,
    /// Address of the first byte for programs, and the bytes.
    arenas: Vec<(u64, Region)>,
}

// SAFETY: a region is only an address and a size, and any thread may use the memory.
unsafe impl Send for Operands {}
// SAFETY: as above.
unsafe impl Sync for Operands {}

impl Operands {
    /// Makes the operands of a call. Returns `None` if their number differs from that of the call,
    /// or if one has fewer bytes than the call touches.
    pub fn new(call: &LibraryCall, list: Vec<Region>, arenas: Vec<(u64, Region)>) -> Option<Self> {
        let extents = call.extents().ok()?;
        let fits = extents.len() == list.len()
            && extents
                .iter()
                .zip(&list)
                .all(|(extent, region)| extent.bytes <= region.bytes as u64);
        fits.then_some(Self { list, arenas })
    }

    /// Returns the start of an operand.
    pub(crate) fn at(&self, place: Place) -> Result<*mut c_void, Status> {
        let region = self.list.get(usize::from(place.0)).ok_or(Status::INVALID_VALUE)?;
        Ok(region.start.as_ptr().cast())
    }

    /// Returns the memory at an address that a program has stored.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` unless `bytes` bytes from the address on lie in one arena. An address of
    /// no bytes may be anything.
    pub(crate) fn behind(&self, address: u64, bytes: u64) -> Result<*mut c_void, Status> {
        if bytes == 0 {
            return Ok(Region::EMPTY.start.as_ptr().cast());
        }
        let place = |(base, region): &(u64, Region)| {
            let offset = address.checked_sub(*base)?;
            let end = offset.checked_add(bytes)?;
            let offset = usize::try_from(offset).ok()?;
            // SAFETY: the offset lies within the region, as checked.
            (end <= region.bytes as u64).then(|| unsafe { region.start.add(offset) })
        };
        let found = self.arenas.iter().find_map(place).ok_or(Status::INVALID_VALUE)?;
        Ok(found.as_ptr().cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_within_an_arena_lead_to_memory() {
        const BASE: u64 = 1 << 49;
        let mut memory = [0_u8; 64];
        let start = NonNull::from(&mut memory).cast();
        // SAFETY: the memory outlives the operands.
        let region = unsafe { Region::new(start, memory.len()) };
        let operands = Operands { list: vec![region], arenas: vec![(BASE, region)] };
        let last = operands.behind(BASE + 63, 1).unwrap();
        assert_eq!(last.addr(), start.as_ptr().addr() + 63);
        for (address, bytes) in [(BASE, 65), (BASE + 64, 1), (BASE - 1, 1), (0, 1), (u64::MAX, 2)] {
            assert_eq!(operands.behind(address, bytes), Err(Status::INVALID_VALUE));
        }
        assert!(operands.behind(0, 0).is_ok());
        assert_eq!(operands.at(Place(1)), Err(Status::INVALID_VALUE));
    }
}
