//! A random program of one thread, and what a model says of its results.

use std::sync::Arc;
use std::time::Duration;

use penstock_client::error::Result;
use penstock_client::{
    ArgValue, Context, Event, Given, IndexSpace, Kernel, Memory, Pool, Program, Queue, Range, Want,
};
use penstock_process::world::spawn;
use penstock_process::{Lock, Signal};
use penstock_trial::Random;
use penstock_wire::Status;

use crate::model::{Act, Step};
use crate::plan::{Fault, Plan};

/// `CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE`.
const OUT_OF_ORDER: u64 = 1;
/// Code of events of the program that fail.
const USER_FAILURE: Status = Status(-5);
/// `CL_MEM_READ_WRITE`.
const READ_WRITE: u64 = 1;
const BUFFERS: usize = 3;
const KERNELS: [&str; 7] = ["copy", "add", "scale", "fail", "refuse", "endless", "starve"];
/// Code with which launches of the kernels `fail` and `refuse` end.
pub const FAILS_WITH: Status = Status(-54);

/// Queues of one node, and the node's index.
struct Lane {
    node: usize,
    queue: Arc<Queue>,
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
    count: Lock<usize>,
    changed: Signal,
}

pub struct Running {
    random: Random,
    lanes: Vec<Lane>,
    buffers: Vec<Buffer>,
    kernels: Vec<Arc<Kernel>>,
    steps: Vec<Step>,
    events: Vec<Option<Event>>,
    told: Arc<Told>,
    callbacks: usize,
    endless: Option<Endless>,
    /// Why a call failed that belongs to no command, and the node.
    pub failures: Vec<(usize, String)>,
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
                let properties = if random.below(3) == 0 { OUT_OF_ORDER } else { 0 };
                lanes.push(Lane { node, queue: Queue::new(&context, device, properties, 0)? });
            }
        }
        let buffer = |_| {
            let most = [16, 400, 6_000][random.index(3)];
            let words = 1 + random.index(most);
            let is_given = random.below(2) == 0;
            let initial: Vec<u32> =
                (1..).take(words).map(|word| if is_given { word } else { 0 }).collect();
            let bytes: Vec<u8> = initial.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let given = is_given.then_some(&bytes[..]);
            let memory = Memory::buffer(&context, READ_WRITE, 4 * words as u64, given)?;
            Ok(Buffer { memory, initial, words, writer: None, readers: Vec::new() })
        };
        let buffers = (0..BUFFERS).map(buffer).collect::<Result<_>>()?;
        let (steps, events, failures) = (Vec::new(), Vec::new(), Vec::new());
        let (told, callbacks, endless) = (Arc::default(), 0, None);
        let mut new = Self {
            random,
            lanes,
            buffers,
            kernels,
            steps,
            events,
            told,
            callbacks,
            endless,
            failures,
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
        let Lane { node, queue } = &self.lanes[lane];
        let written = queue.write(&word, 0, &Given(&[1, 0, 0, 0]), &[], Want::Nothing);
        // The worker writes in place. The device looks at the word after a command of its own.
        let looked = written.and_then(|_| queue.marker(None, &[], Want::Nothing));
        let flushed = looked.and_then(|_| queue.flush()).map_err(|error| error.to_string());
        let ended = end.wait().ok().map_err(|status| status.to_string());
        if let Err(why) = flushed.and(ended) {
            self.failures.push((*node, format!("the endless kernel: {why}")));
        }
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
        let act = self.act();
        let lane = self.random.index(self.lanes.len());
        let mut waits = self.conflicts(&act);
        if !self.steps.is_empty() && self.random.below(4) == 0 {
            waits.push(self.random.index(self.steps.len()));
        }
        waits.sort_unstable();
        waits.dedup();
        let mut events: Vec<_> = waits.iter().filter_map(|it| self.events[*it].clone()).collect();
        let mut awaits_failure = false;
        if self.random.below(8) == 0 {
            awaits_failure = self.random.below(4) == 0;
            let status = if awaits_failure { USER_FAILURE } else { Status::OK };
            events.push(self.user_event(status));
        }
        let enqueued = self.enqueue(&act, lane, &events);
        let number = self.steps.len();
        let (status, event) = match enqueued {
            Ok(event) => (None, event),
            Err(error) => (Some(error.status()), None),
        };
        if let Some(event) = event.as_ref().filter(|_| self.random.below(6) == 0) {
            self.callbacks += 1;
            let told = self.told.clone();
            event.on_complete(move |_| {
                *told.count.lock() += 1;
                told.changed.notify_all();
            });
        }
        let node = self.lanes[lane].node;
        self.note_uses(&act, number);
        waits.retain(|it| self.events[*it].is_some());
        self.events.push(event);
        self.steps.push(Step { act, node, waits, awaits_failure, status });
        match self.random.below(16) {
            0 => self.finish(lane),
            1 => _ = self.lanes[lane].queue.flush(),
            2 => _ = self.events[number].as_ref().map(Event::wait),
            3 => _ = self.events[number].as_ref().map(Event::poll),
            _ => {}
        }
    }

    fn finish(&mut self, lane: usize) {
        let Lane { node, queue } = &self.lanes[lane];
        if let Err(error) = queue.finish() {
            self.failures.push((*node, error.to_string()));
        }
    }

    /// Returns what the buffers contained at first.
    pub fn initial(&self) -> Vec<Vec<u32>> {
        self.buffers.iter().map(|buffer| buffer.initial.clone()).collect()
    }

    /// Waits for all commands and callbacks, and returns how the commands have ended.
    pub fn end(mut self) -> (Vec<Step>, Vec<(usize, String)>) {
        for (step, event) in self.steps.iter_mut().zip(&self.events) {
            step.status = step.status.or_else(|| event.as_ref().map(Event::wait));
        }
        for lane in 0..self.lanes.len() {
            self.finish(lane);
        }
        self.end_endless();
        let (told, callbacks) = (&self.told, self.callbacks);
        drop(told.changed.wait_while(told.count.lock(), |count| *count < callbacks));
        (self.steps, self.failures)
    }

    fn act(&mut self) -> Act {
        let buffer = self.random.index(BUFFERS);
        let mut others = [self.random.index(BUFFERS), self.random.index(BUFFERS)];
        others.sort_unstable();
        let words = self.buffers[buffer].words;
        let count = [buffer, others[0], others[1]].map(|it| self.buffers[it].words);
        let count = 1 + self.random.index(count.into_iter().min().unwrap_or(1));
        let at = self.random.index(words);
        let size = 1 + self.random.index(words - at);
        let value = u32::try_from(self.random.below(1 << 20)).unwrap_or(0);
        match self.random.below(12) {
            0..3 => Act::Write {
                buffer,
                at,
                words: (0..).zip(0..size).map(|(it, _)| value + it).collect(),
            },
            3..6 => Act::Read { buffer, at, into: Arc::new(Lock::new(vec![0; 4 * size])) },
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
            9 => Act::Scale { buffer, factor: value | 1, count },
            10 => Act::Fail { is_refused: self.random.below(2) == 0 },
            _ => Act::Nothing,
        }
    }

    /// Returns the commands that this one must come after.
    fn conflicts(&self, act: &Act) -> Vec<usize> {
        let written = act.written().map(|it| &self.buffers[it]);
        let read = act.read().into_iter().map(|it| &self.buffers[it]);
        let readers = written.iter().flat_map(|it| &it.readers).copied();
        read.chain(written).filter_map(|it| it.writer).chain(readers).collect()
    }

    fn note_uses(&mut self, act: &Act, number: usize) {
        for buffer in act.read() {
            self.buffers[buffer].readers.push(number);
        }
        if let Some(buffer) = act.written() {
            let buffer = &mut self.buffers[buffer];
            buffer.writer = Some(number);
            buffer.readers.clear();
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

    fn enqueue(&mut self, act: &Act, lane: usize, waits: &[Event]) -> Result<Option<Event>> {
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
            Act::Write { buffer, at, words } => {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                queue.write(memory(*buffer), 4 * *at as u64, &Given(&bytes), waits, Want::Event)
            }
            Act::Read { buffer, at, into } => {
                let (range, target) = (range(*at, into.lock().len() / 4), Box::new(into.clone()));
                if self.random.below(4) == 0 {
                    queue.read_now(memory(*buffer), range, target, waits, Want::Event)
                } else {
                    queue.read(memory(*buffer), range, target, waits, Want::Event)
                }
            }
            Act::Fill { buffer, at, size, value } => {
                let (memory, range) = (memory(*buffer), range(*at, *size));
                queue.fill(memory, &value.to_ne_bytes(), range, waits, Want::Event)
            }
            Act::Copy { from, shift, to, count } if *shift > 0 || count % 2 == 0 => {
                let (from, to) = ((memory(*from), 4 * *shift as u64), (memory(*to), 0));
                queue.copy(from, to, 4 * *count as u64, waits, Want::Event)
            }
            Act::Copy { from, to, count, .. } => {
                launch("copy", *count, vec![buffer(*from), buffer(*to)])
            }
            Act::Add { left, right, to, count } => {
                launch("add", *count, vec![buffer(*left), buffer(*right), buffer(*to)])
            }
            Act::Scale { buffer: it, factor, count } => {
                launch("scale", *count, vec![buffer(*it), word(*factor)])
            }
            Act::Fail { is_refused } => {
                let kernel = if *is_refused { "refuse" } else { "fail" };
                launch(kernel, 1, vec![word(FAILS_WITH.0.cast_unsigned())])
            }
            Act::Nothing if self.random.below(2) == 0 => queue.barrier(waits, Want::Event),
            Act::Nothing => queue.marker(None, waits, Want::Event),
        }
    }
}

fn word(value: u32) -> ArgValue {
    ArgValue::Bytes(value.to_ne_bytes().into())
}

fn space(count: u64) -> IndexSpace {
    IndexSpace::line(count, None)
}
