//! A failed command fails all commands that depend on it, with the root cause, and nothing hangs.

mod common;

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use common::doomed::{Doomed, Played, Still};
use common::{Cluster, Host};
use penstock_trial::patience;
use water::backend::Backend;
use water::clock::Real;
use water::command::{
    Arg, Code, Command, CommandId, DeviceId, End, Fault, IndexSpace, Job, ObjectId, Rank,
};
use water::error::code;
use water::request::Request;
use water::root::Root;
use water::root::cost::{Link, Shape};
use water::runtime::Runtime;
use water::transport::loopback::Loopback;
use water::transport::{Span, Token, Transport, TransportEvent};

/// Runs the body of a test in a thread, and fails if it hangs.
fn bounded<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = body();
        tell.send(()).unwrap();
        result
    });
    match told.recv_timeout(patience()) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// The calls that the tests make on a runtime.
struct Program<'a>(&'a Runtime);

impl Program<'_> {
    fn object(&self) -> ObjectId {
        self.0.with_root(Root::object).unwrap()
    }

    fn issue(&self, rank: Rank, waits: &[CommandId], command: Command) -> CommandId {
        self.0
            .with_root(|root| {
                root.issue(waits.to_vec(), Request::new(DeviceId::new(rank, 0), command))
            })
            .unwrap()
    }

    fn buffer(&self, rank: Rank, size: usize) -> (ObjectId, CommandId) {
        let buffer = self.object();
        (
            buffer,
            self.issue(rank, &[], Command::CreateBuffer { buffer, size: size as u64, flags: 1 }),
        )
    }

    fn kernel(&self, rank: Rank, name: &str) -> (ObjectId, CommandId) {
        let kernel = self.object();
        let code = Code::Source(Vec::new());
        (
            kernel,
            self.issue(
                rank,
                &[],
                Command::CreateKernel { kernel, code, name: name.into(), options: String::new() },
            ),
        )
    }

    fn run(
        &self,
        rank: Rank,
        kernel: ObjectId,
        buffer: ObjectId,
        waits: &[CommandId],
    ) -> CommandId {
        let args = vec![Arg::Buffer(buffer), Arg::Buffer(buffer), Arg::Bytes(vec![1])];
        let range = IndexSpace::line(1, None);
        self.issue(rank, waits, Command::Run { kernel, range, args })
    }

    fn write(&self, rank: Rank, buffer: ObjectId, bytes: &[u8], waits: &[CommandId]) -> CommandId {
        let address = bytes.as_ptr().expose_provenance() as u64;
        self.issue(
            rank,
            waits,
            Command::Write { buffer, offset: 0, size: bytes.len() as u64, address },
        )
    }

    fn read(
        &self,
        rank: Rank,
        buffer: ObjectId,
        bytes: &mut [u8],
        waits: &[CommandId],
    ) -> CommandId {
        let address = bytes.as_mut_ptr().expose_provenance() as u64;
        self.issue(
            rank,
            waits,
            Command::Read { buffer, offset: 0, size: bytes.len() as u64, address },
        )
    }

    fn copy(
        &self,
        from: (Rank, ObjectId),
        to: (Rank, ObjectId),
        size: usize,
        waits: &[CommandId],
    ) -> CommandId {
        let command = Command::Copy {
            from: from.1,
            from_offset: 0,
            to: to.1,
            to_offset: 0,
            size: size as u64,
        };
        let request = Request::new(DeviceId::new(to.0, 0), command).from(DeviceId::new(from.0, 0));
        self.0.with_root(|root| root.issue(waits.to_vec(), request)).unwrap()
    }

    fn wait(&self, command: CommandId) -> Result<(), Box<Fault>> {
        self.0.wait(&[command])
    }
}

#[test]
fn a_failed_command_fails_what_depends_on_it_on_all_ranks_with_its_own_fault() {
    bounded(|| {
        for size in [64, 100_000] {
            let cluster = Cluster::new(3, 1);
            let program = Program(cluster.runtime());
            let (one, made_one) = program.buffer(1, size);
            let (two, made_two) = program.buffer(2, size);
            let (fail, made_fail) = program.kernel(1, "fail");
            let (mix, made_mix) = program.kernel(2, "mix");
            let failed = program.run(1, fail, one, &[made_one, made_fail]);
            let copied = program.copy((1, one), (2, two), size, &[failed, made_two]);
            let ran = program.run(2, mix, two, &[copied, made_mix]);
            let mut bytes = vec![0xAB; size];
            let read = program.read(2, two, &mut bytes, &[ran]);
            for command in [failed, copied, ran, read] {
                let fault = program.wait(command).unwrap_err();
                assert_eq!(
                    (fault.code, fault.rank, fault.command, fault.work.as_str()),
                    (-5, 1, failed, "run_kernel"),
                    "{fault}"
                );
                assert_eq!(
                    (fault.message.as_str(), fault.device.as_str()),
                    ("this kernel fails", "bytes")
                );
            }
            assert!(bytes.iter().all(|byte| *byte == 0xAB), "a cancelled read writes nothing");
            assert_eq!(cluster.runtime().faults().len(), 1, "one root cause is reported once");
            // Commands that do not depend on the failure are not affected.
            let sevens = vec![7; size];
            let fine = program.write(2, two, &sevens, &[made_two]);
            program.wait(fine).unwrap();
        }
    });
}

