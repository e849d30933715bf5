//! The frames that another member sends, stored directly into the parts.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::carrier::{Carrier, CarrierError};
use super::request::PutTarget;
use crate::frame::{AbortNote, FRAME_BYTES, Frame};
use crate::layout::NO_SIGNAL;
use crate::segment::Parts;

/// Bytes received with one call, except within a payload. They are several small puts, and few
/// enough that copying them twice costs little.
const BUFFER_BYTES: usize = 16 << 10;

/// Maximum number of bytes received in one turn, before the rings' turn: at worst half a
/// millisecond of copying.
const TURN_BYTES_MAX: usize = 1 << 20;

/// Largest payload that is a value. Values are written in one piece, so readers never see half.
const VALUE_BYTES_MAX: u64 = 8;

/// Message of a member other than a put. Puts are done at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMessage {
    /// The member asks whether all its frames so far are done, which they are.
    Flush(u64),
    /// All our frames before the flush with this mark are done.
    Done(u64),
    Abort(AbortNote),
}

/// Receiver of a member's frames.
#[derive(Debug)]
pub(crate) struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    stage: ReceiveStage,
}

#[derive(Debug)]
enum ReceiveStage {
    Header,
    Payload { to: PutTarget, done: u64 },
    Text { generation: u64, is_final: bool, left: usize, text: Vec<u8> },
}

impl Input {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES].into(), start: 0, end: 0, stage: ReceiveStage::Header }
    }

    /// Receives what is there, for one turn. Returns whether anything was.
    pub(crate) fn receive(
        &mut self,
        carrier: &mut dyn Carrier,
        parts: &Parts,
        part_bytes: u64,
        messages: &mut dyn FnMut(PeerMessage),
    ) -> Result<bool, CarrierError> {
        let mut total = 0;
        while total < TURN_BYTES_MAX {
            let got = match &mut self.stage {
                ReceiveStage::Payload { to, done }
                    if self.start == self.end && to.length > VALUE_BYTES_MAX =>
                {
                    let left = to.length - *done;
                    let place = place(parts, to.pe, to.at + *done, left)?;
                    let length = usize::try_from(left)
                        .map_err(|_| CarrierError::Protocol)?
                        .min(TURN_BYTES_MAX);
                    // SAFETY: `length` bytes lie there, mapped while `parts` lives. Kernels should
                    // not write them meanwhile; if one does, it only changes plain bytes.
                    let into = unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), length) };
                    let got = carrier.receive(into)?;
                    *done += got.unwrap_or_default() as u64;
                    got
                }
                _ => {
                    self.make_room();
                    let got =
                        carrier.receive(self.buffer.get_mut(self.end..).unwrap_or_default())?;
                    self.end += got.unwrap_or_default();
                    got
                }
            };
            let Some(got) = got else { return Ok(total > 0) };
            total += got;
            self.digest(parts, part_bytes, messages)?;
        }
        Ok(true)
    }

    /// Handles `bytes` as if they had been received, for tests and fuzzing.
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        parts: &Parts,
        part_bytes: u64,
        messages: &mut dyn FnMut(PeerMessage),
    ) -> Result<(), CarrierError> {
        while !bytes.is_empty() {
            self.make_room();
            let room = self.buffer.get_mut(self.end..).unwrap_or_default();
            let (now, rest) = bytes.split_at(bytes.len().min(room.len()));
            room.iter_mut().zip(now).for_each(|(to, from)| *to = *from);
            self.end += now.len();
            bytes = rest;
            self.digest(parts, part_bytes, messages)?;
        }
        Ok(())
    }

    /// Makes room in the buffer. After `digest` less than a header or a value is left.
    fn make_room(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    fn take(&mut self, most: usize) -> &[u8] {
        let from = self.start;
        self.start = self.end.min(from.saturating_add(most));
        self.buffer.get(from..self.start).unwrap_or_default()
    }

    fn digest(
        &mut self,
        parts: &Parts,
        part_bytes: u64,
        messages: &mut dyn FnMut(PeerMessage),
    ) -> Result<(), CarrierError> {
        loop {
            match std::mem::replace(&mut self.stage, ReceiveStage::Header) {
                ReceiveStage::Header => {
                    let waiting = self.buffer.get(self.start..self.end).unwrap_or_default();
                    let Some(header) = waiting.first_chunk::<FRAME_BYTES>() else { return Ok(()) };
                    let frame = Frame::decode(header)?;
                    self.start += FRAME_BYTES;
                    match frame {
                        Frame::Put { pe, at, length, signal_at, signal } => {
                            let to = PutTarget { pe, at, length, signal_at, signal };
                            if !to.lies_within(part_bytes) || !parts.pes().contains(&pe.into()) {
                                return Err(CarrierError::Protocol);
                            }
                            self.stage = ReceiveStage::Payload { to, done: 0 };
                        }
                        Frame::Flush { mark } => messages(PeerMessage::Flush(mark)),
                        Frame::Done { mark } => messages(PeerMessage::Done(mark)),
                        Frame::Abort { generation, is_final, length } => {
                            let left =
                                usize::try_from(length).map_err(|_| CarrierError::Protocol)?;
                            self.stage =
                                ReceiveStage::Text { generation, is_final, left, text: Vec::new() };
                        }
                    }
                }
                ReceiveStage::Payload { to, done } => {
                    if to.length <= VALUE_BYTES_MAX && ((self.end - self.start) as u64) < to.length
                    {
                        self.stage = ReceiveStage::Payload { to, done };
                        return Ok(());
                    }
                    let left =
                        usize::try_from(to.length - done).map_err(|_| CarrierError::Protocol)?;
                    let bytes = self.take(left);
                    let done = done + bytes.len() as u64;
                    if !bytes.is_empty() {
                        write(parts, &to, done, bytes)?;
                    }
                    if done < to.length {
                        self.stage = ReceiveStage::Payload { to, done };
                        return Ok(());
                    }
                    signal(parts, &to)?;
                }
                ReceiveStage::Text { generation, is_final, left, mut text } => {
                    let bytes = self.take(left);
                    text.extend_from_slice(bytes);
                    let left = left - bytes.len();
                    if left > 0 {
                        self.stage = ReceiveStage::Text { generation, is_final, left, text };
                        return Ok(());
                    }
                    let reason = String::from_utf8_lossy(&text).into_owned();
                    messages(PeerMessage::Abort(AbortNote { generation, is_final, reason }));
                }
            }
        }
    }
}

