//! Groups of operations that belong together, as in real programs or in known defects of
//! implementations.

use super::Planner;
use crate::cuda::feature::Feature;
use crate::cuda::plan::{Act, Kernel, Side, Stream, Work};
use crate::plan::Ptr;

/// How often a motif draws a stream to get one that differs from two others. Most programs have
/// three to five streams, so three draws mostly suffice.
const STREAM_TRIES: usize = 3;

impl Planner {
    pub(super) fn motif(&mut self, context: usize) -> Option<()> {
        match self.random.below(5) {
            0 => self.chain(context),
            1 => self.legacy_event(context),
            2 => self.workspace(context),
            3 => self.look_behind_write(context),
            _ => self.exchange(context),
        }
    }

    fn writes(&mut self, context: usize, mem: usize) -> Option<Work> {
        let kernel = if self.has(Feature::Slow) { Kernel::Slow } else { Kernel::Put };
        self.launch_of(context, mem, kernel)
    }

    fn all_of(&self, mem: usize) -> (Side, usize) {
        (Side::Device { mem, offset: 0 }, self.ledger.mems[&mem].size)
    }

    /// A kernel writes memory, a copy brings it to the host, and the next copy takes it from there
    /// to other memory: in the same stream or another one, of the same device or another one.
    fn chain(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::HostChains) {
            return None;
        }
        let (stream, (at, len)) = self.brings_to_host(context, false)?;
        let (mut next, mut target) = (context, stream);
        if self.random.chance(60) {
            next = self.random.below(self.program.contexts.len());
            target = self.a_stream(next)?;
            self.thread = self.random.below(self.program.threads);
        }
        let b = self.a_mem(next)?;
        let (to, room) = self.all_of(b);
        let work = Work::Copy { to, from: Side::Host(at), len: len.min(room) };
        self.emit(Act::Enqueue { stream: target, work }).map(drop)
    }

    /// A kernel in a stream, and a copy of what it wrote to the host. Returns the stream, and where
    /// how many bytes arrive.
    fn brings_to_host(&mut self, context: usize, pinned: bool) -> Option<(Stream, (Ptr, usize))> {
        let (a, stream) = (self.a_mem(context)?, self.a_stream(context)?);
        let work = self.writes(context, a)?;
        self.emit(Act::Enqueue { stream, work })?;
        let (from, len) = self.all_of(a);
        let (at, len) = self.host(len, pinned)?;
        self.emit(Act::Enqueue { stream, work: Work::Copy { to: Side::Host(at), from, len } })?;
        Some((stream, (at, len)))
    }

    /// Work in a stream, then an event or a launch in the legacy default stream, and a stream or
    /// the host that waits for it.
    fn legacy_event(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::Legacy) {
            return None;
        }
        let (a, stream) = (self.a_mem(context)?, self.a_stream(context)?);
        let work = self.writes(context, a)?;
        self.emit(Act::Enqueue { stream, work })?;
        let legacy = Stream::Legacy(context);
        let mut target = self.a_stream(context)?;
        match self.random.below(3) {
            0 => {
                let event = self.an_event(context, self.thread, 0)?;
                self.emit(Act::Record { event, stream: legacy })?;
                target = self.a_stream(context)?;
                let act = if self.has(Feature::StreamWaits) && self.random.chance(60) {
                    Act::StreamWait { stream: target, event }
                } else {
                    Act::EventWait { event, query: false }
                };
                self.emit(act)?;
            }
            1 => {
                // Only two other streams depend on the order that the action makes.
                for _ in 0..STREAM_TRIES {
                    if target != stream && target != legacy {
                        break;
                    }
                    target = self.a_stream(context)?;
                }
                self.silent_action(context)?;
            }
            _ => {
                let work = self.launch(context)?;
                self.emit(Act::Enqueue { stream: legacy, work })?;
            }
        }
        let (from, len) = self.all_of(a);
        let (at, len) = self.host(len, false)?;
        let work = Work::Copy { to: Side::Host(at), from, len };
        self.emit(Act::Enqueue { stream: target, work }).map(drop)
    }

    /// An action in the legacy default stream that a driver need not send to the device: a wait for
    /// an event that may have ended, or an allocation.
    fn silent_action(&mut self, context: usize) -> Option<()> {
        let stream = Stream::Legacy(context);
        if self.has(Feature::AsyncMemory) && self.random.chance(20) {
            let (mem, size) = (self.fresh(), self.size);
            return self.emit(Act::AllocAsync { mem, stream, size }).map(drop);
        }
        if !self.has(Feature::StreamWaits) {
            return None;
        }
        // A new event is one without a record.
        let event = if self.random.chance(70) {
            let event = self.fresh();
            self.emit(Act::NewEvent { event, context, timing: false })?;
            event
        } else {
            self.an_event(context, self.thread, 0)?
        };
        self.emit(Act::StreamWait { stream, event }).map(drop)
    }

    /// One piece of host memory through which a program moves its data in both directions.
    fn workspace(&mut self, context: usize) -> Option<()> {
        let (at, room) = self.host(self.size, self.has(Feature::Pinned))?;
        for _ in 0..self.random.between(2, 3) {
            let (mem, stream) = (self.a_mem(context)?, self.a_stream(context)?);
            let (device, len) = self.all_of(mem);
            let len = len.min(room);
            if self.random.chance(50) {
                let seed = self.random.word();
                self.emit(Act::Store { to: at, len, seed })?;
            }
            let work = Work::Copy { to: device, from: Side::Host(at), len };
            self.emit(Act::Enqueue { stream, work })?;
            if self.random.chance(50) {
                let work = self.launch(context)?;
                self.emit(Act::Enqueue { stream, work })?;
            }
            let stream = if self.random.chance(50) { stream } else { self.a_stream(context)? };
            let work = Work::Copy { to: Side::Host(at), from: device, len };
            self.emit(Act::Enqueue { stream, work })?;
            if self.random.chance(50) {
                self.emit(Act::Check { at, len })?;
            }
        }
        Some(())
    }

    /// A kernel and a copy to the host, a synchronous copy of other memory to the device, and a
    /// look at what the first copy brought.
    fn look_behind_write(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::Synchronous) {
            return None;
        }
        let (_, (at, len)) = self.brings_to_host(context, self.has(Feature::Pinned))?;
        let work = self.transfer(context, false, false)?;
        self.emit(Act::Now { context, work })?;
        self.emit(Act::Check { at, len }).map(drop)
    }

    /// Two contexts exchange their results.
    fn exchange(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::Peers) {
            return None;
        }
        let (mem, stream) = (self.a_mem(context)?, self.a_stream(context)?);
        let work = self.writes(context, mem)?;
        self.emit(Act::Enqueue { stream, work })?;
        let work = self.peer(context)?;
        self.give(context, work)?;
        let other = self.random.below(self.program.contexts.len());
        let work = self.launch(other)?;
        self.give(other, work)
    }
}
