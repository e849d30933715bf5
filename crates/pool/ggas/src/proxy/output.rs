//! The frames for another member: headers, and bytes directly from the parts.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ptr::NonNull;

use super::carrier::{Carrier, CarrierError};
use crate::frame::{FRAME_BYTES, Frame};

/// Maximum number of frames sent with one call; each has two pieces, and the system takes 1,024.
const FRAMES_PER_CALL: usize = 32;

/// Maximum number of frames that wait for one member. At the limit the rings are no longer emptied,
/// until the member has taken some.
const WAITING_MAX: usize = 2 * FRAMES_PER_CALL;

/// A taken entry of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TakenEntry {
    /// Index of the ring.
    pub(super) ring: usize,
    pub(super) position: u64,
}

/// Frame to be sent.
#[derive(Debug)]
pub(super) struct OutFrame {
    header: [u8; FRAME_BYTES],
    body: FrameBody,
    /// Entry to give back when the carrier has taken the whole frame.
    entry: Option<TakenEntry>,
}

#[derive(Debug)]
enum FrameBody {
    None,
    Value([u8; 8], usize),
    Part(PartBytes),
    Text(Vec<u8>),
}

/// Bytes of a part of this member.
#[derive(Debug)]
pub(super) struct PartBytes {
    place: NonNull<u8>,
    length: usize,
}

// SAFETY: the proxy holds the state with the parts as long as these plain bytes, and only reads
// them.
unsafe impl Send for PartBytes {}

impl PartBytes {
    /// Refers to bytes of a part.
    ///
    /// # Safety
    /// `length` bytes are mapped at `place` as long as the proxy runs.
    pub(super) unsafe fn new(place: NonNull<u8>, length: usize) -> Self {
        Self { place, length }
    }
}

impl OutFrame {
    pub(super) fn bare(frame: &Frame) -> Self {
        Self { header: frame.encode(), body: FrameBody::None, entry: None }
    }

    pub(super) fn value(frame: &Frame, value: [u8; 8], length: usize, entry: TakenEntry) -> Self {
        Self {
            header: frame.encode(),
            body: FrameBody::Value(value, length.min(8)),
            entry: Some(entry),
        }
    }

    pub(super) fn part(frame: &Frame, bytes: PartBytes, entry: TakenEntry) -> Self {
        Self { header: frame.encode(), body: FrameBody::Part(bytes), entry: Some(entry) }
    }

    pub(super) fn note(frame: &Frame, text: Vec<u8>) -> Self {
        Self { header: frame.encode(), body: FrameBody::Text(text), entry: None }
    }

    fn body(&self) -> &[u8] {
        match &self.body {
            FrameBody::None => &[],
            FrameBody::Value(value, length) => value.get(..*length).unwrap_or_default(),
            FrameBody::Text(text) => text,
            // SAFETY: mapped as the caller of `new` guarantees. A kernel that changes its source
            // too early only makes it other plain bytes.
            FrameBody::Part(bytes) => unsafe {
                std::slice::from_raw_parts(bytes.place.as_ptr(), bytes.length)
            },
        }
    }
}

/// Frames that wait for one member.
#[derive(Debug, Default)]
pub(super) struct Output {
    waiting: VecDeque<OutFrame>,
    /// Number of bytes of the first frame that have been sent.
    sent: usize,
}

impl Output {
    /// Returns whether the rings may be emptied further.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, out: OutFrame) {
        self.waiting.push_back(out);
    }

    /// Sends what the carrier takes. Returns `false` if it takes nothing now. Passes entries whose
    /// bytes the carrier has to `taken`.
    pub(super) fn send(
        &mut self,
        carrier: &mut dyn Carrier,
        taken: &mut dyn FnMut(TakenEntry),
    ) -> Result<bool, CarrierError> {
        let mut any = false;
        while !self.waiting.is_empty() {
            let mut pieces = Vec::with_capacity(2 * FRAMES_PER_CALL);
            let mut skip = self.sent;
            for out in self.waiting.iter().take(FRAMES_PER_CALL) {
                for piece in [out.header.as_slice(), out.body()] {
                    let rest = piece.get(skip..).unwrap_or_default();
                    skip = skip.saturating_sub(piece.len());
                    if !rest.is_empty() {
                        pieces.push(IoSlice::new(rest));
                    }
                }
            }
            let Some(sent) = carrier.send(&pieces)? else { return Ok(any) };
            any = true;
            self.advance(sent, taken);
        }
        Ok(any)
    }

    fn advance(&mut self, sent: usize, taken: &mut dyn FnMut(TakenEntry)) {
        self.sent += sent;
        while let Some(first) = self.waiting.front() {
            let whole = FRAME_BYTES + first.body().len();
            if self.sent < whole {
                return;
            }
            self.sent -= whole;
            if let Some(entry) = self.waiting.pop_front().and_then(|out| out.entry) {
                taken(entry);
            }
        }
    }

    /// Drops all frames and passes their entries to `taken`.
    pub(super) fn drop_all(&mut self, taken: &mut dyn FnMut(TakenEntry)) {
        self.sent = 0;
        self.waiting.drain(..).filter_map(|out| out.entry).for_each(taken);
    }
}
