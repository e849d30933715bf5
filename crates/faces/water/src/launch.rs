//! Starts a run: finds out which launcher and MPI started this process and where the MPI's shim is,
//! and chooses the back end.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_process::variable;

use crate::backend::Backend;
use crate::backend::opencl::OpenCl;
use crate::backend::pool::{self, Pooled};
use crate::backend::sim::{Model, Sim};
use crate::clock::{Clock, Real};
use crate::command::Rank;
use crate::error::Error;
use crate::runtime::Runtime;
use crate::simulation;
use crate::transport::Transport;
use crate::transport::alone::Alone;
use crate::transport::mpi::{Mpi, Options, SILENCE_NS, Unusable};

/// Folders of shims, in addition to those near this library and the program.
const FOLDERS: [&str; 2] = ["/usr/local/lib/penstock", "/usr/lib/penstock"];

/// This process's part of the run.
#[derive(Debug)]
pub struct Launched {
    /// The transport to the other ranks.
    pub transport: Box<dyn Transport>,
    /// This rank; rank 0 runs the program.
    pub rank: Rank,
    pub size: u32,
    /// Whether a thread may drive the runtime. If not, the calls that wait drive it:
    /// `Runtime::root(..., threaded: false)`.
    pub threaded: bool,
}

/// An MPI for which libwater has a shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    OpenMpi,
    Mpich,
}

impl Family {
    const fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        }
    }

    /// Names of its packages on Debian and related systems.
    const fn packages(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi-bin libopenmpi-dev",
            Self::Mpich => "mpich libmpich-dev",
        }
    }

    fn file(self) -> String {
        format!("libwtr_mpi_{}.so", self.name())
    }
}

/// The launcher of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Launcher {
    /// No launcher that knows MPI.
    None,
    /// A launcher of MPI programs.
    Mpi {
        /// The MPI for which it most likely is.
        family: Family,
        /// Number of ranks, if the launcher tells.
        ranks: Option<u32>,
        /// The launcher's name in messages.
        name: &'static str,
    },
    /// `srun` with this number of processes, without support for MPI.
    BareSrun(u32),
}

/// The transport and devices that the environment chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    Alone,
    /// A single rank with the devices of the pool's daemons.
    Pool,
    Mpi {
        family: Family,
        folder: Option<PathBuf>,
        file: Option<PathBuf>,
        ranks: Option<u32>,
        launcher: &'static str,
    },
}

/// Looks up an environment variable.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Starts this process's part of the run. Only the root returns with a runtime. On another rank
/// this serves the root, and ends the process with the run, so that the program's code runs only
/// once. With `WTR_WORKER=return` such a rank returns an error instead.
///
/// # Errors
/// Those of [`transport`]. A rank does not answer. This rank has served the root.
pub fn start() -> Result<Runtime, Error> {
    if let Some(runtime) = simulation::start()? {
        return Ok(runtime);
    }
    let clock: Arc<dyn Clock> = Arc::new(Real::new());
    let Launched { transport, rank, threaded, .. } = transport(Arc::clone(&clock), true)?;
    let devices = if rank == 0
        && Model::of_environment()?.is_none()
        && choose(&variable::text)? == Choice::Pool
    {
        Box::new(Pooled::open(Arc::clone(&clock))?)
    } else {
        devices(rank, &clock)?
    };
    if rank == 0 {
        return Runtime::root(transport, devices, clock, threaded);
    }
    Runtime::serve(transport, devices, clock);
    if variable::WTR_WORKER.text().as_deref() == Some("return") {
        return Err(Error::State(
            "this process was not the root: it has served it, and the run is over",
        ));
    }
    std::process::exit(0)
}

/// Serves the root until the run is over, as `wtrd` does.
///
/// # Errors
/// Those of [`transport`]. This is the root, so there is no program.
pub fn work() -> Result<(), Error> {
    let clock: Arc<dyn Clock> = Arc::new(Real::new());
    let Launched { transport, rank, .. } = transport(Arc::clone(&clock), true)?;
    if rank == 0 {
        // The other ranks wait for a root that never comes. This process ends, and the launcher
        // ends them.
        std::mem::forget(transport);
        return Err(Error::Transport("this is rank 0, which must be the program: start it first, as in `mpirun -n 1 ./program : -n 3 wtrd`".into()));
    }
    Runtime::serve(transport, devices(rank, &clock)?, clock);
    Ok(())
}

/// Returns the back end of this rank: OpenCL, or simulated devices if `WTR_SIM` names a model of
/// them.
fn devices(rank: Rank, clock: &Arc<dyn Clock>) -> Result<Box<dyn Backend>, Error> {
    Ok(match Model::of_environment()? {
        Some(model) => Box::new(Sim::of_model(model, rank, clock)),
        None => Box::new(OpenCl::new(Arc::clone(clock))),
    })
}