#[test]
fn a_kernel_that_does_not_build_fails_its_launches_with_the_build_log() {
    bounded(|| {
        let cluster = Cluster::new(2, 1);
        let program = Program(cluster.runtime());
        for rank in [0, 1] {
            let (buffer, made) = program.buffer(rank, 8);
            let (kernel, built) = program.kernel(rank, "bad");
            let ran = program.run(rank, kernel, buffer, &[made, built]);
            let fault = program.wait(ran).unwrap_err();
            assert_eq!((fault.code, fault.command, fault.rank), (-11, built, rank));
            assert_eq!((fault.log.as_str(), fault.work.as_str()), ("line 1: bad", "create_kernel"));
        }
    });
}

#[test]
fn releases_run_though_what_they_wait_for_has_failed() {
    bounded(|| {
        let cluster = Cluster::new(2, 1);
        let program = Program(cluster.runtime());
        for rank in [0, 1] {
            let (buffer, made) = program.buffer(rank, 8);
            let (kernel, built) = program.kernel(rank, "fail");
            let failed = program.run(rank, kernel, buffer, &[made, built]);
            let released = program.issue(rank, &[failed], Command::ReleaseBuffer { buffer });
            let released_kernel = program.issue(rank, &[failed], Command::ReleaseKernel { kernel });
            assert_eq!(program.wait(failed).unwrap_err().code, -5);
            program.wait(released).unwrap();
            program.wait(released_kernel).unwrap();
            // The buffer is gone.
            let late = program.write(rank, buffer, &[1; 8], &[]);
            assert_eq!(program.wait(late).unwrap_err().code, -38, "rank {rank}");
        }
    });
}

#[test]
fn a_broadcast_reaches_all_but_the_members_that_cannot_take_it() {
    bounded(|| {
        for shape in [None, Some(Shape::Twin)] {
            for source in [None, Some(3)] {
                let cluster = Cluster::new(6, 1);
                cluster.runtime().with_root(|root| {
                    // The link is so slow that a tree gains.
                    root.set_link(Link { latency_ns: 0.0, overhead_ns: 1e6, byte_ns: 1e5 });
                    root.set_shape(shape);
                });
                for size in [64, 100_000] {
                    broadcast_with_a_failure(&Program(cluster.runtime()), source, size);
                }
            }
        }
    });
}

/// Sends the same bytes to all ranks except the source, which is the program or a buffer of a rank.
/// The command that rank 2 waits for fails.
fn broadcast_with_a_failure(program: &Program<'_>, source: Option<Rank>, size: usize) {
    let bytes = vec![9; size];
    let from = source.map(|rank| {
        let (buffer, made) = program.buffer(rank, size);
        (rank, buffer, program.write(rank, buffer, &bytes, &[made]))
    });
    let mut sent = Vec::new();
    for rank in (1..6).filter(|rank| Some(*rank) != source) {
        let (buffer, made) = program.buffer(rank, size);
        let (kernel, built) = program.kernel(rank, if rank == 2 { "fail" } else { "mix" });
        let ran = program.run(rank, kernel, buffer, &[made, built]);
        let command = match from {
            None => program.write(rank, buffer, &bytes, &[ran]),
            Some((source, from, written)) => {
                program.copy((source, from), (rank, buffer), size, &[ran, written])
            }
        };
        sent.push((rank, buffer, command));
    }
    for (rank, buffer, command) in sent {
        let outcome = program.wait(command);
        if rank == 2 {
            assert_eq!(outcome.unwrap_err().code, -5);
            continue;
        }
        outcome
            .unwrap_or_else(|fault| panic!("rank {rank} does not depend on rank 2, but: {fault}"));
        let mut back = vec![0; size];
        let read = program.read(rank, buffer, &mut back, &[]);
        program.wait(read).unwrap();
        assert_eq!(back, bytes, "rank {rank}");
    }
}

