//! C expressions for the memory that an instruction accesses.

use super::c_type::value_type;
use crate::ir::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, Type};

/// The memory that an instruction accesses.
#[derive(Debug, Clone)]
pub(super) enum Lvalue {
    /// One object: an expression that can be read and assigned.
    Known(String),
    /// One of several objects, chosen by the window of the address: in shared, local or global
    /// memory, or a parameter, which is read-only.
    ByWindow {
        address: String,
        shared: Option<String>,
        local: Option<String>,
        param: Option<String>,
        global: String,
    },
}

/// Returns a C condition: whether a generic address lies in the window that starts at `start`.
pub(super) fn is_in(address: &str, start: u64) -> String {
    format!("{address} >> 56 == {:#x}UL", start >> 56)
}

/// Type and size of an access.
#[derive(Debug, Clone, Copy)]
pub(super) struct AccessType<'a> {
    /// The C type without an address space.
    pub ty: &'a str,
    pub bytes: u32,
}

/// Returns the C expression of the value of an lvalue.
pub(super) fn value_of(lvalue: &Lvalue) -> String {
    match lvalue {
        Lvalue::Known(object) => object.clone(),
        Lvalue::ByWindow { address, shared, local, param, global } => {
            let mut text = String::from("(");
            for (object, start) in
                [(shared, SHARED_WINDOW), (local, LOCAL_WINDOW), (param, PARAM_WINDOW)]
            {
                if let Some(object) = object {
                    text.push_str(&format!("{} ? {object} : ", is_in(address, start)));
                }
            }
            text.push_str(global);
            text.push(')');
            text
        }
    }
}

/// Returns the type with which memory is accessed: the C type, but it may alias others.
pub(super) fn memory_type(ty: Type) -> String {
    format!("a_{}", value_type(ty))
}
