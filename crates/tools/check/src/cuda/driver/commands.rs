//! Commands and graphs.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

use penstock_cuda_sys::driver::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CUDA_MEMCPY2D, CUfunction, CUstream,
};

use super::{Driver, NO_TIMING, NON_BLOCKING, UNKNOWN, call, code, raw, run_again, run_once};
use crate::cuda::backend::{Caller, Command, PeerSide, Place};
use crate::cuda::plan::{Kernel, Rows};

/// Number of threads per block.
const BLOCK: c_uint = 64;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: calls of other threads do not affect the capture.
const THREAD_LOCAL: c_uint = 1;

impl Driver {
    /// Enqueues a command in a stream, or calls the synchronous form if there is no stream. `kept`
    /// collects the data pointers of a graph's host functions.
    pub(super) fn command(
        &self,
        by: Caller,
        stream: Option<CUstream>,
        command: &Command,
        kept: Option<&mut Vec<usize>>,
    ) -> Result<(), i32> {
        code(match command {
            Command::Copy { to, from, len } => return self.copy(stream, *to, *from, *len),
            Command::Copy2D { to, from, rows } => {
                let copy = self.rows(*to, *from, rows)?;
                match stream {
                    Some(stream) => call!(self, cuMemcpy2DAsync_v2(&raw const copy, stream)),
                    None => call!(self, cuMemcpy2DUnaligned_v2(&raw const copy)),
                }
            }
            Command::Peer { to, from, len } => {
                let address = |side: &PeerSide| (side.mem.0 + side.offset) as u64;
                let (target, source) = (address(to), address(from));
                let (there, here) = (raw(to.context), raw(from.context));
                match stream {
                    Some(stream) => {
                        call!(self, cuMemcpyPeerAsync(target, there, source, here, *len, stream))
                    }
                    None => call!(self, cuMemcpyPeer(target, there, source, here, *len)),
                }
            }
            Command::Fill { mem, offset, len, unit, value } => {
                return self.fill(stream, (mem.0 + offset) as u64, *len / *unit, *unit, *value);
            }
            Command::Fill2D { mem, offset, rows, value } => {
                let (to, words) = ((mem.0 + offset) as u64, rows.width / 4);
                let Rows { height, to_pitch, .. } = *rows;
                match stream {
                    Some(stream) => {
                        call!(self, cuMemsetD2D32Async(to, to_pitch, *value, words, height, stream))
                    }
                    None => call!(self, cuMemsetD2D32_v2(to, to_pitch, *value, words, height)),
                }
            }
            Command::Launch { .. } => {
                return self.launch_kernel(by, stream.ok_or(UNKNOWN)?, command);
            }
            Command::Function(function) => {
                let data = Box::into_raw(Box::new(function.clone()));
                let run: unsafe extern "C" fn(*mut c_void) =
                    if kept.is_some() { run_again } else { run_once };
                if let Some(kept) = kept {
                    kept.push(data as usize);
                }
                call!(self, cuLaunchHostFunc(stream.ok_or(UNKNOWN)?, Some(run), data.cast()))
            }
        })
    }

    fn copy(
        &self,
        stream: Option<CUstream>,
        to: Place,
        from: Place,
        len: usize,
    ) -> Result<(), i32> {
        code(match (to, from) {
            (Place::Device { mem, offset }, Place::Host(at)) => {
                let (to, from) = ((mem.0 + offset) as u64, self.address(at, len)?.cast_const());
                match stream {
                    Some(stream) => call!(self, cuMemcpyHtoDAsync_v2(to, from, len, stream)),
                    None => call!(self, cuMemcpyHtoD_v2(to, from, len)),
                }
            }
            (Place::Host(at), Place::Device { mem, offset }) => {
                let (to, from) = (self.address(at, len)?, (mem.0 + offset) as u64);
                match stream {
                    Some(stream) => call!(self, cuMemcpyDtoHAsync_v2(to, from, len, stream)),
                    None => call!(self, cuMemcpyDtoH_v2(to, from, len)),
                }
            }
            (Place::Device { mem, offset }, Place::Device { mem: source, offset: start }) => {
                let (to, from) = ((mem.0 + offset) as u64, (source.0 + start) as u64);
                match stream {
                    Some(stream) => call!(self, cuMemcpyDtoDAsync_v2(to, from, len, stream)),
                    None => call!(self, cuMemcpyDtoD_v2(to, from, len)),
                }
            }
            (Place::Host(_), Place::Host(_)) => return Err(UNKNOWN),
        })
    }

