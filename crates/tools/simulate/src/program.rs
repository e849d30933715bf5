//! A random program of one thread, and what a model says of its results.

use std::sync::Arc;
use std::time::Duration;

use penstock_client::error::{Error, Result};
use penstock_client::{
    ArgValue, Context, Event, Given, HostShape, IndexSpace, Kernel, Memory, Pool, Program, Queue,
    Range, Rect, Want,
};
use penstock_process::world::spawn;
use penstock_process::{Lock, Signal};
use penstock_trial::Random;
use penstock_wire::Status;

use crate::model::{self, Act, Look, ReadTarget, Step};
use crate::plan::{Fault, Plan};

/// `CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE`.
const OUT_OF_ORDER: u64 = 1;
/// Code of events of the program that fail.
const USER_FAILURE: Status = Status(-5);
/// `CL_MEM_READ_WRITE`.
const READ_WRITE: u64 = 1;
const BUFFERS: usize = 3;
/// A read of more words than this comes in pieces.
const PIECE_WORDS: usize = (1 << 20) / 4;
/// A part of a buffer begins at a multiple of this number of words, as the device demands.
const PART_WORDS: usize = 32;
/// Most queues of a program.
const LANES_MAX: usize = 6;
/// Distance between the targets of two reads. No read has this number of bytes.
const DISTANCE: u64 = 1 << 32;
const KERNELS: [&str; 7] = ["copy", "add", "scale", "fail", "refuse", "endless", "starve"];
/// Code with which launches of the kernels `fail` and `refuse` end.
pub const FAILS_WITH: Status = Status(-54);

/// Queues of one node, and the node's index.
struct Lane {
    node: usize,
    queue: Arc<Queue>,
    is_in_order: bool,
}

struct Buffer {
    memory: Arc<Memory>,
    initial: Vec<u32>,
    words: usize,
    /// The commands that a new reader or writer must wait for.
    writer: Option<usize>,
    readers: Vec<usize>,
}

/// A kernel that runs until the program writes into its buffer.
struct Endless {
    lane: usize,
    word: Arc<Memory>,
    end: Event,
}

/// Ends of commands that callbacks were told.
#[derive(Default)]
struct Told {
    calls: Lock<Vec<Call>>,
    changed: Signal,
}

/// A call of the callback of a command, and what it saw.
pub struct Call {
    pub step: usize,
    pub status: Status,
    pub look: Look,
}

/// What a program has seen.
pub struct Seen {
    pub steps: Vec<Step>,
    pub looks: Vec<Look>,
    /// The commands for which callbacks were registered.
    pub registered: Vec<usize>,
    pub calls: Vec<Call>,
    /// Why calls failed that belong to no command, and their nodes.
    pub failures: Vec<(usize, Error)>,
    /// What no fault excuses.
    pub wrong: Vec<String>,
}

/// A command whose list of waits is complete.
struct Waits {
    /// Earlier commands in the list.
    listed: Vec<usize>,
    events: Vec<Event>,
    awaits_failure: bool,
}

pub struct Running {
    random: Random,
    lanes: Vec<Lane>,
    buffers: Vec<Buffer>,
    kernels: Vec<Arc<Kernel>>,
    /// Where the client takes the first target of a read to be.
    place: u64,
    steps: Vec<Step>,
    events: Vec<Option<Event>>,
    looks: Vec<Look>,
    told: Arc<Told>,
    registered: Vec<usize>,
    endless: Option<Endless>,
    /// The arguments that the kernel `scale` has.
    scaled: Option<(usize, u32)>,
    failures: Vec<(usize, Error)>,
    wrong: Vec<String>,
}

