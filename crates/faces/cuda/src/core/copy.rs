use std::sync::Arc;

use penstock_client::summary::Reason;
use penstock_client::{Given, HostShape, Memory, Range, Want};
use penstock_cuda_sys::driver::*;

use super::context::Context;
use super::order::SentCommand;
use super::stream::{Stream, StreamKind};
use super::{callback, host, platform};
use crate::edge::{Bytes, CuResult, HostSource, HostTarget, Object as _, of_status};

/// One side of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CopySide {
    /// In the program's memory.
    Host(Bytes),
    /// On a device, starting at this address.
    Device(u64),
}

/// When the function of a copy may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyMode {
    /// After the copy has ended, as far as the program can tell.
    Now,
    /// Before the copy has ended.
    Later,
    /// A copy in a graph: nothing waits for it, for any kind of memory.
    Unattended,
}

impl CopyMode {
    /// Returns whether a read into this memory returns before the read has ended. Memory that
    /// kernels use, too, has its bytes when the function returns, because the next command may read
    /// them there, and nothing in the pool knows that the two are one memory.
    pub(super) fn is_late(self, to: Bytes) -> bool {
        if host::joint(to.address() as u64, to.size() as u64).is_some() {
            return false;
        }
        match self {
            Self::Now => false,
            Self::Later => host::is_registered(to.address(), to.size()),
            Self::Unattended => true,
        }
    }
}

/// When the function of a copy to the device returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteReturn {
    AtOnce,
    /// When the bytes are taken. Later commands of other streams wait for the copy.
    Settled,
    Ended,
}

impl WriteReturn {
    /// "For transfers from pinned host memory to device memory, the function is synchronous with
    /// respect to the host." For pageable memory "the function will return once the pageable buffer
    /// has been copied to the staging memory [...], but the DMA to final destination may not have
    /// completed". Programs rely on completion there, too: they use the memory in streams that do
    /// not wait for the legacy default stream.
    pub(super) fn of_write(when: CopyMode, is_pinned: bool) -> Self {
        match when {
            CopyMode::Now if is_pinned => Self::Ended,
            CopyMode::Now => Self::Settled,
            CopyMode::Later | CopyMode::Unattended => Self::AtOnce,
        }
    }

    /// Returns what the pool's write must provide.
    pub(super) fn wants(self) -> Want {
        match self {
            Self::AtOnce => Want::Nothing,
            Self::Settled => Want::Settled,
            Self::Ended => Want::Event,
        }
    }
}

/// Copies between devices that cannot reach each other go through the client's memory in pieces of
/// this size.
const PIECE_BYTES: u64 = 8 << 20;

/// How a copy treats memory that the program and kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joint {
    /// As memory of the program. No kernel before the copy uses it any more.
    AsHost,
    /// As memory of the device, which the worker copies in the order of the stream.
    AsDevice,
}

impl CopySide {
    fn address(self) -> u64 {
        match self {
            Self::Host(bytes) => bytes.address() as u64,
            Self::Device(address) => address,
        }
    }

    fn treated(self, joint: Joint, size: u64) -> CuResult<Self> {
        let address = self.address();
        if joint == Joint::AsDevice {
            return Ok(Self::Device(address));
        }
        let fits = usize::try_from(address).ok().zip(usize::try_from(size).ok());
        let (address, size) = fits.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the bytes are in one range that the program may access.
        unsafe { Bytes::new(std::ptr::with_exposed_provenance(address), size) }.map(Self::Host)
    }
}

impl Context {
    /// Returns how a copy treats these bytes; `None` if only the program uses them at this address,
    /// or if the copy takes them in the turn of its stream anyway. Nobody but the streams knows
    /// when kernels have written such memory. So a copy that returns when it has ended waits for
    /// its stream first, and a later copy takes its turn there. A copy within the program's memory
    /// (`is_on_host`) does that for both of its sides.
    ///
    /// The copy is none that a GPU does by itself. So it makes pinned memory plain.
    pub(super) fn joint(
        &self,
        stream: &Stream,
        (address, size): (u64, u64),
        when: CopyMode,
        is_on_host: bool,
    ) -> CuResult<Option<Joint>> {
        let Some(range) = host::joint(address, size) else {
            let block = host::pinned(address, size).filter(|_| !is_on_host);
            return Ok(block.map(|block| {
                block.leave_to_client();
                Joint::AsHost
            }));
        };
        if is_on_host && !range.has_one_address {
            return Ok(None);
        }
        let is_here = range.has_one_address && range.device == self.device.ordinal;
        // Behind nothing, the client can copy at once.
        let takes_turn = when == CopyMode::Unattended
            || (when == CopyMode::Later && !self.has_no_predecessors(stream));
        if takes_turn && is_here {
            return Ok(Some(Joint::AsDevice));
        }
        self.finish_predecessors(stream)?;
        Ok(Some(Joint::AsHost))
    }

