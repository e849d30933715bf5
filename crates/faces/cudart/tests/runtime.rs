//! Both libraries with the stand-in driver.

#![allow(clippy::macro_metavars_in_unsafe, reason = "calls have values, not code")]

mod common;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

use common::{Pointer, Setting, TO_DEVICE, TO_HOST, copy, last, memory, setting};
use penstock_cuda_sys::runtime::{Dim3, FATBIN_WRAPPER_MAGIC, FatbinWrapper, FuncAttributes};
use penstock_cuda_sys::runtime_codes as code;
use penstock_cuda_sys::runtime_properties::{DeviceProperties12, DeviceProperties13};

fn launch(
    setting: &Setting,
    kernel: *const c_void,
    grid: u32,
    block: u32,
    arguments: &mut [Pointer],
) -> c_int {
    let size = |x| Dim3 { x, y: 1, z: 1 };
    call!(setting.runtime, cudaLaunchKernel(
        kernel => *const c_void, size(grid) => Dim3, size(block) => Dim3, arguments.as_mut_ptr() => *mut Pointer, 0 => usize,
        null_mut() => Pointer,
    ))
}

#[test]
fn registering_and_unregistering_never_touch_the_driver() {
    static HOST: u8 = 0;
    let setting = setting(13);
    let binary = setting.register(c"STANDIN kernel fill");
    setting.kernel(binary, &HOST, c"fill");
    call!(setting.runtime, __cudaRegisterFatBinaryEnd(binary => *mut Pointer));
    call!(setting.runtime, __cudaUnregisterFatBinary(binary => *mut Pointer));
    assert_eq!(setting.calls(), Vec::<String>::new());
}

#[test]
fn a_kernel_is_loaded_once_per_device_and_writes_what_is_copied_back() {
    static HOST: u8 = 0;
    for major in [12, 13] {
        let setting = setting(major);
        let binary = setting.register(c"STANDIN kernel fill");
        let kernel = setting.kernel(binary, &HOST, c"fill");
        for device in [0, 1] {
            assert_eq!(call!(setting.runtime, cudaSetDevice(device => c_int)), 0);
            let mut at = memory(&setting, 64);
            let (mut value, mut count) = (7_u32, 16_u32);
            for _ in 0..2 {
                let arguments =
                    &mut [(&raw mut at).cast(), (&raw mut value).cast(), (&raw mut count).cast()];
                assert_eq!(launch(&setting, kernel, 1, 16, arguments), 0);
            }
            let mut got = [0_u32; 16];
            assert_eq!(copy(&setting, got.as_mut_ptr().cast(), at, 64, TO_HOST), 0);
            assert_eq!(got, [7; 16]);
            let calls = setting.calls();
            assert_eq!(
                calls.iter().filter(|call| *call == "cuModuleLoadDataEx").count(),
                1,
                "{calls:?}"
            );
            let launches =
                format!("cuLaunchKernel fill 1x1x1 16x1x1 shared 0 stream 0 device {device}");
            assert_eq!(calls.iter().filter(|call| **call == launches).count(), 2, "{calls:?}");
        }
        call!(setting.runtime, __cudaUnregisterFatBinary(binary => *mut Pointer));
        assert_eq!(setting.calls(), ["cuModuleUnload", "cuModuleUnload"]);
        assert_eq!(launch(&setting, kernel, 1, 1, &mut []), code::INVALID_DEVICE_FUNCTION);
    }
}

