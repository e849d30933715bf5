//! Host memory that the program has registered or allocated through us. Copies to it need no wait.
//! Kernels can use it only if it is a block of their device's memory ([`super::mapped`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use penstock_client::HostShape;
use penstock_cuda_sys::driver::*;
use penstock_process::Lock;

use super::context::Context;
use super::device::Device;
use super::managed::{self, Advice};
use super::mapped::MappedBlock;
use super::pinned::PinnedBlock;
use super::platform;
use crate::edge::{CuResult, Object as _, Pages};

struct Range {
    size: usize,
    flags: u32,
    memory: RangeMemory,
}

/// What a range consists of.
enum RangeMemory {
    /// Memory of the program.
    Own,
    /// Is unmapped when it is dropped.
    Pages(#[expect(dead_code, reason = "only held")] Pages),
    /// A device copies it by itself, and no kernel sees it.
    Pinned(Arc<PinnedBlock>),
    Mapped(MappedBlock),
    Managed(MappedBlock, Advice),
    /// A managed variable of a module, which has the memory.
    Variable(Arc<Device>, Advice),
}

impl Range {
    /// Returns the device whose kernels see the range, and the address at which they see its start.
    fn mapped(&self, start: usize) -> Option<(&Arc<Device>, u64)> {
        match &self.memory {
            RangeMemory::Own | RangeMemory::Pages(_) | RangeMemory::Pinned(_) => None,
            RangeMemory::Mapped(block) | RangeMemory::Managed(block, _) => {
                Some((block.device(), block.device_address(0)))
            }
            RangeMemory::Variable(device, _) => Some((device, start as u64)),
        }
    }

    fn advice(&mut self) -> Option<&mut Advice> {
        match &mut self.memory {
            RangeMemory::Managed(_, advice) | RangeMemory::Variable(_, advice) => Some(advice),
            _ => None,
        }
    }
}

/// Whether there ever was a range that kernels use. If not, copies need not look for one.
static ANY_JOINT: AtomicBool = AtomicBool::new(false);

/// Whether there ever was a range that a device copies by itself.
static ANY_PINNED: AtomicBool = AtomicBool::new(false);

static RANGES: Lock<BTreeMap<usize, Range>> = Lock::new(BTreeMap::new());

fn ranges() -> MutexGuard<'static, BTreeMap<usize, Range>> {
    RANGES.lock()
}

/// Implements `cuMemHostAlloc`: allocates and registers memory. "The pointer value through which
/// allocated host memory may be accessed in kernels on all devices that support unified addressing
/// is the same as the pointer value through which that memory is accessed on the host", whatever
/// the flags. So on the unified device it is memory of that device. The others have two kinds,
/// whose copies wait for nothing but their stream: memory that the device copies by itself, and
/// plain pages if the node has no such memory or refuses more of it. If the program asks for memory
/// that kernels see and the device has such memory, it gets that.
pub(crate) fn allocate(context: &Context, size: usize, flags: u32) -> CuResult<usize> {
    const KNOWN: u32 =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if size == 0 || flags & !KNOWN != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let own = &context.device;
    let is_unified = managed::is_on(own);
    let is_asked_for = flags & CU_MEMHOSTALLOC_DEVICEMAP != 0 && own.can_map_host_memory();
    if !is_unified && !is_asked_for {
        return match PinnedBlock::new(own, context.number(), size) {
            Some(block) => Ok(enter(block.address(), size, flags, RangeMemory::Pinned(block))),
            None => allocate_pages(size, flags),
        };
    }
    match MappedBlock::new(own, context.number(), size) {
        Ok(block) => Ok(enter(block.address(), size, flags, RangeMemory::Mapped(block))),
        // The device's memory is full, or the block is larger than the device makes. The host may
        // have more, and copies need no more than pages.
        Err(_) if !is_asked_for => allocate_pages(size, flags),
        Err(error) => Err(error),
    }
}

fn allocate_pages(size: usize, flags: u32) -> CuResult<usize> {
    let pages = Pages::new(size).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    Ok(enter(pages.address(), size, flags, RangeMemory::Pages(pages)))
}

