//! The frames for another member: headers, and bytes directly from the parts.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ptr::NonNull;

use super::carrier::Carrier;
use super::input::Broken;
use crate::frame::{FRAME_BYTES, Frame};

/// Maximum number of frames sent with one call; each has two pieces, and the system takes 1,024.
const FRAMES_PER_CALL: usize = 32;

/// Maximum number of frames that wait for one member. At the limit the rings are no longer emptied,
/// until the member has taken some.
const WAITING_MAX: usize = 2 * FRAMES_PER_CALL;

/// Entry of a ring: index of the ring and position.
pub(super) type Source = (usize, u64);

/// Frame to be sent.
#[derive(Debug)]
pub(super) struct Out {
    header: [u8; FRAME_BYTES],
    body: Body,
    /// Entry to give back when the carrier has taken the whole frame.
    source: Option<Source>,
}

#[derive(Debug)]
enum Body {
    None,
    Value([u8; 8], usize),
    Part(Bytes),
    Text(Vec<u8>),
}

/// Bytes of a part of this member.
#[derive(Debug)]
pub(super) struct Bytes {
    place: NonNull<u8>,
    length: usize,
}

// SAFETY: the proxy holds the state with the parts as long as these plain bytes, and only reads
// them.
unsafe impl Send for Bytes {}

impl Bytes {
    /// Refers to bytes of a part.
    ///
    /// # Safety
    /// `length` bytes are mapped at `place` as long as the proxy runs.
    pub(super) unsafe fn new(place: NonNull<u8>, length: usize) -> Self {
        Self { place, length }
    }
}

impl Out {
    pub(super) fn bare(frame: &Frame) -> Self {
        Self { header: frame.encode(), body: Body::None, source: None }
    }

    pub(super) fn value(frame: &Frame, value: [u8; 8], length: usize, source: Source) -> Self {
        Self {
            header: frame.encode(),
            body: Body::Value(value, length.min(8)),
            source: Some(source),
        }
    }

    pub(super) fn part(frame: &Frame, bytes: Bytes, source: Source) -> Self {
        Self { header: frame.encode(), body: Body::Part(bytes), source: Some(source) }
    }

    pub(super) fn note(frame: &Frame, text: Vec<u8>) -> Self {
        Self { header: frame.encode(), body: Body::Text(text), source: None }
    }

    fn body(&self) -> &[u8] {
        match &self.body {
            Body::None => &[],
            Body::Value(value, length) => value.get(..*length).unwrap_or_default(),
            Body::Text(text) => text,
            // SAFETY: mapped as the caller of `new` guarantees. A kernel that changes its source
            // too early only makes it other plain bytes.
            Body::Part(bytes) => unsafe {
                std::slice::from_raw_parts(bytes.place.as_ptr(), bytes.length)
            },
        }
    }
}

/// Frames that wait for one member.
#[derive(Debug, Default)]
pub(super) struct Output {
    waiting: VecDeque<Out>,
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

    pub(super) fn push(&mut self, out: Out) {
        self.waiting.push_back(out);
    }

    /// Sends what the carrier takes. Returns `false` if it takes nothing now. Passes entries whose
    /// bytes the carrier has to `taken`.
    pub(super) fn send(
        &mut self,
        carrier: &mut dyn Carrier,
        taken: &mut dyn FnMut(Source),
    ) -> Result<bool, Broken> {
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

    fn advance(&mut self, sent: usize, taken: &mut dyn FnMut(Source)) {
        self.sent += sent;
        while let Some(first) = self.waiting.front() {
            let whole = FRAME_BYTES + first.body().len();
            if self.sent < whole {
                return;
            }
            self.sent -= whole;
            if let Some(source) = self.waiting.pop_front().and_then(|out| out.source) {
                taken(source);
            }
        }
    }

    /// Drops all frames and passes their entries to `taken`.
    pub(super) fn drop_all(&mut self, taken: &mut dyn FnMut(Source)) {
        self.sent = 0;
        self.waiting.drain(..).filter_map(|out| out.source).for_each(taken);
    }
}
