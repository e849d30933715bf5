//! Symmetric heaps: two devices whose kernels store into each other's memory. Runs on a node with
//! two devices of PoCL. tests/cuda/heaps.cu tests what kernels can do with `ggas.h`.

mod common;

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use common::*;
use penstock_cuda::api::context::*;
use penstock_cuda::api::copy::*;
use penstock_cuda::api::heap::*;
use penstock_cuda::api::launch::*;
use penstock_cuda::api::proc_address::*;
use penstock_cuda::api::table::OWN;
use penstock_cuda_sys::driver::*;

/// Kernel `exchange`: each PE stores a value into the other's part, waits for the value of the
/// other, and stores that plus its own number. The offsets are those of `ggas_heap_t`: the PE's
/// number, the distance of the parts, and the first byte for users.
const KERNELS: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry exchange(.param .u64 heap, .param .u64 value)
{
    .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<20>;
    ld.param.u64 %rd1, [heap]; ld.param.u64 %rd2, [value];
    ld.u32 %r1, [%rd1+12]; ld.u64 %rd3, [%rd1+24];
    cvt.u64.u32 %rd4, %r1; sub.s64 %rd5, 1, %rd4; add.s64 %rd6, %rd1, 57344;
    mad.lo.u64 %rd7, %rd5, %rd3, %rd6; mad.lo.u64 %rd8, %rd4, %rd3, %rd6;
    st.release.sys.u64 [%rd7+8], %rd2;
    mov.u32 %r2, 0;
LOOK:
    ld.acquire.sys.u64 %rd9, [%rd8+8];
    setp.ne.u64 %p1, %rd9, 0; @%p1 bra SEEN;
    nanosleep.u32 100; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 50000000; @%p2 bra LOOK;
SEEN:
    add.s64 %rd10, %rd9, %rd4; st.u64 [%rd8+16], %rd10;
    ret;
}
.visible .entry put(.param .u64 value, .param .u64 into, .param .u64 heap)
{
    .reg .b32 %r<8>; .reg .b64 %rd<20>;
    ld.param.u64 %rd1, [heap]; ld.param.u64 %rd2, [value]; ld.param.u64 %rd11, [into];
    ld.u32 %r1, [%rd1+12]; ld.u64 %rd3, [%rd1+24];
    cvt.u64.u32 %rd4, %r1; sub.s64 %rd5, 1, %rd4; add.s64 %rd6, %rd1, 57344;
    mad.lo.u64 %rd7, %rd5, %rd3, %rd6;
    st.u64 [%rd7+32], %rd2; cvta.to.global.u64 %rd12, %rd11; st.global.u64 [%rd12], %rd2;
    ret;
}";

struct Both {
    heap: *mut PenstockHeap,
    contexts: [CUcontext; 2],
    modules: [CUmodule; 2],
}

fn told() -> String {
    // SAFETY: the function returns a string of this thread.
    unsafe { CStr::from_ptr(penstockHeapGetText()) }.to_string_lossy().into_owned()
}

#[track_caller]
fn good(code: CUresult) {
    assert_eq!(code, CUDA_SUCCESS, "{}", told());
}

impl Both {
    fn new() -> Self {
        two_devices();
        init();
        let mut heap = null_mut();
        // SAFETY: the list has two devices, and the result goes to a local variable.
        good(unsafe { penstockHeapCreate(&raw mut heap, 2, [0, 1].as_ptr(), 4096, null()) });
        let contexts = [0, 1].map(|device| {
            let mut context = null_mut();
            // SAFETY: the result goes to a local variable.
            ok(unsafe { cuCtxCreate_v2(&raw mut context, 0, device) });
            context
        });
        let modules = contexts.map(|context| {
            // SAFETY: handles are checked and never followed.
            ok(unsafe { cuCtxSetCurrent(context) });
            load(KERNELS)
        });
        Self { heap, contexts, modules }
    }

