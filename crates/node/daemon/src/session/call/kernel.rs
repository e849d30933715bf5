//! Kernels: their creation, queries and launches.

use penstock_device as device;
use penstock_device::Want;
use penstock_wire::args::{self, Arg};
use penstock_wire::calls::{Attached, Serve, Served, to_worker};
use penstock_wire::id::kind;
use penstock_wire::{FrameError, Id, IndexSpace, Payload, Status, limits};

use super::command::CommandIds;
use crate::session::launches::{Kernel, Launched};
use crate::session::queue::Queue;
use crate::session::table::Table;
use crate::session::{Objects, Session};

impl Objects {
    /// Sets the arguments that came with a call. Continues after a failure, because the client
    /// sends each change once. Fails if any argument, of this call or an earlier one, could not be
    /// set.
    fn set_args(
        &mut self,
        id: Id<kind::Kernel>,
        queues: &dyn Fn(Id<kind::Queue>) -> Result<device::Queue, Status>,
        args: &Args,
    ) -> Result<(), Status> {
        let Kernel { device, unset, .. } = self.kernels.get(id)?;
        let set = |(index, arg)| Some((index, self.set_arg(device, queues, index, arg).err()?));
        let failed: Vec<_> = args.iter().filter_map(set).collect();
        if failed.is_empty() && unset.is_empty() {
            return Ok(());
        }
        let kernel = self.kernels.get_mut(id)?;
        let refused = failed.first().map(|(_, why)| *why);
        kernel.unset.note(args.iter().map(|(index, _)| index), failed);
        kernel.unset.check()?;
        refused.map_or(Ok(()), Err)
    }

    fn set_arg(
        &self,
        kernel: &device::Kernel,
        queues: &dyn Fn(Id<kind::Queue>) -> Result<device::Queue, Status>,
        index: u32,
        arg: Arg<'_>,
    ) -> Result<(), Status> {
        match arg {
            Arg::Bytes(bytes) => kernel.set(index, device::Arg::Bytes(bytes)),
            Arg::Mem(id) if id.is_none() => kernel.set(index, device::Arg::Mem(None)),
            Arg::Mem(id) => {
                let mem = if self.views.is_empty() { None } else { self.views.get(id) };
                let mem = mem.map_or_else(|| self.mems.get(id), Ok)?;
                kernel.set(index, device::Arg::Mem(Some(mem)))
            }
            Arg::Sampler(id) => kernel.set(index, device::Arg::Sampler(self.samplers.get(id)?)),
            Arg::Local(bytes) => kernel.set(index, device::Arg::Local(bytes)),
            Arg::Svm(address) => kernel.set(index, device::Arg::Svm(address)),
            Arg::Queue(id) => kernel.set(index, device::Arg::Queue(&queues(id)?)),
        }
    }
}

/// The encoded arguments of a call.
struct Args {
    bytes: Vec<u8>,
}

impl Args {
    /// Takes them from the payload and checks all of them.
    fn take(payload: &mut dyn Payload) -> Result<Self, FrameError> {
        let bytes = if payload.left() == 0 { Vec::new() } else { payload.read_all()? };
        for arg in args::read(&bytes) {
            arg?;
        }
        Ok(Self { bytes })
    }

    fn iter(&self) -> impl Iterator<Item = (u32, Arg<'_>)> {
        args::read(&self.bytes).filter_map(Result::ok)
    }

    /// Looks up queues that are arguments (rare), before the launch borrows its own queue.
    fn queues(
        &self,
        queues: &Table<kind::Queue, Queue>,
    ) -> Vec<(Id<kind::Queue>, Result<device::Queue, Status>)> {
        let ids = self
            .iter()
            .filter_map(|(_, arg)| if let Arg::Queue(id) = arg { Some(id) } else { None });
        ids.map(|id| (id, queues.get(id).map(|queue| queue.device.clone()))).collect()
    }
}

fn find(
    known: &[(Id<kind::Queue>, Result<device::Queue, Status>)],
    id: Id<kind::Queue>,
) -> Result<device::Queue, Status> {
    let found = known.iter().find(|(known, _)| *known == id);
    found.map_or(Err(Status::INVALID_COMMAND_QUEUE), |(_, queue)| queue.clone())
}

