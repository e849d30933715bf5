//! Several devices: copies between them, and the memory of each. Runs on a node with two devices of
//! PoCL.

mod common;

use std::ffi::c_int;
use std::ptr::null_mut;

use common::*;
use penstock_cuda::api::context::*;
use penstock_cuda::api::copy::*;
use penstock_cuda::api::device::*;
use penstock_cuda::api::memset::*;
use penstock_cuda::api::peer::*;
use penstock_cuda::api::row::*;
use penstock_cuda_sys::driver::*;

fn context_on(device: CUdevice) -> CUcontext {
    let mut context = null_mut();
    // SAFETY: the result goes to a local variable.
    ok(unsafe { cuCtxCreate_v2(&raw mut context, 0, device) });
    context
}

/// Opens the pool of these tests, which has two devices.
fn begin() {
    two_devices();
    init();
    let mut count = 0;
    // SAFETY: the result goes to a local variable.
    ok(unsafe { cuDeviceGetCount(&raw mut count) });
    assert!(count >= 2, "these tests need two devices, but the node has {count}");
}

fn set_current(context: CUcontext) {
    // SAFETY: handles are checked and never followed.
    ok(unsafe { cuCtxSetCurrent(context) });
}

#[test]
fn bytes_go_from_device_to_device() {
    begin();
    let values: Vec<u32> = (0..100_000).collect();
    let first = context_on(0);
    let source = allocate(values.len() * 4);
    upload(source, &values);
    let second = context_on(1);
    let target = allocate(values.len() * 4);
    let mut access: c_int = 7;
    // SAFETY: handles and device addresses are checked, and the result goes to a local variable.
    unsafe {
        ok(cuDeviceCanAccessPeer(&raw mut access, 0, 1));
        assert_eq!(access, 0);
        assert_eq!(cuCtxEnablePeerAccess(first, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        ok(cuMemcpyPeer(target, second, source, first, values.len() * 4));
    }
    assert_eq!(download::<u32>(target, values.len()), values);
    // In any context the address alone tells where the bytes are.
    let mut value = 0u32;
    // SAFETY: the local variable has room for the value.
    unsafe {
        ok(cuMemcpyDtoH_v2((&raw mut value).cast(), source + 400, 4));
        ok(cuMemcpy(target, source + 800, 4));
    }
    assert_eq!((value, download::<u32>(target, 1)), (100, vec![200]));
    // Kernels of the other device work on its own memory.
    let add_one = function(load(KERNELS), "add_one");
    ok(launch(add_one, 1, 1, null_mut(), &[target]));
    assert_eq!(download::<u32>(target, 1), [201]);
    // SAFETY: handles are checked and never followed.
    unsafe {
        ok(cuCtxDestroy_v2(second));
        ok(cuCtxDestroy_v2(first));
    }
}

#[test]
fn copies_between_devices_are_in_the_order_of_both_legacy_default_streams() {
    begin();
    let first = context_on(0);
    let source = allocate(4);
    let add_one = function(load(KERNELS), "add_one");
    upload(source, &[0u32]);
    ok(launch(add_one, 1, 1, null_mut(), &[source]));
    synchronize();
    let blocking = stream(0);
    let second = context_on(1);
    let target = allocate(4);
    // In the context of the source, in that of the target, and to the program's memory. Each copy
    // has to wait for the kernel.
    let from_source = || {
        set_current(first);
        // SAFETY: device addresses are checked and never followed.
        ok(unsafe { cuMemcpy(target, source, 4) });
        set_current(second);
        download::<u32>(target, 1)[0]
    };
    let from_target = || {
        // SAFETY: device addresses are checked and never followed.
        ok(unsafe { cuMemcpy(target, source, 4) });
        download::<u32>(target, 1)[0]
    };
    let to_program = || download::<u32>(source, 1)[0];
    let ways: [&dyn Fn() -> u32; 3] = [&from_source, &from_target, &to_program];
    for (times, copy) in (2..).zip(ways) {
        set_current(first);
        let gate = Gate::default();
        gate.close(blocking);
        ok(launch(add_one, 1, 1, blocking, &[source]));
        set_current(second);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(200));
                gate.open();
            });
            assert_eq!(copy(), times);
        });
    }
    // A write from another context also waits for the kernel.
    set_current(first);
    let gate = Gate::default();
    gate.close(blocking);
    ok(launch(add_one, 1, 1, blocking, &[source]));
    set_current(second);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(200));
            gate.open();
        });
        upload(source, &[50u32]);
    });
    set_current(first);
    synchronize();
    assert_eq!(download::<u32>(source, 1), [50]);
    // SAFETY: handles are checked and never followed.
    unsafe {
        ok(cuCtxDestroy_v2(second));
        ok(cuCtxDestroy_v2(first));
    }
}

#[test]
fn fills_and_rows_reach_other_devices() {
    begin();
    let first = context_on(0);
    let there = allocate(64);
    let second = context_on(1);
    let here = allocate(64);
    // SAFETY: device addresses are checked and never followed.
    unsafe {
        ok(cuMemsetD8_v2(there, 1, 64));
        ok(cuMemsetD2D32_v2(there, 16, 0x0202_0202, 2, 4));
        ok(cuMemsetD8_v2(here, 9, 64));
    }
    let rows = |from: CUdeviceptr, to: CUdeviceptr| {
        // SAFETY: all fields are numbers and addresses, for which zero is valid.
        let mut copy: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
        (copy.srcMemoryType, copy.dstMemoryType) = (CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_UNIFIED);
        (copy.srcDevice, copy.srcPitch, copy.dstDevice, copy.dstPitch) = (from, 16, to, 8);
        (copy.WidthInBytes, copy.Height) = (4, 3);
        // SAFETY: both sides have three rows of 4 bytes.
        ok(unsafe { cuMemcpy2D_v2(&raw const copy) });
    };
    // From the other device to this one, from the program's memory to the other device, within the
    // other device, and back to the program's memory.
    rows(there + 4, here);
    let expected = [2, 2, 2, 2, 9, 9, 9, 9].repeat(3);
    assert_eq!(download::<u8>(here, 24), expected);
    let bytes: Vec<u8> = (100..164).collect();
    rows(bytes.as_ptr().addr() as u64, there + 8);
    assert_eq!(
        download::<u8>(there, 32)[..20],
        [2, 2, 2, 2, 2, 2, 2, 2, 100, 101, 102, 103, 1, 1, 1, 1, 116, 117, 118, 119]
    );
    rows(there, there + 32);
    assert_eq!(download::<u8>(there + 32, 12)[..4], [2; 4]);
    let mut back = [0u8; 20];
    rows(there, back.as_mut_ptr().expose_provenance() as u64);
    assert_eq!(back[..8], [2, 2, 2, 2, 0, 0, 0, 0]);
    // SAFETY: handles are checked and never followed.
    unsafe {
        ok(cuCtxDestroy_v2(second));
        ok(cuCtxDestroy_v2(first));
    }
}
