//! Executable graphs: a copy of a graph, and its plan.

use std::fmt;
use std::sync::{Arc, Weak};

use penstock_client::{Event as PoolEvent, Want};
use penstock_cuda_sys::driver::*;
use penstock_process::Lock;
use penstock_wire::Status;

use super::node::Node;
use super::plan::{Action, Plan, Step};
use super::update::{self, Mismatch};
use super::work::Work;
use super::{Graph, capture, memory};
use crate::core::context::Context;
use crate::core::stream::Stream;
use crate::edge::{
    CuResult, Object, check_process, forget, has_handle, new_number, publish, require,
};

pub(crate) struct Exec {
    number: u64,
    pub(crate) flags: u64,
    state: Lock<ExecState>,
}

struct ExecState {
    graph: Arc<Graph>,
    plan: Plan,
    /// The stream of each lane, made when it is first needed. That of the first lane is for
    /// launches in streams of other contexts.
    streams: Vec<Option<Arc<Stream>>>,
    last: Weak<Stream>,
}

/// All flags that are served.
const FLAGS: u64 = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
    | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
    | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

has_handle!(Exec: CUgraphExec_st, CUDA_ERROR_INVALID_VALUE);

impl Exec {
    pub(crate) fn create(graph: &Graph, flags: u64) -> CuResult<Arc<Self>> {
        // Kernels cannot launch graphs here.
        require(flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH == 0, CUDA_ERROR_NOT_SUPPORTED)?;
        require(flags & !FLAGS == 0, CUDA_ERROR_INVALID_VALUE)?;
        let copy = graph.duplicate(false);
        let plan = Plan::of(&copy).inspect_err(|_| _ = copy.destroy())?;
        let streams = vec![None; plan.lanes.len()];
        let state = Lock::new(ExecState { graph: copy, plan, streams, last: Weak::new() });
        let exec = Arc::new(Self { number: new_number(), flags, state });
        publish(&exec);
        Ok(exec)
    }

    /// Implements `cuGraphExecDestroy`. Commands of its launches continue.
    pub(crate) fn destroy(&self) -> CuResult {
        forget(self).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn launch(&self, context: &Arc<Context>, stream: &Arc<Stream>) -> CuResult {
        // Read before the capture lock is taken: under that lock we must not wait for another
        // thread's launch.
        let graph = self.state.lock().graph.clone();
        let child = || Ok(Work::Child(graph.duplicate(true)));
        if capture::takes(context, stream, child)? {
            return Ok(());
        }
        context.check()?;
        let mut state = self.state.lock();
        let state = &mut *state;
        for step in &state.plan.steps {
            let Work::Allocate(memory) = &step.work else { continue };
            if memory::is_held(memory) {
                // "... it is an error to launch the graph again before the memory is freed", except
                // with this flag.
                let frees = self.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH != 0;
                require(frees, CUDA_ERROR_INVALID_VALUE)?;
                memory::free(memory.address()).unwrap_or(Ok(()))?;
            }
        }
        state.await_last(context, stream)?;
        state.last = Arc::downgrade(stream);
        state.launch(context, stream)
    }

    /// Implements `cuGraphUpload`: prepares the kernels, as the first launch otherwise would.
    pub(crate) fn upload(&self) -> CuResult {
        self.state.lock().plan.steps.iter_mut().try_for_each(|step| match &step.work {
            Work::Kernel(launch) => step.kernel.make_ready(launch).map(drop),
            _ => Ok(()),
        })
    }

    /// Gives a node other work of the same kind. `node` is the node of the original graph.
    pub(crate) fn set(&self, node: &Node, work: Work) -> CuResult {
        let mut state = self.state.lock();
        let step = state.step(node)?;
        update::check(&step.work, &work).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        step.set(work)
    }

    pub(crate) fn set_child(&self, node: &Node, graph: &Graph) -> CuResult {
        let mut state = self.state.lock();
        let Work::Child(own) = &state.step(node)?.work else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let own = own.clone();
        let changes = update::changes(&own, graph).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        state.change(&changes)
    }

    /// Implements `cuGraphExecUpdate`: changes all nodes or none.
    pub(crate) fn update(&self, graph: &Graph) -> Result<(), Mismatch> {
        let mut state = self.state.lock();
        let changes = update::changes(&state.graph, graph)?;
        state.change(&changes).map_err(Mismatch::of_code)
    }

    pub(crate) fn set_enabled(&self, node: &Node, is_enabled: bool) -> CuResult {
        let mut state = self.state.lock();
        let step = state.step(node)?;
        require(can_be_off(step), CUDA_ERROR_INVALID_VALUE)?;
        step.is_enabled = is_enabled;
        Ok(())
    }

    pub(crate) fn is_enabled(&self, node: &Node) -> CuResult<bool> {
        let mut state = self.state.lock();
        let step = state.step(node)?;
        require(can_be_off(step), CUDA_ERROR_INVALID_VALUE)?;
        Ok(step.is_enabled)
    }
}

/// "Currently only kernel, memset and memcpy nodes are supported."
fn can_be_off(step: &Step) -> bool {
    matches!(step.work, Work::Kernel(_) | Work::Copy(..) | Work::Fill(..) | Work::Library(..))
}

impl Step {
    fn set(&mut self, work: Work) -> CuResult {
        self.node.set(work.clone())?;
        self.kernel.forget();
        self.work = work;
        Ok(())
    }
}

/// One launch of a graph.
struct GraphLaunch<'a> {
    /// Context and stream of each lane.
    lanes: Vec<(Arc<Context>, Arc<Stream>)>,
    marks: Vec<Option<PoolEvent>>,
    plan: &'a mut Plan,
}