#[test]
fn the_code_that_the_compiler_makes_of_a_launch_works() {
    static HOST: u8 = 0;
    let setting = setting(13);
    let binary = setting.register(c"STANDIN kernel trap");
    let host = setting.kernel(binary, &HOST, c"trap");
    let (grid, block) = (Dim3 { x: 3, y: 2, z: 1 }, Dim3 { x: 8, y: 4, z: 2 });
    let stream: Pointer = std::ptr::without_provenance_mut(0x50);
    assert_eq!(
        call!(setting.runtime, __cudaPushCallConfiguration(grid => Dim3, block => Dim3, 96 => usize, stream => Pointer)),
        0
    );
    let mut handle: Pointer = null_mut();
    assert_eq!(
        call!(setting.runtime, __cudaGetKernel(&raw mut handle => *mut Pointer, host => *const c_void)),
        0
    );
    let (mut got_grid, mut got_block, mut shared, mut got_stream) =
        (Dim3::default(), Dim3::default(), 0_usize, null_mut());
    assert_eq!(
        call!(setting.runtime, __cudaPopCallConfiguration(
            &raw mut got_grid => *mut Dim3, &raw mut got_block => *mut Dim3, &raw mut shared => *mut usize,
            &raw mut got_stream => *mut Pointer,
        )),
        0
    );
    assert_eq!((got_grid, got_block, shared, got_stream), (grid, block, 96, stream));
    assert_eq!(
        call!(setting.runtime, __cudaLaunchKernel(
            handle => Pointer, got_grid => Dim3, got_block => Dim3, null_mut() => *mut Pointer, shared => usize,
            got_stream => Pointer,
        )),
        0
    );
    let wanted = "cuLaunchKernel trap 3x2x1 8x4x2 shared 96 stream 80 device 0";
    assert!(setting.calls().iter().any(|call| call == wanted));
    assert_eq!(
        call!(setting.runtime, __cudaPopCallConfiguration(
            null_mut() => *mut Dim3, null_mut() => *mut Dim3, null_mut() => *mut usize, null_mut() => *mut Pointer,
        )),
        code::MISSING_CONFIGURATION
    );
    // The kernel ends its context: until a reset, all calls fail, even after the error is read.
    assert_eq!(call!(setting.runtime, cudaDeviceSynchronize()), code::LAUNCH_FAILURE);
    assert_eq!((last(&setting), last(&setting)), (code::LAUNCH_FAILURE, code::LAUNCH_FAILURE));
    assert_eq!(
        call!(setting.runtime, cudaMemset(null_mut() => Pointer, 0 => c_int, 4 => usize)),
        code::LAUNCH_FAILURE
    );
    assert_eq!(call!(setting.runtime, cudaDeviceReset()), 0);
    assert_eq!((last(&setting), last(&setting)), (code::LAUNCH_FAILURE, 0));
    assert_eq!(call!(setting.runtime, cudaDeviceSynchronize()), 0);
    call!(setting.runtime, __cudaUnregisterFatBinary(binary => *mut Pointer));
}

#[test]
fn wrong_sizes_of_a_launch_have_the_runtimes_codes() {
    static FILL: u8 = 0;
    static SMALL: u8 = 1;
    static LACKING: u8 = 2;
    let setting = setting(13);
    let binary = setting.register(c"STANDIN kernel fill kernel small");
    let fill = setting.kernel(binary, &FILL, c"fill");
    let small = setting.kernel(binary, &SMALL, c"small");
    let lacking = setting.kernel(binary, &LACKING, c"lacking");
    assert_eq!(launch(&setting, fill, 0, 1, &mut []), code::INVALID_CONFIGURATION);
    assert_eq!(launch(&setting, fill, 1, 1025, &mut []), code::INVALID_CONFIGURATION);
    assert_eq!(launch(&setting, fill, 5000, 1, &mut []), code::INVALID_CONFIGURATION);
    assert_eq!(launch(&setting, small, 1, 65, &mut []), code::LAUNCH_OUT_OF_RESOURCES);
    assert_eq!(launch(&setting, small, 1, 64, &mut []), 0);
    assert_eq!(launch(&setting, lacking, 1, 1, &mut []), code::INVALID_DEVICE_FUNCTION);
    assert_eq!(launch(&setting, null(), 1, 1, &mut []), code::INVALID_DEVICE_FUNCTION);
    assert_eq!(last(&setting), code::INVALID_DEVICE_FUNCTION);
    assert_eq!(last(&setting), 0);
    call!(setting.runtime, __cudaUnregisterFatBinary(binary => *mut Pointer));
}

#[test]
fn a_module_that_the_driver_refuses_fails_when_it_is_used_and_is_tried_once() {
    static HOST: u8 = 0;
    let setting = setting(13);
    let binary = setting.register(c"nonsense");
    let kernel = setting.kernel(binary, &HOST, c"fill");
    assert_eq!(call!(setting.runtime, cudaDeviceSynchronize()), 0);
    setting.calls();
    assert_eq!(launch(&setting, kernel, 1, 1, &mut []), code::INVALID_PTX);
    assert_eq!(launch(&setting, kernel, 1, 1, &mut []), code::INVALID_PTX);
    assert_eq!(setting.calls(), ["cuModuleLoadDataEx"]);
    assert_eq!(call!(setting.runtime, cudaDeviceSynchronize()), 0);
    call!(setting.runtime, __cudaUnregisterFatBinary(binary => *mut Pointer));
}

