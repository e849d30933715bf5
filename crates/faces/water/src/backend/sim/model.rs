//! The model of simulated devices: what they are and how long their kernels take. It is read from
//! the JSON file that `WTR_SIM` names.

use std::collections::BTreeMap;

use penstock_cl_sys::*;
use penstock_process::variable;
use serde::Deserialize;

use crate::command::{Arg, DeviceInfo, IndexSpace, Rank};
use crate::error::Error;

/// The model of a run. Every rank reads the same file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Description of the file for people.
    #[serde(default, rename = "about")]
    _about: serde::de::IgnoredAny,
    /// Whether results are computed.
    #[serde(default)]
    pub mode: Mode,
    /// Devices of each rank that `ranks` does not name.
    #[serde(default)]
    devices: Vec<DeviceModel>,
    /// Devices of single ranks, by the decimal number of the rank.
    #[serde(default)]
    ranks: BTreeMap<String, Vec<DeviceModel>>,
    /// Costs by kernel name; `*` stands for all other kernels.
    #[serde(default)]
    kernels: BTreeMap<String, Cost>,
    /// Time to build a kernel, in ms.
    #[serde(default)]
    build_ms: f64,
    /// Cost of a command for the root in simulated time, in µs. Computing itself takes no simulated
    /// time.
    #[serde(default)]
    pub root_command_us: f64,
    /// Cost of a command for the rank that runs it in simulated time, in µs.
    #[serde(default)]
    pub node_command_us: f64,
    /// Cost of a poll for each rank in simulated time, in µs. It is added to every nap.
    #[serde(default)]
    pub look_us: f64,
    /// Shortest nap of the ranks other than the root in simulated time, in µs. Each nap is an event
    /// of the simulation, and with 1024 ranks naps are most of the events. A longer nap makes a run
    /// seem slower, never faster.
    #[serde(default)]
    pub nap_us: f64,
}

/// Whether results are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Buffers have no bytes; only time passes.
    #[default]
    Hollow,
    /// Another back end computes results.
    Real,
}

/// One kind of device.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceModel {
    /// Number of such devices; 1 if it is missing.
    count: Option<usize>,
    name: String,
    vendor: String,
    /// `cpu`, `gpu` or `accelerator`.
    r#type: String,
    compute_units: u32,
    clock_mhz: u32,
    global_memory: u64,
    /// Floating-point operations per second, for costs that count them.
    flops: f64,
    /// Bytes per second between the device and its memory, for copies and for costs that count
    /// bytes.
    bytes_per_s: f64,
    /// Bytes per second between host and device in each direction. 0 means that the device works in
    /// the host's memory.
    transfer_bytes_per_s: f64,
    /// Latency of a transfer before its first byte, in µs.
    transfer_us: f64,
    /// Latency of a launch, in µs.
    launch_us: f64,
    /// Costs of kernels on this device, before those of the model.
    kernels: BTreeMap<String, Cost>,
}

/// How long a kernel runs: the sum of all given parts, except that `flops_per_item` and
/// `bytes_per_item` overlap, so that only the longer of both counts (roofline).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cost {
    /// Time for any launch, whatever its size.
    seconds: f64,
    ns_per_item: f64,
    flops_per_item: f64,
    bytes_per_item: f64,
    /// Pairs of work-items and seconds, in increasing order of work-items. The time is interpolated
    /// linearly, and extrapolated from the first two or the last two pairs.
    table: Vec<(f64, f64)>,
    /// Indices of integer arguments (4 or 8 bytes). The costs per item are multiplied by their
    /// values.
    times_args: Vec<usize>,
}

