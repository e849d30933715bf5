//! The streams of a context, and waits for all of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_client::Event;
use penstock_cuda_sys::driver::{
    CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_INITIALIZED,
};
use penstock_process::SharedLock;

use super::context::Context;
use super::device::Device;
use super::fault;
use super::stream::{Stream, StreamKind};
use crate::edge::{CuResult, publish, require};

impl Context {
    fn list_for(&self, stream: &Stream) -> &SharedLock<Vec<Arc<Stream>>> {
        if stream.kind == StreamKind::NonBlocking { &self.non_blocking } else { &self.blocking }
    }

    pub(super) fn add(&self, stream: &Arc<Stream>) {
        self.drop_finished_streams();
        self.list_for(stream).write().push(stream.clone());
        if stream.kind == StreamKind::Blocking {
            self.has_blocking.store(true, Ordering::Release);
        }
    }

    /// Notes that the program has destroyed the stream. Its commands continue, and waits for the
    /// context include them.
    pub(super) fn remove(&self, stream: &Stream) {
        if stream.note_destroyed() {
            self.destroyed_streams.fetch_add(1, Ordering::AcqRel);
        }
        self.drop_finished_streams();
    }

    /// Drops destroyed streams whose commands have all ended.
    fn drop_finished_streams(&self) {
        if self.destroyed_streams.load(Ordering::Acquire) == 0 {
            return;
        }
        for list in [&self.blocking, &self.non_blocking] {
            // Without the lock, because the question may receive messages.
            let known = list.read().clone();
            for gone in known.iter().filter(|stream| stream.has_finished()) {
                let mut list = list.write();
                let Some(index) = list.iter().position(|stream| Arc::ptr_eq(stream, gone)) else {
                    continue;
                };
                list.swap_remove(index);
                drop(list);
                self.destroyed_streams.fetch_sub(1, Ordering::AcqRel);
                // This is the last chance to report the failure of a command without an event. All
                // commands have ended, so it takes one round trip. Nobody can ask this stream any
                // more, so the context keeps the failure, whatever the code.
                if let Err(code) = self.finish(gone)
                    && code != CUDA_ERROR_NOT_INITIALIZED
                {
                    _ = self.fail(code);
                }
            }
        }
    }

    /// Drops all streams except for the legacy default stream, because the context has ended.
    pub(super) fn drop_all_streams(&self) {
        for list in [&self.blocking, &self.non_blocking] {
            list.write().clear();
        }
    }

    fn streams(&self) -> Vec<Arc<Stream>> {
        let mut streams = vec![self.legacy.clone()];
        for list in [&self.blocking, &self.non_blocking] {
            streams.extend(list.read().iter().cloned());
        }
        streams
    }

    /// Returns the names of the last kernels of all streams whose commands are not known to have
    /// ended. The caller may hold the locks of the lists.
    pub(super) fn open_kernels(&self) -> Vec<String> {
        let mut streams = vec![self.legacy.clone()];
        for list in [&self.blocking, &self.non_blocking] {
            streams.extend(list.try_read().iter().flat_map(|list| list.iter().cloned()));
        }
        let open = streams.iter().filter(|stream| !stream.clock.is_idle());
        let numbers = open.map(|stream| stream.last_kernel.load(Ordering::Relaxed));
        let mut names: Vec<_> = numbers.filter(|number| *number != 0).map(fault::name_of).collect();
        names.dedup();
        names
    }

    /// Returns the number of streams, including destroyed ones whose commands are not known to have
    /// ended.
    pub(crate) fn stream_count(&self) -> usize {
        self.drop_finished_streams();
        self.streams().len()
    }

    /// Implements `cuStreamCreate`.
    pub(crate) fn create_stream(
        self: &Arc<Self>,
        flags: u32,
        priority: i32,
    ) -> CuResult<Arc<Stream>> {
        require(flags & !CU_STREAM_NON_BLOCKING == 0, CUDA_ERROR_INVALID_VALUE)?;
        self.check()?;
        let kind = if flags & CU_STREAM_NON_BLOCKING == 0 {
            StreamKind::Blocking
        } else {
            StreamKind::NonBlocking
        };
        let stream = self.new_stream(kind, flags, priority)?;
        self.add(&stream);
        publish(&stream);
        Ok(stream)
    }

    /// Makes a stream without a handle. It does not synchronise with the legacy default stream.
    pub(super) fn create_hidden_stream(self: &Arc<Self>) -> CuResult<Arc<Stream>> {
        let stream = self.new_stream(StreamKind::NonBlocking, CU_STREAM_NON_BLOCKING, 0)?;
        self.add(&stream);
        Ok(stream)
    }

    /// Makes a stream that is not yet in the list.
    pub(super) fn new_stream(
        self: &Arc<Self>,
        kind: StreamKind,
        flags: u32,
        priority: i32,
    ) -> CuResult<Arc<Stream>> {
        Ok(Stream::new(self.device.new_queue()?, self.as_owner(), kind, flags, priority))
    }

    /// Returns a stream for commands that need no order with other streams.
    pub(crate) fn unordered_stream(self: &Arc<Self>) -> CuResult<&Arc<Stream>> {
        if let Some(stream) = self.unordered.get() {
            return Ok(stream);
        }
        let stream = self.new_stream(StreamKind::NonBlocking, CU_STREAM_NON_BLOCKING, 0)?;
        Ok(self.unordered.get_or_init(|| {
            self.add(&stream);
            stream
        }))
    }

    /// Waits for all commands of all streams, and looks for faults and output of kernels.
    pub(crate) fn synchronize(&self) -> CuResult {
        self.check()?;
        for stream in self.streams() {
            self.finish(&stream)?;
        }
        self.look_at_kernels()
    }

    /// Waits until all commands have ended, even after a failure. Ignores further failures.
    pub(crate) fn drain(&self) {
        for stream in self.streams() {
            let serial = stream.clock.issued();
            _ = stream.queue.finish();
            stream.clock.note_checked(serial);
        }
    }

    /// Returns events for all unfinished commands, so that memory is not used again before they
    /// have ended. This includes the legacy default stream, because other streams may use the
    /// memory without waiting for it.
    fn busy(&self) -> Vec<Event> {
        self.drop_finished_streams();
        let streams = self.streams();
        let busy = streams.iter().filter(|stream| !stream.clock.is_idle());
        // Nothing runs on a lost node.
        busy.filter_map(|stream| self.marker(stream).ok()).collect()
    }
}

/// Returns events for all unfinished commands on a device, in all contexts.
pub(crate) fn busy_on(device: &Device) -> Vec<Event> {
    Context::all_on(device).iter().flat_map(|context| context.busy()).collect()
}
