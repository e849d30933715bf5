//! Permitted changes of executable graphs.

use penstock_cuda_sys::driver::*;

use super::Graph;
use super::work::Work;
use crate::edge::Object as _;

/// Why a graph cannot replace another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub(crate) result: u32,
    /// Node of the new graph; 0 if none in particular.
    pub(crate) node: u64,
    /// Start of the edge that is not in the old graph; 0 if none.
    pub(crate) from: u64,
    /// The code that the function returns.
    pub(crate) code: CUresult,
}

impl Mismatch {
    fn new(result: u32, node: u64) -> Self {
        Self { result, node, from: 0, code: CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE }
    }

    pub(super) fn of_code(code: CUresult) -> Self {
        Self { code, ..Self::new(CU_GRAPH_EXEC_UPDATE_ERROR, 0) }
    }
}

/// Checks whether work of an executable graph may be replaced by other work.
///
/// # Errors
/// A value of `CU_GRAPH_EXEC_UPDATE_ERROR_...`.
pub(super) fn check(old: &Work, new: &Work) -> Result<(), u32> {
    let when = |holds: bool, result: u32| if holds { Ok(()) } else { Err(result) };
    when(old.kind() == new.kind(), CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED)?;
    match (old, new) {
        // "The owning context of the function cannot change."
        (Work::Kernel(old), Work::Kernel(new)) => when(
            old.function.loaded.is_with(&new.function.loaded),
            CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE,
        ),
        // "The source and destination memory ... must be allocated from the same contexts as the
        // original". The kinds of memory must be the same, too.
        (Work::Copy(old_context, old), Work::Copy(context, new)) => when(
            old_context.ptr_eq(context)
                && old.to.kind == new.to.kind
                && old.from.kind == new.from.kind,
            CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED,
        ),
        (Work::Fill(old, _), Work::Fill(new, _)) => {
            when(old.ptr_eq(new), CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED)
        }
        (Work::Library(old, _), Work::Library(new, _)) => {
            when(old.ptr_eq(new), CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED)
        }
        (Work::Library(..), _) | (_, Work::Library(..)) => {
            Err(CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE)
        }
        // Events of another context would need another lane.
        (Work::Record(old), Work::Record(new)) => {
            when(old.is_beside(new), CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED)
        }
        (Work::Allocate(_) | Work::Free(_), _) => Err(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED),
        _ => Ok(()),
    }
}

/// Returns the new work of each node of `old`, by the node's number, that makes it equal to `new`.
/// Nodes correspond in the order in which they were made.
pub(super) fn changes(old: &Graph, new: &Graph) -> Result<Vec<(u64, Work)>, Mismatch> {
    let (old, new) = (old.shape(), new.shape());
    if old.nodes.len() != new.nodes.len() {
        return Err(Mismatch::new(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 0));
    }
    let mut all = Vec::new();
    for (index, (from, to)) in old.nodes.iter().zip(&new.nodes).enumerate() {
        let (old_work, work) = (from.work(), to.work());
        check(&old_work, &work).map_err(|result| Mismatch::new(result, to.number()))?;
        let sorted = |before: &[Vec<usize>]| {
            let mut before = before.get(index).cloned().unwrap_or_default();
            before.sort_unstable();
            before
        };
        let (had, has) = (sorted(&old.before), sorted(&new.before));
        if had != has {
            let added =
                has.iter().find(|before| !had.contains(before)).and_then(|at| new.nodes.get(*at));
            let mismatch = Mismatch::new(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, to.number());
            return Err(Mismatch { from: added.map_or(0, |node| node.number()), ..mismatch });
        }
        match (old_work, work) {
            (Work::Child(old), Work::Child(new)) => all.extend(changes(&old, &new)?),
            (_, work) => all.push((from.number(), work)),
        }
    }
    Ok(all)
}
