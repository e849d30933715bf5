use penstock_device as device;
use penstock_link::Body;
use penstock_wire::calls::{Attached, Serve, Served, to_client, to_worker};
use penstock_wire::describe::DeviceDescription;
use penstock_wire::{Status, frame, limits};

use crate::node::describe;
use crate::session::{Objects, Session};

impl Serve<to_worker::CreateContext> for Session {
    fn serve(&mut self, call: &to_worker::CreateContext, with: Attached<'_>) -> Served {
        self.objects.contexts.vacant(call.context)?;
        let devices: Vec<u32> = frame::decode("CreateContext", &with.payload.read_all()?)?;
        let (shared, context) = (std::sync::Arc::downgrade(&self.shared), call.context);
        let notify = move |text: &str| {
            if let Some(shared) = shared.upgrade() {
                let text = truncated(text);
                shared.outbox.post(&to_client::ContextError { context }, &[], Body::Bytes(text));
            }
        };
        let make = || {
            let platform = self.objects.platform(call.platform.get())?;
            let devices = self.objects.devices(&devices)?;
            device::Context::new(platform, &devices, Box::new(notify))
        };
        let made = make();
        self.objects.contexts.insert(call.context, made)
    }
}

/// Cuts a driver's text to what a frame takes.
fn truncated(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let max = usize::try_from(limits::SMALL_BYTES_MAX).unwrap_or(usize::MAX);
    bytes.get(..bytes.len().min(max)).unwrap_or_default().to_vec()
}

impl Serve<to_worker::ReleaseContext> for Session {
    fn serve(&mut self, call: &to_worker::ReleaseContext, _: Attached<'_>) -> Served {
        self.objects.contexts.remove(call.context);
        Ok(())
    }
}

impl Serve<to_worker::CreateSubDevices> for Session {
    fn serve(&mut self, call: &to_worker::CreateSubDevices, with: Attached<'_>) -> Served {
        let properties: Vec<i64> = frame::decode("CreateSubDevices", &with.payload.read_all()?)?;
        let parts = self.objects.partition(call.device.get(), &properties);
        self.shared.reply(call.request, &parts);
        Ok(())
    }
}

impl Objects {
    fn partition(
        &mut self,
        index: u32,
        properties: &[i64],
    ) -> Result<Vec<DeviceDescription>, Status> {
        let device = self.device(index)?;
        let parts = device.sub_devices(properties)?;
        if self.devices.len() + parts.len() > limits::OBJECTS_PER_SESSION_MAX {
            return Err(Status::OUT_OF_RESOURCES);
        }
        let meter = self.meter(index);
        let whole = self.whole(index)?;
        let describe = |part: device::Device| {
            let index = u32::try_from(self.devices.len()).map_err(|_| Status::OUT_OF_RESOURCES)?;
            let description = describe(&part, index);
            let meter = meter.clone().filter(|_| self.meters.len() == self.devices.len());
            self.meters.extend(meter);
            self.devices.push(part);
            self.wholes.push(whole);
            Ok(description)
        };
        parts.into_iter().map(describe).collect()
    }
}

impl Serve<to_worker::DeviceTimer> for Session {
    fn serve(&mut self, call: &to_worker::DeviceTimer, _: Attached<'_>) -> Served {
        let timers = self.objects.device(call.device.get()).and_then(device::Device::timers);
        self.shared.reply(call.request, &timers);
        Ok(())
    }
}

impl Serve<to_worker::Ping> for Session {
    fn serve(&mut self, call: &to_worker::Ping, _: Attached<'_>) -> Served {
        self.shared.reply(call.request, &Ok(()));
        Ok(())
    }
}