#[test]
fn the_second_forms_use_the_threads_own_stream() {
    static HOST: u8 = 0;
    let setting = setting(12);
    let binary = setting.register(c"STANDIN kernel small");
    let kernel = setting.kernel(binary, &HOST, c"small");
    let one = memory(&setting, 16);
    let mut source = [1_u8; 16];
    let size = Dim3 { x: 1, y: 1, z: 1 };
    assert_eq!(launch(&setting, kernel, 1, 1, &mut []), 0);
    setting.calls();
    call!(setting.runtime, cudaMemcpy_ptds(one => Pointer, source.as_mut_ptr().cast() => Pointer, 16 => usize, TO_DEVICE => c_int));
    call!(setting.runtime, cudaMemsetAsync_ptsz(one => Pointer, 5 => c_int, 16 => usize, null_mut() => Pointer));
    call!(setting.runtime, cudaLaunchKernel_ptsz(
        kernel => *const c_void, size => Dim3, size => Dim3, null_mut() => *mut Pointer, 0 => usize, null_mut() => Pointer,
    ));
    call!(setting.runtime, cudaStreamSynchronize_ptsz(null_mut() => Pointer));
    assert_eq!(
        setting.calls(),
        [
            "HtoDAsync 16 stream 2",
            "cuStreamSynchronize 2",
            "MemsetD8 5 16 stream 2",
            "cuLaunchKernel small 1x1x1 1x1x1 shared 0 stream 2 device 0",
            "cuStreamSynchronize 2"
        ]
    );
    call!(setting.runtime, __cudaUnregisterFatBinary(binary => *mut Pointer));
}

#[test]
fn variables_are_found_by_their_address_and_have_a_size() {
    static mut HOST: u8 = 0;
    let setting = setting(13);
    let binary = setting.register(c"STANDIN variable table 64");
    let host = (&raw mut HOST).cast::<c_void>();
    call!(setting.runtime, __cudaRegisterVar(
        binary => *mut Pointer, host => Pointer, null_mut() => Pointer, c"table".as_ptr() => *const c_char, 0 => c_int,
        64 => usize, 1 => c_int, 0 => c_int,
    ));
    let mut bytes = 0_usize;
    assert_eq!(
        call!(setting.runtime, cudaGetSymbolSize(&raw mut bytes => *mut usize, host => Pointer)),
        0
    );
    assert_eq!(bytes, 64);
    let (source, mut got) = ([9_u8; 8], [0_u8; 16]);
    let to = |bytes: usize, offset: usize, kind: c_int| {
        let source = source.as_ptr().cast_mut().cast::<c_void>();
        call!(setting.runtime, cudaMemcpyToSymbol(host => Pointer, source => Pointer, bytes => usize, offset => usize, kind => c_int))
    };
    assert_eq!(to(8, 8, TO_DEVICE), 0);
    assert_eq!(to(8, 57, TO_DEVICE), code::INVALID_VALUE);
    assert_eq!(to(8, usize::MAX, TO_DEVICE), code::INVALID_VALUE);
    assert_eq!(to(8, 0, TO_HOST), code::INVALID_MEMCPY_DIRECTION);
    assert_eq!(
        call!(setting.runtime, cudaMemcpyFromSymbol(
            got.as_mut_ptr().cast() => Pointer, host => Pointer, 16 => usize, 0 => usize, TO_HOST => c_int,
        )),
        0
    );
    assert_eq!(got, [0, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9]);
    assert_eq!(
        call!(setting.runtime, cudaGetSymbolSize(&raw mut bytes => *mut usize, null_mut() => Pointer)),
        code::INVALID_SYMBOL
    );
    call!(setting.runtime, __cudaUnregisterFatBinary(binary => *mut Pointer));
}

fn text(bytes: &[u8]) -> &str {
    CStr::from_bytes_until_nul(bytes).unwrap().to_str().unwrap()
}

