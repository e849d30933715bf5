//! Ping-pong and bandwidth. The figures are only printed, because they depend on other load of the
//! machine. The test checks that no wait fails or hangs.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

use crate::mesh::{self, Mesh, Runtime, Task, Told, Way, say};
use crate::pe::Pe;

pub const SOURCE: &str = r#"
__kernel void pingpong(__global ggas_heap_t *heap, ulong rounds, ulong bytes)
{
    const ggas_t g = ggas_open(heap);
    const uint me = ggas_my_pe(g), peer = 1 - me;
    __global ulong *failed = ggas_ptr(g, 8, me);
    for (ulong round = 1; round <= rounds; round++) {
        if (me == 0) ggas_put_signal(g, 4096 + (1 << 19), 4096, bytes, 0, round, peer);
        if (ggas_wait_until(g, 0, GGAS_CMP_GE, round) != GGAS_OK) { *failed = round; return; }
        if (me == 1) ggas_put_signal(g, 4096 + (1 << 19), 4096, bytes, 0, round, peer);
    }
}
__kernel void pingpong_signal(__global ggas_heap_t *heap, ulong rounds, ulong bytes)
{
    const ggas_t g = ggas_open(heap);
    const uint me = ggas_my_pe(g), peer = 1 - me;
    __global ulong *failed = ggas_ptr(g, 8, me);
    for (ulong round = 1; round <= rounds; round++) {
        if (me == 0) ggas_signal(g, 0, round, peer);
        if (ggas_wait_until(g, 0, GGAS_CMP_GE, round) != GGAS_OK) { *failed = round; return; }
        if (me == 1) ggas_signal(g, 0, round, peer);
    }
}
/* PE 0 puts; PE 1 reports its progress every 8 puts. */
__kernel void stream(__global ggas_heap_t *heap, ulong rounds, ulong bytes)
{
    const ggas_t g = ggas_open(heap);
    const uint me = ggas_my_pe(g), peer = 1 - me;
    __global ulong *failed = ggas_ptr(g, 8, me);
    for (ulong round = 1; round <= rounds; round++) {
        if (me == 0) {
            if (round > 16 && get_local_id(0) == 0 && ggas_wait_until(g, 0, GGAS_CMP_GE, round - 16) != GGAS_OK) *failed = round;
            ggas_put_signal_nbi_wg(g, 4096 + (1 << 19), 4096, bytes, 0, round, peer);
        } else if (round % 8 == 0 || round == rounds) {
            if (ggas_wait_until(g, 0, GGAS_CMP_GE, round) != GGAS_OK) { *failed = round; return; }
            ggas_signal(g, 0, round, peer);
        }
    }
    if (me == 0 && ggas_wait_until(g, 0, GGAS_CMP_GE, rounds) != GGAS_OK) *failed = rounds;
}
"#;

/// Number of repetitions of a measurement; the median counts.
const REPETITIONS: usize = 3;

/// Parameters of one measurement.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Name of the kernel, one of [`KERNELS`].
    kernel: &'static str,
    rounds: u64,
    bytes: u64,
    items: u64,
}

const KERNELS: [&str; 3] = ["pingpong", "pingpong_signal", "stream"];

/// Arguments: kernel, rounds, bytes and work-items of each measurement.
pub fn member(pe: &Pe, told: &Told) {
    for run in told.args.chunks(4) {
        let [kernel, rounds, bytes, items] = run[..] else { panic!("four arguments") };
        let mut times = Vec::new();
        for _ in 0..REPETITIONS {
            // Signals start at 0; the barriers separate the repetitions.
            pe.heap.write(pe.pe, 0, &[0; 16]).unwrap();
            pe.meet();
            let kernel = KERNELS[usize::try_from(kernel).unwrap()];
            let taken = pe.start(kernel, &[rounds, bytes], 1, items).end();
            assert_eq!(pe.word(8), 0, "a wait failed: {:?}", pe.heap.aborted());
            times.push(u64::try_from(taken.as_nanos()).unwrap());
            pe.meet();
        }
        times.sort_unstable();
        say(&format!("median-{kernel}-{bytes}-{items}"), &[times[times.len() / 2]]);
    }
}

