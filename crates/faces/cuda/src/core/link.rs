//! Linking as far as it needs no machine code: modules of PTX become one.

use std::time::Instant;

use penstock_cuda_sys::driver::*;
use penstock_process::{Lock, log};
use penstock_ptx::link::{Input, Linked, link};

use super::device::Device;
use super::program::{Refusal, ptx_of};
use crate::edge::{CuResult, Logs, has_handle};

pub(crate) struct Link {
    number: u64,
    /// Whether the device has a driver that may read machine code of the program instead.
    is_native: bool,
    logs: Lock<Logs>,
    inputs: Lock<Vec<Input>>,
    /// The result of `cuLinkComplete`, with a terminating 0. It lives as long as the link.
    output: Lock<Option<Box<[u8]>>>,
}

has_handle!(Link: CUlinkState_st, CUDA_ERROR_INVALID_HANDLE);

impl Link {
    pub(crate) fn new(number: u64, device: &Device, logs: Logs) -> Self {
        let (is_native, logs) = (device.is_native, Lock::new(logs));
        Self { number, is_native, logs, inputs: Lock::default(), output: Lock::default() }
    }

    /// Implements `cuLinkAddData`: accepts PTX, or a fat binary with PTX. `name` stands for it in
    /// messages.
    pub(crate) fn add(&self, kind: u32, name: Option<String>, bytes: &[u8]) -> CuResult {
        self.told(|| {
            if self.output.lock().is_some() {
                let text = "the linker is complete and takes no more input";
                return Err(Refusal::new(CUDA_ERROR_INVALID_VALUE, text));
            }
            let mut inputs = self.inputs.lock();
            let name = name.unwrap_or_else(|| format!("input {}", inputs.len() + 1));
            let text = text_of(kind, bytes).map_err(|error| {
                self.settled(Refusal { log: format!("{name}: {}", error.log), ..error })
            })?;
            let input = Input::read(name.clone(), text).map_err(|error| {
                let log = format_args!("{name}: {error}");
                self.settled(Refusal::new(CUDA_ERROR_INVALID_PTX, log))
            })?;
            inputs.push(input);
            Ok(())
        })
    }

    /// Implements `cuLinkComplete`: returns address and size of the result.
    pub(crate) fn complete(&self) -> CuResult<(*const u8, usize)> {
        self.told(|| {
            let inputs = self.inputs.lock();
            let mut output = self.output.lock();
            if output.is_none() {
                let linked = linked(&inputs).map_err(|refusal| self.settled(refusal))?;
                self.logs.lock().note(&format!(
                    "info    : {} inputs linked, {} names told apart, {} declarations merged",
                    inputs.len(),
                    linked.renamed,
                    linked.merged,
                ));
                *output = Some([linked.text.as_bytes(), &[0]].concat().into());
            }
            let bytes = output.as_ref().ok_or(CUDA_ERROR_UNKNOWN)?;
            Ok((bytes.as_ptr(), bytes.len()))
        })
    }

    /// Returns what the program is told about PTX that this linker cannot read or link. Where a
    /// driver may read machine code, the runtime library then loads that, if there is any.
    fn settled(&self, refusal: Refusal) -> Refusal {
        match refusal.code {
            CUDA_ERROR_INVALID_PTX if self.is_native => {
                Refusal { code: CUDA_ERROR_NO_BINARY_FOR_GPU, ..refusal }
            }
            _ => refusal,
        }
    }

    /// Does a part of the link, and tells the program what was wrong and how long it took. "The
    /// options CU_JIT_WALL_TIME, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, and
    /// CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES will accumulate data until the CUlinkState is destroyed."
    fn told<T>(&self, work: impl FnOnce() -> Result<T, Refusal>) -> CuResult<T> {
        let start = Instant::now();
        let result = work();
        let mut logs = self.logs.lock();
        logs.spend(start.elapsed());
        if let Err(refusal) = &result
            && !logs.error(&refusal.log)
        {
            log!(Warn, "modules that cannot be linked: {}", refusal.log);
        }
        logs.settle();
        result.map_err(|refusal| refusal.code)
    }
}

/// Returns the PTX of an input.
fn text_of(kind: u32, bytes: &[u8]) -> Result<Box<str>, Refusal> {
    match kind {
        // The result of a link is PTX, too, and programs call it a cubin.
        CU_JIT_INPUT_CUBIN | CU_JIT_INPUT_PTX | CU_JIT_INPUT_FATBINARY => ptx_of(bytes),
        CU_JIT_INPUT_OBJECT | CU_JIT_INPUT_LIBRARY | CU_JIT_INPUT_NVVM => {
            let text = "the linker reads PTX and fat binaries with PTX, but no objects, archives \
                        and LTO-IR; build PTX (nvcc: -ptx, or -fatbin with -gencode \
                        arch=compute_75,code=compute_75)";
            Err(Refusal::new(CUDA_ERROR_NO_BINARY_FOR_GPU, text))
        }
        _ => Err(Refusal::new(CUDA_ERROR_INVALID_VALUE, "this kind of input does not exist")),
    }
}

fn linked(inputs: &[Input]) -> Result<Linked, Refusal> {
    if inputs.is_empty() {
        return Err(Refusal::new(CUDA_ERROR_INVALID_IMAGE, "no module was added to the linker"));
    }
    let invalid = |error: &dyn std::fmt::Display| Refusal::new(CUDA_ERROR_INVALID_PTX, error);
    let linked = link(inputs).map_err(|error| invalid(&error))?;
    // Together the modules may exceed limits that each keeps.
    penstock_ptx::module::parse(&linked.text).map_err(|error| invalid(&error))?;
    Ok(linked)
}
