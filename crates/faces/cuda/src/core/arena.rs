//! A device's memory: arenas, each one buffer of the pool, and the allocations in them.
//!
//! The client allocates without asking the worker, in O(log n).

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_cl_sys::CL_MEM_READ_WRITE;
use penstock_client::{Context, Event, Memory};
use penstock_cuda_sys::driver::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY};
use penstock_process::{Lock, variable};

use super::address;
use super::block::{Arena, ArenaSource, Block, GRAIN_BYTES, MemoryOffset};
use super::free::FreeRanges;
use super::{native, reserved};
use crate::edge::{CuResult, window};

/// Size of the first arena in bytes if the device has its own memory. Each arena costs an argument
/// of every kernel, and its full size in device memory from its first use on. So each arena is
/// twice as large as the one before.
const GROW_BYTES: u64 = 256 << 20;

/// Maximum number of arenas of one device. Kernels compare addresses with all of them. Eleven
/// doubled arenas are 512 GiB. If a buffer may only be a quarter of the memory, the minimum that
/// OpenCL requires, three or four arenas of that size take the rest.
const ARENAS_MAX: usize = 32;

/// Maximum number of bytes that the program has freed and that commands still use. A thread that
/// frees more waits, as CUDA's own `cudaFree` always does. Otherwise a program that allocates and
/// frees in a loop would touch all memory.
pub(crate) const LEAVING_BYTES_MAX: u64 = 256 << 20;

/// What is known of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// Number of bytes that were asked for.
    pub(crate) size: u64,
    /// Number of the context that owns the allocation.
    pub(crate) owner: u64,
    /// Unique number of this allocation, never used again.
    pub(crate) serial: u64,
    /// Whether the program may free it.
    pub(crate) program_may_free: bool,
    /// Whether the driver uses this memory for something else. Such memory is never allocated.
    foreign: bool,
}

/// A range that the program has freed.
#[derive(Debug)]
struct LeavingRange {
    start: u64,
    bytes: u64,
    /// Events of the commands that may still use the range.
    busy: Vec<Event>,
}

#[derive(Debug, Default)]
struct SpaceState {
    arenas: Vec<Arena>,
    free: FreeRanges,
    live: BTreeMap<u64, Allocation>,
    /// Ranges that the program has freed and that commands may still use.
    leaving: Vec<LeavingRange>,
    leaving_bytes: u64,
    /// Smallest size in bytes of a shared arena that the node has refused, until an allocation is
    /// freed.
    refused: Option<u64>,
    used: u64,
    serial: u64,
}

/// The memory of one device, or the host memory that the device copies by itself.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    context: Arc<Context>,
    /// First address of the device.
    first: u64,
    /// Number of addresses that its arenas can take.
    span_bytes: u64,
    /// Whether these addresses are reserved in this process. If not, no process has them.
    has_window: bool,
    /// Bytes of the first arena. Each further arena is twice as large as the one before, or as
    /// large as the allocation that needs it.
    step_bytes: u64,
    /// Bytes of the largest arena that the device supports.
    largest: u64,
    /// Whether there can be only one arena.
    has_one_arena: bool,
    total: u64,
    source: ArenaSource,
    state: Lock<SpaceState>,
}

fn rounded(size: u64) -> CuResult<u64> {
    size.checked_next_multiple_of(GRAIN_BYTES).ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

/// The properties of a device's memory that decide how large its arenas are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceMemory {
    /// Number of bytes of the largest buffer that the device supports.
    pub(crate) largest: u64,
    /// Number of bytes of the device's memory.
    pub(crate) total: u64,
    /// Whether pages cost memory only when they are used.
    pub(crate) lazy: bool,
    /// Whether there can be only one arena.
    pub(crate) has_one_arena: bool,
    pub(crate) source: ArenaSource,
}

impl DeviceMemory {
    /// Memory that the program shares with a worker. The node's limits decide how much of it there
    /// can be, and no size is known before.
    pub(super) const SHARED: Self = Self {
        largest: 0,
        total: 0,
        lazy: false,
        has_one_arena: false,
        source: ArenaSource::Shared,
    };
}

/// Limits of the arenas of one device, in bytes.
#[derive(Clone, Copy, Debug)]
struct ArenaSizes {
    /// Size of the first arena.
    first: u64,
    /// No arena exceeds this size.
    largest: u64,
    /// All arenas together do not exceed this size.
    total: u64,
}

/// Returns the size of the next arena, with room for `bytes`, after `count` arenas of `taken` bytes
/// together.
fn next_bytes(
    ArenaSizes { first, largest, total }: ArenaSizes,
    has_one_arena: bool,
    bytes: u64,
    count: usize,
    taken: u64,
) -> Option<u64> {
    if count == ARENAS_MAX || (has_one_arena && count > 0) || bytes > largest {
        return None;
    }
    let doubled =
        1_u64.checked_shl(u32::try_from(count).ok()?).map(|times| first.saturating_mul(times));
    let step = doubled.unwrap_or(largest).min(largest);
    let size = bytes.max(step).min(total.saturating_sub(taken)) / GRAIN_BYTES * GRAIN_BYTES;
    (bytes <= size).then_some(size)
}