impl Serve<to_worker::LaunchKernel> for Session {
    fn serve(&mut self, call: &to_worker::LaunchKernel, with: Attached<'_>) -> Served {
        let args = Args::take(with.payload)?;
        let queues = args.queues(&self.queues);
        // The arguments stay even if this launch fails: the client sends each change once.
        let set = self.objects.set_args(call.kernel, &|id| find(&queues, id), &args);
        self.objects.views.bind(call.kernel, args.iter());
        // Stays false also if the command's queue or wait list is at fault.
        let mut is_launched = false;
        let turns = self.pass_gate(call.queue).then(|| self.shared.allowance.turns.clone());
        self.command(
            CommandIds { queue: call.queue, event: call.event, waits: with.waits },
            |inputs| {
                set?;
                let kernel = inputs.objects.kernels.get_mut(call.kernel)?;
                let space = IndexSpace::from(call.space).checked()?;
                let heaps = inputs.objects.views.launch(call.kernel);
                let compiles = inputs.watch.compiles;
                let way = || kernel.ways.compiled(inputs.queue.device(), &space);
                let compiled = compiles.then(way).flatten();
                inputs.watch.is_on |= compiled.is_some();
                if inputs.watch.is_on {
                    let name = kernel.device.name().clone();
                    inputs.watch.kernel = Some(Launched { name, compiled });
                }
                // Even if the client wants no event: the heaps must know the launch's end, and so
                // must who watches it.
                let is_seen = inputs.watch.is_on || turns.is_some() || !heaps.is_empty();
                let want = if is_seen { Want::Event } else { inputs.want };
                let launched = inputs.queue.launch(&kernel.device, &space, inputs.waits, want)?;
                is_launched = true;
                if let (Some(event), Some(turns)) = (&launched, turns) {
                    turns.note_launch(event);
                }
                if let Some(event) = launched.as_ref().filter(|_| !heaps.is_empty()) {
                    event.on_complete(Box::new(move |status, _| heaps.end(status)));
                }
                Ok(launched)
            },
        )?;
        if !is_launched {
            // PEs on other devices would wait for it in vain.
            self.objects.views.abort(call.kernel);
        }
        Ok(())
    }
}

impl Serve<to_worker::CreateKernel> for Session {
    fn serve(&mut self, call: &to_worker::CreateKernel, with: Attached<'_>) -> Served {
        let name = String::from_utf8(with.payload.read_all()?)
            .map_err(|_| FrameError::BadPayload("CreateKernel"))?;
        self.objects.kernels.create(call.kernel, |_| {
            let program = self.objects.programs.get(call.program)?.device()?;
            device::Kernel::new(program, &name).map(Kernel::from)
        })
    }
}

impl Serve<to_worker::CloneKernel> for Session {
    fn serve(&mut self, call: &to_worker::CloneKernel, _: Attached<'_>) -> Served {
        self.objects.kernels.create(call.kernel, |kernels| {
            let source = kernels.get(call.source)?;
            let copy = Kernel::from(source.device.duplicate()?);
            Ok(Kernel { unset: source.unset.clone(), ..copy })
        })?;
        if self.objects.kernels.get(call.kernel).is_ok() {
            self.objects.views.bind_as(call.kernel, call.source);
        }
        Ok(())
    }
}

impl Serve<to_worker::ReleaseKernel> for Session {
    fn serve(&mut self, call: &to_worker::ReleaseKernel, _: Attached<'_>) -> Served {
        self.objects.kernels.remove(call.kernel);
        self.objects.views.unbind(call.kernel);
        Ok(())
    }
}

impl Serve<to_worker::SetKernelExecInfo> for Session {
    fn serve(&mut self, call: &to_worker::SetKernelExecInfo, with: Attached<'_>) -> Served {
        let value = with.payload.read_all()?;
        let kernel = self.objects.kernels.get(call.kernel);
        let set = kernel.and_then(|kernel| kernel.device.set_exec_info(call.name.get(), &value));
        self.shared.reply(call.request, &set);
        Ok(())
    }
}