impl Running {
    /// Makes the objects of the program.
    pub fn begin(plan: &Plan, pool: &Pool, random: Random) -> Result<Self> {
        let mut random = random;
        let devices: Vec<_> = pool.devices().cloned().collect();
        let context = Context::new(&devices)?;
        let program = Program::with_source(
            &context,
            b"penstock null copy add scale fail refuse endless starve",
        )?;
        program.build(&devices, None)?;
        let described = program.kernels();
        let kernels =
            KERNELS.iter().filter_map(|name| described.iter().find(|it| it.name == *name));
        let kernels: Vec<_> =
            kernels.map(|it| Kernel::new(&program, it.clone())).collect::<Result<_>>()?;
        let mut lanes = Vec::new();
        for (node, device) in devices.iter().enumerate() {
            for _ in 0..=random.index(2) {
                // An in-order queue reads without pieces.
                let is_in_order = random.below(3) != 0 && !plan.has_large;
                let properties = if is_in_order { 0 } else { OUT_OF_ORDER };
                let queue = Queue::new(&context, device, properties, 0)?;
                lanes.push(Lane { node, queue, is_in_order });
            }
        }
        let buffer = |number| {
            let most = [16, 400, 6_000][random.index(3)];
            let is_large = plan.has_large && number == 0;
            let words = 1 + if is_large { PIECE_WORDS } else { 0 } + random.index(most);
            let is_given = is_large || random.below(2) == 0;
            let initial: Vec<u32> =
                (1..).take(words).map(|word| if is_given { word } else { 0 }).collect();
            let bytes: Vec<u8> = initial.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let given = is_given.then_some(&bytes[..]);
            let memory = Memory::buffer(&context, READ_WRITE, 4 * words as u64, given)?;
            Ok(Buffer { memory, initial, words, writer: None, readers: Vec::new() })
        };
        let buffers = (0..BUFFERS).map(buffer).collect::<Result<_>>()?;
        let (steps, events, failures, wrong) = Default::default();
        let (looks, told, registered, endless) = (Vec::new(), Arc::default(), Vec::new(), None);
        // Other threads of the program have other memory.
        let place = (1 + random.below(1 << 20)) << 40;
        let mut new = Self {
            random,
            lanes,
            buffers,
            kernels,
            place,
            steps,
            events,
            looks,
            told,
            registered,
            endless,
            scaled: None,
            failures,
            wrong,
        };
        if new.random.below(4) == 0 {
            new.endless = new.begin_endless(&context)?;
        }
        new.starve(plan.fault)?;
        Ok(new)
    }

    fn kernel(&self, name: &str) -> &Arc<Kernel> {
        let number = KERNELS.iter().position(|it| *it == name);
        &self.kernels[number.unwrap_or_else(|| unreachable!("KERNELS has no {name}"))]
    }

    fn begin_endless(&mut self, context: &Arc<Context>) -> Result<Option<Endless>> {
        let lane = self.random.index(self.lanes.len());
        let queue = Queue::new(context, self.lanes[lane].queue.device(), 0, 0)?;
        let word = Memory::buffer(context, READ_WRITE, 4, None)?;
        let kernel = self.kernel("endless");
        kernel.set(0, ArgValue::Memory(Some(word.clone())));
        let event = queue.launch(kernel, space(1), &[], Want::Event)?;
        queue.flush()?;
        Ok(event.map(|end| Endless { lane, word, end }))
    }

    /// Ends the kernel that runs, and waits for its end.
    fn end_endless(&mut self) {
        let Some(Endless { lane, word, end }) = self.endless.take() else { return };
        let Lane { node, queue, .. } = &self.lanes[lane];
        let written = queue.write(&word, 0, &Given(&[1, 0, 0, 0]), &[], Want::Nothing);
        // The worker writes in place. The device looks at the word after a command of its own.
        let looked = written.and_then(|_| queue.marker(None, &[], Want::Nothing));
        let refused = |status| Error::Refused { node: crate::node::host(*node).into(), status };
        let flushed = looked.and_then(|_| queue.flush());
        let failed = flushed.and(end.wait().ok().map_err(refused)).err();
        self.failures.extend(failed.map(|error| (*node, error)));
    }

