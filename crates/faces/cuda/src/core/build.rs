//! The way from what a program loads to what a device runs: translation and compilation.

use std::io::IsTerminal as _;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use penstock_cl_sys::CL_PROGRAM_BUILD_LOG;
use penstock_client::Program as PoolProgram;
use penstock_client::spawn_quiet;
use penstock_cuda_sys::driver::CUDA_ERROR_INVALID_PTX;
use penstock_process::{Lock, log, notice, variable};
use penstock_ptx::ir::{Entry, Module};
use penstock_ptx::translate::{Options, Translation, translate_kernels};

use super::block::Arena;
use super::device::Device;
use super::program::{BuiltKernel, BuiltPart, Part, Program, Refusal, shorten};
use super::{check, fault};
use crate::edge::{CuResult, of_error};

/// Largest number of statements of a part with several kernels. Each build costs some 50 ms, so
/// small kernels are built together. Otherwise a launch waits for kernels that nobody launches.
const PART_STATEMENTS_MAX: usize = 300;

/// Time after which a build says on a terminal that it takes long.
const BUILD_TOLD_AFTER: Duration = Duration::from_secs(2);

/// Room for the thread that says so.
const TELLER_STACK_BYTES: usize = 64 << 10;

/// Returns whether the device's compiler runs when a module is loaded, not at the first use of a
/// kernel.
pub(crate) fn is_eager() -> bool {
    variable::CUDA_MODULE_LOADING.text().is_some_and(|value| value == "EAGER")
}

impl Program {
    /// Returns the device code of a module. Parses it if it is new.
    ///
    /// # Errors
    /// The text is no module.
    pub(crate) fn load(device: &Device, text: Box<str>) -> Result<Arc<Self>, Refusal> {
        if let Some(known) = device.programs.find(&text) {
            return Ok(known);
        }
        let module = penstock_ptx::module::parse(&text)
            .map_err(|error| Refusal::new(CUDA_ERROR_INVALID_PTX, error))?;
        let has = |names: &[&str]| {
            module.functions().iter().any(|function| names.contains(&function.name.as_str()))
        };
        let (prints, allocates) = (has(&["vprintf"]), has(&["malloc", "free"]));
        let parts = parts(&module).into_iter().map(|entries| Part {
            entries,
            build: Lock::default(),
            build_with_heap: Lock::default(),
        });
        let program = Arc::new(Self { prints, allocates, parts: parts.collect(), module, text });
        device.programs.keep(&program);
        Ok(program)
    }

    /// Builds all kernels that can run.
    pub(crate) fn build_all(&self, device: &Device) -> CuResult {
        for part in &self.parts {
            self.build_part(device, part, part.entries.start, false)?;
        }
        Ok(())
    }

    /// Returns the part of the module with this kernel, for the arenas that the device has now.
    /// `heap`: for launches with a heap among their parameters. Waits for the device's compiler the
    /// first time.
    pub(crate) fn build(
        &self,
        device: &Device,
        entry: usize,
        heap: bool,
    ) -> CuResult<Arc<BuiltPart>> {
        let part = self.parts.iter().find(|part| part.entries.contains(&entry));
        self.build_part(device, part.ok_or(CUDA_ERROR_INVALID_PTX)?, entry, heap)
    }

    fn build_part(
        &self,
        device: &Device,
        part: &Part,
        wanted: usize,
        heap: bool,
    ) -> CuResult<Arc<BuiltPart>> {
        let build = if heap { &part.build_with_heap } else { &part.build };
        // Held during the build, because other threads need the same program.
        let mut build = build.lock();
        let arenas = device.space.arenas();
        if let Some(build) = build.as_ref().filter(|build| build.arenas.len() == arenas.len()) {
            return Ok(build.clone());
        }
        let name = self.module.entries().get(wanted).map_or("", |entry| entry.name.as_str());
        let made = told_if_long(name, || self.make(device, part, arenas, heap))?;
        Ok(build.insert(Arc::new(made)).clone())
    }

