//! Device code: what a program loads, and what is kept of it for a device.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use penstock_client::Program as PoolProgram;
use penstock_cuda_sys::driver::*;
use penstock_process::{Lock, notice};
use penstock_ptx::fatbin::{self, ImageKind};
use penstock_ptx::ir::Module;
use penstock_ptx::translate::{Argument, Translation};
use penstock_wire::describe::KernelDescription;
use rustc_hash::FxHashMap;

use super::block::Arena;
use super::capability::CAPABILITY_NUMBER;

/// Number of translated modules that a device keeps after they are unloaded. So a program that
/// loads and unloads a library of kernels in turn compiles it only once. Each takes about 100 KB.
const KEPT_MAX: usize = 64;

/// Why a module was not loaded.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: CUresult,
    /// Text for the program's error log.
    pub(crate) log: String,
}

impl Refusal {
    pub(super) fn new(code: CUresult, log: impl fmt::Display) -> Self {
        Self { code, log: log.to_string() }
    }
}

impl From<CUresult> for Refusal {
    fn from(code: CUresult) -> Self {
        Self { code, log: String::new() }
    }
}

/// Device code, parsed and translated for one device.
pub(crate) struct Program {
    pub(super) text: Box<str>,
    pub(crate) module: Module,
    /// Whether a kernel may print.
    pub(crate) prints: bool,
    /// Whether a kernel may fault.
    pub(crate) stops: bool,
    pub(super) translation: Lock<Option<(Vec<Arena>, Translation)>>,
    pub(super) build: Lock<Option<Arc<BuiltProgram>>>,
    /// The build for launches with a heap among their parameters.
    pub(super) build_with_heap: Lock<Option<Arc<BuiltProgram>>>,
}

/// A program of the pool, made for certain arenas.
pub(crate) struct BuiltProgram {
    pub(crate) arenas: Vec<Arena>,
    pub(crate) program: Arc<PoolProgram>,
    /// Key: name in PTX.
    pub(crate) kernels: FxHashMap<String, BuiltKernel>,
}

pub(crate) struct BuiltKernel {
    pub(crate) description: Arc<KernelDescription>,
    /// Its arguments, in their order.
    pub(crate) arguments: Vec<Argument>,
    /// Local memory that its shared memory takes in addition to the launch's, in bytes.
    pub(crate) local_bytes: u32,
    /// Offset, behind all parameters, at which it wants the launch's dynamic shared memory in
    /// bytes.
    pub(crate) dynamic_bytes_at: Option<u32>,
}

/// Returns the PTX of a module. Of several, takes the one for the highest architecture that the
/// device supports, otherwise the lowest.
///
/// # Errors
/// `CUDA_ERROR_INVALID_IMAGE` if the bytes are not a module, `CUDA_ERROR_NO_BINARY_FOR_GPU` if the
/// module has no PTX.
pub(crate) fn ptx_of(bytes: &[u8]) -> Result<Box<str>, Refusal> {
    let images =
        fatbin::images(bytes).map_err(|error| Refusal::new(CUDA_ERROR_INVALID_IMAGE, error))?;
    let own = u32::try_from(CAPABILITY_NUMBER).unwrap_or(0);
    let ptx = || images.iter().filter(|image| image.kind == ImageKind::Ptx);
    let best = ptx().filter(|image| image.arch <= own).max_by_key(|image| image.arch);
    let Some(image) = best.or_else(|| ptx().min_by_key(|image| image.arch)) else {
        let text = "a module has only machine code; build it with PTX (nvcc: -gencode \
                    arch=compute_75,code=compute_75; numba-cuda and cuda.core: without \
                    nvidia-nvjitlink)";
        notice::once_about("no PTX", format_args!("{text}"));
        return Err(Refusal::new(CUDA_ERROR_NO_BINARY_FOR_GPU, text));
    };
    let text = image.bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text =
        std::str::from_utf8(text).map_err(|error| Refusal::new(CUDA_ERROR_INVALID_PTX, error))?;
    Ok(text.into())
}

impl Program {
    /// Wraps device code that CUDA's own driver has loaded.
    pub(super) fn of_driver(module: Module, build: BuiltProgram) -> Self {
        // Native kernels accept a heap without another build.
        let build = Arc::new(build);
        Self {
            text: Box::default(),
            module,
            prints: false,
            stops: false,
            translation: Lock::default(),
            build: Lock::new(Some(build.clone())),
            build_with_heap: Lock::new(Some(build)),
        }
    }
}

/// Device code that a device has used, the latest last.
#[derive(Default)]
pub(crate) struct ProgramCache(Lock<VecDeque<Arc<Program>>>);

impl ProgramCache {
    /// Returns the device code of a module, if the device has used it lately.
    pub(super) fn find(&self, text: &str) -> Option<Arc<Program>> {
        let mut kept = self.0.lock();
        let index = kept.iter().position(|program| *program.text == *text)?;
        let program = kept.remove(index)?;
        kept.push_back(program.clone());
        Some(program)
    }

    /// Keeps device code for later loads of the same module, instead of the oldest.
    pub(super) fn keep(&self, program: &Arc<Program>) {
        let mut kept = self.0.lock();
        kept.push_back(program.clone());
        let _oldest = if kept.len() > KEPT_MAX { kept.pop_front() } else { None };
        drop(kept);
    }
}