    fn pointer(&self, pe: u32) -> CUdeviceptr {
        let mut pointer = 0;
        // SAFETY: the result goes to a local variable.
        good(unsafe { penstockHeapGetPointer(self.heap, pe, &raw mut pointer) });
        pointer
    }

    fn read(&self, pe: u32, offset: usize) -> u64 {
        let mut value = 0u64;
        // SAFETY: `value` has room for 8 bytes.
        good(unsafe { penstockHeapRead(self.heap, pe, offset, (&raw mut value).cast(), 8) });
        value
    }

    /// Launches `exchange` with the parameters `first`, normally the heap, and `values`. Each
    /// device runs `blocks` of one thread.
    fn launch(&self, first: [u64; 2], values: [u64; 2], blocks: u32, count: u32) -> CUresult {
        let mut params = [0, 1].map(|pe: usize| {
            [(&raw const first[pe]).cast_mut().cast(), (&raw const values[pe]).cast_mut().cast()]
        });
        let params: Vec<*mut *mut c_void> = params.iter_mut().map(|of| of.as_mut_ptr()).collect();
        let launches: Vec<CUDA_LAUNCH_PARAMS> = (0..2)
            .map(|pe| CUDA_LAUNCH_PARAMS {
                function: function(self.modules[pe], "exchange"),
                gridDimX: blocks,
                gridDimY: 1,
                gridDimZ: 1,
                blockDimX: 1,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: 0,
                hStream: null_mut(),
                kernelParams: params[pe],
            })
            .collect();
        // SAFETY: the list has two launches, each with the parameters of its kernel.
        unsafe { penstockHeapLaunch(self.heap, launches.as_ptr(), count) }
    }

    fn wait(&self) {
        for context in self.contexts {
            // SAFETY: handles are checked and never followed.
            ok(unsafe { cuCtxSetCurrent(context) });
            synchronize();
        }
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        // SAFETY: handles are checked and never followed.
        unsafe {
            _ = penstockHeapClose(self.heap);
            for context in self.contexts {
                _ = cuCtxDestroy_v2(context);
            }
        }
    }
}

#[test]
fn kernels_of_two_devices_store_into_each_others_memory() {
    let both = Both::new();
    let pointers = [both.pointer(0), both.pointer(1)];
    for round in 1..=3u64 {
        for pe in 0..2 {
            // SAFETY: the array has the 24 bytes.
            good(unsafe { penstockHeapWrite(both.heap, pe, 0, [0u8; 24].as_ptr().cast(), 24) });
        }
        good(both.launch(pointers, [100 * round, 200 * round], 1, 2));
        both.wait();
        assert_eq!((both.read(0, 16), both.read(1, 16)), (200 * round, 100 * round + 1));
    }
}

#[test]
fn an_ordinary_launch_with_a_heap_is_one_of_its_device() {
    let both = Both::new();
    for (pe, context) in both.contexts.into_iter().enumerate() {
        // SAFETY: handles are checked and never followed.
        ok(unsafe { cuCtxSetCurrent(context) });
        let memory = allocate(8);
        let put = function(both.modules[pe], "put");
        let (mut value, mut into, mut heap) = (77 + pe as u64, memory, both.pointer(0));
        let mut params: [*mut c_void; 3] =
            [(&raw mut value).cast(), (&raw mut into).cast(), (&raw mut heap).cast()];
        // SAFETY: the parameters are those of the kernel.
        ok(unsafe {
            cuLaunchKernel(put, 1, 1, 1, 1, 1, 1, 0, null_mut(), params.as_mut_ptr(), null_mut())
        });
        synchronize();
        assert_eq!(download::<u64>(memory, 1), [value]);
        assert_eq!(both.read(1 - u32::try_from(pe).unwrap(), 32), value);
    }
}

