//! The program of the ranks: the root runs a case, and the other ranks serve it. A case panics if
//! something is wrong, which ends the run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_cl_sys::CL_MEM_READ_WRITE;
use penstock_trial::{Random, in_time};
use water::backend::Backend;
use water::backend::opencl::OpenCl;
use water::clock::{Clock, Real};
use water::command::{
    Arg, Code, Command, CommandId, DeviceId, IndexSpace, ObjectId, Outcome, Rank,
};
use water::error::code;
use water::launch::{self, Launched};
use water::request::Request;
use water::runtime::Runtime;

use crate::common::Host;
use crate::timed::Timed;

/// Variables that say what to do.
pub const CASE: &str = "WTR_RANKS_CASE";
pub const FOLDER: &str = "WTR_RANKS_FOLDER";
pub const DEVICES: &str = "WTR_RANKS_DEVICES";
pub const PUMPED: &str = "WTR_RANKS_PUMPED";
pub const FAR: &str = "WTR_RANKS_FAR";

/// Exit code of a root that cannot run its case here.
pub const SKIPPED: i32 = 77;

/// Percentage of one core that a waiting rank may use.
const IDLE_PERCENT_MAX: f64 = 3.0;

/// Runs one process of a run.
pub fn rank(case: &str) -> ExitCode {
    let clock: Arc<dyn Clock> = Arc::new(Real::new());
    let threaded = std::env::var(PUMPED).is_err();
    let Launched { transport, rank, threaded, .. } =
        match launch::transport(Arc::clone(&clock), threaded) {
            Ok(launched) => launched,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        };
    let folder = PathBuf::from(std::env::var(FOLDER).expect("a folder"));
    // This is the number that other ranks see, even from a name space of its own.
    let own = std::fs::read_link("/proc/self").expect("a process");
    std::fs::write(folder.join(format!("pid.{rank}")), own.to_string_lossy().as_bytes())
        .expect("a folder to write to");
    let devices: Box<dyn Backend> = match std::env::var(DEVICES).as_deref() {
        Ok("host") => Box::new(Host::new(2)),
        Ok("timed") => Box::new(Timed::new(Arc::clone(&clock))),
        _ => Box::new(OpenCl::new(Arc::clone(&clock))),
    };
    if case == "vanished" && rank == 1 {
        signal(pid(&folder, 1), libc::SIGKILL);
    }
    if rank > 0 {
        Runtime::serve(transport, devices, clock);
        std::fs::write(folder.join(format!("ended.{rank}")), "ended")
            .expect("a folder to write to");
        return ExitCode::SUCCESS;
    }
    let has_devices = !devices.devices().is_empty();
    let runtime = match Runtime::root(transport, devices, clock, threaded) {
        Ok(runtime) => runtime,
        Err(error) => {
            std::fs::write(folder.join("refused"), error.to_string())
                .expect("a folder to write to");
            return ExitCode::FAILURE;
        }
    };
    let program = Program { runtime, folder };
    if !has_devices {
        program.runtime.end();
        return ExitCode::from(u8::try_from(SKIPPED).unwrap_or(1));
    }
    let began = Instant::now();
    match case {
        "transfers" => transfers(&program),
        "copies" => copies(&program),
        "events" => events(&program),
        "commands" => commands(&program),
        "letters" => letters(&program),
        "failure" => failure(&program),
        "killed" => killed(&program),
        "orphaned" => signal(pid(&program.folder, 0), libc::SIGKILL),
        "stopped" => stopped(&program),
        "idle" => idle(&program),
        other => panic!("there is no case {other}"),
    }
    let worked = began.elapsed();
    let Program { runtime, folder } = program;
    println!("{case}: {worked:?}");
    in_time("the end", || runtime.end());
    std::fs::write(folder.join("ended.0"), "ended").expect("a folder to write to");
    ExitCode::SUCCESS
}

