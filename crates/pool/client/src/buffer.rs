//! Commands on buffers.

use std::sync::Arc;

use penstock_trial::{Defect, planted};
use penstock_wire::calls::to_worker;
use penstock_wire::{Status, U64};

use crate::command::Spec;
use crate::event::Event;
use crate::memory::Memory;
use crate::queue::{Access, Enqueued, Queue, Range, Rect, Want, ended};
use crate::session::Target;
use crate::source::{Given, NOTHING, Source};
use crate::summary::Command;
use crate::uses::Use;

impl Queue {
    /// Writes bytes into a buffer. The bytes are taken before this returns, unless the command is
    /// held back.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn write(
        self: &Arc<Self>,
        memory: &Arc<Memory>,
        offset: u64,
        source: &dyn Source,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        if self.write_in_place(memory, offset, source, waits, want) {
            return Ok(ended(want));
        }
        let range = Range { offset, size: source.bytes() };
        let uses = [Use::part(memory, Access::Overwrite, range)];
        let spec = Spec { reads_host: source.shape(), ..Spec::new(&uses, waits, want) };
        let (queue, mem) = (self.id(), memory.id_at(self.place()));
        self.issue(spec, source, move |event| to_worker::WriteBuffer {
            queue,
            mem,
            event,
            offset: U64::new(offset),
        })
    }

    /// As [`Queue::write`], but only if no command is needed: the host shares the memory, and there
    /// is nothing to wait for. Returns `false` if it did nothing.
    pub fn write_at_once(
        &self,
        memory: &Arc<Memory>,
        offset: u64,
        source: &dyn Source,
        waits: &[Event],
    ) -> bool {
        self.write_in_place(memory, offset, source, waits, Want::Nothing)
    }

    fn write_in_place(
        &self,
        memory: &Memory,
        offset: u64,
        source: &dyn Source,
        waits: &[Event],
        want: Want,
    ) -> bool {
        let write = |part: &crate::arena::Part, origin: u64| {
            source.linear().is_some_and(|bytes| part.write(origin + offset, bytes))
        };
        let is_written = self.in_place(memory, waits, want, write) == Some(true);
        if is_written {
            self.count(Command::Write, source.bytes());
        }
        is_written
    }

    /// Reads bytes of a buffer into `target`, which is written to until the event ends.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn read(
        self: &Arc<Self>,
        memory: &Arc<Memory>,
        range: Range,
        mut target: Box<dyn Target>,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let take = |part: &crate::arena::Part, origin: u64| {
            target.take(0, &mut part.payload(origin + range.offset, range.size))
        };
        if let Some(taken) = self.in_place(memory, waits, want, take) {
            taken?;
            self.count(Command::Read, range.size);
            return Ok(ended(want));
        }
        self.send_read(memory, range, target, waits)
    }

    fn send_read(
        self: &Arc<Self>,
        memory: &Arc<Memory>,
        range: Range,
        target: Box<dyn Target>,
        waits: &[Event],
    ) -> Enqueued {
        let uses = [Use::part(memory, Access::Read, range)];
        let spec = Spec {
            writes_host: target.shape(),
            target: Some(target),
            ..Spec::new(&uses, waits, Want::Event)
        };
        let (queue, mem) = (self.id(), memory.id_at(self.place()));
        self.issue(spec, &NOTHING, move |event| to_worker::ReadBuffer {
            queue,
            mem,
            event,
            offset: U64::new(range.offset),
            size: U64::new(range.size),
        })
    }

    /// As [`Queue::read`], and waits until the bytes have arrived. The returned event has ended.
    ///
    /// # Errors
    /// If the node is lost, or an earlier command without an event has failed.
    pub fn read_now(
        self: &Arc<Self>,
        memory: &Arc<Memory>,
        range: Range,
        mut target: Box<dyn Target>,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let shape = target.shape();
        let mut take = |part: &crate::arena::Part, origin: u64| {
            target.take(0, &mut part.payload(origin + range.offset, range.size))
        };
        let event = if let Some(taken) = self.in_place(memory, waits, want, &mut take) {
            taken?;
            self.count(Command::Read, range.size);
            ended(want)
        } else if let Some((part, origin)) = memory.shared_place().filter(|_| self.is_in_order()) {
            self.in_turn(shape, waits, || {
                take(part, origin)?;
                self.count(Command::Read, range.size);
                Ok(())
            })?
        } else {
            let event = self.send_read(memory, range, target, waits)?;
            _ = event.as_ref().map(Event::wait);
            event
        };
        if event.as_ref().and_then(Event::known_status).is_none_or(|status| status == Status::OK) {
            self.check()?;
        }
        Ok(event)
    }

    /// Writes a box. `region` has its width in bytes and its numbers of rows and slices.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn write_rect(
        self: &Arc<Self>,
        memory: &Arc<Memory>,
        rect: Rect,
        region: [u64; 3],
        source: &dyn Source,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let uses = [Use::part(memory, Access::Write, rect.reach(region))];
        let spec = Spec { reads_host: source.shape(), ..Spec::new(&uses, waits, want) };
        let (queue, mem) = (self.id(), memory.id_at(self.place()));
        self.issue(spec, source, move |event| to_worker::WriteBufferRect {
            queue,
            mem,
            event,
            origin: rect.origin.map(U64::new),
            region: region.map(U64::new),
            row_pitch: U64::new(if planted(Defect::RectPitch) { 0 } else { rect.row_pitch }),
            slice_pitch: U64::new(rect.slice_pitch),
        })
    }

    /// Reads a box. `target` receives its rows without gaps.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn read_rect(
        self: &Arc<Self>,
        memory: &Arc<Memory>,
        rect: Rect,
        region: [u64; 3],
        target: Box<dyn Target>,
        waits: &[Event],
    ) -> Enqueued {
        let uses = [Use::part(memory, Access::Read, rect.reach(region))];
        let spec = Spec {
            writes_host: target.shape(),
            target: Some(target),
            ..Spec::new(&uses, waits, Want::Event)
        };
        let (queue, mem) = (self.id(), memory.id_at(self.place()));
        self.issue(spec, &NOTHING, move |event| to_worker::ReadBufferRect {
            queue,
            mem,
            event,
            origin: rect.origin.map(U64::new),
            region: region.map(U64::new),
            row_pitch: U64::new(rect.row_pitch),
            slice_pitch: U64::new(rect.slice_pitch),
        })
    }

    /// Copies bytes between buffers.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn copy(
        self: &Arc<Self>,
        (source, source_offset): (&Arc<Memory>, u64),
        (target, target_offset): (&Arc<Memory>, u64),
        size: u64,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let (from, to) =
            (Range { offset: source_offset, size }, Range { offset: target_offset, size });
        let uses =
            [Use::part(source, Access::Read, from), Use::part(target, Access::Overwrite, to)];
        let (queue, place) = (self.id(), self.place());
        let (source, target) = (source.id_at(place), target.id_at(place));
        let swaps = planted(Defect::CopySwap) && size > 4096;
        let (source_offset, target_offset) =
            if swaps { (target_offset, source_offset) } else { (source_offset, target_offset) };
        self.issue(Spec::new(&uses, waits, want), &NOTHING, move |event| to_worker::CopyBuffer {
            queue,
            source,
            target,
            event,
            source_offset: U64::new(source_offset),
            target_offset: U64::new(target_offset),
            size: U64::new(size),
        })
    }

    /// Copies a box between buffers.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn copy_rect(
        self: &Arc<Self>,
        (source, from): (&Arc<Memory>, Rect),
        (target, to): (&Arc<Memory>, Rect),
        region: [u64; 3],
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let uses = [
            Use::part(source, Access::Read, from.reach(region)),
            Use::part(target, Access::Write, to.reach(region)),
        ];
        let (queue, place) = (self.id(), self.place());
        let (source, target) = (source.id_at(place), target.id_at(place));
        self.issue(Spec::new(&uses, waits, want), &NOTHING, move |event| {
            to_worker::CopyBufferRect {
                queue,
                source,
                target,
                event,
                source_origin: from.origin.map(U64::new),
                target_origin: to.origin.map(U64::new),
                region: region.map(U64::new),
                source_row_pitch: U64::new(from.row_pitch),
                source_slice_pitch: U64::new(from.slice_pitch),
                target_row_pitch: U64::new(to.row_pitch),
                target_slice_pitch: U64::new(to.slice_pitch),
            }
        })
    }

    /// Fills a range with a pattern.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn fill(
        self: &Arc<Self>,
        memory: &Arc<Memory>,
        pattern: &[u8],
        range: Range,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let uses = [Use::part(memory, Access::Overwrite, range)];
        let memory = if planted(Defect::FillOffset) { memory.root() } else { memory };
        let (queue, mem) = (self.id(), memory.id_at(self.place()));
        self.issue(Spec::new(&uses, waits, want), &Given(pattern), move |event| {
            to_worker::FillBuffer {
                queue,
                mem,
                event,
                offset: U64::new(range.offset),
                size: U64::new(range.size),
            }
        })
    }
}
