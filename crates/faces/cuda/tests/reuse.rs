//! Memory and handles that are used again although a command may still use what was there before.
//! The tests run one at a time, because all allocations decide which address is free.

mod common;

use std::collections::BTreeSet;
use std::ptr::null_mut;
use std::time::Duration;

use common::*;
use penstock_cuda::api::array::*;
use penstock_cuda::api::context::*;
use penstock_cuda::api::copy::*;
use penstock_cuda::api::event::*;
use penstock_cuda::api::memory::*;
use penstock_cuda::api::module::*;
use penstock_cuda::api::pool::*;
use penstock_cuda::api::stream::*;
use penstock_cuda::api::texture::*;
use penstock_cuda_sys::driver::*;

fn free(address: CUdeviceptr) {
    // SAFETY: device addresses are checked and never followed.
    ok(unsafe { cuMemFree_v2(address) });
}

fn set_current(context: CUcontext) {
    // SAFETY: handles are checked and never followed.
    ok(unsafe { cuCtxSetCurrent(context) });
}

/// Returns `add_one`, after it has run once, and memory for one number.
fn warm() -> (CUfunction, CUdeviceptr) {
    let add_one = function(load(KERNELS), "add_one");
    let address = allocate(4);
    upload(address, &[0u32]);
    ok(launch(add_one, 1, 1, null_mut(), &[address]));
    synchronize();
    (add_one, address)
}

fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the results go to local variables.
    ok(unsafe { cuMemGetInfo_v2(&raw mut free, &raw mut total) });
    free
}

/// Makes a free range of `bytes` between two allocations. The next allocation of this size gets it.
fn hole(bytes: usize) -> CUdeviceptr {
    // Earlier tests leave smaller holes, which are filled first.
    let all: Vec<_> = (0..20).map(|_| allocate(bytes)).collect();
    let hole = all[18];
    free(hole);
    assert_eq!(allocate(bytes), hole);
    free(hole);
    hole
}

fn array(bytes: usize) -> CUarray {
    let descriptor = CUDA_ARRAY_DESCRIPTOR {
        Width: bytes,
        Height: 1,
        Format: CU_AD_FORMAT_UNSIGNED_INT8,
        NumChannels: 1,
    };
    let mut array = null_mut();
    // SAFETY: the result and the description are local variables.
    ok(unsafe { cuArrayCreate_v2(&raw mut array, &raw const descriptor) });
    array
}

/// Makes a texture object over linear memory. Its handle is the address of its descriptor.
fn texture(memory: CUdeviceptr) -> CUtexObject {
    let resource = CUDA_RESOURCE_DESC {
        resType: CU_RESOURCE_TYPE_LINEAR,
        res: CUDA_RESOURCE {
            handle: memory,
            format: CU_AD_FORMAT_UNSIGNED_INT8,
            numChannels: 1,
            width: 4,
            ..Default::default()
        },
        flags: 0,
    };
    let (description, mut object) = (CUDA_TEXTURE_DESC::default(), 0);
    // SAFETY: the result and the descriptions are local variables.
    ok(unsafe {
        cuTexObjectCreate(
            &raw mut object,
            &raw const resource,
            &raw const description,
            std::ptr::null(),
        )
    });
    object
}

#[test]
fn freed_memory_is_not_used_again_beside_the_legacy_default_stream() {
    let _context = TestContext::new();
    let (add_one, _) = warm();
    let address = hole(4096);
    assert_eq!(allocate(4096), address);
    let gate = Gate::default();
    gate.close(null_mut());
    ok(launch(add_one, 1, 1, null_mut(), &[address]));
    let before = free_bytes();
    free(address);
    // The memory counts as free, because an allocation that needs it waits for it.
    assert_eq!(free_bytes(), before + 4096);
    // A later stream does not wait for the stream that still uses the memory.
    let later = stream(CU_STREAM_NON_BLOCKING);
    let other = allocate(4096);
    assert_ne!(other, address);
    gate.open();
    synchronize();
    // Now the memory is used again.
    assert_eq!(allocate(4096), address);
    // SAFETY: handles are checked and never followed.
    ok(unsafe { cuStreamDestroy_v2(later) });
}

