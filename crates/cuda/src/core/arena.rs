//! A device's memory: arenas, each one buffer of the pool, and what is handed out of them.
//!
//! Handing out needs no word with the worker: it is done here, in O(log n).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_client::{Context, Event, Memory};
use penstock_cuda_sys::driver::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY};

use super::address;
use crate::edge::CuResult;

/// What is handed out begins at multiples of this: "The allocated memory is suitably aligned for any kind of variable", and
/// programs count on 256 bytes. Check mode has one bit for as many.
pub(crate) const GRAIN_BYTES: u64 = 256;

/// An arena where memory is the device's own, in bytes: each costs an argument of every kernel, and as much memory as it is
/// large from its first use on.
const GROW_BYTES: u64 = 256 << 20;

/// Arenas of one device. Kernels compare addresses with all of them.
const ARENAS_MAX: usize = 32;

/// Asks for arenas of so many MiB, also where one would be enough: for the tests, and for devices with little memory.
const ARENA_VARIABLE: &str = "PENSTOCK_CUDA_ARENA_MIB";

/// Free ranges and their neighbours.
#[derive(Debug, Default)]
struct Free {
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Free {
    fn add(&mut self, mut start: u64, mut size: u64) {
        if let Some((before, before_size)) = self.by_start.range(..start).next_back().map(|(a, b)| (*a, *b))
            && before + before_size == start
        {
            self.remove(before, before_size);
            (start, size) = (before, before_size + size);
        }
        if let Some(next_size) = self.by_start.get(&(start + size)).copied() {
            self.remove(start + size, next_size);
            size += next_size;
        }
        self.by_start.insert(start, size);
        self.by_size.insert((size, start));
    }

    fn remove(&mut self, start: u64, size: u64) {
        self.by_start.remove(&start);
        self.by_size.remove(&(size, start));
    }

    /// Takes `size` bytes from the smallest range that has as many, at its lowest address.
    fn take(&mut self, size: u64) -> Option<u64> {
        let (found, start) = *self.by_size.range((size, 0)..).next()?;
        self.remove(start, found);
        if found > size {
            self.by_start.insert(start + size, found - size);
            self.by_size.insert((found - size, start + size));
        }
        Some(start)
    }
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
    used: u64,
    serial: u64,
}

/// The memory of one device.
#[derive(Debug)]
pub(crate) struct Space {
    context: Arc<Context>,
    /// Its first address.
    first: u64,
    /// Bytes of the first arena, and of each one that is added where no more is needed at once.
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
        let live = Live { size: arena.size, owner, serial: state.serial, own: false };
        state.live.insert(arena.base, live);
        state.arenas.push(arena);
    }

    /// Forgets what was added.
    pub(crate) fn forget_foreign(&self, base: u64) {
        let mut state = self.state();
        state.live.remove(&base);
        state.arenas.retain(|arena| arena.base != base);
    }

