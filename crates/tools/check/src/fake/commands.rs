//! The effects of commands on memory.

use std::sync::Arc;
use std::time::Duration;

use penstock_cl_sys::CL_OUT_OF_RESOURCES;
use penstock_process::Lock;

use super::{Area, Defect, Event, Inner, Piece};
use crate::backend::{Argument, At, Call, End, Handle};
use crate::machine::Work;
use crate::model::mix;
use crate::plan::{Kernel, MapMode, Rect};
use crate::random::pattern;

/// The numbers of a launch, as `Call::Launch` has them.
#[derive(Clone, Copy)]
struct Numbers {
    count: usize,
    seed: u32,
    spin: u32,
}

impl Numbers {
    fn new(count: usize, seed: u32, spin: u32) -> Self {
        Self { count, seed, spin }
    }
}

impl Inner {
    /// Enqueues a command. Returns its event, and the area that it maps.
    pub(super) fn send(
        &self,
        queue: Handle,
        call: &Call,
        wait: &[Handle],
        blocking: bool,
    ) -> Result<(usize, Option<Handle>), i32> {
        let (device, out_of_order, profiling, earlier, barrier) = {
            let state = self.state.lock();
            let known = &state.queues[&queue.0];
            (known.device, known.out_of_order, known.profiling, known.cmds.clone(), known.barrier)
        };
        let mut area = None;
        let work = match call {
            Call::TooBig { .. } if self.is(Defect::LostError) => Box::new(|| {}) as Work,
            Call::TooBig { .. } => return Err(CL_OUT_OF_RESOURCES),
            Call::Map { mem, offset, len, mode, .. } => {
                let (made, work) = self.map(*mem, *offset, *len, *mode);
                area = Some(made);
                work
            }
            _ => self.work(call, device, blocking),
        };
        let full = wait.is_empty() && matches!(call, Call::Marker | Call::Barrier);
        let order = if full || !out_of_order { earlier } else { barrier.into_iter().collect() };
        let mut waits: Vec<usize> = wait.iter().map(|event| event.0).collect();
        let mut state = self.state.lock();
        if self.is(Defect::EarlyStart) {
            waits.retain(|event| state.events.get(event).is_some_and(|event| event.work.is_none()));
        }
        let id = state.fresh();
        let write = matches!(call, Call::Write { .. } | Call::WriteRect { .. });
        let has_times = profiling && !(blocking && write && self.is(Defect::MissingTimes));
        let event =
            Event { status: 1, has_times, work: Some(work), waits, order, ..Event::default() };
        state.events.insert(id, event);
        if let Some(known) = state.queues.get_mut(&queue.0) {
            known.cmds.push(id);
            if matches!(call, Call::Barrier) && !self.is(Defect::LooseBarrier) {
                known.barrier = Some(id);
            }
        }
        drop(state);
        self.changed.notify_all();
        Ok((id, area))
    }

    fn work(&self, call: &Call, device: usize, blocking: bool) -> Work {
        match call {
            Call::Read { mem, offset, len, to } => {
                let (from, to, (offset, len)) =
                    (self.mem(*mem), self.area(*to, *len), (*offset, *len));
                Box::new(move || to.put(0, &from.get(offset, len)))
            }
            Call::Write { mem, offset, len, from } => {
                let (to, from, (offset, len)) =
                    (self.written(*mem, device), self.area(*from, *len), (*offset, *len));
                let early = (self.is(Defect::EarlyCapture) && !blocking).then(|| from.get(0, len));
                Box::new(move || to.put(offset, &early.unwrap_or_else(|| from.get(0, len))))
            }
            Call::ReadRect { mem, rect, to } => {
                let (from, to) = (self.mem(*mem), self.area(*to, rect.other_span()));
                let mut rect = *rect;
                if self.is(Defect::WrongPitch) {
                    rect.other_pitch = rect.width;
                }
                Box::new(move || rows(&rect, |own, other, len| to.put(other, &from.get(own, len))))
            }
            Call::WriteRect { mem, rect, from } => {
                let (to, from) = (self.written(*mem, device), self.area(*from, rect.other_span()));
                let rect = *rect;
                Box::new(move || rows(&rect, |own, other, len| to.put(own, &from.get(other, len))))
            }
            Call::Copy { from, from_offset, to, to_offset, len } => {
                let (from, to) = (self.mem(*from), self.written(*to, device));
                let (start, end, len) = (*from_offset, *to_offset, *len);
                Box::new(move || to.put(end, &from.get(start, len)))
            }
            Call::CopyRect { from, to, to_offset, rect } => {
                let (from, to, rect, start) =
                    (self.mem(*from), self.written(*to, device), *rect, *to_offset);
                Box::new(move || {
                    rows(&rect, |own, other, len| to.put(start + other, &from.get(own, len)))
                })
            }
            Call::Fill { mem, offset, len, word } | Call::SvmFill { mem, offset, len, word } => {
                self.fill(self.written(*mem, device), *offset, *len, *word)
            }
            Call::FillImage { mem, width, height, word } => {
                self.fill(self.written(*mem, device), 0, width * height * 4, *word)
            }
            Call::Launch { kernel, a, b, count, seed, spin, .. } => {
                self.launch(*kernel, a, b.as_ref(), Numbers::new(*count, *seed, *spin), device)
            }
            Call::Unmap { mem, area, .. } => self.unmap(*mem, *area),
            Call::ReadImage { mem, width, height, to } => {
                let len = width * height * 4;
                let (from, to) = (self.mem(*mem), self.area(*to, len));
                Box::new(move || to.put(0, &from.get(0, len)))
            }
            Call::WriteImage { mem, width, height, from } => {
                let len = width * height * 4;
                let (to, from) = (self.written(*mem, device), self.area(*from, len));
                let forget = self.is(Defect::ViewOverwrite);
                Box::new(move || {
                    to.put(0, &from.get(0, len));
                    let whole = to.bytes.lock().len();
                    if forget && to.offset + len < whole {
                        let rest = Piece { bytes: to.bytes, offset: to.offset + len, len: 0 };
                        rest.put(0, &vec![0; whole - rest.offset]);
                    }
                })
            }
            Call::ImageToBuffer { image, width, height, mem, offset } => {
                let (len, offset) = (width * height * 4, *offset);
                let (from, to) = (self.mem(*image), self.written(*mem, device));
                Box::new(move || to.put(offset, &from.get(0, len)))
            }
            Call::BufferToImage { mem, offset, image, width, height } => {
                let (len, offset) = (width * height * 4, *offset);
                let (from, to) = (self.mem(*mem), self.written(*image, device));
                Box::new(move || to.put(0, &from.get(offset, len)))
            }
            Call::SvmCopy { to, from, len } => {
                let (to, from, len) = (self.end_of(to, *len), self.end_of(from, *len), *len);
                Box::new(move || to.put(0, &from.get(0, len)))
            }
            Call::Marker
            | Call::Barrier
            | Call::Migrate { .. }
            | Call::Map { .. }
            | Call::TooBig { .. } => Box::new(|| {}),
        }
    }

