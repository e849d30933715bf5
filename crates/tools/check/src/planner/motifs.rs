//! Groups of operations that occur together more often in real programs than among random
//! operations.

use super::Planner;
use super::pieces::{is_buffer, is_linear};
use crate::feature::Feature;
use crate::ledger::MemKind;
use crate::plan::{Act, Cmd, Kernel, MapMode, Ptr, Style, SvmEnd};

impl Planner {
    pub(super) fn motif(&mut self, context: usize) -> Option<()> {
        match self.random.below(11) {
            0 => self.chain(context),
            1 => self.late_writer(context),
            2 => self.too_big(context),
            3 => self.shared_queue(context),
            4 => self.failing_gate(context),
            5 => self.map_chain(context),
            6 => self.timed_write(context),
            7 => self.host_copy(context),
            8 => self.far_end(context),
            9 => self.behind_a_barrier(context),
            _ => self.failing_blocking(context),
        }
    }

    fn enqueue(&mut self, queue: usize, cmd: Cmd, blocking: bool) -> Option<usize> {
        let event = self.fresh();
        self.emit(Act::Enqueue { queue, cmd, wait: Vec::new(), event: Some(event), blocking })?;
        Some(event)
    }

    fn slow(&mut self, queue: usize, a: usize) -> Option<usize> {
        let count = (self.ledger.mems[&a].size / 4).max(1);
        let (seed, spin) = (self.random.word(), self.spin());
        let cmd = Cmd::Launch {
            kernel: Kernel::Slow,
            a,
            a_offset: 0,
            b: None,
            b_offset: 0,
            count,
            seed,
            spin,
        };
        self.enqueue(queue, cmd, false)
    }

