//! Runs a CUDA program on an implementation and compares what it sees with the model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use penstock_cuda_sys::driver::CUDA_ERROR_NOT_READY;
use penstock_process::Lock;

use super::backend::{
    At, Backend, Caller, Command, Function, Handle, PeerSide, Place, Stream as Target,
};
use super::ledger::{Ledger, Reject};
use super::model::{self, Expected};
use super::plan::{Act, Job, Op, Platform, Program, Side, Stream, Work};
use crate::finding::{Finding, Kind};
use crate::model::Bytes;
use crate::plan::Ptr;
use crate::run::course::Course;
use crate::run::{Progress, rest};

/// Code of a query about work that has not ended.
const NOT_READY: i32 = CUDA_ERROR_NOT_READY.0.cast_signed();

/// A valid program, with what it must see.
#[derive(Debug)]
pub struct Prepared<'a> {
    pub program: &'a Program,
    /// The order of the program's operations.
    pub ledger: Ledger,
    /// What the program must see.
    pub expected: Arc<Expected>,
}

impl<'a> Prepared<'a> {
    /// Checks a program and predicts what it sees.
    ///
    /// # Errors
    ///
    /// The first operation that the ledger rejects.
    pub fn new(program: &'a Program, platform: &Platform) -> Result<Self, (usize, Reject)> {
        let ledger = Ledger::of(program, platform)?;
        let expected = Arc::new(model::predict(program, &ledger, &ledger.nodes.sequence()));
        Ok(Self { program, ledger, expected })
    }
}

/// Runs a program. Calls `report` at once with the first finding, because the program's other
/// threads may never end then.
pub fn run(
    prepared: &Prepared<'_>,
    backend: &dyn Backend,
    progress: &Progress,
    report: &(dyn Fn(Finding) + Sync),
) {
    let state = State {
        prepared,
        backend,
        course: Course::new(report),
        table: Lock::default(),
        seen: Arc::default(),
    };
    if let Err(finding) = state.open() {
        return state.fail(finding);
    }
    let Program { threads, ops, .. } = prepared.program;
    state.course.run(*threads, ops, progress, |index, op| {
        let performed = state.perform(index, op).and_then(|()| state.heard());
        performed.map_err(|finding| state.fail(finding)).is_ok()
    });
    if !state.course.has_failed()
        && let Err(finding) = state.close()
    {
        state.fail(finding);
    }
}

#[derive(Default)]
struct Table {
    contexts: Vec<Handle>,
    areas: Vec<Handle>,
    // Ordered by number, because the objects are released in this order at the end.
    streams: BTreeMap<usize, Handle>,
    events: BTreeMap<usize, Handle>,
    mems: BTreeMap<usize, Handle>,
    graphs: BTreeMap<usize, Handle>,
}

/// The first finding of a host function.
type Seen = Arc<Lock<Option<Finding>>>;

struct State<'a> {
    prepared: &'a Prepared<'a>,
    backend: &'a dyn Backend,
    course: Course<'a>,
    table: Lock<Table>,
    seen: Seen,
}