impl ExecState {
    /// Returns the step of a node of the original graph.
    fn step(&mut self, node: &Node) -> CuResult<&mut Step> {
        let mut steps = self.plan.steps.iter_mut();
        let found = steps.find(|step| !step.is_entry && step.node.original() == node.number());
        found.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    fn change(&mut self, changes: &[(u64, Work)]) -> CuResult {
        for (number, work) in changes {
            let mut steps = self.plan.steps.iter_mut();
            let step = steps.find(|step| !step.is_entry && step.node.number() == *number);
            step.ok_or(CUDA_ERROR_INVALID_VALUE)?.set(work.clone())?;
        }
        Ok(())
    }

    /// "Each launch is ordered behind both any previous work in hStream and any previous launches
    /// of hGraphExec."
    fn await_last(&self, context: &Context, stream: &Arc<Stream>) -> CuResult {
        let Some(last) = self.last.upgrade().filter(|last| !Arc::ptr_eq(last, stream)) else {
            return Ok(());
        };
        let Ok(home) = last.context() else { return Ok(()) };
        if last.clock.is_idle() {
            return Ok(());
        }
        // The marker may include commands after that launch.
        let end = home.marker(&last)?;
        context.wait_in(stream, &end)
    }

    /// Returns context and stream of a lane. Makes the stream when it is first needed.
    fn lane(
        &mut self,
        lane: usize,
        launch: (&Arc<Context>, &Arc<Stream>),
    ) -> CuResult<(Arc<Context>, Arc<Stream>)> {
        let wanted = self.plan.lanes.get(lane).map_or(0, |lane| lane.context);
        let is_own = wanted == 0 || wanted == launch.0.number();
        if lane == 0 && is_own {
            return Ok((launch.0.clone(), launch.1.clone()));
        }
        let context = if is_own { launch.0.clone() } else { Context::of_number(wanted)? };
        let slot = self.streams.get_mut(lane).ok_or(CUDA_ERROR_UNKNOWN)?;
        let stream = match slot {
            // A lane for any context may have a stream of another context, from an earlier launch.
            Some(stream) if stream.owner() == context.number() => stream.clone(),
            _ => slot.insert(context.create_hidden_stream()?).clone(),
        };
        Ok((context, stream))
    }

    fn launch(&mut self, context: &Arc<Context>, stream: &Arc<Stream>) -> CuResult {
        let lanes = (0..self.plan.lanes.len())
            .map(|lane| self.lane(lane, (context, stream)))
            .collect::<CuResult<Vec<_>>>()?;
        let is_direct = |lane: &(Arc<Context>, Arc<Stream>)| Arc::ptr_eq(&lane.1, stream);
        if lanes.iter().any(|lane| !is_direct(lane)) {
            let start =
                context.issue(stream, |queue, waits| queue.marker(None, waits, Want::Event))?;
            let start = start.event.unwrap_or_else(|| PoolEvent::ended(Status::OK));
            for (lane, planned) in lanes.iter().zip(&self.plan.lanes) {
                if planned.starts && !is_direct(lane) {
                    lane.0.wait_in(&lane.1, &start)?;
                }
            }
        }
        let marks = vec![None; self.plan.steps.len()];
        let mut run = GraphLaunch { lanes, marks, plan: &mut self.plan };
        run.perform_all()?;
        run.join(context, stream)?;
        // A graph without commands is an action in the stream, too.
        context.act_in(stream)
    }
}

impl GraphLaunch<'_> {
    fn perform_all(&mut self) -> CuResult {
        let actions = std::mem::take(&mut self.plan.actions);
        let done = actions.iter().try_for_each(|action| self.perform(action));
        self.plan.actions = actions;
        done
    }

