//! The steps of a program: its beginning, an operation in its middle, its end.

use super::Planner;
use super::pieces::{is_buffer, is_image, is_linear};
use crate::draft::Steps;
use crate::feature::Feature;
use crate::ledger::{MemKind, Source};
use crate::plan::{Act, Cmd, Kernel, MapMode, Ptr, Style, SvmEnd};

/// Percentage of contexts that start with a single queue. It is small, because most programs have
/// several queues from the start.
const SECOND_QUEUE_PERCENT: usize = 10;

impl Steps for Planner {
    fn prologue(&mut self) {
        for area in 0..self.program.arrays.len() - 1 {
            let (len, seed) = (self.program.arrays[area], self.random.word());
            self.emit(Act::Store { to: Ptr { area, offset: 0 }, len, seed });
        }
        for context in 0..self.program.contexts.len() {
            for device in self.program.contexts[context].clone() {
                for _ in 0..self.random.between(1, 2) {
                    let is_first =
                        !self.ledger.queues.values().any(|queue| queue.context == context);
                    let queue = self.new_queue(context, device);
                    if is_first && self.random.chance(SECOND_QUEUE_PERCENT) {
                        queue.and_then(|queue| self.second_queue(context, device, queue));
                    }
                }
            }
            for _ in 0..self.random.between(2, 3) {
                self.new_buffer(context);
            }
        }
    }

    fn step(&mut self) {
        if self.random.chance(30) {
            self.thread = self.random.below(self.program.threads);
        }
        let context = self.random.below(self.program.contexts.len());
        let _: Option<()> = match self.random.below(100) {
            0..16 => self.launch(context),
            16..30 => self.read(context),
            30..43 => self.write(context),
            43..49 => self.copy(context),
            49..53 => self.fill(context),
            53..56 => self.store(),
            56..59 => self.check(),
            59..62 => self.wait_somehow(context),
            62..66 => self.rects(context),
            66..70 => self.marker(context),
            70..75 => self.gate(context),
            75..80 => self.mapping(context),
            80..84 => self.image_step(context),
            84..87 => self.svm_step(context),
            87..90 => self.life(context),
            90..92 => self.ask(),
            92..93 => self.migrate(context),
            _ => self.motif(context),
        };
    }

    fn epilogue(&mut self) {
        self.thread = 0;
        for area in self.mapped() {
            self.unmap(0, area, 0);
        }
        for gate in self.ledger.unset_gates() {
            self.set_gate(gate, 0);
        }
        for callback in std::mem::take(&mut self.own.callbacks) {
            self.emit(Act::AwaitCallback { callback });
        }
        let result = self.program.arrays.len() - 1;
        let room = self.program.arrays[result];
        let mems: Vec<usize> =
            self.ledger.mems.iter().filter(|(_, mem)| mem.alive).map(|(&id, _)| id).collect();
        for mem in mems {
            let known = self.ledger.mems[&mem].clone();
            if self.own.private_mems.contains(&mem)
                || known.kind != MemKind::Buffer
                    && !is_image(known.kind)
                    && known.kind != MemKind::Svm
            {
                continue;
            }
            let at = Ptr { area: result, offset: 0 };
            let Some(queue) = self.a_queue(Some(known.context)) else { continue };
            let len = known.size.min(room);
            let cmd = match known.kind {
                MemKind::Buffer => Cmd::Read { mem, offset: 0, len, to: at },
                MemKind::Svm => {
                    Cmd::SvmCopy { to: SvmEnd::Host(at), from: SvmEnd::Svm { mem, offset: 0 }, len }
                }
                _ if known.size <= room => Cmd::ReadImage { mem, to: at },
                _ => continue,
            };
            if self
                .emit(Act::Enqueue { queue, cmd, wait: Vec::new(), event: None, blocking: true })
                .is_some()
            {
                self.emit(Act::Check { at, len });
            }
        }
        for (queue, alive) in
            self.ledger.queues.iter().map(|(&id, it)| (id, it.alive)).collect::<Vec<_>>()
        {
            if alive {
                self.emit(Act::Finish { queue });
            }
        }
        for event in self.unfinished() {
            self.emit(Act::Wait { events: vec![event] });
        }
        for area in 0..result {
            // The host cannot look at memory that a buffer uses; the ledger rejects that.
            let len = self.program.arrays[area];
            self.emit(Act::Check { at: Ptr { area, offset: 0 }, len });
        }
    }

