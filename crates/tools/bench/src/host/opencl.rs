//! The first device of the local OpenCL platform, used as a C program would use it: the baseline
//! must not pay for layers of Penstock.

use std::ffi::{CString, c_char, c_void};
use std::ptr::{NonNull, null, null_mut};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use penstock_cl_sys::{
    CL_DEVICE_NAME, CL_DEVICE_TYPE_ALL, CL_FALSE, CL_MAP_READ, CL_MAP_WRITE_INVALIDATE_REGION,
    CL_MEM_READ_WRITE, CL_SUCCESS, CL_TRUE, SLOTS, cl_bool, cl_command_queue, cl_context,
    cl_device_id, cl_event, cl_icd_dispatch, cl_int, cl_kernel, cl_mem, slot,
};
use penstock_process::variable;

use super::memory::Span;
use crate::error::{Error, Result};

/// The ICD loader, and the variable that names another one, also for the daemon's workers.
const LOADER: &str = "libOpenCL.so.1";

/// Longest device name that is shown.
const NAME_BYTES: usize = 256;
/// Largest number of platforms that are searched for a device.
const PLATFORMS_MAX: usize = 16;

macro_rules! functions {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), slot!($name))),*] };
}

const NEEDED: &[(&str, usize)] = functions![
    clGetPlatformIDs,
    clGetDeviceIDs,
    clGetDeviceInfo,
    clCreateContext,
    clCreateCommandQueue,
    clCreateBuffer,
    clCreateProgramWithSource,
    clBuildProgram,
    clCreateKernel,
    clEnqueueReadBuffer,
    clEnqueueWriteBuffer,
    clEnqueueMapBuffer,
    clEnqueueUnmapMemObject,
    clEnqueueNDRangeKernel,
    clWaitForEvents,
    clReleaseEvent,
    clFlush,
    clFinish,
];

/// A device with one queue. Nothing is released, because the process ends after its measurement.
pub struct OpenCl {
    api: cl_icd_dispatch,
    device: cl_device_id,
    context: cl_context,
    queue: cl_command_queue,
    dummy: cl_kernel,
}

/// A buffer of the device.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    mem: cl_mem,
    bytes: usize,
}

/// A command that has not been waited for.
#[must_use]
#[derive(Debug)]
pub struct Pending(cl_event);

impl std::fmt::Debug for OpenCl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenCl").field("device", &self.device).finish_non_exhaustive()
    }
}

macro_rules! call {
    ($local:expr, $name:ident ( $($arg:expr),* $(,)? )) => {{
        let function = $local.api.$name.ok_or(Error::OpenCl { function: stringify!($name), code: 0 })?;
        // SAFETY: handles belong to this driver and are never released. Pointers lead to memory
        // that lives for the call or for the command, as the parameters of each function here
        // ensure.
        unsafe { function($($arg),*) }
    }};
}

macro_rules! done {
    ($local:expr, $name:ident ( $($arg:expr),* $(,)? )) => {{
        let code = call!($local, $name($($arg),*));
        check(stringify!($name), code)
    }};
}

fn check(function: &'static str, code: cl_int) -> Result<()> {
    if code == CL_SUCCESS { Ok(()) } else { Err(Error::OpenCl { function, code }) }
}

impl OpenCl {
    /// Opens the first device of the first platform that has one.
    ///
    /// # Errors
    /// Returns [`Error::Absent`] without a device, otherwise [`Error::OpenCl`].
    pub fn open() -> Result<Self> {
        let mut local = Self {
            api: load()?,
            device: null_mut(),
            context: null_mut(),
            queue: null_mut(),
            dummy: null_mut(),
        };
        local.device = local.find()?;
        let mut code = 0;
        local.context = call!(
            local,
            clCreateContext(null(), 1, &raw const local.device, None, null_mut(), &raw mut code)
        );
        check("clCreateContext", code)?;
        local.queue =
            call!(local, clCreateCommandQueue(local.context, local.device, 0, &raw mut code));
        check("clCreateCommandQueue", code)?;
        local.dummy = local.build()?;
        Ok(local)
    }

