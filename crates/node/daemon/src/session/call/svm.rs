//! Shared virtual memory: allocation, and copies between addresses.

use penstock_device as device;
use penstock_wire::Status;
use penstock_wire::calls::{Attached, Serve, Served, to_worker};

use super::command::CommandIds;
use crate::session::Session;

impl Serve<to_worker::AllocSvm> for Session {
    fn serve(&mut self, call: &to_worker::AllocSvm, _: Attached<'_>) -> Served {
        let (flags, size, address) = (call.flags.get(), call.size.get(), call.address.get());
        self.objects.mems.create(call.mem, |_| {
            let context = self.objects.contexts.get(call.context)?;
            device::Mem::svm(context, flags, size, call.alignment.get(), address)
        })?;
        let answer = self.objects.mems.get(call.mem).map(drop);
        if answer.is_ok() {
            self.objects.svm.insert(address, call.mem);
        }
        self.shared.reply(call.request, &answer);
        Ok(())
    }
}

impl Serve<to_worker::CopySvm> for Session {
    fn serve(&mut self, call: &to_worker::CopySvm, with: Attached<'_>) -> Served {
        self.command(
            CommandIds { queue: call.queue, event: call.event, waits: with.waits },
            |inputs| {
                let find = |address: u64| {
                    let (start, mem) =
                        inputs.objects.svm.at(address).ok_or(Status::INVALID_VALUE)?;
                    Ok((inputs.objects.mems.get(mem)?, address - start))
                };
                // The driver checks that both ranges end within their allocations.
                let ((source, from), (target, to)) =
                    (find(call.source.get())?, find(call.target.get())?);
                inputs.queue.copy(
                    source,
                    from,
                    target,
                    to,
                    call.size.get(),
                    inputs.waits,
                    inputs.want,
                )
            },
        )
    }
}
