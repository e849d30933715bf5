//! The MPIs of this machine: their shims, and how to start ranks under their launchers so that no
//! process outlives a test.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use penstock_trial::patience;

use crate::program;

/// Time limit of a run, which has up to eight processes.
fn run_max() -> Duration {
    3 * patience()
}

/// Time that a launcher gets to end its ranks after the time limit.
const GRACE: Duration = Duration::from_secs(5);
/// Path of the worker program, `wtrd`.
pub const DAEMON: &str = env!("CARGO_BIN_EXE_wtrd");

/// Starts a program in a name space with its own process numbers. SIGUSR1, with which MPICH's
/// launcher reports a lost rank, would end `unshare`.
const UNSHARE: [&str; 3] =
    ["sh", "-c", "trap '' USR1; exec unshare --pid --fork --kill-child \"$0\""];

/// Whether the system allows [`UNSHARE`].
pub fn can_unshare() -> bool {
    let mut command = Command::new(UNSHARE[0]);
    command.args(&UNSHARE[1..]).arg("true");
    go(command, run_max()).is_ok_and(|ended| ended.code == Some(0))
}

/// An MPI that the tests run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    OpenMpi,
    Mpich,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::OpenMpi, Self::Mpich];

    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
        }
    }

    pub const fn other(self) -> Self {
        match self {
            Self::OpenMpi => Self::Mpich,
            Self::Mpich => Self::OpenMpi,
        }
    }

    pub const fn packages(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi-bin libopenmpi-dev",
            Self::Mpich => "mpich libmpich-dev",
        }
    }

    const fn launcher(self) -> &'static str {
        match self {
            Self::OpenMpi => "mpirun.openmpi",
            Self::Mpich => "mpiexec.hydra",
        }
    }

    fn compiler(self) -> String {
        format!("mpicc.{}", self.name())
    }

    /// Returns why this MPI cannot be tested here, or `None` if it can.
    pub fn missing(self) -> Option<String> {
        let missing =
            [self.compiler(), self.launcher().into()].into_iter().find(|name| !is_command(name))?;
        Some(format!("{missing} is not installed (Debian: {})", self.packages()))
    }

    /// Builds its shim from the current source.
    pub fn shim(self) -> Result<PathBuf, String> {
        let file = scratch("shims").join(format!("libwtr_mpi_{}.so", self.name()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim/wtr_mpi.c");
        let newest = |path: &Path| path.metadata().and_then(|about| about.modified()).ok();
        if newest(&file) > newest(&source).max(newest(&source.with_extension("h"))) {
            return Ok(file);
        }
        let mut command = Command::new(self.compiler());
        command.args([
            "-std=c11",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O2",
            "-shared",
            "-fPIC",
            "-o",
        ]);
        let built = go(
            {
                command.arg(&file).arg(&source);
                command
            },
            run_max(),
        )?;
        if built.code == Some(0) {
            Ok(file)
        } else {
            Err(format!("{} fails:\n{}", self.compiler(), built.output))
        }
    }
}

fn is_command(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Creates a folder for these tests.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ranks").join(name);
    std::fs::create_dir_all(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    folder
}

/// Removes what the runs of this process have left.
pub fn clean() {
    let own = format!("-{}", std::process::id());
    for folder in std::fs::read_dir(scratch("")).into_iter().flatten().flatten() {
        if folder.file_name().to_string_lossy().ends_with(&own) {
            _ = std::fs::remove_dir_all(folder.path());
        }
    }
}

/// A process that has ended.
#[derive(Debug)]
pub struct Ended {
    /// `None` if it reached the time limit.
    pub code: Option<i32>,
    /// All of its output.
    pub output: String,
    pub took: Duration,
}

/// The runs of one test.
#[derive(Debug)]
pub struct Run {
    kind: Kind,
    ranks: u32,
    folder: PathBuf,
    variables: Vec<(String, String)>,
    daemons: bool,
    surviving: bool,
    far: bool,
}

impl Run {
    pub fn new(kind: Kind, ranks: u32, case: &str) -> Self {
        let folder = scratch(&format!("run-{}-{case}-{}", kind.name(), std::process::id()));
        // Files of an earlier run must not remain.
        for left in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            _ = std::fs::remove_file(left.path());
        }
        let variables = vec![
            (program::CASE.to_owned(), case.to_owned()),
            (program::FOLDER.to_owned(), folder.to_string_lossy().into_owned()),
        ];
        Self { kind, ranks, folder, variables, daemons: false, surviving: false, far: false }
    }

    /// Selects the devices of the ranks.
    pub fn devices(self, name: &str) -> Self {
        self.variable(program::DEVICES, name)
    }

    pub fn variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// Runs `wtrd` on all ranks except the root.
    pub fn with_daemons(mut self) -> Self {
        self.daemons = true;
        self
    }

    /// Makes the launcher let the other ranks live if one is killed.
    pub fn surviving(mut self) -> Self {
        self.surviving = true;
        self
    }

    /// Hides the processes of the ranks from each other, as if each were on a host of its own.
    pub fn far_apart(mut self) -> Self {
        self.far = true;
        // What MPIs do between processes of one host relies on process numbers.
        self.surviving()
            .variable(program::FAR, "1")
            .variable("OMPI_MCA_pml", "ob1")
            .variable("OMPI_MCA_btl", "tcp,self")
            .variable("UCX_TLS", "sysv,self")
    }

    /// Returns the folder in which the ranks leave files.
    pub fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    pub fn go(self) -> Result<Ended, String> {
        let shims = self.kind.shim()?;
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(self.kind.launcher());
        match self.kind {
            Kind::OpenMpi => {
                command.args(["--oversubscribe", "--bind-to", "none"]);
                // The launcher must also work as root, the only user of a container.
                command
                    .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                    .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
                    // Launchers that share a folder fail if one removes it while another makes it.
                    .env("OMPI_MCA_orte_tmpdir_base", &self.folder);
                if self.surviving {
                    command.args(["--mca", "orte_enable_recovery", "1"]);
                }
            }
            Kind::Mpich => {
                if self.surviving {
                    // The launcher ends all ranks of a host that has lost one, so each rank is on a
                    // host of its own as far as the launcher knows.
                    let hosts: Vec<String> =
                        (1..=self.ranks).map(|host| format!("127.0.0.{host}")).collect();
                    command.args([
                        "-disable-auto-cleanup",
                        "-launcher",
                        "fork",
                        "-hosts",
                        &hosts.join(","),
                    ]);
                }
            }
        }
        let workers = (self.ranks - 1).to_string();
        // The root comes first, then the other ranks if they run another program.
        if self.daemons {
            command.args(["-n", "1"]).arg(&program).args([":", "-n", &workers, DAEMON]);
        } else if self.far {
            command
                .args(["-n", "1"])
                .arg(&program)
                .args([":", "-n", &workers])
                .args(UNSHARE)
                .arg(&program);
        } else {
            command.args(["-n", &self.ranks.to_string()]).arg(&program);
        }
        if let Some(folder) = shims.parent() {
            command.env("WTR_MPI", folder);
        }
        // Kernels are built once, and the user's cache is not changed.
        command.env("POCL_CACHE_DIR", scratch("pocl"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let ended = go(command, run_max());
        program::await_root(&self.folder);
        for rank in 0..self.ranks {
            program::forget_pid(&self.folder, rank);
        }
        ended
    }
}

/// Runs a command for at most `limit`. All processes that it has started end with it.
pub fn go(mut command: Command, limit: Duration) -> Result<Ended, String> {
    for inherited in ["OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "PMI_FD"] {
        command.env_remove(inherited);
    }
    let (mut reader, writer) = std::io::pipe().map_err(|error| error.to_string())?;
    // MPICH's launcher passes the end of its input on to the first rank. It ends with SIGPIPE,
    // before it has passed on any output, if that rank has ended already. So its input has no end.
    let (input, _open) = std::io::pipe().map_err(|error| error.to_string())?;
    let copy = writer.try_clone().map_err(|error| error.to_string())?;
    let began = Instant::now();
    // It gets a process group of its own, so that all of its processes can be ended.
    command.stdin(input).stdout(writer).stderr(copy).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    // The command holds the other end of the pipe.
    drop(command);
    let listener = std::thread::spawn(move || {
        let mut text = Vec::new();
        _ = reader.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let status = wait(&mut child, limit);
    let took = began.elapsed();
    if status.is_none() {
        signal(&child, libc::SIGTERM);
        if wait(&mut child, GRACE).is_none() {
            signal(&child, libc::SIGKILL);
            _ = child.wait();
        }
    }
    let output = listener.join().unwrap_or_default();
    let code =
        status.map(|status| status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
    Ok(Ended { code, output, took })
}

fn wait(child: &mut Child, limit: Duration) -> Option<std::process::ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() > end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(child: &Child, signal: i32) {
    let Ok(group) = i32::try_from(child.id()) else { return };
    // SAFETY: this is the group of a child that was not waited for, so nobody else has its number.
    unsafe { libc::kill(-group, signal) };
}
