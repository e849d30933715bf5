//! Processes that are members of one heap.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use penstock_ggas::{Heap, Plan};
use penstock_link::Stream;
use penstock_trial::{Need, patience, skip, wait_for};

use crate::ucx;

/// Returns the factor on the amount of work: `GGAS_TEST_SCALE=100` takes many minutes.
pub fn scale() -> u64 {
    std::env::var("GGAS_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// How members reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Shared,
    ProxyUnix,
    ProxyTcp,
    /// The members' stream is TCP, and UCX over TCP carries the bytes.
    UcxTcp,
    /// The same with UCX's shared memory, which reports no failures.
    UcxPosix,
}

impl Way {
    const NAMED: [Self; 5] =
        [Self::Shared, Self::ProxyUnix, Self::ProxyTcp, Self::UcxTcp, Self::UcxPosix];

    /// Returns all ways that this build and host have.
    pub fn all() -> Vec<Self> {
        [Self::Shared, Self::ProxyUnix].into_iter().chain(Self::between_nodes()).collect()
    }

    /// Returns the ways between nodes.
    pub fn between_nodes() -> Vec<Self> {
        let mut ways = vec![Self::ProxyTcp];
        if ucx::is_here() {
            ways.extend([Self::UcxTcp, Self::UcxPosix]);
        }
        ways
    }

    /// Returns the transports that UCX may use, if this way uses UCX.
    fn ucx(self) -> Option<&'static str> {
        match self {
            Self::Shared | Self::ProxyUnix | Self::ProxyTcp => None,
            Self::UcxTcp => Some("tcp"),
            Self::UcxPosix => Some("posix"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::ProxyUnix => "proxy-unix",
            Self::ProxyTcp => "proxy-tcp",
            Self::UcxTcp => "ucx-tcp",
            Self::UcxPosix => "ucx-posix",
        }
    }

    fn of(name: &str) -> Self {
        Self::NAMED.into_iter().find(|way| way.name() == name).unwrap()
    }
}

/// Runtime of a member's kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    Pocl,
    Intel,
}

impl Runtime {
    /// Returns where the ICD loader finds Intel's runtime for CPUs. Skips the test without it.
    pub fn intel_vendors() -> Option<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.venv-cuda/vendors");
        if folder.join("intel.icd").exists() {
            return folder.canonicalize().ok();
        }
        skip(Need::Intel, "no Intel runtime for CPUs: run `tools/setup.sh cuda`");
        None
    }
}

/// Task for the members of a heap.
#[derive(Clone)]
pub struct Task {
    pub scenario: &'static str,
    pub way: Way,
    /// Runtimes of the members, which have one PE each.
    pub members: Vec<Runtime>,
    pub bytes: u64,
    pub timeout: Duration,
    pub options: &'static str,
    pub args: Vec<u64>,
}

impl Task {
    pub fn new(scenario: &'static str, way: Way, members: usize) -> Self {
        Self {
            scenario,
            way,
            members: vec![Runtime::Pocl; members],
            bytes: 1 << 20,
            timeout: patience(),
            options: "-cl-std=CL1.2",
            args: Vec::new(),
        }
    }

    pub fn args(mut self, args: &[u64]) -> Self {
        self.args = args.to_vec();
        self
    }
}

/// Running members of a heap.
pub struct Mesh {
    folder: PathBuf,
    pub children: Vec<Child>,
    readers: Vec<Option<BufReader<std::process::ChildStdout>>>,
}

/// Messages of a member by name.
pub type Said = HashMap<String, Vec<u64>>;