    /// Returns the bytes of an object that a command of `device` writes, and notes the device as
    /// their last writer.
    fn written(&self, mem: Handle, device: usize) -> Piece {
        let piece = self.mem(mem);
        self.state.lock().writers.insert(identity(&piece), device);
        piece
    }

    fn end_of(&self, end: &End, len: usize) -> Piece {
        match end {
            End::Svm { mem, offset } => {
                let piece = self.mem(*mem);
                Piece { bytes: piece.bytes, offset: piece.offset + offset, len }
            }
            End::Host(at) => self.area(At { area: at.area, offset: at.offset }, len),
        }
    }

    fn fill(&self, to: Piece, offset: usize, len: usize, word: u32) -> Work {
        let bytes: Vec<u8> = word.to_le_bytes().iter().copied().cycle().take(len).collect();
        let torn = self.is(Defect::TornFill) && len >= 8;
        Box::new(move || {
            if !torn {
                return to.put(offset, &bytes);
            }
            let half = len / 8 * 4;
            to.put(offset, &bytes[..half]);
            // Without a thread, the second half stays as it is.
            _ = penstock_process::start("torn fill", move || {
                std::thread::sleep(Duration::from_micros(200));
                to.put(offset + half, &bytes[half..]);
            });
        })
    }

    fn launch(
        &self,
        kernel: Kernel,
        a: &Argument,
        b: Option<&Argument>,
        numbers: Numbers,
        device: usize,
    ) -> Work {
        let Numbers { count, seed, spin } = numbers;
        let (at, len) = (a.offset * 4, count * 4);
        let source = b.map(|b| (self.mem(b.mem), b.offset * 4));
        let mut early = None;
        if let Some((piece, offset)) = source.as_ref().filter(|_| self.is(Defect::StaleRead)) {
            let writer = self.state.lock().writers.get(&identity(piece)).copied();
            early = writer.filter(|&writer| writer != device).map(|_| piece.get(*offset, len));
        }
        let to = self.written(a.mem, device);
        Box::new(move || {
            if spin > 0 {
                std::thread::sleep(Duration::from_nanos(u64::from(spin.min(1_000_000))));
            }
            let old = to.get(at, len);
            let source = early.or_else(|| source.map(|(piece, offset)| piece.get(offset, len)));
            let mut new = Vec::with_capacity(len);
            for index in 0..count {
                let word = match (&source, kernel.has_source()) {
                    (Some(source), true) => mix(word(&old, index), word(source, index), seed),
                    _ => pattern(seed, index),
                };
                new.extend(word.to_le_bytes());
            }
            to.put(at, &new);
        })
    }

    fn map(&self, mem: Handle, offset: usize, len: usize, mode: MapMode) -> (Handle, Work) {
        let of = self.mem(mem);
        let target = Piece { bytes: of.bytes, offset: of.offset + offset, len };
        let piece = Piece { bytes: Arc::new(Lock::new(vec![0; len])), offset: 0, len };
        let area = Area { piece: piece.clone(), target: mode.writes().then(|| target.clone()) };
        let handle = self.add(|state, id| {
            state.areas.insert(id, area);
        });
        (handle, Box::new(move || piece.put(0, &target.get(0, target.len))))
    }

    fn unmap(&self, _: Handle, area: Handle) -> Work {
        let known = self.state.lock().areas.remove(&area.0);
        let short = self.is(Defect::ShortUnmap);
        Box::new(move || {
            let Some(Area { piece, target: Some(target) }) = known else { return };
            let len = if short && piece.len > 4 { piece.len - 4 } else { piece.len };
            target.put(0, &piece.get(0, len));
        })
    }
}

fn identity(piece: &Piece) -> usize {
    Arc::as_ptr(&piece.bytes) as usize
}

fn word(bytes: &[u8], index: usize) -> u32 {
    let at = index * 4;
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn rows(rect: &Rect, mut each: impl FnMut(usize, usize, usize)) {
    for row in 0..rect.height {
        each(rect.mem_offset + row * rect.mem_pitch, row * rect.other_pitch, rect.width);
    }
}
