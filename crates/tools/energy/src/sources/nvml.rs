//! NVIDIA's cards: their energy counters, and samples of their power for comparison.

use std::sync::Arc;
use std::time::Duration;

use super::channel::{ChannelInfo, FoundChannel, LiveChannel, Scale, Sensor};
use super::nvml_library::{Device, Nvml};
use crate::component::{Class, Component, Method, Source};
use crate::options::Options;
use crate::reason::Reason;

/// Maximum number of devices that are read. Nodes have up to 16.
const DEVICES_MAX: usize = 64;
/// NVML's unit of energy and power: thousandths.
const MILLI: f64 = 1e-3;
/// The counter has been seen to step every 10 ms on some cards, and every 100 ms on others.
const STEP: Duration = Duration::from_millis(100);
/// Modules of processor, card and memory, whose figures cover the whole module.
const MODULES: [&str; 3] = ["GH200", "GB200", "GB300"];

/// Finds two channels for each device.
pub(super) fn find(options: &Options) -> Vec<FoundChannel> {
    let opened = Nvml::open(options.roots.nvml.as_deref());
    let opened = opened.and_then(|nvml| Ok((nvml.devices(DEVICES_MAX)?, Arc::new(nvml))));
    match opened {
        Ok((devices, _)) if devices.is_empty() => vec![nothing(Reason::NoDevice("NVML"))],
        Ok((devices, nvml)) => {
            (0..).zip(devices).flat_map(|(index, device)| channels(&nvml, index, device)).collect()
        }
        Err(reason) => vec![nothing(reason)],
    }
}

fn nothing(reason: Reason) -> FoundChannel {
    FoundChannel {
        info: info(Component::all(Class::Gpu), Method::Counter, "NVML".to_owned()),
        state: Err(reason),
    }
}

fn info(component: Component, method: Method, detail: String) -> ChannelInfo {
    ChannelInfo { component, source: Source::Nvml, method, detail, step: STEP }
}

fn channels(nvml: &Arc<Nvml>, index: usize, device: Device) -> [FoundChannel; 2] {
    let component = Component::new(Class::Gpu, format!("gpu-{index}"));
    let mut name = nvml.name(device);
    if MODULES.iter().any(|module| name.contains(module)) {
        name += ", the whole module";
    }
    let counter = Reading { nvml: Arc::clone(nvml), device, quantity: Quantity::Energy };
    let (quantity, how) = match nvml.power_instant_mw(device) {
        Ok(_) => (Quantity::PowerInstant, "power of the moment"),
        Err(_) => (Quantity::Power, "power as the driver averages it"),
    };
    let power = Reading { nvml: Arc::clone(nvml), device, quantity };
    [
        found(component.clone(), Method::Counter, format!("{name}: energy counter"), counter),
        found(component, Method::Samples, format!("{name}: {how}"), power),
    ]
}

fn found(component: Component, method: Method, detail: String, sensor: Reading) -> FoundChannel {
    let scale = Scale { per_unit: MILLI, wraps_after: None };
    FoundChannel {
        info: info(component, method, detail),
        state: Ok(LiveChannel { sensor: Box::new(sensor), scale }),
    }
}

#[derive(Clone, Copy, Debug)]
enum Quantity {
    Energy,
    Power,
    PowerInstant,
}

#[derive(Debug)]
struct Reading {
    nvml: Arc<Nvml>,
    device: Device,
    quantity: Quantity,
}

impl Sensor for Reading {
    fn read(&mut self) -> Result<u64, Reason> {
        match self.quantity {
            Quantity::Energy => self.nvml.energy_mj(self.device),
            Quantity::Power => self.nvml.power_mw(self.device),
            Quantity::PowerInstant => self.nvml.power_instant_mw(self.device),
        }
    }
}
