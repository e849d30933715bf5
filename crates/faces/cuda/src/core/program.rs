//! Device code: what a program loads, and what is kept of it for a device.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use penstock_client::Program as PoolProgram;
use penstock_cuda_sys::driver::*;
use penstock_process::{Lock, notice};
use penstock_ptx::fatbin::{self, ImageKind};
use penstock_ptx::ir::Module;
use penstock_ptx::translate::Argument;
use penstock_wire::describe::KernelDescription;
use rustc_hash::FxHashMap;

use super::block::Arena;
use super::capability::CAPABILITY_NUMBER;
use crate::edge::CuResult;

/// Number of modules that a device keeps after they are unloaded. So a program that loads and
/// unloads a library of kernels in turn compiles it only once. Each takes about 100 KB.
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

/// Device code of one module, parsed, and what of it is built for one device.
pub(crate) struct Program {
    pub(super) text: Box<str>,
    pub(crate) module: Module,
    /// Whether a kernel may print.
    pub(crate) prints: bool,
    /// Whether a kernel may allocate or free memory.
    pub(crate) allocates: bool,
    pub(super) parts: Vec<Part>,
}

/// Kernels of a module that are translated and built together, when one of them is first used.
pub(super) struct Part {
    /// Indices of its kernels in the module.
    pub(super) entries: Range<usize>,
    pub(super) build: Lock<Option<Arc<BuiltPart>>>,
    /// The build for launches with a heap among their parameters.
    pub(super) build_with_heap: Lock<Option<Arc<BuiltPart>>>,
}

/// A part of a module, built for certain arenas. Key of both maps: name in PTX.
pub(crate) struct BuiltPart {
    pub(crate) arenas: Vec<Arena>,
    pub(crate) kernels: FxHashMap<String, BuiltKernel>,
    /// Why the other kernels cannot run.
    pub(crate) refused: FxHashMap<String, String>,
}

pub(crate) struct BuiltKernel {
    pub(crate) program: Arc<PoolProgram>,
    pub(crate) description: Arc<KernelDescription>,
    /// Whether it may fault.
    pub(crate) stops: bool,
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
    pub(super) fn of_driver(module: Module, build: BuiltPart) -> Self {
        // Native kernels accept a heap without another build.
        let build = Arc::new(build);
        let whole = Part {
            entries: 0..module.entries().len(),
            build: Lock::new(Some(build.clone())),
            build_with_heap: Lock::new(Some(build)),
        };
        Self { text: Box::default(), module, prints: false, allocates: false, parts: vec![whole] }
    }
}

impl BuiltPart {
    /// Returns a kernel by its name in PTX.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` if the kernel cannot run on this device. Standard error gets the
    /// reason, once.
    pub(crate) fn kernel(&self, name: &str) -> CuResult<&BuiltKernel> {
        self.kernels.get(name).ok_or_else(|| match self.refused.get(name) {
            Some(reason) => {
                let topic = format!("kernel {name}");
                notice::once_about(
                    &topic,
                    format_args!("the kernel {} cannot run: {reason}", shorten(name)),
                );
                CUDA_ERROR_NOT_SUPPORTED
            }
            None => CUDA_ERROR_INVALID_PTX,
        })
    }
}

/// Number of letters of a kernel's name in a message. Names of C++ templates can have thousands.
const NAME_LETTERS_MAX: usize = 200;

/// Returns the beginning of a kernel's name, for a message.
pub(super) fn shorten(name: &str) -> &str {
    name.char_indices().nth(NAME_LETTERS_MAX).map_or(name, |(at, _)| &name[..at])
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