#[test]
fn properties_have_the_form_of_each_version() {
    let thirteen = setting(13);
    // SAFETY: all zeros is a valid value of these structures.
    let mut found: DeviceProperties13 = unsafe { std::mem::zeroed() };
    assert_eq!(
        call!(thirteen.runtime, cudaGetDeviceProperties(&raw mut found => *mut DeviceProperties13, 1 => c_int)),
        0
    );
    assert_eq!(
        (text(&found.name), found.major, found.minor, found.totalGlobalMem),
        ("Stand-in 1", 7, 9, 1 << 32)
    );
    assert_eq!(
        (found.l2CacheSize, found.hostNumaMultinodeIpcSupported, found.uuid),
        (1038, 1143, [41; 16])
    );
    drop(thirteen);
    let twelve = setting(12);
    // SAFETY: all zeros is a valid value of these structures.
    let mut found: DeviceProperties12 = unsafe { std::mem::zeroed() };
    assert_eq!(
        call!(twelve.runtime, cudaGetDeviceProperties_v2(&raw mut found => *mut DeviceProperties12, 0 => c_int)),
        0
    );
    assert_eq!(
        (text(&found.name), found.clockRate, found.unifiedFunctionPointers),
        ("Stand-in 0", 1013, 1129)
    );
    // Older programs have a shorter structure. Nothing may be written behind it.
    let mut short = [0x55_u8; 1032];
    assert_eq!(
        call!(twelve.runtime, cudaGetDeviceProperties(&raw mut short => *mut [u8; 1032], 0 => c_int)),
        0
    );
    assert_eq!(
        (text(&short[..256]), short[727], &short[728..]),
        ("Stand-in 0", 0, &[0x55; 304][..])
    );
    assert_eq!(
        call!(twelve.runtime, cudaGetDeviceProperties_v2(&raw mut found => *mut DeviceProperties12, 2 => c_int)),
        code::INVALID_DEVICE
    );
}

#[test]
fn versions_and_error_names_are_told() {
    for (major, wanted) in [(12, 12_090), (13, 13_000)] {
        let setting = setting(major);
        let (mut runtime, mut driver) = (0, 0);
        assert_eq!(
            call!(setting.runtime, cudaRuntimeGetVersion(&raw mut runtime => *mut c_int)),
            0
        );
        assert_eq!(call!(setting.runtime, cudaDriverGetVersion(&raw mut driver => *mut c_int)), 0);
        assert_eq!((runtime, driver), (wanted, 13_000));
        assert_eq!(setting.name(code::ILLEGAL_ADDRESS), "cudaErrorIllegalAddress");
        assert_eq!(setting.name(12_345), "unrecognized error code");
    }
}

#[test]
fn a_device_is_chosen_by_a_thread_for_itself() {
    let setting = setting(13);
    let mut device = -1;
    assert_eq!(call!(setting.runtime, cudaSetDevice(1 => c_int)), 0);
    assert_eq!(call!(setting.runtime, cudaGetDevice(&raw mut device => *mut c_int)), 0);
    assert_eq!(device, 1);
    let runtime = setting.runtime;
    let other = std::thread::spawn(move || {
        let mut device = -1;
        assert_eq!(call!(runtime, cudaGetDevice(&raw mut device => *mut c_int)), 0);
        device
    });
    assert_eq!(other.join().unwrap(), 0);
    assert_eq!(call!(setting.runtime, cudaSetDevice(2 => c_int)), code::INVALID_DEVICE);
    assert_eq!(call!(setting.runtime, cudaSetDevice(-1 => c_int)), code::INVALID_DEVICE);
    // The runtime uses a context that the program made current through the driver.
    let mut context: Pointer = null_mut();
    assert_eq!(
        call!(setting.driver, cuDevicePrimaryCtxRetain(&raw mut context => *mut Pointer, 40 => c_int)),
        0
    );
    assert_eq!(call!(setting.driver, cuCtxSetCurrent(context => Pointer)), 0);
    assert_eq!(call!(setting.runtime, cudaGetDevice(&raw mut device => *mut c_int)), 0);
    assert_eq!(device, 0);
}