    /// Lets the device of a node make few buffers from now on.
    fn starve(&self, fault: Fault) -> Result<()> {
        let Fault::Starved { node, buffers } = fault else { return Ok(()) };
        let lane = self.lanes.iter().find(|lane| lane.node == node);
        let kernel = self.kernel("starve");
        if let Some(lane) = lane {
            kernel.set_bytes(0, &buffers.to_ne_bytes());
            lane.queue.launch(kernel, space(1), &[], Want::Nothing)?;
            lane.queue.finish()?;
        }
        Ok(())
    }

    /// Enqueues a random command, and sometimes waits.
    pub fn go_on(&mut self) {
        let (act, lane) = self.follow_up().unwrap_or_else(|| {
            let act = self.act();
            (act, self.random.index(self.lanes.len()))
        });
        let conflicts = self.conflicts(&act);
        let Waits { listed: waits, events, awaits_failure } = self.waits(&act, lane);
        let is_behind_all =
            self.lanes[lane].is_in_order || matches!(act, Act::Nothing { .. }) && events.is_empty();
        let has_failed = |event: &Event| event.poll().is_some_and(Status::is_error);
        let is_unsent = awaits_failure || events.iter().any(has_failed);
        let enqueued = self.enqueue(&act, lane, &events);
        if let Act::Scale { buffer, factor, .. } = act {
            self.scaled = Some((buffer, factor));
        }
        let number = self.steps.len();
        let (status, event) = match enqueued {
            Ok(event) => (None, event),
            Err(error) => (Some(error.status()), None),
        };
        let behind = (0..number).filter(|it| {
            let step = &self.steps[*it];
            step.lane == lane && self.events[*it].is_some() && (is_behind_all || step.is_barrier())
        });
        let (behind, node) = (behind.collect(), self.lanes[lane].node);
        if event.is_some() {
            self.note_uses(&act, number, conflicts);
        }
        self.events.push(event);
        let has_event = self.events[number].is_some();
        let is_behind_all = is_behind_all && has_event;
        self.steps.push(Step {
            act,
            node,
            lane,
            waits,
            behind,
            is_behind_all,
            awaits_failure,
            is_unsent,
            has_event,
            status,
        });
        self.look_now_and_then(number, lane);
    }

    /// Returns a command that looks at once whether the last one has been done, sometimes: it reads
    /// in a new queue what a blocking write has written, or does nothing behind a barrier.
    fn follow_up(&mut self) -> Option<(Act, usize)> {
        let last = self.steps.last().filter(|_| self.random.below(2) == 0)?;
        match &last.act {
            Act::Nothing { is_barrier: true } if last.is_behind_all => {
                Some((Act::Nothing { is_barrier: self.random.below(2) == 0 }, last.lane))
            }
            Act::Write { buffer, is_blocking: true, .. } if self.lanes.len() < LANES_MAX => {
                let (buffer, Lane { node, queue, is_in_order }) = (*buffer, &self.lanes[last.lane]);
                let (node, is_in_order) = (*node, *is_in_order);
                let properties = if is_in_order { 0 } else { OUT_OF_ORDER };
                let made = Queue::new(queue.context(), queue.device(), properties, 0);
                let queue = made.map_err(|error| self.failures.push((node, error))).ok()?;
                self.lanes.push(Lane { node, queue, is_in_order });
                let size = self.buffers[buffer].words;
                Some((self.read(buffer, 0, size), self.lanes.len() - 1))
            }
            _ => None,
        }
    }

    /// Registers a callback, and waits or asks, all of it sometimes.
    fn look_now_and_then(&mut self, number: usize, lane: usize) {
        let Some(event) = self.events[number].clone() else { return };
        if self.random.below(2) == 0 {
            self.registered.push(number);
            let reads = model::reads_behind(&self.steps, &[number]);
            let told = self.told.clone();
            event.on_complete(move |status| {
                let look = Look::at(vec![number], &reads);
                told.calls.lock().push(Call { step: number, status, look });
                told.changed.notify_all();
            });
        }
        match &self.steps[number].act {
            Act::Read { is_blocking: true, .. } => self.look(vec![number]),
            act if act.is_blocking_write() && self.random.below(2) == 0 => {
                self.must_have_ended(number, number);
            }
            _ => {}
        }
        match self.random.below(12) {
            0 => self.finish(lane),
            1 => _ = self.lanes[lane].queue.flush(),
            2 => _ = self.wait(number),
            3..6 if event.poll() == Some(Status::OK) => self.look(vec![number]),
            _ => {}
        }
    }