fn place(parts: &Parts, pe: u8, at: u64, length: u64) -> Result<NonNull<u8>, CarrierError> {
    parts.place(pe.into(), at, length).ok_or(CarrierError::Protocol)
}

/// Writes `bytes`, which end the first `done` bytes of a payload.
fn write(parts: &Parts, to: &PutTarget, done: u64, bytes: &[u8]) -> Result<(), CarrierError> {
    let at = to.at + done - bytes.len() as u64;
    let place = place(parts, to.pe, at, bytes.len() as u64)?;
    // A single value is stored in one piece, so that a reader never sees half of it.
    if let Ok(value) = <[u8; 8]>::try_from(bytes)
        && at.is_multiple_of(8)
    {
        // SAFETY: eight aligned bytes, mapped while `parts` lives; writers store whole values.
        let word = unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) };
        word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
    } else if let Ok(value) = <[u8; 4]>::try_from(bytes)
        && at.is_multiple_of(4)
    {
        // SAFETY: as above, for four bytes.
        let word = unsafe { AtomicU32::from_ptr(place.as_ptr().cast()) };
        word.store(u32::from_ne_bytes(value), Ordering::Relaxed);
    } else {
        // SAFETY: `bytes.len()` bytes lie there, mapped while `parts` lives, and apart from
        // `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.as_ptr(), bytes.len()) };
    }
    Ok(())
}

/// Sets the signal of a put whose bytes have all arrived.
fn signal(parts: &Parts, to: &PutTarget) -> Result<(), CarrierError> {
    if to.signal_at == NO_SIGNAL {
        return Ok(());
    }
    let place = place(parts, to.pe, to.signal_at, 8)?;
    // SAFETY: eight bytes lie there, aligned as was checked, mapped while `parts` lives.
    let word = unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) };
    word.store(to.signal, Ordering::Release);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use penstock_link::Stream;

    use super::*;
    use crate::layout::FLAGS_BYTES;
    use crate::plan::{Plan, TIMEOUT_DEFAULT};

    const VALUE: u64 = 0x1122_3344_5566_7788;

    fn value_at(parts: &Parts) -> u64 {
        let place = parts.place(0, FLAGS_BYTES as u64, 8).unwrap();
        // SAFETY: eight aligned bytes, mapped while `parts` lives; no other thread writes them.
        unsafe { place.cast::<u64>().read_volatile() }
    }

    /// Returns the content of a value of `length` bytes after each part of its frame, cut at `cut`.
    fn seen(length: usize, cut: usize, by_stream: bool) -> [u64; 2] {
        let plan = Plan {
            id: 0,
            members: vec![0, 1],
            me: 0,
            bytes: 64,
            timeout: TIMEOUT_DEFAULT,
            force_proxy: true,
        };
        let (parts, part_bytes) = (Parts::create(&plan).unwrap(), FLAGS_BYTES as u64 + 64);
        let put = Frame::Put {
            pe: 0,
            at: FLAGS_BYTES as u64,
            length: length as u64,
            signal_at: NO_SIGNAL,
            signal: 0,
        };
        let whole = [put.encode().as_slice(), &VALUE.to_ne_bytes()[..length]].concat();
        let mut input = Input::new();
        let (mut far, near) = UnixStream::pair().unwrap();
        let mut near = Stream::from_fd(near.into()).unwrap();
        [&whole[..cut], &whole[cut..]].map(|piece| {
            if by_stream {
                far.write_all(piece).unwrap();
                input.receive(&mut near, &parts, part_bytes, &mut |_| {}).unwrap();
            } else {
                input.feed(piece, &parts, part_bytes, &mut |_| {}).unwrap();
            }
            value_at(&parts)
        })
    }

    #[test]
    fn a_value_is_written_in_one_piece_wherever_its_frame_is_cut() {
        for by_stream in [false, true] {
            for cut in 1..FRAME_BYTES + 8 {
                assert_eq!(seen(8, cut, by_stream), [0, VALUE], "cut at {cut}");
            }
            for cut in 1..FRAME_BYTES + 4 {
                assert_eq!(seen(4, cut, by_stream), [0, VALUE & 0xFFFF_FFFF], "cut at {cut}");
            }
        }
    }
}