/// Returns the size of the first arena that `PENSTOCK_CUDA_ARENA_MIB` asks for.
fn arena_bytes() -> Option<u64> {
    variable::CUDA_ARENA_MIB.number().map(|mib| mib << 20)
}

impl AddressSpace {
    pub(crate) fn new(context: &Arc<Context>, device: usize, memory: DeviceMemory) -> Self {
        let DeviceMemory { largest, total, lazy, has_one_arena, source } = memory;
        let largest = largest / GRAIN_BYTES * GRAIN_BYTES;
        // Unused pages cost nothing, so the arena can have the largest size.
        let step = if lazy { largest } else { GROW_BYTES };
        let (step_bytes, total) = if has_one_arena {
            (largest, largest.min(total))
        } else {
            (arena_bytes().unwrap_or(step).min(largest), total)
        };
        let span_bytes = address::span(total, ARENAS_MAX);
        // The reservation names the device by the number that identifies it.
        let window = address::window(device)
            .filter(|_| source == ArenaSource::Pool)
            .filter(|start| reserved::reserve(*start, *start, span_bytes));
        Self {
            context: context.clone(),
            first: window.unwrap_or(address::first(device)),
            span_bytes,
            has_window: window.is_some(),
            step_bytes,
            largest,
            has_one_arena,
            total,
            source,
            state: Lock::default(),
        }
    }

    /// Returns whether its addresses are reserved in this process.
    pub(crate) fn has_window(&self) -> bool {
        self.has_window
    }

    /// Returns whether this process must have nothing at the address, because the device may have
    /// memory there.
    pub(crate) fn may_have(&self, address: u64) -> bool {
        address.wrapping_sub(self.first) < self.span_bytes
    }

    /// Returns whether the address is in one of the arenas and CUDA's own driver chose it.
    pub(crate) fn has_native(&self, address: u64) -> bool {
        self.source == ArenaSource::Driver && self.state.lock().locate(address).is_some()
    }

    /// Adds memory that the driver uses for something else. Nothing is allocated from it.
    pub(crate) fn add_foreign(&self, arena: Arena, owner: u64) {
        let mut state = self.state.lock();
        state.serial += 1;
        let live = Allocation {
            size: arena.size,
            owner,
            serial: state.serial,
            program_may_free: false,
            foreign: true,
        };
        state.live.insert(arena.base, live);
        state.arenas.push(arena);
    }

    /// Forgets memory that [`AddressSpace::add_foreign`] added.
    pub(crate) fn forget_foreign(&self, base: u64) {
        let mut state = self.state.lock();
        state.live.remove(&base);
        state.arenas.retain(|arena| arena.base != base);
    }

    /// Returns a number that identifies the device.
    pub(crate) fn key(&self) -> u64 {
        self.first
    }

    /// Returns the number of bytes that can be allocated in total.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of bytes that the program can allocate. This includes freed memory that
    /// commands still use, because an allocation that needs it waits for them.
    pub(crate) fn free(&self) -> u64 {
        let state = self.state.lock();
        self.total.saturating_sub(state.used - state.leaving_bytes)
    }

    /// Returns the number of arenas that kernels must know.
    pub(crate) fn count(&self) -> usize {
        if self.source == ArenaSource::Pool { self.state.lock().arenas.len() } else { 0 }
    }

    /// Returns the arenas that kernels must know.
    pub(crate) fn arenas(&self) -> Vec<Arena> {
        match self.source {
            ArenaSource::Pool => self.state.lock().arenas.clone(),
            ArenaSource::Driver | ArenaSource::Shared => Vec::new(),
        }
    }

    /// Allocates memory for `owner`. `program_may_free`: the program may free it.
    pub(crate) fn allocate(
        &self,
        size: u64,
        owner: u64,
        program_may_free: bool,
    ) -> CuResult<Block> {
        if size == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let bytes = rounded(size)?;
        let take = |state: &mut SpaceState| match program_may_free {
            true => state.free.take_for_program(bytes),
            false => state.free.take(bytes),
        };
        let mut state = self.state.lock();
        state.sweep();
        let start = match take(&mut state) {
            Some(start) => start,
            None if self.source == ArenaSource::Shared => {
                drop(state);
                let arena = self.share(bytes)?;
                state = self.state.lock();
                state.add(arena);
                take(&mut state).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?
            }
            None => {
                // Freed memory may be enough once the commands that use it have ended.
                let leaving: Vec<Event> =
                    state.leaving.iter().flat_map(|range| range.busy.clone()).collect();
                drop(state);
                for event in leaving {
                    _ = event.wait();
                }
                state = self.state.lock();
                state.sweep();
                match take(&mut state) {
                    Some(start) => start,
                    None => {
                        self.grow(&mut state, bytes)?;
                        take(&mut state).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?
                    }
                }
            }
        };
        state.used += bytes;
        state.serial += 1;
        let serial = state.serial;
        state
            .live
            .insert(start, Allocation { size, owner, serial, program_may_free, foreign: false });
        Ok(Block { address: start, serial })
    }