    fn perform(&mut self, action: &Action) -> CuResult {
        let (Action::Wait { lane, .. }
        | Action::Launches { lane, .. }
        | Action::Step { lane, .. }
        | Action::Mark { lane, .. }) = action;
        let (context, stream) = self.lanes.get(*lane).ok_or(CUDA_ERROR_UNKNOWN)?;
        match action {
            Action::Wait { step, .. } => match self.marks.get(*step).and_then(Option::as_ref) {
                Some(mark) => context.wait_in(stream, mark),
                None => Err(CUDA_ERROR_UNKNOWN),
            },
            Action::Mark { step, .. } => {
                let mark = context.marker(stream)?;
                if let Some(slot) = self.marks.get_mut(*step) {
                    *slot = Some(mark);
                }
                Ok(())
            }
            Action::Step { step, .. } => match self.plan.steps.get(*step) {
                Some(step) if step.is_enabled => step.work.run(context, stream),
                _ => Ok(()),
            },
            Action::Launches { steps, .. } => {
                let steps = self.plan.steps.get_mut(steps.clone()).ok_or(CUDA_ERROR_UNKNOWN)?;
                launch_all(steps, context, stream)
            }
        }
    }

    /// Makes later commands of the launch's stream wait for all lanes.
    fn join(&self, context: &Arc<Context>, stream: &Arc<Stream>) -> CuResult {
        let Some((first_context, first)) = self.lanes.first() else { return Ok(()) };
        for lane in &self.plan.joins {
            let (context, other) = self.lanes.get(*lane).ok_or(CUDA_ERROR_UNKNOWN)?;
            first_context.wait_in(first, &context.marker(other)?)?;
        }
        if Arc::ptr_eq(first, stream) {
            Ok(())
        } else {
            context.wait_in(stream, &first_context.marker(first)?)
        }
    }
}

/// Sends consecutive launches in one stream, with one lock and one wait list.
fn launch_all(steps: &mut [Step], context: &Arc<Context>, stream: &Arc<Stream>) -> CuResult {
    let mut are_prepared = true;
    for step in steps.iter_mut().filter(|step| step.is_enabled) {
        if let Work::Kernel(launch) = &step.work {
            are_prepared &= step.kernel.make_ready(launch)?;
        }
    }
    let launches = || steps.iter().filter(|step| step.is_enabled);
    if !are_prepared {
        return launches().try_for_each(|step| step.work.run(context, stream));
    }
    if launches().next().is_none() {
        return Ok(());
    }
    let sent = context.issue(stream, |queue, waits| {
        let mut waits = waits;
        for step in launches() {
            let Work::Kernel(launch) = &step.work else { continue };
            let sent = step.kernel.send(launch, queue, waits)?;
            // The client may hold the launch back and return its event. Such a launch has not
            // failed.
            let status = sent.as_ref().and_then(PoolEvent::known_status);
            if status.is_some_and(Status::is_error) {
                return Ok(sent);
            }
            // The queue is in order, so only the first launch needs the wait list.
            waits = &[];
        }
        Ok(None)
    });
    sent.map(drop)
}

impl Drop for Exec {
    fn drop(&mut self) {
        if check_process().is_err() {
            return;
        }
        let mut state = self.state.lock();
        _ = state.graph.destroy();
        for stream in state.streams.drain(..).flatten() {
            if let Ok(context) = stream.context() {
                context.remove(&stream);
            }
        }
    }
}

impl fmt::Debug for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exec").field("number", &self.number).finish_non_exhaustive()
    }
}
