//! What happens before an operation and its commands, and what its call waits for.

use super::{Key, Ledger, NewCommand, Prepared, Reject};
use crate::bits::Bits;
use crate::cuda::plan::{Act, Op, Side, Work};

impl Ledger {
    pub(super) fn ordered(&self, op: &Op) -> Result<Prepared, Reject> {
        let mut start = self.nodes.until(self.threads[op.thread]);
        if let Act::Await { id } = &op.act {
            let signal = *self.signals.get(id).ok_or(Reject::Invalid("there is no such signal"))?;
            self.nodes.put_before(signal, &mut start);
        }
        let awaited = self.awaited(op, &start);
        let (mut cmds, mut awaits_own) = (Vec::new(), 0);
        if let Some(keys) = self.keys(op) {
            let mut before = self.before(&keys, &start);
            self.also_before(&op.act, &start, &mut before);
            let waits = self.waits_for_itself(&op.act);
            if waits == Waits::Taken {
                cmds.push(NewCommand { before: before.clone(), keys: keys.clone(), takes: true });
            }
            awaits_own = match waits {
                Waits::No => 0,
                Waits::Taken if self.relies.writes_end => 2,
                Waits::Taken | Waits::Done => 1,
            };
            cmds.push(NewCommand { before, keys, takes: false });
        }
        Ok(Prepared { start, cmds, awaited, awaits_own, touches: Vec::new() })
    }

    /// Returns the streams in whose order the command of an operation is, if the operation has a
    /// command.
    fn keys(&self, op: &Op) -> Option<Vec<Key>> {
        match &op.act {
            Act::Record { stream, .. }
            | Act::StreamWait { stream, .. }
            | Act::AllocAsync { stream, .. }
            | Act::FreeAsync { stream, .. }
            | Act::Enqueue { stream, .. }
            | Act::Graph { stream, .. } => Some(vec![self.key(*stream, op.thread)?]),
            // cuMemcpyPeer: "This function is asynchronous with respect to the host, but serialized
            // with respect all pending and future asynchronous work into the current context,
            // srcContext, and dstContext". The ledger assumes only the order of their legacy
            // default streams, which is weaker.
            Act::Now { context, work: Work::Peer { to, from, .. } } => {
                let (to, from) = (self.mems.get(to)?.context, self.mems.get(from)?.context);
                let other = if to == *context { from } else { to };
                Some(vec![Key::Legacy(*context), Key::Legacy(other)])
            }
            Act::Now { context, .. } => Some(vec![Key::Legacy(*context)]),
            _ => None,
        }
    }

    /// Returns what happens before a command in the order of these streams, as far as the host
    /// knows when it enqueues the command. Unordered commands of other threads are left out.
    fn before(&self, keys: &[Key], start: &Bits) -> Bits {
        let mut before = start.clone();
        for cmd in self.cmds.iter().filter(|cmd| start.has(cmd.start)) {
            if keys.iter().any(|&own| cmd.keys.iter().any(|&other| self.is_ordered(own, other))) {
                self.nodes.put_before(cmd.node, &mut before);
            }
        }
        before
    }

    /// Whether commands of two streams run in the order in which they are enqueued.
    ///
    /// "The legacy default stream is an implicit stream which synchronizes with all other streams
    /// in the same CUcontext except for non-blocking streams. [...] When an action is taken in the
    /// legacy stream such as a kernel launch or cudaStreamWaitEvent(), the legacy stream first
    /// waits on all blocking streams, the action is queued in the legacy stream, and then all
    /// blocking streams wait on the legacy stream."
    ///
    /// No document says whether the legacy default stream also waits for a blocking stream that was
    /// destroyed while it had work. The ledger does not rely on it.
    fn is_ordered(&self, one: Key, other: Key) -> bool {
        let implicit = |legacy: Key, blocking: Key| {
            matches!(legacy, Key::Legacy(context) if context == blocking.context())
                && blocking.is_blocking()
                && !self.is_destroyed(blocking)
        };
        one == other || implicit(one, other) || implicit(other, one)
    }

    fn is_destroyed(&self, key: Key) -> bool {
        matches!(key, Key::Made { stream, .. } if !self.streams[&stream].alive)
    }

