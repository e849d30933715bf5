//! Whether an operation names existing objects and does only what the specification allows.

use super::{Ledger, MemKind, Reject, Source, ensure};
use crate::plan::{Act, Cmd, Kernel, Op, Ptr, Rect, Style, SvmEnd};

impl Ledger {
    /// Rejects an operation that no program may contain at this place.
    pub(super) fn valid(&self, op: &Op) -> Result<(), Reject> {
        ensure(op.thread < self.threads.len(), "there is no such thread")?;
        match &op.act {
            Act::Signal { id } => ensure(!self.signals.contains_key(id), "the signal was given"),
            Act::Await { id } => ensure(self.signals.contains_key(id), "the signal was not given"),
            Act::NewQueue { queue, context, device, .. } => {
                ensure(!self.queues.contains_key(queue), "the queue exists")?;
                self.device(*context, *device)
            }
            Act::DropQueue { queue } | Act::Flush { queue } | Act::Finish { queue } => {
                self.queue(*queue)
            }
            Act::DropMem { mem } => {
                self.mem(*mem)?;
                let mapped = |map: &super::Mapping| self.mems[&map.mem].root == self.mems[mem].root;
                let maps =
                    self.areas.values().filter(|area| area.alive).filter_map(|area| area.map);
                ensure(!maps.into_iter().any(|map| mapped(&map)), "it is mapped")
            }
            Act::NewGate { event, context, .. } => {
                ensure(!self.events.contains_key(event), "the event exists")?;
                ensure(*context < self.contexts.len(), "there is no such context")
            }
            Act::SetGate { event, status } => self.unset(*event, *status < 0),
            Act::DropEvent { event } => self.event(*event),
            Act::Status { event } => self.event(*event),
            Act::Store { to, len, .. } => {
                self.host(*to, *len)?;
                ensure(self.may_store(*to), "the region is mapped for reading")
            }
            Act::Check { at, len } => self.host(*at, *len),
            Act::Wait { events } => {
                events.iter().try_for_each(|&event| self.event(event))?;
                let context = events.first().map(|event| self.events[event].context);
                let same = events.iter().all(|event| Some(self.events[event].context) == context);
                let fails = events.iter().any(|&event| self.fails(event));
                ensure(context.is_some() && same, "the events are of several contexts")?;
                ensure(!fails || events.len() == 1, "one of several events fails")
            }
            Act::Callback { event, callback, sets } => {
                self.event(*event)?;
                ensure(!self.callbacks.contains_key(callback), "the callback exists")?;
                let of_cmd = matches!(self.events[event].source, Source::Cmd(_));
                ensure(of_cmd, "it is a user event")?;
                if let Some(gate) = sets {
                    ensure(!self.fails(*event), "the command fails")?;
                    self.unset(*gate, false)?;
                }
                Ok(())
            }
            Act::AwaitCallback { callback } => {
                ensure(self.callbacks.contains_key(callback), "there is no such callback")
            }
            Act::Times { event } => self.timed(*event),
            Act::Enqueue { queue, cmd, wait, event, blocking } => {
                self.queue(*queue)?;
                let context = self.queues[queue].context;
                ensure(!self.queues[queue].broken, "the queue had a launch that cannot run")?;
                wait.iter().try_for_each(|&event| self.event(event))?;
                let same = wait.iter().all(|event| self.events[event].context == context);
                ensure(same, "the wait list is of another context")?;
                ensure(event.is_none_or(|id| !self.events.contains_key(&id)), "the event exists")?;
                ensure(!blocking || may_block(cmd), "this command cannot block")?;
                self.command(cmd, context, *blocking)
            }
            Act::TooBig { queue, source, scratch, .. } => {
                self.queue(*queue)?;
                let known = &self.queues[queue];
                ensure(
                    !known.out_of_order && !known.broken,
                    "the queue is not fit for such a launch",
                )?;
                self.object(*source, known.context, 0, 4)?;
                self.object(*scratch, known.context, 0, 4)
            }
            Act::ReadTooBig { queue, scratch, to, .. } => {
                self.queue(*queue)?;
                ensure(self.queues[queue].broken, "no launch comes before it")?;
                self.object(*scratch, self.queues[queue].context, 0, 4)?;
                self.host(*to, 4)
            }
            _ => self.new_memory(op),
        }
    }