/// Whether a launcher of MPI programs started this process.
pub fn is_launched() -> bool {
    launcher(&variable::text) != Launcher::None
}

/// Takes this process's part in the run: that of an MPI rank, or of a single rank. `threaded` says
/// whether the caller can have a thread that drives the runtime all the time; ranks other than 0
/// always do.
///
/// Variables: `WTR_TRANSPORT` = `auto` (default: MPI if an MPI launcher started this process,
/// otherwise the pool if its nodes are named), `mpi`, `pool` (a single rank with the devices of the
/// pool's daemons), `none`. `WTR_MPI` = `openmpi`, `mpich`, the file of a shim, or a folder with
/// shims. `WTR_SILENCE` = seconds after which a silent rank counts as lost.
///
/// # Errors
/// A variable is wrong, a shim or an MPI is missing, or the ranks are not those of the launcher.
pub fn transport(clock: Arc<dyn Clock>, threaded: bool) -> Result<Launched, Error> {
    let alone = |transport| Launched { transport, rank: 0, size: 1, threaded };
    let Choice::Mpi { family, folder, file, ranks, launcher } = choose(&variable::text)? else {
        return Ok(alone(Box::new(Alone)));
    };
    let path = match file {
        Some(file) => file,
        None => find(family, folder.as_deref(), launcher)?,
    };
    let simulated = clock.is_simulated();
    let options = Options { beats: threaded && !simulated, silence_ns: silence(&variable::text)? };
    if family == Family::Mpich {
        survive_losses();
    }
    let mpi = Mpi::load(&path, clock, options).map_err(|unusable| explain(&unusable, family))?;
    let (rank, size) = (mpi.rank(), mpi.size());
    if let Some(ranks) = ranks
        && ranks != size
    {
        let library = mpi.library();
        return Err(Error::Transport(format!(
            "{launcher} started {ranks} processes, but this one sees {size} in {library} ({}): the launcher is of another MPI. \
             Name the right one with WTR_MPI=openmpi or WTR_MPI=mpich, or use its launcher",
            path.display()
        )));
    }
    let threaded = threaded && !simulated && mpi.may_change_threads();
    Ok(Launched { transport: Box::new(mpi), rank, size, threaded })
}

fn choose(environment: Environment<'_>) -> Result<Choice, Error> {
    let transport = environment("WTR_TRANSPORT").unwrap_or_else(|| "auto".into());
    let launcher = launcher(environment);
    let (mut family, ranks, name) = match (transport.as_str(), launcher) {
        ("pool", _) => return Ok(Choice::Pool),
        ("auto", Launcher::None) if pool::is_named(environment) => return Ok(Choice::Pool),
        ("none", _) | ("auto", Launcher::None) => return Ok(Choice::Alone),
        ("auto", Launcher::BareSrun(ranks)) => {
            return Err(Error::Transport(format!(
                "srun started {ranks} processes without MPI: use `srun --mpi=pmix` (Open MPI) or `srun --mpi=pmi2` (MPICH), \
                 or set WTR_TRANSPORT=none if each process is to be a run of its own"
            )));
        }
        ("auto" | "mpi", Launcher::Mpi { family, ranks, name }) => (family, ranks, name),
        ("mpi", Launcher::None | Launcher::BareSrun(_)) => {
            (Family::OpenMpi, None, "WTR_TRANSPORT=mpi")
        }
        (other, _) => {
            return Err(Error::Transport(format!(
                "WTR_TRANSPORT is {other}, and must be one of auto, mpi, pool, none"
            )));
        }
    };
    let (mut folder, mut file) = (None, None);
    match environment("WTR_MPI").as_deref() {
        None => {}
        Some("openmpi") => family = Family::OpenMpi,
        Some("mpich") => family = Family::Mpich,
        Some(path) if Path::new(path).is_dir() => folder = Some(path.into()),
        Some(path) if path.contains('/') => file = Some(path.into()),
        Some(other) => {
            return Err(Error::Transport(format!(
                "WTR_MPI is {other}, and must be openmpi, mpich, or the path of a shim or a folder"
            )));
        }
    }
    Ok(Choice::Mpi { family, folder, file, ranks, launcher: name })
}

