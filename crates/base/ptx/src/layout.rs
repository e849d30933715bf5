//! Layout of a whole module: its call graph, and the offsets of its shared and local variables.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::{ParseError, ParseErrorKind};
use crate::ir::{
    Base, CallTarget, Entry, Function, FunctionId, Instruction, Module, Operand, Param, SharedId,
    Space, Statement, Symbol,
};

/// Largest shared memory of a block; CUDA allows 227 KiB.
const SHARED_BYTES_MAX: u32 = 1 << 20;

/// Largest local memory of a thread; CUDA allows 512 KiB.
const LOCAL_BYTES_MAX: u32 = 1 << 20;

/// Smallest alignment of dynamic shared memory. CUDA aligns it so that any vector fits.
const DYNAMIC_ALIGN_MIN: u32 = 16;

/// Rounds `value` up to a multiple of `align`, a power of two. Returns the largest multiple if the
/// result does not fit.
pub(crate) fn align_up(value: u64, align: u64) -> u64 {
    let mask = align.max(1) - 1;
    value.checked_add(mask).map_or(!mask, |value| value & !mask)
}

/// Limits that a kernel sets for its launches.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LaunchBounds {
    /// Product of the numbers of `.maxntid`.
    pub(crate) max_threads: Option<u32>,
    /// Numbers of `.reqntid`; missing ones are 1.
    pub(crate) required: Option<[u32; 3]>,
}

/// The functions that a function calls and the shared variables that it names.
#[derive(Debug, Default)]
struct Uses {
    calls: Vec<FunctionId>,
    shared: HashSet<SharedId>,
}

/// Fills in the entries, and the offsets of shared and local variables.
pub(crate) fn lay_out(
    module: &mut Module,
    entries: &[(FunctionId, LaunchBounds)],
) -> Result<(), ParseError> {
    for function in &mut module.functions {
        frame(function)?;
    }
    let taken: Vec<(FunctionId, &Function)> = ids(module)
        .zip(&module.functions)
        .filter(|(_, function)| function.address_taken && !function.is_entry)
        .collect();
    let uses: Vec<Uses> = module.functions.iter().map(|function| uses(function, &taken)).collect();
    let mut shared_of = Vec::new();
    for (id, bounds) in entries {
        let reached = reach(*id, &uses);
        let shared: HashSet<SharedId> =
            reached.order.iter().flat_map(|id| uses[id.index()].shared.iter().copied()).collect();
        let function = module.function(*id);
        let params: Vec<Param> = function
            .params
            .iter()
            .map(|formal| Param { offset: formal.offset, size: formal.size, align: formal.align })
            .collect();
        let local_bytes = deepest(&reached, &uses, &module.functions);
        if local_bytes > LOCAL_BYTES_MAX {
            return Err(too_many(function, "bytes of local memory", LOCAL_BYTES_MAX));
        }
        let entry = Entry {
            name: function.name.clone(),
            params_size: params.last().map_or(0, |last| last.offset + last.size),
            params,
            static_shared: 0,
            local_bytes,
            max_threads: bounds.max_threads,
            required: bounds.required,
            uses_dynamic_shared: shared.iter().any(|id| module.shared[id.index()].dynamic),
            function: *id,
            callees: reached.order.iter().copied().filter(|callee| callee != id).collect(),
            recursive: reached.recursive,
        };
        module.entries.push(entry);
        shared_of.push(shared);
    }
    lay_out_shared(module, &shared_of)
}

fn ids(module: &Module) -> impl Iterator<Item = FunctionId> + use<> {
    (0..u32::try_from(module.functions.len()).unwrap_or(u32::MAX)).map(FunctionId)
}

fn too_many(function: &Function, what: &'static str, limit: u32) -> ParseError {
    ParseError {
        line: function.line,
        column: 1,
        kind: ParseErrorKind::TooMany { what, limit: u64::from(limit) },
    }
}

/// Lays out a function's own local variables.
fn frame(function: &mut Function) -> Result<(), ParseError> {
    let mut end = 0u64;
    let mut frame_align = 1;
    for variable in function.variables.iter_mut().filter(|variable| variable.space == Space::Local)
    {
        let offset = align_up(end, u64::from(variable.align));
        end = offset.saturating_add(u64::from(variable.size));
        variable.offset = u32::try_from(offset).unwrap_or(u32::MAX);
        frame_align = frame_align.max(variable.align);
    }
    end = align_up(end, u64::from(frame_align));
    if end > u64::from(LOCAL_BYTES_MAX) {
        return Err(too_many(function, "bytes of local memory", LOCAL_BYTES_MAX));
    }
    function.frame_bytes = u32::try_from(end).unwrap_or(u32::MAX);
    function.frame_align = frame_align;
    Ok(())
}