impl Mesh {
    pub fn start(task: &Task) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("ggas-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut children = Vec::new();
        for (index, runtime) in task.members.iter().enumerate() {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "member_of_another_test", "--nocapture"]);
            command.env("GGAS_TEST_MEMBER", index.to_string());
            command.env("GGAS_TEST_MEMBERS", task.members.len().to_string());
            command.env("GGAS_TEST_FOLDER", &folder);
            command.env("GGAS_TEST_SCENARIO", task.scenario);
            command.env("GGAS_TEST_WAY", task.way.name());
            command.env("GGAS_TEST_BYTES", task.bytes.to_string());
            command.env("GGAS_TEST_TIMEOUT_MS", task.timeout.as_millis().to_string());
            command.env("GGAS_TEST_OPTIONS", task.options);
            // Lets two work-groups of one kernel be resident at the same time on every machine.
            command.env("POCL_MAX_PTHREAD_COUNT", "2");
            if let Some(transports) = task.way.ucx() {
                ucx::prepare(&mut command, transports);
            }
            let args: Vec<String> = task.args.iter().map(u64::to_string).collect();
            command.env("GGAS_TEST_ARGS", args.join(","));
            if *runtime == Runtime::Intel {
                let vendors = Runtime::intel_vendors().unwrap();
                command.env("OCL_ICD_VENDORS", &vendors).env("OPENCL_VENDOR_PATH", &vendors);
            }
            children.push(command.stdout(Stdio::piped()).spawn().unwrap());
        }
        let readers =
            children.iter_mut().map(|child| child.stdout.take().map(BufReader::new)).collect();
        Self { folder, children, readers }
    }

    /// Reads messages of a member until the named one or the end.
    pub fn hear(&mut self, member: usize, until: &str) -> Said {
        let mut said = Said::new();
        let Some(reader) = self.readers[member].as_mut() else { return said };
        let mut line = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return said;
            }
            let Some((_, rest)) = line.split_once("@@ ") else { continue };
            let mut words = rest.split_whitespace();
            let name = words.next().unwrap_or_default().to_owned();
            said.insert(name.clone(), words.filter_map(|word| word.parse().ok()).collect());
            if name == until {
                return said;
            }
        }
    }

    /// Tells the members to continue: see [`Told::wait_for_file`].
    pub fn make_file(&self, name: &str) {
        std::fs::write(self.folder.join(name), []).unwrap();
    }

    /// Waits for all members and returns their messages. Skips the test if some had no device.
    pub fn finish(mut self) -> Option<Vec<Said>> {
        let said: Vec<Said> =
            (0..self.children.len()).map(|member| self.hear(member, "")).collect();
        for child in &mut self.children {
            let status = wait(child);
            assert!(status.success(), "a member failed: {status}");
        }
        if said.iter().any(|said| said.contains_key("skipped")) {
            skip(Need::OpenCl, "a member has no device");
            return None;
        }
        Some(said)
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        for child in &mut self.children {
            _ = child.kill();
            _ = child.wait();
        }
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub fn wait(child: &mut Child) -> std::process::ExitStatus {
    let mut status = None;
    wait_for("the end of a member", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Sends a message to the test that started this member.
pub fn say(name: &str, numbers: &[u64]) {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    // In one piece, because other threads of the test harness also print.
    let line = format!("\n@@ {name} {}\n", numbers.join(" "));
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Task that a member was given.
pub struct Told {
    pub me: u32,
    pub count: u32,
    pub scenario: String,
    pub options: String,
    pub args: Vec<u64>,
    way: Way,
    folder: PathBuf,
    bytes: u64,
    timeout: Duration,
}

impl Told {
    /// Reads the task from the environment. Returns `None` if this process is no member.
    pub fn hear() -> Option<Self> {
        let text = |name: &str| std::env::var(format!("GGAS_TEST_{name}")).ok();
        let number = |name: &str| text(name).unwrap().parse::<u64>().unwrap();
        let me = text("MEMBER")?.parse().unwrap();
        Some(Self {
            me,
            count: u32::try_from(number("MEMBERS")).unwrap(),
            scenario: text("SCENARIO").unwrap(),
            options: text("OPTIONS").unwrap(),
            args: text("ARGS").unwrap().split(',').filter_map(|word| word.parse().ok()).collect(),
            way: Way::of(&text("WAY").unwrap()),
            folder: text("FOLDER").unwrap().into(),
            bytes: number("BYTES"),
            timeout: Duration::from_millis(number("TIMEOUT_MS")),
        })
    }

    /// Makes the task for a PE of a test within one process.
    pub fn alone(me: u32, scenario: &str, args: &[u64]) -> Self {
        Self {
            me,
            count: 2,
            scenario: scenario.to_owned(),
            options: String::new(),
            args: args.to_vec(),
            way: Way::Shared,
            folder: PathBuf::new(),
            bytes: 0,
            timeout: Duration::ZERO,
        }
    }

    /// Waits until the test makes the file.
    pub fn wait_for_file(&self, name: &str) {
        let file = self.folder.join(name);
        wait_for(&file.display().to_string(), || file.exists());
    }

    /// Waits until all members are here. A member that leaves right after a barrier may leave
    /// others in it, which still have to hear from third members.
    pub fn leave_together(&self) {
        std::fs::write(self.folder.join(format!("leaves-{}", self.me)), []).unwrap();
        (0..self.count).for_each(|member| self.wait_for_file(&format!("leaves-{member}")));
    }

    /// Returns the started heap.
    pub fn heap(&self) -> Arc<Heap> {
        let heap = Heap::create(Plan {
            id: 7,
            members: (0..self.count).collect(),
            me: self.me,
            bytes: self.bytes,
            timeout: self.timeout,
            force_proxy: self.way != Way::Shared,
        })
        .unwrap();
        if let Some(transports) = self.way.ucx() {
            ucx::offer(&heap);
            self.join_all(&heap);
            heap.start().unwrap();
            ucx::check(&heap, transports);
        } else {
            self.join_all(&heap);
            heap.start().unwrap();
        }
        heap
    }

    fn join_all(&self, heap: &Arc<Heap>) {
        let listener = self.listen();
        let mut joins = Vec::new();
        let mut join = |member: u32, fd: OwnedFd| {
            let heap = heap.clone();
            joins.push(thread::spawn(move || {
                heap.join(member, Stream::from_fd(fd).unwrap()).unwrap()
            }));
        };
        for lower in 0..self.me {
            join(lower, self.connect(lower));
        }
        for _ in self.me + 1..self.count {
            let (member, fd) = listener();
            join(member, fd);
        }
        for thread in joins {
            thread.join().unwrap();
        }
    }

    fn place(&self, member: u32) -> PathBuf {
        self.folder.join(member.to_string())
    }

    fn listen(&self) -> Box<dyn Fn() -> (u32, OwnedFd)> {
        let place = self.place(self.me);
        let draft = place.with_extension("new");
        let number = |from: &mut dyn Read| {
            let mut number = [0; 4];
            from.read_exact(&mut number).unwrap();
            u32::from_ne_bytes(number)
        };
        if self.way == Way::ProxyTcp || self.way.ucx().is_some() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            std::fs::write(&draft, listener.local_addr().unwrap().to_string()).unwrap();
            std::fs::rename(draft, place).unwrap();
            Box::new(move || {
                let mut stream = listener.accept().unwrap().0;
                (number(&mut stream), stream.into())
            })
        } else {
            let listener = UnixListener::bind(&draft).unwrap();
            std::fs::rename(draft, place).unwrap();
            Box::new(move || {
                let mut stream = listener.accept().unwrap().0;
                (number(&mut stream), stream.into())
            })
        }
    }

    fn connect(&self, member: u32) -> OwnedFd {
        let place = self.place(member);
        wait_for(&format!("member {member}"), || place.exists());
        let me = self.me.to_ne_bytes();
        if self.way == Way::ProxyTcp || self.way.ucx().is_some() {
            let mut stream = TcpStream::connect(std::fs::read_to_string(place).unwrap()).unwrap();
            stream.write_all(&me).unwrap();
            stream.into()
        } else {
            let mut stream = UnixStream::connect(place).unwrap();
            stream.write_all(&me).unwrap();
            stream.into()
        }
    }
}