fn launcher(environment: Environment<'_>) -> Launcher {
    let number = |name: &str| environment(name).and_then(|value| value.parse().ok());
    let has = |name: &str| environment(name).is_some();
    // Inner launchers come before outer ones: `mpirun` within a job of Slurm has the variables of
    // both.
    if has("OMPI_COMM_WORLD_SIZE") {
        return Launcher::Mpi {
            family: Family::OpenMpi,
            ranks: number("OMPI_COMM_WORLD_SIZE"),
            name: "mpirun of Open MPI",
        };
    }
    if has("PMI_FD") || has("PMI_PORT") || has("HYDI_CONTROL_FD") {
        return Launcher::Mpi {
            family: Family::Mpich,
            ranks: number("PMI_SIZE"),
            name: "mpiexec of MPICH (hydra)",
        };
    }
    let tasks = number("SLURM_STEP_NUM_TASKS").filter(|_| has("SLURM_PROCID"));
    if has("PMIX_RANK") {
        return Launcher::Mpi {
            family: Family::OpenMpi,
            ranks: tasks,
            name: "a launcher with PMIx",
        };
    }
    if has("PMI_RANK") || has("PMI_SIZE") {
        return Launcher::Mpi {
            family: Family::Mpich,
            ranks: number("PMI_SIZE").or(tasks),
            name: "a launcher with PMI",
        };
    }
    match tasks {
        Some(tasks) if tasks > 1 => Launcher::BareSrun(tasks),
        _ => Launcher::None,
    }
}

fn silence(environment: Environment<'_>) -> Result<u64, Error> {
    let Some(value) = environment("WTR_SILENCE") else { return Ok(SILENCE_NS) };
    let seconds = value.parse::<u32>().ok().filter(|seconds| *seconds >= 2);
    seconds.map(|seconds| u64::from(seconds) * 1_000_000_000).ok_or_else(|| {
        Error::Transport(format!(
            "WTR_SILENCE is {value}, and must be a number of seconds, at least 2"
        ))
    })
}

/// Returns the path of this MPI's shim.
fn find(family: Family, folder: Option<&Path>, launcher: &str) -> Result<PathBuf, Error> {
    let name = family.file();
    let folders = match folder {
        Some(folder) => vec![folder.to_owned()],
        None => folders(),
    };
    if let Some(found) = folders.iter().map(|folder| folder.join(&name)).find(|path| path.is_file())
    {
        return Ok(found);
    }
    let mut message = format!(
        "{launcher} needs {}, but libwater's shim for it, {name}, is in none of",
        family.title()
    );
    for folder in &folders {
        _ = write!(message, "\n  {}", folder.display());
    }
    _ = write!(
        message,
        "\n`make build` builds it if mpicc.{} is installed ({} on Debian). WTR_MPI names another shim",
        family.name(),
        family.packages()
    );
    Err(Error::Transport(message))
}

/// Returns the folders to search for shims: beside the library or program that this code is in,
/// beside the program, and where `make install` puts shims.
fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for file in [own_file(), std::env::current_exe().ok()].into_iter().flatten() {
        let Some(beside) = file.parent() else { continue };
        folders.push(beside.to_owned());
        folders.push(beside.join("penstock"));
        if let Some(prefix) = beside.parent() {
            folders.push(prefix.join("lib/penstock"));
        }
    }
    folders.extend(FOLDERS.map(PathBuf::from));
    let mut seen = Vec::new();
    folders.retain(|folder| {
        !seen.contains(folder) && {
            seen.push(folder.clone());
            true
        }
    });
    folders
}

