//! Prints what kernels print. The text goes through C's buffer of standard output, so that it stays
//! in order with the program's own output. Rust's standard output would be a second buffer.

/// Prints bytes and flushes. If standard output is closed, the bytes are lost.
pub fn print(bytes: &[u8]) {
    // SAFETY: the C library initialises `stdout` before any code of the program runs.
    let out = unsafe { stdout };
    // SAFETY: `out` is open unless the program wrongly closed it. The length is that of `bytes`.
    unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), out) };
    // SAFETY: `out` meets the same condition here.
    unsafe { libc::fflush(out) };
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
}
