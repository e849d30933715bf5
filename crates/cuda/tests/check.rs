//! Check mode: kernels that use addresses which are not theirs. A file of its own, because a variable asks for it.

mod common;

use std::ptr::null_mut;

use common::*;
use penstock_cuda::api::context::cuCtxSynchronize;
use penstock_cuda::api::memory::cuMemFree_v2;
use penstock_cuda_sys::driver::*;

fn check() {
    // SAFETY: before the first call that reads it; the tests of this file all set the same.
    unsafe { std::env::set_var("PENSTOCK_CHECK", "1") };
}

fn after(address: impl FnOnce() -> CUdeviceptr, grid: u32) -> CUresult {
    let add_one = function(load(KERNELS), "add_one");
    let address = address();
    ok(launch(add_one, grid, 64, null_mut(), &[address]));
    // SAFETY: no pointers.
    unsafe { cuCtxSynchronize() }
}

// One test: variables of the environment belong to all threads.
#[test]
fn addresses_that_are_not_allocated_are_told() {
    check();
    let run = |address: &dyn Fn() -> CUdeviceptr, grid| {
        let _context = TestContext::new();
        after(address, grid)
    };
    ok(run(&|| allocate(256), 1));
    // Behind the end, freed, nobody's, the host's.
    assert_eq!(run(&|| allocate(256), 1 << 16), CUDA_ERROR_ILLEGAL_ADDRESS);
    let freed = || {
        let address = allocate(256);
        // SAFETY: an address.
        ok(unsafe { cuMemFree_v2(address) });
        address
    };
    assert_eq!(run(&freed, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(run(&|| 0, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(run(&|| 0x7fff_1234_0000, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(run(&|| allocate(256) + 2, 1), CUDA_ERROR_MISALIGNED_ADDRESS);
    // The error ends with its context.
    ok(run(&|| allocate(256), 1));
}