    fn rows(&self, to: Place, from: Place, rows: &Rows) -> Result<CUDA_MEMCPY2D, i32> {
        let side = |place: Place, pitch: usize| {
            Ok::<_, i32>(match place {
                Place::Host(at) => (CU_MEMORYTYPE_HOST, self.address(at, rows.span(pitch))?, 0),
                Place::Device { mem, offset } => {
                    (CU_MEMORYTYPE_DEVICE, null_mut(), (mem.0 + offset) as u64)
                }
            })
        };
        let (to_kind, to_host, to_device) = side(to, rows.to_pitch)?;
        let (from_kind, from_host, from_device) = side(from, rows.from_pitch)?;
        // SAFETY: zeros are valid for every field of the structure.
        let mut copy: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
        (copy.dstMemoryType, copy.dstHost, copy.dstDevice) = (to_kind, to_host, to_device);
        (copy.srcMemoryType, copy.srcHost, copy.srcDevice) = (from_kind, from_host, from_device);
        (copy.dstPitch, copy.srcPitch) = (rows.to_pitch, rows.from_pitch);
        (copy.WidthInBytes, copy.Height) = (rows.width, rows.height);
        Ok(copy)
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "a fill of small units takes the low bits of the value"
    )]
    fn fill(
        &self,
        stream: Option<CUstream>,
        to: u64,
        count: usize,
        unit: usize,
        value: u32,
    ) -> Result<(), i32> {
        code(match (unit, stream) {
            (1, Some(stream)) => call!(self, cuMemsetD8Async(to, value as u8, count, stream)),
            (1, None) => call!(self, cuMemsetD8_v2(to, value as u8, count)),
            (2, Some(stream)) => call!(self, cuMemsetD16Async(to, value as u16, count, stream)),
            (2, None) => call!(self, cuMemsetD16_v2(to, value as u16, count)),
            (_, Some(stream)) => call!(self, cuMemsetD32Async(to, value, count, stream)),
            (_, None) => call!(self, cuMemsetD32_v2(to, value, count)),
        })
    }

    fn launch_kernel(&self, by: Caller, stream: CUstream, command: &Command) -> Result<(), i32> {
        let Command::Launch { kernel, a, b, count, seed, spin } = command else {
            return Err(UNKNOWN);
        };
        let number = Kernel::ALL.iter().position(|it| it == kernel).ok_or(UNKNOWN)?;
        let function = {
            let contexts = self.contexts.lock();
            let known = contexts.values().find(|it| it.context == by.context).ok_or(UNKNOWN)?;
            raw(known.kernels[number])
        };
        let (mut a, mut b) = ((a.0.0 + a.1) as u64, b.map_or(0, |b| (b.0.0 + b.1) as u64));
        let mut words = u32::try_from(*count).map_err(|_| UNKNOWN)?;
        let (mut seed, mut spin) = (*seed, *spin);
        let pointer = |value: *mut u32| value.cast::<c_void>();
        let (a, b) = ((&raw mut a).cast::<c_void>(), (&raw mut b).cast::<c_void>());
        let (words, seed) = (pointer(&raw mut words), pointer(&raw mut seed));
        let mut parameters = match kernel {
            Kernel::Mix => [a, b, words, seed],
            Kernel::Put | Kernel::Slow => [a, words, seed, pointer(&raw mut spin)],
        };
        let blocks = c_uint::try_from(*count).map_err(|_| UNKNOWN)?.div_ceil(BLOCK);
        self.start(function, [blocks, BLOCK], stream, &mut parameters)
    }

    /// Launches a kernel with this number of blocks, each with this number of threads.
    pub(super) fn start(
        &self,
        function: CUfunction,
        [blocks, threads]: [c_uint; 2],
        stream: CUstream,
        parameters: &mut [*mut c_void],
    ) -> Result<(), i32> {
        let (values, none) = (parameters.as_mut_ptr(), null_mut());
        code(call!(
            self,
            cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, values, none)
        ))
    }

    /// Captures commands in streams of its own and instantiates a graph from them.
    pub(super) fn capture(
        &self,
        by: Caller,
        parts: &[(bool, Command)],
        kept: &mut Vec<usize>,
    ) -> Result<usize, i32> {
        let (mut first, mut second) = (null_mut(), null_mut());
        let (mut fork, mut join) = (null_mut(), null_mut());
        code(call!(self, cuStreamCreate(&raw mut first, NON_BLOCKING)))?;
        code(call!(self, cuStreamCreate(&raw mut second, NON_BLOCKING)))?;
        code(call!(self, cuEventCreate(&raw mut fork, NO_TIMING)))?;
        code(call!(self, cuEventCreate(&raw mut join, NO_TIMING)))?;
        code(call!(self, cuStreamBeginCapture_v2(first, THREAD_LOCAL)))?;
        let mut forked = false;
        for (beside, command) in parts {
            if *beside && !forked {
                forked = true;
                code(call!(self, cuEventRecord(fork, first)))?;
                code(call!(self, cuStreamWaitEvent(second, fork, 0)))?;
            }
            let stream = if *beside { second } else { first };
            self.command(by, Some(stream), command, Some(&mut *kept))?;
        }
        if forked {
            code(call!(self, cuEventRecord(join, second)))?;
            code(call!(self, cuStreamWaitEvent(first, join, 0)))?;
        }
        let (mut graph, mut ready) = (null_mut(), null_mut());
        code(call!(self, cuStreamEndCapture(first, &raw mut graph)))?;
        code(call!(self, cuGraphInstantiateWithFlags(&raw mut ready, graph, 0)))?;
        code(call!(self, cuGraphDestroy(graph)))?;
        code(call!(self, cuEventDestroy_v2(fork)))?;
        code(call!(self, cuEventDestroy_v2(join)))?;
        code(call!(self, cuStreamDestroy_v2(first)))?;
        code(call!(self, cuStreamDestroy_v2(second)))?;
        Ok(ready.expose_provenance())
    }
}
