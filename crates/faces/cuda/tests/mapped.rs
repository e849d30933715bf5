//! Host memory that kernels use in place.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;

use common::*;
use penstock_cuda::api::device::cuDeviceGetAttribute;
use penstock_cuda::api::managed::*;
use penstock_cuda::api::memory::*;
use penstock_cuda::api::pointer::cuPointerGetAttribute;
use penstock_cuda_sys::driver::*;

/// Allocates mapped memory for `count` numbers. Returns its address, or `None` if the device has
/// no such memory.
fn mapped(count: usize) -> Option<*mut u32> {
    let (mut can_map, mut memory) = (0, null_mut());
    // SAFETY: the results go to local variables.
    unsafe {
        ok(cuDeviceGetAttribute(&raw mut can_map, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0));
        ok(cuMemHostAlloc(&raw mut memory, count * 4, CU_MEMHOSTALLOC_DEVICEMAP));
    }
    assert_eq!(device_pointer(memory).0 == CUDA_SUCCESS, can_map == 1);
    (can_map == 1).then_some(memory.cast())
}

fn attribute(which: u32) -> i32 {
    let mut value = 0;
    // SAFETY: the result goes to a local variable.
    ok(unsafe { cuDeviceGetAttribute(&raw mut value, which, 0) });
    value
}

fn device_pointer(memory: *mut c_void) -> (CUresult, CUdeviceptr) {
    let mut seen = 0;
    // SAFETY: the result goes to a local variable, and the address is only looked up.
    (unsafe { cuMemHostGetDevicePointer_v2(&raw mut seen, memory, 0) }, seen)
}

fn free(memory: *mut u32) -> CUresult {
    // SAFETY: the address is looked up before anything is freed.
    unsafe { cuMemFreeHost(memory.cast()) }
}

/// Skips a test: a device on another host, or one with memory of its own, maps nothing.
macro_rules! mapped_or_return {
    ($count:expr) => {
        match mapped($count) {
            Some(memory) => memory,
            None => return,
        }
    };
}

/// A kernel that waits until a number is not 0, and then stores the number after it.
const POLL: &str = r"
.version 7.5
.target sm_75
.address_size 64

.visible .entry poll(.param .u64 values)
{
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [values];
    cvta.to.global.u64 %rd2, %rd1;
$again:
    ld.volatile.global.u32 %r1, [%rd2];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra $again;
    add.u32 %r2, %r1, 1;
    st.volatile.global.u32 [%rd2+4], %r2;
    ret;
}
";

#[test]
fn host_and_kernels_use_the_same_bytes() {
    const COUNT: u32 = 1000;
    let _context = TestContext::new();
    // Leaves a block with old content.
    let old = allocate(COUNT as usize * 4);
    upload(old, &[5u32; COUNT as usize]);
    synchronize();
    // SAFETY: device addresses are checked and never followed.
    ok(unsafe { cuMemFree_v2(old) });
    let memory = mapped_or_return!(COUNT as usize);
    let (code, seen) = device_pointer(memory.cast());
    ok(code);
    let add_one = function(load(KERNELS), "add_one");
    for round in 0..3 {
        for index in 0..COUNT {
            // SAFETY: the memory has this number of values.
            let place = unsafe { memory.add(index as usize) };
            // New memory is cleared.
            let expected = if round == 0 { 0 } else { index + 100 * (round - 1) + 1 };
            // SAFETY: no kernel runs.
            assert_eq!(unsafe { place.read_volatile() }, expected);
            // SAFETY: as above.
            unsafe { place.write_volatile(index + 100 * round) };
        }
        ok(launch(add_one, COUNT / 8, 8, null_mut(), &[seen]));
        synchronize();
    }
    // Copies see the same bytes.
    let last = COUNT - 1 + 200 + 1;
    assert_eq!(download::<u32>(seen + 4 * (u64::from(COUNT) - 1), 1), [last]);
    upload(seen, &[7u32]);
    synchronize();
    // SAFETY: no kernel runs.
    assert_eq!(unsafe { memory.read_volatile() }, 7);
    ok(free(memory));
}

#[test]
fn a_kernel_sees_what_the_host_stores_while_it_runs() {
    let _context = TestContext::new();
    let memory = mapped_or_return!(2);
    let poll = function(load(POLL), "poll");
    ok(launch(poll, 1, 1, null_mut(), &[device_pointer(memory.cast()).1]));
    std::thread::sleep(std::time::Duration::from_millis(20));
    // SAFETY: the memory has two values; the kernel stores only the second one.
    unsafe { memory.write_volatile(41) };
    synchronize();
    // SAFETY: the kernel has ended.
    assert_eq!(unsafe { memory.add(1).read_volatile() }, 42);
    ok(free(memory));
}

