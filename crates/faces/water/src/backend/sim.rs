//! Simulated devices: kernels and transfers take the time that a model gives them, and no CPU.
//!
//! Every device has an engine for kernels and one for transfers in each direction. An engine
//! performs operations one at a time, in the order in which they became ready. *Hollow* devices
//! have no bytes: only time passes. *Real* ones compute results with another back end inside; an
//! operation ends when both that back end and the model have ended it.

mod model;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Backend, Ended, Failure, Memory, gone, not_performed};
use crate::clock::Clock;
use crate::command::{Command, CommandId, DeviceInfo, ObjectId, ObjectKind, Times};
use crate::doorbell::Doorbell;
use crate::error::code;
pub use model::{Cost, DeviceModel, Mode, Model, ModelError};

/// Simulated devices of one rank.
#[derive(Debug)]
pub struct Sim {
    clock: Arc<dyn Clock>,
    model: Model,
    infos: Vec<DeviceInfo>,
    devices: Vec<Device>,
    inner: Option<Box<dyn Backend>>,
    kernels: FxHashMap<ObjectId, String>,
    /// Operations whose ends are not reported yet.
    operations: FxHashMap<CommandId, Running>,
    /// Future events, earliest first. Of equal times the one that was added first comes first.
    events: BinaryHeap<Reverse<FutureEvent>>,
    events_so_far: u64,
    /// Ends that the next poll reports.
    ended: Vec<Ended>,
    inner_ended: Vec<Ended>,
}

#[derive(Debug)]
struct Device {
    model: DeviceModel,
    engines: [Engine; Engine::COUNT],
}

/// A unit of a device that performs one operation at a time.
#[derive(Debug, Default)]
struct Engine {
    working: bool,
    queue: VecDeque<CommandId>,
}

impl Engine {
    const COMPUTE: usize = 0;
    const IN: usize = 1;
    const OUT: usize = 2;
    const COUNT: usize = 3;
}

/// An event at a time in the future. The order of the fields is the order of the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FutureEvent {
    time: u64,
    /// Number of events that were added up to this one.
    ordinal: u64,
    id: CommandId,
    what: EngineEvent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EngineEvent {
    /// The operation has ended in the model.
    End,
    /// All operations that it comes after have ended in the model.
    Ready,
}

#[derive(Debug)]
struct Running {
    device: u32,
    /// `None` for an operation that takes no time.
    engine: Option<usize>,
    duration: u64,
    /// Number of earlier operations that have not ended in the model.
    unmet: usize,
    /// Operations that come after it.
    successors: Vec<CommandId>,
    started: u64,
    /// When it ended in the model.
    model_end: Option<u64>,
    /// Its outcome in the inner back end. Without an inner back end it is `Ok` from the start.
    inner_end: Option<Result<(), Failure>>,
}

impl Sim {
    /// Creates the devices that the model has on this rank. `inner` computes results if the model's
    /// mode is `real`; device `i` uses device `i % n` of its `n` devices.
    pub fn new(
        model: Model,
        rank: u32,
        inner: Option<Box<dyn Backend>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let hostname = format!("sim{rank}");
        let models = model.devices(rank);
        let infos = models.iter().map(|device| device.info(&hostname)).collect();
        let devices =
            models.into_iter().map(|model| Device { model, engines: Default::default() }).collect();
        Self {
            clock,
            model,
            infos,
            devices,
            inner,
            kernels: FxHashMap::default(),
            operations: FxHashMap::default(),
            events: BinaryHeap::new(),
            events_so_far: 0,
            ended: Vec::new(),
            inner_ended: Vec::new(),
        }
    }

    /// Creates the devices of the model, with this host's OpenCL devices inside if results are to
    /// be real.
    pub fn of_model(model: Model, rank: u32, clock: &Arc<dyn Clock>) -> Self {
        let inner: Option<Box<dyn Backend>> = match model.mode {
            Mode::Hollow => None,
            Mode::Real => Some(Box::new(super::opencl::OpenCl::new(Arc::clone(clock)))),
        };
        Self::new(model, rank, inner, Arc::clone(clock))
    }