    fn len(&self) -> usize {
        self.program.ops.len()
    }
}

impl Planner {
    /// Returns the events of commands whose queue was released.
    fn unfinished(&self) -> Vec<usize> {
        let cmds = self.ledger.cmds.iter().filter(|cmd| !self.ledger.queues[&cmd.queue].alive);
        cmds.filter_map(|cmd| cmd.event).filter(|event| self.ledger.events[event].alive).collect()
    }

    pub(super) fn new_queue(&mut self, context: usize, device: usize) -> Option<usize> {
        let able = self.ledger.platform.devices[device].out_of_order;
        let out_of_order = able && self.has(Feature::OutOfOrder) && self.random.chance(45);
        let profiling = self.has(Feature::Profiling) && self.random.chance(50);
        let queue = self.fresh();
        self.emit(Act::NewQueue { queue, context, device, out_of_order, profiling })?;
        Some(queue)
    }

    pub(super) fn new_buffer(&mut self, context: usize) -> Option<usize> {
        let size = self.new_size();
        let style = match self.random.below(10) {
            0 if self.has(Feature::UseHostPtr) => Style::Use,
            1 => Style::Alloc,
            2..6 => Style::Copy,
            _ => Style::Plain,
        };
        let mut size = size;
        let init = match style {
            Style::Copy => {
                let (at, len) = self.host(size, false)?;
                size = len.max(1);
                Some(at)
            }
            Style::Use => return self.use_host_ptr(context),
            _ => None,
        };
        let mem = self.fresh();
        self.emit(Act::NewBuffer {
            mem,
            context,
            size: size / 4 * 4 + usize::from(size < 4) * 4,
            style,
            init,
        })?;
        if init.is_none() && self.random.chance(85) {
            let queue = self.a_queue(Some(context))?;
            let len = self.ledger.mems[&mem].size;
            let word = self.random.word();
            let (cmd, event) = (Cmd::Fill { mem, offset: 0, len, word }, self.maybe_event(queue));
            self.emit(Act::Enqueue { queue, cmd, wait: Vec::new(), event, blocking: false });
        }
        Some(mem)
    }

    /// Creates a buffer over a part of an array.
    fn use_host_ptr(&mut self, context: usize) -> Option<usize> {
        let area = self.random.below(self.program.arrays.len() - 1);
        let len = (self.program.arrays[area] / 2 / 4 * 4).max(4);
        let mem = self.fresh();
        let init = Some(Ptr { area, offset: if self.random.chance(50) { 0 } else { len } });
        self.emit(Act::NewBuffer { mem, context, size: len, style: Style::Use, init })?;
        Some(mem)
    }

    /// Enqueues a command, often with an event, sometimes behind a user event or another command.
    pub(super) fn command(&mut self, queue: usize, cmd: Cmd, may_block: bool) -> Option<usize> {
        let known = &self.ledger.queues[&queue];
        let (context, ooo) = (known.context, known.out_of_order);
        let mut wait = Vec::new();
        let blocking = may_block && self.random.chance(30);
        let gates = if ooo { Feature::UserEventsOutOfOrder } else { Feature::UserEvents };
        if !blocking && self.has(Feature::UserEvents) && self.has(gates) && self.random.chance(35) {
            wait.extend(self.an_unset_gate(context));
        }
        if self.random.chance(10) {
            wait.extend(self.an_event(context));
        }
        let event = self.maybe_event(queue);
        self.emit(Act::Enqueue { queue, cmd, wait, event, blocking })?;
        let clean = !blocking && self.random.chance(15);
        if clean {
            self.emit(Act::Flush { queue });
        }
        if let Some(event) = event {
            self.after(queue, event, blocking);
        }
        event
    }

