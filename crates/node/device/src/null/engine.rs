//! The commands of a context and the thread that runs them, which all contexts of the device share.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use penstock_process::{Guard, Lock, Signal};
use penstock_wire::Times;
use penstock_wire::status::Status;

use super::builtin;
use super::machine::{End, Machine, Number, Step};
use super::memory::Buffer;
use super::transfer::Work;
use crate::event::{Done, EventDriver};

/// What runs the commands of a context.
pub(super) struct Engine {
    /// Number of the context.
    id: u64,
    state: Lock<State>,
    /// A command has ended.
    ended: Signal,
    device: Line,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) machine: Machine<Work, Done>,
    /// Kernels that run until the first word of their buffer is not 0.
    endless: Vec<(Number, Arc<Buffer>)>,
    /// Number of buffers that the context may still make, if it is limited.
    buffers_left: Option<u32>,
    /// Whether the thread of the device has been called.
    is_called: bool,
    /// Whether the context is gone.
    is_closed: bool,
}

/// The contexts that have something to run, in the order in which they said so. The platform and
/// all contexts have clones of it.
#[derive(Clone)]
pub(super) struct Line(Arc<LineEnd>);

struct LineEnd(Arc<(Lock<Waiting>, Signal)>);

#[derive(Default)]
struct Waiting {
    engines: VecDeque<Arc<Engine>>,
    is_over: bool,
}

impl Line {
    /// Also returns the work of the thread that runs the commands of all contexts, until the last
    /// context and the platform are gone.
    pub(super) fn new() -> (Self, impl FnOnce() + Send) {
        let waiting = Arc::new((Lock::<Waiting>::default(), Signal::new()));
        let line = Self(Arc::new(LineEnd(waiting.clone())));
        let run = move || {
            let (waiting, changed) = &*waiting;
            loop {
                let is_idle = |it: &mut Waiting| it.engines.is_empty() && !it.is_over;
                let mut guard = changed.wait_while(waiting.lock(), is_idle);
                let Some(engine) = guard.engines.pop_front() else { return };
                drop(guard);
                engine.run();
            }
        };
        (line, run)
    }

    fn call(&self, engine: &Arc<Engine>) {
        let LineEnd(waiting) = &*self.0;
        waiting.0.lock().engines.push_back(engine.clone());
        waiting.1.notify_one();
    }
}

impl Drop for LineEnd {
    fn drop(&mut self) {
        self.0.0.lock().is_over = true;
        self.0.1.notify_one();
    }
}

impl Engine {
    pub(super) fn new(id: u64, device: Line) -> Arc<Self> {
        Arc::new(Self { id, state: Lock::default(), ended: Signal::new(), device })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Changes the state, and has run what can run then.
    pub(super) fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        if state.machine.has_steps() && !std::mem::replace(&mut state.is_called, true) {
            self.device.call(self);
        }
        self.ended.notify_all();
        result
    }

    fn run(&self) {
        let mut state = self.state.lock();
        while let Some(step) = state.machine.next_step() {
            drop(state);
            let done = perform(step);
            state = self.state.lock();
            if let Some((number, done)) = done {
                state.take(number, done);
            }
            self.ended.notify_all();
        }
        state.is_called = false;
        self.ended.notify_all();
    }

    /// Waits for the end of a command.
    pub(super) fn wait(&self, end: &End) -> Result<(), Status> {
        let state = self.state.lock();
        drop(self.ended.wait_while(state, |_| !end.has_ended()));
        end.status().ok()
    }

    /// Takes one of the buffers that the context may still make.
    pub(super) fn take_buffer(&self) -> Result<(), Status> {
        let mut state: Guard<'_, State> = self.state.lock();
        if state.machine.is_lost() {
            return Err(Status::OUT_OF_RESOURCES);
        }
        if let Some(left) = &mut state.buffers_left {
            *left = left.checked_sub(1).ok_or(Status::MEM_OBJECT_ALLOCATION_FAILURE)?;
        }
        Ok(())
    }

    /// Ends the kernels that would run for ever. Nobody can tell them to end any more.
    pub(super) fn close(self: &Arc<Self>) {
        self.change(|state| {
            state.is_closed = true;
            state.end_endless(|_| Some(Status::OUT_OF_RESOURCES));
        });
    }
}

/// Performs a step without a lock. Returns what a command has done.
fn perform(step: Step<Work, Done>) -> Option<(Number, builtin::Done)> {
    match step {
        Step::Run(number, work) => Some((number, work.perform())),
        Step::Tell(told, status, times) => {
            for done in told {
                // A panic is a defect of ours; the device must go on for all others.
                _ = catch_unwind(AssertUnwindSafe(|| done(status, times)));
            }
            None
        }
    }
}

impl State {
    fn take(&mut self, number: Number, done: builtin::Done) {
        match done {
            builtin::Done::Ended(result) => {
                self.machine.end(number, result.err().unwrap_or(Status::OK));
            }
            builtin::Done::Endless(word) => self.endless.push((number, word)),
            builtin::Done::Starved(buffers) => {
                self.buffers_left = Some(buffers);
                self.machine.end(number, Status::OK);
            }
            builtin::Done::Lost => {
                self.machine.lose();
                self.machine.end(number, Status::OUT_OF_RESOURCES);
            }
        }
        let is_over = self.is_closed || self.machine.is_lost();
        self.end_endless(|word| {
            let mut bytes = [0; 4];
            let read = word.read(0, &mut bytes);
            match (read, is_over) {
                (Err(status), _) => Some(status),
                (Ok(()), true) => Some(Status::OUT_OF_RESOURCES),
                (Ok(()), false) => (bytes != [0; 4]).then_some(Status::OK),
            }
        });
    }

    /// Ends those endless kernels for whose word there is a status.
    fn end_endless(&mut self, status: impl Fn(&Buffer) -> Option<Status>) {
        let machine = &mut self.machine;
        self.endless.retain(|(number, word)| {
            let status = status(word);
            status.inspect(|status| machine.end(*number, *status)).is_none()
        });
    }
}

/// The end of a command, or a user event.
pub(super) struct Event {
    engine: Arc<Engine>,
    number: Number,
    end: Arc<End>,
    /// Whether it is of a queue with times.
    has_times: bool,
}

impl Event {
    pub(super) fn new(
        engine: &Arc<Engine>,
        (number, end): (Number, Arc<End>),
        has_times: bool,
    ) -> Arc<Self> {
        Arc::new(Self { engine: engine.clone(), number, end, has_times })
    }

    pub(super) fn wait_for_end(&self) -> Result<(), Status> {
        self.engine.wait(&self.end)
    }

    /// Returns its number and end.
    pub(super) fn parts(&self) -> (Number, &End) {
        (self.number, &self.end)
    }
}

impl EventDriver for Event {
    fn context_id(&self) -> u64 {
        self.engine.id
    }

    fn status(&self) -> Status {
        self.end.status()
    }

    fn times(&self) -> Times {
        if self.has_times { self.end.times() } else { Times::default() }
    }

    fn wait(&self) -> Result<(), Status> {
        self.wait_for_end()
    }

    fn complete(self: Arc<Self>, status: Status) -> Result<(), Status> {
        self.engine.change(|state| state.machine.complete(self.number, status))
    }

    fn on_complete(self: Arc<Self>, done: Done) {
        let has_times = self.has_times;
        let done: Done = Box::new(move |status, times| {
            done(status, if has_times { times } else { Times::default() });
        });
        self.engine.change(|state| state.machine.tell(self.number, &self.end, done));
    }
}
