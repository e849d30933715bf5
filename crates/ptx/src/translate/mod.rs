//! Translation of PTX to OpenCL C.
//!
//! Each kernel of a module becomes one OpenCL kernel. Device functions are inlined into the kernels
//! that call them (`inline`). Then the control flow is analysed (`flow`, `uniform`), and each
//! instruction becomes one statement (`body`, and the files beside it, one per family of
//! instructions). Registers become C variables, and labels stay labels. `prelude/*.cl` has the
//! functions that the statements call; a program gets those that it uses (`prelude`).
//!
//! # Arguments of a translated kernel
//!
//! [`TranslatedKernel::arguments`] lists them in their order. A kernel only has the arguments that
//! its text names, because drivers do work for each argument at each launch: PoCL counts references
//! to buffers and allocates local memory.
//!
//! # Addresses
//!
//! A device address in an arena is `arena + (address - base)`. `linear` looks for `base + index *
//! size` behind an address, because compilers for CPUs vectorise `pointer[index]`, but not sums of
//! bytes.
//!
//! # Threads that take different paths
//!
//! A meeting is a barrier, or an instruction through which the threads of a warp exchange values.
//! If all threads of a block reach it together, it becomes an OpenCL barrier and an exchange in
//! local memory. Otherwise the kernel becomes a state machine (`machine`): every thread runs to its
//! next meeting, all threads wait at one barrier, and those whose meeting is complete continue. A
//! kernel also becomes a state machine if its barriers in branches would make a device's compiler
//! copy too much code (`paths`).
//!
//! Where the lanes of a warp exchange values through memory without a meeting, `order` inserts a
//! stop. `alias` compares the addresses, with the knowledge of `linear`, `roots`, `values` and
//! `guards`. `regions` finds where lanes that took different paths come together again, and `spin`
//! finds loops that only wait. `peers` decides whether such a loop may wait for another thread of
//! its own block.
//!
//! # Differences from a GPU
//!
//! `.ftz` is not honoured by arithmetic: denormal numbers are kept. `.approx` is as exact as the
//! device's own function, which is at least what PTX requires. Directed rounding of `f64` is exact
//! unless an intermediate result is denormal. A shift or product by a constant in the address of a
//! shared variable is assumed not to lose bits, and sums of such terms not to overflow. A thread
//! that fails while others wait for it continues without touching memory (`ending`). Atomics on
//! generic addresses work on global and shared memory. Every mip level is taken for the only one;
//! faces of cube textures end at their edges. Lanes of a warp run in step only where they exchange
//! values through memory. docs/ptx.md tells users all this.

mod agree;
mod alias;
mod atomic;
mod body;
mod call;
mod convert;
mod ending;
mod error;
mod float;
mod flow;
mod guards;
mod half;
mod inline;
mod integer;
mod linear;
mod machine;
mod memory;
mod operand;
mod order;
mod param;
mod paths;
mod peers;
mod place;
mod prelude;
mod promote;
mod regions;
mod roots;
mod special;
mod spin;
#[cfg(test)]
mod tests;
mod texture;
mod uniform;
mod values;
mod warp;

use std::fmt::Write as _;

pub use error::TranslateError;

/// Largest number of threads in a block of a translated kernel.
pub use crate::ir::BLOCK_THREADS_MAX;
use crate::ir::{Entry, Instruction, Module, Opcode, Statement};
pub use crate::ir::{HEAP_BYTES_MAX, HEAP_WINDOW};