    /// Returns the device of the inner back end that computes for this one.
    fn inner_device(&self, device: u32) -> u32 {
        let count = self.inner.as_ref().map_or(1, |inner| inner.devices().len());
        device % u32::try_from(count).unwrap_or(1).max(1)
    }

    fn post(&mut self, time: u64, id: CommandId, what: EngineEvent) {
        self.events_so_far += 1;
        let event = FutureEvent { time, ordinal: self.events_so_far, id, what };
        self.events.push(Reverse(event));
    }

    /// Returns the engine and the duration in ns of an operation.
    fn cost(&mut self, device: u32, command: &Command) -> Result<(Option<usize>, u64), Failure> {
        let model = &self.devices.get(device as usize).ok_or_else(|| unknown_device(device))?.model;
        let transfer = |engine, bytes: u64| {
            (model.transfer_ns(bytes) > 0).then_some((Some(engine), model.transfer_ns(bytes)))
        };
        let nothing = (None, 0);
        Ok(match command {
            Command::CreateBuffer { .. } | Command::ReleaseBuffer { .. } => nothing,
            Command::ReleaseKernel { kernel } => {
                self.kernels.remove(kernel);
                nothing
            }
            Command::CreateKernel { kernel, name, .. } => {
                self.kernels.insert(*kernel, name.clone());
                (Some(Engine::IN), self.model.build_ns())
            }
            Command::Run { kernel, range, args } => {
                let name = self.kernels.get(kernel).ok_or_else(|| gone(ObjectKind::Kernel))?;
                (
                    Some(Engine::COMPUTE),
                    self.model.kernel_ns(model, name, range, args).map_err(no_cost)?,
                )
            }
            Command::Write { size, .. } => transfer(Engine::IN, *size).unwrap_or(nothing),
            Command::Read { size, .. } => transfer(Engine::OUT, *size).unwrap_or(nothing),
            Command::Copy { size, .. } => (Some(Engine::COMPUTE), model.copy_ns(*size)),
            Command::ReleaseHeap { .. } | Command::AbortHeap { .. } | Command::ResetHeap { .. } => {
                nothing
            }
            Command::CreateHeap { .. } => {
                return Err(super::no_heaps(
                    "simulated devices only take time; their kernels cannot talk to each other",
                ));
            }
            Command::Move(_) | Command::Marker => return Err(not_performed(command)),
        })
    }

    /// Advances the model to this moment.
    fn advance(&mut self, now: u64) {
        while let Some(Reverse(FutureEvent { time, id, what, .. })) = self.events.peek().copied()
            && time <= now
        {
            self.events.pop();
            match what {
                EngineEvent::Ready => self.is_ready(id, time),
                EngineEvent::End => self.model_ended(id, time),
            }
        }
    }

    fn is_ready(&mut self, id: CommandId, time: u64) {
        let Some(operation) = self.operations.get(&id) else { return };
        let Some(index) = operation.engine else {
            self.begin(id, time);
            return;
        };
        let Some(engine) = self
            .devices
            .get_mut(operation.device as usize)
            .and_then(|device| device.engines.get_mut(index))
        else {
            return;
        };
        if engine.working {
            engine.queue.push_back(id);
        } else {
            engine.working = true;
            self.begin(id, time);
        }
    }