    /// A kernel computes a buffer, a command reads it into host memory, and another writes it from
    /// there to another buffer. The host does not wait in between.
    fn chain(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::HostChains) {
            return None;
        }
        let (from, to) = (self.a_mem(context, is_buffer)?, self.a_mem(context, is_buffer)?);
        let (one, two) = (self.a_queue(Some(context))?, self.a_queue(Some(context))?);
        self.slow(one, from)?;
        let len = self.ledger.mems[&from].size.min(self.ledger.mems[&to].size);
        let (at, len) = self.host(len, true)?;
        self.remember(at, len);
        self.enqueue(one, Cmd::Read { mem: from, offset: 0, len, to: at }, false)?;
        self.enqueue(two, Cmd::Write { mem: to, offset: 0, len, from: at }, false).map(drop)
    }

    /// A reader waits for a user event. A writer of what it reads is enqueued later and ends first,
    /// and then the event is set.
    fn late_writer(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::UserEvents) {
            return None;
        }
        let (held, free) = (self.a_queue(Some(context))?, self.a_queue(Some(context))?);
        let (source, target) = (self.a_mem(context, is_linear)?, self.a_mem(context, is_linear)?);
        let ooo =
            self.ledger.queues[&held].out_of_order && !self.has(Feature::UserEventsOutOfOrder);
        (held != free && source != target && !ooo).then_some(())?;
        let gate = self.new_gate(context)?;
        let count = (self.ledger.mems[&source].size.min(self.ledger.mems[&target].size) / 4).max(1);
        let kernel = if self.random.chance(50) { Kernel::Mix } else { Kernel::MixPlain };
        let seed = self.random.word();
        let cmd = Cmd::Launch {
            kernel,
            a: target,
            a_offset: 0,
            b: Some(source),
            b_offset: 0,
            count,
            seed,
            spin: 0,
        };
        let event = Some(self.fresh());
        self.emit(Act::Enqueue { queue: held, cmd, wait: vec![gate], event, blocking: false })?;
        self.emit(Act::Flush { queue: held })?;
        self.launch_on(free, source, false);
        self.emit(Act::Finish { queue: free })?;
        self.set_gate(gate, 0)?;
        self.read_from(held, target).map(drop)
    }

    /// A launch that cannot run follows a slow launch. A read through another queue sees what the
    /// slow launch wrote.
    fn too_big(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::FailingLaunches) {
            return None;
        }
        let last = self.own.failed_area.take()?;
        let device = self.random.pick(&self.program.contexts[context].clone())?;
        let (queue, scratch, seed) = (self.fresh(), self.fresh(), self.random.word());
        let mem = self.a_mem(context, is_buffer)?;
        self.emit(Act::NewQueue { queue, context, device, out_of_order: false, profiling: false })?;
        self.own.private_queues.push(queue);
        let style = Style::Plain;
        self.emit(Act::NewBuffer { mem: scratch, context, size: 64, style, init: None })?;
        self.own.private_mems.push(scratch);
        self.enqueue(queue, Cmd::Fill { mem: scratch, offset: 0, len: 64, word: 0 }, false)?;
        self.slow(queue, mem)?;
        self.emit(Act::TooBig { queue, source: mem, scratch, seed })?;
        self.emit(Act::Flush { queue })?;
        let other = self.a_queue(Some(context))?;
        self.read_from(other, mem);
        // The result goes to an array of its own, whose contents are unknown if the launch has
        // failed.
        self.emit(Act::ReadTooBig { queue, scratch, seed, to: Ptr { area: last, offset: 0 } })?;
        self.emit(Act::Finish { queue }).map(drop)
    }

    /// Two threads use one in-order queue: one fills a whole buffer, the other reads it.
    fn shared_queue(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::SharedQueues)
            || self.program.threads < 2
            || self.own.hot_area.is_none()
        {
            return None;
        }
        let area = self.own.hot_area?;
        let size = self.program.arrays[area];
        let device = self.random.pick(&self.program.contexts[context].clone())?;
        let (queue, mem) = (self.fresh(), self.fresh());
        let profiling = self.has(Feature::Profiling) && self.random.chance(30);
        self.emit(Act::NewQueue { queue, context, device, out_of_order: false, profiling })?;
        self.own.private_queues.push(queue);
        self.emit(Act::NewBuffer { mem, context, size, style: Style::Plain, init: None })?;
        self.own.private_mems.push(mem);
        let (one, other) = (self.thread, (self.thread + 1) % self.program.threads);
        let word = self.random.word();
        self.enqueue(queue, Cmd::HotFill { mem, word }, false)?;
        self.emit(Act::Finish { queue })?;
        self.sync(one, other, 0)?;
        for _ in 0..self.random.between(4, 12) {
            self.thread = one;
            for _ in 0..self.random.between(1, 4) {
                let word = self.random.word();
                self.enqueue(queue, Cmd::HotFill { mem, word }, false)?;
            }
            self.emit(Act::Flush { queue });
            self.thread = other;
            self.enqueue(queue, Cmd::HotRead { mem, to: Ptr { area, offset: 0 } }, true)?;
        }
        self.thread = one;
        self.emit(Act::Finish { queue }).map(drop)
    }

    /// Makes a queue for one motif, and a user event that will be set to an error.
    fn queue_and_gate(&mut self, context: usize) -> Option<(usize, usize)> {
        let device = self.random.pick(&self.program.contexts[context].clone())?;
        let (queue, gate) = (self.fresh(), self.fresh());
        self.emit(Act::NewQueue { queue, context, device, out_of_order: false, profiling: false })?;
        self.own.private_queues.push(queue);
        self.emit(Act::NewGate { event: gate, context, fails: true })?;
        Some((queue, gate))
    }

    /// A user event is set to an error: the commands that wait for it fail and change nothing.
    fn failing_gate(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::FailingEvents) {
            return None;
        }
        let (queue, gate) = self.queue_and_gate(context)?;
        let mem = self.a_mem(context, is_buffer)?;
        let (offset, len) = self.part(mem, 4)?;
        let mut last = gate;
        for _ in 0..self.random.between(1, 3) {
            let word = self.random.word();
            let cmd = if self.random.chance(50) {
                Cmd::Fill { mem, offset, len, word }
            } else {
                let (kernel, a_offset, count) = (Kernel::Put, offset / 4, len / 4);
                Cmd::Launch {
                    kernel,
                    a: mem,
                    a_offset,
                    b: None,
                    b_offset: 0,
                    count,
                    seed: word,
                    spin: 0,
                }
            };
            let event = self.fresh();
            let wait = vec![last];
            self.emit(Act::Enqueue { queue, cmd, wait, event: Some(event), blocking: false })?;
            last = event;
        }
        if self.random.chance(50) {
            self.emit(Act::Flush { queue })?;
        }
        if self.has(Feature::FailingCallbacks) && self.random.chance(30) {
            let callback = self.fresh();
            self.emit(Act::Callback { event: last, callback, sets: None })?;
            self.own.callbacks.push(callback);
        }
        self.set_gate(gate, 0)?;
        self.emit(Act::Wait { events: vec![last] })?;
        self.emit(Act::Status { event: last }).map(drop)
    }

    /// A blocking call whose wait list fails.
    fn failing_blocking(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::FailingBlocking) {
            return None;
        }
        let (queue, gate) = self.queue_and_gate(context)?;
        let mem = self.a_mem(context, is_buffer)?;
        let (offset, len) = self.part(mem, 4)?;
        let (from, len) = self.host(len, false)?;
        self.set_gate(gate, 0)?;
        let cmd = Cmd::Write { mem, offset, len, from };
        self.emit(Act::Enqueue { queue, cmd, wait: vec![gate], event: None, blocking: true })
            .map(drop)
    }

    /// A command reads a buffer into mapped memory, which is then unmapped. The host does not wait
    /// in between.
    fn map_chain(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::Maps) {
            return None;
        }
        let queue = self.a_queue(Some(context))?;
        let (x, y) = (self.a_mem(context, is_buffer)?, self.a_mem(context, is_buffer)?);
        (self.ledger.mems[&x].root != self.ledger.mems[&y].root).then_some(())?;
        let area = self.map_on(queue, x)?;
        self.ledger.areas[&area].map.filter(|map| map.mode.writes())?;
        let len = self.ledger.areas[&area].len.min(self.ledger.mems[&y].size);
        self.slow(queue, y)?;
        let to = Ptr { area, offset: 0 };
        self.enqueue(queue, Cmd::Read { mem: y, offset: 0, len, to }, false)?;
        self.unmap(self.thread, area, 0)?;
        self.read_from(queue, x).map(drop)
    }

    /// A blocking transfer with an event, immediately followed by a query for its times.
    fn timed_write(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::Profiling) {
            return None;
        }
        let queue = self.a_queue(Some(context))?;
        self.ledger.queues[&queue].profiling.then_some(())?;
        let mem = self.a_mem(context, is_buffer)?;
        let (offset, len) = self.part(mem, 4)?;
        let (from, len) = self.host(len, false)?;
        let event = self.enqueue(queue, Cmd::Write { mem, offset, len, from }, true)?;
        self.emit(Act::Times { event }).map(drop)
    }

    /// The host learns the ends of commands from later commands of another queue.
    fn far_end(&mut self, context: usize) -> Option<()> {
        let (one, other) = (self.a_queue(Some(context))?, self.a_queue(Some(context))?);
        let mem = self.a_mem(context, is_buffer)?;
        (one != other).then_some(())?;
        if self.random.chance(50) {
            self.slow(one, mem)?;
        }
        if self.random.chance(50) {
            return self.far_read((one, other), mem);
        }
        for _ in 0..self.random.between(1, 5) {
            self.far_fill((one, other), mem)?;
        }
        Some(())
    }

    /// The host looks at bytes that a read has brought, or asks for the read's status.
    fn far_read(&mut self, (one, other): (usize, usize), mem: usize) -> Option<()> {
        let (to, len) = self.host(self.ledger.mems[&mem].size, true)?;
        let read = self.enqueue(one, Cmd::Read { mem, offset: 0, len, to }, false)?;
        let behind = !self.ledger.queues[&one].out_of_order && self.random.chance(40);
        let last = if behind { self.enqueue(one, Cmd::Marker, false)? } else { read };
        self.wait_afar((one, other), last)?;
        if self.random.chance(30) {
            self.emit(Act::Status { event: read })?;
        }
        self.emit(Act::Check { at: to, len }).map(drop)
    }

    /// The host asks for the status or the times of a command that moves no bytes to the host.
    fn far_fill(&mut self, (one, other): (usize, usize), mem: usize) -> Option<()> {
        let (len, word) = (self.ledger.mems[&mem].size / 4 * 4, self.random.word());
        let event = self.enqueue(one, Cmd::Fill { mem, offset: 0, len, word }, false)?;
        self.wait_afar((one, other), event)?;
        let is_timed = self.ledger.queues[&one].profiling && self.random.chance(50);
        self.emit(if is_timed { Act::Times { event } } else { Act::Status { event } }).map(drop)
    }

    /// The only queue of a context gets a blocking write behind a slow kernel. When the write has
    /// returned, a new queue reads what it wrote.
    pub(super) fn second_queue(
        &mut self,
        context: usize,
        device: usize,
        first: usize,
    ) -> Option<()> {
        let (busy, mem) = (self.new_buffer(context)?, self.new_buffer(context)?);
        self.slow(first, busy)?;
        let (from, len) = self.host(self.ledger.mems[&mem].size, false)?;
        self.enqueue(first, Cmd::Write { mem, offset: 0, len, from }, true)?;
        let second = self.new_queue(context, device)?;
        self.read_from(second, mem).map(drop)
    }

    /// Waits for a command of one queue by waiting for what comes after it in another queue.
    fn wait_afar(&mut self, (one, other): (usize, usize), event: usize) -> Option<()> {
        self.emit(Act::Flush { queue: one })?;
        let way = self.random.below(4);
        let far = (way > 0).then(|| self.fresh());
        let (cmd, wait) = (Cmd::Marker, vec![event]);
        self.emit(Act::Enqueue { queue: other, cmd, wait, event: far, blocking: false })?;
        match (way, far) {
            // Callbacks are rare elsewhere, so they are frequent here.
            (1..=2, Some(event)) if self.has(Feature::Callbacks) => {
                let callback = self.fresh();
                self.emit(Act::Callback { event, callback, sets: None })?;
                self.emit(Act::AwaitCallback { callback })
            }
            (1.., Some(event)) => self.emit(Act::Wait { events: vec![event] }),
            _ => self.emit(Act::Finish { queue: other }),
        }
        .map(drop)
    }

    /// In an out-of-order queue, the host learns the end of a command from an unmapping behind a
    /// barrier. The command waits for a write that cannot be sent before a read into the same host
    /// memory has ended.
    fn behind_a_barrier(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::Maps) || !self.has(Feature::HostChains) {
            return None;
        }
        let (mut one, mut free) = (self.a_queue(Some(context))?, self.a_queue(Some(context))?);
        if self.ledger.queues[&one].out_of_order {
            (one, free) = (free, one);
        }
        (one != free && self.ledger.queues[&free].out_of_order).then_some(())?;
        let (x, y) = (self.a_mem(context, is_buffer)?, self.a_mem(context, is_buffer)?);
        (self.ledger.mems[&x].root != self.ledger.mems[&y].root).then_some(())?;
        let (offset, len) = self.part(x, 4)?;
        let area = self.fresh();
        let cmd = Cmd::Map { mem: x, offset, len, mode: MapMode::Read, area };
        self.emit(Act::Enqueue {
            queue: free,
            cmd,
            wait: Vec::new(),
            event: None,
            blocking: true,
        })?;
        self.slow(one, y)?;
        let size = self.ledger.mems[&y].size / 4 * 4;
        let (at, len) = self.host(size, true)?;
        let read = self.enqueue(one, Cmd::Read { mem: y, offset: 0, len, to: at }, false)?;
        let (cmd, event) = (Cmd::Write { mem: y, offset: 0, len, from: at }, self.fresh());
        self.emit(Act::Enqueue {
            queue: one,
            cmd,
            wait: vec![read],
            event: Some(event),
            blocking: false,
        })?;
        let (cmd, wait) =
            (Cmd::Fill { mem: y, offset: 0, len: size, word: self.random.word() }, vec![event]);
        self.emit(Act::Enqueue { queue: free, cmd, wait, event: None, blocking: false })?;
        self.emit(Act::Flush { queue: one })?;
        let (cmd, wait) = (Cmd::Barrier, Vec::new());
        self.emit(Act::Enqueue { queue: free, cmd, wait, event: None, blocking: false })?;
        let unmapped = self.enqueue(free, Cmd::Unmap { area }, false)?;
        self.emit(Act::Flush { queue: free })?;
        self.emit(Act::Wait { events: vec![unmapped] })?;
        self.read_from(one, y).map(drop)
    }

    /// A copy between two areas of host memory, in the order of a queue.
    fn host_copy(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::Svm) {
            return None;
        }
        let queue = self.a_queue(Some(context))?;
        self.a_mem(context, |kind| kind == MemKind::Buffer)?;
        let (from, len) = self.host(self.size, false)?;
        let (to, len) = self.host(len, true)?;
        let cmd = Cmd::SvmCopy { to: SvmEnd::Host(to), from: SvmEnd::Host(from), len };
        self.enqueue(queue, cmd, false)?;
        self.emit(Act::Finish { queue })?;
        self.emit(Act::Check { at: to, len }).map(drop)
    }
}
