//! What simulated devices are and how long their kernels take: read from the JSON file that `WTR_SIM` names.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::command::{Arg, DeviceInfo, Range, Rank};
use crate::error::Error;

/// The model of a run. The same file is read on every rank.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// What the file is, for people.
    #[serde(default, rename = "about")]
    _about: serde::de::IgnoredAny,
    /// Whether results are computed.
    #[serde(default)]
    pub mode: Mode,
    /// The devices of a rank that `ranks` does not name.
    #[serde(default)]
    devices: Vec<DeviceModel>,
    /// The devices of single ranks.
    #[serde(default)]
    ranks: BTreeMap<String, Vec<DeviceModel>>,
    /// Costs by kernel name; `*` is for all others.
    #[serde(default)]
    kernels: BTreeMap<String, Cost>,
    /// How long it takes to build a kernel, in ms.
    #[serde(default)]
    build_ms: f64,
    /// What a command costs the root, in µs, where time is simulated: there computing takes no time by itself.
    #[serde(default)]
    pub root_command_us: f64,
    /// What a command costs the rank that runs it, in µs, where time is simulated.
    #[serde(default)]
    pub node_command_us: f64,
    /// What a look for news costs each rank, in µs, where time is simulated: it is added to every nap.
    #[serde(default)]
    pub look_us: f64,
    /// Where time is simulated, ranks but the root look no more often than this, in µs: each nap is an event of the simulation, and
    /// of 1024 ranks they are most. It makes a run seem slower, never faster.
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
    /// Another back end computes them.
    Real,
}

/// One kind of device.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceModel {
    /// So many of them.
    count: Option<usize>,
    name: String,
    vendor: String,
    /// `cpu`, `gpu` or `accelerator`.
    r#type: String,
    compute_units: u32,
    clock_mhz: u32,
    global_memory: u64,
    /// Floating-point operations a second, for costs that count them.
    flops: f64,
    /// Bytes a second between the device and its memory, for costs that count them, and for copies.
    bytes_per_s: f64,
    /// Bytes a second between host and device in each direction; 0 is a device that works in the host's memory.
    transfer_bytes_per_s: f64,
    /// Before the first byte of a transfer, in µs.
    transfer_us: f64,
    /// Before a kernel starts, in µs.
    launch_us: f64,
    /// Costs that are this device's own.
    kernels: BTreeMap<String, Cost>,
}

/// How long a kernel runs. All parts that are given are added, but that `flops_per_item` and `bytes_per_item` overlap: the longer
/// of both counts (roofline).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cost {
    /// However large the launch.
    seconds: f64,
    /// For each work-item.
    ns_per_item: f64,
    /// For each work-item.
    flops_per_item: f64,
    /// For each work-item.
    bytes_per_item: f64,
    /// Work-items and seconds, by rising work-items; between them linear, outside them the nearest two go on.
    table: Vec<(f64, f64)>,
    /// Indices of integer arguments (4 or 8 bytes): what is "per item" is multiplied by their values.
    times_args: Vec<usize>,
}

/// A model that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file cannot be read.
    #[error("cannot read the model of simulated devices {path}: {reason}")]
    File {
        /// Which.
        path: String,
        /// Why.
        reason: std::io::Error,
    },
    /// The file is no model.
    #[error("{path} is no model of simulated devices: {reason}")]
    Form {
        /// Which.
        path: String,
        /// What is wrong.
        reason: serde_json::Error,
    },
    /// Nothing is known of a kernel.
    #[error("the model of simulated devices has no cost for kernel `{0}`, and none for `*`")]
    NoCost(String),
    /// An argument that a cost names is no number.
    #[error(
        "the cost of kernel `{kernel}` names argument {index}, which is no integer of 4 or 8 bytes"
    )]
    Argument {
        /// Which.
        kernel: String,
        /// Which of its arguments.
        index: usize,
    },
    /// A cost needs a rate that the device does not have.
    #[error("the cost of kernel `{kernel}` counts {what}, but device `{device}` has no such rate")]
    Rate {
        /// Which.
        kernel: String,
        /// The field of the device.
        what: &'static str,
        /// Which device.
        device: String,
    },
}

/// Names the file of the model. Where it is set, devices are simulated.
pub const VARIABLE: &str = "WTR_SIM";

