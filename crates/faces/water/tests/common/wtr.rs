//! The functions of wtr.h and wtr_ext.h as C sees them.
#![allow(dead_code, reason = "each test uses a part")]

use std::ffi::{c_char, c_int, c_uint, c_void};

// The library is needed for its C functions.
use water as _;

/// The C type `wtr_error`.
#[repr(C)]
pub struct CError {
    pub code: c_int,
    pub message: *const c_char,
    pub node: *const c_char,
    pub device: *const c_char,
    pub log: *const c_char,
}

pub type Handle = *mut c_void;
pub type Handler = extern "C" fn(*const CError, *mut c_void);
pub type Probe = unsafe extern "C" fn(c_uint, usize, *mut c_void);
pub type Body = unsafe extern "C" fn(c_uint, usize, usize, *mut Handle, *mut c_void);

unsafe extern "C" {
    pub fn wtr_init_devices_v(dql: *const c_char);
    pub fn wtr_get_device_v(dql: *const c_char) -> Handle;
    pub fn wtr_release_devices();
    pub fn wtr_create_buffer(device: Handle, flag: c_uint, size: usize, evt: *mut Handle)
    -> Handle;
    pub fn wtr_release_buffer(buffer: Handle, wait: *mut Handle, evt: *mut Handle);
    pub fn wtr_write_buffer(
        buffer: Handle,
        size: usize,
        source: *const c_void,
        wait: *mut Handle,
        evt: *mut Handle,
    );
    pub fn wtr_read_buffer(
        buffer: Handle,
        size: usize,
        target: *mut c_void,
        wait: *mut Handle,
        evt: *mut Handle,
    );
    pub fn wtr_create_kernel(
        device: Handle,
        name: *const c_char,
        kernel: *const c_char,
        options: *const c_char,
        flag: c_uint,
        evt: *mut Handle,
    ) -> Handle;
    pub fn wtr_release_kernel(kernel: Handle, wait: *mut Handle, evt: *mut Handle);
    pub fn wtr_run_kernel_v(
        kernel: Handle,
        dims: c_uint,
        offset: *const usize,
        global: *const usize,
        local: *const usize,
        wait: *mut Handle,
        evt: *mut Handle,
        count: c_uint,
        sizes: *const usize,
        values: *const *const c_void,
    );
    pub fn wtr_create_event() -> Handle;
    pub fn wtr_release_event(event: Handle);
    pub fn wtr_event_status(event: Handle) -> c_int;
    pub fn wtr_event_error(event: Handle) -> *const CError;
    pub fn wtr_merge_events_v(count: c_uint, events: *const *mut Handle) -> Handle;
    pub fn wtr_wait_for_events_v(count: c_uint, events: *const *mut Handle);
    pub fn wtr_last_error() -> *const CError;
    pub fn wtr_set_error_handler(handler: Option<Handler>, user: *mut c_void);
    pub fn wtr_dump_graph(path: *const c_char) -> c_int;
    pub fn wtr_partition(
        total: usize,
        granularity: usize,
        count: c_uint,
        weights: *const f64,
        parts: *mut usize,
    ) -> c_int;
    pub fn wtr_partition_measure(
        count: c_uint,
        units: usize,
        probe: Option<Probe>,
        user: *mut c_void,
        weights: *mut f64,
    ) -> c_int;
    pub fn wtr_self_schedule(
        count: c_uint,
        total: usize,
        minimum: usize,
        body: Option<Body>,
        user: *mut c_void,
    ) -> c_int;
    pub fn wtr_partition_weights(count: c_uint, devices: *const Handle, weights: *mut f64)
    -> c_int;
}