    /// Sometimes adds what may follow a command at once: a query for its times, a callback, the
    /// release of its event.
    fn after(&mut self, queue: usize, event: usize, blocking: bool) {
        let known = self.ledger.queues[&queue].clone();
        if blocking && known.profiling && self.random.chance(60) {
            self.emit(Act::Times { event });
        }
        if self.has(Feature::Callbacks) && self.random.chance(12) {
            let callback = self.fresh();
            let gate =
                if self.random.chance(30) { self.an_unset_gate(known.context) } else { None };
            let made = self.emit(Act::Callback { event, callback, sets: gate });
            if made.is_some() {
                self.own.callbacks.push(callback);
            }
        }
        if self.may_drop_events() && self.random.chance(10) {
            self.emit(Act::DropEvent { event });
        }
    }

    fn launch(&mut self, context: usize) -> Option<()> {
        let slow = self.has(Feature::Slow) && self.random.chance(30);
        let queue = self.a_queue(Some(context))?;
        let a = self.a_mem(context, is_linear)?;
        self.launch_on(queue, a, slow).map(drop)
    }

    pub(super) fn launch_on(&mut self, queue: usize, a: usize, slow: bool) -> Option<usize> {
        let context = self.ledger.queues[&queue].context;
        let kernel = match self.random.below(10) {
            _ if slow => Kernel::Slow,
            0..3 => Kernel::Put,
            3 if self.has(Feature::ConstCast) => Kernel::Cast,
            4..7 => Kernel::MixPlain,
            _ => Kernel::Mix,
        };
        let (offset, len) = self.part(a, 4)?;
        let (a_offset, mut count) = (offset / 4, len / 4);
        let (mut b, mut b_offset) = (None, 0);
        if kernel.has_source() {
            let source = self.a_mem(context, is_linear)?;
            let (offset, len) = self.part(source, 4)?;
            count = count.min(len / 4);
            (b, b_offset) = (Some(source), offset / 4);
        }
        let (seed, spin) = (self.random.word(), if slow { self.spin() } else { 0 });
        self.command(
            queue,
            Cmd::Launch { kernel, a, a_offset, b, b_offset, count, seed, spin },
            false,
        )
    }

    fn read(&mut self, context: usize) -> Option<()> {
        let queue = self.a_queue(Some(context))?;
        let mem = self.a_mem(context, is_buffer)?;
        self.read_from(queue, mem).map(drop)
    }

    pub(super) fn read_from(&mut self, queue: usize, mem: usize) -> Option<(Ptr, usize)> {
        let unit = self.unit();
        let (offset, len) = self.part(mem, unit)?;
        let (to, len) = self.host(len, true)?;
        self.remember(to, len);
        self.command(queue, Cmd::Read { mem, offset, len, to }, true);
        Some((to, len))
    }

    fn write(&mut self, context: usize) -> Option<()> {
        let queue = self.a_queue(Some(context))?;
        let mem = self.a_mem(context, is_buffer)?;
        self.write_to(queue, mem).map(drop)
    }

    pub(super) fn write_to(&mut self, queue: usize, mem: usize) -> Option<usize> {
        let unit = self.unit();
        let (offset, len) = self.part(mem, unit)?;
        let (from, len) = self.host(len, false)?;
        self.remember(from, len);
        self.command(queue, Cmd::Write { mem, offset, len, from }, true)
    }

    fn copy(&mut self, context: usize) -> Option<()> {
        let queue = self.a_queue(Some(context))?;
        let (from, to) = (self.a_mem(context, is_buffer)?, self.a_mem(context, is_buffer)?);
        let (from_offset, mut len) = self.part(from, 4)?;
        let (to_offset, room) = self.part(to, 4)?;
        len = len.min(room);
        self.command(queue, Cmd::Copy { from, from_offset, to, to_offset, len }, false).map(drop)
    }

