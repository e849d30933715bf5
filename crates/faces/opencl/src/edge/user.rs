//! A program's own pointer, which is passed to its callbacks.

use std::ffi::c_void;

/// `user_data` of a callback, which is only passed on.
#[derive(Clone, Copy, Debug)]
pub struct UserData(*mut c_void);

// SAFETY: nothing is accessed through the pointer here; "it is the application's responsibility to
// ensure that the callback function is thread-safe".
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}

impl UserData {
    pub const fn new(pointer: *mut c_void) -> Self {
        Self(pointer)
    }

    /// Returns the program's pointer.
    // A method, because a closure that used the field would capture the bare pointer.
    pub const fn get(self) -> *mut c_void {
        self.0
    }
}
