//! A device's memory: arenas, each one buffer of the pool, and what is handed out of them.
//!
//! Handing out needs no word with the worker: it is done here, in O(log n).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_client::{Context, Event, Memory};
use penstock_cuda_sys::driver::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY};

use super::address;
use super::free::Free;
use crate::edge::CuResult;

/// What is handed out begins at multiples of this: "The allocated memory is suitably aligned for any kind of variable", and
/// programs count on 256 bytes. Check mode has one bit for as many.
pub(crate) const GRAIN_BYTES: u64 = 256;

/// The first arena where memory is the device's own, in bytes: each costs an argument of every kernel, and as much memory as it is
/// large from its first use on. So each is twice as large as the one before.
const GROW_BYTES: u64 = 256 << 20;

/// Arenas of one device. Kernels compare addresses with all of them. Of doubled arenas eleven are 512 GiB; where a buffer may be a quarter
/// of the memory, as OpenCL asks at least, three or four more of that size take the rest.
const ARENAS_MAX: usize = 32;

/// Memory that the program has freed and that is still in use, at most, in bytes: who frees more waits, as CUDA's own `cudaFree`
/// always does. Else a program that allocates and frees in a loop would touch all memory that there is.
pub(crate) const LEAVING_BYTES_MAX: u64 = 256 << 20;

/// What is kept for the next allocation where the driver hands out memory, in bytes: free arenas beyond are given back, so that others
/// who use the GPU can have them.
const KEPT_BYTES: u64 = 256 << 20;

/// Asks for arenas of so many MiB, also where one would be enough: for the tests, and for devices with little memory.
const ARENA_VARIABLE: &str = "PENSTOCK_CUDA_ARENA_MIB";

/// Something handed out: only who got it can give it back, not who holds its address from before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) address: u64,
    serial: u64,
}

/// One buffer of the pool.
#[derive(Clone, Debug)]
pub(crate) struct Arena {
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) memory: Arc<Memory>,
}

/// What is known of something handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    /// Bytes that were asked for.
    pub(crate) size: u64,
    /// The context that it belongs to.
    pub(crate) owner: u64,
    /// A number that no other allocation has or had.
    pub(crate) serial: u64,
    /// Whether the program itself may free it.
    pub(crate) own: bool,
    /// Whether the driver has it for something else: then it is never handed out.
    foreign: bool,
}

/// Bytes of an arena.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) memory: Arc<Memory>,
    pub(crate) offset: u64,
}

#[derive(Debug, Default)]
struct State {
    arenas: Vec<Arena>,
    free: Free,
    live: BTreeMap<u64, Live>,
    /// Given back by the program, but something under way may still use it.
    leaving: Vec<(u64, u64, Vec<Event>)>,
    leaving_bytes: u64,
    used: u64,
    serial: u64,
}

/// The memory of one device.
#[derive(Debug)]
pub(crate) struct Space {
    context: Arc<Context>,
    /// Its first address.
    first: u64,
    /// Bytes of the first arena; each one that is added has twice as many as the one before, or what is needed at once.
    step_bytes: u64,
    /// Bytes of the largest arena that the device can have.
    largest: u64,
    /// Whether there is one arena at most.
    is_single: bool,
    total: u64,
    /// Whether addresses are those of CUDA's own driver.
    is_native: bool,
    state: Mutex<State>,
}

