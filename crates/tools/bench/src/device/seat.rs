//! The devices that take part: CPU devices with kernels in OpenCL C, and GPUs of CUDA's own driver
//! with the same kernels in PTX.

use std::sync::Arc;

use penstock_cl_sys::CL_PROGRAM_BUILD_LOG;
use penstock_client::{
    ArgValue, Context, Device, Heap, HeapLaunch, IndexSpace, Kernel, Pool, Program, Queue,
};
use penstock_wire::{Status, cuda};

use super::ticks;
use crate::error::{Error, Result};
use crate::plan::Kind;

/// The source of the kernels.
pub(super) const SOURCE: &str = include_str!("kernels.cl");
/// The same kernels for GPUs, made by `tools/cuda/bench-kernels.sh`. CUDA requires the final NUL.
const PTX: &str = concat!(include_str!("kernels.ptx"), "\0");
/// Threads that send together on a GPU. Eight warps take turns with 64 bytes of a message each,
/// which keeps more stores under way than the bus carries.
const GPU_THREADS: u64 = 256;
/// Ticks of a GPU's clock per microsecond. The clock counts nanoseconds.
const GPU_TICKS_PER_US: f64 = 1000.0;

#[derive(Debug)]
pub(super) struct Seat {
    pub(super) device: Arc<Device>,
    pub(super) context: Arc<Context>,
    pub(super) queue: Arc<Queue>,
    kernels: [Arc<Kernel>; 3],
}

impl Seat {
    /// Returns one seat per node: `gpus` GPUs of the first node, then a CPU device of each further
    /// node.
    pub(super) fn take(pool: &Pool, gpus: u32) -> Result<Vec<Self>> {
        let gpus = gpus as usize;
        let mut devices = Vec::new();
        for (index, node) in pool.nodes().iter().enumerate() {
            let found = if index < gpus {
                let of = pool.nodes().first().unwrap_or(node).devices();
                of.iter().filter(|device| device.is_cuda()).nth(index)
            } else {
                node.devices().iter().find(|device| device.shares_host_memory())
            };
            let found = found.cloned().ok_or_else(|| Error::Absent(absent(index, gpus)))?;
            devices.push(found);
        }
        let cpus: Vec<_> = devices.iter().filter(|device| !device.is_cuda()).cloned().collect();
        let together = if cpus.is_empty() { None } else { Some(on_cpus(&cpus)?) };
        let seat = |device: Arc<Device>| {
            let (context, kernels) = match &together {
                Some(of) if !device.is_cuda() => of.clone(),
                _ => on_gpu(&device)?,
            };
            let queue = Queue::new(&context, &device, 0, 0)?;
            Ok(Self { device, context, queue, kernels })
        };
        devices.into_iter().map(seat).collect()
    }

    pub(super) fn kernel(&self, kind: Kind) -> &Arc<Kernel> {
        let [ping_pong, bandwidth, meet] = &self.kernels;
        match kind {
            Kind::PingPong => ping_pong,
            Kind::Bandwidth => bandwidth,
            Kind::Barrier => meet,
        }
    }

    /// Sets a kernel's arguments: the heap, then the numbers.
    pub(super) fn set(&self, kind: Kind, heap: &Arc<Heap>, numbers: &[u64]) {
        let kernel = self.kernel(kind);
        if let Some(address) = heap.address_on(&self.device) {
            let words = std::iter::once(&address).chain(numbers);
            let params: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
            kernel.set_bytes(cuda::ARG_PARAMS as usize, &params);
            kernel.set(cuda::ARG_HEAP as usize, ArgValue::Heap(heap.clone()));
            return;
        }
        kernel.set(0, ArgValue::Heap(heap.clone()));
        for (index, number) in (1..).zip(numbers) {
            kernel.set(index, ArgValue::Bytes(number.to_ne_bytes().as_slice().into()));
        }
    }

