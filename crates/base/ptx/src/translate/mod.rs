//! Translation of PTX to OpenCL C.
//!
//! Each kernel of a module becomes one OpenCL kernel. Device functions are inlined into the kernels
//! that call them (`inline`). Then the control flow is analysed (`flow`, `uniform`), and each
//! instruction becomes one statement (`statement`, and the files below it, one per family of
//! instructions). `body` puts the statements together. Registers become C variables, and labels
//! stay labels. `prelude/*.cl` has the functions that the statements call; a program gets those
//! that it uses (`prelude`).
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
//! `closing` puts one more meeting behind branches that contain one, because of a defect of PoCL.
//!
//! Where the lanes of a warp exchange values through memory without a meeting, `order` inserts a
//! stop; `stop_search` finds the places. `alias` compares the addresses (`address_form`), with the
//! knowledge of `linear`, `roots`, `values` and `conditions`. `regions` finds where lanes that took
//! different paths come together again, and `spin` finds loops that only wait. `peers` decides
//! whether such a loop may wait for another thread of its own block. `known` names kernels of
//! libraries that need none of these stops. `idle_votes` and `idle_syncs` take votes and meetings
//! without a use from them, and `shorter_way` a branch.
//!
//! Independent votes share a barrier (`vote_rows`).
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

mod access;
mod address;
mod address_form;
mod agree;
mod alias;
mod atomic;
mod body;
mod broadcast;
mod c_type;
mod call;
mod closing;
mod compare;
mod conditions;
mod control;
mod convergence;
mod convert;
mod effects;
mod ending;
mod error;
mod float;
mod flow;
mod half;
mod idle_syncs;
mod idle_votes;
mod inline;
mod integer;
mod jump;
mod kept;
mod kernel;
mod known;
mod linear;
mod lvalue;
mod machine;
mod memory;
mod operand;
mod options;
mod order;
mod param;
mod paths;
mod peers;
mod prelude;
mod promote;
mod regions;
mod roots;
mod shorter_way;
mod special;
mod spin;
mod statement;
mod stop_search;
#[cfg(test)]
mod tests;
mod texture;
mod turns;
mod uniform;
mod values;
mod vote_rows;
mod warp;
mod writer;

use std::fmt::Write as _;

pub use control::{
    CONTROL_BYTES, CONTROL_CLOCK, CONTROL_FAULT_ADDRESS, CONTROL_FAULT_CODE, CONTROL_FAULT_LINE,
    CONTROL_MALLOC, CONTROL_PRINTF, CONTROL_SHADOW, CONTROL_SINK, CONTROL_ZERO, Fault,
    MALLOC_UNIT_BYTES, name_number,
};
pub use error::TranslateError;
pub use kernel::{Argument, RefusedKernel, TranslatedKernel, Translation};
pub use options::Options;

use body::KernelBody;
use kernel::parameter_words;

/// Largest number of threads in a block of a translated kernel.
pub use crate::ir::BLOCK_THREADS_MAX;
use crate::ir::{Entry, Function, Instruction, Module, Opcode, Statement};
pub use crate::ir::{HEAP_BYTES_MAX, HEAP_WINDOW};

/// Translates a whole module to OpenCL C.
///
/// # Errors
///
/// [`TranslateError`] names what cannot be translated, and where. Each reason has a variant, and
/// nothing is silently omitted.
pub fn translate(module: &Module, options: &Options) -> Result<Translation, TranslateError> {
    let all: Vec<usize> = (0..module.entries().len()).collect();
    let mut made = translate_kernels(module, &all, options)?;
    if made.refused.is_empty() { Ok(made) } else { Err(made.refused.swap_remove(0).error) }
}

/// Translates some kernels of a module to one program in OpenCL C. `entries` are indices into
/// [`Module::entries`]. A kernel has the same text whichever others are translated with it.
///
/// # Errors
///
/// [`TranslateError::Arenas`]. What one kernel cannot do is in [`Translation::refused`].
pub fn translate_kernels(
    module: &Module,
    entries: &[usize],
    options: &Options,
) -> Result<Translation, TranslateError> {
    if options.arenas.is_empty() || (options.check && options.arenas.len() > 1) {
        return Err(TranslateError::Arenas { count: options.arenas.len() });
    }
    let mut code = String::new();
    let (mut kernels, mut refused) = (Vec::new(), Vec::new());
    for &index in entries {
        let Some(entry) = module.entries().get(index) else { continue };
        match kernel(module, entry, index, options, &mut code) {
            Ok(made) => kernels.push(made),
            Err(error) => refused.push(RefusedKernel { name: entry.name.clone(), error }),
        }
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
    let wide = exchanges_wide(module, entries);
    source.push_str(&prelude::parts(&code, options, wide));
    source.push_str(&code);
    let build_options =
        if options.exact_division { "-cl-fp32-correctly-rounded-divide-sqrt" } else { "" };
    Ok(Translation { source, build_options: build_options.to_owned(), kernels, refused })
}

/// Whether threads of a warp exchange 64-bit values in one of these kernels; otherwise half of the
/// local memory is enough.
fn exchanges_wide(module: &Module, entries: &[usize]) -> bool {
    let is_wide = |what: &Instruction| what.opcode == Opcode::Match && what.ty().bits() == 64;
    let entries = entries.iter().filter_map(|index| module.entries().get(*index));
    entries
        .flat_map(|entry| entry.callees.iter().chain([&entry.function]))
        .flat_map(|id| module.function(*id).body.iter().flatten())
        .any(|statement| matches!(statement, Statement::Instruction(what) if is_wide(what)))
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
    flat.may_fail = options.check || ending::has_traps(module, &flat);
    vote_rows::gather(&mut flat);
    let body = match known_body(module, entry, &flat, options)? {
        Some(body) => body,
        None => body_of(module, entry, flat, options)?,
    };
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
    let scalar = if body.is_machine { "ps_scalar " } else { "" };
    let _ =
        writeln!(code, "__kernel {scalar}{attribute}void {cl_name}({}) {{", declared.join(", "));
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

/// Inserts the meetings that a kernel needs beside its own, and writes its body.
fn body_of(
    module: &Module,
    entry: &Entry,
    mut flat: Function,
    options: &Options,
) -> Result<KernelBody, TranslateError> {
    let without_stops = flat.clone();
    order::insert_stops(module, entry, &mut flat, false);
    let stays_open = closing::close_branches(&mut flat);
    if stays_open {
        flat = without_stops;
        order::insert_stops(module, entry, &mut flat, true);
    }
    KernelBody::of(module, entry, &flat, options, stays_open)
}

/// Writes the body of a kernel with a known protocol (see `known`), which needs no other meetings
/// than its own. Returns `None` for other kernels, if the kernel is a state machine even so, and if
/// its threads may fail: others would wait for what a failed thread does not store.
fn known_body(
    module: &Module,
    entry: &Entry,
    flat: &Function,
    options: &Options,
) -> Result<Option<KernelBody>, TranslateError> {
    if !known::is_known(&entry.name) || flat.may_fail {
        return Ok(None);
    }
    let mut flat = flat.clone();
    idle_votes::remove(&mut flat);
    idle_syncs::remove(&mut flat);
    shorter_way::leave_out(&mut flat);
    if closing::close_branches(&mut flat) {
        return Ok(None);
    }
    let body = KernelBody::of(module, entry, &flat, options, false)?;
    Ok((!body.is_machine).then_some(body))
}

/// Returns the arguments that a kernel with this body needs.
fn arguments(entry: &Entry, options: &Options, body: &KernelBody) -> Vec<Argument> {
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
