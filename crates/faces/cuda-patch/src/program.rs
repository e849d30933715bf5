//! Detection of CUDA's runtime inside a program.

use std::fs::File;
use std::path::Path;

use object::read::{ReadCache, ReadRef};

use crate::elf::{Elf, Symbol};

/// Function that every program with kernels calls before `main`.
const REGISTER: &str = "__cudaRegisterFatBinary";

/// Prefix of the internal functions of NVIDIA's static library, which no other library has.
const ARCHIVE_PREFIX: &str = "libcudart_static_";

/// Prefix of the constructors that the compiler makes to register kernels.
const REGISTERING: &str = "__sti____cudaRegisterAll";

/// Section in which the compiler stores device code.
const DEVICE_CODE: &str = ".nv_fatbin";

/// Functions that only version 13 has. The library is a single object, so a program has all its
/// functions, or some of them if its linker dropped unused ones.
const ONLY_13: [&str; 4] = [
    "cudaLogsRegisterCallback",
    "cudaMemGetDefaultMemPool",
    "cudaLogsCurrent",
    "cudaDeviceGetHostAtomicCapabilities",
];

/// Functions that version 13 no longer has.
const NOT_13: [&str; 5] = [
    "cudaGetDeviceProperties_v2",
    "cudaThreadSynchronize",
    "cudaThreadExit",
    "cudaSetDoubleForDevice",
    "cudaLaunchCooperativeKernelMultiDevice",
];

/// Function of NVRTC, the library of CUDA's compiler, that returns machine code.
const MACHINE_CODE: &str = "nvrtcGetCUBIN";

/// Where a program has CUDA's runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// The program does not use the runtime, or uses a shared library. Nothing has to be done.
    Elsewhere,
    /// The runtime is inside, and its functions can be found.
    Inside {
        /// Major version: 12, which also serves programs of older versions, or 13.
        major: u32,
        functions: Vec<Symbol>,
        /// The constructors that register kernels with the runtime.
        registering: Vec<Symbol>,
    },
    /// The runtime is inside, but the names of its functions are not.
    Stripped,
    /// The runtime is inside, but its version is unknown.
    Unknown,
    /// The runtime is inside, but the processor is not supported.
    OtherMachine,
}

/// Inspects a file. Returns [`Runtime::Elsewhere`] if it cannot be read or is not a program.
pub fn inspect(path: &Path) -> Runtime {
    let Ok(file) = File::open(path) else { return Runtime::Elsewhere };
    Elf::read(&ReadCache::new(file)).map_or(Runtime::Elsewhere, |elf| runtime(&elf))
}

/// Whether the program in a file imports NVRTC's function for machine code. The preloaded library
/// returns PTX to such a program.
pub fn wants_machine_code(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let wanted = |symbol: &Symbol| symbol.is_wanted && symbol.name == MACHINE_CODE;
    Elf::read(&ReadCache::new(file)).is_some_and(|elf| elf.dynamic_symbols().iter().any(wanted))
}

/// MPI that a program is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpi {
    OpenMpi,
    Mpich,
}

/// Tells the MPI of the program in a file by what the program imports. Returns `None` if the
/// program itself does not call MPI. Perhaps a library that it loads does.
pub fn mpi_of(path: &Path) -> Option<Mpi> {
    let file = File::open(path).ok()?;
    let symbols = Elf::read(&ReadCache::new(file))?.dynamic_symbols();
    let wanted: Vec<_> = symbols.iter().filter(|symbol| symbol.is_wanted).collect();
    mpi(&wanted.iter().map(|symbol| symbol.name.as_str()).collect::<Vec<_>>())
}

fn mpi(imports: &[&str]) -> Option<Mpi> {
    if !imports.iter().any(|name| name.starts_with("MPI_")) {
        return None;
    }
    // Open MPI's communicators and types are variables. Those of MPICH are numbers.
    let is_open = imports.iter().any(|name| name.starts_with("ompi_"));
    Some(if is_open { Mpi::OpenMpi } else { Mpi::Mpich })
}

/// Inspects a program whose headers were read.
fn runtime<'data>(elf: &Elf<'data, impl ReadRef<'data>>) -> Runtime {
    let symbols = elf.symbols();
    let archive = symbols.iter().any(|symbol| symbol.name.starts_with(ARCHIVE_PREFIX));
    let registers = symbols.iter().any(|symbol| symbol.is_function_here && symbol.name == REGISTER);
    if !archive || !registers {
        let shared =
            elf.dynamic_symbols().iter().any(|symbol| symbol.is_wanted && symbol.name == REGISTER);
        let inside = symbols.is_empty() && elf.has_section(DEVICE_CODE) && !shared;
        return if inside { Runtime::Stripped } else { Runtime::Elsewhere };
    }
    if !elf.is_x86_64() {
        return Runtime::OtherMachine;
    }
    let Some(major) = version(&symbols) else { return Runtime::Unknown };
    let here = symbols.into_iter().filter(|symbol| symbol.is_function_here);
    let (registering, others): (Vec<_>, Vec<_>) =
        here.partition(|symbol| symbol.name.contains(REGISTERING));
    let functions = others.into_iter().filter(|symbol| is_entry(&symbol.name)).collect();
    Runtime::Inside { major, functions, registering }
}

/// Whether the interface may have a function of this name.
fn is_entry(name: &str) -> bool {
    name.starts_with("cuda") || name.starts_with("__cuda")
}

fn version(symbols: &[Symbol]) -> Option<u32> {
    let has = |names: &[&str]| symbols.iter().any(|symbol| names.contains(&symbol.name.as_str()));
    match (has(&ONLY_13), has(&NOT_13)) {
        (true, false) => Some(13),
        (false, true) => Some(12),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(names: &[&str]) -> Vec<Symbol> {
        names
            .iter()
            .map(|name| Symbol {
                name: (*name).to_owned(),
                address: 1,
                size: 16,
                is_function_here: true,
                is_wanted: false,
            })
            .collect()
    }

    #[test]
    fn the_version_is_told_by_functions_that_only_one_has() {
        assert_eq!(version(&symbols(&["cudaMalloc", "cudaLogsCurrent"])), Some(13));
        assert_eq!(version(&symbols(&["cudaMalloc", "cudaThreadExit"])), Some(12));
        assert_eq!(version(&symbols(&["cudaMalloc"])), None);
        assert_eq!(version(&symbols(&["cudaThreadExit", "cudaLogsCurrent"])), None);
    }

    #[test]
    fn imports_tell_the_mpi() {
        assert_eq!(mpi(&["MPI_Init", "ompi_mpi_comm_world"]), Some(Mpi::OpenMpi));
        assert_eq!(mpi(&["MPI_Init", "MPI_Send", "puts"]), Some(Mpi::Mpich));
        assert_eq!(mpi(&["puts"]), None);
        assert_eq!(mpi_of(&std::env::current_exe().unwrap()), None);
    }

    #[test]
    fn a_program_without_cuda_has_nothing_inside() {
        assert_eq!(inspect(&std::env::current_exe().unwrap()), Runtime::Elsewhere);
        assert_eq!(inspect(Path::new("/nonexistent")), Runtime::Elsewhere);
        assert_eq!(inspect(Path::new("/etc/passwd")), Runtime::Elsewhere);
    }
}