#[test]
fn addresses_of_mapped_memory_are_told() {
    let _context = TestContext::new();
    let memory = mapped_or_return!(1000);
    let (host, (_, seen)) = (memory.addr() as u64, device_pointer(memory.cast()));
    // SAFETY: the address is in the range.
    assert_eq!(device_pointer(unsafe { memory.add(9) }.cast()), (CUDA_SUCCESS, seen + 36));
    let ask = |attribute, at: u64| {
        let mut answer = 0u64;
        // SAFETY: `answer` has room for the largest answer.
        let code = unsafe { cuPointerGetAttribute((&raw mut answer).cast(), attribute, at) };
        (code, answer)
    };
    assert_eq!(ask(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, host + 5), (CUDA_SUCCESS, seen + 5));
    assert_eq!(ask(CU_POINTER_ATTRIBUTE_HOST_POINTER, seen + 5), (CUDA_SUCCESS, host + 5));
    assert_eq!(ask(CU_POINTER_ATTRIBUTE_MAPPED, host), (CUDA_SUCCESS, 1));
    assert_eq!(ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host), (CUDA_SUCCESS, 1));
    let other = allocate(100);
    assert_eq!(ask(CU_POINTER_ATTRIBUTE_HOST_POINTER, other).0, CUDA_ERROR_INVALID_VALUE);
    ok(free(memory));
    assert_eq!(free(memory), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(device_pointer(memory.cast()).0, CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn memory_that_is_not_mapped_has_no_device_address() {
    let _context = TestContext::new();
    let (mut pinned, mut own) = (null_mut(), [0u32; 16]);
    // SAFETY: the result goes to a local variable.
    ok(unsafe { cuMemHostAlloc(&raw mut pinned, 100, 0) });
    // Where addresses are unified, all memory that CUDA has allocated is mapped.
    let expected = if attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) == 1 {
        (CUDA_SUCCESS, pinned.addr() as u64)
    } else {
        (CUDA_ERROR_NOT_SUPPORTED, 0)
    };
    assert_eq!(device_pointer(pinned), expected);
    assert_eq!(device_pointer(own.as_mut_ptr().cast()).0, CUDA_ERROR_INVALID_VALUE);
    ok(free(pinned.cast()));
    let memory = mapped_or_return!(1);
    let mut seen = 0;
    // SAFETY: the result goes to a local variable or nowhere, and addresses are only looked up.
    unsafe {
        let asked = cuMemHostGetDevicePointer_v2(&raw mut seen, memory.cast(), 1);
        assert_eq!(asked, CUDA_ERROR_INVALID_VALUE);
        let asked = cuMemHostGetDevicePointer_v2(null_mut(), memory.cast(), 0);
        assert_eq!(asked, CUDA_ERROR_INVALID_VALUE);
        // The device's side is not the program's to free.
        assert_eq!(cuMemFree_v2(device_pointer(memory.cast()).1), CUDA_ERROR_INVALID_VALUE);
    }
    ok(free(memory));
}

#[test]
fn mapped_memory_goes_with_its_context() {
    let memory = {
        let _context = TestContext::new();
        mapped_or_return!(1000)
    };
    let _context = TestContext::new();
    // Its block may belong to another allocation by now.
    assert_eq!(device_pointer(memory.cast()).0, CUDA_ERROR_INVALID_VALUE);
    assert_eq!(free(memory), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn managed_memory_has_one_address() {
    let _context = TestContext::new();
    let managed = attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
    let mut address = 0;
    // SAFETY: the result goes to a local variable.
    let code = unsafe { cuMemAllocManaged(&raw mut address, 4000, CU_MEM_ATTACH_GLOBAL) };
    if managed == 0 {
        assert_eq!((code, address), (CUDA_ERROR_NOT_SUPPORTED, 0));
        // SAFETY: addresses are only looked up.
        let code = unsafe { cuMemAdvise(address, 10, CU_MEM_ADVISE_SET_READ_MOSTLY, 0) };
        assert_eq!(code, CUDA_ERROR_NOT_SUPPORTED);
        return;
    }
    ok(code);
    let memory: *mut u32 = std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap());
    let add_one = function(load(KERNELS), "add_one");
    // The driver's older forms name devices by number.
    // SAFETY: addresses are only looked up, and answers go to a local variable.
    unsafe {
        let host = CUmemLocation { kind: CU_MEM_LOCATION_TYPE_HOST, id: 0 };
        let nowhere = CUmemLocation { kind: CU_MEM_LOCATION_TYPE_INVALID, id: 0 };
        ok(cuMemPrefetchAsync_v2_ptsz(address, 4000, host, 0, null_mut()));
        for (to, flags) in [(host, 1), (nowhere, 0)] {
            let code = cuMemPrefetchAsync_v2(address, 4000, to, flags, null_mut());
            assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
        }
        ok(cuMemPrefetchAsync(address, 4000, CU_DEVICE_CPU, null_mut()));
        ok(cuMemPrefetchAsync_ptsz(address, 4000, 0, null_mut()));
        let single = cuStreamAttachMemAsync_ptsz(null_mut(), address, 0, CU_MEM_ATTACH_SINGLE);
        assert_eq!(single, CUDA_ERROR_INVALID_VALUE);
        ok(cuMemAdvise(address, 4000, CU_MEM_ADVISE_SET_ACCESSED_BY, CU_DEVICE_CPU));
        ok(cuStreamAttachMemAsync(null_mut(), address, 4000, CU_MEM_ATTACH_HOST));
        for (attribute, expected) in [
            (CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 0),
            (CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, CU_DEVICE_CPU),
            (CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, CU_DEVICE_INVALID),
        ] {
            let mut value = 9i32;
            let into = (&raw mut value).cast();
            ok(cuMemRangeGetAttribute(into, 4, attribute, address + 8, 3000));
            assert_eq!(value, expected);
        }
        assert_eq!(cuMemPrefetchAsync(address, 4000, 77, null_mut()), CUDA_ERROR_INVALID_DEVICE);
    }
    for index in 0..1000 {
        // SAFETY: the memory has this number of values, and no kernel runs.
        unsafe { memory.add(index).write_volatile(u32::try_from(index).unwrap()) };
    }
    ok(launch(add_one, 125, 8, null_mut(), &[address]));
    synchronize();
    // SAFETY: as above.
    assert_eq!(unsafe { memory.add(999).read_volatile() }, 1000);
    // SAFETY: the address is looked up before anything is freed.
    unsafe {
        ok(cuMemFree_v2(address));
        assert_eq!(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
    }
}
