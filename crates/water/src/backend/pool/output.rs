//! What kernels print goes to the program's standard output, through C's own buffer, so that it stays in order with what the
//! program prints itself.

/// Takes over the pool's output.
pub(super) fn install() {
    penstock_client::set_printer(print);
}

fn print(bytes: &[u8]) {
    // SAFETY: the C library made it before any code of the program ran.
    let out = unsafe { stdout };
    // SAFETY: `out` is an open stream, or the program's own defect if it closed it; `bytes` is as long as said.
    unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), out) };
    // SAFETY: as above.
    unsafe { libc::fflush(out) };
}

unsafe extern "C" {
    /// C's `stdout`.
    static stdout: *mut libc::FILE;
}
