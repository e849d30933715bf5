//! Wrong calls are found at the call: the functions of wtr.h and wtr_ext.h as C sees them, on
//! OpenCL devices.

#[path = "common/wtr.rs"]
mod wtr;

use std::ffi::{CStr, c_char, c_uint, c_void};

use penstock_process::Lock;
use penstock_trial::{Need, skip};

use wtr::*;

static TOLD: Lock<Vec<(i32, String)>> = Lock::new(Vec::new());

extern "C" fn hear(error: *const CError, _: *mut c_void) {
    // SAFETY: the library gives an error with strings.
    let (code, message) = unsafe { ((*error).code, text((*error).message)) };
    TOLD.lock().push((code, message));
}

/// # Safety
/// `text` ends with a zero.
unsafe fn text(text: *const c_char) -> String {
    // SAFETY: the caller guarantees it.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Takes what the handler has heard.
fn told() -> Vec<(i32, String)> {
    std::mem::take(&mut *TOLD.lock())
}

/// Checks that the last call was refused, once, with a message that contains `says`.
#[track_caller]
fn refused(expected: i32, says: &str) {
    let told = told();
    let [(code, message)] = told.as_slice() else { panic!("not one error: {told:?}") };
    assert_eq!(*code, expected, "{message}");
    assert!(message.contains(says), "`{message}` does not say `{says}`");
    // SAFETY: no other call came after the one that failed.
    let last = unsafe { &*wtr_last_error() };
    assert_eq!(last.code, expected);
}

const INVALID: i32 = -20001;
const STATE: i32 = -20003;
const NULL: Handle = std::ptr::null_mut();
const NO: *mut Handle = std::ptr::null_mut();

/// Starts PoCL with two devices. Returns `None` if there are none.
fn two_devices() -> Option<(Handle, Handle)> {
    // SAFETY: the strings end with a zero.
    unsafe {
        wtr_set_error_handler(Some(hear), std::ptr::null_mut());
        wtr_init_devices_v(c"SELECT ALL".as_ptr());
    }
    let errors = told();
    if !errors.is_empty() {
        skip(Need::OpenCl, format_args!("no OpenCL device here: {errors:?}"));
        return None;
    }
    // SAFETY: the strings end with a zero.
    let devices = unsafe {
        (wtr_get_device_v(c"SELECT POS 1".as_ptr()), wtr_get_device_v(c"SELECT POS 2".as_ptr()))
    };
    assert!(!devices.0.is_null() && told().is_empty());
    Some(devices)
}

#[test]
fn what_a_program_does_wrong_is_found_at_the_call() {
    // PoCL is to have one device more than a machine has by itself, so that there is a buffer of
    // another device. It reads this variable when it is loaded, which is below; no other test of
    // this file loads it.
    // SAFETY: only threads of the runtime could read the environment at the same time, and they
    // have not loaded OpenCL yet.
    unsafe { std::env::set_var("POCL_DEVICES", "pthread pthread") };
    let Some((device, other)) = two_devices() else { return };
    wrong_objects(device);
    wrong_launches(device, other);
    wrong_events(device);
    wrong_helpers(device);
    wrong_slices(device);
    // SAFETY: all commands have ended.
    unsafe { wtr_release_devices() };
    assert_eq!(told(), []);
    // SAFETY: there is no run any more, which the call must notice.
    assert!(unsafe { wtr_create_buffer(device, 1, 8, NO) }.is_null());
    refused(STATE, "wtr_init_devices");
}

fn wrong_objects(device: Handle) {
    let mut bytes = [0_u8; 64];
    let place: *mut c_void = bytes.as_mut_ptr().cast();
    // SAFETY: the test passes wrong handles, and memory is as large as the sizes say.
    unsafe {
        assert!(wtr_create_buffer(NULL, 1, 8, NO).is_null());
        refused(INVALID, "device is NULL");
        assert!(wtr_create_buffer(device, 3, 8, NO).is_null());
        refused(INVALID, "flag is 3");
        assert!(wtr_create_buffer(device, 1, 0, NO).is_null());
        refused(INVALID, "0 bytes");
        let buffer = wtr_create_buffer(device, 1, 64, NO);
        assert!(!buffer.is_null() && wtr_last_error().is_null());
        assert!(wtr_create_buffer(buffer, 1, 8, NO).is_null());
        refused(INVALID, "no device");
        wtr_write_buffer(NULL, 64, place, NO, NO);
        refused(INVALID, "buffer is NULL");
        wtr_write_buffer(buffer, 64, std::ptr::null(), NO, NO);
        refused(INVALID, "source is NULL");
        wtr_read_buffer(buffer, 65, place, NO, NO);
        refused(INVALID, "do not lie within");
        wtr_read_buffer(device, 64, place, NO, NO);
        refused(INVALID, "no buffer");
        wtr_release_buffer(buffer, NO, NO);
        assert_eq!(told(), []);
        wtr_release_buffer(buffer, NO, NO);
        refused(INVALID, "released already");
        wtr_write_buffer(buffer, 64, place, NO, NO);
        refused(INVALID, "released already");
    }
}

const SOURCE: &CStr = c"__kernel void add(__global int *a, int b) { a[get_global_id(0)] += b; }";

fn wrong_launches(device: Handle, other: Handle) {
    let (eight, number) = ([8_usize], 1_i32);
    let number: *const c_void = (&raw const number).cast();
    let none: *const usize = std::ptr::null();
    // SAFETY: arrays are as long as the counts say. The test passes wrong handles.
    unsafe {
        let buffer = wtr_create_buffer(device, 1, 32, NO);
        assert!(
            wtr_create_kernel(device, std::ptr::null(), c"add".as_ptr(), std::ptr::null(), 1, NO)
                .is_null()
        );
        refused(INVALID, "name is NULL");
        assert!(
            wtr_create_kernel(
                device,
                c"/no/such/file.cl".as_ptr(),
                c"add".as_ptr(),
                std::ptr::null(),
                0,
                NO
            )
            .is_null()
        );
        refused(-20005, "/no/such/file.cl");
        let kernel =
            wtr_create_kernel(device, SOURCE.as_ptr(), c"add".as_ptr(), std::ptr::null(), 1, NO);
        assert_eq!(told(), []);
        let run =
            |kernel, dims, global: *const usize, sizes: &[usize], values: &[*const c_void]| {
                let count = c_uint::try_from(sizes.len()).unwrap();
                wtr_run_kernel_v(
                    kernel,
                    dims,
                    none,
                    global,
                    none,
                    NO,
                    NO,
                    count,
                    sizes.as_ptr(),
                    values.as_ptr(),
                );
            };
        run(NULL, 1, eight.as_ptr(), &[], &[]);
        refused(INVALID, "kernel is NULL");
        run(kernel, 4, eight.as_ptr(), &[0, 4], &[buffer, number]);
        refused(INVALID, "work_dim is 4");
        run(kernel, 1, none, &[0, 4], &[buffer, number]);
        refused(INVALID, "global work size is NULL");
        run(kernel, 1, eight.as_ptr(), &[0, 4], &[std::ptr::null(), number]);
        refused(INVALID, "argument 0");
        run(kernel, 1, eight.as_ptr(), &[0], &[buffer]);
        refused(-30, "takes 2 arguments, 1 were given");
        run(kernel, 1, eight.as_ptr(), &[0, 4, 4], &[buffer, number, number]);
        refused(-30, "takes 2 arguments, 3 were given");
        if other.is_null() {
            skip(Need::Ability, "a buffer of another device: there is only one device");
        } else {
            let foreign = wtr_create_buffer(other, 1, 32, NO);
            run(kernel, 1, eight.as_ptr(), &[0, 4], &[foreign, number]);
            refused(INVALID, "another device");
            wtr_release_buffer(foreign, NO, NO);
        }
        // After all these errors the run still works.
        let (ones, mut back) = ([1_i32; 8], [0_i32; 8]);
        wtr_write_buffer(buffer, 32, ones.as_ptr().cast(), NO, NO);
        run(kernel, 1, eight.as_ptr(), &[0, 4], &[buffer, number]);
        wtr_read_buffer(buffer, 32, back.as_mut_ptr().cast(), NO, NO);
        assert_eq!((told(), back), (Vec::new(), [2; 8]));
        wtr_release_kernel(kernel, NO, NO);
        wtr_release_kernel(kernel, NO, NO);
        refused(INVALID, "released already");
        wtr_release_buffer(buffer, NO, NO);
    }
}

fn wrong_events(device: Handle) {
    // SAFETY: the test passes wrong handles, and slots live as long as the calls.
    unsafe {
        let mut unbound = wtr_create_event();
        wtr_wait_for_events_v(1, [&raw mut unbound].as_ptr());
        refused(INVALID, "not given to any command");
        let buffer = wtr_create_buffer(device, 1, 8, NO);
        wtr_release_buffer(buffer, &raw mut unbound, NO);
        refused(INVALID, "not given to any command");
        wtr_release_event(unbound);
        wtr_release_event(unbound);
        refused(INVALID, "released already");
        // A failed build is reported with the event, and fails the commands that wait for it.
        let mut built = NULL;
        let mut ran = NULL;
        let kernel = wtr_create_kernel(
            device,
            c"nonsense".as_ptr(),
            c"add".as_ptr(),
            std::ptr::null(),
            1,
            &raw mut built,
        );
        let one = [1_usize];
        let none: *const usize = std::ptr::null();
        wtr_run_kernel_v(
            kernel,
            1,
            none,
            one.as_ptr(),
            none,
            &raw mut built,
            &raw mut ran,
            0,
            none,
            std::ptr::null(),
        );
        wtr_wait_for_events_v(1, [&raw mut ran].as_ptr());
        let heard = told();
        assert!(
            matches!(heard.as_slice(), [(-11, message)] if message.contains("create_kernel")),
            "one root cause: {heard:?}"
        );
        assert_eq!((wtr_event_status(built), wtr_event_status(ran)), (-11, -11));
        let error = &*wtr_event_error(ran);
        assert!(
            !text(error.log).is_empty()
                && !text(error.device).is_empty()
                && !text(error.node).is_empty()
        );
        wtr_release_kernel(kernel, NO, NO);
        assert_eq!(told(), []);
        wtr_release_event(built);
        wtr_release_event(ran);
    }
}

fn wrong_helpers(device: Handle) {
    let (mut parts, mut weights) = ([0_usize; 3], [0.0; 1]);
    // SAFETY: arrays are as long as the counts say.
    unsafe {
        assert_eq!(wtr_partition(10, 0, 3, std::ptr::null(), parts.as_mut_ptr()), INVALID);
        refused(INVALID, "granularity is 0");
        assert_eq!(wtr_partition(10, 1, 3, [1.0, -2.0, 1.0].as_ptr(), parts.as_mut_ptr()), INVALID);
        refused(INVALID, "weight 1");
        assert_eq!(wtr_partition(10, 1, 0, std::ptr::null(), parts.as_mut_ptr()), INVALID);
        refused(INVALID, "no devices");
        assert_eq!(wtr_partition(10, 1, 3, std::ptr::null(), std::ptr::null_mut()), INVALID);
        refused(INVALID, "NULL");
        assert_eq!(wtr_partition(10, 1, 3, std::ptr::null(), parts.as_mut_ptr()), 0);
        assert_eq!((parts, told()), ([4, 3, 3], Vec::new()));
        assert_eq!(wtr_partition_weights(1, [NULL].as_ptr(), weights.as_mut_ptr()), INVALID);
        refused(INVALID, "device is NULL");
        assert_eq!(wtr_partition_weights(1, [device].as_ptr(), weights.as_mut_ptr()), 0);
        assert!(weights[0] > 0.0);
        assert_eq!(wtr_dump_graph(c"/tmp/never-written.dot".as_ptr()), STATE);
        refused(STATE, "WTR_RECORD");
    }
}

/// State that all slices use.
struct Work {
    kernel: Handle,
    buffer: Handle,
    /// First units of the slices that were handed out.
    firsts: Vec<usize>,
    units: usize,
    /// The launch is wrong from this unit on.
    wrong_from: usize,
    blocks: bool,
}

unsafe extern "C" fn slice(
    _: c_uint,
    first: usize,
    units: usize,
    evt: *mut Handle,
    user: *mut c_void,
) {
    // SAFETY: `wrong_slices` passes its own work.
    let work = unsafe { &mut *user.cast::<Work>() };
    work.firsts.push(first);
    work.units += units;
    let number = 1_i32;
    let (sizes, values) = ([0_usize, 4], [work.buffer.cast_const(), (&raw const number).cast()]);
    let count = if first >= work.wrong_from { 1 } else { 2 };
    let none: *const usize = std::ptr::null();
    let evt = if work.blocks { NO } else { evt };
    // SAFETY: arrays are as long as the counts say.
    unsafe {
        let (global, offset) = ([units], [first]);
        let sizes = sizes.as_ptr();
        wtr_run_kernel_v(
            work.kernel,
            1,
            offset.as_ptr(),
            global.as_ptr(),
            none,
            NO,
            evt,
            count,
            sizes,
            values.as_ptr(),
        );
    }
}

fn wrong_slices(device: Handle) {
    const UNITS: usize = 1000;
    // SAFETY: arrays are as long as the counts say, and the work lives as long as the calls.
    unsafe {
        let kernel =
            wtr_create_kernel(device, SOURCE.as_ptr(), c"add".as_ptr(), std::ptr::null(), 1, NO);
        let buffer = wtr_create_buffer(device, 1, UNITS * 4, NO);
        assert_eq!(wtr_self_schedule(1, UNITS, 10, None, std::ptr::null_mut()), INVALID);
        refused(INVALID, "body is NULL");
        assert_eq!(wtr_self_schedule(1, UNITS, 0, Some(slice), std::ptr::null_mut()), INVALID);
        refused(INVALID, "smallest slice is 0");
        for blocks in [false, true] {
            let zeros = [0_i32; UNITS];
            wtr_write_buffer(buffer, UNITS * 4, zeros.as_ptr().cast(), NO, NO);
            let mut work =
                Work { kernel, buffer, firsts: Vec::new(), units: 0, wrong_from: UNITS, blocks };
            assert_eq!(wtr_self_schedule(2, UNITS, 10, Some(slice), (&raw mut work).cast()), 0);
            let mut back = [0_i32; UNITS];
            wtr_read_buffer(buffer, UNITS * 4, back.as_mut_ptr().cast(), NO, NO);
            assert!(
                back == [1; UNITS] && work.units == UNITS && work.firsts.len() > 4,
                "every unit once: {:?}",
                work.firsts
            );
            assert_eq!(told(), []);
        }
        // A failed slice ends the call with the slice's code, once nothing is under way any more.
        let mut work = Work {
            kernel,
            buffer,
            firsts: Vec::new(),
            units: 0,
            wrong_from: UNITS / 2,
            blocks: false,
        };
        assert_eq!(wtr_self_schedule(2, UNITS, 10, Some(slice), (&raw mut work).cast()), -30);
        assert!(work.units < UNITS, "nothing is handed out after that");
        let heard = told();
        assert!(!heard.is_empty() && heard.iter().all(|(code, _)| *code == -30), "{heard:?}");
        wtr_release_kernel(kernel, NO, NO);
        wtr_release_buffer(buffer, NO, NO);
        assert_eq!(told(), []);
    }
}