    fn new_memory(&self, op: &Op) -> Result<(), Reject> {
        let (mem, context) = match &op.act {
            Act::NewBuffer { mem, context, size, style, init } => {
                let needs = matches!(style, Style::Copy | Style::Use);
                ensure(needs == init.is_some() && *size > 0, "its memory does not fit its flags")?;
                if let Some(at) = init {
                    self.host(*at, *size)?;
                    ensure(self.areas[&at.area].map.is_none(), "mapped memory becomes a buffer")?;
                }
                (mem, *context)
            }
            Act::NewImage { mem, context, width, height, init } => {
                self.all(*context, |device| device.images)?;
                ensure(*width > 0 && *height > 0, "the image is empty")?;
                if let Some(at) = init {
                    self.host(*at, width * height * 4)?;
                }
                (mem, *context)
            }
            Act::NewSvm { mem, context, size } => {
                self.all(*context, |device| device.svm)?;
                ensure(*size > 0, "it is empty")?;
                (mem, *context)
            }
            Act::NewSub { mem, parent, origin, size } => {
                self.mem(*parent)?;
                let of = &self.mems[parent];
                ensure(of.kind == MemKind::Buffer, "its parent is not a buffer")?;
                ensure(*size > 0 && origin + size <= of.size, "it does not fit into its parent")?;
                self.all(of.context, |device| origin % device.align_bytes == 0)?;
                (mem, of.context)
            }
            Act::NewView { mem, parent, pixels } => {
                self.mem(*parent)?;
                let of = &self.mems[parent];
                ensure(of.kind == MemKind::Buffer, "its parent is not a buffer")?;
                ensure(*pixels > 0 && pixels * 4 <= of.size, "it does not fit into its parent")?;
                self.all(of.context, |device| device.images && *pixels <= device.view_pixels_max)?;
                (mem, of.context)
            }
            _ => return Err(Reject::Invalid("it is no operation on memory")),
        };
        ensure(!self.mems.contains_key(mem), "the memory object exists")?;
        ensure(context < self.contexts.len(), "there is no such context")
    }

