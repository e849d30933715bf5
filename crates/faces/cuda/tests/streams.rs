//! Streams, events, host functions in streams, threads, and several contexts.

mod common;

use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use penstock_cuda::api::context::*;
use penstock_cuda::api::copy::*;
use penstock_cuda::api::event::*;
use penstock_cuda::api::launch::*;
use penstock_cuda::api::memory::*;
use penstock_cuda::api::pool::*;
use penstock_cuda::api::primary::*;
use penstock_cuda::api::stream::*;
use penstock_cuda_sys::driver::*;

/// Rounds of `slow` that take some tens of milliseconds, so a command that does not wait for the
/// kernel ends first.
const ROUNDS: u64 = 20_000_000;

fn wait(stream: CUstream) {
    // SAFETY: handles are checked and never followed.
    ok(unsafe { cuStreamSynchronize(stream) });
}

/// The kernels of these tests, and two zero words on the device.
struct Warm {
    slow: CUfunction,
    add_one: CUfunction,
    address: CUdeviceptr,
}

/// Loads the kernels and runs each once, so that the device's compiler has finished.
fn warm() -> Warm {
    let module = load(KERNELS);
    let (slow, add_one) = (function(module, "slow"), function(module, "add_one"));
    let address = allocate(8);
    upload(address, &[0u32; 2]);
    ok(launch(slow, 1, 1, null_mut(), &[address, 1]));
    ok(launch(add_one, 1, 1, null_mut(), &[address]));
    synchronize();
    upload(address, &[0u32; 2]);
    Warm { slow, add_one, address }
}