/// Returns the median nanoseconds of each run, for the slower member.
fn measure(way: Way, members: Vec<Runtime>, runs: &[Run]) -> Option<Vec<u64>> {
    let number = |run: &Run| KERNELS.iter().position(|name| *name == run.kernel).unwrap() as u64;
    let args: Vec<u64> =
        runs.iter().flat_map(|run| [number(run), run.rounds, run.bytes, run.items]).collect();
    let task = Task { members, ..Task::new("speed", way, 2).args(&args) };
    let said = Mesh::start(&task).finish()?;
    let median = |run: &Run| {
        let name = format!("median-{}-{}-{}", number(run), run.bytes, run.items);
        said.iter().map(|said| said[&name][0]).max().unwrap()
    };
    Some(runs.iter().map(median).collect())
}

#[test]
fn messages_are_fast() {
    let mut pairs: Vec<(Way, [Runtime; 2])> =
        Way::all().into_iter().map(|way| (way, [Runtime::Pocl; 2])).collect();
    // Starting Intel's runtime takes longer than everything else.
    if mesh::scale() > 1 && Runtime::intel_vendors().is_some() {
        pairs.push((Way::Shared, [Runtime::Pocl, Runtime::Intel]));
    }
    for (way, members) in pairs {
        let rounds = if way == Way::Shared { 5_000 } else { 100 } * mesh::scale();
        let run = |kernel, bytes| Run { kernel, rounds, bytes, items: 1 };
        let runs = [
            run("pingpong_signal", 0),
            run("pingpong", 8),
            run("pingpong", 4096),
            run("pingpong", 65_536),
        ];
        let Some(times) = measure(way, members.to_vec(), &runs) else { return };
        for (run, ns) in runs.iter().zip(times) {
            let half_ns = ns / rounds / 2;
            eprintln!(
                "{way:?} {members:?}: {} of {} bytes: half a round trip {half_ns} ns",
                run.kernel, run.bytes
            );
        }
    }
}

/// Returns the MB/s of plain copies at the same distance as those of the kernels.
fn copies(bytes: u64, rounds: u64) -> u64 {
    let bytes = usize::try_from(bytes).unwrap();
    let mut memory = vec![1_u8; 1 << 20];
    let began = Instant::now();
    for _ in 0..rounds {
        let (from, to) = std::hint::black_box(&mut memory).split_at_mut(1 << 19);
        to[..bytes].copy_from_slice(&from[..bytes]);
    }
    bytes as u64 * rounds * 1000 / u64::try_from(began.elapsed().as_nanos()).unwrap()
}

/// Returns the MB/s of a plain connection with messages of this size.
fn connection(tcp: bool, bytes: u64, rounds: u64) -> u64 {
    let (mut one, mut other): (Box<dyn Write + Send>, Box<dyn Read>) = if tcp {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Box::new(one), Box::new(listener.accept().unwrap().0))
    } else {
        let (one, other) = UnixStream::pair().unwrap();
        (Box::new(one), Box::new(other))
    };
    let message = vec![1; usize::try_from(bytes).unwrap()];
    let mut into = message.clone();
    let began = Instant::now();
    let sender = thread::spawn(move || (0..rounds).for_each(|_| one.write_all(&message).unwrap()));
    (0..rounds).for_each(|_| other.read_exact(&mut into).unwrap());
    let taken = began.elapsed();
    sender.join().unwrap();
    bytes * rounds * 1000 / u64::try_from(taken.as_nanos()).unwrap()
}

#[test]
fn puts_come_near_a_copy() {
    for way in Way::all() {
        let total: u64 = if way == Way::Shared { 16 << 20 } else { 2 << 20 } * mesh::scale();
        let mut runs = Vec::new();
        for items in [1, 16] {
            for bytes in [16_384, 65_536, 1 << 18] {
                runs.push(Run { kernel: "stream", rounds: total / (bytes + 2048), bytes, items });
            }
        }
        let Some(times) = measure(way, vec![Runtime::Pocl; 2], &runs) else { return };
        for (Run { rounds, bytes, items, .. }, ns) in runs.into_iter().zip(times) {
            let rate = bytes * rounds * 1000 / ns;
            let (plain, what) = match way {
                Way::Shared => (copies(bytes, rounds), "memcpy"),
                Way::ProxyUnix => (connection(false, bytes, rounds), "a Unix socket"),
                Way::ProxyTcp | Way::UcxTcp | Way::UcxPosix => {
                    (connection(true, bytes, rounds), "a TCP socket")
                }
            };
            let percent = rate * 100 / plain;
            eprintln!(
                "{way:?}: {bytes} bytes by {items} items: {rate} MB/s, {percent} % of {what}"
            );
        }
    }
}
