use std::ffi::{c_char, c_uint, c_void};

use super::run::{self, Kernel, Run};
use super::{Opaque, enter, variadic};
use crate::command::{Arg, Code, Command, IndexSpace};
use crate::error::Error;
use crate::request::Request;

/// # Safety
/// The strings end with a zero. `evt` is null or leads to an event pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_create_kernel(
    device: *mut Opaque,
    name: *const c_char,
    kernel_name: *const c_char,
    build_options: *const c_char,
    flag: c_uint,
    evt: *mut *mut Opaque,
) -> *mut Opaque {
    enter("wtr_create_kernel", std::ptr::null_mut(), || {
        let run = run::current()?;
        let device = run.device(device)?.id();
        // SAFETY: the caller guarantees it.
        let source = unsafe { variadic::text(name, "the name") }?;
        // SAFETY: the caller guarantees it.
        let kernel_name = unsafe { variadic::text(kernel_name, "the kernel's name") }?;
        let options = if build_options.is_null() {
            ""
        } else {
            // SAFETY: the caller guarantees it.
            unsafe { variadic::text(build_options, "the text of the build options") }?
        };
        let read = || {
            std::fs::read(source).map_err(|reason| Error::File { path: source.to_owned(), reason })
        };
        let code = match flag {
            0 => Code::Source(read()?),
            1 => Code::Source(source.as_bytes().to_vec()),
            2 => Code::Binary(read()?),
            _ => {
                return Err(Error::Invalid(format!(
                    "the flag is {flag}, and must be WTR_SOURCE, WTR_SOURCE_STRING or WTR_BINARY"
                )));
            }
        };
        let kernel = Kernel { id: run.object_id(), device };
        let command = Command::CreateKernel {
            kernel: kernel.id,
            code,
            name: kernel_name.to_owned(),
            options: options.to_owned(),
        };
        // SAFETY: the caller guarantees it.
        unsafe { run.command(Request::new(device, command), std::ptr::null_mut(), evt) }?;
        Ok(run.objects().kernels.add(kernel))
    })
}

/// # Safety
/// The work sizes have `work_dim` entries, or are null where `wtr_ext.h` allows it. `sizes` and
/// `values` have `num_args` entries, and each value has as many bytes as its size says. The events
/// are null or lead to event pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_run_kernel_v(
    kernel: *mut Opaque,
    work_dim: c_uint,
    global_offset: *const usize,
    global_work_size: *const usize,
    local_work_size: *const usize,
    wait_evt: *mut *mut Opaque,
    evt: *mut *mut Opaque,
    num_args: c_uint,
    sizes: *const usize,
    values: *const *const c_void,
) {
    enter("wtr_run_kernel", (), || {
        let run = run::current()?;
        let found = *run.objects().kernels.get(kernel)?;
        // SAFETY: the caller guarantees it.
        let range =
            unsafe { range_of(work_dim, global_offset, global_work_size, local_work_size) }?;
        let mut args = Vec::with_capacity(num_args as usize);
        for index in 0..num_args as usize {
            // SAFETY: both have `num_args` entries.
            let (size, value) = unsafe { (sizes.add(index).read(), values.add(index).read()) };
            // SAFETY: the caller guarantees it.
            args.push(unsafe { argument(&run, &found, index, size, value) }?);
        }
        let command = Command::Run { kernel: found.id, range, args };
        // SAFETY: the caller guarantees it.
        unsafe { run.command(Request::new(found.device, command), wait_evt, evt) }
    });
}

/// Returns the work-items of a launch.
///
/// # Safety
/// The same as for [`wtr_run_kernel_v`].
pub unsafe fn range_of(
    work_dim: c_uint,
    offset: *const usize,
    global: *const usize,
    local: *const usize,
) -> Result<IndexSpace, Error> {
    if !(1..=3).contains(&work_dim) {
        return Err(Error::Invalid(format!("work_dim is {work_dim}, and must be 1, 2 or 3")));
    }
    // SAFETY: the caller guarantees it.
    let sizes = unsafe { triple(global, work_dim, 1) };
    Ok(IndexSpace {
        dims: work_dim,
        // SAFETY: the caller guarantees it.
        offset: unsafe { triple(offset, work_dim, 0) }.unwrap_or_default(),
        global: sizes.ok_or_else(|| Error::Invalid("the global work size is NULL".into()))?,
        // SAFETY: the caller guarantees it.
        local: unsafe { triple(local, work_dim, 1) },
    })
}

/// Returns up to three sizes. Sizes beyond `count` are `rest`.
unsafe fn triple(sizes: *const usize, count: c_uint, rest: u64) -> Option<[u64; 3]> {
    if sizes.is_null() {
        return None;
    }
    let mut triple = [rest; 3];
    for (index, size) in triple.iter_mut().enumerate().take(count as usize) {
        // SAFETY: the caller guarantees it.
        *size = unsafe { sizes.add(index).read() } as u64;
    }
    Some(triple)
}

/// Returns one argument of a kernel.
///
/// # Safety
/// `value` has as many bytes as its size says.
pub unsafe fn argument(
    run: &Run,
    kernel: &Kernel,
    index: usize,
    size: usize,
    value: *const c_void,
) -> Result<Arg, Error> {
    if size != 0 {
        if value.is_null() {
            return Ok(Arg::Local(size as u64));
        }
        // SAFETY: the caller guarantees that `value` has `size` bytes.
        return Ok(Arg::Bytes(
            unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size) }.to_vec(),
        ));
    }
    let objects = run.objects();
    if objects.heaps.get(value.cast_mut().cast()).is_ok() {
        return Err(Error::Invalid(format!(
            "argument {index} is a heap, which only wtr_run_collective accepts"
        )));
    }
    let buffer = objects.buffers.get(value.cast_mut().cast()).map_err(|error| {
        Error::Invalid(format!(
            "argument {index}: its size is 0, so it has to be a buffer, but {error}"
        ))
    })?;
    if buffer.device != kernel.device {
        return Err(Error::Invalid(format!(
            "argument {index} is a buffer of another device; copy it with wtr_copy_buffer"
        )));
    }
    Ok(Arg::Buffer(buffer.id))
}

/// # Safety
/// The events are null or lead to event pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_release_kernel(
    kernel: *mut Opaque,
    wait_evt: *mut *mut Opaque,
    evt: *mut *mut Opaque,
) {
    enter("wtr_release_kernel", (), || {
        let run = run::current()?;
        let found = run.objects().kernels.remove(kernel)?;
        let command = Command::ReleaseKernel { kernel: found.id };
        // SAFETY: the caller guarantees it.
        unsafe { run.command(Request::new(found.device, command), wait_evt, evt) }
    });
}