/// Returns the process number of a rank.
fn pid(folder: &Path, rank: Rank) -> i32 {
    let text =
        std::fs::read_to_string(folder.join(format!("pid.{rank}"))).expect("a rank's number");
    text.trim().parse().expect("a number")
}

/// Waits until the root has ended, if it has begun. A launcher that may not end with a rank may end
/// before the root does.
pub fn await_root(folder: &Path) {
    let Ok(text) = std::fs::read_to_string(folder.join("pid.0")) else { return };
    let process = Path::new("/proc").join(text.trim());
    penstock_trial::wait_for("the end of the root", || !process.exists());
}

/// Removes the number, which another process may have later.
pub fn forget_pid(folder: &Path, rank: Rank) {
    _ = std::fs::remove_file(folder.join(format!("pid.{rank}")));
}

fn signal(pid: i32, signal: i32) {
    // SAFETY: this is a process of this run.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "process {pid} is not there");
}

struct Program {
    runtime: Runtime,
    folder: PathBuf,
}

impl Program {
    fn ranks(&self) -> Rank {
        Rank::try_from(self.runtime.ranks().len()).unwrap()
    }

    fn issue(&self, rank: Rank, waits: &[CommandId], command: Command) -> CommandId {
        self.runtime
            .with_root(|root| {
                root.issue(waits.to_vec(), Request::new(DeviceId::new(rank, 0), command))
            })
            .unwrap()
    }

    /// Issues a copy from the first device of `source` to that of `target`.
    fn copy(&self, source: Rank, target: Rank, waits: &[CommandId], copy: Command) -> CommandId {
        let request = Request::new(DeviceId::new(target, 0), copy).from(DeviceId::new(source, 0));
        self.runtime.with_root(|root| root.issue(waits.to_vec(), request)).unwrap()
    }

    fn object(&self) -> ObjectId {
        self.runtime.with_root(water::root::Root::object).unwrap()
    }

    /// Waits for commands, and releases them.
    fn wait(&self, commands: &[CommandId]) -> Outcome {
        let outcome = self.runtime.wait(commands);
        self.runtime.with_root(|root| commands.iter().for_each(|command| root.let_go(*command)));
        outcome
    }

    fn good(&self, commands: &[CommandId]) {
        if let Err(fault) = self.wait(commands) {
            panic!("{fault}");
        }
    }

    fn buffer(&self, rank: Rank, size: usize) -> (ObjectId, CommandId) {
        let buffer = self.object();
        let command = Command::CreateBuffer { buffer, size: size as u64, flags: CL_MEM_READ_WRITE };
        (buffer, self.issue(rank, &[], command))
    }

    /// Issues a write. The bytes must not change until the command has ended.
    fn write(
        &self,
        rank: Rank,
        waits: &[CommandId],
        buffer: ObjectId,
        offset: usize,
        bytes: &[u8],
    ) -> CommandId {
        let address = bytes.as_ptr().expose_provenance() as u64;
        self.issue(
            rank,
            waits,
            Command::Write { buffer, offset: offset as u64, size: bytes.len() as u64, address },
        )
    }

    /// Issues a read. Nobody may use the bytes until the command has ended.
    fn read(
        &self,
        rank: Rank,
        waits: &[CommandId],
        buffer: ObjectId,
        offset: usize,
        bytes: &mut [u8],
    ) -> CommandId {
        let address = bytes.as_mut_ptr().expose_provenance() as u64;
        self.issue(
            rank,
            waits,
            Command::Read { buffer, offset: offset as u64, size: bytes.len() as u64, address },
        )
    }

    fn kernel(&self, rank: Rank, source: &str, name: &str) -> (ObjectId, CommandId) {
        let kernel = self.object();
        let code = Code::Source(source.as_bytes().to_vec());
        let command =
            Command::CreateKernel { kernel, code, name: name.into(), options: String::new() };
        (kernel, self.issue(rank, &[], command))
    }

