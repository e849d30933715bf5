//! Commands of queues that move the content of images.

use std::sync::Arc;

use penstock_wire::U64;
use penstock_wire::calls::to_worker;

use crate::event::Event;
use crate::memory::{Memory, MemoryKind};
use crate::queue::{Access, Enqueued, Queue, Range, Want};
use crate::residency::Use;
use crate::session::Target;

impl Queue {
    /// Writes a region of an image; `pieces` are its rows in order, `bytes` long together.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn write_image(
        &self,
        memory: &Arc<Memory>,
        (origin, region): ([u64; 3], [u64; 3]),
        bytes: u64,
        pieces: &mut dyn Iterator<Item = &[u8]>,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        self.command(&[Use::all(memory, overwrites(memory, bytes))], waits, want, None, |session, issue| {
            let call = to_worker::WriteImage {
                queue: self.id(),
                mem: memory.id_at(self.place()),
                event: issue.event_id(),
                origin: origin.map(U64::new),
                region: region.map(U64::new),
            };
            session.send_pieces(&call, &issue.waits, bytes, pieces)
        })
    }

    /// Reads a region of an image; `target` gets its rows and slices without gaps.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn read_image(
        &self,
        memory: &Arc<Memory>,
        (origin, region): ([u64; 3], [u64; 3]),
        target: Box<dyn Target>,
        waits: &[Event],
    ) -> Enqueued {
        self.command(&[Use::all(memory, Access::Read)], waits, Want::Event, Some(target), |session, issue| {
            let call = to_worker::ReadImage {
                queue: self.id(),
                mem: memory.id_at(self.place()),
                event: issue.event_id(),
                origin: origin.map(U64::new),
                region: region.map(U64::new),
            };
            session.send(&call, &issue.waits, &[])
        })
    }

    /// Copies a region between images.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn copy_image(
        &self,
        (source, source_origin): (&Arc<Memory>, [u64; 3]),
        (target, target_origin): (&Arc<Memory>, [u64; 3]),
        region: [u64; 3],
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let uses = [Use::all(source, Access::Read), Use::all(target, Access::Write)];
        self.command(&uses, waits, want, None, |session, issue| {
            let call = to_worker::CopyImage {
                queue: self.id(),
                source: source.id_at(self.place()),
                target: target.id_at(self.place()),
                event: issue.event_id(),
                source_origin: source_origin.map(U64::new),
                target_origin: target_origin.map(U64::new),
                region: region.map(U64::new),
            };
            session.send(&call, &issue.waits, &[])
        })
    }

    /// Copies a region of an image into a buffer.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn copy_image_to_buffer(
        &self,
        (source, origin): (&Arc<Memory>, [u64; 3]),
        region: [u64; 3],
        (target, target_offset): (&Arc<Memory>, u64),
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let bytes = Range { offset: target_offset, size: pixel_bytes(source, region) };
        let uses = [Use::all(source, Access::Read), Use::part(target, Access::Overwrite, bytes)];
        self.command(&uses, waits, want, None, |session, issue| {
            let call = to_worker::CopyImageToBuffer {
                queue: self.id(),
                source: source.id_at(self.place()),
                target: target.id_at(self.place()),
                event: issue.event_id(),
                origin: origin.map(U64::new),
                region: region.map(U64::new),
                target_offset: U64::new(target_offset),
            };
            session.send(&call, &issue.waits, &[])
        })
    }

    /// Copies bytes of a buffer into a region of an image.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn copy_buffer_to_image(
        &self,
        (source, source_offset): (&Arc<Memory>, u64),
        (target, origin): (&Arc<Memory>, [u64; 3]),
        region: [u64; 3],
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let size = pixel_bytes(target, region);
        let bytes = Range { offset: source_offset, size };
        let uses = [Use::part(source, Access::Read, bytes), Use::all(target, overwrites(target, size))];
        self.command(&uses, waits, want, None, |session, issue| {
            let call = to_worker::CopyBufferToImage {
                queue: self.id(),
                source: source.id_at(self.place()),
                target: target.id_at(self.place()),
                event: issue.event_id(),
                source_offset: U64::new(source_offset),
                origin: origin.map(U64::new),
                region: region.map(U64::new),
            };
            session.send(&call, &issue.waits, &[])
        })
    }

    /// Fills a region of an image with a colour.
    ///
    /// # Errors
    /// When the node is lost.
    pub fn fill_image(
        &self,
        memory: &Arc<Memory>,
        colour: &[u8; 16],
        (origin, region): ([u64; 3], [u64; 3]),
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        self.command(&[Use::all(memory, Access::Write)], waits, want, None, |session, issue| {
            let call = to_worker::FillImage {
                queue: self.id(),
                mem: memory.id_at(self.place()),
                event: issue.event_id(),
                origin: origin.map(U64::new),
                region: region.map(U64::new),
            };
            session.send(&call, &issue.waits, colour)
        })
    }
}

/// Bytes of a region of an image, without gaps.
fn pixel_bytes(image: &Memory, region: [u64; 3]) -> u64 {
    match image.kind() {
        MemoryKind::Image(shape) => region.iter().product::<u64>() * shape.pixel_size,
        _ => 0,
    }
}

/// Whether `bytes` of a memory object are all of it.
fn overwrites(memory: &Memory, bytes: u64) -> Access {
    if bytes == memory.size() { Access::Overwrite } else { Access::Write }
}