impl Model {
    /// The model that `WTR_SIM` names; none if it names none.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn of_environment() -> Result<Option<Self>, Error> {
        let path = std::env::var(VARIABLE).ok().filter(|path| !path.is_empty());
        path.map(|path| Self::read(&path))
            .transpose()
            .map_err(|error| Error::Invalid(error.to_string()))
    }

    /// Reads it.
    ///
    /// # Errors
    /// A file that cannot be read, or is no model.
    pub fn read(path: &str) -> Result<Self, ModelError> {
        let text = std::fs::read_to_string(path)
            .map_err(|reason| ModelError::File { path: path.to_owned(), reason })?;
        Self::parse(&text).map_err(|reason| ModelError::Form { path: path.to_owned(), reason })
    }

    /// From its text.
    ///
    /// # Errors
    /// Text that is no model.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The devices of a rank, each for itself.
    pub fn devices(&self, rank: Rank) -> Vec<DeviceModel> {
        let kinds = self.ranks.get(&rank.to_string()).unwrap_or(&self.devices);
        kinds
            .iter()
            .flat_map(|kind| std::iter::repeat_n(kind.clone(), kind.count.unwrap_or(1)))
            .collect()
    }

    /// How long a build takes.
    pub fn build_ns(&self) -> u64 {
        ns(self.build_ms * 1e-3)
    }

    /// How long this launch takes on this device.
    ///
    /// # Errors
    /// A model that does not say.
    pub fn kernel_ns(
        &self,
        device: &DeviceModel,
        kernel: &str,
        range: &Range,
        args: &[Arg],
    ) -> Result<u64, ModelError> {
        let cost = [&device.kernels, &self.kernels].into_iter().find_map(|costs| costs.get(kernel));
        let any = || [&device.kernels, &self.kernels].into_iter().find_map(|costs| costs.get("*"));
        let cost = cost.or_else(any).ok_or_else(|| ModelError::NoCost(kernel.to_owned()))?;
        let dims = (range.dims as usize).min(range.global.len());
        let items: f64 = range.global.iter().take(dims).map(|count| as_f64(*count)).product();
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
    /// How long bytes take between host and device; 0 where both are one.
    pub fn transfer_ns(&self, bytes: u64) -> u64 {
        if self.transfer_bytes_per_s > 0.0 {
            ns(self.transfer_us * 1e-6 + as_f64(bytes) / self.transfer_bytes_per_s)
        } else {
            0
        }
    }

    /// How long a copy within the device takes: each byte is read and written.
    pub fn copy_ns(&self, bytes: u64) -> u64 {
        if self.bytes_per_s > 0.0 { ns(2.0 * as_f64(bytes) / self.bytes_per_s) } else { 0 }
    }

    /// What it says of itself, as `clGetDeviceInfo` would.
    pub fn info(&self, hostname: &str) -> DeviceInfo {
        let text = |text: &str| [text.as_bytes(), b"\0"].concat();
        let kind: u64 = match self.r#type.as_str() {
            "gpu" => 4,
            "accelerator" => 8,
            _ => 2,
        };
        let memory = if self.global_memory == 0 { 32 << 30 } else { self.global_memory };
        let info = vec![
            (0x1000, kind.to_le_bytes().to_vec()),  // CL_DEVICE_TYPE
            (0x1001, 0_u32.to_le_bytes().to_vec()), // CL_DEVICE_VENDOR_ID
            (0x1002, self.compute_units.max(1).to_le_bytes().to_vec()), // CL_DEVICE_MAX_COMPUTE_UNITS
            (0x1004, 1024_u64.to_le_bytes().to_vec()), // CL_DEVICE_MAX_WORK_GROUP_SIZE
            (0x100C, self.clock_mhz.to_le_bytes().to_vec()), // CL_DEVICE_MAX_CLOCK_FREQUENCY
            (0x1010, memory.to_le_bytes().to_vec()),   // CL_DEVICE_MAX_MEM_ALLOC_SIZE
            (0x101F, memory.to_le_bytes().to_vec()),   // CL_DEVICE_GLOBAL_MEM_SIZE
            (0x1023, (32_u64 << 10).to_le_bytes().to_vec()), // CL_DEVICE_LOCAL_MEM_SIZE
            (0x1027, 1_u32.to_le_bytes().to_vec()),    // CL_DEVICE_AVAILABLE
            (0x102B, text(if self.name.is_empty() { "simulated" } else { &self.name })), // CL_DEVICE_NAME
            (0x102C, text(&self.vendor)),           // CL_DEVICE_VENDOR
            (0x102F, text("OpenCL 3.0 simulated")), // CL_DEVICE_VERSION
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

/// The value of an argument that is an integer.
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

/// Counts beyond 2^53 lose their last bits: a model is not that exact.
#[expect(clippy::cast_precision_loss)]
fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Seconds as ns; what is negative or no number is 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn ns(seconds: f64) -> u64 {
    (seconds * 1e9).round().max(0.0) as u64
}