    /// Makes a shared arena with room for `bytes`. Waits for the worker, but for no command: if the
    /// node has no such memory now, the program gets plain pages. Holds no lock while the pages are
    /// made and registered, because each copy of shared memory asks where the memory is.
    fn share(&self, bytes: u64) -> CuResult<Arena> {
        let wanted = native::shared::size_for(bytes + GRAIN_BYTES)?;
        if !self.state.lock().may_share(wanted) || !native::shared::has_room(wanted) {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        native::shared::allocate(&self.context, wanted).inspect_err(|_| {
            let mut state = self.state.lock();
            state.refused = Some(wanted);
            // The node may soon have the memory of unused arenas, and nobody waits for that.
            state.give_back(self.first, 0);
        })
    }

    /// Adds an arena with room for `bytes`.
    fn grow(&self, state: &mut SpaceState, bytes: u64) -> CuResult {
        if self.source == ArenaSource::Driver {
            let make = || native::arena::allocate(&self.context, self.first, bytes + GRAIN_BYTES);
            // Returning unused arenas may give the driver the memory that it lacks.
            let arena = make()
                .or_else(|code| if state.give_back(self.first, 0) { make() } else { Err(code) })?;
            state.add(arena);
            return Ok(());
        }
        let taken = state.arenas.iter().map(|arena| arena.size).sum();
        let sizes = ArenaSizes { first: self.step_bytes, largest: self.largest, total: self.total };
        let size = next_bytes(sizes, self.has_one_arena, bytes, state.arenas.len(), taken);
        let size = size.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let memory = Memory::buffer(&self.context, CL_MEM_READ_WRITE, size, None)
            .map_err(|error| crate::edge::of_error(&error))?;
        let base = state
            .arenas
            .last()
            .map_or(self.first, |last| address::next_arena(last.base + last.size));
        let content = memory.shared_pointer().filter(|_| self.has_window());
        let joined = content.is_some_and(|content| window::join(base, size, content));
        state.arenas.push(Arena { base, size, memory, joined });
        state.free.add(base, size);
        Ok(())
    }

    /// Frees the program's allocation at `address`. The memory is used again once `busy` have
    /// ended. Returns its size.
    pub(crate) fn free_of_program(&self, address: u64, busy: Vec<Event>) -> CuResult<u64> {
        self.free_if(address, busy, |live| live.program_may_free)
    }

    /// Frees a block. The memory is used again once `busy` have ended. Returns its size.
    pub(crate) fn free_block(&self, block: Block, busy: Vec<Event>) -> CuResult<u64> {
        self.free_if(block.address, busy, |live| live.serial == block.serial)
    }

    fn free_if(
        &self,
        address: u64,
        busy: Vec<Event>,
        may_free: impl Fn(&Allocation) -> bool,
    ) -> CuResult<u64> {
        let mut state = self.state.lock();
        let known = state.live.get(&address).copied().filter(may_free);
        let live = known.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        state.live.remove(&address);
        state.leave(address, live.size, busy);
        state.refused = None;
        if self.source != ArenaSource::Pool {
            state.sweep();
            state.give_back(self.first, self.source.kept_bytes());
        }
        Ok(live.size)
    }

    /// Returns the number of bytes that are freed but still in use, as far as is known.
    pub(crate) fn leaving(&self) -> u64 {
        let mut state = self.state.lock();
        if state.leaving_bytes > LEAVING_BYTES_MAX {
            state.sweep();
        }
        state.leaving_bytes
    }

    /// Returns free arenas to the driver, except for `kept` bytes.
    pub(crate) fn trim(&self, kept: u64) {
        let mut state = self.state.lock();
        state.sweep();
        if self.source != ArenaSource::Pool {
            state.give_back(self.first, kept);
        }
    }

    /// Frees everything that a destroyed context owned. Returns address and size of each
    /// allocation.
    pub(crate) fn free_of(&self, owner: u64) -> Vec<(u64, u64)> {
        let mut state = self.state.lock();
        let freed = state.free_of(owner);
        if self.source != ArenaSource::Pool {
            state.give_back(self.first, self.source.kept_bytes());
        }
        freed
    }

    /// Returns the allocation that contains `address`, and its start.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, Allocation)> {
        let state = self.state.lock();
        let (start, live) = state.live.range(..=address).next_back()?;
        (address - start < live.size).then_some((*start, *live))
    }

