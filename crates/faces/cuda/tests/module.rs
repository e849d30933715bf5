//! Modules, launches, libraries, linking, and errors in all of them.

mod common;

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use common::*;
use penstock_cuda::api::context::*;
use penstock_cuda::api::function::*;
use penstock_cuda::api::launch::*;
use penstock_cuda::api::library::*;
use penstock_cuda::api::link::*;
use penstock_cuda::api::module::*;
use penstock_cuda::api::occupancy::*;
use penstock_cuda::api::setup::*;
use penstock_cuda_sys::driver::*;

fn load_code(image: &[u8]) -> (CUresult, CUmodule) {
    let mut module = null_mut();
    // SAFETY: the result goes to a local variable, and the image ends with a 0 or contains its
    // size.
    (unsafe { cuModuleLoadData(&raw mut module, image.as_ptr().cast()) }, module)
}

#[test]
fn a_kernel_runs_on_its_arguments() {
    let _context = TestContext::new();
    let module = load(KERNELS);
    let add_one = function(module, "add_one");
    let values: Vec<u32> = (0..1000).collect();
    let address = allocate(4000);
    upload(address, &values);
    ok(launch(add_one, 10, 100, null_mut(), &[address]));
    ok(launch(add_one, 10, 100, null_mut(), &[address]));
    assert!(download::<u32>(address, 1000).into_iter().eq(2..1002));
    // SAFETY: handles are checked and never followed.
    ok(unsafe { cuModuleUnload(module) });
    assert_eq!(launch(add_one, 1, 1, null_mut(), &[address]), CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn arguments_may_be_packed() {
    let _context = TestContext::new();
    let add_one = function(load(KERNELS), "add_one");
    let address = allocate(4);
    upload(address, &[41u32]);
    let mut size = 8usize;
    let mut extra: [*mut c_void; 5] = [
        std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_POINTER),
        (&raw const address).cast_mut().cast(),
        std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_SIZE),
        (&raw mut size).cast(),
        std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_END),
    ];
    let go = |extra: *mut *mut c_void| {
        // SAFETY: the buffer holds the parameters of the kernel.
        unsafe { cuLaunchKernel(add_one, 1, 1, 1, 1, 1, 1, 0, null_mut(), null_mut(), extra) }
    };
    ok(go(extra.as_mut_ptr()));
    assert_eq!(download::<u32>(address, 1), [42]);
    let mut too_few = 4usize;
    extra[3] = (&raw mut too_few).cast();
    assert_eq!(go(extra.as_mut_ptr()), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(go(null_mut()), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn shape_and_parameters_may_be_set_before_a_launch() {
    let _context = TestContext::new();
    let module = load(KERNELS);
    let add_one = function(module, "add_one");
    let values: Vec<u32> = (0..20).collect();
    let mut address = allocate(80);
    upload(address, &values);
    let place = (&raw mut address).cast();
    // SAFETY: handles are checked, and `place` leads to 8 bytes.
    unsafe {
        // The block size is not set yet.
        assert_eq!(cuLaunchGrid(add_one, 2, 1), CUDA_ERROR_INVALID_VALUE);
        ok(cuFuncSetBlockShape(add_one, 10, 1, 1));
        ok(cuFuncSetSharedSize(add_one, 64));
        assert_eq!(cuFuncSetBlockShape(add_one, 10, 0, 1), CUDA_ERROR_INVALID_VALUE);
        // The parameters are not set yet.
        assert_eq!(cuLaunchGrid(add_one, 2, 1), CUDA_ERROR_INVALID_VALUE);
        ok(cuParamSetv(add_one, 0, place, 8));
        assert_eq!(cuParamSetv(add_one, 1, place, 8), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuParamSetv(add_one, -1, place, 8), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuParamSetSize(add_one, 9), CUDA_ERROR_INVALID_VALUE);
        ok(cuParamSetSize(add_one, 8));
        ok(cuLaunchGrid(add_one, 2, 1));
        // The two halves of the address, as two parameters of different types.
        let [low, high] =
            [address & 0xffff_ffff, address >> 32].map(|half| u32::try_from(half).unwrap());
        ok(cuParamSeti(add_one, 0, low));
        ok(cuParamSetf(add_one, 4, f32::from_bits(high)));
        ok(cuLaunchGridAsync(add_one, 2, 1, null_mut()));
        // Launches only one of the two blocks.
        ok(cuLaunch(add_one));
    }
    let expected = (0..20).map(|value| if value < 10 { value + 3 } else { value + 2 });
    assert!(download::<u32>(address, 20).into_iter().eq(expected));
    // SAFETY: handles are checked and never followed.
    unsafe {
        ok(cuModuleUnload(module));
        assert_eq!(cuFuncSetBlockShape(add_one, 10, 1, 1), CUDA_ERROR_INVALID_HANDLE);
    }
}

#[test]
fn a_context_ends_with_the_last_who_is_attached() {
    init();
    let (mut context, mut again) = (null_mut(), null_mut());
    // SAFETY: handles are checked, and the results go to local variables.
    unsafe {
        ok(cuCtxCreate_v2(&raw mut context, 0, 0));
        ok(cuCtxAttach(&raw mut again, 0));
        assert_eq!(context, again);
        assert_eq!(cuCtxAttach(&raw mut again, 1), CUDA_ERROR_INVALID_VALUE);
        ok(cuCtxDetach(context));
        ok(cuCtxSynchronize());
        ok(cuCtxDetach(context));
        assert_ne!(cuCtxSynchronize(), CUDA_SUCCESS);
        assert_ne!(cuCtxDetach(context), CUDA_SUCCESS);
    }
}

#[test]
fn variables_of_a_module_are_its_own() {
    let _context = TestContext::new();
    let (one, other) = (load(KERNELS), load(KERNELS));
    let global = |module, name: &str| {
        let name = CString::new(name).unwrap();
        let (mut address, mut size) = (0, 0);
        // SAFETY: the results go to local variables, and the string ends with a 0.
        let code =
            unsafe { cuModuleGetGlobal_v2(&raw mut address, &raw mut size, module, name.as_ptr()) };
        (code, address, size)
    };
    let (code, address, size) = global(one, "counter");
    assert_eq!((code, size), (CUDA_SUCCESS, 4));
    assert_eq!(download::<u32>(address, 1), [7]);
    ok(launch(function(one, "count"), 1, 1, null_mut(), &[]));
    assert_eq!(download::<u32>(address, 1), [9]);
    assert_eq!(download::<u32>(global(other, "counter").1, 1), [7]);
    assert_eq!(global(one, "nothing").0, CUDA_ERROR_NOT_FOUND);
}

#[test]
fn wrong_shapes_of_launches_are_refused_and_do_no_harm() {
    let _context = TestContext::new();
    let empty = function(load(KERNELS), "empty");
    let go = |grid: [u32; 3], block: [u32; 3], shared: u32| {
        let ([a, b, c], [d, e, f]) = (grid, block);
        // SAFETY: the kernel has no parameters.
        unsafe {
            cuLaunchKernel(empty, a, b, c, d, e, f, shared, null_mut(), null_mut(), null_mut())
        }
    };
    ok(go([1; 3], [1; 3], 0));
    ok(go([3, 2, 2], [8, 4, 2], 1024));
    for (grid, block) in [
        ([0, 1, 1], [1; 3]),
        ([1; 3], [1, 0, 1]),
        ([1; 3], [1025, 1, 1]),
        ([1; 3], [64, 64, 1]),
        ([1; 3], [1, 1, 65]),
        ([1, 65_536, 1], [1; 3]),
        ([u32::MAX, 1, 1], [1; 3]),
    ] {
        assert_eq!(go(grid, block, 0), CUDA_ERROR_INVALID_VALUE, "{grid:?} {block:?}");
    }
    assert_eq!(go([1; 3], [1; 3], 100 << 10), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(go([1; 3], [1; 3], u32::MAX), CUDA_ERROR_INVALID_VALUE);
    synchronize();
}

#[test]
fn more_threads_than_a_kernel_says_are_out_of_resources() {
    let _context = TestContext::new();
    let text = ".version 7.5\n.target sm_75\n.address_size 64\n.visible .entry k() .maxntid 64, 1, 1 { ret; }\n";
    let kernel = function(load(text), "k");
    ok(launch(kernel, 1, 64, null_mut(), &[]));
    assert_eq!(launch(kernel, 1, 65, null_mut(), &[]), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    let mut most = 0;
    // SAFETY: the result goes to a local variable.
    ok(unsafe {
        cuFuncGetAttribute(&raw mut most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel)
    });
    assert_eq!(most, 64);
    synchronize();
}

#[test]
fn broken_modules_are_refused_by_the_documented_code() {
    let _context = TestContext::new();
    for cut in [1, 20, 100, KERNELS.len() / 2, KERNELS.len() - 30] {
        let text = CString::new(&KERNELS[..cut]).unwrap();
        let (code, _) = load_code(text.as_bytes_with_nul());
        assert!(
            [CUDA_ERROR_INVALID_PTX, CUDA_ERROR_INVALID_IMAGE].contains(&code),
            "{cut}: {code:?}"
        );
    }
    assert_eq!(load_code(b"\0").0, CUDA_ERROR_INVALID_IMAGE);
    assert_eq!(load_code(b"not a module at all\0").0, CUDA_ERROR_INVALID_IMAGE);
    // A fat binary of garbage, one that claims to be larger than all memory, and an ELF file
    // without PTX.
    let mut fat = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 64, 0, 0, 0, 0, 0, 0, 0];
    fat.extend([0xa5; 64]);
    assert_eq!(load_code(&fat).0, CUDA_ERROR_INVALID_IMAGE);
    fat[8..16].fill(0xff);
    assert_eq!(load_code(&fat).0, CUDA_ERROR_INVALID_IMAGE);
    let mut elf = vec![0u8; 64];
    elf[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x33");
    elf[0x28] = 64;
    assert_eq!(load_code(&elf).0, CUDA_ERROR_NO_BINARY_FOR_GPU);
    let mut module = null_mut();
    // SAFETY: the function rejects the null pointer before it reads anything.
    let code = unsafe { cuModuleLoadData(&raw mut module, std::ptr::null()) };
    assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
    // The context remains usable.
    ok(launch(function(load(KERNELS), "empty"), 1, 1, null_mut(), &[]));
    synchronize();
}

#[test]
fn the_error_log_names_the_line() {
    let _context = TestContext::new();
    let text =
        c".version 7.5\n.target sm_75\n.address_size 64\n.visible .entry k() {\n  bra nonsense;\n}\n";
    let mut buffer = vec![0u8; 256];
    let mut names = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values: [*mut c_void; 2] =
        [buffer.as_mut_ptr().cast(), std::ptr::without_provenance_mut(256)];
    let mut module = null_mut();
    // SAFETY: both arrays have two elements, and the string ends with a 0.
    let code = unsafe {
        cuModuleLoadDataEx(
            &raw mut module,
            text.as_ptr().cast(),
            2,
            names.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    assert_eq!(code, CUDA_ERROR_INVALID_PTX);
    let end = buffer.iter().position(|byte| *byte == 0).unwrap();
    assert_eq!(values[1].addr(), end);
    let log = String::from_utf8_lossy(&buffer[..end]).into_owned();
    assert!(log.contains('5') && log.contains("nonsense"), "{log}");
}

#[test]
fn libraries_are_loaded_where_they_are_used() {
    let _context = TestContext::new();
    let text = CString::new(KERNELS).unwrap();
    let (mut library, mut kernel, mut of_context, mut count) =
        (null_mut(), null_mut(), null_mut(), 0);
    // SAFETY: results go to local variables, strings end with a 0, and there are no options.
    unsafe {
        let none = null_mut();
        let nobody = null_mut();
        ok(cuLibraryLoadData(
            &raw mut library,
            text.as_ptr().cast(),
            none,
            nobody,
            0,
            null_mut(),
            null_mut(),
            0,
        ));
        ok(cuLibraryGetKernelCount(&raw mut count, library));
        ok(cuLibraryGetKernel(&raw mut kernel, library, c"add_one".as_ptr()));
        assert_eq!(
            cuLibraryGetKernel(&raw mut kernel, library, c"none".as_ptr()),
            CUDA_ERROR_NOT_FOUND
        );
        ok(cuKernelGetFunction(&raw mut of_context, kernel));
    }
    assert_eq!(count, 4);
    let (mut offset, mut size) = (1, 0);
    // SAFETY: the results go to local variables.
    unsafe {
        ok(cuKernelGetParamInfo(kernel, 0, &raw mut offset, &raw mut size));
        assert_eq!((offset, size), (0, 8));
        assert_eq!(
            cuKernelGetParamInfo(kernel, 1, &raw mut offset, &raw mut size),
            CUDA_ERROR_INVALID_VALUE
        );
    }
    let address = allocate(4);
    upload(address, &[1u32]);
    // "hfunc can be a CUkernel": the kernel and its function both run.
    ok(launch(kernel.cast(), 1, 1, null_mut(), &[address]));
    ok(launch(of_context, 1, 1, null_mut(), &[address]));
    assert_eq!(download::<u32>(address, 1), [3]);
    // SAFETY: handles are checked and never followed.
    ok(unsafe { cuLibraryUnload(library) });
    assert_eq!(launch(kernel.cast(), 1, 1, null_mut(), &[address]), CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn ptx_goes_through_the_linker() {
    let _context = TestContext::new();
    let (mut link, mut image, mut size) = (null_mut(), null_mut(), 0);
    // SAFETY: results go to local variables, and there are no options.
    unsafe {
        ok(cuLinkCreate_v2(0, null_mut(), null_mut(), &raw mut link));
        let (text, name) = (KERNELS.as_ptr().cast_mut().cast(), c"k".as_ptr());
        let (none, nobody) = (null_mut(), null_mut());
        ok(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text, KERNELS.len(), name, 0, none, nobody));
        let garbage = c"garbage".as_ptr().cast_mut().cast();
        for kind in [CU_JIT_INPUT_PTX, CU_JIT_INPUT_CUBIN] {
            assert_eq!(
                cuLinkAddData_v2(link, kind, garbage, 7, name, 0, none, nobody),
                CUDA_ERROR_INVALID_IMAGE
            );
        }
        ok(cuLinkComplete(link, &raw mut image, &raw mut size));
        let mut module = null_mut();
        ok(cuModuleLoadData(&raw mut module, image));
        ok(launch(function(module, "empty"), 1, 1, null_mut(), &[]));
        ok(cuLinkDestroy(link));
    }
    synchronize();
}

/// Kernel `reverse`: each thread writes to shared memory, whose size the launch gives, and reads
/// what the opposite thread wrote.
const REVERSES: &str = r"
.version 7.5
.target sm_75
.address_size 64
.extern .shared .align 4 .b8 room[];

.visible .entry reverse(.param .u64 values, .param .u64 size)
{
    .reg .b32 %r<9>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [values];
    ld.param.u64 %rd2, [size];
    cvta.to.global.u64 %rd1, %rd1;
    cvta.to.global.u64 %rd2, %rd2;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, room;
    shl.b32 %r4, %r1, 2;
    add.u32 %r5, %r3, %r4;
    st.shared.u32 [%r5], %r1;
    bar.sync 0;
    sub.u32 %r6, %r2, %r1;
    shl.b32 %r6, %r6, 2;
    add.u32 %r6, %r6, %r3;
    ld.shared.u32 %r7, [%r6+-4];
    cvt.u64.u32 %rd3, %r4;
    add.u64 %rd4, %rd1, %rd3;
    st.global.u32 [%rd4], %r7;
    mov.u32 %r8, %dynamic_smem_size;
    st.global.u32 [%rd2], %r8;
    ret;
}
";

#[test]
fn shared_memory_is_as_large_as_the_launch_says() {
    let _context = TestContext::new();
    let reverse = function(load(REVERSES), "reverse");
    let (values, size) = (allocate(256), allocate(4));
    for threads in [64u32, 32] {
        let mut params =
            [(&raw const values).cast_mut().cast(), (&raw const size).cast_mut().cast()];
        let (stream, none) = (null_mut(), null_mut());
        // SAFETY: the parameters are those of the kernel.
        ok(unsafe {
            cuLaunchKernel(
                reverse,
                1,
                1,
                1,
                threads,
                1,
                1,
                4 * threads,
                stream,
                params.as_mut_ptr(),
                none,
            )
        });
        assert!(download::<u32>(values, threads as usize).into_iter().eq((0..threads).rev()));
        assert_eq!(download::<u32>(size, 1), [4 * threads]);
    }
}

#[test]
fn the_block_that_is_proposed_can_be_launched() {
    let _context = TestContext::new();
    let empty = function(load(KERNELS), "empty");
    let (mut grid, mut block, mut active) = (0, 0, 0);
    // SAFETY: the results go to local variables.
    unsafe {
        ok(cuOccupancyMaxPotentialBlockSize(&raw mut grid, &raw mut block, empty, None, 0, 0));
        ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut active, empty, block, 0));
    }
    assert!(grid >= 1 && block >= 32 && active == 1);
    ok(launch(empty, grid.unsigned_abs(), block.unsigned_abs(), null_mut(), &[]));
    let mut name = std::ptr::null();
    // SAFETY: the result goes to a local variable.
    ok(unsafe { cuFuncGetName(&raw mut name, empty) });
    // SAFETY: the string lives as long as the module.
    assert_eq!(unsafe { std::ffi::CStr::from_ptr(name) }, c"empty");
}

#[test]
fn a_cooperative_grid_of_one_block_runs_and_a_larger_one_is_too_large() {
    let _context = TestContext::new();
    let empty = function(load(KERNELS), "empty");
    let go = |grid| {
        // SAFETY: the kernel has no parameters.
        unsafe { cuLaunchCooperativeKernel(empty, grid, 1, 1, 32, 1, 1, 0, null_mut(), null_mut()) }
    };
    ok(go(1));
    assert_eq!(go(2), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    synchronize();
}

#[test]
fn a_trap_stays_until_the_context_ends() {
    let text = ".version 7.5\n.target sm_75\n.address_size 64\n.visible .entry k() { trap; }\n";
    {
        let context = TestContext::new();
        ok(launch(function(load(text), "k"), 1, 1, null_mut(), &[]));
        // SAFETY: the call takes no pointers.
        assert_eq!(unsafe { cuCtxSynchronize() }, CUDA_ERROR_LAUNCH_FAILED);
        let mut address = 0;
        // SAFETY: the result goes to a local variable.
        let code = unsafe { penstock_cuda::api::memory::cuMemAlloc_v2(&raw mut address, 4) };
        assert_eq!(code, CUDA_ERROR_LAUNCH_FAILED);
        drop(context);
    }
    let _context = TestContext::new();
    ok(launch(function(load(KERNELS), "empty"), 1, 1, null_mut(), &[]));
    synchronize();
}