#[test]
fn a_rank_that_goes_away_fails_what_needs_it_and_nothing_else() {
    bounded(|| {
        let ranks = Doomed::new(4);
        let program = Program(ranks.runtime());
        const SIZE: usize = 100_000;
        let made: Vec<_> = (0..4).map(|rank| program.buffer(rank, SIZE)).collect();
        let all: Vec<_> = made.iter().map(|(_, made)| *made).collect();
        ranks.runtime().wait(&all).unwrap();
        ranks.end(2);
        let began = Instant::now();
        let to_dead = program.copy((1, made[1].0), (2, made[2].0), SIZE, &[]);
        let from_dead = program.copy((2, made[2].0), (3, made[3].0), SIZE, &[]);
        let after = program.write(3, made[3].0, &[1; SIZE], &[from_dead]);
        let mut bytes = vec![0; SIZE];
        let source = vec![1; SIZE];
        let read = program.read(2, made[2].0, &mut bytes, &[]);
        let small = program.write(2, made[2].0, &source[..100], &[]);
        let large = program.write(2, made[2].0, &source, &[]);
        let created = program.buffer(2, 10).1;
        let released = program.issue(2, &[], Command::ReleaseBuffer { buffer: made[2].0 });
        let known = [
            (to_dead, "to"),
            (from_dead, "from"),
            (after, "after"),
            (read, "read"),
            (small, "small"),
            (large, "large"),
        ];
        for (command, what) in known.into_iter().chain([(created, "create"), (released, "release")])
        {
            let fault = program.wait(command).expect_err(what);
            assert_eq!(fault.code, code::NODE_LOST, "{what}: {fault}");
        }
        for rank in [0, 1, 3] {
            let written = vec![3; SIZE];
            let write = program.write(rank, made[rank as usize].0, &written, &[]);
            let read = program.read(rank, made[rank as usize].0, &mut bytes, &[write]);
            program.wait(read).unwrap();
            assert_eq!(bytes, written);
        }
        println!("all was told within {:?}", began.elapsed());
    });
}

#[test]
fn a_rank_that_goes_away_at_any_moment_hangs_nothing() {
    bounded(|| {
        for round in 0..40_u32 {
            let ranks = Doomed::new(4);
            let program = Program(ranks.runtime());
            if round % 2 == 1 {
                let link = Link { latency_ns: 0.0, overhead_ns: 1e6, byte_ns: 1e5 };
                ranks.runtime().with_root(|root| root.set_link(link));
            }
            let size = if round % 4 < 2 { 1000 } else { 3 << 20 };
            let bytes = vec![5; size];
            let mut back = vec![vec![0; size]; 3];
            let mut commands = Vec::new();
            let made: Vec<_> = (1..4).map(|rank| (rank, program.buffer(rank, size))).collect();
            for (rank, (buffer, made)) in &made {
                commands.push(program.write(*rank, *buffer, &bytes, &[*made]));
            }
            let last = commands.clone();
            for (place, (rank, (buffer, _))) in made.iter().enumerate() {
                let (to, (target, _)) = made[(place + 1) % 3];
                let copied = program.copy((*rank, *buffer), (to, target), size, &last);
                commands.push(copied);
                commands.push(program.read(to, target, &mut back[place], &[copied]));
            }
            ranks.runtime().flush();
            std::thread::sleep(Duration::from_micros(u64::from(round) * 97 % 1500));
            ranks.end(1 + round as usize % 3);
            // All commands end, with or without a fault. Afterwards nobody writes to the program's
            // memory.
            _ = ranks.runtime().wait(&commands);
            for command in &commands {
                if let Some(Err(fault)) = ranks.runtime().outcome(*command) {
                    assert_eq!(fault.code, code::NODE_LOST, "round {round}: {fault}");
                }
            }
            drop(ranks);
        }
    });
}

#[test]
fn bytes_that_wait_for_room_go_on_by_the_ends_of_others_and_not_by_time() {
    bounded(|| {
        let ranks = Doomed::with_clock(3, Arc::new(Still));
        let program = Program(ranks.runtime());
        // There are seven pieces; two of them begin in one burst.
        const SIZE: usize = 7 << 20;
        let made: Vec<_> = (1..3).map(|rank| program.buffer(rank, SIZE)).collect();
        let source = vec![5; SIZE];
        let written = program.write(1, made[0].0, &source, &[made[0].1]);
        program.wait(written).unwrap();
        let copied = program.copy((1, made[0].0), (2, made[1].0), SIZE, &[made[1].1]);
        program.wait(copied).unwrap();
        let mut bytes = vec![0; SIZE];
        let read = program.read(2, made[1].0, &mut bytes, &[]);
        program.wait(read).unwrap();
        assert_eq!(bytes, source);
        // Each write begins when the one before has ended.
        for _ in 0..4 {
            let written = program.write(1, made[0].0, &source[..100_000], &[]);
            program.wait(written).unwrap();
        }
    });
}