/// Properties of the device to translate for.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Base address and size in bytes of each arena; there is at least one.
    pub arenas: Vec<(u64, u64)>,
    /// Whether kernels get a symmetric heap as one more argument behind the arenas. Addresses from
    /// [`HEAP_WINDOW`] on refer to it. [`Options::check`] does not apply to them.
    pub heap: bool,
    /// Whether each memory access is checked before it happens: for its alignment, and for whether
    /// its block of 256 bytes is allocated (bitmap at [`CONTROL_SHADOW`]). Requires exactly one
    /// arena. A thread that fails continues with zeros, and all threads leave their loops.
    pub check: bool,
    /// Whether the device has `double`.
    pub fp64: bool,
    /// Whether the device has 64-bit atomics.
    pub int64_atomics: bool,
    /// Whether the device has `half`. The translation does not need it: it computes halves in
    /// single precision.
    pub fp16: bool,
    /// Whether the device can round single-precision division and square roots correctly
    /// (`CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT`). Otherwise they are computed in double precision.
    pub exact_division: bool,
}

/// Offsets in the control block, in bytes; all values are little-endian. `ulong`: code of the first
/// fault, a [`Fault`].
pub const CONTROL_FAULT_CODE: u64 = 0;
/// `ulong`: the address that was accessed.
pub const CONTROL_FAULT_ADDRESS: u64 = 8;
/// `uint`: line of the PTX text.
pub const CONTROL_FAULT_LINE: u64 = 16;
/// `uint`: always 0, on which translated kernels rely.
pub const CONTROL_ZERO: u64 = 20;
/// `ulong`: a counter that replaces the clock on devices without one.
pub const CONTROL_CLOCK: u64 = 64;
/// `ulong` address of the ring, `ulong` bytes of the ring, `uint` bytes written, `uint` records
/// lost.
pub const CONTROL_PRINTF: u64 = 128;
/// `ulong`: address of the bitmap of allocated blocks of 256 bytes of the first arena.
pub const CONTROL_SHADOW: u64 = 160;
/// 64 bytes that take the place of refused accesses.
pub const CONTROL_SINK: u64 = 192;
/// Size of a control block in bytes.
pub const CONTROL_BYTES: u64 = 256;

/// Fault codes: the values at [`CONTROL_FAULT_CODE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Fault {
    /// An address at which no memory is allocated.
    IllegalAddress = 1,
    /// An address that is not a multiple of the access's size.
    Misaligned = 2,
    /// `trap`, or threads that wait for each other forever.
    Trap = 3,
    Assert = 4,
    /// Threads that wait for an action that no other thread will take. The address is the kernel's
    /// [`name_number`].
    Stuck = 5,
}

