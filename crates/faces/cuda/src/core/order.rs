//! The order of commands: each is sent with the events that it must wait for.
//!
//! "The legacy default stream is an implicit stream which synchronizes with all other streams in
//! the same CUcontext except for non-blocking streams": a command there waits for all commands of
//! blocking streams so far, and later commands of those streams wait for it. Only the worker waits
//! for these events.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_client::{Error, Event, Queue, Source, Want};
use penstock_cuda_sys::driver::{CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_NOT_READY};
use penstock_wire::Status;

use super::block::MemoryOffset;
use super::clock::StreamClock;
use super::context::Context;
use super::host;
use super::stream::{Stream, StreamKind};
use crate::edge::{CuResult, of_status};

/// Result of sending a command: its event, if it has one.
type SendResult = Result<Option<Event>, Error>;

/// A command that was sent into a stream.
pub(crate) struct SentCommand {
    pub(crate) event: Option<Event>,
    /// Ordinal of the command in the stream.
    pub(crate) serial: u64,
}

impl Context {
    /// Sends a command into a stream. `send` gets the queue and the command's wait list.
    #[inline]
    pub(crate) fn issue(
        &self,
        stream: &Stream,
        send: impl FnOnce(&Arc<Queue>, &[Event]) -> SendResult,
    ) -> CuResult<SentCommand> {
        self.issue_as(stream, true, send)
    }

    /// As [`Context::issue`], for a command that only changes memory of the device.
    pub(super) fn issue_unnoticed(
        &self,
        stream: &Stream,
        send: impl FnOnce(&Arc<Queue>, &[Event]) -> SendResult,
    ) -> CuResult<SentCommand> {
        // The program sees memory of the device if it shares it.
        self.issue_as(stream, host::any_joint(), send)
    }

    /// As [`Context::issue`]. `is_noticed` says whether the program can notice the end of the
    /// command without a wait of its own.
    #[inline]
    pub(super) fn issue_as(
        &self,
        stream: &Stream,
        is_noticed: bool,
        send: impl FnOnce(&Arc<Queue>, &[Event]) -> SendResult,
    ) -> CuResult<SentCommand> {
        self.check()?;
        if stream.kind == StreamKind::NonBlocking || !self.has_blocking.load(Ordering::Acquire) {
            return self.send(stream, is_noticed, &[], send);
        }
        // Held until the command is sent. Otherwise a command of another thread could come between
        // this command and those that it waits for.
        let _order = self.sending_in_order.lock();
        let waits = self.waits_for(stream)?;
        self.send(stream, is_noticed, &waits, send)
    }

    /// Sends one command into a stream of each of several contexts, all at once. Each command waits
    /// for everything that any of them would wait for alone.
    ///
    /// # Errors
    /// The code, if one of the contexts does not accept commands. The inner result is that of
    /// `send`.
    pub(crate) fn issue_together(
        parts: &[(&Self, &Stream)],
        send: impl FnOnce(&[Event]) -> Result<(), Error>,
    ) -> CuResult<Result<(), Error>> {
        parts.iter().try_for_each(|(context, _)| context.check())?;
        let (mut orders, mut waits) = (Vec::new(), Vec::new());
        for (context, stream) in parts {
            if stream.kind != StreamKind::NonBlocking
                && context.has_blocking.load(Ordering::Acquire)
            {
                orders.push(context.sending_in_order.lock());
                waits.extend(context.waits_for(stream)?);
            }
        }
        let sending: Vec<_> = parts.iter().map(|(_, stream)| stream.lock()).collect();
        let sent = send(&waits);
        for (context, stream) in parts {
            // A failure becomes known when the stream is waited for.
            stream.clock.count(false, true);
            if sent.is_err() {
                context.reset_seen(stream);
            }
        }
        drop(sending);
        Ok(sent)
    }

    /// As [`Context::issue`] for a write. Returns `None` if the write needed no command.
    pub(crate) fn issue_write(
        &self,
        stream: &Stream,
        located: &MemoryOffset,
        source: &dyn Source,
        want: Want,
    ) -> CuResult<Option<SentCommand>> {
        self.check()?;
        let write = |waits: &[Event]| {
            if stream.queue.write_at_once(&located.memory, located.offset, source, waits) {
                return Ok(None);
            }
            let command = |queue: &Arc<Queue>, waits: &[Event]| {
                queue.write(&located.memory, located.offset, source, waits, want)
            };
            self.send(stream, is_taken_later(source), waits, command).map(Some)
        };
        if stream.kind == StreamKind::NonBlocking || !self.has_blocking.load(Ordering::Acquire) {
            return write(&[]);
        }
        let _order = self.sending_in_order.lock();
        write(&self.waits_for(stream)?)
    }