    fn run(
        &self,
        rank: Rank,
        waits: &[CommandId],
        kernel: ObjectId,
        items: u64,
        args: Vec<Arg>,
    ) -> CommandId {
        let range = IndexSpace::line(items, None);
        self.issue(rank, waits, Command::Run { kernel, range, args })
    }
}

/// Returns bytes that depend on the seed and the index.
fn pattern(seed: u64, size: usize) -> Vec<u8> {
    Random::new(seed).bytes(size)
}

/// Small sizes, sizes around the limits of eager streams (16 KiB) and of pieces (1 MiB), and one
/// with many pieces.
const SIZES: [usize; 14] = [
    1, 3, 4, 1000, 4096, 16_383, 16_384, 16_385, 65_536, 1_048_575, 1_048_576, 1_048_577,
    3_000_001, 9_437_184,
];

fn transfers(program: &Program) {
    let sent: Vec<(Rank, Vec<u8>)> = (0..)
        .zip(SIZES)
        .flat_map(|(index, size)| {
            (0..program.ranks())
                .map(move |rank| (rank, pattern(index * 100 + u64::from(rank), size)))
        })
        .collect();
    let mut got: Vec<Vec<u8>> = sent.iter().map(|(_, bytes)| vec![0; bytes.len()]).collect();
    let began = Instant::now();
    let mut all = Vec::new();
    let mut bytes = 0;
    for ((rank, sent), got) in sent.iter().zip(&mut got) {
        let (buffer, created) = program.buffer(*rank, sent.len());
        let written = program.write(*rank, &[created], buffer, 0, sent);
        let read = program.read(*rank, &[written], buffer, 0, got);
        let released = program.issue(*rank, &[read], Command::ReleaseBuffer { buffer });
        all.extend([created, written, read, released]);
        bytes += 2 * sent.len() * usize::from(*rank != 0);
    }
    program.good(&all);
    let rate = bytes as f64 / began.elapsed().as_secs_f64() / 1e6;
    println!("figure: {} MB over {} ranks: {rate:.0} MB/s", bytes / 1_000_000, program.ranks());
    for ((rank, sent), got) in sent.iter().zip(&got) {
        assert!(sent == got, "{} bytes came back from rank {rank} changed", sent.len());
    }
    // One round trip after the other shows the cost of a small transfer.
    let last = program.ranks() - 1;
    let (buffer, created) = program.buffer(last, 64);
    program.good(&[created]);
    let mut times: Vec<Duration> = (0..50)
        .map(|turn| {
            let sent = pattern(turn, 64);
            let mut got = vec![0; 64];
            let began = Instant::now();
            let written = program.write(last, &[], buffer, 0, &sent);
            let read = program.read(last, &[written], buffer, 0, &mut got);
            program.good(&[written, read]);
            assert_eq!(sent, got);
            began.elapsed()
        })
        .collect();
    times.sort();
    println!(
        "figure: 64 bytes to rank {last} and back: median {:?}, best {:?}",
        times[25], times[0]
    );
}

fn copies(program: &Program) {
    let ranks = program.ranks();
    for size in [5, 16_384, 70_000, 2_500_000] {
        let (mut expected, mut got) = (Vec::new(), Vec::new());
        let mut commands = Vec::new();
        for rank in 0..ranks {
            let sent = pattern(u64::from(rank) + 7, size);
            let target = (rank + 1) % ranks;
            let (from, made) = program.buffer(rank, size);
            let (to, there) = program.buffer(target, size + 32);
            let written = program.write(rank, &[made], from, 0, &sent);
            let command =
                Command::Copy { from, from_offset: 1, to, to_offset: 32, size: size as u64 - 1 };
            let copied = program.copy(rank, target, &[written, there], command);
            let mut bytes = vec![0; size - 1];
            let read = program.read(target, &[copied], to, 32, &mut bytes);
            commands.extend([made, there, written, copied, read]);
            expected.push(sent);
            got.push(bytes);
        }
        program.good(&commands);
        for (rank, (expected, got)) in expected.iter().zip(&got).enumerate() {
            assert!(
                expected[1..] == got[..],
                "a copy of {size} bytes from rank {rank} has changed them"
            );
        }
    }
}

