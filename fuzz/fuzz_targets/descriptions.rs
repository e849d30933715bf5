//! Any bytes as each structured payload.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_wire::describe::{
    BuildOrder, BuildReport, BuiltInKernels, DeviceDescription, ImageDescription, LoadReport,
    NodeDescription, PeerInvitation, Survey, Timers,
};
use penstock_wire::frame::decode;
use penstock_wire::headers::Headers;

fuzz_target!(|bytes: &[u8]| {
    _ = decode::<NodeDescription>("", bytes);
    _ = decode::<Survey>("", bytes);
    _ = decode::<Vec<DeviceDescription>>("", bytes);
    _ = decode::<BuildReport>("", bytes);
    _ = decode::<LoadReport>("", bytes);
    _ = decode::<BuildOrder>("", bytes);
    _ = decode::<BuiltInKernels>("", bytes);
    _ = decode::<ImageDescription>("", bytes);
    _ = decode::<PeerInvitation>("", bytes);
    _ = decode::<Headers>("", bytes);
    _ = decode::<Timers>("", bytes);
    _ = decode::<Vec<(u32, Vec<u8>)>>("", bytes);
    _ = decode::<Vec<(u32, u32)>>("", bytes);
    _ = decode::<Vec<i64>>("", bytes);
});
