//! Images: their creation. `read.rs` and `write.rs` transfer their content.

use penstock_device as device;
use penstock_wire::calls::{Attached, Serve, Served, to_worker};
use penstock_wire::describe::ImageDescription;
use penstock_wire::frame;

use crate::session::Session;

impl Serve<to_worker::CreateImage> for Session {
    fn serve(&mut self, call: &to_worker::CreateImage, with: Attached<'_>) -> Served {
        let description: ImageDescription =
            frame::decode("CreateImage", &with.payload.read_all()?)?;
        self.objects.mems.create(call.mem, |mems| {
            let context = self.objects.contexts.get(call.context)?;
            let parent = if call.parent.is_none() { None } else { Some(mems.get(call.parent)?) };
            device::Mem::image(context, call.flags.get(), &description, parent)
        })
    }
}

impl Serve<to_worker::ImageFormats> for Session {
    fn serve(&mut self, call: &to_worker::ImageFormats, _: Attached<'_>) -> Served {
        let context = self.objects.contexts.get(call.context);
        let formats = context
            .and_then(|context| context.image_formats(call.flags.get(), call.image_type.get()));
        self.shared.reply(call.request, &formats);
        Ok(())
    }
}
