//! Several arenas, as devices with memory of their own have them. A file of its own, because a variable asks for it.

mod common;

use std::ptr::null_mut;

use common::*;
use penstock_cuda::api::memory::{cuMemAlloc_v2, cuMemFree_v2};
use penstock_cuda_sys::driver::*;

const MIB: usize = 1 << 20;

#[test]
fn modules_reach_memory_that_was_added_after_they_were_loaded() {
    // SAFETY: before the first call that reads it.
    unsafe { std::env::set_var("PENSTOCK_CUDA_ARENA_MIB", "4") };
    let _context = TestContext::new();
    let add_one = function(load(KERNELS), "add_one");
    let first = allocate(64);
    upload(first, &[1u32]);
    ok(launch(add_one, 1, 1, null_mut(), &[first]));
    // Each more than half of an arena.
    let more: Vec<_> = (0..3).map(|_| allocate(3 * MIB)).collect();
    let large = allocate(20 * MIB);
    for address in more.iter().chain([&large, &(large + 16 * MIB as u64)]) {
        upload(*address, &[10u32]);
        ok(launch(add_one, 1, 1, null_mut(), &[*address]));
        assert_eq!(download::<u32>(*address, 1), [11]);
    }
    // Kernels of both kinds of arenas may be under way at once; the old memory is still reached.
    ok(launch(add_one, 1, 1, null_mut(), &[first]));
    assert_eq!(download::<u32>(first, 1), [3]);
    // A module that is loaded now knows all of them.
    let again = function(load(KERNELS), "add_one");
    ok(launch(again, 1, 1, null_mut(), &[more[2]]));
    assert_eq!(download::<u32>(more[2], 1), [12]);
    for address in more {
        // SAFETY: an address.
        ok(unsafe { cuMemFree_v2(address) });
    }
    let mut nothing = 0;
    // SAFETY: a place for the address.
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut nothing, 1 << 50) }, CUDA_ERROR_OUT_OF_MEMORY);
}