fn rounded(size: u64) -> CuResult<u64> {
    size.checked_next_multiple_of(GRAIN_BYTES).ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

/// The size of the next arena, with room for `bytes`, after `count` arenas that have `taken` bytes. The first one has `step` bytes, none has
/// more than `largest`, all together no more than `total`.
fn next_bytes(
    (step, largest, total): (u64, u64, u64),
    is_single: bool,
    bytes: u64,
    count: usize,
    taken: u64,
) -> Option<u64> {
    if count == ARENAS_MAX || (is_single && count > 0) || bytes > largest {
        return None;
    }
    let doubled =
        1_u64.checked_shl(u32::try_from(count).ok()?).map(|times| step.saturating_mul(times));
    let step = doubled.unwrap_or(largest).min(largest);
    let size = bytes.max(step).min(total.saturating_sub(taken)) / GRAIN_BYTES * GRAIN_BYTES;
    (bytes <= size).then_some(size)
}

/// The size of arenas that [`ARENA_VARIABLE`] asks for.
fn arena_bytes() -> Option<u64> {
    let mib: u64 = std::env::var(ARENA_VARIABLE).ok()?.trim().parse().ok()?;
    mib.checked_mul(1 << 20).filter(|bytes| *bytes > 0)
}

impl Space {
    /// `largest`: the largest buffer that the device can have; `total`: all of its memory. `lazy`: pages cost something only when
    /// they are used; `is_single`: there is to be one arena at most.
    pub(crate) fn new(
        context: &Arc<Context>,
        device: usize,
        (lazy, is_single): (bool, bool),
        (largest, total): (u64, u64),
    ) -> Self {
        let largest = largest / GRAIN_BYTES * GRAIN_BYTES;
        // Where pages cost something only when they are used, an arena is as large as it can be.
        let step = if lazy { largest } else { GROW_BYTES };
        let (step_bytes, total) = if is_single {
            (largest, largest.min(total))
        } else {
            (arena_bytes().unwrap_or(step).min(largest), total)
        };
        Self {
            context: context.clone(),
            first: address::first(device),
            step_bytes,
            largest,
            is_single,
            total,
            is_native: false,
            state: Mutex::default(),
        }
    }

    /// With the addresses of CUDA's own driver.
    pub(crate) fn with_native(self, is_native: bool) -> Self {
        Self { is_native, ..self }
    }

    /// Whether an address is in one of its arenas, where those are the driver's.
    pub(crate) fn has_native(&self, address: u64) -> bool {
        self.is_native && self.state().place(address).is_some()
    }

    /// Adds memory that the driver has for something else: nothing is handed out of it.
    pub(crate) fn add_foreign(&self, arena: Arena, owner: u64) {
        let mut state = self.state();
        state.serial += 1;
        let live =
            Live { size: arena.size, owner, serial: state.serial, own: false, foreign: true };
        state.live.insert(arena.base, live);
        state.arenas.push(arena);
    }

    /// Forgets what was added.
    pub(crate) fn forget_foreign(&self, base: u64) {
        let mut state = self.state();
        state.live.remove(&base);
        state.arenas.retain(|arena| arena.base != base);
    }

    /// What no other device has.
    pub(crate) fn key(&self) -> u64 {
        self.first
    }

    /// Bytes of the device's memory that can be handed out at most.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Bytes that the program can have: also those that it has freed and that something under way still uses, because who needs them
    /// waits for them.
    pub(crate) fn free(&self) -> u64 {
        let state = self.state();
        self.total.saturating_sub(state.used - state.leaving_bytes)
    }

    /// How many arenas there are now that kernels must be told of.
    pub(crate) fn count(&self) -> usize {
        if self.is_native { 0 } else { self.state().arenas.len() }
    }

    /// The arenas there are now that kernels must be told of.
    pub(crate) fn arenas(&self) -> Vec<Arena> {
        if self.is_native { Vec::new() } else { self.state().arenas.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out memory for `owner`; `own`: the program may free it.
    pub(crate) fn allocate(&self, size: u64, owner: u64, own: bool) -> CuResult<Block> {
        if size == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let bytes = rounded(size)?;
        let mut state = self.state();
        state.sweep();
        let start = match state.free.take(bytes) {
            Some(start) => start,
            None => {
                // What is leaving may be enough, when what uses it has ended.
                let leaving: Vec<Event> =
                    state.leaving.iter().flat_map(|(.., events)| events.clone()).collect();
                drop(state);
                for event in leaving {
                    _ = event.wait();
                }
                state = self.state();
                state.sweep();
                match state.free.take(bytes) {
                    Some(start) => start,
                    None => self.grow(&mut state, bytes)?,
                }
            }
        };
        state.used += bytes;
        state.serial += 1;
        let serial = state.serial;
        state.live.insert(start, Live { size, owner, serial, own, foreign: false });
        Ok(Block { address: start, serial })
    }

    /// Adds an arena with room for `bytes`, and takes them.
    fn grow(&self, state: &mut State, bytes: u64) -> CuResult<u64> {
        if self.is_native {
            // One grain of each arena is never handed out: the driver may put one right behind the other, and what is free must not
            // reach over the end.
            let wanted = bytes + GRAIN_BYTES;
            let arena =
                super::native::arena(&self.context, self.first, wanted).or_else(|code| {
                    // Arenas that are all free may be what is lacking.
                    if state.give_back(self.first, 0) {
                        super::native::arena(&self.context, self.first, wanted)
                    } else {
                        Err(code)
                    }
                })?;
            state.free.add(arena.base, arena.size - GRAIN_BYTES);
            state.arenas.push(arena);
            return state.free.take(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let taken = state.arenas.iter().map(|arena| arena.size).sum();
        let sizes = (self.step_bytes, self.largest, self.total);
        let size = next_bytes(sizes, self.is_single, bytes, state.arenas.len(), taken);
        let size = size.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        /// `CL_MEM_READ_WRITE`.
        const READ_WRITE: u64 = 1;
        let memory = Memory::buffer(&self.context, READ_WRITE, size, None)
            .map_err(|error| crate::edge::of_error(&error))?;
        let base = state
            .arenas
            .last()
            .map_or(self.first, |last| address::next_arena(last.base + last.size));
        state.arenas.push(Arena { base, size, memory });
        state.free.add(base, size);
        state.free.take(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Takes back what the program got at `address`, once `busy` have ended. Its size. Waits where too much is waiting already.
    pub(crate) fn free_own(&self, address: u64, busy: Vec<Event>) -> CuResult<u64> {
        self.free_if(address, busy, |live| live.own)
    }

    /// Takes back a block, once `busy` have ended. Its size.
    pub(crate) fn free_block(&self, block: Block, busy: Vec<Event>) -> CuResult<u64> {
        self.free_if(block.address, busy, |live| live.serial == block.serial)
    }

    fn free_if(
        &self,
        address: u64,
        busy: Vec<Event>,
        may_free: impl Fn(&Live) -> bool,
    ) -> CuResult<u64> {
        let mut state = self.state();
        let known = state.live.get(&address).copied().filter(may_free);
        let live = known.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        state.live.remove(&address);
        state.leave(address, live.size, busy);
        if self.is_native {
            state.sweep();
            state.give_back(self.first, KEPT_BYTES);
        }
        Ok(live.size)
    }

    /// Bytes that have been freed and are still in use, as far as is known.
    pub(crate) fn leaving(&self) -> u64 {
        let mut state = self.state();
        if state.leaving_bytes > LEAVING_BYTES_MAX {
            state.sweep();
        }
        state.leaving_bytes
    }

    /// Gives back what is free beyond `kept` bytes, where whole arenas of the driver are.
    pub(crate) fn trim(&self, kept: u64) {
        let mut state = self.state();
        state.sweep();
        if self.is_native {
            state.give_back(self.first, kept);
        }
    }

    /// Takes back everything of a context that has ended: address and size of each.
    pub(crate) fn free_of(&self, owner: u64) -> Vec<(u64, u64)> {
        let mut state = self.state();
        let freed = state.free_of(owner);
        if self.is_native {
            state.give_back(self.first, KEPT_BYTES);
        }
        freed
    }

    /// What `address` lies in, and where that begins.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, Live)> {
        let state = self.state();
        let (start, live) = state.live.range(..=address).next_back()?;
        (address - start < live.size).then_some((*start, *live))
    }

    /// Where `size` bytes at `address` are, all in one allocation.
    pub(crate) fn place(&self, address: u64, size: u64) -> CuResult<Place> {
        let state = self.state();
        let inside = state.live.range(..=address).next_back().is_some_and(|(start, live)| {
            (address - start).checked_add(size).is_some_and(|end| end <= live.size)
        });
        if !inside {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        state.place(address).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Calls `each` with every allocation: check mode begins with what is there already.
    pub(crate) fn each(&self, mut each: impl FnMut(u64, u64)) {
        self.state().live.iter().for_each(|(start, live)| each(*start, live.size));
    }
}

impl State {
    fn place(&self, address: u64) -> Option<Place> {
        let arena =
            self.arenas.iter().find(|arena| address.wrapping_sub(arena.base) < arena.size)?;
        Some(Place { memory: arena.memory.clone(), offset: address - arena.base })
    }

    fn free_of(&mut self, owner: u64) -> Vec<(u64, u64)> {
        let of_owner = self.live.extract_if(.., |_, live| live.owner == owner);
        let all: Vec<_> = of_owner.collect();
        for (start, live) in &all {
            if live.foreign {
                // It was never free, and is no more: its arena is just that memory.
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

    /// Gives arenas back that are all free, the largest first, while more than `kept` bytes of such are there. Whether there was one.
    fn give_back(&mut self, device: u64, kept: u64) -> bool {
        // A variable's is never free, and may be smaller than a grain.
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
                super::native::release(device, arena);
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
            self.leaving.push((start, bytes, busy));
        }
    }

    /// Takes in what nothing uses any more.
    fn sweep(&mut self) {
        // What the link has brought: once for all, because there may be thousands.
        if let Some(event) = self.leaving.first().and_then(|(.., busy)| busy.first()) {
            _ = event.poll();
        }
        for (start, bytes, busy) in std::mem::take(&mut self.leaving) {
            if busy.iter().all(|event| event.known_status().is_some()) {
                self.leaving_bytes -= bytes;
                self.used -= bytes;
                self.free.add(start, bytes);
            } else {
                self.leaving.push((start, bytes, busy));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arenas until nothing more can be had, each filled with buffers of `buffer` bytes: how many arenas, and how much of all is used.
    fn filled(buffer: u64, largest: u64, total: u64) -> (usize, u64) {
        let (mut count, mut taken, mut used) = (0, 0, 0);
        while let Some(size) =
            next_bytes((GROW_BYTES.min(largest), largest, total), false, buffer, count, taken)
        {
            (count, taken, used) = (count + 1, taken + size, used + size / buffer * buffer);
        }
        (count, used)
    }

    #[test]
    fn arenas_grow_so_that_all_memory_can_be_had() {
        const GIB: u64 = 1 << 30;
        for (largest, total) in [(6 * GIB, 24 * GIB), (24 * GIB, 24 * GIB), (36 * GIB, 144 * GIB)] {
            for buffer in [1 << 20, 200 << 20, 2 * GIB] {
                let (count, used) = filled(buffer, largest, total);
                assert!(used > total / 10 * 9, "{used} of {total} in {buffer}");
                assert!(count < ARENAS_MAX, "{count}");
            }
        }
        // One arena, and none that is larger than a buffer may be.
        assert_eq!(next_bytes((256, 1024, 4096), true, 256, 1, 256), None);
        assert_eq!(next_bytes((256, 1024, 4096), false, 1280, 0, 0), None);
        assert_eq!(next_bytes((256, 1024, 4096), false, 256, 3, 3840), Some(256));
    }

    #[test]
    fn what_the_driver_has_for_something_else_never_becomes_free() {
        let mut state = State::default();
        let live = |owner, foreign| Live { size: 4, owner, serial: 1, own: false, foreign };
        state.live.insert(0x1000, live(7, true));
        state.live.insert(0x2000, live(7, false));
        state.live.insert(0x3000, live(8, false));
        state.used = 2 * GRAIN_BYTES;
        assert_eq!(state.free_of(7), [(0x2000, 4)]);
        assert_eq!(state.free.ranges(), [(0x2000, GRAIN_BYTES)]);
        assert_eq!((state.used, state.live.len()), (GRAIN_BYTES, 1));
    }

    #[test]
    fn what_is_in_use_is_free_when_all_that_uses_it_has_ended() {
        let (one, other) = (penstock_client::user_event(), penstock_client::user_event());
        let mut state = State { used: 3 * GRAIN_BYTES, ..Default::default() };
        state.leave(0x1000, 10, vec![one.clone()]);
        state.leave(0x2000, 256, vec![one.clone(), other.clone()]);
        state.leave(0x3000, 1, vec![other.clone()]);
        state.sweep();
        assert_eq!((state.leaving_bytes, state.free.ranges()), (3 * GRAIN_BYTES, vec![]));
        penstock_client::set_user_event(&other, penstock_wire::Status::OK);
        state.sweep();
        assert_eq!(
            (state.leaving_bytes, state.free.ranges()),
            (2 * GRAIN_BYTES, vec![(0x3000, GRAIN_BYTES)])
        );
        // Failed is ended, too.
        penstock_client::set_user_event(&one, penstock_wire::Status::NODE_LOST);
        state.sweep();
        assert_eq!((state.leaving_bytes, state.used, state.leaving.len()), (0, 0, 0));
    }
}