    fn find(&self) -> Result<cl_device_id> {
        let mut platforms = [null_mut(); PLATFORMS_MAX];
        let mut count = 0;
        // If the call fails, `count` stays 0.
        let room = u32::try_from(PLATFORMS_MAX).unwrap_or(1);
        let _ = call!(self, clGetPlatformIDs(room, platforms.as_mut_ptr(), &raw mut count));
        for &platform in platforms.iter().take(count as usize) {
            let (mut device, mut devices) = (null_mut(), 0);
            let code = call!(
                self,
                clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &raw mut device, &raw mut devices)
            );
            if code == CL_SUCCESS && devices > 0 {
                return Ok(device);
            }
        }
        Err(Error::Absent(
            "the OpenCL loader finds no device; is a driver installed (clinfo -l)?".to_owned(),
        ))
    }

    fn build(&self) -> Result<cl_kernel> {
        let source = c"kernel void dummy(void) {}";
        let (mut text, mut code) = (source.as_ptr(), 0);
        let program = call!(
            self,
            clCreateProgramWithSource(self.context, 1, &raw mut text, null(), &raw mut code)
        );
        check("clCreateProgramWithSource", code)?;
        done!(
            self,
            clBuildProgram(program, 1, &raw const self.device, c"".as_ptr(), None, null_mut())
        )?;
        let kernel = call!(self, clCreateKernel(program, c"dummy".as_ptr(), &raw mut code));
        check("clCreateKernel", code)?;
        Ok(kernel)
    }

    /// Returns the device's name.
    ///
    /// # Errors
    /// Returns [`Error::OpenCl`] if the call fails.
    pub fn name(&self) -> Result<String> {
        let mut text = [0_u8; NAME_BYTES];
        let mut size = 0;
        done!(
            self,
            clGetDeviceInfo(
                self.device,
                CL_DEVICE_NAME,
                NAME_BYTES,
                text.as_mut_ptr().cast(),
                &raw mut size
            )
        )?;
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// Creates a buffer.
    ///
    /// # Errors
    /// Returns [`Error::OpenCl`] if the call fails.
    pub fn buffer(&self, bytes: usize) -> Result<Buffer> {
        let mut code = 0;
        let mem = call!(
            self,
            clCreateBuffer(self.context, CL_MEM_READ_WRITE, bytes, null_mut(), &raw mut code)
        );
        check("clCreateBuffer", code)?;
        Ok(Buffer { mem, bytes })
    }

    /// Copies from the device and waits.
    ///
    /// # Errors
    /// Returns [`Error::OpenCl`] if the call fails.
    pub fn read(&self, from: Buffer, offset: usize, to: Span) -> Result<()> {
        self.enqueue_read(from, offset, to, true, null_mut())
    }

    fn enqueue_read(
        &self,
        from: Buffer,
        offset: usize,
        to: Span,
        waits: bool,
        event: *mut cl_event,
    ) -> Result<()> {
        from.check(offset, to.len());
        let (start, bytes) = (to.start().cast(), to.len());
        let (queue, mem) = (self.queue, from.mem);
        done!(
            self,
            clEnqueueReadBuffer(queue, mem, yes(waits), offset, bytes, start, 0, null(), event)
        )
    }

    /// Copies to the device and waits.
    ///
    /// # Errors
    /// Returns [`Error::OpenCl`] if the call fails.
    pub fn write(&self, to: Buffer, offset: usize, from: Span) -> Result<()> {
        self.enqueue_write(to, offset, from, true, null_mut())
    }

    fn enqueue_write(
        &self,
        to: Buffer,
        offset: usize,
        from: Span,
        waits: bool,
        event: *mut cl_event,
    ) -> Result<()> {
        to.check(offset, from.len());
        let (start, bytes) = (from.start().cast_const().cast(), from.len());
        let (queue, mem) = (self.queue, to.mem);
        done!(
            self,
            clEnqueueWriteBuffer(queue, mem, yes(waits), offset, bytes, start, 0, null(), event)
        )
    }

    /// Starts a copy from the device. `to` must not be used until the copy has ended.
    ///
    /// # Errors
    /// Returns [`Error::OpenCl`] if the call fails.
    pub fn start_read(&self, from: Buffer, offset: usize, to: Span) -> Result<Pending> {
        let mut event = null_mut();
        self.enqueue_read(from, offset, to, false, &raw mut event)?;
        Ok(Pending(event))
    }

    /// Starts a copy to the device. `from` must not change until the copy has ended.
    ///
    /// # Errors
    /// Returns [`Error::OpenCl`] if the call fails.
    pub fn start_write(&self, to: Buffer, offset: usize, from: Span) -> Result<Pending> {
        let mut event = null_mut();
        self.enqueue_write(to, offset, from, false, &raw mut event)?;
        Ok(Pending(event))
    }

    /// Starts to map a part of a buffer. The bytes are valid from the command's end until
    /// [`OpenCl::unmap`].
    ///
    /// # Errors
    /// Returns [`Error::OpenCl`] if the call fails.
    pub fn start_map(
        &self,
        buffer: Buffer,
        offset: usize,
        bytes: usize,
        writes: bool,
    ) -> Result<(Span, Pending)> {
        buffer.check(offset, bytes);
        let (mut event, mut code) = (null_mut(), 0);
        let flags = if writes { CL_MAP_WRITE_INVALIDATE_REGION } else { CL_MAP_READ };
        let start = call!(
            self,
            clEnqueueMapBuffer(
                self.queue,
                buffer.mem,
                yes(false),
                flags,
                offset,
                bytes,
                0,
                null(),
                &raw mut event,
                &raw mut code
            )
        );
        check("clEnqueueMapBuffer", code)?;
        let start = NonNull::new(start.cast())
            .ok_or(Error::OpenCl { function: "clEnqueueMapBuffer", code })?;
        // SAFETY: OpenCL keeps the bytes valid until they are unmapped, and callers use the span
        // only between the map's end and the unmap.
        Ok((unsafe { Span::of_driver(start, bytes) }, Pending(event)))
    }

    /// Starts to unmap a part of a buffer.
    ///
    /// # Errors
    /// Returns [`Error::OpenCl`] if the call fails.
    pub fn unmap(&self, buffer: Buffer, span: Span) -> Result<()> {
        let start: *mut c_void = span.start().cast();
        done!(self, clEnqueueUnmapMemObject(self.queue, buffer.mem, start, 0, null(), null_mut()))
    }

    /// Waits for a command.
    ///
    /// # Errors
    /// Returns [`Error::OpenCl`] if the call or the command fails.
    pub fn wait(&self, pending: Pending) -> Result<()> {
        let ended = done!(self, clWaitForEvents(1, &raw const pending.0));
        done!(self, clReleaseEvent(pending.0))?;
        ended
    }

    /// Makes the device start its commands.
    ///
    /// # Errors
    /// Returns [`Error::OpenCl`] if the call fails.
    pub fn flush(&self) -> Result<()> {
        done!(self, clFlush(self.queue))
    }

    /// Waits for all commands.
    ///
    /// # Errors
    /// Returns [`Error::OpenCl`] if the call fails.
    pub fn finish(&self) -> Result<()> {
        done!(self, clFinish(self.queue))
    }

    /// Launches an empty kernel and waits for it.
    ///
    /// # Errors
    /// Returns [`Error::OpenCl`] if the call fails.
    pub fn dummy(&self) -> Result<()> {
        let one = 1_usize;
        done!(
            self,
            clEnqueueNDRangeKernel(
                self.queue,
                self.dummy,
                1,
                null(),
                &raw const one,
                null(),
                0,
                null(),
                null_mut()
            )
        )?;
        self.finish()
    }
}

