//! Whether an operation names existing objects and does only what programs may do.

use super::access::{Piece, branches_are_apart, pieces};
use super::{Ledger, Reject, Space, mems_of};
use crate::cuda::plan::{Act, Kernel, Op, Rows, Side, Stream, Work};
use crate::ledger::ensure;
use crate::plan::Ptr;

impl Ledger {
    pub(super) fn valid(&self, op: &Op) -> Result<(), Reject> {
        ensure(op.thread < self.threads.len(), "there is no such thread")?;
        match &op.act {
            Act::Signal { id } => ensure(!self.signals.contains_key(id), "the signal is there"),
            Act::Await { .. } => Ok(()),
            Act::NewStream { stream, context, .. } => {
                ensure(!self.streams.contains_key(stream), "the stream exists")?;
                self.context(*context)
            }
            Act::DropStream { stream } => self.stream(Stream::Made(*stream)).map(drop),
            Act::NewEvent { event, context, .. } => {
                ensure(!self.events.contains_key(event), "the event exists")?;
                self.context(*context)
            }
            Act::DropEvent { event } | Act::EventWait { event, .. } => self.event(*event),
            Act::Alloc { mem, context, size } => {
                ensure(!self.mems.contains_key(mem) && *size > 0, "the memory exists or is empty")?;
                self.context(*context)
            }
            Act::Free { mem } => self.mem(*mem),
            Act::AllocAsync { mem, stream, size } => {
                ensure(!self.mems.contains_key(mem) && *size > 0, "the memory exists or is empty")?;
                let context = self.stream(*stream)?;
                ensure(self.pools[context], "the device has no memory pools")
            }
            Act::FreeAsync { mem, stream } => {
                self.mem(*mem)?;
                let context = self.stream(*stream)?;
                let known = self.mems[mem];
                ensure(
                    known.pooled && known.context == context,
                    "the memory is not of this context's pool",
                )
            }
            Act::Register { area } => {
                let known = self.areas.get(*area);
                ensure(known.is_some_and(|it| !it.is_pinned()), "the memory is pinned")
            }
            Act::Unregister { area } => ensure(
                self.areas.get(*area).is_some_and(|it| it.registered),
                "it is not registered",
            ),
            Act::Store { to: at, len, .. } | Act::Check { at, len } => self.host(*at, *len),
            Act::Record { event, stream } => {
                self.event(*event)?;
                // "hEvent and hStream must be from the same context."
                let context = self.stream(*stream)?;
                ensure(self.events[event].context == context, "the event is of another context")
            }
            Act::StreamWait { stream, event } => {
                self.event(*event)?;
                self.stream(*stream).map(drop)
            }
            Act::StreamSync { stream, .. } => self.stream(*stream).map(drop),
            Act::ContextSync { context } => self.context(*context),
            Act::Enqueue { stream, work } => {
                let context = self.stream(*stream)?;
                self.work(work, context)
            }
            Act::Now { context, work } => {
                self.context(*context)?;
                let has_form = !matches!(work, Work::Launch { .. } | Work::Function { .. });
                ensure(has_form, "there is no synchronous form")?;
                self.work(work, *context)
            }
            Act::NewGraph { graph, context, parts } => {
                self.context(*context)?;
                let new = !self.graphs.contains_key(graph);
                ensure(new && !parts.is_empty(), "the graph exists or is empty")?;
                parts.iter().try_for_each(|part| self.part(&part.work, *context))?;
                ensure(!parts[0].second, "the first part is of the second branch")?;
                ensure(branches_are_apart(parts), "the branches conflict")
            }
            Act::Graph { stream, graph } => {
                let known =
                    self.graphs.get(graph).ok_or(Reject::Invalid("there is no such graph"))?;
                let context = self.stream(*stream)?;
                ensure(known.context == context, "the graph is of another context")?;
                known.parts.iter().try_for_each(|part| self.part(&part.work, context))
            }
        }
    }

    /// Checks what a graph may contain: no copies between contexts, and no copies of pageable
    /// memory, because not every driver can capture those.
    fn part(&self, work: &Work, context: usize) -> Result<(), Reject> {
        self.work(work, context)?;
        ensure(!matches!(work, Work::Peer { .. }), "it copies between contexts")?;
        let copies = !matches!(work, Work::Function { .. });
        let pageable =
            |space: &Space| matches!(space, Space::Area(area) if !self.areas[*area].pinned);
        let apart = !copies || !pieces(work).iter().any(|piece| pageable(&piece.space));
        ensure(apart, "a graph copies pageable memory")
    }

