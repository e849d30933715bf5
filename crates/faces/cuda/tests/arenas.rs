//! Several arenas, as on devices with their own memory. A separate file, because a variable of the
//! environment asks for them.

mod common;

use std::ptr::null_mut;

use common::*;
use penstock_cuda::api::memory::{cuMemAlloc_v2, cuMemFree_v2};
use penstock_cuda_sys::driver::*;

const MIB: usize = 1 << 20;

#[test]
fn modules_reach_memory_that_was_added_after_they_were_loaded() {
    // SAFETY: no thread has read the variable yet.
    unsafe { std::env::set_var("PENSTOCK_CUDA_ARENA_MIB", "4") };
    let _context = TestContext::new();
    let add_one = function(load(KERNELS), "add_one");
    let first = allocate(64);
    upload(first, &[1u32]);
    ok(launch(add_one, 1, 1, null_mut(), &[first]));
    // Each allocation is more than half of an arena.
    let more: Vec<_> = (0..3).map(|_| allocate(3 * MIB)).collect();
    let large = allocate(20 * MIB);
    for address in more.iter().chain([&large, &(large + 16 * MIB as u64)]) {
        upload(*address, &[10u32]);
        ok(launch(add_one, 1, 1, null_mut(), &[*address]));
        assert_eq!(download::<u32>(*address, 1), [11]);
    }
    // Kernels built for few and for many arenas may run at once. Both reach the old memory.
    ok(launch(add_one, 1, 1, null_mut(), &[first]));
    assert_eq!(download::<u32>(first, 1), [3]);
    // A module loaded now knows all arenas from the start.
    let again = function(load(KERNELS), "add_one");
    ok(launch(again, 1, 1, null_mut(), &[more[2]]));
    assert_eq!(download::<u32>(more[2], 1), [12]);
    for address in more {
        // SAFETY: device addresses are checked and never followed.
        ok(unsafe { cuMemFree_v2(address) });
    }
    let mut nothing = 0;
    // SAFETY: the result goes to a local variable.
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut nothing, 1 << 50) }, CUDA_ERROR_OUT_OF_MEMORY);
}