/// Allocates managed memory. The caller has asked whether the context's device is the unified one.
pub(crate) fn allocate_managed(context: &Context, size: usize) -> CuResult<u64> {
    let block = MappedBlock::new(&context.device, context.number(), size)?;
    if !block.has_one_address() {
        block.free()?;
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    let advice = Advice::default();
    Ok(enter(block.address(), size, 0, RangeMemory::Managed(block, advice)) as u64)
}

/// Enters a managed variable of a module.
pub(crate) fn enter_variable(device: &Arc<Device>, address: u64, size: u64) -> CuResult {
    let fits = usize::try_from(address).ok().zip(usize::try_from(size).ok());
    let (address, size) = fits.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    enter(address, size, 0, RangeMemory::Variable(device.clone(), Advice::default()));
    Ok(())
}

/// Forgets the managed variables within these bytes, because their module is gone. Returns whether
/// there were any.
pub(crate) fn forget_variables(start: u64, size: u64) -> bool {
    let is_within = |address: usize| (address as u64).wrapping_sub(start) < size;
    let mut ranges = ranges();
    let gone = ranges.extract_if(.., |address, range| {
        is_within(*address) && matches!(range.memory, RangeMemory::Variable(..))
    });
    gone.count() > 0
}

fn enter(address: usize, size: usize, flags: u32, memory: RangeMemory) -> usize {
    let range = Range { size, flags, memory };
    if range.mapped(address).is_some() {
        ANY_JOINT.store(true, Ordering::Relaxed);
    }
    if matches!(range.memory, RangeMemory::Pinned(_)) {
        ANY_PINNED.store(true, Ordering::Relaxed);
    }
    ranges().insert(address, range);
    address
}

/// Implements `cuMemFreeHost`. A block is used again when no command can use it any more.
pub(crate) fn free(address: usize) -> CuResult {
    let is_freed = |range: &Range| {
        use RangeMemory::{Mapped, Pages, Pinned};
        matches!(range.memory, Pages(_) | Pinned(_) | Mapped(_))
    };
    match take(address, is_freed).ok_or(CUDA_ERROR_INVALID_VALUE)?.memory {
        RangeMemory::Mapped(block) => block.free(),
        RangeMemory::Pinned(block) => block.free(),
        _ => Ok(()),
    }
}

/// Implements `cuMemFree` for managed memory. `None` if it does not begin at this address.
pub(crate) fn free_managed(address: u64) -> Option<CuResult> {
    let is_managed = |range: &Range| matches!(range.memory, RangeMemory::Managed(..));
    match take(usize::try_from(address).ok()?, is_managed)?.memory {
        RangeMemory::Managed(block, _) => Some(block.free()),
        _ => None,
    }
}

/// Removes the range that begins at an address, if it is of the wanted kind. What the caller does
/// with it may wait for the device, and happens without the lock.
fn take(address: usize, is_wanted: impl Fn(&Range) -> bool) -> Option<Range> {
    let mut ranges = ranges();
    if !is_wanted(ranges.get(&address)?) {
        return None;
    }
    ranges.remove(&address)
}

/// Waits for all commands of contexts that use this memory of the program. Failures count as ends,
/// because commands may still write after a failure of another one.
pub(crate) fn drain_users(address: usize, size: usize) {
    let shape = HostShape::linear(address as u64, size as u64);
    let devices = platform::devices().into_iter().flatten();
    for context in devices.flat_map(|device| Context::all_on(device)) {
        if penstock_client::may_be_written(&shape) || penstock_client::may_be_read(&shape) {
            context.drain();
        }
    }
}

/// Frees the blocks of a destroyed context.
pub(crate) fn free_of(owner: u64) {
    let is_of = |range: &Range| match &range.memory {
        RangeMemory::Mapped(block) | RangeMemory::Managed(block, _) => block.is_of(owner),
        RangeMemory::Pinned(block) => block.is_of(owner),
        _ => false,
    };
    let gone: Vec<_> = ranges().extract_if(.., |_, range| is_of(range)).collect();
    for (start, range) in gone {
        if matches!(range.memory, RangeMemory::Pinned(_)) {
            drain_users(start, range.size);
        }
        // The memory of a lost node is gone already.
        _ = match range.memory {
            RangeMemory::Mapped(block) | RangeMemory::Managed(block, _) => block.free(),
            RangeMemory::Pinned(block) => block.free(),
            _ => Ok(()),
        };
    }
}

/// Implements `cuMemHostGetDevicePointer`: returns the address at which kernels see the byte.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` if the memory is not registered, `CUDA_ERROR_NOT_SUPPORTED` if
/// kernels of the context's device cannot use it.
pub(crate) fn device_address(context: &Context, address: usize) -> CuResult<u64> {
    let ranges = ranges();
    let (start, range) = containing(&ranges, address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mapped = range.mapped(start);
    let mapped = mapped.filter(|(device, _)| device.ordinal == context.device.ordinal);
    let (_, seen) = mapped.ok_or(CUDA_ERROR_NOT_SUPPORTED)?;
    Ok(seen + (address - start) as u64)
}

/// Returns the host address of mapped memory at a device address.
pub(crate) fn host_address(address: u64) -> Option<usize> {
    ranges().iter().find_map(|(start, range)| {
        let offset = address.checked_sub(range.mapped(*start)?.1)?;
        let offset = usize::try_from(offset).ok()?;
        (offset < range.size).then_some(start + offset)
    })
}

/// Memory that the program and kernels of a device use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JointRange {
    /// Ordinal of the device.
    pub(crate) device: usize,
    /// Whether kernels use the program's address.
    pub(crate) has_one_address: bool,
}

/// Returns whether kernels may write memory of the program.
pub(super) fn any_joint() -> bool {
    ANY_JOINT.load(Ordering::Relaxed)
}

/// Describes these bytes, which the program sees at this address, if all of them are memory that
/// kernels of a device use, too.
pub(crate) fn joint(address: u64, size: u64) -> Option<JointRange> {
    if !any_joint() {
        return None;
    }
    let ranges = ranges();
    let (start, range) = containing_all(&ranges, address, size)?;
    let (device, seen) = range.mapped(start)?;
    Some(JointRange { device: device.ordinal, has_one_address: seen == start as u64 })
}

/// Returns the block of pinned memory that contains all of these bytes.
pub(super) fn pinned(address: u64, size: u64) -> Option<Arc<PinnedBlock>> {
    if !ANY_PINNED.load(Ordering::Relaxed) {
        return None;
    }
    let ranges = ranges();
    match &containing_all(&ranges, address, size)?.1.memory {
        RangeMemory::Pinned(block) => Some(block.clone()),
        _ => None,
    }
}

/// Returns whether kernels use none of these bytes of the program at the same address.
pub(super) fn is_only_host(address: u64, size: u64) -> bool {
    joint(address, size).is_none_or(|range| !range.has_one_address)
}

/// Calls `look` with the advice for these bytes of managed memory, and the offset of the first.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` if they are not all in one managed allocation.
pub(crate) fn with_advice<T>(
    address: u64,
    size: usize,
    look: impl FnOnce(&mut Advice, usize) -> T,
) -> CuResult<T> {
    let address = usize::try_from(address).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let mut ranges = ranges();
    let found = ranges.range_mut(..=address).next_back();
    let (start, range) = found.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let offset = address - start;
    if offset.checked_add(size).is_none_or(|end| end > range.size) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    range.advice().map(|advice| look(advice, offset)).ok_or(CUDA_ERROR_INVALID_VALUE)
}

pub(crate) fn register(address: usize, size: usize, flags: u32) -> CuResult {
    // Flags: portable, device map, I/O memory, read only.
    if address == 0 || size == 0 || flags & !0xf != 0 || address.checked_add(size).is_none() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut ranges = ranges();
    let before = ranges.range(..address + size).next_back();
    if before.is_some_and(|(start, range)| start + range.size > address) {
        return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    ranges.insert(address, Range { size, flags, memory: RangeMemory::Own });
    Ok(())
}

pub(crate) fn unregister(address: usize) -> CuResult {
    let is_own = |range: &Range| matches!(range.memory, RangeMemory::Own);
    take(address, is_own).map(drop).ok_or(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
}

/// A range of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisteredRange {
    pub(crate) start: usize,
    pub(crate) size: usize,
    pub(crate) flags: u32,
    /// Device address of `start`, if kernels of a device see the range.
    pub(crate) mapped: Option<u64>,
    /// Whether it is managed memory.
    pub(crate) is_managed: bool,
}

/// Returns the range that contains an address, and its start.
fn containing(ranges: &BTreeMap<usize, Range>, address: usize) -> Option<(usize, &Range)> {
    let (start, range) = ranges.range(..=address).next_back()?;
    (address - start < range.size).then_some((*start, range))
}

/// Returns the range that contains all of these bytes, and its start.
fn containing_all(
    ranges: &BTreeMap<usize, Range>,
    address: u64,
    size: u64,
) -> Option<(usize, &Range)> {
    let address = usize::try_from(address).ok()?;
    let (start, range) = containing(ranges, address)?;
    let end = ((address - start) as u64).checked_add(size)?;
    (end <= range.size as u64).then_some((start, range))
}

/// Returns the registered range that contains an address.
pub(crate) fn find(address: usize) -> Option<RegisteredRange> {
    let ranges = ranges();
    let (start, range) = containing(&ranges, address)?;
    let mapped = range.mapped(start).map(|(_, seen)| seen);
    let is_managed = matches!(range.memory, RangeMemory::Managed(..) | RangeMemory::Variable(..));
    Some(RegisteredRange { start, size: range.size, flags: range.flags, mapped, is_managed })
}

/// Returns whether all of these bytes are registered.
pub(crate) fn is_registered(address: usize, size: usize) -> bool {
    find(address).is_some_and(|range| address - range.start + size <= range.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_known_once() {
        let size = 3 * 4096;
        let mut own = vec![0u8; size];
        let address = own.as_mut_ptr().addr();
        register(address, size, 0).unwrap();
        assert_eq!(register(address + 8, 8, 0), Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
        assert_eq!(register(address - 8, 9, 0), Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
        assert!(is_registered(address + 5, size - 5) && !is_registered(address + 5, size));
        assert_eq!(free(address), Err(CUDA_ERROR_INVALID_VALUE));
        unregister(address).unwrap();
        assert_eq!(unregister(address), Err(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
        let pinned = allocate_pages(100, 0).unwrap();
        let found =
            RegisteredRange { start: pinned, size: 100, flags: 0, mapped: None, is_managed: false };
        assert_eq!(find(pinned + 99), Some(found));
        assert_eq!(find(pinned + 100), None);
        free(pinned).unwrap();
        assert_eq!(free(pinned), Err(CUDA_ERROR_INVALID_VALUE));
    }
}
