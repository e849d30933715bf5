//! Several devices: copies between them, and each one's own memory. Runs on a node with two devices of PoCL.

mod common;

use std::ffi::c_int;
use std::ptr::null_mut;

use common::*;
use penstock_cuda::api::context::*;
use penstock_cuda::api::copy::*;
use penstock_cuda::api::device::*;
use penstock_cuda::api::peer::*;
use penstock_cuda_sys::driver::*;

fn context_on(device: CUdevice) -> CUcontext {
    let mut context = null_mut();
    // SAFETY: a place for the handle.
    ok(unsafe { cuCtxCreate_v2(&raw mut context, 0, device) });
    context
}

#[test]
fn bytes_go_from_device_to_device() {
    two_devices();
    init();
    let mut count = 0;
    // SAFETY: a place for the number.
    ok(unsafe { cuDeviceGetCount(&raw mut count) });
    if count < 2 {
        eprintln!("skipped: this needs two devices, and there is {count}");
        return;
    }
    let values: Vec<u32> = (0..100_000).collect();
    let first = context_on(0);
    let source = allocate(values.len() * 4);
    upload(source, &values);
    let second = context_on(1);
    let target = allocate(values.len() * 4);
    let mut access: c_int = 7;
    // SAFETY: addresses of both devices, and handles.
    unsafe {
        ok(cuDeviceCanAccessPeer(&raw mut access, 0, 1));
        assert_eq!(access, 0);
        assert_eq!(cuCtxEnablePeerAccess(first, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        ok(cuMemcpyPeer(target, second, source, first, values.len() * 4));
    }
    assert_eq!(download::<u32>(target, values.len()), values);
    // The addresses alone say where the bytes are, in any context.
    let mut value = 0u32;
    // SAFETY: room for the value.
    unsafe {
        ok(cuMemcpyDtoH_v2((&raw mut value).cast(), source + 400, 4));
        ok(cuMemcpy(target, source + 800, 4));
    }
    assert_eq!((value, download::<u32>(target, 1)), (100, vec![200]));
    // Another device's kernels run on their own memory.
    let add_one = function(load(KERNELS), "add_one");
    ok(launch(add_one, 1, 1, null_mut(), &[target]));
    assert_eq!(download::<u32>(target, 1), [201]);
    // SAFETY: handles.
    unsafe {
        ok(cuCtxDestroy_v2(second));
        ok(cuCtxDestroy_v2(first));
    }
}