#[test]
fn streams_and_events_go_to_the_driver_and_not_ready_is_no_error() {
    let setting = setting(13);
    let mut stream: Pointer = null_mut();
    assert_eq!(
        call!(setting.runtime, cudaStreamCreateWithFlags(&raw mut stream => *mut Pointer, 1 => c_uint)),
        0
    );
    call!(setting.driver, standin_stream_busy(1 => c_int));
    assert_eq!(call!(setting.runtime, cudaStreamQuery(stream => Pointer)), code::NOT_READY);
    assert_eq!(last(&setting), 0);
    call!(setting.driver, standin_stream_busy(0 => c_int));
    assert_eq!(call!(setting.runtime, cudaStreamQuery(stream => Pointer)), 0);
    let (mut start, mut end, mut time): (Pointer, Pointer, f32) = (null_mut(), null_mut(), 0.0);
    for event in [&raw mut start, &raw mut end] {
        assert_eq!(call!(setting.runtime, cudaEventCreate(event => *mut Pointer)), 0);
    }
    for event in [start, end] {
        assert_eq!(call!(setting.runtime, cudaEventRecord(event => Pointer, stream => Pointer)), 0);
    }
    assert_eq!(
        call!(setting.runtime, cudaEventElapsedTime(&raw mut time => *mut f32, start => Pointer, end => Pointer)),
        0
    );
    assert!((time - 1.5).abs() < 1e-6);
    extern "C" fn called(count: *mut c_void) {
        // SAFETY: the pointer is that of the counter below.
        unsafe { *count.cast::<u32>() += 1 };
    }
    let mut count = 0_u32;
    let data = (&raw mut count).cast::<c_void>();
    assert_eq!(
        call!(setting.runtime, cudaLaunchHostFunc(stream => Pointer, called => extern "C" fn(Pointer), data => Pointer)),
        0
    );
    assert_eq!(count, 1);
    assert_eq!(call!(setting.runtime, cudaStreamDestroy(stream => Pointer)), 0);
    assert_eq!(
        call!(setting.runtime, cudaStreamDestroy(null_mut() => Pointer)),
        code::INVALID_RESOURCE_HANDLE
    );
}

#[test]
fn attributes_of_a_kernel_and_its_occupancy_come_from_the_driver() {
    static HOST: u8 = 0;
    let setting = setting(13);
    let binary = setting.register(c"STANDIN kernel small");
    let kernel = setting.kernel(binary, &HOST, c"small");
    assert_eq!(
        call!(setting.runtime, cudaFuncSetAttribute(kernel => *const c_void, 8 => c_uint, 4096 => c_int)),
        0
    );
    let mut found = FuncAttributes::default();
    assert_eq!(
        call!(setting.runtime, cudaFuncGetAttributes(&raw mut found => *mut FuncAttributes, kernel => *const c_void)),
        0
    );
    assert_eq!(
        (found.max_threads_per_block, found.shared_size_bytes, found.num_regs),
        (64, 10, 40)
    );
    assert_eq!(found.max_dynamic_shared_size_bytes, 4096);
    let mut blocks = 0;
    assert_eq!(
        call!(setting.runtime, cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &raw mut blocks => *mut c_int, kernel => *const c_void, 128 => c_int, 0 => usize,
        )),
        0
    );
    assert_eq!(blocks, 16);
    call!(setting.runtime, __cudaUnregisterFatBinary(binary => *mut Pointer));
}

#[test]
fn functions_of_the_driver_are_found_by_name() {
    let setting = setting(12);
    let (mut function, mut status): (Pointer, c_uint) = (null_mut(), 9);
    let mut find = |name: &CStr| {
        let code = call!(setting.runtime, cudaGetDriverEntryPoint(
            name.as_ptr() => *const c_char, &raw mut function => *mut Pointer, 0 => u64, &raw mut status => *mut c_uint,
        ));
        (code, function, status)
    };
    assert_eq!(find(c"cuMemAlloc"), (0, setting.driver.symbol("cuMemAlloc_v2"), 0));
    assert_eq!(find(c"cuNonsense"), (0, null_mut(), 1));
    assert_eq!(
        setting.calls(),
        ["cuGetProcAddress cuMemAlloc 12090 0", "cuGetProcAddress cuNonsense 12090 0"]
    );
}

#[test]
fn what_is_not_served_says_so_in_its_code_and_in_the_last_error() {
    let setting = setting(13);
    let mut graph: Pointer = null_mut();
    assert_eq!(
        call!(setting.runtime, cudaGraphCreate(&raw mut graph => *mut Pointer, 0 => c_uint)),
        code::NOT_SUPPORTED
    );
    assert_eq!((last(&setting), graph), (code::NOT_SUPPORTED, null_mut()));
    let mut managed: Pointer = null_mut();
    assert_eq!(
        call!(setting.runtime, cudaMallocManaged(&raw mut managed => *mut Pointer, 16 => usize, 1 => c_uint)),
        code::NOT_SUPPORTED
    );
    assert!(managed.is_null());
    // The stand-in driver has no graphs.
    let mut capturing = 9;
    assert_eq!(
        call!(setting.runtime, cudaStreamIsCapturing(null_mut() => Pointer, &raw mut capturing => *mut c_int)),
        code::NOT_SUPPORTED
    );
    assert_eq!(capturing, 9);
}