    #[inline]
    fn send(
        &self,
        stream: &Stream,
        is_noticed: bool,
        waits: &[Event],
        send: impl FnOnce(&Arc<Queue>, &[Event]) -> SendResult,
    ) -> CuResult<SentCommand> {
        let sending = stream.lock();
        let sent = send(&stream.queue, waits);
        let serial = stream.clock.count(matches!(sent, Ok(Some(_))), is_noticed);
        drop(sending);
        if sent.is_err() {
            // The wait list was not sent, so the next command needs it again.
            self.reset_seen(stream);
        }
        let event = sent.map_err(|error| self.failed(&error))?;
        // An event of the wait list had failed, so the command was not sent.
        if let Some(status) =
            event.as_ref().and_then(Event::known_status).filter(|status| status.is_error())
        {
            return Err(self.fail(code_of_wait_list(status)));
        }
        Ok(SentCommand { event, serial })
    }

    /// Makes the next commands wait again for all that other streams have sent.
    #[cold]
    fn reset_seen(&self, stream: &Stream) {
        stream.clock.forget_legacy();
        if stream.kind == StreamKind::Legacy {
            for other in self.blocking.read().iter() {
                other.clock.forget_seen_by_legacy();
            }
        }
    }

    /// Returns the wait list for a command in a stream: the unfinished commands of other streams.
    /// Later commands in the stream need not wait for the same events again.
    fn waits_for(&self, stream: &Stream) -> CuResult<Vec<Event>> {
        let mut waits = Vec::new();
        if stream.kind == StreamKind::Legacy {
            for other in self.blocking.read().iter() {
                let issued = other.clock.issued();
                if !other.clock.is_idle() && other.clock.be_seen_by_legacy(issued) {
                    waits.push(self.marker(other)?);
                }
            }
        } else {
            let issued = self.legacy.clock.issued();
            if !self.legacy.clock.is_idle() && stream.clock.see_legacy(issued) {
                waits.push(self.marker(&self.legacy)?);
            }
        }
        Ok(waits)
    }

    /// Returns an event that ends with all commands of a stream so far.
    pub(crate) fn marker(&self, stream: &Stream) -> CuResult<Event> {
        stream.marker_event(false).map_err(|error| self.failed(&error))
    }

    /// Returns whether `is_done` holds for all streams whose commands the next command of a stream
    /// would wait for. `is_done` holds for each idle stream.
    fn predecessors_are(&self, stream: &Stream, is_done: fn(&StreamClock) -> bool) -> bool {
        let blocking_are = || self.blocking.read().iter().all(|other| is_done(&other.clock));
        let others_are = || match stream.kind {
            StreamKind::NonBlocking => true,
            // An open command of the legacy default stream may wait for other blocking streams.
            StreamKind::Blocking => {
                let legacy = &self.legacy.clock;
                legacy.is_idle() || (is_done(legacy) && blocking_are())
            }
            StreamKind::Legacy => blocking_are(),
        };
        is_done(&stream.clock) && others_are()
    }

    /// Returns whether all commands that the next command of a stream would wait for are known to
    /// have ended.
    pub(super) fn has_no_predecessors(&self, stream: &Stream) -> bool {
        self.predecessors_are(stream, StreamClock::is_idle)
    }

    /// Waits for all commands that the next command of a stream would wait for, unless the program
    /// can notice the end of none of them.
    pub(super) fn finish_noticed(&self, stream: &Stream) -> CuResult {
        if self.predecessors_are(stream, StreamClock::is_quiet) {
            return Ok(());
        }
        self.finish_predecessors(stream)
    }

    /// Waits for the commands of other streams that a command in this stream would wait for. Holds
    /// no lock, because other threads may have to send before those commands can end.
    pub(super) fn await_other_streams(&self, stream: &Stream) -> CuResult {
        if stream.kind == StreamKind::NonBlocking || !self.has_blocking.load(Ordering::Acquire) {
            return Ok(());
        }
        for event in self.predecessors(stream)? {
            let status = event.wait();
            if status.is_error() {
                return Err(self.fail(of_status(status)));
            }
        }
        Ok(())
    }

    /// Reports a failed read whose caller did not wait.
    #[inline]
    pub(super) fn look_at_reads(&self, stream: &Stream) -> CuResult {
        stream.unawaited_reads.failure().map_or(Ok(()), |status| Err(self.fail(of_status(status))))
    }

    /// Waits for all commands of a stream so far, without looking for faults and output of kernels.
    pub(crate) fn finish(&self, stream: &Stream) -> CuResult {
        if !stream.clock.is_settled() {
            let serial = stream.clock.issued();
            stream.queue.finish().map_err(|error| self.failed(&error))?;
            stream.clock.note_checked(serial);
        }
        self.look_at_reads(stream)
    }

    /// Waits for all commands that the next command of a stream would wait for.
    pub(super) fn finish_predecessors(&self, stream: &Stream) -> CuResult {
        if stream.kind == StreamKind::Blocking {
            self.finish(&self.legacy)?;
        }
        self.synchronize_stream(stream)
    }

    pub(crate) fn synchronize_stream(&self, stream: &Stream) -> CuResult {
        self.check()?;
        if stream.kind == StreamKind::Legacy && self.has_blocking.load(Ordering::Acquire) {
            // The legacy default stream waits for these streams, so waiting for it includes them.
            let others = self.blocking.read().clone();
            for other in &others {
                self.finish(other)?;
            }
        }
        self.finish(stream)?;
        self.look_at_kernels()
    }