/// A model that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file cannot be read.
    #[error("cannot read the model of simulated devices {path}: {reason}")]
    File { path: String, reason: std::io::Error },
    /// The file is not a model.
    #[error("{path} is not a model of simulated devices: {reason}")]
    Form { path: String, reason: serde_json::Error },
    /// The model has no cost for a kernel.
    #[error("the model of simulated devices has no cost for kernel `{0}`, and none for `*`")]
    NoCost(String),
    /// An argument that a cost names is not an integer.
    #[error(
        "the cost of kernel `{kernel}` names argument {index}, which is not an integer of 4 or 8 bytes"
    )]
    Argument {
        kernel: String,
        /// Index of the argument.
        index: usize,
    },
    /// A cost needs a rate that the device does not have.
    #[error("the cost of kernel `{kernel}` counts {what}, but device `{device}` has no such rate")]
    Rate {
        kernel: String,
        /// Name of the device's field.
        what: &'static str,
        device: String,
    },
}

impl Model {
    /// Reads the model that `WTR_SIM` names. Returns `None` if it names none.
    ///
    /// # Errors
    /// The same as those of [`Self::read`].
    pub fn of_environment() -> Result<Option<Self>, Error> {
        variable::WTR_SIM
            .text()
            .map(|path| Self::read(&path))
            .transpose()
            .map_err(|error| Error::Invalid(error.to_string()))
    }

    /// Reads the model from a file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a model.
    pub fn read(path: &str) -> Result<Self, ModelError> {
        let text = std::fs::read_to_string(path)
            .map_err(|reason| ModelError::File { path: path.to_owned(), reason })?;
        Self::parse(&text).map_err(|reason| ModelError::Form { path: path.to_owned(), reason })
    }

    /// Parses the text of a model.
    ///
    /// # Errors
    /// The text is not a model.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns the devices of a rank, one entry for each device.
    pub fn devices(&self, rank: Rank) -> Vec<DeviceModel> {
        let kinds = self.ranks.get(&rank.to_string()).unwrap_or(&self.devices);
        kinds
            .iter()
            .flat_map(|kind| std::iter::repeat_n(kind.clone(), kind.count.unwrap_or(1)))
            .collect()
    }

    /// Returns how long a build takes.
    pub fn build_ns(&self) -> u64 {
        ns(self.build_ms * 1e-3)
    }

    /// Returns how long a launch takes on a device.
    ///
    /// # Errors
    /// The model has no cost for the kernel, or the cost does not fit the launch or the device.
    pub fn kernel_ns(
        &self,
        device: &DeviceModel,
        kernel: &str,
        range: &IndexSpace,
        args: &[Arg],
    ) -> Result<u64, ModelError> {
        let cost = [&device.kernels, &self.kernels].into_iter().find_map(|costs| costs.get(kernel));
        let any = || [&device.kernels, &self.kernels].into_iter().find_map(|costs| costs.get("*"));
        let cost = cost.or_else(any).ok_or_else(|| ModelError::NoCost(kernel.to_owned()))?;
        let items: f64 = range.global().iter().map(|count| as_f64(*count)).product();
        let mut work = items;
        for index in &cost.times_args {
            let value = args.get(*index).and_then(integer);
            work *= value
                .ok_or_else(|| ModelError::Argument { kernel: kernel.to_owned(), index: *index })?;
        }
        let rate = |amount: f64, rate: f64, what| match (amount > 0.0, rate > 0.0) {
            (false, _) => Ok(0.0),
            (true, true) => Ok(amount / rate),
            (true, false) => Err(ModelError::Rate {
                kernel: kernel.to_owned(),
                what,
                device: device.name.clone(),
            }),
        };
        let computing = rate(work * cost.flops_per_item, device.flops, "flops")?;
        let loading = rate(work * cost.bytes_per_item, device.bytes_per_s, "bytes_per_s")?;
        let seconds = cost.seconds
            + work * cost.ns_per_item * 1e-9
            + computing.max(loading)
            + in_table(&cost.table, items);
        Ok(ns(seconds + device.launch_us * 1e-6))
    }
}

impl DeviceModel {
    /// Returns how long a transfer between host and device takes; 0 if they share memory.
    pub fn transfer_ns(&self, bytes: u64) -> u64 {
        if self.transfer_bytes_per_s > 0.0 {
            ns(self.transfer_us * 1e-6 + as_f64(bytes) / self.transfer_bytes_per_s)
        } else {
            0
        }
    }

