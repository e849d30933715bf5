//! The pool as a list of CUDA devices. `cuInit` opens it once.

use std::sync::{Arc, OnceLock};

use penstock_client::config::{Config, DEVICES_VARIABLE};
use penstock_client::{Context, Pool, identity, notice, summary};
use penstock_cuda_sys::driver::{
    CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NOT_INITIALIZED, CUdevice, CUresult,
};
use penstock_process::{log, variable};

use super::address;
use super::device::Device;
use crate::edge::{CuResult, check_process, of_error, watch_forks};

/// The devices of the pool. The pool stays open until the process ends, because no driver code may
/// run at exit.
pub(crate) struct Platform {
    _pool: Pool,
    devices: Vec<Arc<Device>>,
}

static PLATFORM: OnceLock<CuResult<Platform>> = OnceLock::new();

pub(crate) fn init() -> CuResult {
    check_process()?;
    PLATFORM.get_or_init(open).as_ref().map(drop).map_err(|code| *code)
}

pub(crate) fn devices() -> CuResult<&'static [Arc<Device>]> {
    check_process()?;
    match PLATFORM.get() {
        Some(Ok(platform)) => Ok(&platform.devices),
        // "CUDA_ERROR_NOT_INITIALIZED: This indicates that the CUDA driver has not been initialized
        // with cuInit() or that initialization has failed."
        _ => Err(CUDA_ERROR_NOT_INITIALIZED),
    }
}

/// Returns the device with this ordinal.
pub(crate) fn device(ordinal: CUdevice) -> CuResult<&'static Arc<Device>> {
    let index = usize::try_from(ordinal).ok();
    let devices = devices()?;
    index.and_then(|index| devices.get(index)).ok_or(CUDA_ERROR_INVALID_DEVICE)
}

/// Returns the device whose memory can have the same addresses for the program and for kernels. It
/// is the first that works on memory which this process has mapped; a second one would not see the
/// memory of the first.
pub(crate) fn unified() -> Option<&'static Arc<Device>> {
    let mut devices = devices().ok()?.iter();
    devices.find(|device| device.can_map_host_memory() && device.space.has_window())
}

/// Returns the device that an address belongs to.
pub(crate) fn device_of(address: u64) -> Option<&'static Arc<Device>> {
    let devices = devices().ok()?;
    let native = devices.iter().find(|device| device.space.has_native(address));
    native.or_else(|| {
        let device = devices.get(address::device_of(address)?);
        device.filter(|device| !device.is_native && device.space.may_have(address))
    })
}

fn open() -> CuResult<Platform> {
    if variable::WORKER.is_on() && !variable::LIBCUDA.is_set() {
        return Err(CUDA_ERROR_NO_DEVICE);
    }
    watch_forks();
    let none = |text: std::fmt::Arguments<'_>| -> CUresult {
        log!(Info, "{text}");
        CUDA_ERROR_NO_DEVICE
    };
    let config = Config::load().map_err(|error| {
        notice::once(format_args!("{error}"));
        CUDA_ERROR_NO_DEVICE
    })?;
    if config.nodes.is_empty() {
        return Err(none(format_args!("no nodes are configured; name them in PENSTOCK_NODES")));
    }
    let keys = config
        .load_keys()
        .inspect_err(|error| notice::once(format_args!("{error}")))
        .unwrap_or_default();
    let pool = summary::open("CUDA", || Pool::of(&config, &keys, notice::print));
    let selected = pool.chosen(&config);
    let all = pool.devices().count();
    if selected.is_empty() && config.devices.is_some() && all > 0 {
        notice::once(format_args!("{DEVICES_VARIABLE} selects none of the pool's {all} devices"));
    }
    let usable = identity::for_cuda(selected);
    let visible = variable::CUDA_VISIBLE_DEVICES.text_even_empty();
    let names: Vec<_> = usable.iter().map(|device| device.uuid_text()).collect();
    let chosen = visible_of(&names, visible.as_deref()).into_iter();
    let chosen: Vec<_> = chosen.filter_map(|index| usable.get(index).cloned()).collect();
    if chosen.is_empty() {
        return Err(none(format_args!("the pool has no device for CUDA programs")));
    }
    Ok(Platform { devices: make(chosen).map_err(|error| of_error(&error))?, _pool: pool })
}

/// Returns the indices of the devices that the variable names, in its order. "If one of the indices
/// is invalid, only the devices whose index precedes the invalid index are visible."
fn visible_of(names: &[String], list: Option<&str>) -> Vec<usize> {
    let Some(list) = list else { return (0..names.len().min(address::DEVICES_MAX)).collect() };
    // The prefix of all names selects nothing.
    let is_name = |word: &str| word.len() > "GPU-".len();
    let mut chosen = Vec::new();
    for word in list.split(',').map(str::trim) {
        let found = match word.parse::<usize>() {
            Ok(index) => Some(index).filter(|index| *index < names.len()),
            Err(_) => names.iter().position(|name| is_name(word) && name.starts_with(word)),
        };
        match found.filter(|found| !chosen.contains(found) && chosen.len() < address::DEVICES_MAX) {
            Some(found) => chosen.push(found),
            None => break,
        }
    }
    chosen
}

/// Makes the devices. Those of one platform on one node share a context of the pool, so that copies
/// between them stay there. Devices of CUDA's own driver do not, because it shares no memory.
fn make(
    chosen: Vec<Arc<penstock_client::Device>>,
) -> Result<Vec<Arc<Device>>, penstock_client::Error> {
    /// Devices with equal values share a context.
    #[derive(PartialEq)]
    struct Sharing {
        node: usize,
        platform: u32,
        /// The device, if it has a context alone.
        alone: Option<u32>,
    }
    let sharing = |device: &penstock_client::Device| Sharing {
        node: device.node(),
        platform: device.platform(),
        alone: device.is_cuda().then_some(device.index()),
    };
    let mut contexts: Vec<(Sharing, Arc<Context>)> = Vec::new();
    for device in &chosen {
        if !contexts.iter().any(|(known, _)| *known == sharing(device)) {
            let together: Vec<_> =
                chosen.iter().filter(|it| sharing(it) == sharing(device)).cloned().collect();
            contexts.push((sharing(device), Context::new(&together)?));
        }
    }
    let mut devices = Vec::new();
    for (ordinal, device) in chosen.into_iter().enumerate() {
        let context =
            contexts.iter().find(|(known, _)| *known == sharing(&device)).map(|(_, it)| it.clone());
        let context = context
            .ok_or_else(|| penstock_client::Error::Config("a device without a place".into()))?;
        let neighbours = context.places().iter().map(|place| place.devices().len()).sum();
        devices.push(Arc::new(Device::new(ordinal, device, context, neighbours)));
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_chooses_and_orders_devices() {
        let names = ["GPU-aa00-1", "GPU-ab00-2", "GPU-b000-3"].map(str::to_owned);
        let chosen = |list| visible_of(&names, list);
        assert_eq!(chosen(None), [0, 1, 2]);
        assert_eq!(chosen(Some("2,0")), [2, 0]);
        assert_eq!(chosen(Some("1, GPU-aa")), [1, 0]);
        // The list ends at the first invalid entry.
        assert_eq!(chosen(Some("0,7,1")), [0]);
        assert_eq!(chosen(Some("0,0,1")), [0]);
        for nothing in ["", "-1", "GPU-", "GPU-ff", "none"] {
            assert_eq!(chosen(Some(nothing)), [0usize; 0], "{nothing}");
        }
    }
}