    /// Returns whether the program can be given access to the address as it is.
    pub(crate) fn is_joined(&self, address: u64) -> bool {
        let state = self.state.lock();
        let mut arenas = state.arenas.iter();
        arenas.any(|arena| arena.joined && address.wrapping_sub(arena.base) < arena.size)
    }

    /// Returns where the `size` bytes at `address` are. All of them must lie in one allocation.
    pub(crate) fn locate(&self, address: u64, size: u64) -> CuResult<MemoryOffset> {
        let state = self.state.lock();
        let inside = state.live.range(..=address).next_back().is_some_and(|(start, live)| {
            (address - start).checked_add(size).is_some_and(|end| end <= live.size)
        });
        if !inside {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        state.locate(address).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Calls `each` with start and size of every allocation.
    pub(crate) fn each(&self, mut each: impl FnMut(u64, u64)) {
        self.state.lock().live.iter().for_each(|(start, live)| each(*start, live.size));
    }
}

impl SpaceState {
    fn locate(&self, address: u64) -> Option<MemoryOffset> {
        let arena =
            self.arenas.iter().find(|arena| address.wrapping_sub(arena.base) < arena.size)?;
        Some(MemoryOffset { memory: arena.memory.clone(), offset: address - arena.base })
    }

    /// Returns whether the worker may be asked for a shared arena of this size. It has refused no
    /// smaller one since, and what is freed and still in use is within the limit.
    fn may_share(&self, bytes: u64) -> bool {
        self.refused.is_none_or(|refused| bytes < refused)
            && self.leaving_bytes <= LEAVING_BYTES_MAX
    }

    /// Adds an arena that the worker has made.
    fn add(&mut self, arena: Arena) {
        // The last grain of each arena is never allocated. Two arenas may lie side by side, and a
        // free range must not span both.
        self.free.add(arena.base, arena.size - GRAIN_BYTES);
        self.arenas.push(arena);
    }

    fn free_of(&mut self, owner: u64) -> Vec<(u64, u64)> {
        let of_owner = self.live.extract_if(.., |_, live| live.owner == owner);
        let all: Vec<_> = of_owner.collect();
        for (start, live) in &all {
            if live.foreign {
                // It was never in the free list, and its arena holds nothing else.
                self.arenas.retain(|arena| arena.base != *start);
            } else {
                self.leave(*start, live.size, Vec::new());
            }
        }
        all.into_iter()
            .filter(|(_, live)| !live.foreign)
            .map(|(start, live)| (start, live.size))
            .collect()
    }

    /// Returns free arenas to the driver, the largest first, while their total exceeds `kept`
    /// bytes. Returns whether it returned one.
    fn give_back(&mut self, device: u64, kept: u64) -> bool {
        // The arena of a variable is never free, and may be smaller than a grain.
        let is_free = |arena: &&Arena| {
            let handed_out = arena.size.checked_sub(GRAIN_BYTES).filter(|size| *size > 0);
            handed_out.is_some_and(|size| self.free.has(arena.base, size))
        };
        let mut whole: Vec<_> = self.arenas.iter().filter(is_free).cloned().collect();
        let mut bytes: u64 = whole.iter().map(|arena| arena.size).sum();
        whole.sort_unstable_by_key(|arena| std::cmp::Reverse(arena.size));
        let mut any = false;
        for arena in whole {
            if bytes <= kept {
                break;
            }
            if self.free.take_out(arena.base, arena.size - GRAIN_BYTES) {
                bytes -= arena.size;
                any = true;
                self.arenas.retain(|known| known.base != arena.base);
                native::arena::release(device, arena);
            }
        }
        any
    }

    fn leave(&mut self, start: u64, size: u64, busy: Vec<Event>) {
        let bytes = rounded(size).unwrap_or(size);
        if busy.is_empty() {
            self.used -= bytes;
            self.free.add(start, bytes);
        } else {
            self.leaving_bytes += bytes;
            self.leaving.push(LeavingRange { start, bytes, busy });
        }
    }

    /// Moves ranges that no command uses any more to the free list.
    fn sweep(&mut self) {
        // Receives what the link has brought. Once is enough for all events; there may be
        // thousands.
        if let Some(event) = self.leaving.first().and_then(|range| range.busy.first()) {
            _ = event.poll();
        }
        for range in std::mem::take(&mut self.leaving) {
            if range.busy.iter().all(|event| event.known_status().is_some()) {
                self.leaving_bytes -= range.bytes;
                self.used -= range.bytes;
                self.free.add(range.start, range.bytes);
            } else {
                self.leaving.push(range);
            }
        }
    }
}

#[cfg(test)]
mod tests;
