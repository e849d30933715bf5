//! Devices whose kernels take the time that the launch asks for, and no processor. Their buffers
//! have no bytes.

use std::sync::Arc;

use penstock_cl_sys::{CL_DEVICE_NAME, CL_DEVICE_TYPE, CL_DEVICE_TYPE_CUSTOM};
use water::backend::{Backend, Ended};
use water::clock::Clock;
use water::command::{Command, CommandId, DeviceInfo, Times};
use water::doorbell::Doorbell;

/// Devices on which a kernel over N work-items takes N ms.
#[derive(Debug)]
pub struct Timed {
    devices: Vec<DeviceInfo>,
    clock: Arc<dyn Clock>,
    /// When each operation ends.
    running: Vec<(u64, CommandId)>,
}

impl Timed {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let device = DeviceInfo {
            info: vec![
                (CL_DEVICE_NAME, b"timer\0".to_vec()),
                (CL_DEVICE_TYPE, CL_DEVICE_TYPE_CUSTOM.to_le_bytes().to_vec()),
            ],
            platform: "timers".into(),
            platform_version: "OpenCL 3.0".into(),
            hostname: "here".into(),
            in_pool: None,
        };
        Self { devices: vec![device], clock, running: Vec::new() }
    }
}

impl Backend for Timed {
    fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    fn orders(&self, _: u32, _: u32) -> bool {
        false
    }

    unsafe fn start(&mut self, id: CommandId, _: u32, command: &Command, _: &[CommandId]) {
        let takes = match command {
            Command::Run { range, .. } => range.global[0] * 1_000_000,
            _ => 0,
        };
        self.running.push((self.clock.now() + takes, id));
    }

    fn poll(&mut self, ended: &mut Vec<Ended>) {
        let now = self.clock.now();
        for (_, operation) in self.running.extract_if(.., |(end, _)| *end <= now) {
            ended.push(Ended { operation, outcome: Ok(()), times: Times::default() });
        }
    }

    fn next_end(&self) -> Option<u64> {
        self.running.iter().map(|(end, _)| *end).min()
    }

    fn wake_with(&mut self, _: Doorbell) {}

    fn is_hollow(&self) -> bool {
        true
    }
}
