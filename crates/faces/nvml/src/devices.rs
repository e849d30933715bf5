//! The pool behind NVML. The first `nvmlInit` opens it, and the last `nvmlShutdown` closes it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use penstock_cl_sys::CL_DEVICE_GLOBAL_MEM_SIZE;
use penstock_client::config::{Config, DEVICES_VARIABLE};
use penstock_client::{Device, Pool, identity, notice};
use penstock_cuda_sys::driver::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
};
use penstock_process::{Lock, variable};

use crate::code;
use crate::held::Held;

/// Minimum device time between two readings for a percentage: five ticks of the kernel on one core.
const SPAN_NS_MIN: u64 = 50_000_000;
/// Pause before the sensors are read again because the span is still too short.
const SPAN_WAIT: Duration = Duration::from_millis(50);
/// Maximum number of these pauses: one second in total.
const SPAN_WAITS_MAX: u32 = 20;

/// The pool while it is open.
pub(crate) struct Open {
    devices: Vec<Watched>,
    _pool: Pool,
}

/// A device and the last reading of its sensors.
pub(crate) struct Watched {
    pub(crate) device: Arc<Device>,
    last: Lock<Last>,
}

#[derive(Default)]
struct Last {
    busy_ns: u64,
    capacity_ns: u64,
    percent: Option<u32>,
}

static OPEN: Held<Open> = Held::new();

/// Implements `nvmlInit`: opens the pool, or counts another use.
pub(crate) fn init() -> Result<(), u32> {
    OPEN.init(open)
}

/// Implements `nvmlShutdown`: the last use closes the pool.
pub(crate) fn shutdown() -> Result<(), u32> {
    OPEN.shutdown()
}

fn open() -> Result<Open, u32> {
    // Tools initialise NVML repeatedly, so each line is printed once.
    let refused = |text: std::fmt::Arguments<'_>| {
        notice::once(text);
        code::DRIVER_NOT_LOADED
    };
    if variable::WORKER.is_on() {
        return Err(code::DRIVER_NOT_LOADED);
    }
    let config = Config::load().map_err(|error| refused(format_args!("{error}")))?;
    if config.nodes.is_empty() {
        return Err(refused(format_args!("no nodes are configured; name them in PENSTOCK_NODES")));
    }
    let keys = config
        .load_keys()
        .inspect_err(|error| notice::once(format_args!("{error}")))
        .unwrap_or_default();
    let pool = Pool::of(&config, &keys, notice::once);
    // In the pool's order, whatever this process's turn is, so that tools show a stable list.
    let selected = pool.select(config.devices.as_ref());
    let all = pool.devices().count();
    if selected.is_empty() && config.devices.is_some() && all > 0 {
        notice::once(format_args!("{DEVICES_VARIABLE} selects none of the pool's {all} devices"));
    }
    let usable = identity::for_cuda(selected);
    let devices: Vec<_> = usable.into_iter().map(Watched::new).collect();
    Ok(Open { devices, _pool: pool })
}

/// Queries the devices. Several threads may do so at the same time.
pub(crate) fn with_all<T>(ask: impl FnOnce(&[Watched]) -> Result<T, u32>) -> Result<T, u32> {
    ask(&OPEN.get()?.devices)
}

impl Watched {
    fn new(device: Arc<Device>) -> Self {
        let watched = Self { device, last: Lock::default() };
        // Takes the first reading. If the worker is lost, the first query reports it.
        _ = watched.percent(false);
        watched
    }

    /// Returns the compute capability of a GPU that its node uses through CUDA's driver.
    pub(crate) fn capability(&self) -> Option<(i32, i32)> {
        let attributes = &self.device.gpu()?.attributes;
        Some((
            attributes.get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attributes.get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ))
    }

    /// Returns the total and the free memory in bytes.
    pub(crate) fn memory(&self) -> Result<(u64, u64), u32> {
        let total = self.device.number(CL_DEVICE_GLOBAL_MEM_SIZE);
        let sensors = self.device.sensors().map_err(|_| code::GPU_IS_LOST)?;
        let free = sensors.memory_free.ok_or(code::NOT_SUPPORTED)?;
        Ok((total, free.min(total)))
    }

    /// Returns how busy the device was since the last query, in percent. May block for a second.
    pub(crate) fn utilization(&self) -> Result<u32, u32> {
        for _ in 0..SPAN_WAITS_MAX {
            if let Some(percent) = self.percent(true)? {
                return Ok(percent);
            }
            thread::sleep(SPAN_WAIT);
        }
        // The host's clock of device time does not advance.
        Err(code::NOT_SUPPORTED)
    }

    fn percent(&self, supported: bool) -> Result<Option<u32>, u32> {
        let sensors = self.device.sensors().map_err(|_| code::GPU_IS_LOST)?;
        let (Some(busy_ns), Some(capacity_ns)) = (sensors.busy_ns, sensors.capacity_ns) else {
            return if supported { Err(code::NOT_SUPPORTED) } else { Ok(None) };
        };
        let mut last = self.last.lock();
        let (busy, span) =
            (busy_ns.saturating_sub(last.busy_ns), capacity_ns.saturating_sub(last.capacity_ns));
        if span >= SPAN_NS_MIN {
            // The first span begins at the start of the host, so it does not tell the present load.
            let is_first = last.capacity_ns == 0;
            let percent = u32::try_from(busy.min(span) * 100 / span).unwrap_or(100);
            *last = Last { busy_ns, capacity_ns, percent: (!is_first).then_some(percent) };
        }
        Ok(last.percent)
    }
}
