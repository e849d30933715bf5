//! Translated kernels, and what a launch needs to know about them.

use super::error::TranslateError;
#[cfg(doc)]
use super::options::Options;
use crate::ir::Entry;
#[cfg(doc)]
use crate::ir::Module;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// `__global uchar *`: the arena of [`Options::arenas`] with this index.
    Arena(usize),
    /// `__global uchar *`: the device's view of a symmetric heap. Every kernel has it if
    /// [`Options::heap`] is set.
    Heap,
    /// All parameters by value: one structure of [`TranslatedKernel::params_size`] bytes, rounded
    /// up to 8, and 8 more bytes if [`TranslatedKernel::dynamic_bytes_at`] is set. Every kernel
    /// that has parameters has it.
    Params,
    /// `ulong`: the device address of the module's data block.
    Data,
    /// `ulong`: the device address of the control block.
    Control,
    /// Local memory of [`TranslatedKernel::local_bytes`] plus the launch's dynamic shared bytes, at
    /// least 8.
    Shared,
}

/// Kernels of a module, translated to OpenCL C.
#[derive(Debug, Clone)]
pub struct Translation {
    /// Text of the program in OpenCL C 1.2.
    pub source: String,
    /// Options to build the program with.
    pub build_options: String,
    /// The kernels, in the order of [`Module::entries`].
    pub kernels: Vec<TranslatedKernel>,
    /// Kernels of which the program has nothing, with the reasons.
    pub refused: Vec<RefusedKernel>,
}

/// A kernel that cannot be translated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedKernel {
    /// The name in PTX.
    pub name: String,
    pub error: TranslateError,
}

/// The properties of a kernel that a launch needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedKernel {
    /// The name in PTX.
    pub name: String,
    /// The name in OpenCL C.
    pub cl_name: String,
    pub arguments: Vec<Argument>,
    /// Size of all parameters in bytes, as [`Entry::params_size`].
    pub params_size: u32,
    /// Bytes of local memory that [`Argument::Shared`] needs in addition to the launch's dynamic
    /// shared bytes: the static shared memory if the kernel uses dynamic shared memory, otherwise
    /// 0.
    pub local_bytes: u32,
    pub uses_dynamic_shared: bool,
    /// Offset in the structure of parameters, behind all of them, of a `ulong` with the launch's
    /// dynamic shared bytes. `None` if the kernel does not read it.
    pub dynamic_bytes_at: Option<u32>,
    pub uses_printf: bool,
    /// Whether the kernel can record a fault in the control block.
    pub uses_faults: bool,
    /// Whether the threads of a block wait for each other.
    pub uses_barriers: bool,
    /// Whether the kernel is a state machine, which is slow; see the module's documentation.
    pub is_machine: bool,
}

/// Returns the number of 8-byte words that a kernel's parameters take.
pub(super) fn parameter_words(entry: &Entry) -> u32 {
    entry.params_size.div_ceil(8).max(1)
}

impl Argument {
    /// Returns the declaration of this argument in kernel number `index`.
    pub(super) fn declaration(self, index: usize) -> String {
        match self {
            Self::Arena(arena) => format!("__global uchar *arena{arena}"),
            Self::Heap => String::from("__global uchar *heap"),
            Self::Params => format!("const struct p{index} p"),
            Self::Data => String::from("const ulong module_data"),
            Self::Control => String::from("const ulong control"),
            Self::Shared => String::from("__local ulong *dynamic"),
        }
    }
}