    pub(crate) fn copy(
        &self,
        stream: &Arc<Stream>,
        to: CopySide,
        from: CopySide,
        size: u64,
        when: CopyMode,
    ) -> CuResult {
        self.check()?;
        if size == 0 {
            return Ok(());
        }
        let own = self.own_copy((to.address(), size), (from.address(), size));
        let sent = own.and_then(|own| {
            let (from, to) = ((&own.from.memory, own.from.offset), (&own.to.memory, own.to.offset));
            self.issue_own_copy(stream, &own, when, |queue, waits, want| {
                queue.copy(from, to, size, waits, want)
            })
        });
        if let Some(sent) = sent {
            return sent;
        }
        let is_host = |side: &CopySide| match side {
            CopySide::Host(bytes) => host::is_only_host(bytes.address() as u64, size),
            CopySide::Device(_) => false,
        };
        let is_on_host = is_host(&to) && is_host(&from);
        let side =
            |side: CopySide| match self.joint(stream, (side.address(), size), when, is_on_host)? {
                Some(joint) => side.treated(joint, size),
                None => Ok(side),
            };
        let (to, from) = (side(to)?, side(from)?);
        match (to, from) {
            (CopySide::Host(to), CopySide::Host(from)) if when == CopyMode::Unattended => {
                callback::in_stream(self, stream, move |status| {
                    if status == CUDA_SUCCESS {
                        to.copy_from(from);
                    }
                })
            }
            (CopySide::Host(to), CopySide::Host(from)) => {
                self.finish_predecessors(stream)?;
                to.copy_from(from);
                Ok(())
            }
            (CopySide::Device(to), CopySide::Host(from)) => self.write(stream, to, from, when),
            (CopySide::Host(to), CopySide::Device(from)) => self.read(stream, to, from, when),
            (CopySide::Device(to), CopySide::Device(from)) => {
                self.copy_on_device(stream, to, from, size)
            }
        }
    }