const ADD: &str = "__kernel void add(__global ulong *data, ulong what) { size_t i = get_global_id(0); data[i] = data[i] * 3 + what + i; }";

/// Passes a buffer round all ranks. Each rank changes it with a kernel. The result is right only if
/// the order of all events is kept.
fn events(program: &Program) {
    const ITEMS: usize = 5000;
    const ROUNDS: u64 = 5;
    let ranks = program.ranks();
    let places: Vec<_> = (0..ranks)
        .map(|rank| {
            let (buffer, made) = program.buffer(rank, ITEMS * 8);
            let (kernel, built) = program.kernel(rank, ADD, "add");
            (buffer, made, kernel, built)
        })
        .collect();
    let mut expected = vec![1_u64; ITEMS];
    let start: Vec<u8> = expected.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut commands = Vec::new();
    let mut last = program.write(0, &[places[0].1], places[0].0, 0, &start);
    commands.push(last);
    for turn in 0..ROUNDS * u64::from(ranks) {
        let rank = Rank::try_from(turn % u64::from(ranks)).unwrap();
        let (buffer, _, kernel, built) = places[rank as usize];
        let args = vec![Arg::Buffer(buffer), Arg::Bytes(turn.to_le_bytes().to_vec())];
        let ran = program.run(rank, &[last, built], kernel, ITEMS as u64, args);
        for (place, value) in (0..).zip(&mut expected) {
            *value = value.wrapping_mul(3).wrapping_add(turn).wrapping_add(place);
        }
        let next = (rank + 1) % ranks;
        let (to, made, ..) = places[next as usize];
        let size = ITEMS as u64 * 8;
        let command = Command::Copy { from: buffer, from_offset: 0, to, to_offset: 0, size };
        last = program.copy(rank, next, &[ran, made], command);
        commands.extend([ran, last]);
    }
    let mut got = vec![0; ITEMS * 8];
    commands.push(program.read(0, &[last], places[0].0, 0, &mut got));
    program.good(&commands);
    let got: Vec<u64> = got.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    assert!(got == expected, "the ranks' kernels did not run in the order of their events");
}

/// Issues chains over all ranks, and many commands that wait for nothing.
fn commands(program: &Program) {
    let ranks = program.ranks();
    let began = Instant::now();
    let many: Vec<_> =
        (0..5000).map(|index| program.issue(index % ranks, &[], Command::Marker)).collect();
    program.good(&many);
    let each = began.elapsed() / 5000;
    let began = Instant::now();
    let mut chain: Vec<CommandId> = Vec::new();
    for index in 0..200_usize {
        let mut waits: Vec<CommandId> = chain.last().copied().into_iter().collect();
        waits.extend(index.checked_sub(7).and_then(|earlier: usize| chain.get(earlier)));
        chain.push(program.issue(Rank::try_from(index).unwrap() % ranks, &waits, Command::Marker));
    }
    let outcome = program.runtime.wait(&chain[199..]);
    assert!(outcome.is_ok());
    for command in &chain {
        assert!(
            matches!(program.runtime.outcome(*command), Some(Ok(()))),
            "the last of a chain has ended before {command:?}"
        );
    }
    println!(
        "figure: a command that waits for nothing: {each:?}; a step from rank to rank: {:?}",
        began.elapsed() / 199
    );
}

/// Sends programs of megabytes between small commands.
fn letters(program: &Program) {
    let source = format!("{}{}", "/* long */".repeat(400_000), "__kernel void mix() {}");
    let (buffer, made) = program.buffer(1, 8);
    let mut commands = vec![made];
    let mut sent = Vec::new();
    for turn in 0..8 {
        let (_, built) = program.kernel(1, &source, "mix");
        let bytes = pattern(turn, 8);
        commands.extend([built, program.write(1, &commands, buffer, 0, &bytes)]);
        sent.push(bytes);
    }
    let mut got = vec![0; 8];
    commands.push(program.read(1, &commands, buffer, 0, &mut got));
    program.good(&commands);
    assert_eq!(got, sent[7]);
}