/// Collects the functions that a function calls and the shared variables that it names. An indirect
/// call without a list of targets counts as a call of every function whose address is taken and
/// whose signature fits.
fn uses(function: &Function, taken: &[(FunctionId, &Function)]) -> Uses {
    let mut found = Uses::default();
    // Calls with the same prototype call the same functions.
    let mut known = HashSet::new();
    for statement in function.body.iter().flatten() {
        let Statement::Instruction(instruction) = statement else { continue };
        for_each_symbol(instruction, &mut |symbol| {
            if let Symbol::Shared(id) = symbol {
                found.shared.insert(id);
            }
        });
        match instruction.call.as_deref().map(|call| &call.target) {
            Some(CallTarget::Direct(id)) => found.calls.push(*id),
            Some(CallTarget::Indirect { targets: Some(targets), .. }) => {
                found.calls.extend_from_slice(targets)
            }
            Some(CallTarget::Indirect { targets: None, signature, .. })
                if known.insert(Arc::as_ptr(signature)) =>
            {
                let fitting = taken.iter().filter(|(_, function)| function.fits(signature));
                found.calls.extend(fitting.map(|(id, _)| *id));
            }
            Some(CallTarget::Indirect { .. }) | None => {}
        }
    }
    found.calls.sort_unstable();
    found.calls.dedup();
    found
}

fn for_each_symbol(instruction: &Instruction, found: &mut impl FnMut(Symbol)) {
    let call = instruction.call.as_deref();
    let call_operands =
        call.into_iter().flat_map(|call| call.returns.iter().chain(&call.arguments));
    for operand in instruction.operands.iter().chain(call_operands) {
        in_operand(operand, found);
    }
}

fn in_operand(operand: &Operand, found: &mut impl FnMut(Symbol)) {
    match operand {
        Operand::Symbol { symbol, .. } => found(*symbol),
        Operand::Address(address) => {
            if let Base::Symbol(symbol) = address.base {
                found(symbol);
            }
        }
        // Vectors hold registers and numbers, textures hold handles. Neither names a shared
        // variable.
        _ => {}
    }
}

/// The functions that a kernel can reach.
struct Reached {
    /// Callees before callers; the kernel is the last.
    order: Vec<FunctionId>,
    recursive: bool,
}

/// Walks the calls depth-first. The walk is iterative, because the text decides the depth.
fn reach(entry: FunctionId, uses: &[Uses]) -> Reached {
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        New,
        Open,
        Done,
    }
    let mut state = vec![Visit::New; uses.len()];
    let mut reached = Reached { order: Vec::new(), recursive: false };
    let mut stack = vec![(entry, 0usize)];
    state[entry.index()] = Visit::Open;
    while let Some((id, next)) = stack.last_mut() {
        match uses[id.index()].calls.get(*next) {
            Some(callee) => {
                *next += 1;
                match state[callee.index()] {
                    Visit::New => {
                        state[callee.index()] = Visit::Open;
                        stack.push((*callee, 0));
                    }
                    Visit::Open => reached.recursive = true,
                    Visit::Done => {}
                }
            }
            None => {
                state[id.index()] = Visit::Done;
                reached.order.push(*id);
                stack.pop();
            }
        }
    }
    reached
}

/// Returns the bytes of local memory of the deepest chain of calls. A recursive call counts once.
fn deepest(reached: &Reached, uses: &[Uses], functions: &[Function]) -> u32 {
    let mut depth = vec![0u64; functions.len()];
    let mut last = 0;
    for id in &reached.order {
        let function = &functions[id.index()];
        let below =
            uses[id.index()].calls.iter().map(|callee| depth[callee.index()]).max().unwrap_or(0);
        last = align_up(below, u64::from(function.frame_align))
            .saturating_add(u64::from(function.frame_bytes));
        depth[id.index()] = last;
    }
    u32::try_from(last).unwrap_or(u32::MAX)
}

/// Gives each shared variable one offset that is free in every kernel that uses it. Variables that
/// many kernels use come first, which keeps the gaps small.
fn lay_out_shared(module: &mut Module, shared_of: &[HashSet<SharedId>]) -> Result<(), ParseError> {
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); module.shared.len()];
    for (entry, shared) in shared_of.iter().enumerate() {
        for id in shared {
            users[id.index()].push(entry);
        }
    }
    let mut order: Vec<usize> = (0..module.shared.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(users[*index].len()));
    let mut ends = vec![0u64; shared_of.len()];
    for index in order {
        let variable = &mut module.shared[index];
        if variable.dynamic {
            continue;
        }
        let end = users[index].iter().map(|entry| ends[*entry]).max().unwrap_or(0);
        let offset = align_up(end, u64::from(variable.align));
        variable.offset = u32::try_from(offset).unwrap_or(u32::MAX);
        for entry in &users[index] {
            ends[*entry] = offset.saturating_add(u64::from(variable.size));
        }
    }
    for ((entry, shared), end) in module.entries.iter_mut().zip(shared_of).zip(ends) {
        let dynamic =
            shared.iter().map(|id| &module.shared[id.index()]).filter(|variable| variable.dynamic);
        let align = dynamic
            .map(|variable| variable.align)
            .max()
            .map_or(1, |align| align.max(DYNAMIC_ALIGN_MIN));
        let size = align_up(end, u64::from(align));
        if size > u64::from(SHARED_BYTES_MAX) {
            return Err(too_many(
                &module.functions[entry.function.index()],
                "bytes of shared memory",
                SHARED_BYTES_MAX,
            ));
        }
        entry.static_shared = u32::try_from(size).unwrap_or(u32::MAX);
    }
    Ok(())
}