    /// Returns the context that owns the memory at an address, if that memory is on another device.
    pub(super) fn elsewhere(&self, address: u64) -> CuResult<Option<Arc<Self>>> {
        let device =
            platform::device_of(address).filter(|device| device.ordinal != self.device.ordinal);
        let Some(device) = device else { return Ok(None) };
        let (_, live) = device.space.find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let owner = Self::all_on(device).into_iter().find(|context| context.number() == live.owner);
        owner.map(Some).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Runs `work` on this context's memory on behalf of `stream`, which belongs to `of`, a context
    /// of another device. Waits for the earlier commands of `stream`, and for `work`. If `stream`
    /// is the legacy default stream of `of`, `work` gets that of this context, so it follows the
    /// order of both.
    pub(super) fn as_peer(
        self: &Arc<Self>,
        of: &Self,
        stream: &Stream,
        work: impl FnOnce(&Arc<Stream>) -> CuResult,
    ) -> CuResult {
        of.finish_predecessors(stream)?;
        let own =
            if stream.kind == StreamKind::Legacy { &self.legacy } else { self.unordered_stream()? };
        work(own)?;
        self.finish(own)?;
        self.look_at_kernels()
    }

    /// Writes bytes into memory that no command uses yet. Waits until the bytes are there.
    pub(super) fn write_unordered(self: &Arc<Self>, to: u64, bytes: &[u8]) -> CuResult {
        let located = self.device.space.locate(to, bytes.len() as u64)?;
        let unordered = self.unordered_stream()?;
        self.issue_write(unordered, &located, &Given(bytes), Want::Nothing)?;
        self.finish(unordered)
    }

    /// Waits for the earlier commands of the stream if an open command may still write this part of
    /// the program's memory.
    fn until_written(&self, stream: &Stream, shape: &HostShape) -> CuResult {
        if penstock_client::may_be_written(shape) {
            self.finish_predecessors(stream)
        } else {
            Ok(())
        }
    }

    /// Prepares the source of a copy.
    ///
    /// Bytes of registered memory are taken when the stream reaches a copy that is not waited for.
    /// "If pageable memory must first be staged to pinned memory, the driver may synchronize with
    /// the stream and stage the copy": other bytes are taken before the function returns, so the
    /// commands that write them must have ended.
    ///
    /// A synchronous copy from pageable memory waits for more: "a stream sync is performed before
    /// the copy is initiated". So the program finds all effects of earlier commands when the
    /// function returns. Some commands have no effect that a program can find without a further
    /// wait (see [`super::clock`]). A row of such commands and such copies waits for nothing.
    pub(super) fn source(
        &self,
        stream: &Stream,
        from: HostSource,
        when: CopyMode,
    ) -> CuResult<HostSource> {
        let is_pinned = || host::is_registered(from.address(), from.reach());
        let is_late = match when {
            CopyMode::Now => {
                if !is_pinned() {
                    self.finish_noticed(stream)?;
                }
                false
            }
            CopyMode::Later => is_pinned(),
            CopyMode::Unattended => true,
        };
        if !is_late {
            self.until_written(stream, &from.shape())?;
        }
        Ok(from.taken_now(!is_late))
    }

    fn write(&self, stream: &Stream, to: u64, from: Bytes, when: CopyMode) -> CuResult {
        if let Some(owner) = self.elsewhere(to)? {
            self.until_written(stream, &HostSource::linear(from).shape())?;
            return owner.as_peer(self, stream, |own| owner.write(own, to, from, CopyMode::Now));
        }
        let source = self.source(stream, HostSource::linear(from), when)?;
        let located = self.device.space.locate(to, from.size() as u64)?;
        let returns = WriteReturn::of_write(when, host::is_registered(from.address(), from.size()));
        match self.issue_write(stream, &located, &source, returns.wants())? {
            Some(sent) => self.written(stream, returns, sent),
            None => Ok(()),
        }
    }

    /// Waits as `returns` says before the function of a copy to the device returns.
    pub(super) fn written(
        &self,
        stream: &Stream,
        returns: WriteReturn,
        sent: SentCommand,
    ) -> CuResult {
        match returns {
            WriteReturn::AtOnce => Ok(()),
            WriteReturn::Settled => {
                if let Some(event) = sent.event {
                    stream.queue.settle(&event);
                    stream.queue.report(&event);
                    stream.clock.note_silent(sent.serial);
                }
                Ok(())
            }
            WriteReturn::Ended => self.await_event(stream, sent),
        }
    }

    fn read(&self, stream: &Stream, to: Bytes, from: u64, when: CopyMode) -> CuResult {
        if let Some(owner) = self.elsewhere(from)? {
            return owner.as_peer(self, stream, |own| owner.read(own, to, from, CopyMode::Now));
        }
        let size = to.size() as u64;
        let located = self.device.space.locate(from, size)?;
        let range = Range { offset: located.offset, size };
        let target = HostTarget::linear(to);
        // "For transfers from device memory to pageable host memory, the function will return only
        // once the copy has completed."
        if when.is_late(to) {
            let sent = self.issue(stream, |queue, waits| {
                queue.read(&located.memory, range, target, waits, Want::Nothing)
            })?;
            if let Some(event) = sent.event {
                stream.unawaited_reads.add(event);
            }
            return Ok(());
        }
        stream.queue.waiting(Reason::Read, || self.read_now(stream, &located.memory, range, target))
    }

    fn read_now(
        &self,
        stream: &Stream,
        memory: &Arc<Memory>,
        range: Range,
        target: Box<HostTarget>,
    ) -> CuResult {
        if memory.shared_pointer().is_some() {
            // Finishes the queue, so that a failure of an earlier command is reported now.
            self.finish(stream)?;
            self.await_other_streams(stream)?;
            let read = stream.queue.read_now(memory, range, target, &[], Want::Nothing);
            let failed =
                read.map_err(|error| self.failed(&error))?.and_then(|event| event.known_status());
            return match failed.filter(|status| status.is_error()) {
                Some(status) => Err(self.fail(of_status(status))),
                None => self.look_at_kernels(),
            };
        }
        // If all earlier commands are known to have ended well, only the result of this one is
        // unknown.
        let settled = stream.clock.is_settled();
        let sent = self
            .issue(stream, |queue, waits| queue.read(memory, range, target, waits, Want::Event))?;
        // Waits in any case, because the read writes into the program's memory until it has ended.
        let finished = if settled { self.look_at_reads(stream) } else { self.finish(stream) };
        self.await_event(stream, sent).and(finished)
    }

    fn copy_on_device(&self, stream: &Arc<Stream>, to: u64, from: u64, size: u64) -> CuResult {
        match (self.elsewhere(from)?, self.elsewhere(to)?) {
            (None, None) => {}
            // Both sides on one other device.
            (Some(source), Some(target)) if source.device.ordinal == target.device.ordinal => {
                return target
                    .as_peer(self, stream, |own| target.copy_on_device(own, to, from, size));
            }
            (source, target) => {
                let (source, target) = (source.as_ref(), target.as_ref());
                return self.copy_across(stream, target, to, source, from, size);
            }
        }
        let space = &self.device.space;
        let (source, target) = (space.locate(from, size)?, space.locate(to, size)?);
        if from.abs_diff(to) >= size {
            return self
                .issue_unnoticed(stream, |queue, waits| {
                    let (source, target) =
                        ((&source.memory, source.offset), (&target.memory, target.offset));
                    queue.copy(source, target, size, waits, Want::Nothing)
                })
                .map(drop);
        }
        if from == to {
            return Ok(());
        }
        // OpenCL rejects overlapping copies within one buffer.
        let between = self.device.allocate_block(size, self.number())?;
        let copied = self
            .copy_on_device(stream, between.address, from, size)
            .and_then(|()| self.copy_on_device(stream, to, between.address, size));
        let busy = self.marker(stream).map(|event| vec![event]).unwrap_or_default();
        self.device.release_block(between, busy)?;
        copied
    }

    /// Copies from the address `from` of `source` to the address `to` of `target`. The two contexts
    /// are on different devices, and `None` stands for this context. The driver copies within one
    /// platform of a node, the workers copy between platforms. If the workers cannot reach each
    /// other, the bytes go through the client's memory.
    fn copy_across(
        &self,
        stream: &Arc<Stream>,
        target: Option<&Arc<Self>>,
        to: u64,
        source: Option<&Arc<Self>>,
        from: u64,
        size: u64,
    ) -> CuResult {
        self.finish_predecessors(stream)?;
        if stream.kind == StreamKind::Legacy {
            // Orders the copy after the legacy default streams of all devices involved.
            for peer in [source, target].into_iter().flatten() {
                peer.synchronize_stream(&peer.legacy)?;
            }
        }
        let own = stream.context()?;
        let (source, target) = (source.unwrap_or(&own), target.unwrap_or(&own));
        let from_place = source.device.space.locate(from, size)?;
        let to_place = target.device.space.locate(to, size)?;
        let home = &self.device.context;
        let together =
            [source, target].iter().all(|context| Arc::ptr_eq(&context.device.context, home));
        if together {
            return self.issue_and_wait(stream, |queue, waits| {
                let from = (&from_place.memory, from_place.offset);
                queue.copy(from, (&to_place.memory, to_place.offset), size, waits, Want::Event)
            });
        }
        // From worker to worker, if they reach each other.
        let moved =
            from_place.memory.copy_to(from_place.offset, &to_place.memory, to_place.offset, size);
        if let Some(arrival) = moved.map_err(|error| self.failed(&error))? {
            let status = arrival.wait();
            return if status.is_error() { Err(self.fail(of_status(status))) } else { Ok(()) };
        }
        copy_in_pieces(target, to, source, from, size)
    }
}

/// Copies between devices through the client's memory. All commands before the copy must have
/// ended.
fn copy_in_pieces(
    target: &Arc<Context>,
    to: u64,
    source: &Arc<Context>,
    from: u64,
    size: u64,
) -> CuResult {
    let bytes = |size: u64| usize::try_from(size).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY);
    let mut room = vec![0u8; bytes(size.min(PIECE_BYTES))?];
    let (reader, writer) = (source.unordered_stream()?, target.unordered_stream()?);
    let mut at = 0;
    while at < size {
        let now = bytes((size - at).min(PIECE_BYTES))?;
        let piece = room.get_mut(..now).ok_or(CUDA_ERROR_UNKNOWN)?;
        // SAFETY: `piece` belongs to this function, and `read` has written it when it returns.
        let piece = unsafe { Bytes::new(piece.as_mut_ptr().cast(), now) }?;
        source.read(reader, piece, from + at, CopyMode::Now)?;
        target.write(writer, to + at, piece, CopyMode::Now)?;
        target.finish(writer)?;
        at += now as u64;
    }
    Ok(())
}
