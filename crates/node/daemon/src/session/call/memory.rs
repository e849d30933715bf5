//! Buffers, sub-buffers, pipes and samplers.

use penstock_device as device;
use penstock_wire::calls::{Attached, Serve, Served, to_worker};
use penstock_wire::frame;

use crate::session::Session;
use crate::session::shared::ArenaPart;

impl Serve<to_worker::CreateBuffer> for Session {
    fn serve(&mut self, call: &to_worker::CreateBuffer, _: Attached<'_>) -> Served {
        self.objects.mems.create(call.mem, |_| {
            let context = self.objects.contexts.get(call.context)?;
            device::Mem::buffer(context, call.flags.get(), call.size.get())
        })
    }
}

impl Serve<to_worker::CreateSubBuffer> for Session {
    fn serve(&mut self, call: &to_worker::CreateSubBuffer, _: Attached<'_>) -> Served {
        self.objects.mems.create(call.mem, |mems| {
            let (origin, size) = (call.origin.get(), call.size.get());
            device::Mem::sub_buffer(mems.get(call.parent)?, call.flags.get(), origin, size)
        })
    }
}

impl Serve<to_worker::CreatePipe> for Session {
    fn serve(&mut self, call: &to_worker::CreatePipe, _: Attached<'_>) -> Served {
        self.objects.mems.create(call.mem, |_| {
            let context = self.objects.contexts.get(call.context)?;
            let (size, count) = (call.packet_size.get(), call.packets_max.get());
            device::Mem::pipe(context, call.flags.get(), size, count)
        })
    }
}

impl Serve<to_worker::ReleaseMem> for Session {
    fn serve(&mut self, call: &to_worker::ReleaseMem, _: Attached<'_>) -> Served {
        self.objects.mems.remove(call.mem);
        self.objects.views.forget(call.mem);
        self.objects.svm.forget(call.mem);
        Ok(())
    }
}

impl Serve<to_worker::MemAddress> for Session {
    fn serve(&mut self, call: &to_worker::MemAddress, _: Attached<'_>) -> Served {
        let view = self.objects.views.get(call.mem).map(Ok);
        let address = view
            .unwrap_or_else(|| self.objects.mems.get(call.mem))
            .and_then(device::Mem::device_address);
        self.shared.reply(call.request, &address);
        Ok(())
    }
}

impl Serve<to_worker::CreateVariableBuffer> for Session {
    fn serve(&mut self, call: &to_worker::CreateVariableBuffer, _: Attached<'_>) -> Served {
        self.objects.mems.create(call.mem, |_| {
            let context = self.objects.contexts.get(call.context)?;
            device::Mem::variable(context, call.address.get(), call.size.get())
        })?;
        self.shared.reply(call.request, &self.objects.mems.get(call.mem).map(drop));
        Ok(())
    }
}

impl Serve<to_worker::CreateSampler> for Session {
    fn serve(&mut self, call: &to_worker::CreateSampler, with: Attached<'_>) -> Served {
        let properties: Vec<u64> = frame::decode("CreateSampler", &with.payload.read_all()?)?;
        self.objects.samplers.create(call.sampler, |_| {
            device::Sampler::new(self.objects.contexts.get(call.context)?, &properties)
        })
    }
}

impl Serve<to_worker::ReleaseSampler> for Session {
    fn serve(&mut self, call: &to_worker::ReleaseSampler, _: Attached<'_>) -> Served {
        self.objects.samplers.remove(call.sampler);
        Ok(())
    }
}

impl Serve<to_worker::CreateSharedBuffer> for Session {
    fn serve(&mut self, call: &to_worker::CreateSharedBuffer, _: Attached<'_>) -> Served {
        self.objects.mems.create(call.mem, |_| {
            let context = self.objects.contexts.get(call.context)?;
            let (offset, size) = (call.offset.get(), call.size.get());
            let part = ArenaPart::new(&self.shared, call.mem, offset, size)?;
            device::Mem::buffer_in(context, call.flags.get(), size, Box::new(part))
        })
    }
}
