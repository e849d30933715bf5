//! A forked child has no link to the pool: every call fails at once, and none hangs. A separate
//! file, because the child has only the forking thread, so no other test may run at that moment.

mod common;

use common::*;
use penstock_cuda::api::context::*;
use penstock_cuda::api::copy::*;
use penstock_cuda::api::device::*;
use penstock_cuda::api::error::*;
use penstock_cuda_sys::driver::*;

#[test]
fn a_forked_child_is_told_and_does_no_harm() {
    let context = TestContext::new();
    let address = allocate(4);
    upload(address, &[7u32]);
    // SAFETY: the child only makes the calls under test, and leaves with `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut count = 0;
        let mut value = 0u32;
        // SAFETY: the results go to local variables.
        let codes = unsafe {
            [
                cuInit(0),
                cuDeviceGetCount(&raw mut count),
                cuCtxSynchronize(),
                cuMemcpyDtoH_v2((&raw mut value).cast(), address, 4),
                cuCtxDestroy_v2(context.0),
            ]
        };
        let told = codes.iter().all(|code| *code == CUDA_ERROR_NOT_INITIALIZED);
        // SAFETY: ends the child without running anything of the parent.
        unsafe { libc::_exit(if told { 0 } else { 1 }) };
    }
    assert!(child > 0);
    let mut status = -1;
    // SAFETY: the result goes to a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(download::<u32>(address, 1), [7]);
}