/// Returns the 64-bit number that names a kernel in a fault: the FNV-1a hash of its name in PTX.
pub fn name_number(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

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

/// A module translated to OpenCL C.
#[derive(Debug, Clone)]
pub struct Translation {
    /// Text of the program in OpenCL C 1.2.
    pub source: String,
    /// Options to build the program with.
    pub build_options: String,
    /// The kernels, in the order of [`Module::entries`].
    pub kernels: Vec<TranslatedKernel>,
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

/// Translates a module to OpenCL C.
///
/// # Errors
///
/// [`TranslateError`] names what cannot be translated, and where. Each reason has a variant, and
/// nothing is silently omitted.
pub fn translate(module: &Module, options: &Options) -> Result<Translation, TranslateError> {
    if options.arenas.is_empty() || (options.check && options.arenas.len() > 1) {
        return Err(TranslateError::Arenas { count: options.arenas.len() });
    }
    let mut code = String::new();
    let mut kernels = Vec::with_capacity(module.entries().len());
    for (index, entry) in module.entries().iter().enumerate() {
        kernels.push(kernel(module, entry, index, options, &mut code)?);
    }
    let mut source = String::from("#pragma OPENCL FP_CONTRACT OFF\n");
    if options.fp64 {
        source.push_str(
            "#ifdef cl_khr_fp64\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#endif\n",
        );
    }
    if options.int64_atomics {
        source.push_str("#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable\n");
    }
    source.push_str(&prelude::parts(&code, options, exchanges_wide(module)));
    source.push_str(&code);
    let build_options =
        if options.exact_division { "-cl-fp32-correctly-rounded-divide-sqrt" } else { "" };
    Ok(Translation { source, build_options: build_options.to_owned(), kernels })
}

/// Whether threads of a warp exchange 64-bit values anywhere; otherwise half of the local memory is
/// enough.
fn exchanges_wide(module: &Module) -> bool {
    let is_wide = |what: &Instruction| what.opcode == Opcode::Match && what.ty().bits() == 64;
    module
        .functions()
        .iter()
        .flat_map(|function| function.body.iter().flatten())
        .any(|statement| matches!(statement, Statement::Instruction(what) if is_wide(what)))
}

/// Returns the number of 8-byte words that a kernel's parameters take.
fn parameter_words(entry: &Entry) -> u32 {
    entry.params_size.div_ceil(8).max(1)
}

fn kernel(
    module: &Module,
    entry: &Entry,
    index: usize,
    options: &Options,
    code: &mut String,
) -> Result<TranslatedKernel, TranslateError> {
    let mut flat = inline::flatten(module, entry)?;
    if !options.fp64 {
        body::doubles_as_bits(&mut flat);
    }
    order::put_in(module, entry, &mut flat);
    let body = body::Body::of(module, entry, &flat, options)?;
    let cl_name = format!("k{index}_{}", plain(&entry.name));
    let words = parameter_words(entry) + u32::from(body.uses_dynamic_size);
    let _ = writeln!(code, "struct p{index} {{ ulong w[{words}]; }};");
    let arguments = arguments(entry, options, &body);
    let declared: Vec<String> =
        arguments.iter().map(|argument| argument.declaration(index)).collect();
    let attribute = match entry.required {
        Some([x, y, z]) => format!("__attribute__((reqd_work_group_size({x}, {y}, {z}))) "),
        None => String::new(),
    };
    let _ = writeln!(code, "__kernel {attribute}void {cl_name}({}) {{", declared.join(", "));
    code.push_str(&body.text);
    code.push_str("}\n");
    Ok(TranslatedKernel {
        name: entry.name.clone(),
        cl_name,
        arguments,
        params_size: entry.params_size,
        local_bytes: if entry.uses_dynamic_shared { entry.static_shared } else { 0 },
        uses_dynamic_shared: entry.uses_dynamic_shared,
        dynamic_bytes_at: body.uses_dynamic_size.then(|| 8 * parameter_words(entry)),
        uses_printf: body.uses_printf,
        uses_faults: body.uses_faults || options.check,
        uses_barriers: body.uses_barriers,
        is_machine: body.is_machine,
    })
}

impl Argument {
    /// Returns the declaration of this argument in kernel number `index`.
    fn declaration(self, index: usize) -> String {
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

/// Returns the arguments that a kernel with this body needs.
fn arguments(entry: &Entry, options: &Options, body: &body::Body) -> Vec<Argument> {
    let words = || body.text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let names = |wanted: &str| words().any(|word| word == wanted);
    // `AT` chooses among all arenas. Checks name the only arena.
    let reaches_arenas = names("AT") || names("arena0");
    let mut arguments = Vec::new();
    if reaches_arenas {
        arguments.extend((0..options.arenas.len()).map(Argument::Arena));
    }
    let rest = [
        (Argument::Heap, options.heap),
        (Argument::Params, !entry.params.is_empty() || body.uses_dynamic_size || names("p")),
        (Argument::Data, names("module_data")),
        (Argument::Control, names("control")),
        (Argument::Shared, names("dynamic")),
    ];
    arguments
        .extend(rest.into_iter().filter(|(_, is_needed)| *is_needed).map(|(argument, _)| argument));
    arguments
}

/// Number of letters of a PTX name that a C name keeps: names of C++ templates can have thousands.
const NAME_LETTERS_MAX: usize = 60;

/// Replaces all characters except ASCII letters and digits, and shortens the name.
fn plain(name: &str) -> String {
    name.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' })
        .take(NAME_LETTERS_MAX)
        .collect()
}