#[test]
fn a_copy_waits_for_the_kernel_before_it() {
    let _context = TestContext::new();
    let Warm { slow, address, .. } = warm();
    let stream = stream(0);
    ok(launch(slow, 1, 1, stream, &[address, ROUNDS]));
    let mut value = 0u32;
    // SAFETY: the local variable has room for the value.
    ok(unsafe { cuMemcpyDtoHAsync_v2((&raw mut value).cast(), address, 4, stream) });
    // The host memory is not registered, so the function has waited for the copy.
    assert_eq!(value, 1);
    // SAFETY: handles are checked and never followed.
    unsafe {
        ok(cuStreamDestroy_v2(stream));
        assert_eq!(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    }
}

#[test]
fn a_copy_into_registered_memory_need_not_be_waited_for() {
    let _context = TestContext::new();
    let Warm { add_one, address, .. } = warm();
    let stream = stream(0);
    let mut pinned = null_mut();
    // SAFETY: the result goes to a local variable.
    ok(unsafe { cuMemAllocHost_v2(&raw mut pinned, 4) });
    let gate = Gate::default();
    gate.close(stream);
    ok(launch(add_one, 1, 1, stream, &[address]));
    // SAFETY: the memory has room for the value until the stream has been waited for.
    ok(unsafe { cuMemcpyDtoHAsync_v2(pinned, address, 4, stream) });
    gate.open();
    wait(stream);
    // SAFETY: the copy has ended.
    assert_eq!(unsafe { pinned.cast::<u32>().read() }, 1);
    // SAFETY: the address was allocated above.
    ok(unsafe { cuMemFreeHost(pinned) });
}

#[test]
fn the_legacy_default_stream_waits_for_blocking_streams_and_they_for_it() {
    let _context = TestContext::new();
    let Warm { slow, add_one, address } = warm();
    let blocking = stream(0);
    ok(launch(slow, 1, 1, blocking, &[address, ROUNDS]));
    // `slow` writes back the value that it read, so an addition that did not wait would be lost.
    ok(launch(add_one, 1, 1, null_mut(), &[address]));
    ok(launch(slow, 1, 1, null_mut(), &[address, ROUNDS]));
    ok(launch(add_one, 1, 1, blocking, &[address]));
    wait(blocking);
    assert_eq!(download::<u32>(address, 1), [4]);
}

/// The documentation guarantees it for pinned memory: "the function is synchronous with respect to
/// the host".
#[test]
fn a_synchronous_copy_to_the_device_is_done_for_streams_that_wait_for_nobody() {
    let _context = TestContext::new();
    let Warm { slow, address, .. } = warm();
    let free = stream(CU_STREAM_NON_BLOCKING);
    let (mut pinned, pageable) = (null_mut(), 78u32);
    // SAFETY: the result goes to a local variable, and the memory has room for a number.
    unsafe {
        ok(cuMemAllocHost_v2(&raw mut pinned, 4));
        pinned.cast::<u32>().write(77);
    }
    for (source, expected) in [(pinned.cast_const(), 77), ((&raw const pageable).cast(), 78)] {
        ok(launch(slow, 1, 1, null_mut(), &[address, ROUNDS]));
        let mut value = 0u32;
        // SAFETY: the source has a number, and the local variable has room for one.
        unsafe {
            ok(cuMemcpyHtoD_v2(address, source, 4));
            ok(cuMemcpyDtoHAsync_v2((&raw mut value).cast(), address, 4, free));
        }
        assert_eq!(value, expected);
        synchronize();
    }
    // SAFETY: the address was allocated above.
    ok(unsafe { cuMemFreeHost(pinned) });
}

#[test]
fn a_non_blocking_stream_does_not_wait() {
    let _context = TestContext::new();
    let Warm { add_one, address, .. } = warm();
    let free = stream(CU_STREAM_NON_BLOCKING);
    let gate = Gate::default();
    gate.close(null_mut());
    ok(launch(add_one, 1, 1, free, &[address]));
    wait(free);
    gate.open();
    synchronize();
    assert_eq!(download::<u32>(address, 1), [1]);
}

#[test]
fn the_legacy_default_stream_is_not_ready_before_the_streams_that_it_waits_for() {
    let _context = TestContext::new();
    let Warm { add_one, address, .. } = warm();
    let (blocking, free) = (stream(0), stream(CU_STREAM_NON_BLOCKING));
    // SAFETY: the call takes no pointers.
    let query = || unsafe { cuStreamQuery(null_mut()) };
    let gate = Gate::default();
    gate.close(free);
    ok(query());
    gate.close(blocking);
    ok(launch(add_one, 1, 1, blocking, &[address]));
    assert_eq!(query(), CUDA_ERROR_NOT_READY);
    gate.open();
    wait(blocking);
    ok(query());
    wait(free);
}

#[test]
fn threads_default_streams_are_their_own() {
    let context = TestContext::new();
    let Warm { add_one, address, .. } = warm();
    let (raw, add_one) = (context.0.addr(), add_one.addr());
    let gate = Gate::default();
    gate.close(without_provenance_mut(CU_STREAM_PER_THREAD));
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: handles are checked and never followed.
            ok(unsafe { cuCtxSetCurrent(without_provenance_mut(raw)) });
            let mut params = [(&raw const address).cast_mut().cast()];
            // SAFETY: the parameters are those of the kernel.
            ok(unsafe {
                let function = without_provenance_mut(add_one);
                cuLaunchKernel_ptsz(
                    function,
                    1,
                    1,
                    1,
                    1,
                    1,
                    1,
                    0,
                    null_mut(),
                    params.as_mut_ptr(),
                    null_mut(),
                )
            });
            // SAFETY: the call takes no pointers.
            ok(unsafe { cuStreamSynchronize_ptsz(null_mut()) });
        });
    });
    gate.open();
    // SAFETY: the call takes no pointers. The handle names this thread's default stream.
    ok(unsafe { cuStreamSynchronize(without_provenance_mut(CU_STREAM_PER_THREAD)) });
    assert_eq!(download::<u32>(address, 1), [1]);
}