#[test]
fn who_frees_much_that_is_in_use_waits_and_gets_it_again() {
    let _context = TestContext::new();
    let (add_one, address) = warm();
    let large = allocate(300 << 20);
    free(large);
    for _ in 0..3 {
        assert_eq!(allocate(300 << 20), large);
        let gate = Gate::default();
        gate.close(null_mut());
        ok(launch(add_one, 1, 1, null_mut(), &[address]));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                gate.open();
            });
            free(large);
        });
    }
    assert_eq!(download::<u32>(address, 1), [4]);
}

#[test]
fn memory_that_is_freed_in_the_order_of_a_default_stream_waits_for_what_that_waits_for() {
    let _context = TestContext::new();
    let (add_one, _) = warm();
    let blocking = stream(0);
    let address = hole(4096);
    assert_eq!(allocate(4096), address);
    let gate = Gate::default();
    gate.close(blocking);
    ok(launch(add_one, 1, 1, blocking, &[address]));
    // SAFETY: addresses and handles are checked and never followed.
    ok(unsafe { cuMemFreeAsync(address, null_mut()) });
    assert_ne!(allocate(4096), address);
    gate.open();
    synchronize();
    assert_eq!(allocate(4096), address);
}

#[test]
fn a_descriptor_stays_while_a_kernel_may_sample_by_it() {
    let _context = TestContext::new();
    let (add_one, memory) = warm();
    let first = texture(memory);
    let gate = Gate::default();
    gate.close(null_mut());
    ok(launch(add_one, 1, 1, null_mut(), &[memory]));
    // SAFETY: handles are checked and never followed.
    ok(unsafe { cuTexObjectDestroy(first) });
    let second = texture(memory);
    assert_ne!(first, second);
    gate.open();
    synchronize();
}

#[test]
fn memory_is_not_used_again_while_another_context_uses_it() {
    let first = TestContext::new();
    let (add_one, _) = warm();
    let busy = stream(0);
    let (address, of_array) = (hole(4096), hole(8192));
    assert_eq!(allocate(4096), address);
    let array = array(8192);
    let second = TestContext::new();
    set_current(first.0);
    let gate = Gate::default();
    gate.close(busy);
    ok(launch(add_one, 1, 1, busy, &[address]));
    ok(launch(add_one, 1, 1, busy, &[of_array]));
    set_current(second.0);
    free(address);
    // The same if no context is current.
    set_current(null_mut());
    // SAFETY: handles are checked and never followed.
    ok(unsafe { cuArrayDestroy(array) });
    set_current(second.0);
    let more = [allocate(4096), allocate(8192)];
    assert!(
        !more.contains(&address) && !more.contains(&of_array),
        "{more:x?} {address:x} {of_array:x}"
    );
    gate.open();
    set_current(first.0);
    synchronize();
    assert_eq!((allocate(4096), allocate(8192)), (address, of_array));
}

