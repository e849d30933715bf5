//! Parameters and return values of functions.

use super::id::RegisterId;
use super::types::Type;

/// A formal parameter or a return value. Sizes are in bytes.
#[derive(Debug, Clone)]
pub struct Formal {
    /// The name in PTX; empty for `_`.
    pub name: String,
    /// The register, if the parameter is declared `.reg` and not `.param`.
    pub register: Option<RegisterId>,
    /// Type of one element.
    pub ty: Type,
    /// Offset in the kernel's block of parameters, or in the function's parameter list.
    pub offset: u32,
    pub size: u32,
    /// A power of two.
    pub align: u32,
    pub is_array: bool,
}

/// The `.callprototype` of an indirect call.
#[derive(Debug, Clone)]
pub struct Signature {
    pub returns: Vec<Formal>,
    pub params: Vec<Formal>,
}
