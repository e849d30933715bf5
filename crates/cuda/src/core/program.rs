//! Device code: the way from what a program loads to what a device runs. Translations are kept.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use penstock_client::Program as PoolProgram;
use penstock_cuda_sys::driver::*;
use penstock_ptx::fatbin::{self, ImageKind};
use penstock_ptx::ir::Module;
use penstock_ptx::translate::{Argument, Options, Translation, translate};
use penstock_wire::describe::KernelDescription;
use rustc_hash::FxHashMap;

use super::arena::Arena;
use super::attribute::CAPABILITY;
use super::device::Device;
use super::{fault, log};
use crate::edge::{CuResult, of_error};

/// Number of translated modules that a device keeps after they are unloaded. So a program that
/// loads and unloads a library of kernels in turn compiles it only once. Each takes about 100 KB.
const KEPT_MAX: usize = 64;

/// Value of OpenCL's `CL_PROGRAM_BUILD_LOG`.
const BUILD_LOG: u32 = 0x1183;

/// Returns whether the device's compiler runs when a module is loaded, not at the first use of a
/// kernel.
pub(crate) fn is_eager() -> bool {
    std::env::var("CUDA_MODULE_LOADING").is_ok_and(|value| value == "EAGER")
}

/// Why a module was not loaded.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: CUresult,
    /// Text for the program's error log.
    pub(crate) log: String,
}

impl Refusal {
    fn new(code: CUresult, log: impl fmt::Display) -> Self {
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
    text: Box<str>,
    pub(crate) module: Module,
    /// Whether a kernel may print.
    pub(crate) prints: bool,
    /// Whether a kernel may fault.
    pub(crate) stops: bool,
    translation: Mutex<Option<(Vec<Arena>, Translation)>>,
    build: Mutex<Option<Arc<Build>>>,
    /// The build for launches with a heap among their parameters.
    build_with_heap: Mutex<Option<Arc<Build>>>,
}

/// A program of the pool, made for certain arenas.
pub(crate) struct Build {
    pub(crate) arenas: Vec<Arena>,
    pub(crate) program: Arc<PoolProgram>,
    /// Key: name in PTX.
    pub(crate) kernels: FxHashMap<String, Made>,
}

pub(crate) struct Made {
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
    let own = u32::try_from(CAPABILITY.0 * 10 + CAPABILITY.1).unwrap_or(0);
    let ptx = || images.iter().filter(|image| image.kind == ImageKind::Ptx);
    let best = ptx().filter(|image| image.arch <= own).max_by_key(|image| image.arch);
    let Some(image) = best.or_else(|| ptx().min_by_key(|image| image.arch)) else {
        let text = "a module has only machine code; build it with PTX (nvcc: -gencode \
                    arch=compute_75,code=compute_75; numba-cuda and cuda.core: without \
                    nvidia-nvjitlink)";
        log::once("no PTX", format_args!("{text}"));
        return Err(Refusal::new(CUDA_ERROR_NO_BINARY_FOR_GPU, text));
    };
    let text = image.bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text =
        std::str::from_utf8(text).map_err(|error| Refusal::new(CUDA_ERROR_INVALID_PTX, error))?;
    Ok(text.into())
}

impl Program {
    /// Wraps device code that CUDA's own driver has loaded.
    pub(super) fn of_driver(module: Module, build: Build) -> Self {
        // Native kernels accept a heap without another build.
        let build = Arc::new(build);
        Self {
            text: Box::default(),
            module,
            prints: false,
            stops: false,
            translation: Mutex::default(),
            build: Mutex::new(Some(build.clone())),
            build_with_heap: Mutex::new(Some(build)),
        }
    }

    /// Parses and translates PTX. Code that cannot run is rejected here, with the reason.
    fn new(device: &Device, text: Box<str>) -> Result<Self, Refusal> {
        let module = penstock_ptx::module::parse(&text)
            .map_err(|error| Refusal::new(CUDA_ERROR_INVALID_PTX, error))?;
        let mut program = Self {
            module,
            text,
            prints: false,
            stops: false,
            translation: Mutex::default(),
            build: Mutex::default(),
            build_with_heap: Mutex::default(),
        };
        let arenas = device.space.arenas();
        let translation = program.translate(device, &arenas, false)?;
        let kernels = &translation.kernels;
        program.prints = kernels.iter().any(|kernel| kernel.uses_printf);
        program.stops = kernels.iter().any(|kernel| kernel.uses_faults);
        kernels
            .iter()
            .filter(|kernel| kernel.uses_faults)
            .for_each(|kernel| fault::remember(&kernel.name));
        // The first build uses this translation.
        program.translation = Mutex::new(Some((arenas, translation)));
        Ok(program)
    }