    /// Implements `cuStreamQuery`.
    pub(crate) fn query_stream(&self, stream: &Stream) -> CuResult {
        self.check()?;
        let mut is_new = false;
        if stream.kind == StreamKind::Legacy && self.has_blocking.load(Ordering::Acquire) {
            // The legacy default stream would wait for these streams.
            let others = self.blocking.read().clone();
            for other in &others {
                is_new |= self.ask(other)?;
            }
        }
        is_new |= self.ask(stream)?;
        if is_new { self.look_at_kernels() } else { Ok(()) }
    }

    /// Checks that all commands have ended. Returns false if that was known already.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_READY`, or the failure of a command.
    fn ask(&self, stream: &Stream) -> CuResult<bool> {
        if stream.clock.is_idle() {
            self.look_at_reads(stream)?;
            return Ok(false);
        }
        let serial = stream.clock.issued();
        let event = stream.marker_event(true).map_err(|error| self.failed(&error))?;
        match event.poll() {
            None => Err(CUDA_ERROR_NOT_READY),
            Some(status) if status.is_error() => Err(self.fail(of_status(status))),
            Some(_) => {
                stream.clock.note_ended(serial);
                self.look_at_reads(stream)?;
                Ok(true)
            }
        }
    }

    /// Returns events for all commands that the next command of a stream would follow.
    pub(super) fn predecessors(&self, stream: &Stream) -> CuResult<Vec<Event>> {
        let mut before = Vec::new();
        let mut add = |stream: &Stream| -> CuResult {
            if !stream.clock.is_idle() {
                before.push(self.marker(stream)?);
            }
            Ok(())
        };
        match stream.kind {
            StreamKind::Legacy => {
                let others = self.blocking.read().clone();
                others.iter().try_for_each(|other| add(other))?;
            }
            StreamKind::Blocking => add(&self.legacy)?,
            StreamKind::NonBlocking => {}
        }
        add(stream)?;
        Ok(before)
    }

    /// Orders the streams of a context for an action that sends no command itself. Sends a barrier
    /// if other streams have unfinished commands that a command in this stream would be the first
    /// to wait for.
    ///
    /// "When an action is taken in the legacy stream such as a kernel launch or
    /// cudaStreamWaitEvent(), the legacy stream first waits on all blocking streams, the action is
    /// queued in the legacy stream, and then all blocking streams wait on the legacy stream."
    /// Without the barrier, later commands of one blocking stream could overtake earlier commands
    /// of another one, and a wait for a blocking stream would not include the legacy stream's
    /// commands before the action.
    pub(crate) fn act_in(&self, stream: &Stream) -> CuResult {
        self.check()?;
        if stream.kind == StreamKind::NonBlocking || !self.has_blocking.load(Ordering::Acquire) {
            return Ok(());
        }
        let _order = self.sending_in_order.lock();
        let waits = self.waits_for(stream)?;
        if waits.is_empty() {
            return Ok(());
        }
        let barrier = |queue: &Arc<Queue>, waits: &[Event]| queue.barrier(waits, Want::Nothing);
        self.send(stream, true, &waits, barrier).map(drop)
    }

    /// Makes all later commands of a stream wait for an event.
    pub(crate) fn wait_in(&self, stream: &Stream, event: &Event) -> CuResult {
        match event.known_status() {
            Some(status) if !status.is_error() => self.act_in(stream),
            _ => self
                .issue(stream, |queue, waits| {
                    let mut all = waits.to_vec();
                    all.push(event.clone());
                    queue.barrier(&all, Want::Nothing)
                })
                .map(drop),
        }
    }

    /// Waits for a command's event, if it has one.
    pub(crate) fn await_event(&self, stream: &Stream, sent: SentCommand) -> CuResult {
        let status = sent.event.map_or(Status::OK, |event| event.wait());
        if status.is_error() {
            return Err(self.fail(of_status(status)));
        }
        stream.clock.note_ended(sent.serial);
        self.look_at_kernels()
    }

    pub(crate) fn issue_and_wait(
        &self,
        stream: &Stream,
        send: impl FnOnce(&Arc<Queue>, &[Event]) -> SendResult,
    ) -> CuResult {
        let sent = self.issue(stream, send)?;
        self.await_event(stream, sent)
    }
}

/// Returns whether a copy of `source` to the device takes the bytes after its function has
/// returned. Then the program notices the end of the copy, because it may change the bytes.
pub(super) fn is_taken_later(source: &dyn Source) -> bool {
    source.shape().is_some()
}

/// Returns the code for a command that could not be sent. A failed wait list does not say why it
/// failed.
fn code_of_wait_list(status: Status) -> penstock_cuda_sys::driver::CUresult {
    if status == Status::WAIT_LIST_FAILED { CUDA_ERROR_LAUNCH_FAILED } else { of_status(status) }
}