    fn begin(&mut self, id: CommandId, time: u64) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.started = time;
        let end = time.saturating_add(operation.duration);
        self.post(end, id, EngineEvent::End);
    }

    fn model_ended(&mut self, id: CommandId, time: u64) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.model_end = Some(time);
        let (device, engine) = (operation.device as usize, operation.engine);
        for successor in std::mem::take(&mut operation.successors) {
            let Some(later) = self.operations.get_mut(&successor) else { continue };
            later.unmet -= 1;
            if later.unmet == 0 {
                self.post(time, successor, EngineEvent::Ready);
            }
        }
        let engine = engine.and_then(|index| self.devices.get_mut(device)?.engines.get_mut(index));
        if let Some(engine) = engine {
            match engine.queue.pop_front() {
                Some(next) => self.begin(next, time),
                None => engine.working = false,
            }
        }
        self.report(id);
    }

    /// Reports an operation once both the model and the inner back end have ended it.
    fn report(&mut self, id: CommandId) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        let Some(ended) = operation.model_end else { return };
        let Some(outcome) = operation.inner_end.take() else { return };
        let times = Times { received: 0, started: operation.started, ended };
        self.operations.remove(&id);
        self.ended.push(Ended { operation: id, outcome, times });
    }

    fn poll_inner(&mut self) {
        let Some(inner) = &mut self.inner else { return };
        let mut ended = std::mem::take(&mut self.inner_ended);
        inner.poll(&mut ended);
        for end in ended.drain(..) {
            if let Some(operation) = self.operations.get_mut(&end.operation) {
                operation.inner_end = Some(end.outcome);
                self.report(end.operation);
            }
        }
        self.inner_ended = ended;
    }
}

impl Backend for Sim {
    fn devices(&self) -> &[DeviceInfo] {
        &self.infos
    }

    fn orders(&self, earlier: u32, device: u32) -> bool {
        match &self.inner {
            Some(inner) => inner.orders(self.inner_device(earlier), self.inner_device(device)),
            None => true,
        }
    }

    unsafe fn start(&mut self, id: CommandId, device: u32, command: &Command, after: &[CommandId]) {
        let now = self.clock.now();
        self.advance(now);
        let cost = self.cost(device, command);
        let (engine, duration) = match cost {
            Ok(cost) => cost,
            Err(failure) => {
                self.ended.push(Ended {
                    operation: id,
                    outcome: Err(failure),
                    times: Times::default(),
                });
                return;
            }
        };
        let mut unmet = 0;
        for earlier in after {
            if let Some(earlier) = self.operations.get_mut(earlier)
                && earlier.model_end.is_none()
            {
                earlier.successors.push(id);
                unmet += 1;
            }
        }
        let inner_device = self.inner_device(device);
        let inner_end = match &mut self.inner {
            Some(inner) => {
                // SAFETY: the caller promises the same as the inner back end demands: the operation
                // is reported after the inner one has ended.
                unsafe { inner.start(id, inner_device, command, after) };
                None
            }
            None => Some(Ok(())),
        };
        let running = Running {
            device,
            engine,
            duration,
            unmet,
            successors: Vec::new(),
            started: now,
            model_end: None,
            inner_end,
        };
        self.operations.insert(id, running);
        if unmet == 0 {
            self.post(now, id, EngineEvent::Ready);
        }
    }

    fn poll(&mut self, ended: &mut Vec<Ended>) {
        let now = self.clock.now();
        self.advance(now);
        self.poll_inner();
        ended.append(&mut self.ended);
    }

    fn memory(&self, buffer: ObjectId, offset: u64, size: u64) -> Option<Memory> {
        // Bytes that take time to reach the device cannot be there already.
        if self.devices.iter().any(|device| device.model.transfer_ns(1) > 0) {
            return None;
        }
        self.inner.as_ref()?.memory(buffer, offset, size)
    }

    fn next_end(&self) -> Option<u64> {
        if self.ended.is_empty() {
            self.events.peek().map(|Reverse(event)| event.time)
        } else {
            Some(0)
        }
    }

    fn wake_with(&mut self, wake: Doorbell) {
        if let Some(inner) = &mut self.inner {
            inner.wake_with(wake);
        }
    }

    fn is_hollow(&self) -> bool {
        self.inner.is_none()
    }

    fn takes_time(&self, device: u32) -> bool {
        self.devices.get(device as usize).is_some_and(|device| device.model.transfer_ns(1) > 0)
    }
}

fn unknown_device(device: u32) -> Failure {
    Failure {
        code: code::INVALID,
        message: format!("there is no simulated device {device}"),
        log: String::new(),
    }
}

fn no_cost(error: ModelError) -> Failure {
    Failure { code: code::INVALID, message: error.to_string(), log: String::new() }
}

#[cfg(test)]
mod tests;
