//! Shared virtual memory: allocations with the same address in the client and here.

use std::collections::BTreeMap;

use penstock_device as device;
use penstock_wire::calls::{Serve, to_worker};
use penstock_wire::id::kind;
use penstock_wire::{FrameError, Id, Payload, Status};

use super::Session;
use super::command::Names;

#[derive(Default)]
pub(crate) struct Svm {
    allocations: BTreeMap<u64, Id<kind::Mem>>,
}

impl Svm {
    /// Returns the last allocation that starts at or before `address`.
    fn at(&self, address: u64) -> Option<(u64, Id<kind::Mem>)> {
        self.allocations.range(..=address).next_back().map(|(start, mem)| (*start, *mem))
    }

    pub(crate) fn forget(&mut self, mem: Id<kind::Mem>) {
        if !self.allocations.is_empty() {
            self.allocations.retain(|_, known| *known != mem);
        }
    }
}

impl Serve<to_worker::AllocSvm> for Session {
    fn serve(
        &mut self,
        call: &to_worker::AllocSvm,
        _: &[Id<kind::Event>],
        _: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        self.objects.mems.vacant(call.mem)?;
        let (flags, size, address) = (call.flags.get(), call.size.get(), call.address.get());
        let made = self.objects.contexts.get(call.context).and_then(|context| {
            device::Mem::svm(context, flags, size, call.alignment.get(), address)
        });
        let answer = made.as_ref().map(drop).map_err(|status| *status);
        if answer.is_ok() {
            self.objects.svm.allocations.insert(address, call.mem);
        }
        self.objects.mems.insert(call.mem, made)?;
        self.shared.reply(call.request, &answer);
        Ok(())
    }
}

impl Serve<to_worker::CopySvm> for Session {
    fn serve(
        &mut self,
        call: &to_worker::CopySvm,
        waits: &[Id<kind::Event>],
        _: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        self.command(Names { queue: call.queue, event: call.event, waits }, |order| {
            let find = |address: u64| {
                let (start, mem) = order.objects.svm.at(address).ok_or(Status::INVALID_VALUE)?;
                Ok((order.objects.mems.get(mem)?, address - start))
            };
            // The driver checks that both ranges end within their allocations.
            let ((source, from), (target, to)) =
                (find(call.source.get())?, find(call.target.get())?);
            order.queue.copy(source, from, target, to, call.size.get(), order.waits, order.want)
        })
    }
}