    fn fill(&mut self, context: usize) -> Option<()> {
        let queue = self.a_queue(Some(context))?;
        let mem = self.a_mem(context, is_buffer)?;
        let (offset, len) = self.part(mem, 4)?;
        let word = self.random.word();
        self.command(queue, Cmd::Fill { mem, offset, len, word }, false).map(drop)
    }

    fn store(&mut self) -> Option<()> {
        let (to, len) = self.host(self.size, true)?;
        let seed = self.random.word();
        self.emit(Act::Store { to, len, seed }).map(drop)
    }

    fn check(&mut self) -> Option<()> {
        let (at, len) = match self.random.pick(&self.recent) {
            Some(recent) if self.random.chance(70) => recent,
            _ => self.host(self.size, false)?,
        };
        self.emit(Act::Check { at, len }).map(drop)
    }

    fn wait_somehow(&mut self, context: usize) -> Option<()> {
        let queue = self.a_queue(Some(context))?;
        let act = match self.random.below(3) {
            0 => Act::Flush { queue },
            1 => Act::Finish { queue },
            _ => Act::Wait { events: vec![self.an_event(context)?] },
        };
        self.emit(act).map(drop)
    }

    fn rects(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::Rects) {
            return None;
        }
        let queue = self.a_queue(Some(context))?;
        let mem = self.a_mem(context, is_buffer)?;
        let size = self.ledger.mems[&mem].size;
        if self.has(Feature::RectCopies) && self.random.chance(40) {
            let to = self.a_mem(context, is_buffer)?;
            let rect = self.rect(size, self.ledger.mems[&to].size)?;
            return self
                .command(queue, Cmd::CopyRect { from: mem, to, to_offset: 0, rect }, false)
                .map(drop);
        }
        let into = self.random.chance(50);
        let (at, room) = self.host(size, into)?;
        let rect = self.rect(size, room)?;
        self.remember(at, rect.other_span());
        let cmd = if into {
            Cmd::ReadRect { mem, rect, to: at }
        } else {
            Cmd::WriteRect { mem, rect, from: at }
        };
        self.command(queue, cmd, true).map(drop)
    }

    fn marker(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::Markers) {
            return None;
        }
        let queue = self.a_queue(Some(context))?;
        let cmd = if self.random.chance(50) { Cmd::Marker } else { Cmd::Barrier };
        self.command(queue, cmd, false).map(drop)
    }

    fn gate(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::UserEvents) {
            return None;
        }
        let unset = self.an_unset_gate(context);
        match unset {
            Some(gate) if self.random.chance(50) => self.set_gate(gate, 0),
            _ if self.ledger.unset_gates().len() < 2 => self.new_gate(context).map(drop),
            _ => None,
        }
    }

    pub(super) fn new_gate(&mut self, context: usize) -> Option<usize> {
        let event = self.fresh();
        self.emit(Act::NewGate { event, context, fails: false })?;
        Some(event)
    }

    /// Returns the areas that are mapped now.
    fn mapped(&self) -> Vec<usize> {
        let areas = self.ledger.areas.iter();
        areas.filter(|(_, area)| area.alive && area.map.is_some()).map(|(&id, _)| id).collect()
    }

    fn mapping(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::Maps) {
            return None;
        }
        let open = self.mapped();
        if open.len() > 2 || !open.is_empty() && self.random.chance(40) {
            let area = self.random.pick(&open)?;
            return self.unmap(self.thread, area, 0);
        }
        let queue = self.a_queue(Some(context))?;
        let mem = self.a_mem(context, is_linear)?;
        let area = self.map_on(queue, mem)?;
        let len = self.ledger.areas[&area].len;
        if self.random.chance(50) {
            let at = Ptr { area, offset: 0 };
            let act = if self.ledger.areas[&area].map?.mode.writes() && self.random.chance(60) {
                Act::Store { to: at, len, seed: self.random.word() }
            } else {
                Act::Check { at, len }
            };
            self.emit(act)?;
        }
        Some(())
    }

    pub(super) fn map_on(&mut self, queue: usize, mem: usize) -> Option<usize> {
        let modes =
            [MapMode::Read, MapMode::Write, MapMode::Both, MapMode::Both, MapMode::Invalidate];
        let mode = self.random.pick(&modes)?;
        let (offset, len) = self.part(mem, 4)?;
        let area = self.fresh();
        let before = self.program.ops.len();
        self.command(queue, Cmd::Map { mem, offset, len, mode, area }, true);
        (self.program.ops.len() > before && self.ledger.areas.contains_key(&area)).then_some(area)
    }

    fn image_step(&mut self, context: usize) -> Option<()> {
        let queue = self.a_queue(Some(context))?;
        let image = match self.a_mem(context, is_image) {
            Some(image) if self.random.chance(75) => image,
            _ => return self.new_image(context, queue),
        };
        let size = self.ledger.mems[&image].size;
        let is_view = matches!(self.ledger.mems[&image].kind, MemKind::View { .. });
        let may_fill = !is_view || self.has(Feature::ImageViewFills);
        let cmd = match self.random.below(5) {
            0 => {
                let (to, len) = self.host(size, true)?;
                (len == size).then_some(())?;
                self.remember(to, len);
                Cmd::ReadImage { mem: image, to }
            }
            1 => {
                let (from, len) = self.host(size, false)?;
                (len == size).then_some(())?;
                self.remember(from, len);
                Cmd::WriteImage { mem: image, from }
            }
            2 => {
                may_fill.then_some(())?;
                Cmd::FillImage { mem: image, word: self.random.word() }
            }
            kind => {
                may_fill.then_some(())?;
                let mem = self.a_mem(context, is_buffer)?;
                let (offset, room) = self.part(mem, 4)?;
                (room >= size).then_some(())?;
                if kind == 3 {
                    Cmd::ImageToBuffer { image, mem, offset }
                } else {
                    Cmd::BufferToImage { mem, offset, image }
                }
            }
        };
        let may_block = matches!(cmd, Cmd::ReadImage { .. } | Cmd::WriteImage { .. });
        self.command(queue, cmd, may_block).map(drop)
    }

    fn new_image(&mut self, context: usize, queue: usize) -> Option<()> {
        let mem = self.fresh();
        if self.has(Feature::ImageViews) && self.random.chance(50) {
            let parent = self.a_mem(context, |kind| kind == MemKind::Buffer)?;
            let devices = &self.program.contexts[context];
            let widest = devices
                .iter()
                .map(|&device| self.ledger.platform.devices[device].view_pixels_max)
                .min()?;
            let most = (self.ledger.mems[&parent].size / 4).min(widest);
            let pixels = self.random.between(1, most.max(1));
            return self.emit(Act::NewView { mem, parent, pixels }).map(drop);
        }
        if !self.has(Feature::Images) {
            return None;
        }
        let width = self.random.between(1, 64);
        let height = (self.size / 4 / width).clamp(1, 64);
        self.emit(Act::NewImage { mem, context, width, height, init: None })?;
        let cmd = Cmd::FillImage { mem, word: self.random.word() };
        self.command(queue, cmd, false).map(drop)
    }

    fn svm_step(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::Svm) {
            return None;
        }
        let queue = self.a_queue(Some(context))?;
        let mem = match self.a_mem(context, |kind| kind == MemKind::Svm) {
            Some(mem) if self.random.chance(80) => mem,
            _ => {
                let mem = self.fresh();
                let size = self.new_size();
                self.emit(Act::NewSvm { mem, context, size })?;
                let word = self.random.word();
                return self
                    .command(queue, Cmd::SvmFill { mem, offset: 0, len: size, word }, false)
                    .map(drop);
            }
        };
        let (offset, len) = self.part(mem, 4)?;
        if self.random.chance(20) {
            let word = self.random.word();
            return self.command(queue, Cmd::SvmFill { mem, offset, len, word }, false).map(drop);
        }
        let into = self.random.chance(50);
        let (at, len) = self.host(len, into)?;
        let own = SvmEnd::Svm { mem, offset };
        let other = if self.random.chance(25) {
            let (from, most) = self.host(len, !into)?;
            (most >= len).then_some(())?;
            SvmEnd::Host(from)
        } else {
            own
        };
        self.remember(at, len);
        let (to, from) = if into { (SvmEnd::Host(at), other) } else { (other, SvmEnd::Host(at)) };
        self.command(queue, Cmd::SvmCopy { to, from, len }, true).map(drop)
    }

    /// Creates and releases objects in the middle of a program.
    fn life(&mut self, context: usize) -> Option<()> {
        let kind = self.random.below(6);
        if kind == 0 && self.has(Feature::SubBuffers) {
            let parent = self.a_mem(context, |kind| kind == MemKind::Buffer)?;
            let devices = self.program.contexts[context].iter();
            let align =
                devices.map(|&device| self.ledger.platform.devices[device].align_bytes).max()?;
            let of = self.ledger.mems[&parent].size;
            let origin = self.random.below(of / align + 1) * align;
            let size = self.random.between(1, ((of.saturating_sub(origin)) / 4).max(1)) * 4;
            let mem = self.fresh();
            return self.emit(Act::NewSub { mem, parent, origin, size }).map(drop);
        }
        if !self.has(Feature::Releases) {
            return None;
        }
        match kind {
            1 => {
                let device = self.random.pick(&self.program.contexts[context].clone())?;
                self.new_queue(context, device).map(drop)
            }
            2 => self.new_buffer(context).map(drop),
            3 => {
                let mem = self.a_mem(context, |_| true)?;
                self.emit(Act::DropMem { mem }).map(drop)
            }
            4 => {
                let event = self.an_event(context).filter(|_| self.may_drop_events())?;
                let queue = match self.ledger.events[&event].source {
                    Source::Cmd(cmd) => self.ledger.cmds[cmd].queue,
                    Source::Gate { .. } => return None,
                };
                // For a command of a released queue, only its event shows its end.
                self.ledger.queues[&queue].alive.then_some(())?;
                self.emit(Act::DropEvent { event }).map(drop)
            }
            _ => {
                let queue = self.a_queue(Some(context))?;
                let others = self
                    .ledger
                    .queues
                    .values()
                    .filter(|it| it.alive && it.context == context)
                    .count();
                let lives = |event: usize| self.ledger.events[&event].alive;
                let cmds = &self.ledger.queues[&queue].cmds;
                let known = cmds.iter().all(|&cmd| self.ledger.cmds[cmd].event.is_some_and(lives));
                (others > 2 && known).then_some(())?;
                self.emit(Act::DropQueue { queue }).map(drop)
            }
        }
    }

    /// While a user event is not set, the events of commands may be needed to wait for what comes
    /// before setting it.
    fn may_drop_events(&self) -> bool {
        self.has(Feature::Releases) && self.ledger.unset_gates().is_empty()
    }

    fn ask(&mut self) -> Option<()> {
        let context = self.random.below(self.program.contexts.len());
        let event = self.an_event(context)?;
        let act = if self.random.chance(60) { Act::Times { event } } else { Act::Status { event } };
        self.emit(act).map(drop)
    }

    fn migrate(&mut self, context: usize) -> Option<()> {
        if !self.has(Feature::Migrate) {
            return None;
        }
        let queue = self.a_queue(Some(context))?;
        let mem = self.a_mem(context, |kind| kind != MemKind::Svm)?;
        let (to_host, undefined) = (self.random.chance(30), self.random.chance(15));
        self.command(queue, Cmd::Migrate { mems: vec![mem], to_host, undefined }, false).map(drop)
    }
}