    fn work(&self, work: &Work, context: usize) -> Result<(), Reject> {
        for Piece { space, end, .. } in pieces(work) {
            match space {
                Space::Mem(mem) => {
                    self.mem(mem)?;
                    ensure(end <= self.mems[&mem].size, "it is outside the memory")?;
                }
                Space::Area(area) => {
                    ensure(
                        self.areas.get(area).is_some_and(|it| end <= it.len),
                        "there is no such memory",
                    )?;
                }
                _ => {}
            }
        }
        let contexts: Vec<usize> = mems_of(work).iter().map(|mem| self.mems[mem].context).collect();
        match work {
            Work::Peer { to, from, len, .. } => {
                ensure(to != from && contexts[0] != contexts[1], "it is one context")?;
                ensure(contexts.contains(&context) && *len > 0, "the stream is of a third context")
            }
            _ => {
                ensure(contexts.iter().all(|it| *it == context), "the memory is of another context")
            }
        }?;
        match work {
            Work::Copy { to, from, len } => {
                ensure(*len > 0, "it is empty")?;
                sides(to, from)?;
                apart(work)
            }
            Work::Copy2D { to, from, rows } => {
                rectangle(rows)?;
                sides(to, from)?;
                apart(work)
            }
            Work::Fill { offset, len, unit, .. } => {
                let fits = matches!(unit, 1 | 2 | 4) && *len > 0;
                ensure(
                    fits && offset % unit == 0 && len % unit == 0,
                    "the fill is not of whole units",
                )
            }
            Work::Fill2D { offset, rows, .. } => {
                rectangle(rows)?;
                let whole = offset % 4 == 0 && rows.width % 4 == 0 && rows.to_pitch % 4 == 0;
                ensure(whole, "the fill is not of whole words")
            }
            Work::Launch { kernel, b, count, .. } => {
                let fits = b.is_some() == (*kernel == Kernel::Mix) && *count > 0;
                ensure(fits, "the arguments do not fit")?;
                // A thread of the kernel must not write what another thread reads.
                apart(work)
            }
            Work::Peer { .. } | Work::Function { .. } => Ok(()),
        }
    }

    fn context(&self, context: usize) -> Result<(), Reject> {
        ensure(context < self.contexts.len(), "there is no such context")
    }

    fn stream(&self, stream: Stream) -> Result<usize, Reject> {
        match stream {
            Stream::Legacy(context) | Stream::PerThread(context) => {
                self.context(context).map(|()| context)
            }
            Stream::Made(stream) => {
                let known = self.streams.get(&stream).filter(|it| it.alive);
                known.map(|it| it.context).ok_or(Reject::Invalid("there is no such stream"))
            }
        }
    }

    fn event(&self, event: usize) -> Result<(), Reject> {
        ensure(self.events.get(&event).is_some_and(|it| it.alive), "there is no such event")
    }

    fn mem(&self, mem: usize) -> Result<(), Reject> {
        ensure(self.mems.get(&mem).is_some_and(|it| it.alive), "there is no such memory")
    }

    fn host(&self, at: Ptr, len: usize) -> Result<(), Reject> {
        let fits = self.areas.get(at.area).is_some_and(|area| at.offset + len <= area.len);
        ensure(fits, "there is no such host memory")
    }
}

/// Rejects copies within host memory.
fn sides(to: &Side, from: &Side) -> Result<(), Reject> {
    let hosts = matches!((to, from), (Side::Host(_), Side::Host(_)));
    ensure(!hosts, "both sides are host memory")
}

/// Rejects work that reads what it writes.
fn apart(work: &Work) -> Result<(), Reject> {
    let [source, target] = &pieces(work)[..] else { return Ok(()) };
    ensure(source.is_apart_from(target), "the ranges overlap")
}

fn rectangle(rows: &Rows) -> Result<(), Reject> {
    let fits = rows.width > 0 && rows.height > 0;
    ensure(
        fits && rows.to_pitch >= rows.width && rows.from_pitch >= rows.width,
        "the rows do not fit",
    )
}