#[test]
fn events_tell_what_has_ended_and_how_long_it_took() {
    let _context = TestContext::new();
    let Warm { slow, address, .. } = warm();
    let (start, end, silent) = (event(0), event(0), event(CU_EVENT_DISABLE_TIMING));
    let stream = stream(0);
    let gate = Gate::default();
    let began = Instant::now();
    let mut ms = 0f32;
    // SAFETY: handles are checked and never followed.
    unsafe {
        ok(cuEventQuery(start));
        assert_eq!(cuEventElapsedTime(&raw mut ms, start, end), CUDA_ERROR_INVALID_HANDLE);
        gate.close(stream);
        ok(cuEventRecord(start, stream));
        ok(launch(slow, 1, 1, stream, &[address, ROUNDS]));
        ok(cuEventRecord(end, stream));
        ok(cuEventRecord(silent, stream));
        assert_eq!(cuEventQuery(end), CUDA_ERROR_NOT_READY);
        assert_eq!(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
        assert_eq!(cuEventElapsedTime(&raw mut ms, start, end), CUDA_ERROR_NOT_READY);
        gate.open();
        ok(cuEventSynchronize(end));
        ok(cuEventQuery(end));
        ok(cuEventElapsedTime(&raw mut ms, start, end));
        assert_eq!(cuEventElapsedTime(&raw mut ms, start, silent), CUDA_ERROR_INVALID_HANDLE);
        ok(cuStreamSynchronize(stream));
        ok(cuStreamQuery(stream));
    }
    let all_ms = began.elapsed().as_secs_f32() * 1e3;
    assert!(ms > 1.0 && ms <= all_ms, "{ms} ms of {all_ms} ms");
    // SAFETY: handles are checked and never followed.
    unsafe {
        ok(cuEventDestroy_v2(start));
        assert_eq!(cuEventRecord(start, stream), CUDA_ERROR_INVALID_HANDLE);
    }
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    let _context = TestContext::new();
    let Warm { slow, add_one, address } = warm();
    let (one, other) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let mark = event(CU_EVENT_DISABLE_TIMING);
    ok(launch(slow, 1, 1, one, &[address, ROUNDS]));
    // SAFETY: handles are checked and never followed.
    unsafe {
        ok(cuEventRecord(mark, one));
        ok(cuStreamWaitEvent(other, mark, 0));
    }
    ok(launch(add_one, 1, 1, other, &[address]));
    wait(other);
    assert_eq!(download::<u32>(address, 1), [2]);
}

unsafe extern "C" fn count(data: *mut c_void) {
    thread::sleep(Duration::from_millis(30));
    // SAFETY: `data` is the counter of the test, which waits for the stream.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn called_back(_stream: CUstream, status: CUresult, data: *mut c_void) {
    assert_eq!(status, CUDA_SUCCESS);
    // SAFETY: `data` is the counter of the test, which waits for the stream.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(10, Ordering::SeqCst);
}

#[test]
fn functions_of_the_program_run_in_the_order_of_the_stream() {
    let _context = TestContext::new();
    let Warm { add_one, address, .. } = warm();
    let stream = stream(0);
    let counter = AtomicU32::new(0);
    let data = (&raw const counter).cast_mut().cast();
    for _ in 0..5 {
        ok(launch(add_one, 1, 1, stream, &[address]));
        // SAFETY: the counter lives until the stream has been waited for.
        ok(unsafe { cuLaunchHostFunc(stream, Some(count), data) });
    }
    // SAFETY: the counter lives until the stream has been waited for.
    ok(unsafe { cuStreamAddCallback(stream, Some(called_back), data, 0) });
    wait(stream);
    assert_eq!(counter.load(Ordering::SeqCst), 15);
    assert_eq!(download::<u32>(address, 1), [5]);
}

#[test]
fn memory_in_the_order_of_streams_is_not_used_too_early() {
    let _context = TestContext::new();
    let Warm { slow, .. } = warm();
    let (one, other) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let gate = Gate::default();
    let mut first = 0;
    // SAFETY: handles and device addresses are checked, and the results go to local variables.
    unsafe {
        ok(cuMemAllocAsync(&raw mut first, 4, one));
        ok(penstock_cuda::api::memset::cuMemsetD32Async(first, 0, 1, one));
        gate.close(one);
        ok(launch(slow, 1, 1, one, &[first, 1]));
        ok(cuMemFreeAsync(first, one));
        let mut second = 0;
        ok(cuMemAllocAsync(&raw mut second, 4, other));
        assert_ne!(first, second);
        assert_eq!(cuMemFreeAsync(first, one), CUDA_ERROR_INVALID_VALUE);
        ok(cuMemFree_v2(second));
    }
    gate.open();
    synchronize();
}

#[test]
fn threads_may_use_one_context_at_once() {
    let context = TestContext::new();
    let Warm { add_one, address, .. } = warm();
    let (raw, add_one) = (context.0.addr(), add_one.addr());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // SAFETY: handles are checked and never followed.
                ok(unsafe { cuCtxSetCurrent(without_provenance_mut(raw)) });
                let own = allocate(4);
                upload(own, &[0u32]);
                for _ in 0..100 {
                    ok(launch(without_provenance_mut(add_one), 1, 1, null_mut(), &[address]));
                    ok(launch(without_provenance_mut(add_one), 1, 1, null_mut(), &[own]));
                }
                assert_eq!(download::<u32>(own, 1), [100]);
                // SAFETY: device addresses are checked and never followed.
                ok(unsafe { cuMemFree_v2(own) });
            });
        }
    });
    assert_eq!(download::<u32>(address, 1), [400]);
}

