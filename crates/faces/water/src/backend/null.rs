//! Devices that do nothing: every operation ends at once, so only the cost of the runtime itself
//! remains.

use penstock_cl_sys::{CL_DEVICE_NAME, CL_DEVICE_TYPE, CL_DEVICE_TYPE_CUSTOM};

use super::{Backend, Ended};
use crate::command::{Command, CommandId, DeviceInfo, Times};
use crate::doorbell::Doorbell;

/// Devices that do nothing.
#[derive(Debug)]
pub struct Null {
    devices: Vec<DeviceInfo>,
    ended: Vec<Ended>,
}

impl Null {
    #[must_use]
    pub fn new(count: usize) -> Self {
        let device = DeviceInfo {
            info: vec![
                (CL_DEVICE_NAME, b"nothing\0".to_vec()),
                (CL_DEVICE_TYPE, CL_DEVICE_TYPE_CUSTOM.to_le_bytes().to_vec()),
            ],
            platform: "null".into(),
            platform_version: "OpenCL 3.0 null".into(),
            hostname: "nowhere".into(),
            in_pool: None,
        };
        Self { devices: vec![device; count], ended: Vec::new() }
    }
}

impl Backend for Null {
    fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    fn orders(&self, _: u32, _: u32) -> bool {
        true
    }

    unsafe fn start(&mut self, id: CommandId, _: u32, command: &Command, _: &[CommandId]) {
        let outcome = match command {
            Command::CreateHeap { .. } => {
                Err(super::no_heaps("devices that do nothing cannot run kernels"))
            }
            _ => Ok(()),
        };
        self.ended.push(Ended { operation: id, outcome, times: Times::default() });
    }

    fn poll(&mut self, ended: &mut Vec<Ended>) {
        ended.append(&mut self.ended);
    }

    fn wake_with(&mut self, _: Doorbell) {}

    fn is_hollow(&self) -> bool {
        true
    }
}