    /// Waits for the end of a command, and looks at once at what it says about others.
    fn wait(&mut self, number: usize) -> Option<Status> {
        let status = self.events[number].as_ref()?.wait();
        self.look(vec![number]);
        self.must_have_ended(number, number);
        if status == Status::OK {
            let waits = self.steps[number].waits.clone();
            waits.into_iter().for_each(|wait| self.must_have_ended(wait, number));
        }
        Some(status)
    }

    /// Copies the bytes of the reads that have ended if these commands have ended well.
    fn look(&mut self, ends: Vec<usize>) {
        let reads = model::reads_behind(&self.steps, &ends);
        self.looks.push(Look::at(ends, &reads));
    }

    /// Asks for the end of a command, which the program knows by another one.
    fn must_have_ended(&mut self, number: usize, by: usize) {
        if self.events[number].as_ref().is_some_and(|event| event.poll().is_none()) {
            let why = format!("command {number} is open although {by} has returned or ended");
            self.wrong.push(why);
        }
    }

    /// Returns what a command in this queue must wait for, and random events more. A command that
    /// the queue lets it come after is sometimes not in the list.
    fn waits(&mut self, act: &Act, lane: usize) -> Waits {
        let mut open = self.conflicts(act);
        let does_nothing = matches!(act, Act::Nothing { .. });
        if !self.steps.is_empty() && self.random.below(if does_nothing { 2 } else { 4 }) == 0 {
            open.push(self.random.index(self.steps.len()));
        }
        let leaves_out = self.random.below(4) != 0;
        let mut listed = Vec::new();
        while let Some(wait) = open.pop() {
            if leaves_out && self.comes_after(lane, wait) && self.random.below(4) != 0 {
                // The command may fail before those end for which it waits.
                open.extend(&self.steps[wait].waits);
            } else {
                listed.push(wait);
            }
        }
        listed.retain(|it| self.events[*it].is_some());
        listed.sort_unstable();
        listed.dedup();
        let mut events: Vec<_> = listed.iter().filter_map(|it| self.events[*it].clone()).collect();
        let mut awaits_failure = false;
        if self.random.below(8) == 0 {
            awaits_failure = self.random.below(4) == 0;
            let status = if awaits_failure { USER_FAILURE } else { Status::OK };
            events.push(self.user_event(status));
        }
        Waits { listed, events, awaits_failure }
    }

    /// Returns whether the next command of a queue comes after an earlier command without a wait
    /// for it: both are in an in-order queue, or a barrier for all commands is between them.
    fn comes_after(&self, lane: usize, earlier: usize) -> bool {
        let is_barrier = |step: &Step| step.lane == lane && step.is_barrier() && step.is_behind_all;
        self.steps[earlier].lane == lane
            && (self.lanes[lane].is_in_order || self.steps[earlier + 1..].iter().any(is_barrier))
    }

    fn finish(&mut self, lane: usize) {
        let Lane { node, queue, .. } = &self.lanes[lane];
        match queue.finish() {
            Ok(()) => {
                let ends = (0..self.steps.len()).filter(|it| self.steps[*it].lane == lane);
                self.look(ends.collect());
            }
            Err(error) => self.failures.push((*node, error)),
        }
    }

    /// Returns what the buffers contained at first.
    pub fn initial(&self) -> Vec<Vec<u32>> {
        self.buffers.iter().map(|buffer| buffer.initial.clone()).collect()
    }

