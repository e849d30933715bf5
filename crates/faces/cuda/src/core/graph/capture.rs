//! Capture: commands for a stream become nodes of a graph instead of running.
//!
//! "cudaStreamBeginCapture(): ... all operations pushed into the stream will not be executed, but
//! will instead be captured into a graph". A stream that waits for an event of a capture joins it.
//! Captures are few and short, so one lock guards all of them. Streams first check a counter,
//! without the lock.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, Weak};
use std::thread::ThreadId;

use penstock_cuda_sys::driver::*;
use penstock_process::Lock;
use rustc_hash::FxHashSet;

use super::Graph;
use super::work::Work;
use crate::core::context::Context;
use crate::core::event::{CapturedPosition, Event};
use crate::core::stream::{Stream, StreamKind};
use crate::edge::{self, CuResult, Object as _, new_number, require};

struct Capture {
    /// Unique number of this capture, never used again.
    id: u64,
    mode: u32,
    thread: ThreadId,
    graph: Arc<Graph>,
    /// Whether the program gave the graph.
    is_given: bool,
    is_invalid: bool,
    /// The streams of the capture. The capture began in the first one.
    members: Vec<Member>,
}

/// A stream of a capture.
struct Member {
    stream: Weak<Stream>,
    number: u64,
    /// Number of the stream's context.
    context: u64,
    is_blocking: bool,
    /// Nodes that the stream's next node follows.
    tail: Vec<u64>,
}

/// The effect of a record.
pub(crate) enum EventRecord {
    /// The stream is not captured, so the caller must record the event.
    Not,
    /// The record became a node.
    Node,
    /// The event takes this position in the capture.
    Here(CapturedPosition),
}

/// What `cuStreamGetCaptureInfo` returns about a captured stream.
pub(crate) struct CaptureInfo {
    /// A value of `CU_STREAM_CAPTURE_STATUS_...`.
    pub(crate) status: u32,
    pub(crate) id: u64,
    pub(crate) graph: Arc<Graph>,
    pub(crate) tail: Vec<u64>,
}

static CAPTURES: Lock<Vec<Capture>> = Lock::new(Vec::new());
/// Number of captures in [`CAPTURES`].
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread's mode, see `cuThreadExchangeStreamCaptureMode`.
    static MODE: Cell<u32> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// Returns whether there is any capture.
#[inline]
fn any_exists() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

fn captures() -> MutexGuard<'static, Vec<Capture>> {
    let mut all = CAPTURES.lock();
    // A capture whose first stream is gone can never be ended.
    all.retain(|capture| {
        capture.members.first().is_some_and(|first| first.stream.strong_count() > 0)
    });
    COUNT.store(all.len(), Ordering::Release);
    all
}

impl Capture {
    fn member(&mut self, stream: &Stream) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.number == stream.number())
    }

    fn invalidate(&mut self, code: CUresult) -> CUresult {
        self.is_invalid = true;
        code
    }

    fn check(&self) -> CuResult {
        require(!self.is_invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    }

    fn join(&mut self, stream: &Arc<Stream>, tail: &[u64]) -> CuResult {
        let context = stream.context()?.number();
        match self.member(stream) {
            Some(member) => {
                let new = tail
                    .iter()
                    .filter(|number| !member.tail.contains(number))
                    .copied()
                    .collect::<Vec<_>>();
                member.tail.extend(new);
            }
            None => self.members.push(Member {
                stream: Arc::downgrade(stream),
                number: stream.number(),
                context,
                is_blocking: stream.kind != StreamKind::NonBlocking,
                tail: tail.to_vec(),
            }),
        }
        Ok(())
    }

    /// Returns whether the first stream's end follows everything that the other streams captured.
    fn is_joined(&self) -> bool {
        let Some((first, others)) = self.members.split_first() else { return true };
        let shape = self.graph.shape();
        let index =
            |number: &u64| shape.nodes.binary_search_by_key(number, |node| node.number()).ok();
        let mut seen: FxHashSet<usize> = first.tail.iter().filter_map(index).collect();
        let mut open: Vec<usize> = seen.iter().copied().collect();
        while let Some(node) = open.pop() {
            for before in shape.before.get(node).into_iter().flatten() {
                if seen.insert(*before) {
                    open.push(*before);
                }
            }
        }
        // Nodes that the program removed from the graph need not be joined.
        others
            .iter()
            .flat_map(|member| &member.tail)
            .filter_map(index)
            .all(|node| seen.contains(&node))
    }
}

fn of<'a>(all: &'a mut [Capture], stream: &Stream) -> Option<&'a mut Capture> {
    all.iter_mut()
        .find(|capture| capture.members.iter().any(|member| member.number == stream.number()))
}