/// Makes a fat binary for the stand-in driver: a header with the length of the text, and the text.
fn part(text: &str) -> *const c_void {
    let length = u64::try_from(text.len()).unwrap();
    let header =
        [&0xba55_ed50_u32.to_le_bytes()[..], &[1, 0, 16, 0], &length.to_le_bytes()].concat();
    Box::leak([&header, text.as_bytes()].concat().into_boxed_slice()).as_ptr().cast()
}

/// Registers code that was linked of parts, with one kernel, and launches that. Returns the code of
/// the launch and the first calls of the driver.
fn launch_linked(texts: [&str; 2], machine_code: &'static CStr) -> (c_int, Vec<String>) {
    static HOST: u8 = 0;
    let setting = setting(13);
    let parts: &'static [*const c_void; 3] =
        Box::leak(Box::new([part(texts[0]), part(texts[1]), null()]));
    let wrapper = FatbinWrapper {
        magic: FATBIN_WRAPPER_MAGIC,
        version: 2,
        data: machine_code.as_ptr().cast(),
        linked: parts.as_ptr().cast(),
    };
    let binary = setting.register_wrapper(wrapper);
    let kernel = setting.kernel(binary, &HOST, c"small");
    assert_eq!(call!(setting.runtime, cudaDeviceSynchronize()), 0);
    setting.calls();
    let code = launch(&setting, kernel, 1, 1, &mut []);
    let calls = setting.calls();
    call!(setting.runtime, __cudaUnregisterFatBinary(binary => *mut Pointer));
    (code, calls)
}

#[test]
fn code_that_was_linked_of_parts_is_linked_again_for_the_device() {
    let (code, calls) = launch_linked(["kernel small", "variable table 8"], c"machine code");
    let wanted = [
        "cuLinkCreate",
        "cuLinkAddData kind 2 bytes 28",
        "cuLinkAddData kind 2 bytes 32",
        "cuModuleLoadDataEx",
        "cuLinkDestroy",
    ];
    assert_eq!(code, 0);
    assert_eq!(&calls[..5], &wanted[..]);
}

#[test]
fn parts_that_do_not_fit_together_are_an_error_and_machine_code_alone_is_loaded() {
    let (code, calls) = launch_linked(["kernel small", "undefined"], c"STANDIN kernel small");
    assert_eq!(code, code::INVALID_PTX);
    assert!(!calls.iter().any(|call| call.starts_with("cuModuleLoad")), "{calls:?}");
    let (code, calls) = launch_linked(["kernel small", "machine code"], c"STANDIN kernel small ");
    assert_eq!(code, 0);
    assert!(calls.iter().any(|call| call.starts_with("cuModuleLoad")), "{calls:?}");
}

#[test]
fn machine_code_is_loaded_where_the_driver_does_not_know_the_linked_text() {
    let (code, calls) = launch_linked(["kernel small", "unknown"], c"STANDIN kernel small ");
    assert_eq!(code, 0);
    assert_eq!(calls.iter().filter(|call| *call == "cuModuleLoadDataEx").count(), 2, "{calls:?}");
    let (code, _) = launch_linked(["kernel small", "unknown"], c"machine code");
    assert_eq!(code, code::INVALID_PTX);
}

#[test]
fn what_is_no_device_code_is_said_and_its_kernels_do_not_run() {
    static HOST: u8 = 0;
    let setting = setting(13);
    let wrapper = FatbinWrapper { magic: 7, version: 1, data: null(), linked: null() };
    let binary = setting.register_wrapper(wrapper);
    let kernel = setting.kernel(binary, &HOST, c"small");
    assert_eq!(launch(&setting, kernel, 1, 1, &mut []), code::INVALID_KERNEL_IMAGE);
    call!(setting.runtime, __cudaUnregisterFatBinary(binary => *mut Pointer));
}