impl Serve<to_worker::KernelSubGroupInfo> for Session {
    fn serve(&mut self, call: &to_worker::KernelSubGroupInfo, with: Attached<'_>) -> Served {
        let input = with.payload.read_all()?;
        let ask = || {
            let kernel = self.objects.kernels.get(call.kernel)?;
            let device = self.objects.device(call.device.get())?;
            let output = usize::try_from(call.output.get()).map_err(|_| Status::INVALID_VALUE)?;
            // A larger output size than any answer's is garbage.
            if u64::from(call.output.get()) > limits::SMALL_BYTES_MAX {
                return Err(Status::INVALID_VALUE);
            }
            kernel.device.sub_group_info(device, call.name.get(), &input, output)
        };
        self.shared.reply(call.request, &ask());
        Ok(())
    }
}

impl Serve<to_worker::SuggestedLocalSize> for Session {
    fn serve(&mut self, call: &to_worker::SuggestedLocalSize, with: Attached<'_>) -> Served {
        let args = Args::take(with.payload)?;
        let queues = args.queues(&self.queues);
        let mut ask = || {
            self.objects.set_args(call.kernel, &|id| find(&queues, id), &args)?;
            let queue = self.queues.get(call.queue)?;
            let space = IndexSpace { local: None, ..IndexSpace::from(call.space) };
            let kernel = self.objects.kernels.get(call.kernel)?;
            kernel.device.suggested_local_size(&queue.device, &space)
        };
        let answer = ask();
        self.objects.views.bind(call.kernel, args.iter());
        self.shared.reply(call.request, &answer);
        Ok(())
    }
}

impl Session {
    /// Waits until a launch in this queue may begin, if other users want its device. Returns
    /// whether the launch's end must be noted.
    fn pass_gate(&mut self, queue: Id<kind::Queue>) -> bool {
        let turns = &self.shared.allowance.turns;
        if !turns.concerns(u64::MAX) {
            return false;
        }
        let turn = self.queues.get(queue).map_or(0, |queue| queue.turn);
        if !turns.concerns(turn) {
            return false;
        }
        // Kernels of a heap wait for each other on several devices and nodes, so none of them may
        // wait here. A session with a heap is not held back.
        if !self.objects.views.is_empty() {
            return false;
        }
        // What came before must not wait with the launch.
        self.flush_queues();
        let shared = &self.shared;
        let awaits_client = || shared.events.awaits_client();
        shared.allowance.turns.pass(turn, &|| shared.has_ended(), &awaits_client)
    }

    /// Sets the arguments that came with a query about a kernel, and answers it.
    fn answer_with_args<T: serde::Serialize>(
        &mut self,
        (request, kernel): (Id<kind::Request>, Id<kind::Kernel>),
        payload: &mut dyn Payload,
        ask: impl FnOnce(&Objects, &device::Kernel) -> Result<T, Status>,
    ) -> Result<(), FrameError> {
        let args = Args::take(payload)?;
        let queues = args.queues(&self.queues);
        let set = self.objects.set_args(kernel, &|id| find(&queues, id), &args);
        let answer = set.and_then(|()| {
            let kernel = self.objects.kernels.get(kernel)?;
            ask(&self.objects, &kernel.device)
        });
        self.objects.views.bind(kernel, args.iter());
        self.shared.reply(request, &answer);
        Ok(())
    }
}

impl Serve<to_worker::KernelWorkGroupInfo> for Session {
    fn serve(&mut self, call: &to_worker::KernelWorkGroupInfo, with: Attached<'_>) -> Served {
        self.answer_with_args((call.request, call.kernel), with.payload, |objects, kernel| {
            kernel.work_group_info(objects.device(call.device.get())?, call.name.get())
        })
    }
}

impl Serve<to_worker::ResidentGroups> for Session {
    fn serve(&mut self, call: &to_worker::ResidentGroups, with: Attached<'_>) -> Served {
        self.answer_with_args((call.request, call.kernel), with.payload, |_, kernel| {
            kernel.resident_groups(call.work_items.get())
        })
    }
}