fn failure(program: &Program) {
    let (bad, built) =
        program.kernel(1, "__kernel void wrong(__global int *a) { a[0] = nonsense; }", "wrong");
    let (buffer, made) = program.buffer(1, 64);
    let (mine, made_here) = program.buffer(0, 64);
    let ran = program.run(1, &[built, made], bad, 1, vec![Arg::Buffer(buffer)]);
    let command = Command::Copy { from: buffer, from_offset: 0, to: mine, to_offset: 0, size: 64 };
    let copied = program.copy(1, 0, &[ran, made_here], command);
    let fault = program
        .wait(&[copied])
        .expect_err("a copy of what a kernel that does not build should have made");
    assert_eq!((fault.rank, fault.command, fault.code), (1, built, -11), "{fault}");
    assert!(fault.log.contains("nonsense"), "no build log: {fault}");
    let faults = program.runtime.faults();
    assert_eq!(faults.len(), 1, "one failure has one cause: {faults:?}");
    // Commands that do not depend on the failure work before and after it.
    let sent = pattern(3, 64);
    let mut got = vec![0; 64];
    let written = program.write(1, &[made], buffer, 0, &sent);
    let read = program.read(1, &[written], buffer, 0, &mut got);
    program.good(&[written, read]);
    assert_eq!(sent, got);
}

fn is_of_lost(outcome: &Outcome) -> bool {
    matches!(outcome, Err(fault) if fault.code == code::NODE_LOST)
}

fn killed(program: &Program) {
    let (kernel, built) = program.kernel(1, "", "timer");
    let (buffer, made) = program.buffer(1, 32 << 20);
    let (other, other_made) = program.buffer(2, 32 << 20);
    let (other_kernel, other_built) = program.kernel(2, "", "timer");
    program.good(&[built, made, other_made, other_built]);
    let bytes = pattern(1, 32 << 20);
    let mut got = vec![0; 32 << 20];
    // This is a kernel of two minutes on the rank that ends, and commands that need it, here and on
    // other ranks.
    let long = program.run(1, &[], kernel, 120_000, Vec::new());
    let size = 32 << 20;
    let copy = || Command::Copy { from: buffer, from_offset: 0, to: other, to_offset: 0, size };
    let copied = program.copy(1, 2, &[long], copy());
    let after_copy = program.run(2, &[copied], other_kernel, 1, Vec::new());
    let read = program.read(1, &[long], buffer, 0, &mut got);
    let written = program.write(1, &[], buffer, 0, &bytes);
    let elsewhere = program.run(2, &[long], other_kernel, 1, Vec::new());
    program.runtime.flush();
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    signal(pid(&program.folder, 1), libc::SIGKILL);
    let dependents = [long, copied, after_copy, read, elsewhere];
    for command in dependents {
        let outcome = program.runtime.wait(&[command]);
        assert!(is_of_lost(&outcome), "{command:?}: {outcome:?}");
    }
    let noticed = began.elapsed();
    let reason = program.runtime.wait(&[long]).expect_err("a failed command").message;
    println!("figure: a killed rank was noticed after {noticed:?}: {reason}");
    // Processes of another host are not visible, so the reason is silence or an error of MPI.
    assert_eq!(reason.contains("its process"), std::env::var(FAR).is_err(), "{reason}");
    // The write may have ended before.
    let outcome = program.wait(&[written]);
    assert!(outcome.is_ok() || is_of_lost(&outcome), "{outcome:?}");
    // Later commands for that rank fail, and the other ranks go on.
    let late = program.run(1, &[], kernel, 1, Vec::new());
    let outcome = program.runtime.wait(&[late]);
    assert!(is_of_lost(&outcome), "a command for a lost rank: {outcome:?}");
    let late_write = program.write(1, &[], buffer, 0, &bytes);
    let outcome = program.wait(&[late_write]);
    assert!(is_of_lost(&outcome), "a write to a lost rank: {outcome:?}");
    let later = program.run(2, &[late], other_kernel, 1, Vec::new());
    let late_copy = program.copy(1, 2, &[], copy());
    let late_read = program.read(1, &[], buffer, 0, &mut got);
    for command in [late, later, late_copy, late_read] {
        let outcome = program.wait(&[command]);
        assert!(is_of_lost(&outcome), "{command:?}: {outcome:?}");
    }
    let ran = program.run(2, &[], other_kernel, 1, Vec::new());
    let written = program.write(2, &[ran], other, 0, &bytes);
    let read = program.read(2, &[written], other, 0, &mut got);
    program.good(&[ran, written, read]);
}