    fn command(&self, cmd: &Cmd, context: usize, blocking: bool) -> Result<(), Reject> {
        let object =
            |mem: &usize, offset: &usize, len: &usize| self.object(*mem, context, *offset, *len);
        match cmd {
            Cmd::Read { mem, offset, len, to } => {
                object(mem, offset, len)?;
                self.plain(*mem)?;
                self.transfer(*mem, *to, *len, true)
            }
            Cmd::Write { mem, offset, len, from } => {
                object(mem, offset, len)?;
                self.plain(*mem)?;
                self.transfer(*mem, *from, *len, false)
            }
            Cmd::ReadRect { mem, rect, to: at } | Cmd::WriteRect { mem, rect, from: at } => {
                rectangle(rect)?;
                object(mem, &rect.mem_offset, &rect.mem_span())?;
                self.plain(*mem)?;
                self.transfer(*mem, *at, rect.other_span(), matches!(cmd, Cmd::ReadRect { .. }))
            }
            Cmd::Copy { from, from_offset, to, to_offset, len } => {
                object(from, from_offset, len)?;
                object(to, to_offset, len)?;
                self.plain(*from)?;
                self.plain(*to)
            }
            Cmd::CopyRect { from, to, to_offset, rect } => {
                rectangle(rect)?;
                object(from, &rect.mem_offset, &rect.mem_span())?;
                object(to, to_offset, &rect.other_span())?;
                // Copies within one buffer need equal pitches, and the planner does not make such
                // copies.
                ensure(self.mems[from].root != self.mems[to].root, "both sides are one buffer")?;
                self.plain(*from)?;
                self.plain(*to)
            }
            Cmd::Fill { mem, offset, len, .. } => {
                object(mem, offset, len)?;
                ensure(offset % 4 == 0 && len % 4 == 0, "a fill is of whole words")?;
                self.plain(*mem)
            }
            Cmd::Launch { kernel, a, a_offset, b, b_offset, count, .. } => {
                object(a, &(a_offset * 4), &(count * 4))?;
                self.linear(*a)?;
                ensure(
                    b.is_some() == kernel.has_source() && *count > 0,
                    "the arguments do not fit",
                )?;
                if let Some(b) = b {
                    object(b, &(b_offset * 4), &(count * 4))?;
                    self.linear(*b)?;
                }
                ensure(!blocking || *kernel != Kernel::Slow, "a launch does not block")
            }
            Cmd::Marker | Cmd::Barrier => Ok(()),
            Cmd::Migrate { mems, .. } => mems.iter().try_for_each(|&mem| {
                self.object(mem, context, 0, 0)?;
                ensure(self.mems[&mem].kind != MemKind::Svm, "it is shared virtual memory")
            }),
            Cmd::Map { mem, offset, len, area, .. } => {
                object(mem, offset, len)?;
                self.linear(*mem)?;
                ensure(!self.areas.contains_key(area), "the area exists")
            }
            Cmd::Unmap { area } => {
                let known = self.areas.get(area).filter(|it| it.alive).and_then(|it| it.map);
                let map = known.ok_or(Reject::Invalid("it is not mapped"))?;
                ensure(self.mems[&map.mem].alive, "its object was released")?;
                ensure(self.mems[&map.mem].context == context, "it is of another context")
            }
            Cmd::ReadImage { mem, to: at } | Cmd::WriteImage { mem, from: at } => {
                self.image(*mem, context)?;
                self.transfer(*mem, *at, self.mems[mem].size, matches!(cmd, Cmd::ReadImage { .. }))
            }
            Cmd::FillImage { mem, .. } => self.image(*mem, context),
            Cmd::ImageToBuffer { image, mem, offset }
            | Cmd::BufferToImage { mem, offset, image } => {
                self.image(*image, context)?;
                object(mem, offset, &self.mems[image].size)?;
                self.plain(*mem)
            }
            Cmd::SvmCopy { to, from, len } => {
                for (end, write) in [(to, true), (from, false)] {
                    match end {
                        SvmEnd::Svm { mem, offset } => {
                            object(mem, offset, len)?;
                            ensure(
                                self.mems[mem].kind == MemKind::Svm,
                                "it is not shared virtual memory",
                            )?;
                        }
                        SvmEnd::Host(at) => {
                            self.host(*at, *len)?;
                            ensure(
                                !write || self.may_store(*at),
                                "the region is mapped for reading",
                            )?;
                        }
                    }
                }
                let devices = &self.platform.devices;
                let all = self.contexts[context].iter().all(|&device| devices[device].svm);
                ensure(all, "a device has no shared virtual memory")
            }
            Cmd::SvmFill { mem, offset, len, .. } => {
                object(mem, offset, len)?;
                ensure(self.mems[mem].kind == MemKind::Svm, "it is not shared virtual memory")?;
                ensure(offset % 4 == 0 && len % 4 == 0, "a fill is of whole words")
            }
            Cmd::HotFill { mem, .. } => {
                object(mem, &0, &4)?;
                self.plain(*mem)
            }
            Cmd::HotRead { mem, to } => {
                object(mem, &0, &4)?;
                self.plain(*mem)?;
                ensure(blocking, "this read must block")?;
                self.transfer(*mem, *to, self.mems[mem].size, true)
            }
        }
    }

    fn device(&self, context: usize, device: usize) -> Result<(), Reject> {
        let has = self.contexts.get(context).is_some_and(|devices| devices.contains(&device));
        ensure(has && device < self.platform.devices.len(), "the context has no such device")
    }