/// Returns the file that this code was loaded from.
fn own_file() -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let address: *const libc::c_void = (own_file as fn() -> Option<PathBuf> as *const ()).cast();
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` may be written, and any address is allowed.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: all zeros is a valid value, and the call has filled it.
    let name = unsafe { info.assume_init() }.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: the string ends with a zero and lives as long as this code is loaded.
    let name = unsafe { std::ffi::CStr::from_ptr(name) };
    std::fs::canonicalize(std::ffi::OsStr::from_bytes(name.to_bytes())).ok()
}

/// Ignores SIGUSR1 unless the program handles it. If the launcher of MPICH does not end runs that
/// have lost a rank (`-disable-auto-cleanup`), it sends this signal to the other ranks, which would
/// end them.
fn survive_losses() {
    // SAFETY: this only reads the handler.
    let old = unsafe {
        let mut old = std::mem::zeroed::<libc::sigaction>();
        (libc::sigaction(libc::SIGUSR1, std::ptr::null(), &raw mut old) == 0).then_some(old)
    };
    if old.is_some_and(|old| old.sa_sigaction == libc::SIG_DFL) {
        // SAFETY: ignoring a signal needs no handler. The program may still set one later.
        unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
    }
}

/// Adds to the error of a shim what the user can do.
fn explain(unusable: &Unusable, family: Family) -> Error {
    let hint = match unusable {
        Unusable::Open { .. } => {
            format!("\nIs {} installed here? On Debian: {}", family.title(), family.packages())
        }
        _ => String::new(),
    };
    Error::Transport(format!("{unusable}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)], work: impl FnOnce(Environment<'_>)) {
        let find = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        work(&find);
    }

    fn mpi(variables: &[(&str, &str)]) -> (Family, Option<u32>) {
        let mut found = None;
        with(variables, |environment| found = Some(choose(environment)));
        match found {
            Some(Ok(Choice::Mpi { family, ranks, .. })) => (family, ranks),
            other => panic!("no MPI for {variables:?}: {other:?}"),
        }
    }

    fn refusal(variables: &[(&str, &str)]) -> String {
        let mut found = None;
        with(variables, |environment| found = Some(choose(environment)));
        found.unwrap().unwrap_err().to_string()
    }

    #[test]
    fn without_a_launcher_a_process_is_alone() {
        for variables in [
            &[][..],
            &[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")],
            &[("OMPI_COMM_WORLD_SIZE", "4"), ("WTR_TRANSPORT", "none")],
        ] {
            with(variables, |environment| {
                assert_eq!(choose(environment).unwrap(), Choice::Alone, "{variables:?}")
            });
        }
    }

    #[test]
    fn a_pool_that_is_named_is_used_unless_a_launcher_of_mpi_or_the_user_says_otherwise() {
        let nodes = ("PENSTOCK_NODES", "unix:/tmp/x.sock");
        let chosen = |variables: &[(&str, &str)]| {
            let mut found = None;
            with(variables, |environment| found = Some(choose(environment)));
            found.unwrap().unwrap()
        };
        assert_eq!(chosen(&[nodes]), Choice::Pool);
        assert_eq!(chosen(&[("WTR_TRANSPORT", "pool")]), Choice::Pool);
        assert_eq!(chosen(&[nodes, ("WTR_TRANSPORT", "none")]), Choice::Alone);
        assert_eq!(
            chosen(&[("SLURM_JOB_NODELIST", "a[1-2]")]),
            Choice::Alone,
            "the user has not said that daemons run there"
        );
        assert!(matches!(chosen(&[nodes, ("OMPI_COMM_WORLD_SIZE", "4")]), Choice::Mpi { .. }));
    }

    #[test]
    fn each_launcher_has_its_mpi() {
        assert_eq!(
            mpi(&[("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "0")]),
            (Family::OpenMpi, Some(4))
        );
        assert_eq!(
            mpi(&[("PMI_FD", "6"), ("PMI_SIZE", "3"), ("PMI_RANK", "1")]),
            (Family::Mpich, Some(3))
        );
        assert_eq!(
            mpi(&[("PMIX_RANK", "1"), ("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "8")]),
            (Family::OpenMpi, Some(8))
        );
        assert_eq!(
            mpi(&[("PMI_RANK", "1"), ("PMI_SIZE", "8"), ("SLURM_PROCID", "1")]),
            (Family::Mpich, Some(8))
        );
        // `mpirun` within a job of Slurm.
        assert_eq!(
            mpi(&[
                ("OMPI_COMM_WORLD_SIZE", "2"),
                ("SLURM_PROCID", "0"),
                ("SLURM_STEP_NUM_TASKS", "1")
            ]),
            (Family::OpenMpi, Some(2))
        );
    }

    #[test]
    fn the_user_may_name_another_mpi() {
        assert_eq!(mpi(&[("PMIX_RANK", "1"), ("WTR_MPI", "mpich")]), (Family::Mpich, None));
        assert_eq!(mpi(&[("WTR_TRANSPORT", "mpi"), ("WTR_MPI", "mpich")]), (Family::Mpich, None));
        with(
            &[("WTR_TRANSPORT", "mpi"), ("WTR_MPI", "/opt/x/libwtr_mpi_cray.so")],
            |environment| {
                let Ok(Choice::Mpi { file, .. }) = choose(environment) else {
                    panic!("the file is not taken as a shim")
                };
                assert_eq!(file.unwrap(), Path::new("/opt/x/libwtr_mpi_cray.so"));
            },
        );
    }

    #[test]
    fn what_cannot_work_is_refused_with_what_to_do() {
        assert!(
            refusal(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "4")]).contains("--mpi=pmix")
        );
        assert!(refusal(&[("WTR_TRANSPORT", "tcp")]).contains("auto, mpi, pool, none"));
        assert!(
            refusal(&[("OMPI_COMM_WORLD_SIZE", "4"), ("WTR_MPI", "lam")])
                .contains("openmpi, mpich")
        );
        let missing = find(Family::Mpich, Some(Path::new("/nonexistent")), "mpiexec")
            .unwrap_err()
            .to_string();
        assert!(missing.contains("/nonexistent") && missing.contains("libmpich-dev"), "{missing}");
        with(&[("WTR_SILENCE", "1")], |environment| assert!(silence(environment).is_err()));
    }

    #[test]
    fn shims_are_looked_for_beside_this_code_and_below_the_prefix() {
        let own = own_file().unwrap();
        assert!(own.is_file());
        let folders = folders();
        assert_eq!(folders.first().map(PathBuf::as_path), own.parent());
        assert!(folders.iter().any(|folder| folder.ends_with("lib/penstock")));
    }
}
