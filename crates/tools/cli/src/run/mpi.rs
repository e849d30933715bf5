//! The library that lets MPI programs pass device memory of the pool to MPI. It is preloaded,
//! because it defines functions of MPI.

use std::path::{Path, PathBuf};
use std::process::Command;

use penstock_cuda_patch::program::{Mpi, mpi_of};
use penstock_process::search;

use super::args::MpiName;
use super::cuda;
use crate::failure::Failure;

/// Finds the library for the MPI of `command`, among the CUDA libraries beside `opencl` (the path
/// of the OpenCL library).
pub fn find(name: MpiName, command: &Command, opencl: &Path) -> Result<PathBuf, Failure> {
    let mpi = match name {
        MpiName::Openmpi => Mpi::OpenMpi,
        MpiName::Mpich => Mpi::Mpich,
        MpiName::Auto => search::program(command.get_program())
            .and_then(|program| mpi_of(&program))
            .ok_or_else(|| unknown(command))?,
    };
    let (what, remedy) = match mpi {
        Mpi::OpenMpi => (
            "libpenstock_mpi_openmpi.so",
            "build Penstock with `make build` on a host that has mpicc.openmpi",
        ),
        Mpi::Mpich => (
            "libpenstock_mpi_mpich.so",
            "build Penstock with `make build` on a host that has mpicc.mpich",
        ),
    };
    let path = opencl.with_file_name(cuda::FOLDER).join(what);
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::Missing { what, looked: vec![path], remedy })
}

fn unknown(command: &Command) -> Failure {
    Failure::Argument {
        argument: "--mpi".into(),
        reason: format!(
            "{} does not call MPI itself, so its file does not tell which MPI it uses: name it \
             with --mpi=openmpi or --mpi=mpich",
            command.get_program().display()
        ),
    }
}