    /// Waits for all commands and callbacks, and returns what the program has seen.
    pub fn end(mut self) -> Seen {
        let mut open: Vec<_> = (0..self.steps.len()).collect();
        while !open.is_empty() {
            let number = open.swap_remove(self.random.index(open.len()));
            let status = self.wait(number);
            let step = &mut self.steps[number];
            step.status = step.status.or(status);
        }
        for lane in 0..self.lanes.len() {
            self.finish(lane);
        }
        self.end_endless();
        let (told, count) = (&self.told, self.registered.len());
        let mut calls = told.changed.wait_while(told.calls.lock(), |calls| calls.len() < count);
        let calls = std::mem::take(&mut *calls);
        let Self { steps, looks, registered, failures, wrong, .. } = self;
        Seen { steps, looks, registered, calls, failures, wrong }
    }

    fn act(&mut self) -> Act {
        let buffer = self.random.index(BUFFERS);
        let mut others = [self.random.index(BUFFERS), self.random.index(BUFFERS)];
        others.sort_unstable();
        let words = self.buffers[buffer].words;
        let count = [buffer, others[0], others[1]].map(|it| self.buffers[it].words);
        let count = 1 + self.random.index(count.into_iter().min().unwrap_or(1));
        let is_whole = words > PIECE_WORDS && self.random.below(2) == 0;
        let at = if is_whole { 0 } else { self.random.index(words) };
        let size = if is_whole { words } else { 1 + self.random.index(words - at) };
        let value = u32::try_from(self.random.below(1 << 20)).unwrap_or(0);
        match self.random.below(12) {
            0..3 => {
                let stride = if is_whole { 1 } else { 1 + self.random.index(2) };
                let words = (value..).take(size.div_ceil(stride)).collect();
                Act::Write { buffer, at, words, stride, is_blocking: self.random.below(4) == 0 }
            }
            3..6 => self.read(buffer, at, size),
            6 => Act::Fill { buffer, at, size, value },
            7 if others[0] != buffer => {
                let (from, held) = (others[0], self.buffers[others[0]].words);
                let count = 1 + self.random.index(held.min(words));
                let shift = self.random.index(held - count + 1);
                Act::Copy { from, shift, to: buffer, count }
            }
            8 if !others.contains(&buffer) => {
                Act::Add { left: others[0], right: others[1], to: buffer, count }
            }
            9 => {
                // The kernel has arguments from the last launch.
                let last = self.scaled.filter(|_| self.random.below(2) == 0);
                let (buffer, factor) = last.unwrap_or((buffer, value | 1));
                Act::Scale { buffer, factor, count: count.min(self.buffers[buffer].words) }
            }
            10 => Act::Fail { is_refused: self.random.below(2) == 0 },
            _ => Act::Nothing { is_barrier: self.random.below(2) == 0 },
        }
    }

    fn read(&mut self, buffer: usize, at: usize, size: usize) -> Act {
        let bytes = Arc::new(Lock::new(vec![0; 4 * size]));
        let place = self.place + self.steps.len() as u64 * DISTANCE;
        let into = ReadTarget { bytes, place: HostShape::linear(place, 4 * size as u64) };
        Act::Read { buffer, at, into, is_blocking: self.random.below(4) == 0 }
    }

    /// Returns the commands that this one must come after.
    fn conflicts(&self, act: &Act) -> Vec<usize> {
        let written = act.written().map(|it| &self.buffers[it]);
        let read = act.read().into_iter().map(|it| &self.buffers[it]);
        let readers = written.iter().flat_map(|it| &it.readers).copied();
        read.chain(written).filter_map(|it| it.writer).chain(readers).collect()
    }

    fn note_uses(&mut self, act: &Act, number: usize, conflicts: Vec<usize>) {
        for buffer in act.read() {
            self.buffers[buffer].readers.push(number);
        }
        if let Some(buffer) = act.written() {
            let buffer = &mut self.buffers[buffer];
            buffer.writer = Some(number);
            buffer.readers.clear();
            if act.is_blocking_write() {
                // The program takes it for done. If it has failed, it may not have waited.
                (buffer.writer, buffer.readers) = (None, conflicts);
            }
        }
    }

