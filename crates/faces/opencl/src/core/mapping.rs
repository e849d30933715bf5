//! The mapped regions of a memory object, and what became of their maps.

use penstock_client::Event;
use penstock_wire::Status;

/// Mapped regions of a memory object.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    pub(super) open: Vec<Mapped>,
    /// Reads of maps into host memory that had not ended at the last look.
    pub(super) arriving: Vec<Event>,
}

/// Region of a memory object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Region {
    Bytes {
        offset: usize,
        size: usize,
    },
    /// Region of an image in pixels.
    Box {
        origin: [usize; 3],
        region: [usize; 3],
    },
}

#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) address: usize,
    pub(super) writes: bool,
    pub(super) region: Region,
    pub(super) outcome: Outcome,
}

/// Result of a map, as far as its unmap must know it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) event: Event,
    /// Whether the map reads, or waits for an event that can fail. Otherwise only its node or its
    /// driver can make it fail. The unmap then respects a known failure, but does not wait for the
    /// map.
    may_fail: bool,
}

impl Outcome {
    /// Returns the outcome of a map that reads the content.
    pub(super) fn of_read(event: Event) -> Self {
        Self { event, may_fail: true }
    }

    /// Returns the outcome of a map that reads nothing and waits for `waits`.
    pub(super) fn of_discard(event: Event, waits: &[Event]) -> Self {
        let may_fail = waits.iter().any(|wait| wait.known_status() != Some(Status::OK));
        Self { event, may_fail }
    }

    /// Returns the events that the unmap's write waits for. `waits` is the program's wait list.
    ///
    /// If the map fails, the program has neither seen the content nor been given the region to
    /// fill, and nothing is written back: the write fails with the map's event. A map that has
    /// ended well adds nothing.
    pub(super) fn waits_of_unmap(&self, waits: &[Event]) -> Vec<Event> {
        let must_be_awaited = match self.event.known_status() {
            Some(status) => status.is_error(),
            None => self.may_fail && self.event.poll().is_none_or(Status::is_error),
        };
        waits.iter().chain(must_be_awaited.then_some(&self.event)).cloned().collect()
    }
}

impl Maps {
    /// Returns the value of `CL_MEM_MAP_COUNT`.
    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }
}
