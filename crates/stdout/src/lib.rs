//! What kernels print goes to the program's standard output, through C's own buffer, so that it stays in order with what the
//! program prints itself: the client is in a foreign program, and Rust's standard output would be a second buffer beside C's.
//!
//! A crate of its own because the client, which prints, allows no unsafe code.

/// Prints bytes and flushes. If standard output is closed, there is nobody to tell.
pub fn print(bytes: &[u8]) {
    // SAFETY: the C library made it before any code of the program ran.
    let out = unsafe { stdout };
    // SAFETY: `out` is an open stream or, if the program closed it, its own defect; `bytes` is as long as said.
    unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), out) };
    // SAFETY: as above.
    unsafe { libc::fflush(out) };
}

unsafe extern "C" {
    /// C's `stdout`.
    static stdout: *mut libc::FILE;
}