    /// Bytes of the device's memory that can be handed out at most.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Bytes that are free.
    pub(crate) fn free(&self) -> u64 {
        self.total.saturating_sub(self.state().used)
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
    pub(crate) fn allocate(&self, size: u64, owner: u64, own: bool) -> CuResult<u64> {
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
        state.live.insert(start, Live { size, owner, serial, own });
        Ok(start)
    }

    /// Adds an arena with room for `bytes`, and takes them.
    fn grow(&self, state: &mut State, bytes: u64) -> CuResult<u64> {
        if self.is_native {
            // One grain of each arena is never handed out: the driver may put one right behind the other, and what is free must not
            // reach over the end.
            let arena = super::native::arena(&self.context, bytes + GRAIN_BYTES)?;
            state.free.add(arena.base, arena.size - GRAIN_BYTES);
            state.arenas.push(arena);
            return state.free.take(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let size = match state.arenas.last() {
            _ if bytes > self.largest => return Err(CUDA_ERROR_OUT_OF_MEMORY),
            Some(_) if self.is_single || state.arenas.len() == ARENAS_MAX => {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
            _ => bytes.max(self.step_bytes),
        };
        let taken: u64 = state.arenas.iter().map(|arena| arena.size).sum();
        let size = size.min(self.total.saturating_sub(taken));
        if bytes > size {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        /// `CL_MEM_READ_WRITE`.
        const READ_WRITE: u64 = 1;
        let memory = Memory::buffer(&self.context, READ_WRITE, size, None)
            .map_err(|error| crate::edge::of_error(&error))?;
        let base = state.arenas.last().map_or(self.first, |last| address::next_arena(last.base + last.size));
        state.arenas.push(Arena { base, size, memory });
        state.free.add(base, size);
        state.free.take(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Takes back what begins at `address`, once `busy` have ended. Its size.
    pub(crate) fn free_at(&self, address: u64, own: bool, busy: Vec<Event>) -> CuResult<u64> {
        let mut state = self.state();
        let known = state.live.get(&address).copied().filter(|live| live.own || !own);
        let live = known.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        state.live.remove(&address);
        state.leave(address, live.size, busy);
        Ok(live.size)
    }

    /// Takes back everything of a context that has ended.
    pub(crate) fn free_of(&self, owner: u64) {
        let mut state = self.state();
        let of_owner = state.live.iter().filter(|(_, live)| live.owner == owner);
        let all: Vec<_> = of_owner.map(|(start, live)| (*start, live.size)).collect();
        for (start, size) in all {
            state.live.remove(&start);
            state.leave(start, size, Vec::new());
        }
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
        let arena = self.arenas.iter().find(|arena| address.wrapping_sub(arena.base) < arena.size)?;
        Some(Place { memory: arena.memory.clone(), offset: address - arena.base })
    }

    fn leave(&mut self, start: u64, size: u64, busy: Vec<Event>) {
        let bytes = rounded(size).unwrap_or(size);
        if busy.is_empty() {
            self.used -= bytes;
            self.free.add(start, bytes);
        } else {
            self.leaving.push((start, bytes, busy));
        }
    }

    /// Takes in what nothing uses any more.
    fn sweep(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        for (start, bytes, busy) in std::mem::take(&mut self.leaving) {
            if busy.iter().all(|event| event.poll().is_some()) {
                self.used -= bytes;
                self.free.add(start, bytes);
            } else {
                self.leaving.push((start, bytes, busy));
            }
        }
    }
}

#[cfg(test)]
impl Free {
    fn ranges(&self) -> Vec<(u64, u64)> {
        self.by_start.iter().map(|(start, size)| (*start, *size)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_when_they_come_back() {
        let mut free = Free::default();
        free.add(0x1000, 0x1000);
        let parts: Vec<u64> = (0..4).map(|_| free.take(0x400).unwrap()).collect();
        assert_eq!(parts, [0x1000, 0x1400, 0x1800, 0x1c00]);
        assert_eq!(free.take(1), None);
        free.add(0x1400, 0x400);
        free.add(0x1c00, 0x400);
        assert_eq!(free.ranges(), [(0x1400, 0x400), (0x1c00, 0x400)]);
        free.add(0x1800, 0x400);
        assert_eq!(free.ranges(), [(0x1400, 0xc00)]);
        free.add(0x1000, 0x400);
        assert_eq!(free.ranges(), [(0x1000, 0x1000)]);
        assert_eq!(free.by_size.len(), 1);
    }

    #[test]
    fn the_smallest_range_that_fits_is_taken() {
        let mut free = Free::default();
        for (start, size) in [(0x10000, 0x1000), (0x20000, 0x400), (0x30000, 0x800)] {
            free.add(start, size);
        }
        assert_eq!(free.take(0x500), Some(0x30000));
        assert_eq!(free.take(0x400), Some(0x20000));
        assert_eq!(free.take(0x400), Some(0x10000));
    }

    #[test]
    fn handed_out_ranges_never_overlap() {
        let mut free = Free::default();
        free.add(0x100, 1 << 20);
        let (mut live, mut seed) = (Vec::<(u64, u64)>::new(), 1u64);
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if seed >> 63 == 0 || live.is_empty() {
                let size = ((seed >> 40) % 64 + 1) * GRAIN_BYTES;
                if let Some(start) = free.take(size) {
                    assert!(
                        live.iter().all(|(other, bytes)| start + size <= *other || other + bytes <= start)
                    );
                    live.push((start, size));
                }
            } else {
                let index = usize::try_from(seed >> 33).unwrap() % live.len();
                let (start, size) = live.swap_remove(index);
                free.add(start, size);
            }
        }
        live.drain(..).for_each(|(start, size)| free.add(start, size));
        assert_eq!(free.ranges(), [(0x100, 1 << 20)]);
    }
}