#[test]
fn handles_end_with_their_context_and_free_nothing_of_others() {
    let (array, texture, module, function, stream, event);
    {
        let _context = TestContext::new();
        let (add_one, memory) = warm();
        array = self::array(4096);
        texture = self::texture(memory);
        module = load(KERNELS);
        function = self::function(module, "count");
        stream = common::stream(0);
        event = common::event(0);
        ok(launch(add_one, 1, 1, stream, &[memory]));
        // The event remembers the stream.
        // SAFETY: handles are checked and never followed.
        ok(unsafe { cuEventRecord(event, stream) });
    }
    let _context = TestContext::new();
    let mut all: BTreeSet<_> = (0..200).map(|_| allocate(256)).collect();
    all.extend((0..100).map(|_| allocate(4096)));
    // SAFETY: handles are checked, and these have ended.
    unsafe {
        assert_eq!(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuTexObjectDestroy(texture), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
    }
    assert_eq!(launch(function, 1, 1, null_mut(), &[]), CUDA_ERROR_INVALID_HANDLE);
    for bytes in [256, 4096] {
        for _ in 0..200 {
            assert!(all.insert(allocate(bytes)), "an address was allocated twice");
        }
    }
}

#[test]
fn memory_of_the_program_is_left_only_when_no_context_writes_it_any_more() {
    let first = TestContext::new();
    let (add_one, address) = warm();
    let busy = stream(CU_STREAM_NON_BLOCKING);
    let mut value = Box::new([7u32; 1024]);
    let place = value.as_mut_ptr();
    // SAFETY: the memory belongs to this test, and stays until it is unregistered.
    ok(unsafe { cuMemHostRegister_v2(place.cast(), 4096, 0) });
    let gate = Gate::default();
    gate.close(busy);
    ok(launch(add_one, 1, 1, busy, &[address]));
    // SAFETY: the memory has room for the value, and stays until it is unregistered.
    ok(unsafe { cuMemcpyDtoHAsync_v2(place.cast(), address, 4, busy) });
    let _second = TestContext::new();
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            gate.open();
        });
        // SAFETY: the memory was registered above. Once it is unregistered, nothing writes it any
        // more.
        unsafe {
            ok(cuMemHostUnregister(place.cast()));
            place.read_volatile()
        }
    });
    assert_eq!(found, 2);
    set_current(first.0);
    synchronize();
}

#[test]
fn destroyed_streams_are_let_go_when_they_have_ended() {
    let _context = TestContext::new();
    let (add_one, address) = warm();
    let mark = event(CU_EVENT_DISABLE_TIMING);
    for _ in 0..50 {
        let passing = stream(CU_STREAM_NON_BLOCKING);
        ok(launch(add_one, 1, 1, passing, &[address]));
        // SAFETY: handles are checked and never followed.
        unsafe {
            ok(cuEventRecord(mark, passing));
            ok(cuEventSynchronize(mark));
            ok(cuStreamDestroy_v2(passing));
        }
    }
    let left = penstock_cuda::streams_of_current();
    assert!(left <= 4, "{left} streams are left");
    synchronize();
    let left = penstock_cuda::streams_of_current();
    // The commands of a destroyed stream continue, and the context waits for them.
    let gate = Gate::default();
    let passing = stream(0);
    gate.close(passing);
    ok(launch(add_one, 1, 1, passing, &[address]));
    // SAFETY: handles are checked and never followed.
    ok(unsafe { cuStreamDestroy_v2(passing) });
    assert_eq!(penstock_cuda::streams_of_current(), left + 1);
    gate.open();
    assert_eq!(download::<u32>(address, 1), [52]);
    synchronize();
    assert_eq!(penstock_cuda::streams_of_current(), left);
}

#[test]
fn a_stream_is_ready_only_when_all_its_commands_have_ended() {
    let context = TestContext::new();
    let module = load(KERNELS);
    let (slow, address) = (function(module, "slow"), allocate(4));
    upload(address, &[0u32]);
    let shared = stream(CU_STREAM_NON_BLOCKING);
    let aside = stream(CU_STREAM_NON_BLOCKING);
    let (raw, stream, done) =
        (context.0.addr(), shared.addr(), std::sync::atomic::AtomicBool::new(false));
    let mut own = [0u32];
    let read = |to: &mut [u32; 1], stream: CUstream| {
        // SAFETY: `to` has room for the value.
        ok(unsafe { cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), address, 4, stream) });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            set_current(std::ptr::without_provenance_mut(raw));
            let mut other = [0u32];
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                read(&mut other, std::ptr::without_provenance_mut(stream));
            }
        });
        for round in 1..=200 {
            ok(launch(slow, 1, 1, shared, &[address, 3000]));
            // SAFETY: handles are checked and never followed.
            while unsafe { cuStreamQuery(shared) } == CUDA_ERROR_NOT_READY {}
            read(&mut own, aside);
            if own[0] != round {
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            assert_eq!(own[0], round, "the stream was ready while its kernel ran");
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
