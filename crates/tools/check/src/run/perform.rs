//! Performs one operation.

use std::sync::Arc;

use super::State;
use super::course::POLL;
use crate::backend::{Argument, At, Call, End, Handle, Origin, Shape};
use crate::finding::{Finding, Kind};
use crate::ledger::{Fate, MemKind};
use crate::plan::{Act, Cmd, Op, Ptr, Style, SvmEnd};
use crate::random::pattern;

/// Status of a command of whose wait list an event has failed.
pub const WAIT_LIST_FAILED: i32 = penstock_cl_sys::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;

impl State<'_> {
    pub(super) fn perform(&self, index: usize, op: &Op) -> Result<(), Finding> {
        let made =
            |result: Result<Handle, i32>| result.map_err(|code| wrong_code(index, "0", code));
        let done = |code: i32| if code == 0 { Ok(()) } else { Err(wrong_code(index, "0", code)) };
        match &op.act {
            Act::Signal { id } => self.course.signal(*id),
            Act::Await { id } => self.course.await_signal(*id),
            Act::NewQueue { queue, context, device, out_of_order, profiling } => {
                let context = self.context(*context);
                let new =
                    made(self.backend.new_queue(context, *device, *out_of_order, *profiling))?;
                self.table.lock().queues.insert(*queue, new);
            }
            Act::DropQueue { queue } => {
                let known = self.table.lock().queues.remove(queue);
                done(known.map_or(0, |queue| self.backend.drop_queue(queue)))?;
            }
            Act::NewBuffer { .. }
            | Act::NewSub { .. }
            | Act::NewImage { .. }
            | Act::NewView { .. }
            | Act::NewSvm { .. } => self.new_memory(&op.act, &made)?,
            Act::DropMem { mem } => {
                let handle = self.table.lock().mems.remove(mem);
                let known = &self.prepared.ledger.mems[mem];
                let svm = (known.kind == MemKind::Svm).then(|| self.context(known.context));
                done(handle.map_or(0, |mem| self.backend.drop_mem(mem, svm)))?;
            }
            Act::NewGate { event, context, .. } => {
                let new = made(self.backend.new_gate(self.context(*context)))?;
                self.table.lock().events.insert(*event, new);
            }
            Act::SetGate { event, status } => {
                done(self.backend.set_gate(self.event(*event), *status))?
            }
            Act::DropEvent { event } => {
                let known = self.table.lock().events.remove(event);
                done(known.map_or(0, |event| self.backend.drop_event(event)))?;
            }
            Act::Store { to, len, seed } => {
                let words = (0..len.div_ceil(4)).map(|index| pattern(*seed, index));
                let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
                bytes.truncate(*len);
                self.backend.store(self.at(*to), &bytes);
            }
            Act::Check { at, len } => self.look(index, *at, *len)?,
            Act::Flush { queue } => done(self.backend.flush(self.queue(*queue)))?,
            Act::Finish { queue } => {
                let code = self.backend.finish(self.queue(*queue));
                // The specification does not say what clFinish returns after a command that failed.
                let cmds = &self.prepared.ledger.cmds;
                if !cmds.iter().any(|cmd| cmd.queue == *queue && cmd.fate == Fate::Fails) {
                    done(code)?;
                }
            }
            Act::Wait { events } => {
                let list: Vec<Handle> = events.iter().map(|&event| self.event(event)).collect();
                let code = self.backend.wait(&list);
                match events.iter().any(|&event| self.prepared.ledger.fails(event)) {
                    true if code != WAIT_LIST_FAILED => return Err(wrong_code(index, "-14", code)),
                    true => {}
                    false => done(code)?,
                }
            }
            Act::Callback { event, callback, sets } => {
                self.callback(index, *event, *callback, *sets)?
            }
            Act::AwaitCallback { callback } => self.await_callback(index, *callback)?,
            Act::Times { event } => self.times(index, *event)?,
            Act::Status { event } => self.status(index, *event)?,
            Act::Enqueue { .. } => self.enqueue(index, op)?,
            Act::TooBig { queue, source, scratch, seed } => {
                let known = &self.prepared.ledger;
                let local = known.platform.devices[known.queues[queue].device].local_bytes;
                let call = Call::TooBig {
                    thread: op.thread,
                    source: self.mem(*source),
                    scratch: self.mem(*scratch),
                    seed: *seed,
                    local_bytes: local + (1 << 20),
                };
                if self.backend.enqueue(self.queue(*queue), &call, &[], false, false).is_err() {
                    self.refused.lock().insert(*queue);
                }
            }
            Act::ReadTooBig { queue, scratch, seed, to } => {
                let to = self.at(*to);
                let call = Call::Read { mem: self.mem(*scratch), offset: 0, len: 4, to };
                let read = self.backend.enqueue(self.queue(*queue), &call, &[], false, true);
                let told = read.is_err() || self.refused.lock().contains(queue);
                let seen = self.backend.load(to, 4);
                if !told && seen != seed.to_le_bytes() {
                    let what = "a launch with too much local memory did not run, and neither the launch nor the \
                                blocking read of its result said so";
                    return Err(finding(Kind::LostError, index, what.to_owned()));
                }
            }
        }
        Ok(())
    }

    fn new_memory(
        &self,
        act: &Act,
        made: &dyn Fn(Result<Handle, i32>) -> Result<Handle, Finding>,
    ) -> Result<(), Finding> {
        let (mem, new) = match act {
            Act::NewBuffer { mem, context, size, style, init } => {
                let origin = match (style, init) {
                    (Style::Copy, Some(at)) => Origin::Copy(self.at(*at)),
                    (Style::Use, Some(at)) => Origin::Use(self.at(*at)),
                    (Style::Alloc, _) => Origin::Alloc,
                    _ => Origin::Plain,
                };
                (mem, self.backend.new_buffer(self.context(*context), *size, origin))
            }
            Act::NewSub { mem, parent, origin, size } => {
                (mem, self.backend.new_sub(self.mem(*parent), *origin, *size))
            }
            Act::NewImage { mem, context, width, height, init } => {
                let shape = Shape::Plane { width: *width, height: *height };
                let init = init.map(|at| self.at(at));
                (mem, self.backend.new_image(self.context(*context), shape, init))
            }
            Act::NewView { mem, parent, pixels } => {
                let context = self.context(self.prepared.ledger.mems[mem].context);
                let shape = Shape::View { pixels: *pixels, buffer: self.mem(*parent) };
                (mem, self.backend.new_image(context, shape, None))
            }
            Act::NewSvm { mem, context, size } => {
                (mem, self.backend.new_svm(self.context(*context), *size))
            }
            _ => return Ok(()),
        };
        let new = made(new)?;
        self.table.lock().mems.insert(*mem, new);
        Ok(())
    }

    fn callback(
        &self,
        index: usize,
        event: usize,
        id: usize,
        sets: Option<usize>,
    ) -> Result<(), Finding> {
        let calls = Arc::clone(&self.shared_callbacks);
        let gate = sets.map(|gate| self.event(gate));
        let setter = self.backend.setter();
        let ended = Arc::new(move |status: i32| {
            if let Some(gate) = gate {
                setter(gate, if status < 0 { status } else { 0 });
            }
            calls.0.lock().entry(id).or_default().push(status);
            calls.1.notify_all();
        });
        match self.backend.on_end(self.event(event), ended) {
            0 => Ok(()),
            code => Err(wrong_code(index, "0", code)),
        }
    }

    fn await_callback(&self, index: usize, id: usize) -> Result<(), Finding> {
        let (calls, changed) = &*self.shared_callbacks;
        let (mut known, since) = (calls.lock(), std::time::Instant::now());
        while !known.contains_key(&id) {
            if since.elapsed() > self.patience {
                let what = format!(
                    "the callback has not run {} s after it was waited for",
                    self.patience.as_secs()
                );
                return Err(finding(Kind::WrongCallback, index, what));
            }
            if self.course.has_failed() {
                return Ok(());
            }
            known = changed.wait_timeout(known, POLL).0;
        }
        let statuses = known[&id].clone();
        drop(known);
        let fails = self.prepared.program.ops.iter().any(|op| {
            matches!(op.act, Act::Callback { event, callback, .. }
                if callback == id && self.prepared.ledger.fails(event))
        });
        let right = statuses.len() == 1 && (statuses[0] < 0) == fails;
        if right && (fails || statuses[0] == 0) {
            return Ok(());
        }
        let wanted = if fails { "once, with a negative status" } else { "once, with status 0" };
        let what = format!("the callback must run {wanted}; it ran with {statuses:?}");
        Err(finding(Kind::WrongCallback, index, what))
    }

    fn status(&self, index: usize, event: usize) -> Result<(), Finding> {
        let status =
            self.backend.status(self.event(event)).map_err(|code| wrong_code(index, "0", code))?;
        let fails = self.prepared.ledger.fails(event);
        let right = if fails { status < 0 } else { status == 0 };
        if right {
            return Ok(());
        }
        let wanted = if fails { "a negative one" } else { "0 (CL_COMPLETE)" };
        let what = format!("the event's status is {status}, expected is {wanted}");
        Err(finding(Kind::WrongStatus, index, what))
    }

    fn times(&self, index: usize, event: usize) -> Result<(), Finding> {
        match self.backend.times(self.event(event)) {
            Err(code) => {
                let what =
                    format!("clGetEventProfilingInfo of an event that has ended returned {code}");
                Err(finding(Kind::WrongTimes, index, what))
            }
            Ok(times) if times.is_sorted() => Ok(()),
            Ok(times) => {
                let what =
                    format!("queued, submitted, started and ended are not in order: {times:?}");
                Err(finding(Kind::WrongTimes, index, what))
            }
        }
    }

    fn look(&self, index: usize, at: Ptr, len: usize) -> Result<(), Finding> {
        let Some(expected) = self.prepared.expected.checks.get(&index) else { return Ok(()) };
        let seen = self.backend.load(self.at(at), len);
        let Some((first, count)) = expected.difference(&seen) else { return Ok(()) };
        let word = first / 4 * 4;
        let end = len.min(word + 4);
        let what = format!(
            "area {} at byte {}: expected {:02x?}, seen {:02x?}; {count} of {len} bytes are wrong",
            at.area,
            at.offset + first,
            &expected.data[word..end],
            &seen[word..end],
        );
        Err(Finding { kind: Kind::WrongBytes, op: Some(index), at: Some(first), what })
    }

    fn enqueue(&self, index: usize, op: &Op) -> Result<(), Finding> {
        let Act::Enqueue { queue, cmd, wait, event, blocking } = &op.act else { return Ok(()) };
        let call = self.call(op.thread, cmd);
        let list: Vec<Handle> = wait.iter().map(|&event| self.event(event)).collect();
        let result =
            self.backend.enqueue(self.queue(*queue), &call, &list, event.is_some(), *blocking);
        let known = self.prepared.ledger.cmds.iter().find(|cmd| cmd.op == index);
        let fails = known.is_some_and(|cmd| cmd.fate == Fate::Fails);
        match result {
            Err(WAIT_LIST_FAILED) if fails && *blocking => return Ok(()),
            Err(code) => return Err(wrong_code(index, "0", code)),
            Ok(_) if fails && *blocking => return Err(wrong_code(index, "-14", 0)),
            Ok(new) => {
                let mut table = self.table.lock();
                if let (Some(id), Some(event)) = (event, new.event) {
                    table.events.insert(*id, event);
                }
                if let (Cmd::Map { area, .. }, Some(new)) = (cmd, new.area) {
                    table.areas.insert(*area, new);
                }
            }
        }
        if let Cmd::HotRead { mem, to } = cmd {
            self.hot(index, *mem, *to)?;
        }
        Ok(())
    }

    fn hot(&self, index: usize, mem: usize, to: Ptr) -> Result<(), Finding> {
        let bytes = self.backend.load(self.at(to), self.prepared.ledger.mems[&mem].size);
        let allowed = &self.prepared.expected.hot[&index];
        let words = || {
            bytes
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        };
        let first = words().next().unwrap_or(0);
        if let Some(place) = words().position(|word| word != first) {
            let other = words().nth(place).unwrap_or(0);
            let what = format!(
                "one read of a buffer that is only filled as a whole, through one in-order queue, saw {first:#010x} at its \
                 start and {other:#010x} from word {place} on"
            );
            return Err(finding(Kind::TornRead, index, what));
        }
        if !allowed.contains(&first) {
            let what = format!("the read saw {first:#010x}; possible are {allowed:#010x?}");
            return Err(finding(Kind::WrongBytes, index, what));
        }
        Ok(())
    }

    fn call(&self, thread: usize, cmd: &Cmd) -> Call {
        let (at, mem) = (|ptr: &Ptr| self.at(*ptr), |mem: &usize| self.mem(*mem));
        let plane = |mem: &usize| match self.prepared.ledger.mems[mem].kind {
            MemKind::Image { width, height } => (width, height),
            MemKind::View { pixels } => (pixels, 1),
            _ => (0, 0),
        };
        match cmd {
            Cmd::Read { mem: m, offset, len, to } => {
                Call::Read { mem: mem(m), offset: *offset, len: *len, to: at(to) }
            }
            Cmd::Write { mem: m, offset, len, from } => {
                Call::Write { mem: mem(m), offset: *offset, len: *len, from: at(from) }
            }
            Cmd::ReadRect { mem: m, rect, to } => {
                Call::ReadRect { mem: mem(m), rect: *rect, to: at(to) }
            }
            Cmd::WriteRect { mem: m, rect, from } => {
                Call::WriteRect { mem: mem(m), rect: *rect, from: at(from) }
            }
            Cmd::Copy { from, from_offset, to, to_offset, len } => Call::Copy {
                from: mem(from),
                from_offset: *from_offset,
                to: mem(to),
                to_offset: *to_offset,
                len: *len,
            },
            Cmd::CopyRect { from, to, to_offset, rect } => {
                Call::CopyRect { from: mem(from), to: mem(to), to_offset: *to_offset, rect: *rect }
            }
            Cmd::Fill { mem: m, offset, len, word } => {
                Call::Fill { mem: mem(m), offset: *offset, len: *len, word: *word }
            }
            Cmd::Launch { kernel, a, a_offset, b, b_offset, count, seed, spin } => Call::Launch {
                thread,
                kernel: *kernel,
                a: self.argument(*a, *a_offset),
                b: b.map(|b| self.argument(b, *b_offset)),
                count: *count,
                seed: *seed,
                spin: *spin,
            },
            Cmd::Marker => Call::Marker,
            Cmd::Barrier => Call::Barrier,
            Cmd::Migrate { mems, to_host, undefined } => Call::Migrate {
                mems: mems.iter().map(mem).collect(),
                to_host: *to_host,
                undefined: *undefined,
            },
            Cmd::Map { mem: m, offset, len, mode, .. } => Call::Map {
                mem: mem(m),
                svm: self.svm(*m),
                offset: *offset,
                len: *len,
                mode: *mode,
            },
            Cmd::Unmap { area } => {
                let of = self.prepared.ledger.areas[area].map.map_or(0, |map| map.mem);
                let area = self.table.lock().areas.remove(area).unwrap_or(Handle(0));
                Call::Unmap { mem: mem(&of), svm: self.svm(of), area }
            }
            Cmd::ReadImage { mem: m, to } => {
                let (width, height) = plane(m);
                Call::ReadImage { mem: mem(m), width, height, to: at(to) }
            }
            Cmd::WriteImage { mem: m, from } => {
                let (width, height) = plane(m);
                Call::WriteImage { mem: mem(m), width, height, from: at(from) }
            }
            Cmd::FillImage { mem: m, word } => {
                let (width, height) = plane(m);
                Call::FillImage { mem: mem(m), width, height, word: *word }
            }
            Cmd::ImageToBuffer { image, mem: m, offset } => {
                let (width, height) = plane(image);
                Call::ImageToBuffer {
                    image: mem(image),
                    width,
                    height,
                    mem: mem(m),
                    offset: *offset,
                }
            }
            Cmd::BufferToImage { mem: m, offset, image } => {
                let (width, height) = plane(image);
                Call::BufferToImage {
                    mem: mem(m),
                    offset: *offset,
                    image: mem(image),
                    width,
                    height,
                }
            }
            Cmd::SvmCopy { to, from, len } => {
                let end = |end: &SvmEnd| match end {
                    SvmEnd::Svm { mem: m, offset } => End::Svm { mem: mem(m), offset: *offset },
                    SvmEnd::Host(ptr) => End::Host(at(ptr)),
                };
                Call::SvmCopy { to: end(to), from: end(from), len: *len }
            }
            Cmd::SvmFill { mem: m, offset, len, word } => {
                Call::SvmFill { mem: mem(m), offset: *offset, len: *len, word: *word }
            }
            Cmd::HotFill { mem: m, word } => {
                let len = self.prepared.ledger.mems[m].size;
                Call::Fill { mem: mem(m), offset: 0, len, word: *word }
            }
            Cmd::HotRead { mem: m, to } => {
                let len = self.prepared.ledger.mems[m].size;
                Call::Read { mem: mem(m), offset: 0, len, to: at(to) }
            }
        }
    }

    fn argument(&self, mem: usize, offset: usize) -> Argument {
        Argument { mem: self.mem(mem), svm: self.svm(mem), offset }
    }

    fn svm(&self, mem: usize) -> bool {
        self.prepared.ledger.mems[&mem].kind == MemKind::Svm
    }

    fn context(&self, context: usize) -> Handle {
        self.table.lock().contexts[context]
    }

    fn queue(&self, queue: usize) -> Handle {
        self.table.lock().queues[&queue]
    }

    fn mem(&self, mem: usize) -> Handle {
        self.table.lock().mems[&mem]
    }

    fn event(&self, event: usize) -> Handle {
        self.table.lock().events[&event]
    }

    fn at(&self, ptr: Ptr) -> At {
        At { area: self.table.lock().areas[&ptr.area], offset: ptr.offset }
    }
}

fn finding(kind: Kind, op: usize, what: String) -> Finding {
    Finding { kind, op: Some(op), at: None, what }
}

fn wrong_code(op: usize, expected: &str, code: i32) -> Finding {
    finding(Kind::WrongCode, op, format!("the call returned {code}, expected is {expected}"))
}