    /// Returns an event that another thread of the program sets soon.
    fn user_event(&mut self, status: Status) -> Event {
        let event = penstock_client::user_event();
        let (set, pause) = (event.clone(), Duration::from_micros(self.random.below(3_000)));
        spawn("sets an event", move || {
            penstock_process::sleep(pause);
            penstock_client::set_user_event(&set, status);
        });
        event
    }

    fn enqueue(&self, act: &Act, lane: usize, waits: &[Event]) -> Result<Option<Event>> {
        let queue = self.lanes[lane].queue.clone();
        let memory = |it: usize| &self.buffers[it].memory;
        let range = |at: usize, size: usize| Range { offset: 4 * at as u64, size: 4 * size as u64 };
        let launch = |kernel: &str, count: usize, values: Vec<ArgValue>| {
            let kernel = self.kernel(kernel);
            for (index, value) in values.into_iter().enumerate() {
                kernel.set(index, value);
            }
            queue.launch(kernel, space(count as u64), waits, Want::Event)
        };
        let buffer = |it: usize| ArgValue::Memory(Some(memory(it).clone()));
        match act {
            Act::Write { buffer, at, words, stride, is_blocking } => {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                let (memory, offset, bytes) = (memory(*buffer), 4 * *at as u64, Given(&bytes));
                let event = if *stride == 1 {
                    queue.write(memory, offset, &bytes, waits, Want::Event)
                } else {
                    let row_pitch = 4 * *stride as u64;
                    let rect = Rect { origin: [offset, 0, 0], row_pitch, slice_pitch: 0 };
                    let region = [4, words.len() as u64, 1];
                    queue.write_rect(memory, rect, region, &bytes, waits, Want::Event)
                };
                event.inspect(|event| {
                    event.iter().filter(|_| *is_blocking).for_each(|event| queue.settle(event));
                })
            }
            Act::Read { buffer, at, into, is_blocking } => {
                let (range, target) =
                    (range(*at, into.bytes.lock().len() / 4), Box::new(into.clone()));
                if *is_blocking {
                    queue.read_now(memory(*buffer), range, target, waits, Want::Event)
                } else {
                    queue.read(memory(*buffer), range, target, waits, Want::Event)
                }
            }
            Act::Fill { buffer, at, size, value } => {
                let (memory, start) = (memory(*buffer), at - at % PART_WORDS);
                let Range { offset, size: rest } =
                    range(start, self.buffers[*buffer].words - start);
                let part = Memory::sub_buffer(memory, READ_WRITE, offset, rest)?;
                let range = range(at - start, *size);
                queue.fill(&part, &value.to_ne_bytes(), range, waits, Want::Event)
            }
            Act::Copy { from, shift, to, count } if Act::is_copied_by_kernel(*shift, *count) => {
                launch("copy", *count, vec![buffer(*from), buffer(*to)])
            }
            Act::Copy { from, shift, to, count } => {
                let (from, to) = ((memory(*from), 4 * *shift as u64), (memory(*to), 0));
                queue.copy(from, to, 4 * *count as u64, waits, Want::Event)
            }
            Act::Add { left, right, to, count } => {
                launch("add", *count, vec![buffer(*left), buffer(*right), buffer(*to)])
            }
            Act::Scale { buffer: it, factor, count } if self.scaled == Some((*it, *factor)) => {
                launch("scale", *count, Vec::new())
            }
            Act::Scale { buffer: it, factor, count } => {
                launch("scale", *count, vec![buffer(*it), word(*factor)])
            }
            Act::Fail { is_refused } => {
                let kernel = if *is_refused { "refuse" } else { "fail" };
                launch(kernel, 1, vec![word(FAILS_WITH.0.cast_unsigned())])
            }
            Act::Nothing { is_barrier: true } => queue.barrier(waits, Want::Event),
            Act::Nothing { is_barrier: false } => queue.marker(None, waits, Want::Event),
        }
    }
}

fn word(value: u32) -> ArgValue {
    ArgValue::Bytes(value.to_ne_bytes().into())
}

fn space(count: u64) -> IndexSpace {
    IndexSpace::line(count, None)
}
