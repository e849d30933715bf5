//! CUDA's driver interface, from the `libcuda.so.1` that is found at run time. All unsafe code of
//! `cuda` is here.
//!
//! Each handle that reaches these functions is alive, and memory is large enough, because the
//! runner refuses every program that the ledger rejects. The safety comments below rely on that.
#![allow(unsafe_code)]

mod commands;
mod functions;
mod modules;

use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use penstock_cuda_sys::driver::{
    CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUDA_ERROR_UNKNOWN, CUDA_SUCCESS, CUdeviceptr,
    CUresult, CUstream,
};
use penstock_process::{Lock, SharedLock};
use thiserror::Error;

use super::backend::{At, Backend, Caller, Command, Handle, Memory, Stream};
use super::plan::{Context, Device, Kernel, Platform};
use crate::cl::memory::Areas;
use functions::Functions;
pub use modules::{Failed, Work};

/// The PTX module with the kernels.
pub const KERNELS: &str = include_str!("kernels.ptx");

/// Code that also stands for failures of this program.
const UNKNOWN: i32 = CUDA_ERROR_UNKNOWN.0.cast_signed();
/// The value of `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;
/// The value of `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: c_uint = 2;
/// The value of `CU_MEMHOSTALLOC_PORTABLE` and `CU_MEMHOSTREGISTER_PORTABLE`: the memory is pinned
/// for all contexts.
const PORTABLE: c_uint = 1;
/// The value of `CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED`.
const MEMORY_POOLS: c_uint = 115;

/// Why there is no device to run on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    #[error("libcuda.so.1 cannot be loaded: {0}")]
    Library(#[from] libloading::Error),
    #[error("libcuda.so.1 has no function {0}")]
    Function(&'static str),
    /// A call of the driver failed.
    #[error("{call} returned {code}")]
    Driver { call: &'static str, code: i32 },
    #[error("CUDA's driver has no device")]
    Devices,
}

#[derive(Clone, Copy)]
struct Opened {
    context: Handle,
    kernels: [Handle; Kernel::ALL.len()],
}

pub struct Driver {
    functions: Functions,
    platform: Platform,
    devices: Vec<c_int>,
    contexts: Lock<HashMap<Context, Opened>>,
    areas: Arc<SharedLock<Areas>>,
    /// By graph: the data pointers of its host functions.
    graphs: Lock<HashMap<usize, Vec<usize>>>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("devices", &self.devices.len()).finish_non_exhaustive()
    }
}

/// Calls a function of CUDA and returns its code.
macro_rules! call {
    ($self:expr, $name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: handles are alive, and addresses lead to memory of the stated size (see the head
        // of this module).
        unsafe { ($self.functions.$name)($($argument),*) }
    };
}
use call;

fn code(code: CUresult) -> Result<(), i32> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(code.0.cast_signed()) }
}

/// Returns the pointer that CUDA gave as a handle.
fn raw<T>(handle: Handle) -> *mut T {
    std::ptr::with_exposed_provenance_mut(handle.0)
}

impl Driver {
    /// Loads the library and examines the devices.
    ///
    /// # Errors
    ///
    /// There is no driver, or no device.
    pub fn open() -> Result<Self, OpenError> {
        // SAFETY: loading runs the library's constructors, which is the purpose of this program.
        let library = unsafe { libloading::Library::new("libcuda.so.1") }?;
        let functions = Functions::of(&library)?;
        // Threads of the driver keep running, so its code must stay loaded for the life of the
        // process.
        std::mem::forget(library);
        let platform =
            Platform { name: "CUDA".to_owned(), version: String::new(), devices: Vec::new() };
        let mut driver = Self {
            functions,
            platform,
            devices: Vec::new(),
            contexts: Lock::default(),
            areas: Arc::default(),
            graphs: Lock::default(),
        };
        driver.look()?;
        Ok(driver)
    }

    fn look(&mut self) -> Result<(), OpenError> {
        let failed = |call: &'static str| move |code: i32| OpenError::Driver { call, code };
        let (mut version, mut count) = (0, 0);
        code(call!(self, cuInit(0))).map_err(failed("cuInit"))?;
        code(call!(self, cuDriverGetVersion(&raw mut version)))
            .map_err(failed("cuDriverGetVersion"))?;
        self.platform.version =
            format!("driver interface {}.{}", version / 1000, version % 1000 / 10);
        code(call!(self, cuDeviceGetCount(&raw mut count))).map_err(failed("cuDeviceGetCount"))?;
        for index in 0..count {
            let (mut device, mut pools, mut name) = (0, 0, [0_u8; 256]);
            code(call!(self, cuDeviceGet(&raw mut device, index)))
                .map_err(failed("cuDeviceGet"))?;
            let text = name.as_mut_ptr().cast();
            code(call!(self, cuDeviceGetName(text, 255, device)))
                .map_err(failed("cuDeviceGetName"))?;
            code(call!(self, cuDeviceGetAttribute(&raw mut pools, MEMORY_POOLS, device)))
                .map_err(failed("cuDeviceGetAttribute"))?;
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            let name = String::from_utf8_lossy(&name[..end]).into_owned();
            self.platform.devices.push(Device { name, pools: pools != 0 });
            self.devices.push(device);
        }
        if self.devices.is_empty() { Err(OpenError::Devices) } else { Ok(()) }
    }

