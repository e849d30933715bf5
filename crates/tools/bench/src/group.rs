//! The processes of a host path, as the process that started them sees them.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use penstock_process::search;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{Error, Result};
use crate::host::rank::Said;
use crate::plan::{Meeting, Plan, RankPlan};

/// MPI implementations whose launchers are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    OpenMpi,
    Mpich,
}

/// An MPI that is installed on this host.
#[derive(Clone, Debug)]
pub struct Launcher {
    family: Family,
    program: PathBuf,
    shim: PathBuf,
}

/// Longest time for a figure with its idle time and warm-up, in seconds, unless the plan asks for
/// more.
const POINT_S_MAX: u64 = 120;
/// Time in which the processes should end by themselves.
const END_MAX: Duration = Duration::from_secs(5);
/// How often they are checked during that time.
const END_NAP: Duration = Duration::from_millis(10);
/// Largest part of a process's last words that is shown: some lines of a terminal.
const SAID_BYTES_MAX: usize = 600;

impl Launcher {
    /// Finds an MPI: its launcher in the path, and libWater's shim for it in one of `folders`.
    ///
    /// # Errors
    /// Returns [`Error::Absent`], which says what is missing of each MPI.
    pub fn find(folders: &[PathBuf]) -> Result<Self> {
        let mut missing = Vec::new();
        for family in [Family::OpenMpi, Family::Mpich] {
            let (names, file): (&[&str], _) = match family {
                Family::OpenMpi => (&["mpirun.openmpi", "mpirun"], "libwtr_mpi_openmpi.so"),
                Family::Mpich => {
                    (&["mpirun.mpich", "mpiexec.hydra", "mpirun"], "libwtr_mpi_mpich.so")
                }
            };
            let Some(shim) =
                folders.iter().map(|folder| folder.join(file)).find(|path| path.is_file())
            else {
                missing.push(format!("{file} is not there (make shims)"));
                continue;
            };
            match names
                .iter()
                .find_map(|name| search::program(name.as_ref()))
                .filter(|program| family.is_of(program))
            {
                Some(program) => return Ok(Self { family, program, shim }),
                None => missing.push(format!("{} is not in the path", names.join(" or "))),
            }
        }
        Err(Error::Absent(format!("no MPI: {}", missing.join("; "))))
    }

    /// Whether the ranks can be told to yield while they wait.
    #[must_use]
    pub fn can_yield(&self) -> bool {
        self.family == Family::OpenMpi
    }

    fn command(&self, ranks: u32, yields: bool) -> Command {
        let mut command = Command::new(&self.program);
        if self.family == Family::OpenMpi {
            // A rank also has threads of its driver, so it is not bound to a core.
            command.args(["--oversubscribe", "--bind-to", "none"]);
            command.args(["--mca", "mpi_yield_when_idle", if yields { "1" } else { "0" }]);
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        command.args(["-n", &ranks.to_string()]);
        command
    }
}

impl Family {
    /// Whether `program` is the launcher of this family. `mpirun` may be that of any family.
    fn is_of(self, program: &FilePath) -> bool {
        if program.file_name().is_some_and(|name| name != "mpirun") {
            return true;
        }
        let said =
            Command::new(program).arg("--version").output().map(|it| it.stdout).unwrap_or_default();
        let is_open = String::from_utf8_lossy(&said).contains("Open MPI");
        is_open == (self == Self::OpenMpi)
    }
}

/// Running processes. They end when this value is dropped, or when this process ends.
#[derive(Debug)]
pub struct Group {
    who: String,
    children: Vec<Child>,
    lines: Receiver<String>,
    patience: Duration,
    directory: PathBuf,
    /// Whether the processes end by themselves.
    is_over: bool,
}

/// Settings with which all ranks start.
#[derive(Debug)]
pub struct Start<'a> {
    /// This program. Each rank runs it with `arguments` and the file of the plan.
    pub program: &'a FilePath,
    /// Arguments that make the program a rank. The file follows, and then, for TCP, the rank's
    /// number.
    pub arguments: &'a [&'a str],
    /// A directory that other users cannot read.
    pub directory: &'a FilePath,
    /// Cores that each rank's device may use, for PoCL.
    pub cores: usize,
}

impl Group {
    /// Starts ranks under MPI. With `yields`, waiting ranks yield their cores.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if a process or a file cannot be created.
    pub fn mpi(
        start: &Start<'_>,
        launcher: &Launcher,
        plan: &Plan,
        ranks: u32,
        yields: bool,
    ) -> Result<Self> {
        let meeting = Meeting::Mpi { shim: launcher.shim.clone() };
        let who = format!("{ranks} ranks of {}", launcher.program.display());
        let (directory, file) = Self::prepare(start, plan, ranks, meeting)?;
        let mut command = launcher.command(ranks, yields);
        command.arg(start.program).args(start.arguments).arg(&file);
        Self::run(who, vec![command], start, plan, directory)
    }

