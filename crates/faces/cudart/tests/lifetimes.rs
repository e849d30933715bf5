//! Errors, devices and registered binaries when contexts, threads and processes end.

#![allow(clippy::macro_metavars_in_unsafe, reason = "calls have values, not code")]

mod common;

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::mpsc;

use common::{Pointer, Setting, last, setting};
use penstock_cuda_sys::runtime::Dim3;
use penstock_cuda_sys::runtime_codes as code;
use penstock_trial::{patience, wait_for};

/// Calls a function of the stand-in driver that takes and returns a number.
fn standin(setting: &Setting, name: &str, value: c_int) -> c_int {
    type Function = unsafe extern "C" fn(c_int) -> c_int;
    // SAFETY: the function has this form, or takes or returns nothing, which is harmless.
    unsafe { std::mem::transmute::<*mut c_void, Function>(setting.driver.symbol(name))(value) }
}

fn launch(setting: &Setting, kernel: *const c_void) -> c_int {
    let one = Dim3 { x: 1, y: 1, z: 1 };
    call!(setting.runtime, cudaLaunchKernel(
        kernel => *const c_void, one => Dim3, one => Dim3, null_mut() => *mut Pointer, 0 => usize, null_mut() => Pointer,
    ))
}

fn choose(setting: &Setting, device: c_int) -> c_int {
    call!(setting.runtime, cudaSetDevice(device => c_int))
}

#[test]
fn an_error_stays_with_its_device() {
    static HOST: u8 = 0;
    let setting = setting(13);
    let binary = setting.register(c"STANDIN kernel trap");
    let trap = setting.kernel(binary, &HOST, c"trap");
    assert_eq!(choose(&setting, 1), 0);
    assert_eq!(launch(&setting, trap), 0);
    assert_eq!(call!(setting.runtime, cudaDeviceSynchronize()), code::LAUNCH_FAILURE);
    // First the thread's own last error, then the device's.
    assert_eq!((last(&setting), last(&setting)), (code::LAUNCH_FAILURE, code::LAUNCH_FAILURE));
    // The error does not affect the other device, whose reset does not clear it.
    assert_eq!(choose(&setting, 0), 0);
    assert_eq!(call!(setting.runtime, cudaDeviceSynchronize()), 0);
    assert_eq!(last(&setting), 0);
    assert_eq!(call!(setting.runtime, cudaDeviceReset()), 0);
    assert_eq!(choose(&setting, 1), 0);
    assert_eq!((last(&setting), last(&setting)), (code::LAUNCH_FAILURE, code::LAUNCH_FAILURE));
    assert_eq!(call!(setting.runtime, cudaDeviceReset()), 0);
    assert_eq!(last(&setting), 0);
    call!(setting.runtime, __cudaUnregisterFatBinary(binary => *mut Pointer));
}

#[test]
fn streams_are_on_their_own_device() {
    let setting = setting(13);
    let device_of = |stream: Pointer| {
        let mut device = -1;
        assert_eq!(
            call!(setting.runtime, cudaStreamGetDevice(stream => Pointer, &raw mut device => *mut c_int)),
            0
        );
        device
    };
    let mut streams = [null_mut::<c_void>(); 2];
    for (device, stream) in (0..).zip(&mut streams) {
        assert_eq!(choose(&setting, device), 0);
        assert_eq!(call!(setting.runtime, cudaStreamCreate(&raw mut *stream => *mut Pointer)), 0);
    }
    assert_eq!([device_of(streams[0]), device_of(streams[1]), device_of(null_mut())], [0, 1, 1]);
    // The thread's device has not changed.
    let mut device = -1;
    assert_eq!(call!(setting.runtime, cudaGetDevice(&raw mut device => *mut c_int)), 0);
    assert_eq!(device, 1);
    for stream in streams {
        assert_eq!(call!(setting.runtime, cudaStreamDestroy(stream => Pointer)), 0);
    }
}

#[test]
fn a_device_that_cannot_be_had_is_not_chosen() {
    let setting = setting(13);
    assert_eq!(choose(&setting, 0), 0);
    standin(&setting, "standin_refuse", 1);
    assert_eq!(choose(&setting, 1), code::MEMORY_ALLOCATION);
    let mut device = -1;
    assert_eq!(call!(setting.runtime, cudaGetDevice(&raw mut device => *mut c_int)), 0);
    standin(&setting, "standin_refuse", -1);
    assert_eq!(device, 0);
    last(&setting);
}

#[test]
fn a_process_ends_while_another_thread_loads_a_module() {
    static HOST: u8 = 0;
    let setting = setting(13);
    let binary = setting.register(c"STANDIN kernel empty");
    let kernel = setting.kernel(binary, &HOST, c"empty").addr();
    standin(&setting, "standin_hold", 1);
    let unregister = || {
        call!(setting.runtime, __cudaUnregisterFatBinary(binary => *mut Pointer));
    };
    // After this time, a child that hangs is ended, and a call that waits for the module goes on.
    let hangs = c_uint::try_from(patience().as_secs()).unwrap();
    std::thread::scope(|scope| {
        let loads = scope.spawn(|| launch(&setting, std::ptr::without_provenance(kernel)));
        wait_for("a load", || standin(&setting, "standin_loading", 0) != 0);
        // Both processes unregister the binary, as an exit handler does. The child is first: there,
        // the other thread does not exist, but the locks that it held are still locked.
        // SAFETY: the child calls only the function under test, and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the child ends in any case.
            unsafe {
                libc::alarm(hangs);
                unregister();
                libc::_exit(0);
            }
        }
        let mut status = -1;
        // SAFETY: the pointer is valid for the write of the status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        let (ended, has_ended) = mpsc::channel();
        let setting = &setting;
        let watch = scope.spawn(move || {
            let waited = has_ended.recv_timeout(patience()).is_err();
            standin(setting, "standin_hold", 0);
            waited
        });
        unregister();
        // The receiver has gone if it waited for too long.
        _ = ended.send(());
        loads.join().unwrap();
        assert_eq!(status, 0, "the child hung until a signal ended it");
        assert!(!watch.join().unwrap(), "the call waited for the module");
    });
}
