//! The parts of one command: memory, ranges, positions in host memory.

use super::Planner;
use crate::cuda::feature::Feature;
use crate::cuda::plan::{Job, Kernel, Rows, Side, Stream, Work};
use crate::plan::Ptr;

impl Planner {
    /// Returns random work for a stream of a context. In graphs, copies use only pinned memory.
    pub(super) fn work(&mut self, context: usize, in_graph: bool) -> Option<Work> {
        match self.random.below(100) {
            0..24 => self.launch(context),
            24..44 => self.transfer(context, true, in_graph),
            44..64 => self.transfer(context, false, in_graph),
            64..72 => {
                let (to, from) = (self.a_mem(context)?, self.a_mem(context)?);
                let (offset, len) = self.range(from)?;
                let len = len.min(self.ledger.mems[&to].size);
                let to_offset = self.random.below((self.ledger.mems[&to].size - len) / 4 + 1) * 4;
                let to = Side::Device { mem: to, offset: to_offset };
                Some(Work::Copy { to, from: Side::Device { mem: from, offset }, len })
            }
            72..80 => self.fill(context),
            80..88 if self.has(Feature::Rects) => self.rows(context, in_graph),
            88..94 if self.has(Feature::Peers) && !in_graph => self.peer(context),
            _ if self.has(Feature::HostFunctions) => self.function(),
            _ => self.launch(context),
        }
    }

    pub(super) fn launch(&mut self, context: usize) -> Option<Work> {
        let a = self.a_mem(context)?;
        let slow = self.has(Feature::Slow) && self.random.chance(30);
        let kernel = match self.random.below(10) {
            _ if slow => Kernel::Slow,
            0..6 => Kernel::Mix,
            _ => Kernel::Put,
        };
        self.launch_of(context, a, kernel)
    }

    /// Returns a launch that writes a part of `a`.
    pub(super) fn launch_of(&mut self, context: usize, a: usize, kernel: Kernel) -> Option<Work> {
        let (a_offset, len) = self.range(a)?;
        let (a_offset, mut count) = (a_offset / 4, (len / 4).max(1));
        let (mut b, mut b_offset) = (None, 0);
        if kernel == Kernel::Mix {
            let mem = self.a_mem(context)?;
            let words = self.ledger.mems[&mem].size / 4;
            count = count.min(words);
            b_offset = self.random.below(words - count + 1);
            b = Some(mem);
        }
        let spin = if kernel == Kernel::Slow { self.spin() } else { 0 };
        let seed = self.random.word();
        Some(Work::Launch { kernel, a, a_offset, b, b_offset, count, seed, spin })
    }

    /// Returns a copy between host and device.
    pub(super) fn transfer(&mut self, context: usize, to_host: bool, pinned: bool) -> Option<Work> {
        let mem = self.a_mem(context)?;
        let (mut offset, len) = self.range(mem)?;
        let (mut at, mut len) = self.host(len, pinned)?;
        if len > 8 && self.random.chance(15) {
            // Some copies are not of whole words.
            let (skipped, cut) = (self.random.below(4), self.random.below(4));
            (offset, at.offset, len) = (offset + skipped, at.offset + skipped, len - skipped - cut);
        }
        let (device, host) = (Side::Device { mem, offset }, Side::Host(at));
        let (to, from) = if to_host { (host, device) } else { (device, host) };
        Some(Work::Copy { to, from, len })
    }

    fn fill(&mut self, context: usize) -> Option<Work> {
        let mem = self.a_mem(context)?;
        let (offset, len) = self.range(mem)?;
        let unit = self.random.pick(&[1, 2, 4, 4])?;
        let value = self.random.word();
        Some(Work::Fill { mem, offset, len, unit, value })
    }

    fn rows(&mut self, context: usize, pinned: bool) -> Option<Work> {
        let mem = self.a_mem(context)?;
        let size = self.ledger.mems[&mem].size;
        let height = self.random.between(1, (size / 16).clamp(1, 9));
        let own_pitch = size / height / 4 * 4;
        let width = self.random.between(1, own_pitch / 4) * 4;
        let offset = self.random.below((own_pitch - width) / 4 + 1) * 4;
        if self.random.chance(20) {
            let rows = Rows { width, height, to_pitch: own_pitch, from_pitch: own_pitch };
            return Some(Work::Fill2D { mem, offset, rows, value: self.random.word() });
        }
        let device = Side::Device { mem, offset };
        let (other, pitch) = if self.random.chance(20) {
            let other = self.a_mem(context)?;
            let pitch = self.ledger.mems[&other].size / height / 4 * 4;
            (pitch >= width && other != mem)
                .then_some((Side::Device { mem: other, offset: 0 }, pitch))?
        } else {
            let pitch = self.random.between(width / 4, own_pitch / 4) * 4;
            let span = pitch * (height - 1) + width;
            let (at, len) = self.host(span, pinned)?;
            (len == span).then_some((Side::Host(at), pitch))?
        };
        let (to, from, to_pitch, from_pitch) = if self.random.chance(50) {
            (device, other, own_pitch, pitch)
        } else {
            (other, device, pitch, own_pitch)
        };
        Some(Work::Copy2D { to, from, rows: Rows { width, height, to_pitch, from_pitch } })
    }