    pub fn describe(&self) -> Platform {
        self.platform.clone()
    }

    fn enter(&self, by: Caller) -> Result<(), i32> {
        code(call!(self, cuCtxSetCurrent(raw(by.context))))
    }

    /// Creates an object in the current context.
    fn make<T>(
        &self,
        by: Caller,
        make: impl FnOnce(&mut *mut T) -> CUresult,
    ) -> Result<Handle, i32> {
        self.enter(by)?;
        let mut new = null_mut();
        code(make(&mut new))?;
        Ok(Handle(new.expose_provenance()))
    }

    /// Allocates device memory.
    fn make_memory(
        &self,
        by: Caller,
        make: impl FnOnce(&mut CUdeviceptr) -> CUresult,
    ) -> Result<Handle, i32> {
        self.enter(by)?;
        let mut new = 0;
        code(make(&mut new))?;
        usize::try_from(new).map(Handle).map_err(|_| UNKNOWN)
    }

    /// Calls `act` with the caller's context current.
    fn act(&self, by: Caller, act: impl FnOnce() -> CUresult) -> i32 {
        self.enter(by).and_then(|()| code(act())).err().unwrap_or(0)
    }

    fn address(&self, at: At, len: usize) -> Result<*mut c_void, i32> {
        let areas = self.areas.read();
        areas.address(at, len).map(std::ptr::with_exposed_provenance_mut).ok_or(UNKNOWN)
    }

    fn area(&self, area: Handle) -> Result<(usize, usize), i32> {
        let areas = self.areas.read();
        areas.whole(area).ok_or(UNKNOWN)
    }
}

/// Returns the handle of a stream. The default streams have reserved numbers as handles.
fn stream(stream: Stream) -> CUstream {
    raw(match stream {
        Stream::Legacy => Handle(CU_STREAM_LEGACY),
        Stream::PerThread => Handle(CU_STREAM_PER_THREAD),
        Stream::Made(made) => made,
    })
}

impl Memory for SharedLock<Areas> {
    fn load(&self, at: At, len: usize) -> Vec<u8> {
        self.read().load(at, len)
    }

    fn store(&self, at: At, bytes: &[u8]) {
        self.read().store(at, bytes);
    }
}

impl Backend for Driver {
    fn context(&self, context: Context) -> Result<Handle, i32> {
        let mut contexts = self.contexts.lock();
        if let Some(known) = contexts.get(&context) {
            return Ok(known.context);
        }
        let device = *self.devices.get(context.device).ok_or(UNKNOWN)?;
        let (mut made, mut module, text) = (null_mut(), null_mut(), format!("{KERNELS}\0"));
        code(if context.primary {
            call!(self, cuDevicePrimaryCtxRetain(&raw mut made, device))
        } else {
            call!(self, cuCtxCreate_v2(&raw mut made, 0, device))
        })?;
        code(call!(self, cuCtxSetCurrent(made)))?;
        let context_handle = Handle(made.expose_provenance());
        let mut opened =
            Opened { context: context_handle, kernels: [Handle(0); Kernel::ALL.len()] };
        code(call!(self, cuModuleLoadData(&raw mut module, text.as_ptr().cast())))?;
        for (place, kernel) in opened.kernels.iter_mut().zip(Kernel::ALL) {
            let (mut function, name) = (null_mut(), format!("{}\0", kernel.name()));
            let text = name.as_ptr().cast();
            code(call!(self, cuModuleGetFunction(&raw mut function, module, text)))?;
            *place = Handle(function.expose_provenance());
        }
        contexts.insert(context, opened);
        Ok(context_handle)
    }

    fn new_area(&self, context: Handle, len: usize, pinned: bool) -> Result<Handle, i32> {
        if !pinned {
            return Ok(self.areas.write().array(len));
        }
        let new = self.make(Caller { context, thread: 0 }, |new| {
            call!(self, cuMemHostAlloc(&raw mut *new, len, PORTABLE))
        })?;
        let mut areas = self.areas.write();
        let area = areas.mapping(new.0, len);
        areas.store(At { area, offset: 0 }, &vec![0; len]);
        Ok(area)
    }

    fn drop_area(&self, context: Handle, area: Handle) -> i32 {
        let Some((start, own)) = self.areas.write().take(area) else {
            return UNKNOWN;
        };
        if own {
            return 0;
        }
        self.act(Caller { context, thread: 0 }, || call!(self, cuMemFreeHost(raw(Handle(start)))))
    }

    fn register(&self, by: Caller, area: Handle) -> i32 {
        match self.area(area) {
            Ok((start, len)) => self
                .act(by, || call!(self, cuMemHostRegister_v2(raw(Handle(start)), len, PORTABLE))),
            Err(code) => code,
        }
    }