#[test]
fn what_can_not_be_is_refused_with_a_sentence() {
    let both = Both::new();
    let pointers = [both.pointer(0), both.pointer(1)];
    let refused = |code: CUresult, wanted: CUresult, word: &str| {
        assert_eq!(code, wanted, "{}", told());
        assert!(told().contains(word), "{word}: {}", told());
    };
    refused(
        both.launch(pointers, [1, 1], 10_000, 2),
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
        "10000 work-groups",
    );
    refused(both.launch(pointers, [1, 1], 1, 1), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "PE 1");
    refused(
        both.launch([pointers[0], 0], [1, 1], 1, 2),
        CUDA_ERROR_INVALID_VALUE,
        "does not have this heap among its parameters",
    );
    let mut heap = null_mut();
    // SAFETY: lists and results are local variables, and null pointers are rejected.
    unsafe {
        refused(
            penstockHeapCreate(&raw mut heap, 2, [0, 0].as_ptr(), 64, null()),
            CUDA_ERROR_NOT_SUPPORTED,
            "twice",
        );
        refused(
            penstockHeapCreate(&raw mut heap, 1, [9].as_ptr(), 64, null()),
            CUDA_ERROR_INVALID_DEVICE,
            "no device 9",
        );
        refused(
            penstockHeapCreate(&raw mut heap, 1, [0].as_ptr(), 1 << 50, null()),
            CUDA_ERROR_OUT_OF_MEMORY,
            "address range",
        );
        let long = HeapOptions { timeout_ms: 600_001, force_proxy: 0 };
        refused(
            penstockHeapCreate(&raw mut heap, 1, [0].as_ptr(), 64, &raw const long),
            CUDA_ERROR_INVALID_VALUE,
            "600000 ms",
        );
        refused(penstockHeapClose(null_mut()), CUDA_ERROR_INVALID_HANDLE, "not a heap");
        refused(
            penstockHeapWrite(both.heap, 2, 0, [0u8].as_ptr().cast(), 1),
            CUDA_ERROR_INVALID_VALUE,
            "no PE 2",
        );
        // Ordinary copies reject the heap's address.
        let mut bytes = [0u8; 8];
        assert_eq!(
            cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), pointers[0], 8),
            CUDA_ERROR_INVALID_VALUE
        );
        assert_eq!(
            cuMemcpy(bytes.as_mut_ptr().expose_provenance() as u64, pointers[0], 8),
            CUDA_ERROR_INVALID_VALUE
        );
    }
    assert!(heap.is_null());
    // The rejected calls had no effect.
    good(both.launch(pointers, [5, 6], 1, 2));
    both.wait();
    assert_eq!((both.read(0, 16), both.read(1, 16)), (6, 6));
}

#[test]
fn an_abort_is_told_until_the_reset() {
    let both = Both::new();
    let aborted = || {
        let mut aborted = 7;
        // SAFETY: the result goes to a local variable.
        good(unsafe { penstockHeapGetAborted(both.heap, &raw mut aborted) });
        (aborted, told())
    };
    assert_eq!(aborted(), (0, String::new()));
    // SAFETY: the reason is a string or null.
    unsafe {
        good(penstockHeapAbort(both.heap, c"enough".as_ptr()));
        assert_eq!(aborted(), (1, "enough".to_owned()));
        good(penstockHeapReset(both.heap));
        assert_eq!(aborted().0, 0);
        good(penstockHeapAbort(both.heap, null()));
        good(penstockHeapReset(both.heap));
    }
}

#[test]
fn the_functions_are_found_by_name() {
    init();
    let mut found = Vec::new();
    for name in OWN {
        let symbol = std::ffi::CString::new(*name).unwrap();
        let mut address = null_mut();
        // SAFETY: the string ends with a 0, and the result goes to a local variable.
        ok(unsafe { cuGetProcAddress(symbol.as_ptr(), &raw mut address, 12_000, 0) });
        assert!(!address.is_null() && !found.contains(&address), "{name}");
        found.push(address);
    }
}