    /// Returns this seat's part of a launch of its kernel of this kind.
    pub(super) fn launch(&self, kind: Kind) -> HeapLaunch<'_> {
        HeapLaunch { queue: &self.queue, kernel: self.kernel(kind), space: self.space() }
    }

    /// Returns the work-items of a kernel: one work-group.
    fn space(&self) -> IndexSpace {
        let size = if self.device.is_cuda() { GPU_THREADS } else { 1 };
        IndexSpace::line(size, Some(size))
    }

    /// Returns the ticks of the clock that the kernels read, or `None` if there is no clock.
    pub(super) fn ticks_per_us(&self) -> Option<f64> {
        if self.device.is_cuda() { Some(GPU_TICKS_PER_US) } else { ticks::per_us() }
    }
}

/// A context, and its kernels.
type Kernels = (Arc<Context>, [Arc<Kernel>; 3]);

fn on_cpus(devices: &[Arc<Device>]) -> Result<Kernels> {
    let context = Context::new(devices)?;
    let program = Program::with_source(&context, SOURCE.as_bytes())?;
    built(&program, devices)?;
    Ok((context, kernels(&program)?))
}

fn on_gpu(device: &Arc<Device>) -> Result<Kernels> {
    let devices = std::slice::from_ref(device);
    let context = Context::new(devices)?;
    let (program, statuses) = Program::with_binaries(&context, &[(device, PTX.as_bytes())])?;
    if let Some(status) = statuses.iter().find(|status| **status != Status::OK) {
        return Err(Error::Build(format!("the GPU's module: {status}")));
    }
    built(&program, devices)?;
    Ok((context, kernels(&program)?))
}

fn built(program: &Arc<Program>, devices: &[Arc<Device>]) -> Result<()> {
    program.build(devices, "").map_err(|error| {
        let log =
            devices.first().and_then(|device| program.build_info(device, CL_PROGRAM_BUILD_LOG));
        let log = String::from_utf8_lossy(&log.unwrap_or_default())
            .trim_end_matches('\0')
            .trim()
            .replace('\n', "; ");
        Error::Build(format!("{error}: {log}"))
    })
}

fn kernels(program: &Arc<Program>) -> Result<[Arc<Kernel>; 3]> {
    let kernel = |name: &str| {
        let found = program.kernels().into_iter().find(|kernel| kernel.name == name);
        let found = found.ok_or_else(|| Error::Build(format!("there is no kernel {name}")))?;
        Ok::<_, Error>(Kernel::new(program, found)?)
    };
    Ok([kernel("ping_pong")?, kernel("bandwidth")?, kernel("meet")?])
}

fn absent(index: usize, gpus: usize) -> String {
    if index < gpus {
        return format!(
            "{gpus} GPUs of CUDA's own driver are required, but a worker here has {index} (with \
             PENSTOCK_CUDA_EACH=2 each counts as two)"
        );
    }
    "no device of this host computes on the host's memory (pocl-opencl-icd has one)".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what the tool `cksum` prints for these bytes.
    fn cksum(bytes: &[u8]) -> u32 {
        let length = bytes.len();
        let lengths = (0..8)
            .map(|byte| length >> (8 * byte))
            .take_while(|rest| *rest > 0)
            .map(|rest| rest & 0xff);
        let all = bytes.iter().copied().chain(lengths.map(|byte| u8::try_from(byte).unwrap()));
        !all.fold(0, |sum: u32, byte| {
            (0..8).fold(sum ^ (u32::from(byte) << 24), |sum, _| {
                sum << 1 ^ if sum >> 31 == 1 { 0x04C1_1DB7 } else { 0 }
            })
        })
    }

    #[test]
    fn the_kernels_for_gpus_are_made_of_the_same_source() {
        let sources = [SOURCE, penstock_client::HEADER].concat();
        let first = PTX.lines().next().unwrap();
        let known = first.rsplit(' ').next().unwrap();
        assert_eq!(known, cksum(sources.as_bytes()).to_string(), "run tools/cuda/bench-kernels.sh");
        for name in ["ping_pong", "bandwidth", "meet"] {
            assert!(PTX.contains(&format!(".visible .entry {name}(")), "{name}");
        }
    }
}