impl Buffer {
    fn check(&self, offset: usize, bytes: usize) {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "outside of the buffer"
        );
    }
}

fn yes(is: bool) -> cl_bool {
    if is { CL_TRUE } else { CL_FALSE }
}

/// Loads the loader's functions into a dispatch table.
fn load() -> Result<cl_icd_dispatch> {
    let path = variable::LIBOPENCL.path().unwrap_or_else(|| LOADER.into());
    let told =
        |error: libloading::Error| Error::Library { path: path.clone(), reason: error.to_string() };
    // SAFETY: opening runs initialisers of the loader, which the user asks for.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.map_err(told)?;
    let mut slots = [null::<c_void>(); SLOTS];
    for &(name, index) in NEEDED {
        let symbol = CString::new(name).unwrap_or_default();
        // SAFETY: the symbol is used only as a pointer here.
        let found =
            unsafe { library.get::<*const c_char>(symbol.as_bytes_with_nul()) }.map_err(told)?;
        if let Some(place) = slots.get_mut(index) {
            *place = (*found).cast();
        }
    }
    // The library stays loaded, because drivers have threads.
    std::mem::forget(library);
    // SAFETY: the table consists of `SLOTS` nullable function pointers. Each slot holds the
    // function with that slot's name, or null.
    Ok(unsafe { std::mem::transmute::<[*const c_void; SLOTS], cl_icd_dispatch>(slots) })
}