    fn unregister(&self, by: Caller, area: Handle) -> i32 {
        match self.area(area) {
            Ok((start, _)) => self.act(by, || call!(self, cuMemHostUnregister(raw(Handle(start))))),
            Err(code) => code,
        }
    }

    fn memory(&self) -> Arc<dyn Memory> {
        Arc::clone(&self.areas) as Arc<dyn Memory>
    }

    fn new_stream(&self, by: Caller, blocking: bool) -> Result<Handle, i32> {
        let flags = if blocking { 0 } else { NON_BLOCKING };
        self.make(by, |new| call!(self, cuStreamCreate(&raw mut *new, flags)))
    }

    fn drop_stream(&self, by: Caller, stream: Handle) -> i32 {
        self.act(by, || call!(self, cuStreamDestroy_v2(raw(stream))))
    }

    fn new_event(&self, by: Caller, timing: bool) -> Result<Handle, i32> {
        let flags = if timing { 0 } else { NO_TIMING };
        self.make(by, |new| call!(self, cuEventCreate(&raw mut *new, flags)))
    }

    fn drop_event(&self, by: Caller, event: Handle) -> i32 {
        self.act(by, || call!(self, cuEventDestroy_v2(raw(event))))
    }

    fn alloc(&self, by: Caller, size: usize) -> Result<Handle, i32> {
        self.make_memory(by, |new| call!(self, cuMemAlloc_v2(&raw mut *new, size)))
    }

    fn free(&self, by: Caller, mem: Handle) -> i32 {
        self.act(by, || call!(self, cuMemFree_v2(mem.0 as u64)))
    }

    fn alloc_async(&self, by: Caller, on: Stream, size: usize) -> Result<Handle, i32> {
        self.make_memory(by, |new| call!(self, cuMemAllocAsync(&raw mut *new, size, stream(on))))
    }

    fn free_async(&self, by: Caller, on: Stream, mem: Handle) -> i32 {
        self.act(by, || call!(self, cuMemFreeAsync(mem.0 as u64, stream(on))))
    }

    fn record(&self, by: Caller, event: Handle, on: Stream) -> i32 {
        self.act(by, || call!(self, cuEventRecord(raw(event), stream(on))))
    }

    fn stream_wait(&self, by: Caller, on: Stream, event: Handle) -> i32 {
        self.act(by, || call!(self, cuStreamWaitEvent(stream(on), raw(event), 0)))
    }

    fn event_sync(&self, by: Caller, event: Handle) -> i32 {
        self.act(by, || call!(self, cuEventSynchronize(raw(event))))
    }

    fn event_query(&self, by: Caller, event: Handle) -> i32 {
        self.act(by, || call!(self, cuEventQuery(raw(event))))
    }

    fn stream_sync(&self, by: Caller, on: Stream) -> i32 {
        self.act(by, || call!(self, cuStreamSynchronize(stream(on))))
    }

    fn stream_query(&self, by: Caller, on: Stream) -> i32 {
        self.act(by, || call!(self, cuStreamQuery(stream(on))))
    }

    fn context_sync(&self, by: Caller) -> i32 {
        self.act(by, || call!(self, cuCtxSynchronize()))
    }

    fn enqueue(&self, by: Caller, on: Option<Stream>, command: &Command) -> i32 {
        let done = self.enter(by).and_then(|()| self.command(by, on.map(stream), command, None));
        done.err().unwrap_or(0)
    }

    fn new_graph(&self, by: Caller, parts: &[(bool, Command)]) -> Result<Handle, i32> {
        self.enter(by)?;
        let mut functions = Vec::new();
        let graph = self.capture(by, parts, &mut functions)?;
        self.graphs.lock().insert(graph, functions);
        Ok(Handle(graph))
    }

    fn drop_graph(&self, by: Caller, graph: Handle) -> i32 {
        let code = self.act(by, || call!(self, cuGraphExecDestroy(raw(graph))));
        let functions = self.graphs.lock().remove(&graph.0);
        for data in functions.unwrap_or_default() {
            // SAFETY: `keep` made the pointer, and no work of the graph runs any more.
            drop(unsafe { Box::from_raw(data as *mut super::backend::Function) });
        }
        code
    }

    fn launch(&self, by: Caller, graph: Handle, on: Stream) -> i32 {
        self.act(by, || call!(self, cuGraphLaunch(raw(graph), stream(on))))
    }
}

/// Runs a host function that is called once.
unsafe extern "C" fn run_once(data: *mut c_void) {
    // SAFETY: `command` made the pointer for this one call.
    let function = unsafe { Box::from_raw(data.cast::<super::backend::Function>()) };
    function();
}

/// Runs a host function that a graph calls.
unsafe extern "C" fn run_again(data: *mut c_void) {
    // SAFETY: `command` made the pointer, and the function lives as long as the graph.
    let function = unsafe { &*data.cast::<super::backend::Function>() };
    function();
}