    /// Translates and compiles the kernels of a part.
    fn make(
        &self,
        device: &Device,
        part: &Part,
        arenas: Vec<Arena>,
        heap: bool,
    ) -> CuResult<BuiltPart> {
        let options = Options {
            arenas: arenas.iter().map(|arena| (arena.base, arena.size)).collect(),
            heap,
            check: check::is_checking(),
            fp64: device.facts.fp64,
            int64_atomics: device.facts.int64_atomics,
            fp16: device.facts.fp16,
            exact_division: device.facts.exact_division,
        };
        let entries: Vec<usize> = part.entries.clone().collect();
        let translation = translate_kernels(&self.module, &entries, &options).map_err(|error| {
            log!(Warn, "a module is not translated: {error}");
            CUDA_ERROR_INVALID_PTX
        })?;
        let faulting = translation.kernels.iter().filter(|kernel| kernel.uses_faults);
        faulting.for_each(|kernel| _ = fault::remember_kernel(&kernel.name));
        let refused = translation.refused.iter();
        let refused = refused.map(|kernel| (kernel.name.clone(), kernel.error.to_string()));
        let mut made =
            BuiltPart { arenas, kernels: Default::default(), refused: refused.collect() };
        if !translation.kernels.is_empty() {
            compile(device, &translation, &mut made)?;
        }
        Ok(made)
    }
}

/// Returns the kernels that are built together, as ranges of indices: as many kernels, in the order
/// of the text, as have [`PART_STATEMENTS_MAX`] statements, but at least one.
fn parts(module: &Module) -> Vec<Range<usize>> {
    let statements = |entry: &Entry| -> usize {
        let functions = entry.callees.iter().chain([&entry.function]);
        functions.map(|id| module.function(*id).body.as_ref().map_or(0, Vec::len)).sum()
    };
    let (mut parts, mut start, mut sum) = (Vec::new(), 0, 0_usize);
    for (index, entry) in module.entries().iter().enumerate() {
        let more = statements(entry);
        if index > start && sum.saturating_add(more) > PART_STATEMENTS_MAX {
            parts.push(start..index);
            (start, sum) = (index, 0);
        }
        sum = sum.saturating_add(more);
    }
    if start < module.entries().len() {
        parts.push(start..module.entries().len());
    }
    parts
}

/// Does `work`, and says on a terminal which kernel is being compiled if the work takes long.
fn told_if_long<T>(kernel: &str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let (ended, end) = mpsc::channel::<()>();
    let text = format!("compiling the kernel {}", shorten(kernel));
    let teller = spawn_quiet("penstock-build", TELLER_STACK_BYTES, move || {
        if lasts_longer(&end, BUILD_TOLD_AFTER) {
            notice::print(format_args!("{text}"));
        }
    });
    let done = work();
    drop(ended);
    // Without a thread, nothing is told.
    _ = teller.map(std::thread::JoinHandle::join);
    done
}

/// Waits until the other end is dropped. Returns whether that takes longer than `limit`.
fn lasts_longer(end: &mpsc::Receiver<()>, limit: Duration) -> bool {
    end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout)
}

fn compile(device: &Device, translation: &Translation, part: &mut BuiltPart) -> CuResult {
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
        let kernel = translation.kernels.first().map_or("", |kernel| kernel.name.as_str());
        notice::once_about(
            &format!("build {kernel}"),
            format_args!(
                "the device's compiler refused the code of the kernel {}: {error}\n{report}",
                shorten(kernel)
            ),
        );
        return Err(of_error(&error));
    }
    let made = program.kernels();
    for kernel in &translation.kernels {
        let Some(description) = made.iter().find(|made| made.name == kernel.cl_name) else {
            continue;
        };
        let built = BuiltKernel {
            program: program.clone(),
            description: description.clone(),
            stops: kernel.uses_faults,
            arguments: kernel.arguments.clone(),
            local_bytes: kernel.local_bytes,
            dynamic_bytes_at: kernel.dynamic_bytes_at,
        };
        part.kernels.insert(kernel.name.clone(), built);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// Returns the parts of a module whose kernels have these numbers of statements.
    fn parts_of(kernels: &[usize]) -> Vec<Range<usize>> {
        let mut text = String::from(".version 7.5\n.target sm_75\n.address_size 64\n");
        for (index, statements) in kernels.iter().enumerate() {
            let body = "ret; ".repeat(*statements);
            let _ = writeln!(text, ".visible .entry k{index}() {{ {body} }}");
        }
        parts(&penstock_ptx::module::parse(&text).unwrap())
    }

    #[test]
    fn small_kernels_are_built_together_and_large_ones_alone() {
        const HALF: usize = PART_STATEMENTS_MAX / 2;
        assert_eq!(parts_of(&[HALF, HALF, 1, 1]), [0..2, 2..4]);
        assert_eq!(parts_of(&[1, 10 * HALF, 1, HALF, 3 * HALF]), [0..1, 1..2, 2..4, 4..5]);
        assert!(parts_of(&[]).is_empty());
    }

    #[test]
    fn only_a_build_that_lasts_longer_is_told() {
        let (ended, end) = mpsc::channel();
        assert!(lasts_longer(&end, Duration::ZERO));
        drop(ended);
        assert!(!lasts_longer(&end, BUILD_TOLD_AFTER));
    }
}
