//! The functions of `wtr.h` that take `...`. Stable Rust cannot define such functions, and a shared
//! library of Rust only exports functions of Rust. So these jump to their namesakes in
//! `shim/wtr_shim.c`, with all arguments in place.

use std::ffi::{CStr, c_char, c_uint};

use penstock_dql::{HoleKind, Query, Template, Value};

use super::report::fail;
use super::{devices, enter};
use crate::error::Error;

macro_rules! jumps {
    ($($(#[$attribute:meta])* $name:ident => $target:ident;)+) => {$(
        unsafe extern "C" { fn $target(); }
        $(#[$attribute])*
        ///
        /// # Safety
        /// These functions are for C only, as `wtr.h` declares them.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("jmp {}", sym $target);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("b {}", sym $target);
        }
    )+};
}

jumps! {
    wtr_init_devices => wtr_init_devices_c;
    wtr_get_device => wtr_get_device_c;
    wtr_run_kernel => wtr_run_kernel_c;
    wtr_run_collective => wtr_run_collective_c;
    wtr_merge_events => wtr_merge_events_c;
    wtr_wait_for_events => wtr_wait_for_events_c;
}

/// The value for one hole, as the shim read it.
#[repr(C)]
#[derive(Debug)]
pub struct Hole {
    whole: i64,
    real: f64,
    text: *const c_char,
}

/// Returns the number that tells the shim how to read a hole.
fn kind_code(kind: HoleKind) -> u8 {
    match kind {
        HoleKind::Int => 0,
        HoleKind::Unsigned | HoleKind::Hex => 1,
        HoleKind::Long => 2,
        HoleKind::UnsignedLong => 3,
        HoleKind::LongLong => 4,
        HoleKind::UnsignedLongLong => 5,
        HoleKind::Size => 6,
        HoleKind::Float => 7,
        HoleKind::Text => 8,
    }
}

/// Returns a string of the program.
///
/// # Safety
/// `text` is null or ends with a zero.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Error> {
    if text.is_null() {
        return Err(Error::Invalid(format!("{what} is NULL")));
    }
    // SAFETY: the caller guarantees the terminating zero.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| Error::Invalid(format!("{what} is not UTF-8")))
}

/// Tells the shim which holes a query has. Returns their number, or -1 after a reported error.
#[unsafe(no_mangle)]
unsafe extern "C" fn wtr_rs_holes(dql: *const c_char, kinds: *mut u8, most: c_uint) -> i32 {
    enter("a query", -1, || {
        // SAFETY: the program gave a string.
        let template = Template::parse(unsafe { text(dql, "the query") }?)?;
        let holes = template.holes();
        if holes.len() > most as usize {
            return Err(Error::Invalid(format!(
                "the query has {} holes, more than {most}",
                holes.len()
            )));
        }
        for (index, kind) in holes.iter().enumerate() {
            // SAFETY: `kinds` has room for `most` entries.
            unsafe { kinds.add(index).write(kind_code(*kind)) };
        }
        i32::try_from(holes.len())
            .map_err(|_| Error::Invalid("the query has too many holes".into()))
    })
}

/// Returns the query with its holes filled.
unsafe fn bind(dql: *const c_char, holes: *const Hole, count: c_uint) -> Result<Query, Error> {
    // SAFETY: the program gave a string.
    let template = Template::parse(unsafe { text(dql, "the query") }?)?;
    let given = if count == 0 {
        &[]
    } else {
        // SAFETY: the shim has filled `count` holes.
        unsafe { std::slice::from_raw_parts(holes, count as usize) }
    };
    let mut values = Vec::with_capacity(given.len());
    for (kind, hole) in template.holes().iter().zip(given) {
        values.push(match kind {
            // SAFETY: the value for %s is a string, as for printf.
            HoleKind::Text => Value::from(unsafe { text(hole.text, "the value for %s") }?),
            HoleKind::Float => Value::from(hole.real),
            HoleKind::UnsignedLong | HoleKind::UnsignedLongLong | HoleKind::Size => {
                Value::Int(hole.whole.cast_unsigned().into())
            }
            _ => Value::Int(hole.whole.into()),
        });
    }
    Ok(template.bind(&values)?)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wtr_rs_init_devices(dql: *const c_char, holes: *const Hole, count: c_uint) {
    // SAFETY: the shim passes what `bind` demands.
    enter("wtr_init_devices", (), || devices::init(&unsafe { bind(dql, holes, count) }?));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wtr_rs_get_device(
    dql: *const c_char,
    holes: *const Hole,
    count: c_uint,
) -> *mut super::Opaque {
    enter("wtr_get_device", std::ptr::null_mut(), || {
        // SAFETY: the shim passes what `bind` demands.
        let query = unsafe { bind(dql, holes, count) }?;
        devices::get(&query)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wtr_rs_too_many(function: *const c_char, count: c_uint, most: c_uint) {
    // SAFETY: the shim passes its own name.
    let function = unsafe { text(function, "the function") }.unwrap_or("a function").to_owned();
    fail(&function, &Error::Invalid(format!("{count} arguments are more than {most}")));
}