    /// Starts ranks that meet over TCP.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if a process or a file cannot be created.
    pub fn tcp(start: &Start<'_>, plan: &Plan, ranks: u32) -> Result<Self> {
        let mut token = [0; 8];
        rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Error::io("random numbers")(error.into()))?;
        let token = u64::from_le_bytes(token);
        let directory = start.directory.join(format!("tcp-{token:016x}"));
        let meeting = Meeting::Tcp { directory: directory.clone(), token };
        std::fs::create_dir(&directory).map_err(Error::io(directory.display().to_string()))?;
        let file = write_plan(&directory, &RankPlan { plan: plan.clone(), ranks, meeting })?;
        let command = |rank: u32| {
            let mut command = Command::new(start.program);
            command.args(start.arguments).arg(&file).arg(rank.to_string());
            command
        };
        Self::run(
            format!("{ranks} processes"),
            (0..ranks).map(command).collect(),
            start,
            plan,
            directory,
        )
    }

    fn prepare(
        start: &Start<'_>,
        plan: &Plan,
        ranks: u32,
        meeting: Meeting,
    ) -> Result<(PathBuf, PathBuf)> {
        let directory = start.directory.join(format!("mpi-{ranks}-{}", plan.paths.len()));
        std::fs::create_dir_all(&directory).map_err(Error::io(directory.display().to_string()))?;
        let file = write_plan(&directory, &RankPlan { plan: plan.clone(), ranks, meeting })?;
        Ok((directory, file))
    }

    fn run(
        who: String,
        commands: Vec<Command>,
        start: &Start<'_>,
        plan: &Plan,
        directory: PathBuf,
    ) -> Result<Self> {
        let (sender, lines) = channel();
        let seconds = POINT_S_MAX + to_seconds(plan.idle_seconds) + 10 * to_seconds(plan.seconds);
        let patience = Duration::from_secs(seconds);
        let mut group =
            Self { who, children: Vec::new(), lines, patience, directory, is_over: false };
        for (index, mut command) in commands.into_iter().enumerate() {
            let log = group.directory.join(format!("said.{index}"));
            let log = std::fs::File::create(&log).map_err(Error::io(log.display().to_string()))?;
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
            // Ranks use local devices, not those of a pool. Each rank has its own cores, as on
            // nodes of its own.
            command.env("PENSTOCK_NODES", "none").env("PENSTOCK_WORKER", "1");
            command.env("POCL_MAX_PTHREAD_COUNT", start.cores.to_string());
            // So that all processes of MPI's launcher can be ended together.
            command.process_group(0);
            let doing = format!("starting {}", command.get_program().display());
            let mut child = command.spawn().map_err(Error::io(doing))?;
            if let Some(stdout) = child.stdout.take() {
                let sender = sender.clone();
                let hear = move || {
                    for line in BufReader::new(stdout).lines().map_while(std::io::Result::ok) {
                        if sender.send(line).is_err() {
                            return;
                        }
                    }
                };
                penstock_process::start("rank", hear).map_err(Error::io("starting a thread"))?;
            }
            group.children.push(child);
        }
        Ok(group)
    }

    /// Waits for the next message of the first process.
    ///
    /// # Errors
    /// Returns [`Error::Ended`], [`Error::Late`] or [`Error::Language`].
    pub fn hear(&mut self) -> Result<Said> {
        let line = match self.lines.recv_timeout(self.patience) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                let what = format!("the measurement by {}", self.who);
                return Err(Error::Late { what, seconds: self.patience.as_secs() });
            }
            Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
        };
        match serde_json::from_str(&line) {
            Ok(Said::Failed(text)) => {
                let said = self.last_words();
                let said = if said.is_empty() { text } else { format!("{text}; {said}") };
                Err(Error::Ended { who: self.who.clone(), how: "a failure".to_owned(), said })
            }
            Ok(said) => {
                self.is_over |= matches!(said, Said::End);
                Ok(said)
            }
            Err(_) => Err(Error::Language { who: self.who.clone(), text: line }),
        }
    }

    fn ended(&mut self) -> Error {
        let how = self.children.iter_mut().find_map(|child| child.wait().ok());
        let how = how.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
        Error::Ended { who: self.who.clone(), how, said: self.last_words() }
    }

    /// Returns the end of what the processes wrote to standard error.
    fn last_words(&self) -> String {
        let mut said = String::new();
        for index in 0..self.children.len() {
            let mut text = Vec::new();
            if let Ok(mut file) = std::fs::File::open(self.directory.join(format!("said.{index}")))
            {
                _ = file.read_to_end(&mut text);
            }
            let text = String::from_utf8_lossy(&text).trim().replace('\n', " ");
            let skip = text.chars().count().saturating_sub(SAID_BYTES_MAX);
            said.extend(text.chars().skip(skip));
        }
        said
    }

    /// Waits for the processes to end, and ends them with signals if that takes too long.
    fn end(&mut self) {
        if !self.is_over {
            self.let_go();
        }
        let deadline = Instant::now() + END_MAX;
        self.await_ends(deadline);
        self.let_go();
        for (signal, deadline) in
            [(Signal::TERM, deadline + END_MAX), (Signal::KILL, deadline + 2 * END_MAX)]
        {
            self.signal(signal);
            self.await_ends(deadline);
        }
        for child in &mut self.children {
            _ = child.wait();
        }
        _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Group {
    /// Closes their standard input, which makes them end.
    fn let_go(&mut self) {
        for child in &mut self.children {
            drop(child.stdin.take());
        }
    }

    fn await_ends(&mut self, deadline: Instant) {
        while Instant::now() < deadline
            && self.children.iter_mut().any(|child| matches!(child.try_wait(), Ok(None)))
        {
            std::thread::sleep(END_NAP);
        }
    }

    fn signal(&mut self, signal: Signal) {
        for child in &mut self.children {
            if matches!(child.try_wait(), Ok(None))
                && let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
            {
                // The child has not been waited for, so its process id cannot belong to another
                // process.
                _ = kill_process_group(pid, signal);
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

fn write_plan(directory: &FilePath, plan: &RankPlan) -> Result<PathBuf> {
    let file = directory.join("plan.json");
    let text = serde_json::to_vec(plan).unwrap_or_default();
    std::fs::write(&file, text).map_err(Error::io(file.display().to_string()))?;
    Ok(file)
}

fn to_seconds(seconds: f64) -> u64 {
    Duration::try_from_secs_f64(seconds).map_or(0, |time| time.as_secs())
}
