//! Check mode: kernels that use addresses outside of their memory. A separate file, because a
//! variable of the environment enables it.

mod common;

use std::ptr::null_mut;

use common::*;
use penstock_cuda::api::context::cuCtxSynchronize;
use penstock_cuda::api::memory::cuMemFree_v2;
use penstock_cuda::api::pool::{cuMemAllocAsync, cuMemFreeAsync};
use penstock_cuda::api::stream::cuStreamSynchronize;
use penstock_cuda_sys::driver::*;

fn check() {
    // SAFETY: no thread has read the variable yet; all tests of this file set it to the same value.
    unsafe { std::env::set_var("PENSTOCK_CHECK", "1") };
}

fn after(address: impl FnOnce() -> CUdeviceptr, grid: u32) -> CUresult {
    let add_one = function(load(KERNELS), "add_one");
    let address = address();
    ok(launch(add_one, grid, 64, null_mut(), &[address]));
    // SAFETY: the call takes no pointers.
    unsafe { cuCtxSynchronize() }
}

// One test, because all threads share the environment.
#[test]
fn addresses_that_are_not_allocated_are_told() {
    check();
    let run = |address: &dyn Fn() -> CUdeviceptr, grid| {
        let _context = TestContext::new();
        after(address, grid)
    };
    ok(run(&|| allocate(256), 1));
    // Addresses behind the end, freed, never allocated, and of the host.
    assert_eq!(run(&|| allocate(256), 1 << 16), CUDA_ERROR_ILLEGAL_ADDRESS);
    let freed = || {
        let address = allocate(256);
        // SAFETY: device addresses are checked and never followed.
        ok(unsafe { cuMemFree_v2(address) });
        address
    };
    assert_eq!(run(&freed, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(run(&|| 0, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(run(&|| 0x7fff_1234_0000, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(run(&|| allocate(256) + 2, 1), CUDA_ERROR_MISALIGNED_ADDRESS);
    // Memory that is freed in the order of a stream is valid for the kernels before, and invalid
    // for those behind.
    let in_order = |behind: bool| {
        let _context = TestContext::new();
        let module = load(KERNELS);
        let (slow, stream) = (function(module, "slow"), stream(CU_STREAM_NON_BLOCKING));
        let mut address = 0;
        // SAFETY: the result goes to a local variable.
        ok(unsafe { cuMemAllocAsync(&raw mut address, 256, stream) });
        ok(launch(slow, 1, 1, stream, &[address, 1]));
        // SAFETY: handles are checked and never followed.
        ok(unsafe { cuStreamSynchronize(stream) });
        let gate = Gate::default();
        gate.close(stream);
        ok(launch(slow, 1, 1, stream, &[address, 1]));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(200));
                gate.open();
            });
            // SAFETY: addresses and handles are checked and never followed.
            ok(unsafe { cuMemFreeAsync(address, stream) });
        });
        if behind {
            ok(launch(slow, 1, 1, stream, &[address, 1]));
        }
        // SAFETY: handles are checked and never followed.
        unsafe { cuStreamSynchronize(stream) }
    };
    ok(in_order(false));
    assert_eq!(in_order(true), CUDA_ERROR_ILLEGAL_ADDRESS);
    // The error ends with its context.
    ok(run(&|| allocate(256), 1));
}
