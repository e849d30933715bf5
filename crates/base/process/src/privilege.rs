//! Whether the program has rights that the user who started it lacks.

use std::sync::OnceLock;

/// Returns whether the kernel gave the program other rights than those of the user who started it:
/// a set-user-ID or set-group-ID program, or one with file capabilities. The user's environment
/// must not decide what such a program writes, connects to or loads (`secure_getenv(3)`).
#[must_use]
pub fn is_elevated() -> bool {
    static ELEVATED: OnceLock<bool> = OnceLock::new();
    // SAFETY: `getauxval` only reads the vector that the kernel gave the program.
    *ELEVATED.get_or_init(|| unsafe { libc::getauxval(libc::AT_SECURE) } != 0)
}
