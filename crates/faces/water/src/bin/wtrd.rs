//! `wtrd` offers the devices of its node to a program that uses libWater, as one more rank of its
//! MPI run.

use std::process::ExitCode;

use water::launch;

const HELP: &str = "\
wtrd offers the OpenCL devices of its node to a program that uses libWater.

Usage: an MPI launcher starts it beside the program, which is rank 0:
  mpirun -n 1 ./program : -n 63 wtrd           (Open MPI, MPICH)
  srun --mpi=pmix --multi-prog ranks.conf      (Slurm; ranks.conf: `0 ./program`, `1-63 wtrd`)

Options:
  -h, --help      this text
  -V, --version   the version

It ends with the program. It offers the devices that `clinfo -l` lists on its node.

Variables:
  WTR_MPI         openmpi, mpich, the file of a shim (libwtr_mpi_*.so), or a folder with shims
                  (default: the MPI of the launcher)
  WTR_SILENCE     seconds after which a silent rank on another host counts as lost (default 5)
";

fn main() -> ExitCode {
    let argument = std::env::args_os().nth(1);
    match argument.as_ref().map(|argument| argument.to_string_lossy()).as_deref() {
        None => serve(),
        Some("-h" | "--help") => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Some("-V" | "--version") => {
            println!("wtrd {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some(other) => {
            eprintln!("wtrd: unknown option `{other}`; `wtrd --help` lists the options");
            ExitCode::from(2)
        }
    }
}

fn serve() -> ExitCode {
    if !launch::is_launched() {
        eprintln!(
            "wtrd: not started by an MPI launcher. Start it with the program: mpirun -n 1 ./program : -n 3 wtrd"
        );
        return ExitCode::from(2);
    }
    match launch::work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wtrd: {error}");
            ExitCode::FAILURE
        }
    }
}