    /// Translates for these arenas. `heap`: with support for a heap.
    fn translate(
        &self,
        device: &Device,
        arenas: &[Arena],
        heap: bool,
    ) -> Result<Translation, Refusal> {
        let options = Options {
            arenas: arenas.iter().map(|arena| (arena.base, arena.size)).collect(),
            heap,
            check: fault::is_checking(),
            fp64: device.facts.fp64,
            int64_atomics: device.facts.int64_atomics,
            fp16: device.facts.fp16,
            exact_division: device.facts.exact_division,
        };
        translate(&self.module, &options)
            .map_err(|error| Refusal::new(CUDA_ERROR_INVALID_PTX, error))
    }

    /// Returns the program of the pool for the arenas that the device has now. `heap`: for launches
    /// with a heap among their parameters. Waits for the device's compiler the first time.
    pub(crate) fn build(&self, device: &Device, heap: bool) -> CuResult<Arc<Build>> {
        let build = if heap { &self.build_with_heap } else { &self.build };
        // Held during the build, because other threads need the same program.
        let mut build = build.lock().unwrap_or_else(PoisonError::into_inner);
        let arenas = device.space.arenas();
        if let Some(build) = build.as_ref().filter(|build| build.arenas.len() == arenas.len()) {
            return Ok(build.clone());
        }
        let known = if heap {
            None
        } else {
            self.translation.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        let fits = known.filter(|(of, _)| of.len() == arenas.len());
        let (arenas, translation) = match fits {
            Some(fits) => fits,
            None => {
                let made = self.translate(device, &arenas, heap).map_err(|refusal| refusal.code)?;
                (arenas, made)
            }
        };
        let made = Arc::new(compile(device, arenas, &translation)?);
        *build = Some(made.clone());
        Ok(made)
    }
}

fn compile(device: &Device, arenas: Vec<Arena>, translation: &Translation) -> CuResult<Build> {
    /// Environment variable: folder for the source given to the devices' compilers, for debugging.
    const SOURCES_VARIABLE: &str = "PENSTOCK_CUDA_SOURCES";
    if let Some(folder) = std::env::var_os(SOURCES_VARIABLE) {
        use std::hash::BuildHasher as _;
        let hash = rustc_hash::FxBuildHasher.hash_one(&translation.source);
        let path = std::path::Path::new(&folder).join(format!("{hash:016x}.cl"));
        if let Err(error) = std::fs::write(&path, &translation.source) {
            log::line(format_args!("{}: {error}", path.display()));
        }
    }
    let source = translation.source.as_bytes();
    let program =
        PoolProgram::with_source_for(&device.context, std::slice::from_ref(&device.pool), source)
            .map_err(|error| of_error(&error))?;
    if let Err(error) =
        program.build(std::slice::from_ref(&device.pool), translation.build_options.as_str())
    {
        let report = program.build_info(&device.pool, BUILD_LOG).unwrap_or_default();
        let report = String::from_utf8_lossy(&report);
        let report = report.trim_end_matches('\0').trim();
        log::once(
            "build",
            format_args!("the device's compiler refused translated code: {error}\n{report}"),
        );
        return Err(of_error(&error));
    }
    let made = program.kernels();
    let kernels = translation.kernels.iter().filter_map(|kernel| {
        let description = made.iter().find(|made| made.name == kernel.cl_name)?;
        let made = Made {
            description: description.clone(),
            arguments: kernel.arguments.clone(),
            local_bytes: kernel.local_bytes,
            dynamic_bytes_at: kernel.dynamic_bytes_at,
        };
        Some((kernel.name.clone(), made))
    });
    Ok(Build { arenas, kernels: kernels.collect(), program })
}

/// Device code that a device has used, the latest last.
#[derive(Default)]
pub(crate) struct Programs(Mutex<VecDeque<Arc<Program>>>);

impl Programs {
    /// Returns the device code of a module. Translates it if it is new.
    pub(crate) fn get(&self, device: &Device, text: Box<str>) -> Result<Arc<Program>, Refusal> {
        let known = {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let known = kept.iter().position(|program| program.text == text);
            known
                .and_then(|index| kept.remove(index))
                .inspect(|program| kept.push_back(program.clone()))
        };
        if let Some(program) = known {
            return Ok(program);
        }
        let program = Arc::new(Program::new(device, text)?);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(program.clone());
        let _oldest = if kept.len() > KEPT_MAX { kept.pop_front() } else { None };
        drop(kept);
        Ok(program)
    }
}