/// Fails if the stream is the legacy default stream and a blocking stream of its context is
/// captured. The legacy default stream would order the captured stream, so the attempt invalidates
/// the capture.
fn check_legacy(all: &mut [Capture], context: &Context, stream: &Stream) -> CuResult {
    if stream.kind != StreamKind::Legacy {
        return Ok(());
    }
    let mut result = Ok(());
    for capture in all.iter_mut() {
        let mut members = capture.members.iter();
        if members.any(|member| member.is_blocking && member.context == context.number()) {
            result = Err(capture.invalidate(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
        }
    }
    result
}

/// Adds a command to the capture of its stream. Returns false if the stream is not captured: then
/// the caller must run the command.
///
/// # Errors
/// The capture was or becomes invalid, or the legacy default stream would depend on a capture.
#[inline]
pub(crate) fn takes(
    context: &Arc<Context>,
    stream: &Arc<Stream>,
    work: impl FnOnce() -> CuResult<Work>,
) -> CuResult<bool> {
    if any_exists() { take(context, stream, work).map(|node| node.is_some()) } else { Ok(false) }
}

#[cold]
fn take(
    context: &Arc<Context>,
    stream: &Arc<Stream>,
    work: impl FnOnce() -> CuResult<Work>,
) -> CuResult<Option<u64>> {
    let mut all = captures();
    check_legacy(&mut all, context, stream)?;
    let Some(capture) = of(&mut all, stream) else { return Ok(None) };
    capture.check()?;
    let graph = capture.graph.clone();
    let Some(member) = capture.member(stream) else { return Ok(None) };
    let added = work().and_then(|work| graph.add(work, &member.tail));
    match added {
        Ok(node) => {
            member.tail = vec![node.number()];
            Ok(Some(node.number()))
        }
        // "... if an invalid operation is attempted during stream capture, any associated capture
        // graphs are invalidated."
        Err(code) => Err(capture.invalidate(code)),
    }
}

/// Checks a blocking command, which cannot be captured.
#[inline]
pub(crate) fn refuse_now(context: &Context, stream: &Stream) -> CuResult {
    if !any_exists() {
        return Ok(());
    }
    refuse(context, stream)?;
    check_safe()
}

/// Checks a command that cannot be captured, or a query or wait for the stream's end.
///
/// # Errors
/// The stream is captured, or is the legacy default stream of captured ones. Their captures become
/// invalid.
#[inline]
pub(crate) fn refuse(context: &Context, stream: &Stream) -> CuResult {
    if !any_exists() {
        return Ok(());
    }
    let mut all = captures();
    check_legacy(&mut all, context, stream)?;
    match of(&mut all, stream) {
        None => Ok(()),
        Some(capture) if capture.is_invalid => Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        Some(capture) => Err(capture.invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)),
    }
}

/// Implements `cuCtxSynchronize`: waits for all commands of a context.
///
/// # Errors
/// A stream of the context is captured. The capture becomes invalid.
pub(crate) fn synchronize(context: &Context) -> CuResult {
    context.check()?;
    refuse_context(context)?;
    context.synchronize()
}

/// Checks a wait for a whole context.
fn refuse_context(context: &Context) -> CuResult {
    if !any_exists() {
        return Ok(());
    }
    let mut result = Ok(());
    for capture in captures().iter_mut() {
        if capture.members.iter().any(|member| member.context == context.number()) {
            result = Err(capture.invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        }
    }
    result
}

/// Checks a call that is "potentially unsafe": it may wait for other commands, or run work at once
/// that the program believes to be captured.
///
/// # Errors
/// A capture forbids the call, and becomes invalid.
#[inline]
pub(crate) fn check_safe() -> CuResult {
    if any_exists() { look_for_ban() } else { Ok(()) }
}

#[cold]
fn look_for_ban() -> CuResult {
    let mode = MODE.get();
    if mode == CU_STREAM_CAPTURE_MODE_RELAXED {
        return Ok(());
    }
    let thread = std::thread::current().id();
    let mut result = Ok(());
    for capture in captures().iter_mut() {
        // "If the local thread has an ongoing capture sequence that was not initiated with
        // ..._RELAXED ..., or if any other thread has a concurrent capture sequence initiated with
        // ..._GLOBAL". The second condition does not hold for threads in mode "thread local".
        let is_own = capture.thread == thread && capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        let is_other =
            mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if is_own || is_other {
            result = Err(capture.invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        }
    }
    result
}

/// Implements `cuThreadExchangeStreamCaptureMode`: returns the old mode.
pub(crate) fn exchange_mode(mode: u32) -> CuResult<u32> {
    require(mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE)?;
    Ok(MODE.replace(mode))
}

/// Implements `cuStreamBeginCapture`: captures into a graph of the program or a new one.
pub(crate) fn begin(
    context: &Context,
    stream: &Arc<Stream>,
    mode: u32,
    given: Option<(Arc<Graph>, &[u64])>,
) -> CuResult {
    require(mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE)?;
    context.check()?;
    // The legacy default stream stands for other streams, so it cannot be captured.
    require(stream.kind != StreamKind::Legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)?;
    let mut all = captures();
    require(of(&mut all, stream).is_none(), CUDA_ERROR_ILLEGAL_STATE)?;
    let (is_given, (graph, tail)) = match given {
        Some((graph, tail)) => {
            let nodes = graph.nodes();
            require(tail.iter().all(|number| nodes.contains(number)), CUDA_ERROR_INVALID_VALUE)?;
            (true, (graph, tail))
        }
        None => (false, (Graph::create(), [].as_slice())),
    };
    let thread = std::thread::current().id();
    let mut capture = Capture {
        id: new_number(),
        mode,
        thread,
        graph,
        is_given,
        is_invalid: false,
        members: Vec::new(),
    };
    capture.join(stream, tail)?;
    all.push(capture);
    COUNT.store(all.len(), Ordering::Release);
    Ok(())
}

/// Implements `cuStreamEndCapture`: returns the captured graph.
pub(crate) fn end(stream: &Stream) -> CuResult<Arc<Graph>> {
    let mut all = captures();
    let capture = of(&mut all, stream).ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    let is_first = capture.members.first().is_some_and(|first| first.number == stream.number());
    if !is_first {
        return Err(capture.invalidate(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
    }
    let is_here = capture.thread == std::thread::current().id();
    // "If mode is not CU_STREAM_CAPTURE_MODE_RELAXED, cuStreamEndCapture must be called on this
    // stream from the same thread."
    if capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && !is_here {
        return Err(capture.invalidate(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
    }
    let id = capture.id;
    let index = all.iter().position(|capture| capture.id == id).ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    let capture = all.swap_remove(index);
    COUNT.store(all.len(), Ordering::Release);
    drop(all);
    let ended = capture
        .check()
        .and_then(|()| require(capture.is_joined(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
    if ended.is_err() && !capture.is_given {
        _ = capture.graph.destroy();
    }
    ended.map(|()| capture.graph)
}

/// Describes the capture of a stream. Returns `None` if the stream is not captured.
///
/// # Errors
/// The stream is the legacy default stream, and a blocking stream of its context is captured.
pub(crate) fn info(context: &Context, stream: &Stream) -> CuResult<Option<CaptureInfo>> {
    if !any_exists() {
        return Ok(None);
    }
    let mut all = captures();
    check_legacy_only(&all, context, stream)?;
    let Some(capture) = of(&mut all, stream) else { return Ok(None) };
    let status = if capture.is_invalid {
        CU_STREAM_CAPTURE_STATUS_INVALIDATED
    } else {
        CU_STREAM_CAPTURE_STATUS_ACTIVE
    };
    let (id, graph) = (capture.id, capture.graph.clone());
    let tail = capture.member(stream).map(|member| member.tail.clone()).unwrap_or_default();
    Ok(Some(CaptureInfo { status, id, graph, tail }))
}

/// "... CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ... if hStream is CU_STREAM_LEGACY while another stream
/// of the context is captured". Unlike [`check_legacy`], invalidates nothing.
fn check_legacy_only(all: &[Capture], context: &Context, stream: &Stream) -> CuResult {
    let mut members = all.iter().flat_map(|capture| &capture.members);
    let stands_for = stream.kind == StreamKind::Legacy
        && members.any(|member| member.is_blocking && member.context == context.number());
    require(!stands_for, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
}

pub(crate) fn update(stream: &Stream, nodes: &[u64], flags: u32) -> CuResult {
    require(flags <= CU_STREAM_SET_CAPTURE_DEPENDENCIES, CUDA_ERROR_INVALID_VALUE)?;
    let mut all = captures();
    let capture = of(&mut all, stream).ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    capture.check()?;
    let known = capture.graph.nodes();
    require(nodes.iter().all(|number| known.contains(number)), CUDA_ERROR_INVALID_VALUE)?;
    let member = capture.member(stream).ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    if flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES {
        member.tail.clear();
    }
    for number in nodes {
        if !member.tail.contains(number) {
            member.tail.push(*number);
        }
    }
    Ok(())
}

/// Implements `cuEventRecord`, as far as a capture is concerned.
pub(crate) fn record(
    context: &Arc<Context>,
    stream: &Arc<Stream>,
    event: &Arc<Event>,
    is_external: bool,
) -> CuResult<EventRecord> {
    if !any_exists() {
        // "This flag is invalid when used outside of stream capture."
        return require(!is_external, CUDA_ERROR_INVALID_VALUE).map(|()| EventRecord::Not);
    }
    if is_external {
        let node = take(context, stream, || Ok(Work::Record(event.clone())))?;
        return require(node.is_some(), CUDA_ERROR_INVALID_VALUE).map(|()| EventRecord::Node);
    }
    let mut all = captures();
    check_legacy(&mut all, context, stream)?;
    let Some(capture) = of(&mut all, stream) else { return Ok(EventRecord::Not) };
    capture.check()?;
    let id = capture.id;
    let tail = capture.member(stream).map(|member| member.tail.clone()).unwrap_or_default();
    Ok(EventRecord::Here(CapturedPosition { capture: id, tail }))
}

/// Implements `cuStreamWaitEvent`, as far as a capture is concerned. Returns true if the wait needs
/// nothing else.
pub(crate) fn waits(
    context: &Arc<Context>,
    stream: &Arc<Stream>,
    event: &Arc<Event>,
    is_external: bool,
) -> CuResult<bool> {
    if is_external {
        let node = if any_exists() {
            take(context, stream, || Ok(Work::Wait(event.clone())))?
        } else {
            None
        };
        return require(node.is_some(), CUDA_ERROR_INVALID_VALUE).map(|()| true);
    }
    let captured = event.captured();
    if captured.is_none() && !any_exists() {
        return Ok(false);
    }
    let mut all = captures();
    check_legacy(&mut all, context, stream)?;
    let own = of(&mut all, stream).map(|capture| capture.id);
    let Some(captured) = captured else {
        let Some(capture) = of(&mut all, stream) else { return Ok(false) };
        capture.check()?;
        if event.is_recorded() {
            // A graph cannot wait for a command outside of it.
            return Err(capture.invalidate(CUDA_ERROR_STREAM_CAPTURE_ISOLATION));
        }
        return Ok(true);
    };
    if own.is_some_and(|own| own != captured.capture) {
        for capture in all
            .iter_mut()
            .filter(|capture| [own, Some(captured.capture)].contains(&Some(capture.id)))
        {
            _ = capture.invalidate(CUDA_ERROR_STREAM_CAPTURE_MERGE);
        }
        return Err(CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    // Fails if the event's capture has ended.
    let capture = all
        .iter_mut()
        .find(|capture| capture.id == captured.capture)
        .ok_or(CUDA_ERROR_CAPTURED_EVENT)?;
    capture.check()?;
    if stream.kind == StreamKind::Legacy {
        return Err(capture.invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
    }
    capture.join(stream, &captured.tail).map(|()| true)
}

/// Invalidates the capture of an event. The program asked for the event's end, which does not
/// exist.
#[cold]
pub(crate) fn invalidate_of(captured: &CapturedPosition) -> CUresult {
    for capture in captures().iter_mut().filter(|capture| capture.id == captured.capture) {
        _ = capture.invalidate(CUDA_ERROR_CAPTURED_EVENT);
    }
    CUDA_ERROR_CAPTURED_EVENT
}

/// Implements `cuStreamDestroy`: "... the function will return immediately and the resources
/// associated with hStream will be released automatically once the device has completed all work in
/// hStream."
pub(crate) fn destroy_stream(stream: &Stream) -> CuResult {
    edge::forget(stream).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    forget(stream);
    if let Ok(context) = stream.context() {
        context.remove(stream);
    }
    Ok(())
}

/// Handles a stream that the program destroys. Drops the capture that began in the stream, or
/// invalidates another capture that contains it.
fn forget(stream: &Stream) {
    if !any_exists() {
        return;
    }
    let mut all = captures();
    let is_first = |capture: &Capture| {
        capture.members.first().is_some_and(|first| first.number == stream.number())
    };
    let gone: Vec<_> = all.extract_if(.., |capture| is_first(capture)).collect();
    if let Some(capture) = of(&mut all, stream) {
        _ = capture.invalidate(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        capture.members.retain(|member| member.number != stream.number());
    }
    COUNT.store(all.len(), Ordering::Release);
    drop(all);
    for capture in gone.iter().filter(|capture| !capture.is_given) {
        _ = capture.graph.destroy();
    }
}