/// Stops a rank for twice the time that counts as silence.
fn stopped(program: &Program) {
    let (kernel, built) = program.kernel(1, "", "timer");
    program.good(&[built]);
    let process = pid(&program.folder, 1);
    signal(process, libc::SIGSTOP);
    let ran = program.run(1, &[], kernel, 1, Vec::new());
    program.runtime.flush();
    std::thread::sleep(Duration::from_secs(5));
    let early = program.runtime.outcome(ran);
    signal(process, libc::SIGCONT);
    assert!(early.is_none(), "a rank that was only stopped counts as lost: {early:?}");
    program.good(&[ran]);
}

/// Returns the processor time that a process, or one thread of it, has used so far.
fn used(process: &str, thread: Option<&str>) -> Duration {
    let folder = format!("/proc/{process}/task");
    let tasks = std::fs::read_dir(folder).expect("a process");
    let ns = tasks
        .flatten()
        .filter(|task| thread.is_none_or(|thread| task.file_name() == thread))
        .map(|task| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
        });
    Duration::from_nanos(ns.sum())
}

fn idle(program: &Program) {
    let (kernel, built) = program.kernel(1, "", "timer");
    program.good(&[built]);
    let own = std::process::id().to_string();
    let thread = std::fs::read_link("/proc/thread-self").expect("a thread");
    let thread = thread.file_name().expect("a number").to_string_lossy().into_owned();
    let others: Vec<String> =
        (1..program.ranks()).map(|rank| pid(&program.folder, rank).to_string()).collect();
    let measure = |what: &str, work: &dyn Fn()| {
        // After traffic a rank polls often for a moment.
        std::thread::sleep(Duration::from_millis(500));
        let processes: Vec<&String> = std::iter::once(&own).chain(&others).collect();
        let before: Vec<Duration> = processes.iter().map(|process| used(process, None)).collect();
        let thread_before = used(&own, Some(&thread));
        let began = Instant::now();
        work();
        let wall = began.elapsed().as_secs_f64();
        let mut text = String::new();
        for (rank, (process, before)) in processes.iter().zip(before).enumerate() {
            let percent = (used(process, None) - before).as_secs_f64() / wall * 100.0;
            text.push_str(&format!(" rank {rank} {percent:.2} %,"));
            assert!(
                percent < IDLE_PERCENT_MAX,
                "{what}: rank {rank} uses {percent:.2} % of a core"
            );
        }
        let percent = (used(&own, Some(&thread)) - thread_before).as_secs_f64() / wall * 100.0;
        println!(
            "figure: {what} for {wall:.1} s:{text} the host's thread {percent:.3} % of a core"
        );
        assert!(percent < 0.2, "{what}: the host's thread uses {percent:.2} % of a core");
    };
    measure("nothing to do", &|| std::thread::sleep(Duration::from_secs(4)));
    measure("a command of another rank is waited for", &|| {
        let long = program.run(1, &[], kernel, 4000, Vec::new());
        program.good(&[long]);
    });
}