    fn all(
        &self,
        context: usize,
        able: impl Fn(&crate::plan::Device) -> bool,
    ) -> Result<(), Reject> {
        let devices =
            self.contexts.get(context).ok_or(Reject::Invalid("there is no such context"))?;
        let able = devices.iter().all(|&device| able(&self.platform.devices[device]));
        ensure(able, "a device of the context cannot do that")
    }

    fn queue(&self, queue: usize) -> Result<(), Reject> {
        ensure(self.queues.get(&queue).is_some_and(|it| it.alive), "there is no such queue")
    }

    fn mem(&self, mem: usize) -> Result<(), Reject> {
        ensure(self.mems.get(&mem).is_some_and(|it| it.alive), "there is no such memory object")
    }

    fn event(&self, event: usize) -> Result<(), Reject> {
        ensure(self.events.get(&event).is_some_and(|it| it.alive), "there is no such event")
    }

    fn unset(&self, event: usize, failing: bool) -> Result<(), Reject> {
        self.event(event)?;
        match self.events[&event].source {
            Source::Gate { set: None, fails, .. } => {
                ensure(fails == failing, "it is set to the other kind")
            }
            _ => Err(Reject::Invalid("it is no user event that can be set")),
        }
    }

    fn timed(&self, event: usize) -> Result<(), Reject> {
        self.event(event)?;
        match self.events[&event].source {
            Source::Cmd(cmd) => {
                let known = &self.cmds[cmd];
                ensure(self.queues[&known.queue].profiling && known.runs(), "it has no times")
            }
            Source::Gate { .. } => Err(Reject::Invalid("a user event has no times")),
        }
    }

    fn object(&self, mem: usize, context: usize, offset: usize, len: usize) -> Result<(), Reject> {
        self.mem(mem)?;
        let known = &self.mems[&mem];
        ensure(known.context == context, "the memory object is of another context")?;
        ensure(offset + len <= known.size, "it is outside the memory object")
    }

    /// Rejects objects that are not buffers.
    fn plain(&self, mem: usize) -> Result<(), Reject> {
        let kind = self.mems[&mem].kind;
        ensure(matches!(kind, MemKind::Buffer | MemKind::Sub), "it is not a buffer")
    }

    /// Rejects a memory object that is an image.
    fn linear(&self, mem: usize) -> Result<(), Reject> {
        let kind = self.mems[&mem].kind;
        ensure(matches!(kind, MemKind::Buffer | MemKind::Sub | MemKind::Svm), "it is an image")
    }

    fn image(&self, mem: usize, context: usize) -> Result<(), Reject> {
        self.object(mem, context, 0, 0)?;
        let kind = self.mems[&mem].kind;
        ensure(matches!(kind, MemKind::Image { .. } | MemKind::View { .. }), "it is not an image")
    }

    fn host(&self, at: Ptr, len: usize) -> Result<(), Reject> {
        let area = self.areas.get(&at.area).filter(|area| area.alive);
        ensure(area.is_some_and(|area| at.offset + len <= area.len), "there is no such host memory")
    }

    fn transfer(&self, mem: usize, at: Ptr, len: usize, into: bool) -> Result<(), Reject> {
        self.host(at, len)?;
        ensure(!into || self.may_store(at), "the region is mapped for reading")?;
        let own = self.areas[&at.area]
            .map
            .is_some_and(|map| self.mems[&map.mem].root == self.mems[&mem].root);
        ensure(!own, "the host's side is the object's own mapping")
    }
}

fn may_block(cmd: &Cmd) -> bool {
    matches!(
        cmd,
        Cmd::Read { .. }
            | Cmd::Write { .. }
            | Cmd::ReadRect { .. }
            | Cmd::WriteRect { .. }
            | Cmd::Map { .. }
            | Cmd::ReadImage { .. }
            | Cmd::WriteImage { .. }
            | Cmd::SvmCopy { .. }
            | Cmd::HotRead { .. }
    )
}

fn rectangle(rect: &Rect) -> Result<(), Reject> {
    let fits = rect.width > 0 && rect.height > 0;
    ensure(
        fits && rect.mem_pitch >= rect.width && rect.other_pitch >= rect.width,
        "the rectangle is empty",
    )
}
