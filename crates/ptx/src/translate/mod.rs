//! From PTX to OpenCL C.
//!
//! Each kernel of a module becomes one OpenCL kernel. Device functions are made part of the kernels that call them (`inline`), then
//! the control flow is looked at (`flow`, `uniform`), and each instruction becomes one statement (`body` and the files beside it by
//! families of instructions). Registers are C variables, labels are labels. What the statements need is in `prelude.cl`, of which a
//! program gets the parts that it uses (`prelude`).
//!
//! # Arguments of a translated kernel
//!
//! [`TranslatedKernel::arguments`] names them in their order. A kernel has only the arguments that its text names, because drivers do work for
//! each argument at each launch: PoCL counts references to buffers and makes room for local memory.
//!
//! # Addresses
//!
//! A device address in an arena is `arena + (address - base)`. `linear` looks for `base + index * size` behind an address, because
//! compilers for CPUs make vectors of `pointer[index]`, and not of sums of bytes.
//!
//! # Threads that go different ways
//!
//! Where a barrier or an instruction of a warp is reached by all threads of a block together, it is an OpenCL barrier and an exchange in local
//! memory. Elsewhere the kernel becomes a state machine (`machine`): every thread runs to its next such point, all meet at one barrier,
//! whoever has what it waits for goes on. A kernel whose barriers in branches would make a device's compiler copy too much becomes one too
//! (`paths`).
//!
//! Where lanes of a warp exchange values through memory without such a point, one is put in (`order`). `alias` compares the addresses,
//! by what `linear`, `roots`, `values` and `guards` know of them. `regions` says where lanes that went different ways meet again, and
//! `spin` finds loops that only wait. `peers` says whether such a loop may wait for another thread of its own block.
//!
//! # Where it differs from a GPU
//!
//! `.ftz` is not honoured by arithmetic: denormal numbers are kept. `.approx` is as exact as the device's own function, which is at least what
//! PTX asks for. Directed rounding of `f64` is exact unless an intermediate result is denormal. A shift or product
//! by a constant that makes the address of a shared variable is taken not to lose bits, and sums of such not to overflow.
//! A thread that fails and that others wait for goes on without touching memory (`ending`).
//! Atomics on generic addresses are on global or shared memory. Mip levels are taken for the only one that there is; faces of
//! cube textures end at their edges. Lanes of a warp run in step only where they exchange values through memory. docs/ptx.md says all
//! this to users.

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

/// Threads of a block that a translated kernel can serve.
pub use crate::ir::BLOCK_THREADS_MAX;
use crate::ir::{Entry, Instruction, Module, Opcode, Statement};
pub use crate::ir::{HEAP_BYTES_MAX, HEAP_WINDOW};

/// For which device to translate.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Base address and size in bytes of each arena; at least one.
    pub arenas: Vec<(u64, u64)>,
    /// Whether kernels get a symmetric heap, which is what addresses from [`HEAP_WINDOW`] on name: one more argument behind the arenas.
    /// Accesses to it are not looked at, whatever [`Options::check`] is.
    pub heap: bool,
    /// Whether each access to memory is looked at before it happens: for alignment, and whether the 256 bytes are allocated
    /// (bitmap at [`CONTROL_SHADOW`]). Needs exactly one arena. A thread that fails goes on with zeros, and all leave their loops.
    pub check: bool,
    /// Whether the device has `double`.
    pub fp64: bool,
    /// Whether the device has atomics of 64 bits.
    pub int64_atomics: bool,
    /// Whether the device has `half`. Not needed: halves are computed in single precision.
    pub fp16: bool,
    /// Whether the device rounds single-precision division and square roots correctly when asked to
    /// (`CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT`). Else they are computed in double precision.
    pub exact_division: bool,
}

/// Offsets in the control block, in bytes. All of it is little-endian.
/// `ulong`: what went wrong first, one of [`Fault`].
pub const CONTROL_FAULT_CODE: u64 = 0;
/// `ulong`: the address that was accessed.
pub const CONTROL_FAULT_ADDRESS: u64 = 8;
/// `uint`: line of the PTX text.
pub const CONTROL_FAULT_LINE: u64 = 16;
/// `uint`: always 0. Translated kernels rely on it.
pub const CONTROL_ZERO: u64 = 20;
/// `ulong`: a counter, where the device has no clock.
pub const CONTROL_CLOCK: u64 = 64;
/// `ulong` address of the ring, `ulong` bytes of the ring, `uint` bytes written, `uint` records lost.
pub const CONTROL_PRINTF: u64 = 128;
/// `ulong`: address of the bitmap of allocated blocks of 256 bytes of the first arena.
pub const CONTROL_SHADOW: u64 = 160;
/// 64 bytes that accesses which were refused go to.
pub const CONTROL_SINK: u64 = 192;
/// Bytes of a control block.
pub const CONTROL_BYTES: u64 = 256;

