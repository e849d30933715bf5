//! Commands on images.

use std::sync::Arc;

use penstock_wire::U64;
use penstock_wire::calls::to_worker;

use crate::command::Spec;
use crate::event::Event;
use crate::memory::{Memory, MemoryKind};
use crate::queue::{Access, Enqueued, Queue, Range, Want};
use crate::session::Target;
use crate::source::{Given, NOTHING, Source};
use crate::uses::Use;

impl Queue {
    /// Writes a region of an image. `source` has the rows and slices of the region.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn write_image(
        self: &Arc<Self>,
        memory: &Arc<Memory>,
        (origin, region): ([u64; 3], [u64; 3]),
        source: &dyn Source,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let uses = [Use::all(memory, overwrites(memory, source.bytes()))];
        let spec = Spec { reads_host: source.shape(), ..Spec::new(&uses, waits, want) };
        let (queue, mem) = (self.id(), memory.id_at(self.place()));
        self.issue(spec, source, move |event| to_worker::WriteImage {
            queue,
            mem,
            event,
            origin: origin.map(U64::new),
            region: region.map(U64::new),
        })
    }

    /// Reads a region of an image. `target` receives its rows and slices without gaps.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn read_image(
        self: &Arc<Self>,
        memory: &Arc<Memory>,
        (origin, region): ([u64; 3], [u64; 3]),
        target: Box<dyn Target>,
        waits: &[Event],
    ) -> Enqueued {
        let uses = [Use::all(memory, Access::Read)];
        let spec = Spec {
            writes_host: target.shape(),
            target: Some(target),
            ..Spec::new(&uses, waits, Want::Event)
        };
        let (queue, mem) = (self.id(), memory.id_at(self.place()));
        self.issue(spec, &NOTHING, move |event| to_worker::ReadImage {
            queue,
            mem,
            event,
            origin: origin.map(U64::new),
            region: region.map(U64::new),
        })
    }

    /// Copies a region between images.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn copy_image(
        self: &Arc<Self>,
        (source, source_origin): (&Arc<Memory>, [u64; 3]),
        (target, target_origin): (&Arc<Memory>, [u64; 3]),
        region: [u64; 3],
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let uses = [Use::all(source, Access::Read), Use::all(target, Access::Write)];
        let (queue, place) = (self.id(), self.place());
        let (source, target) = (source.id_at(place), target.id_at(place));
        self.issue(Spec::new(&uses, waits, want), &NOTHING, move |event| to_worker::CopyImage {
            queue,
            source,
            target,
            event,
            source_origin: source_origin.map(U64::new),
            target_origin: target_origin.map(U64::new),
            region: region.map(U64::new),
        })
    }

    /// Copies a region of an image into a buffer.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn copy_image_to_buffer(
        self: &Arc<Self>,
        (source, origin): (&Arc<Memory>, [u64; 3]),
        region: [u64; 3],
        (target, target_offset): (&Arc<Memory>, u64),
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let bytes = Range { offset: target_offset, size: pixel_bytes(source, region) };
        let uses = [Use::all(source, Access::Read), Use::part(target, Access::Overwrite, bytes)];
        let (queue, place) = (self.id(), self.place());
        let (source, target) = (source.id_at(place), target.id_at(place));
        self.issue(Spec::new(&uses, waits, want), &NOTHING, move |event| {
            to_worker::CopyImageToBuffer {
                queue,
                source,
                target,
                event,
                origin: origin.map(U64::new),
                region: region.map(U64::new),
                target_offset: U64::new(target_offset),
            }
        })
    }

    /// Copies bytes of a buffer into a region of an image.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn copy_buffer_to_image(
        self: &Arc<Self>,
        (source, source_offset): (&Arc<Memory>, u64),
        (target, origin): (&Arc<Memory>, [u64; 3]),
        region: [u64; 3],
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let size = pixel_bytes(target, region);
        let bytes = Range { offset: source_offset, size };
        let uses =
            [Use::part(source, Access::Read, bytes), Use::all(target, overwrites(target, size))];
        let (queue, place) = (self.id(), self.place());
        let (source, target) = (source.id_at(place), target.id_at(place));
        self.issue(Spec::new(&uses, waits, want), &NOTHING, move |event| {
            to_worker::CopyBufferToImage {
                queue,
                source,
                target,
                event,
                source_offset: U64::new(source_offset),
                origin: origin.map(U64::new),
                region: region.map(U64::new),
            }
        })
    }

    /// Fills a region of an image with a colour.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn fill_image(
        self: &Arc<Self>,
        memory: &Arc<Memory>,
        colour: &[u8; 16],
        (origin, region): ([u64; 3], [u64; 3]),
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let uses = [Use::all(memory, Access::Write)];
        let (queue, mem) = (self.id(), memory.id_at(self.place()));
        self.issue(Spec::new(&uses, waits, want), &Given(colour), move |event| {
            to_worker::FillImage {
                queue,
                mem,
                event,
                origin: origin.map(U64::new),
                region: region.map(U64::new),
            }
        })
    }
}

/// Returns the number of bytes in a region of an image, without gaps.
fn pixel_bytes(image: &Memory, region: [u64; 3]) -> u64 {
    match image.kind() {
        MemoryKind::Image(shape) => region.iter().product::<u64>() * shape.pixel_size,
        _ => 0,
    }
}

/// Returns the access of a write of `bytes` bytes: `Overwrite` if they are the whole object.
fn overwrites(memory: &Memory, bytes: u64) -> Access {
    if bytes == memory.size() { Access::Overwrite } else { Access::Write }
}
