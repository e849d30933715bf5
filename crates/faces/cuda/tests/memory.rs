//! Memory: allocation, copies, fills, rows, arrays, attributes of pointers, and invalid addresses.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;

use common::*;
use penstock_cuda::api::array::*;
use penstock_cuda::api::copy::*;
use penstock_cuda::api::memory::*;
use penstock_cuda::api::memset::*;
use penstock_cuda::api::pointer::*;
use penstock_cuda::api::row::*;
use penstock_cuda_sys::driver::*;

fn free(address: CUdeviceptr) -> CUresult {
    // SAFETY: device addresses are checked and never followed.
    unsafe { cuMemFree_v2(address) }
}

#[test]
fn what_is_written_comes_back() {
    let _context = TestContext::new();
    for count in [1, 3, 4096, 1 << 20] {
        let values: Vec<u32> =
            (0..count).map(|value: u32| value.wrapping_mul(2_654_435_761)).collect();
        let address = allocate(values.len() * 4);
        assert!(address.is_multiple_of(256));
        upload(address, &values);
        assert_eq!(download::<u32>(address, values.len()), values);
        let copy = allocate(values.len() * 4);
        // SAFETY: device addresses are checked and never followed.
        ok(unsafe { cuMemcpyDtoD_v2(copy, address, values.len() * 4) });
        assert_eq!(download::<u32>(copy, values.len()), values);
        ok(free(address));
        ok(free(copy));
    }
}

#[test]
fn copies_that_overlap_move_the_bytes() {
    let _context = TestContext::new();
    let values: Vec<u32> = (0..64).collect();
    let address = allocate(64 * 4);
    upload(address, &values);
    // SAFETY: device addresses are checked and never followed.
    ok(unsafe { cuMemcpyDtoD_v2(address + 16, address, 48) });
    let moved = download::<u32>(address, 64);
    assert_eq!(moved[..4], values[..4]);
    assert_eq!(moved[4..16], values[..12]);
    assert_eq!(moved[16..], values[16..]);
}