#[test]
fn a_copy_between_contexts_of_one_device_comes_before_later_work_of_both() {
    const SIZE: usize = 32 << 20;
    let first = TestContext::new();
    let source = allocate(SIZE);
    upload(source, &vec![7u8; SIZE]);
    let second = TestContext::new();
    let target = allocate(SIZE);
    upload(target, &vec![1u8; SIZE]);
    // SAFETY: handles are checked, and both allocations have this size.
    unsafe {
        ok(cuCtxSetCurrent(first.0));
        ok(cuMemcpyPeer(target, second.0, source, first.0, SIZE));
        ok(cuCtxSetCurrent(second.0));
    }
    assert_eq!(download::<u8>(target + SIZE as u64 - 4, 4), [7; 4]);
}

#[test]
fn contexts_are_a_stack_in_each_thread() {
    let first = TestContext::new();
    let second = TestContext::new();
    let current = || {
        let mut current = null_mut();
        // SAFETY: the result goes to a local variable.
        ok(unsafe { cuCtxGetCurrent(&raw mut current) });
        current
    };
    assert_eq!(current(), second.0);
    let mut popped = null_mut();
    // SAFETY: handles are checked, and the result goes to a local variable.
    unsafe {
        ok(cuCtxPopCurrent_v2(&raw mut popped));
        assert_eq!((popped, current()), (second.0, first.0));
        ok(cuCtxPushCurrent_v2(second.0));
        ok(cuCtxDestroy_v2(second.0));
        assert_eq!(current(), first.0);
        assert_eq!(cuCtxPushCurrent_v2(second.0), CUDA_ERROR_INVALID_CONTEXT);
    }
    thread::spawn(|| {
        // SAFETY: the call takes no pointers.
        assert_eq!(unsafe { cuCtxSynchronize() }, CUDA_ERROR_INVALID_CONTEXT);
    })
    .join()
    .unwrap();
}

#[test]
fn the_primary_context_is_counted() {
    init();
    let (mut one, mut other) = (null_mut(), null_mut());
    let (mut flags, mut active) = (0, 0);
    // SAFETY: the results go to local variables.
    unsafe {
        ok(cuDevicePrimaryCtxRetain(&raw mut one, 0));
        ok(cuDevicePrimaryCtxRetain(&raw mut other, 0));
        assert_eq!(one, other);
        ok(cuDevicePrimaryCtxRelease_v2(0));
        ok(cuDevicePrimaryCtxGetState(0, &raw mut flags, &raw mut active));
        assert_eq!(active, 1);
        ok(cuCtxSetCurrent(one));
        ok(cuDevicePrimaryCtxRelease_v2(0));
        ok(cuDevicePrimaryCtxGetState(0, &raw mut flags, &raw mut active));
        assert_eq!(active, 0);
        assert_eq!(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        assert_eq!(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
    }
}