    /// Adds what a command waits for besides the order of its stream.
    fn also_before(&self, act: &Act, start: &Bits, before: &mut Bits) {
        let mut after = |cmd: usize| self.nodes.put_before(self.cmds[cmd].node, before);
        match act {
            // "Makes all future work submitted to hStream wait for all work captured in hEvent."
            // "If cuEventRecord() has not been called on hEvent, this call acts as if the record
            // has already completed, and so is a functional no-op."
            Act::StreamWait { event, .. } => {
                if let Some(cmd) = self.events.get(event).and_then(|event| event.recorded) {
                    after(cmd);
                }
            }
            // "Each launch is ordered behind both any previous work in hStream and any previous
            // launches of hGraphExec."
            Act::Graph { graph, .. } => {
                let launches = self.graphs.get(graph).map_or(&[][..], |graph| &graph.launches);
                launches
                    .iter()
                    .filter(|&&cmd| start.has(self.cmds[cmd].start))
                    .for_each(|&cmd| after(cmd));
            }
            _ => {}
        }
    }

    /// Returns the moments of earlier operations that a call waits for.
    fn awaited(&self, op: &Op, start: &Bits) -> Vec<usize> {
        let cmds = |wanted: &dyn Fn(Key) -> bool| {
            let known = self.cmds.iter().filter(|cmd| start.has(cmd.start));
            known.filter(|cmd| wanted(cmd.key())).map(|cmd| cmd.node).collect()
        };
        match &op.act {
            // "Waits until the completion of all work currently captured in hEvent." cuEventQuery:
            // "Returns CUDA_SUCCESS if all captured work has been completed".
            Act::EventWait { event, .. } => {
                let cmd = self.events.get(event).and_then(|event| event.recorded);
                cmd.map(|cmd| self.cmds[cmd].node).into_iter().collect()
            }
            // "Waits until the device has completed all operations in the stream specified by
            // hStream."
            Act::StreamSync { stream, .. } => match self.key(*stream, op.thread) {
                Some(own) => cmds(&|key| key == own),
                None => Vec::new(),
            },
            // "Blocks until the current context has completed all preceding requested tasks."
            Act::ContextSync { context } => cmds(&|key| key.context() == *context),
            _ => Vec::new(),
        }
    }

    /// Returns what a synchronous copy waits for before it returns.
    ///
    /// "For transfers from pageable host memory to device memory, a stream sync is performed before
    /// the copy is initiated. The function will return once the pageable buffer has been copied to
    /// the staging memory for DMA transfer to device memory, but the DMA to final destination may
    /// not have completed." "For transfers from pinned host memory to device memory, the function
    /// is synchronous with respect to the host." "For transfers from device to either pageable or
    /// pinned host memory, the function returns only once the copy has completed." "For transfers
    /// from device memory to device memory, no host-side synchronization is performed." "The
    /// cudaMemset functions are asynchronous with respect to the host except when the target memory
    /// is pinned host memory."
    fn waits_for_itself(&self, act: &Act) -> Waits {
        let Act::Now { work: Work::Copy { to, from, .. } | Work::Copy2D { to, from, .. }, .. } =
            act
        else {
            return Waits::No;
        };
        match (to, from) {
            (Side::Device { .. }, Side::Host(from)) if !self.areas[from.area].is_pinned() => {
                Waits::Taken
            }
            (Side::Device { .. }, Side::Device { .. }) => Waits::No,
            _ => Waits::Done,
        }
    }
}

/// Which part of its own work a call waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    No,
    Taken,
    Done,
}

/// Returns the device memory that some work uses.
pub(crate) fn mems_of(work: &Work) -> Vec<usize> {
    let side = |side: &Side| match side {
        Side::Device { mem, .. } => Some(*mem),
        Side::Host(_) => None,
    };
    match work {
        Work::Copy { to, from, .. } | Work::Copy2D { to, from, .. } => {
            [side(to), side(from)].into_iter().flatten().collect()
        }
        Work::Peer { to, from, .. } => vec![*to, *from],
        Work::Fill { mem, .. } | Work::Fill2D { mem, .. } => vec![*mem],
        Work::Launch { a, b, .. } => [Some(*a), *b].into_iter().flatten().collect(),
        Work::Function { .. } => Vec::new(),
    }
}