    /// Returns how long a copy within the device takes: each byte is read and written.
    pub fn copy_ns(&self, bytes: u64) -> u64 {
        if self.bytes_per_s > 0.0 { ns(2.0 * as_f64(bytes) / self.bytes_per_s) } else { 0 }
    }

    /// Returns the device information, as `clGetDeviceInfo` would.
    pub fn info(&self, hostname: &str) -> DeviceInfo {
        let text = |text: &str| [text.as_bytes(), b"\0"].concat();
        let kind = match self.r#type.as_str() {
            "gpu" => CL_DEVICE_TYPE_GPU,
            "accelerator" => CL_DEVICE_TYPE_ACCELERATOR,
            _ => CL_DEVICE_TYPE_CPU,
        };
        let memory = if self.global_memory == 0 { 32 << 30 } else { self.global_memory };
        let info = vec![
            (CL_DEVICE_TYPE, kind.to_le_bytes().to_vec()),
            (CL_DEVICE_VENDOR_ID, 0_u32.to_le_bytes().to_vec()),
            (CL_DEVICE_MAX_COMPUTE_UNITS, self.compute_units.max(1).to_le_bytes().to_vec()),
            (CL_DEVICE_MAX_WORK_GROUP_SIZE, 1024_u64.to_le_bytes().to_vec()),
            (CL_DEVICE_MAX_CLOCK_FREQUENCY, self.clock_mhz.to_le_bytes().to_vec()),
            (CL_DEVICE_MAX_MEM_ALLOC_SIZE, memory.to_le_bytes().to_vec()),
            (CL_DEVICE_GLOBAL_MEM_SIZE, memory.to_le_bytes().to_vec()),
            (CL_DEVICE_LOCAL_MEM_SIZE, (32_u64 << 10).to_le_bytes().to_vec()),
            (CL_DEVICE_AVAILABLE, 1_u32.to_le_bytes().to_vec()),
            (CL_DEVICE_NAME, text(if self.name.is_empty() { "simulated" } else { &self.name })),
            (CL_DEVICE_VENDOR, text(&self.vendor)),
            (CL_DEVICE_VERSION, text("OpenCL 3.0 simulated")),
        ];
        DeviceInfo {
            info,
            platform: "simulated".into(),
            platform_version: "OpenCL 3.0 simulated".into(),
            hostname: hostname.to_owned(),
            in_pool: None,
        }
    }
}

/// Returns the value of an argument that is an integer of 4 or 8 bytes.
fn integer(arg: &Arg) -> Option<f64> {
    let Arg::Bytes(bytes) = arg else { return None };
    match bytes.len() {
        4 => bytes.first_chunk::<4>().map(|bytes| f64::from(u32::from_ne_bytes(*bytes))),
        8 => bytes.first_chunk::<8>().map(|bytes| as_f64(u64::from_ne_bytes(*bytes))),
        _ => None,
    }
}

fn in_table(table: &[(f64, f64)], items: f64) -> f64 {
    let [first, .., last] = table else {
        return table.first().map_or(0.0, |(_, seconds)| *seconds);
    };
    let pair = table.windows(2).find(|pair| matches!(pair, [_, right] if items <= right.0));
    let ((left, below), (right, above)) = match pair.or_else(|| table.windows(2).last()) {
        Some([left, right]) => (*left, *right),
        _ => (*first, *last),
    };
    if right <= left {
        above
    } else {
        (below + (above - below) * (items - left) / (right - left)).max(0.0)
    }
}

/// Counts beyond 2^53 lose their last bits; a model is not that exact.
#[expect(clippy::cast_precision_loss)]
fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Converts seconds to ns. Negative values and NaN become 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn ns(seconds: f64) -> u64 {
    (seconds * 1e9).round().max(0.0) as u64
}
