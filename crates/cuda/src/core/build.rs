//! The way from what a program loads to what a device runs: translation and compilation.

use std::sync::Arc;

use penstock_cl_sys::CL_PROGRAM_BUILD_LOG;
use penstock_client::Program as PoolProgram;
use penstock_cuda_sys::driver::CUDA_ERROR_INVALID_PTX;
use penstock_process::{Lock, log, notice, variable};
use penstock_ptx::translate::{Options, Translation, translate};

use super::block::Arena;
use super::device::Device;
use super::program::{BuiltKernel, BuiltProgram, Program, Refusal};
use super::{check, fault};
use crate::edge::{CuResult, of_error};

/// Returns whether the device's compiler runs when a module is loaded, not at the first use of a
/// kernel.
pub(crate) fn is_eager() -> bool {
    variable::CUDA_MODULE_LOADING.text().is_some_and(|value| value == "EAGER")
}

impl Program {
    /// Returns the device code of a module. Translates it if it is new.
    pub(crate) fn load(device: &Device, text: Box<str>) -> Result<Arc<Self>, Refusal> {
        if let Some(known) = device.programs.find(&text) {
            return Ok(known);
        }
        let program = Arc::new(Self::translated(device, text)?);
        device.programs.keep(&program);
        Ok(program)
    }

    /// Parses and translates PTX. Code that cannot run is rejected here, with the reason.
    fn translated(device: &Device, text: Box<str>) -> Result<Self, Refusal> {
        let module = penstock_ptx::module::parse(&text)
            .map_err(|error| Refusal::new(CUDA_ERROR_INVALID_PTX, error))?;
        let mut program = Self {
            module,
            text,
            prints: false,
            stops: false,
            translation: Lock::default(),
            build: Lock::default(),
            build_with_heap: Lock::default(),
        };
        let arenas = device.space.arenas();
        let translation = program.translate(device, &arenas, false)?;
        let kernels = &translation.kernels;
        program.prints = kernels.iter().any(|kernel| kernel.uses_printf);
        program.stops = kernels.iter().any(|kernel| kernel.uses_faults);
        kernels
            .iter()
            .filter(|kernel| kernel.uses_faults)
            .for_each(|kernel| _ = fault::remember_kernel(&kernel.name));
        // The first build uses this translation.
        program.translation = Lock::new(Some((arenas, translation)));
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
            check: check::is_checking(),
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
    pub(crate) fn build(&self, device: &Device, heap: bool) -> CuResult<Arc<BuiltProgram>> {
        let build = if heap { &self.build_with_heap } else { &self.build };
        // Held during the build, because other threads need the same program.
        let mut build = build.lock();
        let arenas = device.space.arenas();
        if let Some(build) = build.as_ref().filter(|build| build.arenas.len() == arenas.len()) {
            return Ok(build.clone());
        }
        let known = if heap { None } else { self.translation.lock().take() };
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

fn compile(
    device: &Device,
    arenas: Vec<Arena>,
    translation: &Translation,
) -> CuResult<BuiltProgram> {
    if let Some(folder) = variable::CUDA_SOURCES.path() {
        use std::hash::BuildHasher as _;
        let hash = rustc_hash::FxBuildHasher.hash_one(&translation.source);
        let path = folder.join(format!("{hash:016x}.cl"));
        if let Err(error) = std::fs::write(&path, &translation.source) {
            log!(Warn, "{}: {error}", path.display());
        }
    }
    let source = translation.source.as_bytes();
    let program =
        PoolProgram::with_source_for(&device.context, std::slice::from_ref(&device.pool), source)
            .map_err(|error| of_error(&error))?;
    if let Err(error) =
        program.build(std::slice::from_ref(&device.pool), translation.build_options.as_str())
    {
        let report = program.build_info(&device.pool, CL_PROGRAM_BUILD_LOG).unwrap_or_default();
        let report = String::from_utf8_lossy(&report);
        let report = report.trim_end_matches('\0').trim();
        notice::once_about(
            "build",
            format_args!("the device's compiler refused translated code: {error}\n{report}"),
        );
        return Err(of_error(&error));
    }
    let made = program.kernels();
    let kernels = translation.kernels.iter().filter_map(|kernel| {
        let description = made.iter().find(|made| made.name == kernel.cl_name)?;
        let made = BuiltKernel {
            description: description.clone(),
            arguments: kernel.arguments.clone(),
            local_bytes: kernel.local_bytes,
            dynamic_bytes_at: kernel.dynamic_bytes_at,
        };
        Some((kernel.name.clone(), made))
    });
    Ok(BuiltProgram { arenas, kernels: kernels.collect(), program })
}
