use std::ffi::{c_uint, c_void};

use super::run::{self, Buffer};
use super::{Opaque, enter};
use crate::command::Command;
use crate::error::Error;
use crate::request::Request;

/// # Safety
/// `evt` is null or leads to an event pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_create_buffer(
    device: *mut Opaque,
    flag: c_uint,
    size: usize,
    evt: *mut *mut Opaque,
) -> *mut Opaque {
    enter("wtr_create_buffer", std::ptr::null_mut(), || {
        let run = run::current()?;
        let device = run.device(device)?.id();
        if !matches!(flag, 1 | 2 | 4) {
            return Err(Error::Invalid(format!(
                "the flag is {flag}, and must be WTR_MEM_READ_WRITE, _WRITE_ONLY or _READ_ONLY"
            )));
        }
        if size == 0 {
            return Err(Error::Invalid("cannot create a buffer of 0 bytes".into()));
        }
        let buffer = Buffer { id: run.object_id(), device, size: size as u64, is_part: false };
        let command =
            Command::CreateBuffer { buffer: buffer.id, size: buffer.size, flags: flag.into() };
        // SAFETY: the caller guarantees it.
        unsafe { run.command(Request::new(device, command), std::ptr::null_mut(), evt) }?;
        Ok(run.objects().buffers.add(buffer))
    })
}

/// Returns the buffer, or an error if the range does not lie within it.
fn range(run: &run::Run, buffer: *mut Opaque, offset: usize, size: usize) -> Result<Buffer, Error> {
    let found = *run.objects().buffers.get(buffer)?;
    if size == 0 {
        return Err(Error::Invalid("cannot transfer 0 bytes".into()));
    }
    match offset.checked_add(size) {
        Some(end) if end as u64 <= found.size => Ok(found),
        _ => Err(Error::Invalid(format!(
            "{size} bytes at offset {offset} do not lie within the buffer, which has {} bytes",
            found.size
        ))),
    }
}

/// # Safety
/// `source` has `size` bytes until the command has ended. The events are null or lead to event
/// pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_write_buffer_at(
    buffer: *mut Opaque,
    offset: usize,
    size: usize,
    source: *const c_void,
    wait_evt: *mut *mut Opaque,
    evt: *mut *mut Opaque,
) {
    enter("wtr_write_buffer", (), || {
        let run = run::current()?;
        let found = range(&run, buffer, offset, size)?;
        if source.is_null() {
            return Err(Error::Invalid("the source is NULL".into()));
        }
        let address = source.expose_provenance() as u64;
        let command =
            Command::Write { buffer: found.id, offset: offset as u64, size: size as u64, address };
        // SAFETY: the caller guarantees it.
        unsafe { run.command(Request::new(found.device, command), wait_evt, evt) }
    });
}

/// # Safety
/// As for [`wtr_write_buffer_at`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_write_buffer(
    buffer: *mut Opaque,
    size: usize,
    source: *const c_void,
    wait_evt: *mut *mut Opaque,
    evt: *mut *mut Opaque,
) {
    // SAFETY: the caller guarantees it.
    unsafe { wtr_write_buffer_at(buffer, 0, size, source, wait_evt, evt) };
}

/// # Safety
/// `destination` has room for `size` bytes until the command has ended. The events are null or lead
/// to event pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_read_buffer_at(
    buffer: *mut Opaque,
    offset: usize,
    size: usize,
    destination: *mut c_void,
    wait_evt: *mut *mut Opaque,
    evt: *mut *mut Opaque,
) {
    enter("wtr_read_buffer", (), || {
        let run = run::current()?;
        let found = range(&run, buffer, offset, size)?;
        if destination.is_null() {
            return Err(Error::Invalid("the destination is NULL".into()));
        }
        let address = destination.expose_provenance() as u64;
        let command =
            Command::Read { buffer: found.id, offset: offset as u64, size: size as u64, address };
        // SAFETY: the caller guarantees it.
        unsafe { run.command(Request::new(found.device, command), wait_evt, evt) }
    });
}

/// # Safety
/// As for [`wtr_read_buffer_at`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_read_buffer(
    buffer: *mut Opaque,
    size: usize,
    destination: *mut c_void,
    wait_evt: *mut *mut Opaque,
    evt: *mut *mut Opaque,
) {
    // SAFETY: the caller guarantees it.
    unsafe { wtr_read_buffer_at(buffer, 0, size, destination, wait_evt, evt) };
}

/// # Safety
/// The events are null or lead to event pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_copy_buffer(
    source: *mut Opaque,
    source_offset: usize,
    target: *mut Opaque,
    target_offset: usize,
    size: usize,
    wait_evt: *mut *mut Opaque,
    evt: *mut *mut Opaque,
) {
    enter("wtr_copy_buffer", (), || {
        let run = run::current()?;
        let from = range(&run, source, source_offset, size)?;
        let to = range(&run, target, target_offset, size)?;
        let (first, second) = (source_offset.min(target_offset), source_offset.max(target_offset));
        if from.id == to.id && second - first < size {
            return Err(Error::Invalid("the ranges overlap".into()));
        }
        let command = Command::Copy {
            from: from.id,
            from_offset: source_offset as u64,
            to: to.id,
            to_offset: target_offset as u64,
            size: size as u64,
        };
        let request = Request::new(to.device, command).from(from.device);
        // SAFETY: the caller guarantees it.
        unsafe { run.command(request, wait_evt, evt) }
    });
}

/// # Safety
/// The events are null or lead to event pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_release_buffer(
    buffer: *mut Opaque,
    wait_evt: *mut *mut Opaque,
    evt: *mut *mut Opaque,
) {
    enter("wtr_release_buffer", (), || {
        let run = run::current()?;
        let found = {
            let mut objects = run.objects();
            if objects.buffers.get(buffer)?.is_part {
                return Err(Error::Invalid(
                    "the buffer is a part of a heap; wtr_release_heap releases it".into(),
                ));
            }
            objects.buffers.remove(buffer)?
        };
        let command = Command::ReleaseBuffer { buffer: found.id };
        // SAFETY: the caller guarantees it.
        unsafe { run.command(Request::new(found.device, command), wait_evt, evt) }
    });
}
