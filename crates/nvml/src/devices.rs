//! The pool behind NVML: opened by the first `nvmlInit`, closed by the last `nvmlShutdown`.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use penstock_client::config::{Config, DEVICES_VARIABLE, WORKER_VARIABLE};
use penstock_client::{Device, Pool, identity, notice};
use penstock_wire::cuda;

use crate::code;
use crate::held::Held;

/// `CL_DEVICE_GLOBAL_MEM_SIZE`.
const GLOBAL_MEM_SIZE: u32 = 0x101f;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const CAPABILITY_MAJOR: u32 = 75;
const CAPABILITY_MINOR: u32 = 76;
/// Time of work and idleness over which a share is taken, at least: five of the kernel's ticks for one core.
const SPAN_NS_MIN: u64 = 50_000_000;
/// Until two looks are so far apart...
const SPAN_WAIT: Duration = Duration::from_millis(50);
/// ... or a second has passed.
const SPAN_WAITS_MAX: u32 = 20;

/// The pool while it is open.
pub(crate) struct Open {
    devices: Vec<Watched>,
    _pool: Pool,
}

/// A device, and how busy it was when it was last asked.
pub(crate) struct Watched {
    pub(crate) device: Arc<Device>,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    busy_ns: u64,
    capacity_ns: u64,
    percent: Option<u32>,
}

static OPEN: Held<Open> = Held::new();

/// `nvmlInit`: counted.
pub(crate) fn init() -> Result<(), u32> {
    OPEN.init(open)
}

/// `nvmlShutdown`.
pub(crate) fn shutdown() -> Result<(), u32> {
    OPEN.shutdown()
}

fn open() -> Result<Open, u32> {
    // Tools initialize NVML again and again: each line is said once.
    let refused = |text: std::fmt::Arguments<'_>| {
        notice::once(text);
        code::DRIVER_NOT_LOADED
    };
    if std::env::var_os(WORKER_VARIABLE).is_some() {
        return Err(code::DRIVER_NOT_LOADED);
    }
    let config = Config::load().map_err(|error| refused(format_args!("{error}")))?;
    if config.nodes.is_empty() {
        return Err(refused(format_args!("no nodes are configured; name them in PENSTOCK_NODES")));
    }
    let key =
        config.load_key().inspect_err(|error| notice::once(format_args!("{error}"))).ok().flatten();
    let pool = Pool::open(&config.addresses(), key.as_ref(), config.timeout, notice::once);
    // In the pool's order, whatever this process's turn is: tools show the same list each time.
    let selected = pool.select(config.devices.as_ref());
    let all = pool.devices().count();
    if selected.is_empty() && config.devices.is_some() && all > 0 {
        notice::once(format_args!("{DEVICES_VARIABLE} selects none of the pool's {all} devices"));
    }
    let usable = identity::for_cuda(selected);
    let devices: Vec<_> = usable.into_iter().map(Watched::new).collect();
    Ok(Open { devices, _pool: pool })
}

/// Asks all devices something. Others may ask at the same time.
pub(crate) fn with_all<T>(ask: impl FnOnce(&[Watched]) -> Result<T, u32>) -> Result<T, u32> {
    ask(&OPEN.get()?.devices)
}

impl Watched {
    fn new(device: Arc<Device>) -> Self {
        let watched = Self { device, last: Mutex::default() };
        // So that the first question has a span to look at; a worker that is lost is told with it.
        _ = watched.percent(false);
        watched
    }

    /// The compute capability of a GPU that its node drives through CUDA's driver.
    pub(crate) fn capability(&self) -> Option<(i32, i32)> {
        let told = |attribute: u32| {
            let bytes = self.device.info(cuda::DEVICE_ATTRIBUTE + attribute)?;
            bytes.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
        };
        Some((told(CAPABILITY_MAJOR)?, told(CAPABILITY_MINOR)?))
    }

    /// All its memory and what of it is free, in bytes.
    pub(crate) fn memory(&self) -> Result<(u64, u64), u32> {
        let total = self.device.number(GLOBAL_MEM_SIZE);
        let sensors = self.device.sensors().map_err(|_| code::GPU_IS_LOST)?;
        let free = sensors.memory_free.ok_or(code::NOT_SUPPORTED)?;
        Ok((total, free.min(total)))
    }

    /// The share of its time that it worked since it was last asked, in percent.
    pub(crate) fn utilization(&self) -> Result<u32, u32> {
        for _ in 0..SPAN_WAITS_MAX {
            if let Some(percent) = self.percent(true)? {
                return Ok(percent);
            }
            thread::sleep(SPAN_WAIT);
        }
        // The host's clock of work stands still.
        Err(code::NOT_SUPPORTED)
    }

    fn percent(&self, supported: bool) -> Result<Option<u32>, u32> {
        let sensors = self.device.sensors().map_err(|_| code::GPU_IS_LOST)?;
        let (Some(busy_ns), Some(capacity_ns)) = (sensors.busy_ns, sensors.capacity_ns) else {
            return if supported { Err(code::NOT_SUPPORTED) } else { Ok(None) };
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (busy, span) =
            (busy_ns.saturating_sub(last.busy_ns), capacity_ns.saturating_sub(last.capacity_ns));
        if span >= SPAN_NS_MIN {
            // The first look is from the start of the host, which is no answer to how busy it is now.
            let is_first = last.capacity_ns == 0;
            let percent = u32::try_from(busy.min(span) * 100 / span).unwrap_or(100);
            *last = Last { busy_ns, capacity_ns, percent: (!is_first).then_some(percent) };
        }
        Ok(last.percent)
    }
}