/// The numbers at [`CONTROL_FAULT_CODE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Fault {
    /// An address that nothing is at.
    IllegalAddress = 1,
    /// An address that the size of the access does not divide.
    Misaligned = 2,
    /// `trap`, or threads that wait for each other for ever.
    Trap = 3,
    /// `__assertfail`
    Assert = 4,
    /// Threads that wait for what no other thread will do. The address is [`name_number`] of the kernel.
    Stuck = 5,
}

/// The number by which a fault names a kernel: 64 bits that depend on its name in PTX (FNV-1a).
pub fn name_number(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// An argument of a translated kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// `__global uchar *`: the arena of [`Options::arenas`] with this number.
    Arena(usize),
    /// `__global uchar *`: a symmetric heap as the device sees it. Every kernel has it if [`Options::heap`] is set.
    Heap,
    /// All parameters by value: one structure of [`TranslatedKernel::params_size`] bytes rounded up to 8, and 8 more bytes if
    /// [`TranslatedKernel::dynamic_bytes_at`] names a place. Every kernel that has parameters has it.
    Params,
    /// `ulong`: the device address of the module's data block.
    Data,
    /// `ulong`: the device address of the control block.
    Control,
    /// Local memory of [`TranslatedKernel::local_bytes`] plus the launch's dynamic shared bytes, at least 8.
    Shared,
}

/// A module in OpenCL C.
#[derive(Debug, Clone)]
pub struct Translation {
    /// OpenCL C 1.2.
    pub source: String,
    /// Options to build it with.
    pub build_options: String,
    /// The kernels, in the order of [`Module::entries`].
    pub kernels: Vec<TranslatedKernel>,
}

/// What a launch has to know of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedKernel {
    /// The name in PTX.
    pub name: String,
    /// The name in OpenCL C.
    pub cl_name: String,
    /// Its arguments, in their order.
    pub arguments: Vec<Argument>,
    /// Bytes of all parameters, as [`Entry::params_size`].
    pub params_size: u32,
    /// Bytes of local memory that [`Argument::Shared`] needs besides the launch's dynamic shared bytes: static shared
    /// memory, where the kernel uses dynamic shared memory too, else 0.
    pub local_bytes: u32,
    /// Whether it uses dynamic shared memory.
    pub uses_dynamic_shared: bool,
    /// Where in the structure of its parameters it reads the launch's dynamic shared bytes, as a `ulong` behind all others; none
    /// if it does not.
    pub dynamic_bytes_at: Option<u32>,
    /// Whether it calls `vprintf`.
    pub uses_printf: bool,
    /// Whether it can leave a fault in the control block.
    pub uses_faults: bool,
    /// Whether the threads of a block wait for each other.
    pub uses_barriers: bool,
    /// Whether it runs as a state machine, which is slow: some barrier or warp instruction is reached by some threads only.
    pub is_machine: bool,
}

/// The module in OpenCL C.
///
/// # Errors
///
/// [`TranslateError`] names what cannot be translated, and where: one variant for each reason. Nothing is left out silently.
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

/// Whether threads of a warp exchange values of 64 bits anywhere; else half of the local memory is enough.
fn exchanges_wide(module: &Module) -> bool {
    let is_wide = |what: &Instruction| what.opcode == Opcode::Match && what.ty().bits() == 64;
    module
        .functions()
        .iter()
        .flat_map(|function| function.body.iter().flatten())
        .any(|statement| matches!(statement, Statement::Instruction(what) if is_wide(what)))
}

/// Words of 8 bytes that a kernel's parameters take.
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
    /// How a kernel of this number declares it.
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

/// The arguments that a kernel with this body needs.
fn arguments(entry: &Entry, options: &Options, body: &body::Body) -> Vec<Argument> {
    let words = || body.text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let names = |wanted: &str| words().any(|word| word == wanted);
    // `AT` chooses among all arenas; checks name the only one there is.
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

/// The longest part of a PTX name that a C name keeps: names of C++ templates can have thousands of letters.
const NAME_LETTERS_MAX: usize = 60;

/// The letters and digits of a name, to recognise it by.
fn plain(name: &str) -> String {
    name.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' })
        .take(NAME_LETTERS_MAX)
        .collect()
}
