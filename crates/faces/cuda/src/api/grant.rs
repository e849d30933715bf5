//! Functions that CUDA does not have, for `libpenstock_mpi_*.so`: transfers between the workers of
//! two processes. `crates/faces/cuda/mpi/device.c` is their only user, and they may change with it.
//!
//! A grant is memory of this process that the worker of another process may write once.

use std::ffi::{c_int, c_void};

use penstock_cuda_sys::driver::*;

use crate::core::grant::{self, Span};
use crate::edge::{array, cu_entry, require, store};

cu_entry! {
    /// Stores a number of the worker that has `size` bytes of device memory.
    fn penstockGrantWorker(worker: *mut u64, address: CUdeviceptr, size: usize) {
        require(!worker.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let number = Span::at(address, size as u64)?.worker()?;
        // SAFETY: the program promises that `worker` is null or writable.
        unsafe { store(worker, number) };
        Ok(())
    }
    /// Lets a worker of another process link to the worker of `address`. Stores the name of that
    /// worker here, and an invitation of at most `room` bytes for `penstockGrantVisit` there.
    fn penstockGrantInvite(
        stranger: *mut u64,
        invitation: *mut c_void,
        length: *mut usize,
        room: usize,
        address: CUdeviceptr,
    ) {
        let given = !stranger.is_null() && !invitation.is_null() && !length.is_null();
        require(given, CUDA_ERROR_INVALID_VALUE)?;
        let (name, bytes) = Span::at(address, 1)?.invite()?;
        require(bytes.len() <= room, CUDA_ERROR_NOT_SUPPORTED)?;
        // SAFETY: the program promises `room` writable bytes, and there are not more.
        unsafe { invitation.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        // SAFETY: the program promises that `length` is null or writable.
        unsafe { store(length, bytes.len()) };
        // SAFETY: the program promises that `stranger` is null or writable.
        unsafe { store(stranger, name.number()) };
        Ok(())
    }
    /// Links the worker of `address` to the worker that an invitation names. Stores its name.
    fn penstockGrantVisit(
        stranger: *mut u64,
        invitation: *const c_void,
        length: usize,
        address: CUdeviceptr,
    ) {
        require(!stranger.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `invitation` is null or has `length` bytes.
        let bytes = unsafe { array(invitation.cast::<u8>(), length) }?;
        let name = Span::at(address, 1)?.visit(bytes)?;
        // SAFETY: the program promises that `stranger` is null or writable.
        unsafe { store(stranger, name.number()) };
        Ok(())
    }
    /// Grants `size` bytes to a stranger. Stores the number of the transfer, and the number by
    /// which the other process claims the grant. All work with the memory must have ended.
    fn penstockGrantMake(
        transfer: *mut u64,
        number: *mut u64,
        address: CUdeviceptr,
        size: usize,
        stranger: u64,
    ) {
        require(!transfer.is_null() && !number.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let made = Span::at(address, size as u64)?.grant(stranger)?;
        // SAFETY: the program promises that `transfer` is null or writable.
        unsafe { store(transfer, made.transfer) };
        // SAFETY: the program promises that `number` is null or writable.
        unsafe { store(number, made.number) };
        Ok(())
    }
    /// Takes back a grant. Stores whether nobody had claimed it. Then the transfer is forgotten.
    /// Otherwise `penstockGrantEnd` tells its end.
    fn penstockGrantRevoke(is_gone: *mut c_int, transfer: u64) {
        require(!is_gone.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let gone = grant::revoke(transfer)?;
        // SAFETY: the program promises that `is_gone` is null or writable.
        unsafe { store(is_gone, c_int::from(gone)) };
        Ok(())
    }
    /// Claims the grant with a number at a stranger, and sends `size` bytes there. Stores the
    /// number of the transfer. "CUDA_ERROR_NOT_PERMITTED" if nothing is sent.
    fn penstockGrantSend(
        transfer: *mut u64,
        address: CUdeviceptr,
        size: usize,
        stranger: u64,
        number: u64,
    ) {
        require(!transfer.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let sent = Span::at(address, size as u64)?.send(stranger, number)?;
        let sent = sent.ok_or(CUDA_ERROR_NOT_PERMITTED)?;
        // SAFETY: the program promises that `transfer` is null or writable.
        unsafe { store(transfer, sent) };
        Ok(())
    }
    /// Stores whether a transfer has ended, after it has waited for the end if `waits` is not 0.
    /// The numbers of transfers that have ended are forgotten. An error means that the transfer has
    /// ended and failed.
    fn penstockGrantEnd(has_ended: *mut c_int, transfer: u64, waits: c_int) {
        require(!has_ended.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let ended = grant::end(transfer, waits != 0)?;
        // SAFETY: the program promises that `has_ended` is null or writable.
        unsafe { store(has_ended, c_int::from(ended)) };
        Ok(())
    }
}