#[test]
fn a_lost_rank_keeps_nothing_from_those_that_would_get_it_through_it() {
    bounded(|| {
        for shape in [None, Some(Shape::Twin)] {
            let ranks = Doomed::new(6);
            let program = Program(ranks.runtime());
            ranks.runtime().with_root(|root| {
                root.set_link(Link { latency_ns: 0.0, overhead_ns: 1e6, byte_ns: 1e5 });
                root.set_shape(shape);
            });
            const SIZE: usize = 100_000;
            let made: Vec<_> = (1..6).map(|rank| (rank, program.buffer(rank, SIZE))).collect();
            let all: Vec<_> = made.iter().map(|(_, (_, made))| *made).collect();
            ranks.runtime().wait(&all).unwrap();
            for dead in [2_u8, 4] {
                ranks.end(dead.into());
                let mut byte = [0];
                let last =
                    program.read(dead.into(), made[usize::from(dead) - 1].1.0, &mut byte, &[]);
                assert_eq!(program.wait(last).unwrap_err().code, code::NODE_LOST);
                let bytes = vec![dead; SIZE];
                let sent: Vec<_> = made
                    .iter()
                    .map(|(rank, (buffer, _))| {
                        (*rank, *buffer, program.write(*rank, *buffer, &bytes, &[]))
                    })
                    .collect();
                for (rank, buffer, command) in sent {
                    let outcome = program.wait(command);
                    if rank == 2 || rank == Rank::from(dead) {
                        assert_eq!(outcome.unwrap_err().code, code::NODE_LOST);
                        continue;
                    }
                    outcome.unwrap_or_else(|fault| panic!("{shape:?}, rank {rank}: {fault}"));
                    let mut back = vec![0; SIZE];
                    program.wait(program.read(rank, buffer, &mut back, &[])).unwrap();
                    assert_eq!(back, bytes, "rank {rank}");
                }
            }
        }
    });
}

/// Runs a program whose rank 1 is played by a test.
fn with_played(
    play: impl FnOnce(Played) + Send + 'static,
    program: impl FnOnce(&Runtime) + Send + 'static,
) {
    bounded(|| {
        let mut ends = Loopback::ranks(2).into_iter();
        let (root, end) = (ends.next().unwrap(), ends.next().unwrap());
        let player = std::thread::spawn(move || play(Played::new(end)));
        let devices: Box<dyn Backend> = Box::new(Host::new(1));
        let runtime = Runtime::root(Box::new(root), devices, Arc::new(Real::new()), true).unwrap();
        program(&runtime);
        runtime.end();
        player.join().unwrap();
    });
}

#[test]
fn a_rank_that_breaks_a_stream_off_and_goes_before_it_says_why_hangs_nothing() {
    let play = |mut rank: Played| {
        let jobs = rank.jobs();
        let [Job { command: Command::Move(order), .. }] = jobs.as_slice() else {
            panic!("{jobs:?}")
        };
        let End::Rank { rank: 0, stream } = order.sinks[0].to else { panic!("{order:?}") };
        let nothing = Span { start: std::ptr::dangling_mut(), length: 0 };
        // SAFETY: nobody reads or writes 0 bytes.
        unsafe { rank.end.send(0, stream, nothing, Token(1)) };
        rank.await_first(|event| matches!(event, TransportEvent::Sent(Token(1))).then_some(()));
    };
    with_played(play, |runtime| {
        let program = Program(runtime);
        let mut bytes = [0; 8];
        let read = program.read(1, ObjectId(1), &mut bytes, &[]);
        let fault = program.wait(read).unwrap_err();
        assert_eq!((fault.code, bytes), (code::NODE_LOST, [0; 8]), "{fault}");
    });
}

#[test]
fn a_rank_that_speaks_no_sense_is_lost_and_nothing_waits_for_it() {
    let (tell, over) = mpsc::channel::<()>();
    let play = move |mut rank: Played| {
        rank.jobs();
        rank.end.control(0, vec![0xFF; 3]);
        // The rank stays until the test ends.
        _ = over.recv();
    };
    with_played(play, move |runtime| {
        let program = Program(runtime);
        // The rank would have to say that it is ready for these bytes.
        let source = vec![1; 100_000];
        let write = program.write(1, ObjectId(1), &source, &[]);
        let mut bytes = vec![0; 100_000];
        let read = program.read(1, ObjectId(1), &mut bytes, &[]);
        for command in [write, read] {
            assert_eq!(program.wait(command).unwrap_err().code, code::NODE_LOST);
        }
        runtime.drain();
        drop(tell);
    });
}