#[test]
fn fills_have_their_width_and_rows_their_pitch() {
    let _context = TestContext::new();
    let address = allocate(64);
    // SAFETY: device addresses are checked and never followed.
    unsafe {
        ok(cuMemsetD8_v2(address, 0xab, 64));
        ok(cuMemsetD16_v2(address + 2, 0x1234, 2));
        ok(cuMemsetD32_v2(address + 8, 0xdead_beef, 2));
        ok(cuMemsetD2D8_v2(address + 32, 8, 0x55, 3, 4));
        assert_eq!(cuMemsetD32_v2(address + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemsetD8_v2(address, 0, 65), CUDA_ERROR_INVALID_VALUE);
    }
    let bytes = download::<u8>(address, 64);
    assert_eq!(bytes[..8], [0xab, 0xab, 0x34, 0x12, 0x34, 0x12, 0xab, 0xab]);
    assert_eq!(bytes[8..16], [0xef, 0xbe, 0xad, 0xde, 0xef, 0xbe, 0xad, 0xde]);
    for row in bytes[32..].chunks(8) {
        assert_eq!(row, [0x55, 0x55, 0x55, 0xab, 0xab, 0xab, 0xab, 0xab]);
    }
}

#[test]
fn freed_and_foreign_addresses_are_refused() {
    let _context = TestContext::new();
    let address = allocate(1000);
    let value = 5u32;
    let from: *const c_void = (&raw const value).cast();
    // SAFETY: `from` leads to one number, and device addresses are checked.
    unsafe {
        ok(cuMemcpyHtoD_v2(address + 996, from, 4));
        assert_eq!(cuMemcpyHtoD_v2(address + 997, from, 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(free(address + 256), CUDA_ERROR_INVALID_VALUE);
        ok(free(address));
        assert_eq!(free(address), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyHtoD_v2(address, from, 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyHtoD_v2(0x1234, from, 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyHtoD_v2(u64::MAX, from, 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyHtoD_v2(address, std::ptr::null(), 4), CUDA_ERROR_INVALID_VALUE);
        let mut nothing = 0;
        assert_eq!(cuMemAlloc_v2(&raw mut nothing, 0), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemAlloc_v2(&raw mut nothing, 1 << 60), CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(cuMemAlloc_v2(&raw mut nothing, usize::MAX), CUDA_ERROR_OUT_OF_MEMORY);
    }
    ok(free(0));
    // None of these errors is permanent.
    synchronize();
}

#[test]
fn free_memory_is_counted() {
    let _context = TestContext::new();
    let info = || {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the results go to local variables.
        ok(unsafe { cuMemGetInfo_v2(&raw mut free, &raw mut total) });
        (free, total)
    };
    let address = allocate(100 << 20);
    let (free_now, total) = info();
    assert!(free_now <= total - (100 << 20));
    // Other tests allocate at the same time, but less than this.
    ok(free(address));
    assert!(info().0 > free_now + (50 << 20));
}

#[test]
fn rows_are_copied_with_their_pitches() {
    let _context = TestContext::new();
    let (mut address, mut pitch) = (0, 0);
    // SAFETY: the results go to local variables.
    ok(unsafe { cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, 5, 4, 4) });
    assert!(pitch >= 5 && pitch.is_multiple_of(32));
    let host: Vec<u8> = (0..40).collect();
    // SAFETY: all fields are numbers and addresses, for which zero is valid.
    let mut copy: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host.as_ptr().cast();
    copy.srcPitch = 10;
    copy.srcXInBytes = 1;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = address;
    copy.dstPitch = pitch;
    (copy.WidthInBytes, copy.Height) = (5, 4);
    // SAFETY: the 40 bytes hold four rows of 10.
    ok(unsafe { cuMemcpy2D_v2(&raw const copy) });
    let mut back = vec![0xffu8; 4 * 7];
    // SAFETY: all fields are numbers and addresses, for which zero is valid.
    let mut copy: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = address;
    copy.srcPitch = pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = back.as_mut_ptr().cast();
    copy.dstPitch = 7;
    (copy.WidthInBytes, copy.Height) = (5, 4);
    // SAFETY: the 28 bytes hold four rows of 7.
    ok(unsafe { cuMemcpy2D_v2(&raw const copy) });
    for (y, row) in back.chunks(7).enumerate() {
        assert_eq!(row[..5], host[10 * y + 1..10 * y + 6]);
        assert_eq!(row[5..], [0xff, 0xff]);
    }
}

/// Tests all positions of the rows, because OpenCL takes some of these rectangles for overlapping.
#[test]
fn rows_are_copied_to_rows_close_behind_them() {
    const PITCH: usize = 452;
    const ROWS: usize = 9;
    const REACH: usize = PITCH * (ROWS - 1) + 184;
    let _context = TestContext::new();
    let values: Vec<u8> = (0..=250).cycle().take(REACH).collect();
    // If a row of the source begins at the start of a row of the buffer, a row of the target
    // crosses the end of one.
    const DISTANCE: usize = PITCH * ROWS - 24;
    let address = allocate(DISTANCE + REACH + PITCH);
    for shift in (0..PITCH).step_by(12) {
        let from = address + shift as u64;
        let to = from + DISTANCE as u64;
        upload(from, &values);
        // SAFETY: all fields are numbers and addresses, for which zero is valid.
        let mut copy: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
        (copy.srcMemoryType, copy.dstMemoryType) = (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE);
        (copy.srcDevice, copy.dstDevice) = (from, to);
        (copy.srcPitch, copy.dstPitch) = (PITCH, PITCH);
        (copy.WidthInBytes, copy.Height) = (184, ROWS);
        // SAFETY: both sides are within the allocation.
        ok(unsafe { cuMemcpy2D_v2(&raw const copy) });
        synchronize();
        let back = download::<u8>(to, REACH);
        for row in 0..ROWS {
            let bytes = row * PITCH..row * PITCH + 184;
            assert_eq!(back[bytes.clone()], values[bytes], "shift {shift}, row {row}");
        }
    }
}

#[test]
fn arrays_hold_their_rows() {
    let _context = TestContext::new();
    let descriptor =
        CUDA_ARRAY_DESCRIPTOR { Width: 3, Height: 2, Format: CU_AD_FORMAT_FLOAT, NumChannels: 1 };
    let mut array = null_mut();
    // SAFETY: the result and the description are local variables.
    ok(unsafe { cuArrayCreate_v2(&raw mut array, &raw const descriptor) });
    let host = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    // SAFETY: all fields are numbers and addresses, for which zero is valid.
    let mut copy: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host.as_ptr().cast();
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    (copy.WidthInBytes, copy.Height) = (12, 2);
    // SAFETY: the host memory has two rows of 12 bytes.
    ok(unsafe { cuMemcpy2D_v2(&raw const copy) });
    let mut row = [0f32; 2];
    // SAFETY: `row` has room for the 8 bytes from the second row.
    ok(unsafe { cuMemcpyAtoH_v2(row.as_mut_ptr().cast(), array, 16, 8) });
    assert_eq!(row, [5.0, 6.0]);
    copy.Height = 3;
    // SAFETY: rejected before anything is read.
    assert_eq!(unsafe { cuMemcpy2D_v2(&raw const copy) }, CUDA_ERROR_INVALID_VALUE);
    let mut got = CUDA_ARRAY_DESCRIPTOR::default();
    // SAFETY: the result goes to a local variable.
    ok(unsafe { cuArrayGetDescriptor_v2(&raw mut got, array) });
    assert_eq!(got, descriptor);
    // SAFETY: handles are checked and never followed.
    unsafe {
        ok(cuArrayDestroy(array));
        assert_eq!(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    }
}

#[test]
fn addresses_tell_what_they_are() {
    let context = TestContext::new();
    let address = allocate(1000);
    let ask = |attribute, at: u64| {
        let mut answer = 0u64;
        // SAFETY: `answer` has room for the largest answer.
        let code = unsafe { cuPointerGetAttribute((&raw mut answer).cast(), attribute, at) };
        (code, answer)
    };
    assert_eq!(ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 999), (CUDA_SUCCESS, 2));
    assert_eq!(ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 999), (CUDA_SUCCESS, address));
    assert_eq!(ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address), (CUDA_SUCCESS, 1000));
    assert_eq!(ask(CU_POINTER_ATTRIBUTE_CONTEXT, address), (CUDA_SUCCESS, context.0.addr() as u64));
    let own = 5u32;
    assert_eq!(
        ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw const own).addr() as u64).0,
        CUDA_ERROR_INVALID_VALUE
    );
    let mut pinned = null_mut();
    // SAFETY: the result goes to a local variable.
    ok(unsafe { cuMemHostAlloc(&raw mut pinned, 4096, 0) });
    assert_eq!(ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pinned.addr() as u64), (CUDA_SUCCESS, 1));
    // SAFETY: the address was allocated above.
    ok(unsafe { cuMemFreeHost(pinned) });
    assert_eq!(
        ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pinned.addr() as u64).0,
        CUDA_ERROR_INVALID_VALUE
    );
}

#[test]
fn memory_of_a_context_goes_with_it() {
    let address = {
        let _context = TestContext::new();
        allocate(100)
    };
    let _context = TestContext::new();
    let mut answer = 0u64;
    // SAFETY: the local variable has room for the answer.
    let code = unsafe {
        cuPointerGetAttribute((&raw mut answer).cast(), CU_POINTER_ATTRIBUTE_CONTEXT, address)
    };
    // Another test may own the address by now, but not this context.
    assert!(code == CUDA_ERROR_INVALID_VALUE || answer != 0);
}