impl State<'_> {
    fn fail(&self, finding: Finding) {
        if self.course.fail(finding) {
            self.backend.abandon();
        }
    }

    fn open(&self) -> Result<(), Finding> {
        let mut table = self.table.lock();
        for context in &self.prepared.program.contexts {
            let new = self.backend.context(*context);
            table.contexts.push(
                new.map_err(|code| outside(format!("{context:?} cannot be opened: {code}")))?,
            );
        }
        for area in &self.prepared.program.areas {
            let context =
                *table.contexts.first().ok_or_else(|| outside("no context".to_owned()))?;
            let new = self.backend.new_area(context, area.len, area.pinned);
            table.areas.push(new.map_err(|code| outside(format!("no host memory: {code}")))?);
        }
        Ok(())
    }

    /// Returns an error if a host function has a finding.
    fn heard(&self) -> Result<(), Finding> {
        self.seen.lock().clone().map_or(Ok(()), Err)
    }

    /// Waits for all work and releases the objects that the program leaves.
    fn close(&self) -> Result<(), Finding> {
        let table = std::mem::take(&mut *self.table.lock());
        let ledger = &self.prepared.ledger;
        let by = |context: usize| Caller { context: table.contexts[context], thread: 0 };
        for context in 0..table.contexts.len() {
            let code = self.backend.context_sync(by(context));
            if code != 0 {
                return Err(outside(format!("cuCtxSynchronize at the end returned {code}")));
            }
        }
        self.heard()?;
        let mut codes = Vec::new();
        for (id, graph) in &table.graphs {
            codes.push(self.backend.drop_graph(by(ledger.graphs[id].context), *graph));
        }
        for (id, event) in &table.events {
            codes.push(self.backend.drop_event(by(ledger.events[id].context), *event));
        }
        for (id, mem) in &table.mems {
            codes.push(self.backend.free(by(ledger.mems[id].context), *mem));
        }
        for (id, stream) in &table.streams {
            codes.push(self.backend.drop_stream(by(ledger.streams[id].context), *stream));
        }
        for (area, known) in table.areas.iter().zip(&ledger.areas) {
            if known.registered {
                codes.push(self.backend.unregister(by(0), *area));
            }
            codes.push(self.backend.drop_area(table.contexts[0], *area));
        }
        match codes.iter().find(|code| **code != 0) {
            Some(code) => Err(outside(format!("a release at the end returned {code}"))),
            None => Ok(()),
        }
    }

    fn perform(&self, index: usize, op: &Op) -> Result<(), Finding> {
        let done = |code: i32| if code == 0 { Ok(()) } else { Err(wrong_code(index, code)) };
        let made = |result: Result<Handle, i32>| result.map_err(|code| wrong_code(index, code));
        let by = |context: usize| Caller { context: self.context(context), thread: op.thread };
        let of = |stream: Stream| {
            let context =
                self.prepared.ledger.key(stream, op.thread).map_or(0, super::ledger::Key::context);
            (by(context), self.stream(stream))
        };
        let backend = self.backend;
        match &op.act {
            Act::Signal { id } => self.course.signal(*id),
            Act::Await { id } => self.course.await_signal(*id),
            Act::NewStream { stream, context, blocking } => {
                let new = made(backend.new_stream(by(*context), *blocking))?;
                self.table.lock().streams.insert(*stream, new);
            }
            Act::DropStream { stream } => {
                let context = self.prepared.ledger.streams[stream].context;
                let known = self.table.lock().streams.remove(stream);
                done(known.map_or(0, |known| backend.drop_stream(by(context), known)))?;
            }
            Act::NewEvent { event, context, timing } => {
                let new = made(backend.new_event(by(*context), *timing))?;
                self.table.lock().events.insert(*event, new);
            }
            Act::DropEvent { event } => {
                let context = self.prepared.ledger.events[event].context;
                let known = self.table.lock().events.remove(event);
                done(known.map_or(0, |known| backend.drop_event(by(context), known)))?;
            }
            Act::Alloc { mem, context, size } => {
                let new = made(backend.alloc(by(*context), *size))?;
                self.table.lock().mems.insert(*mem, new);
            }
            Act::AllocAsync { mem, stream, size } => {
                let (by, stream) = of(*stream);
                let new = made(backend.alloc_async(by, stream, *size))?;
                self.table.lock().mems.insert(*mem, new);
            }
            Act::Free { mem } | Act::FreeAsync { mem, .. } => {
                let context = self.prepared.ledger.mems[mem].context;
                let known = self.table.lock().mems.remove(mem).unwrap_or(Handle(0));
                done(match &op.act {
                    Act::FreeAsync { stream, .. } => {
                        let (by, stream) = of(*stream);
                        backend.free_async(by, stream, known)
                    }
                    _ => backend.free(by(context), known),
                })?;
            }
            Act::Register { area } => done(backend.register(by(0), self.area(*area)))?,
            Act::Unregister { area } => done(backend.unregister(by(0), self.area(*area)))?,
            Act::Store { to, len, seed } => {
                backend.memory().store(self.at(*to), &model::pattern_bytes(*seed, *len));
            }
            Act::Check { at, len } => {
                let seen = backend.memory().load(self.at(*at), *len);
                let expected = self.prepared.expected.look(index, 0);
                if let Some(finding) = expected.and_then(|it| difference(index, it, &seen)) {
                    return Err(finding);
                }
            }
            Act::Record { event, stream } => {
                let (by, stream) = of(*stream);
                done(backend.record(by, self.event(*event), stream))?;
            }
            Act::StreamWait { stream, event } => {
                let (by, stream) = of(*stream);
                done(backend.stream_wait(by, stream, self.event(*event)))?;
            }
            Act::EventWait { event, query } => {
                let by = by(self.prepared.ledger.events[event].context);
                let event = self.event(*event);
                if *query {
                    done(self.until_ready(|| backend.event_query(by, event)))?;
                } else {
                    done(backend.event_sync(by, event))?;
                }
            }
            Act::StreamSync { stream, query } => {
                let (by, stream) = of(*stream);
                if *query {
                    done(self.until_ready(|| backend.stream_query(by, stream)))?;
                } else {
                    done(backend.stream_sync(by, stream))?;
                }
            }
            Act::ContextSync { context } => done(backend.context_sync(by(*context)))?,
            Act::Enqueue { stream, work } => {
                let (by, stream) = of(*stream);
                let command = self.command(work, &[index], 0);
                done(backend.enqueue(by, Some(stream), &command))?;
            }
            Act::Now { context, work } => {
                done(backend.enqueue(by(*context), None, &self.command(work, &[index], 0)))?;
            }
            Act::NewGraph { graph, context, parts } => {
                let launches = self.launches(*graph);
                let command = |(place, part): (usize, &super::plan::Part)| {
                    (part.second, self.command(&part.work, &launches, place))
                };
                let parts: Vec<_> = parts.iter().enumerate().map(command).collect();
                let new = made(backend.new_graph(by(*context), &parts))?;
                self.table.lock().graphs.insert(*graph, new);
            }
            Act::Graph { stream, graph } => {
                let known = self.table.lock().graphs.get(graph).copied().unwrap_or(Handle(0));
                let (by, stream) = of(*stream);
                done(backend.launch(by, known, stream))?;
            }
        }
        Ok(())
    }

    /// Returns the operations that launch a graph, in the order in which the launches run.
    fn launches(&self, graph: usize) -> Vec<usize> {
        let launches = |op: &Op| matches!(op.act, Act::Graph { graph: own, .. } if own == graph);
        let ops = self.prepared.program.ops.iter().enumerate();
        ops.filter(|(_, op)| launches(op)).map(|(index, _)| index).collect()
    }

    fn until_ready(&self, ask: impl Fn() -> i32) -> i32 {
        loop {
            let code = ask();
            if code != NOT_READY || self.course.has_failed() {
                return code;
            }
            std::thread::yield_now();
        }
    }

    /// Returns the command of some work. `ops` are the operations that perform it, one after the
    /// other.
    fn command(&self, work: &Work, ops: &[usize], place: usize) -> Command {
        match *work {
            Work::Copy { to, from, len } => {
                Command::Copy { to: self.place(to), from: self.place(from), len }
            }
            Work::Copy2D { to, from, rows } => {
                Command::Copy2D { to: self.place(to), from: self.place(from), rows }
            }
            Work::Peer { to, to_offset, from, from_offset, len } => {
                let context = |mem: usize| self.context(self.prepared.ledger.mems[&mem].context);
                let end = |mem: usize, offset: usize| PeerSide {
                    context: context(mem),
                    mem: self.mem(mem),
                    offset,
                };
                Command::Peer { to: end(to, to_offset), from: end(from, from_offset), len }
            }
            Work::Fill { mem, offset, len, unit, value } => {
                Command::Fill { mem: self.mem(mem), offset, len, unit, value }
            }
            Work::Fill2D { mem, offset, rows, value } => {
                Command::Fill2D { mem: self.mem(mem), offset, rows, value }
            }
            Work::Launch { kernel, a, a_offset, b, b_offset, count, seed, spin } => {
                Command::Launch {
                    kernel,
                    a: (self.mem(a), a_offset * 4),
                    b: b.map(|b| (self.mem(b), b_offset * 4)),
                    count,
                    seed,
                    spin,
                }
            }
            Work::Function { job, delay_us } => {
                Command::Function(self.function(job, delay_us, ops, place))
            }
        }
    }

    fn function(&self, job: Job, delay_us: u32, ops: &[usize], place: usize) -> Function {
        let (memory, seen) = (self.backend.memory(), Arc::clone(&self.seen));
        let expected = Arc::clone(&self.prepared.expected);
        let (ops, turn) = (ops.to_vec(), AtomicUsize::new(0));
        let (to, from) = match job {
            Job::Store { to, .. } => (self.at(to), self.at(to)),
            Job::Check { at, .. } => (self.at(at), self.at(at)),
            Job::Move { to, from, .. } => (self.at(to), self.at(from)),
            Job::Rest => (At { area: Handle(0), offset: 0 }, At { area: Handle(0), offset: 0 }),
        };
        Arc::new(move || {
            rest(delay_us);
            let turn = turn.fetch_add(1, Ordering::Relaxed);
            match job {
                Job::Store { len, seed, .. } => memory.store(to, &model::pattern_bytes(seed, len)),
                Job::Move { len, .. } => memory.store(to, &memory.load(from, len)),
                Job::Check { len, .. } => {
                    let bytes = memory.load(from, len);
                    let Some(&op) = ops.get(turn) else { return };
                    let found = expected.look(op, place).and_then(|it| difference(op, it, &bytes));
                    if let Some(finding) = found {
                        seen.lock().get_or_insert(finding);
                    }
                }
                Job::Rest => {}
            }
        })
    }

    fn place(&self, side: Side) -> Place {
        match side {
            Side::Host(at) => Place::Host(self.at(at)),
            Side::Device { mem, offset } => Place::Device { mem: self.mem(mem), offset },
        }
    }

    fn stream(&self, stream: Stream) -> Target {
        match stream {
            Stream::Legacy(_) => Target::Legacy,
            Stream::PerThread(_) => Target::PerThread,
            Stream::Made(stream) => Target::Made(known(&self.table.lock().streams, stream)),
        }
    }

    fn context(&self, context: usize) -> Handle {
        self.table.lock().contexts.get(context).copied().unwrap_or(Handle(0))
    }

    fn area(&self, area: usize) -> Handle {
        self.table.lock().areas.get(area).copied().unwrap_or(Handle(0))
    }

    fn at(&self, at: Ptr) -> At {
        At { area: self.area(at.area), offset: at.offset }
    }

    fn event(&self, event: usize) -> Handle {
        known(&self.table.lock().events, event)
    }

    fn mem(&self, mem: usize) -> Handle {
        known(&self.table.lock().mems, mem)
    }
}

fn known(table: &BTreeMap<usize, Handle>, id: usize) -> Handle {
    table.get(&id).copied().unwrap_or(Handle(0))
}

fn difference(op: usize, expected: &Bytes, seen: &[u8]) -> Option<Finding> {
    let (at, count) = expected.difference(seen)?;
    let word = at / 4 * 4;
    let end = (word + 4).min(seen.len());
    let what = format!(
        "{count} of {} bytes are wrong, the first is byte {at}: expected {:02x?}, seen {:02x?}",
        seen.len(),
        &expected.data[word..end],
        &seen[word..end]
    );
    Some(Finding { kind: Kind::WrongBytes, op: Some(op), at: Some(at), what })
}

fn wrong_code(op: usize, code: i32) -> Finding {
    let what = format!("the call returned {code} instead of 0");
    Finding { kind: Kind::WrongCode, op: Some(op), at: None, what }
}

/// Returns a finding before the first or after the last operation.
fn outside(what: String) -> Finding {
    Finding { kind: Kind::WrongCode, op: None, at: None, what }
}