    pub(super) fn peer(&mut self, context: usize) -> Option<Work> {
        let others: Vec<usize> =
            (0..self.program.contexts.len()).filter(|it| *it != context).collect();
        let other = self.random.pick(&others)?;
        let (own, far) = (self.a_mem(context)?, self.a_mem(other)?);
        let (to, from) = if self.random.chance(50) { (own, far) } else { (far, own) };
        let (from_offset, len) = self.range(from)?;
        let size = self.ledger.mems[&to].size;
        let len = len.min(size);
        let to_offset = self.random.below((size - len) / 4 + 1) * 4;
        Some(Work::Peer { to, to_offset, from, from_offset, len })
    }

    pub(super) fn function(&mut self) -> Option<Work> {
        let (at, len) = self.host(self.size, false)?;
        let job = match self.random.below(10) {
            0..4 => Job::Store { to: at, len, seed: self.random.word() },
            4..7 => Job::Check { at, len },
            7..9 => {
                let (from, other) = self.host(len, false)?;
                Job::Move { to: at, from, len: len.min(other) }
            }
            _ => Job::Rest,
        };
        let delay_us =
            if self.random.chance(40) { self.random.pick(&[20, 100, 400, 1500])? } else { 0 };
        Some(Work::Function { job, delay_us })
    }

    /// Returns memory of a context that may be used.
    pub(super) fn a_mem(&mut self, context: usize) -> Option<usize> {
        let fits = self.ledger.mems.iter().filter(|(_, mem)| mem.alive && mem.context == context);
        let all: Vec<usize> = fits.map(|(&id, _)| id).collect();
        self.random.pick(&all)
    }

    /// Returns a stream of a context.
    pub(super) fn a_stream(&mut self, context: usize) -> Option<Stream> {
        let made = self.ledger.streams.iter().filter(|(_, it)| it.alive && it.context == context);
        let mut all: Vec<Stream> = made.map(|(&id, _)| Stream::Made(id)).collect();
        if self.has(Feature::Legacy) {
            all.push(Stream::Legacy(context));
        }
        if self.has(Feature::PerThread) {
            all.push(Stream::PerThread(context));
        }
        self.random.pick(&all)
    }

    /// Returns a part of device memory in whole words: an offset and a number of bytes.
    fn range(&mut self, mem: usize) -> Option<(usize, usize)> {
        let size = self.ledger.mems.get(&mem)?.size;
        if self.random.chance(45) {
            return Some((0, size));
        }
        let len = self.random.between(1, size / 4) * 4;
        Some((self.random.below((size - len) / 4 + 1) * 4, len))
    }

    /// Returns a position in host memory and a number of bytes, at most `len`. It is often one that
    /// a recent copy has used.
    pub(super) fn host(&mut self, len: usize, pinned: bool) -> Option<(Ptr, usize)> {
        if self.random.chance(60)
            && let Some((at, known)) = self.random.pick(&self.recent)
            && (!pinned || self.program.areas[at.area].pinned)
        {
            let start =
                if self.random.chance(25) { self.random.below(known / 4 + 1) * 4 } else { 0 };
            let at = Ptr { offset: at.offset + start, ..at };
            let room = self.program.areas[at.area].len - at.offset;
            if room > 0 {
                return Some((at, len.min(room)));
            }
        }
        // The last array is for the results.
        let areas = 0..self.program.areas.len() - 1;
        let areas: Vec<usize> =
            areas.filter(|&area| !pinned || self.program.areas[area].pinned).collect();
        let area = self.random.pick(&areas)?;
        let room = self.program.areas[area].len;
        let len = len.min(room);
        let offset =
            if self.random.chance(50) { 0 } else { self.random.below((room - len) / 4 + 1) * 4 };
        let at = Ptr { area, offset };
        self.remember(at, len);
        Some((at, len))
    }

    /// Returns a duration for a slow kernel, in rounds of about a nanosecond.
    fn spin(&mut self) -> u32 {
        self.random.pick(&[20_000, 100_000, 300_000, 1_000_000, 3_000_000]).unwrap_or(100_000)
    }
}
