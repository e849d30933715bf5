//! Measures links over each transport: round trips, one-way calls and payloads.
//!
//! `cargo run --release -p penstock-link --example ping [ring|unix|tcp|raw] [crowd]`. `crowd` adds
//! a thread that computes on every core, as a CPU device of the node does.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use penstock_link::{
    Address, Listener, Patience, Policy, Receiver, Sender, Side, Stream, establish,
};
use penstock_wire::calls::to_worker;
use penstock_wire::hello::feature;
use penstock_wire::{Id, U64};

type Failure = Box<dyn Error + Send + Sync>;

const ROUNDS: u32 = 20_000;
const ONE_WAY: u32 = 1_000_000;
const PAYLOADS: [usize; 5] = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20];
/// Total bytes sent for each payload size.
const PAYLOAD_BYTES: usize = 2 << 30;
/// Pauses between round trips. During the longer one the peer goes to sleep.
const PAUSES: [Duration; 2] = [Duration::ZERO, Duration::from_micros(300)];

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str| {
        let named =
            words.iter().any(|word| ["ring", "unix", "tcp", "raw"].contains(&word.as_str()));
        !named || words.iter().any(|word| word == name)
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        if words.iter().any(|word| word == "crowd") {
            for _ in 0..thread::available_parallelism().map_or(1, |cores| cores.get()) {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop()
                    }
                });
            }
        }
        let measured =
            ["ring", "unix", "tcp"].into_iter().filter(|name| wanted(name)).try_for_each(measure);
        let raw = if wanted("raw") { measure_raw() } else { Ok(()) };
        stop.store(true, Ordering::Relaxed);
        measured.and(raw)
    })
}

fn measure(name: &str) -> Result<(), Failure> {
    for (placed, cores) in
        [("free", [None, None]), ("apart", [Some(0), Some(1)]), ("one core", [Some(0), Some(0)])]
    {
        for pause in PAUSES {
            for (policy_name, policy) in [("default", Policy::DEFAULT), ("sleep", Policy::SLEEP)] {
                let (median, p99) = round_trips(name, cores, pause, policy)?;
                println!(
                    "{name}: round trip, {placed}, pause {} us, {policy_name}: median {median:.1} us, p99 {p99:.1} us",
                    pause.as_micros()
                );
            }
        }
    }
    let (sent, arrived) = one_way(name)?;
    println!("{name}: one-way 64 B: {sent:.0} ns to send, {arrived:.0} ns through");
    for bytes in PAYLOADS {
        println!("{name}: payload {} KiB: {:.2} GB/s", bytes >> 10, payload_rate(name, bytes)?);
    }
    Ok(())
}

/// Returns a client's end and a worker's end.
fn pair(name: &str) -> Result<[(Sender, Receiver); 2], Failure> {
    let (one, two) = sockets(name == "tcp")?;
    let features = if name == "ring" { feature::SHARED_RINGS } else { 0 };
    let client = establish(one, features, Side::Client, to_worker::check)?;
    Ok([client, establish(two, features, Side::Worker, to_worker::check)?])
}

fn sockets(tcp: bool) -> Result<(Stream, Stream), Failure> {
    if tcp {
        let listener = Listener::bind(&"tcp:127.0.0.1:0".parse::<Address>()?)?;
        let one = Stream::connect(&listener.address(), Instant::now() + Duration::from_secs(1))?;
        return Ok((one, listener.accept()?));
    }
    let (one, two) = UnixStream::pair()?;
    Ok((Stream::from_fd(one.into())?, Stream::from_fd(two.into())?))
}

fn pin(core: Option<usize>) {
    if let Some(core) = core {
        let mut cores = rustix::thread::CpuSet::new();
        cores.set(core);
        let _ = rustix::thread::sched_setaffinity(None, &cores);
    }
}

fn round_trips(
    name: &str,
    cores: [Option<usize>; 2],
    pause: Duration,
    policy: Policy,
) -> Result<(f64, f64), Failure> {
    let [(client_out, mut client_in), (worker_out, mut worker_in)] = pair(name)?;
    let rounds = if pause.is_zero() { ROUNDS } else { ROUNDS / 20 };
    client_in.set_policy(policy);
    worker_in.set_policy(policy);
    let answers = thread::spawn(move || -> Result<(), Failure> {
        pin(cores[1]);
        for _ in 0..rounds {
            worker_in.receive(Patience::Forever, &mut |_, _| Ok(()))?;
            worker_out.send(&ping(), &[], &[])?;
            worker_out.flush()?;
        }
        Ok(())
    });
    let asks = thread::spawn(move || -> Result<Vec<Duration>, Failure> {
        pin(cores[0]);
        let mut times = Vec::new();
        for _ in 0..rounds {
            if !pause.is_zero() {
                thread::sleep(pause);
            }
            let before = Instant::now();
            client_out.send(&ping(), &[], &[])?;
            client_out.flush()?;
            client_in.receive(Patience::Forever, &mut |_, _| Ok(()))?;
            times.push(before.elapsed());
        }
        Ok(times)
    });
    let mut times = asks.join().map_err(|_| "a thread failed")??;
    answers.join().map_err(|_| "a thread failed")??;
    times.sort();
    let us = |at: usize| times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6);
    Ok((us(times.len() / 2), us(times.len() * 99 / 100)))
}

fn ping() -> to_worker::Ping {
    to_worker::Ping { request: Id::new(1) }
}

/// Returns the nanoseconds per call: for the sender alone, and until the last call has arrived.
fn one_way(name: &str) -> Result<(f64, f64), Failure> {
    let [(out, _client_in), (_worker_out, mut input)] = pair(name)?;
    let before = Instant::now();
    let arrives = thread::spawn(move || -> Result<(), Failure> {
        for _ in 0..ONE_WAY {
            input.receive(Patience::Forever, &mut |_, _| Ok(()))?;
        }
        Ok(())
    });
    // Header, body and two events: 16 + 32 + 16 bytes.
    let call = to_worker::WriteBuffer {
        queue: Id::new(1),
        mem: Id::new(2),
        event: Id::new(3),
        offset: U64::ZERO,
    };
    let waits = [Id::new(4), Id::new(5)];
    for _ in 0..ONE_WAY {
        out.send(&call, &waits, &[])?;
    }
    out.flush()?;
    let sent = before.elapsed();
    arrives.join().map_err(|_| "a thread failed")??;
    let each = |time: Duration| time.as_secs_f64() * 1e9 / f64::from(ONE_WAY);
    Ok((each(sent), each(before.elapsed())))
}

fn payload_rate(name: &str, bytes: usize) -> Result<f64, Failure> {
    let [(out, _client_in), (_worker_out, mut input)] = pair(name)?;
    let count = (PAYLOAD_BYTES / bytes).min(20_000);
    let arrives = thread::spawn(move || -> Result<Instant, Failure> {
        let mut into = vec![1; bytes];
        let mut started = Instant::now();
        for at in 0..=count {
            input.receive(Patience::Forever, &mut |_, payload| payload.read(&mut into))?;
            if at == 0 {
                started = Instant::now();
            }
        }
        Ok(started)
    });
    let payload = vec![2; bytes];
    let call = to_worker::InitBuffer { mem: Id::new(1), offset: U64::ZERO };
    for _ in 0..=count {
        out.send(&call, &[], &payload)?;
    }
    out.flush()?;
    let started = arrives.join().map_err(|_| "a thread failed")??;
    Ok((count * bytes) as f64 / started.elapsed().as_secs_f64() / 1e9)
}

/// Measures the same payloads over bare sockets for comparison.
fn measure_raw() -> Result<(), Failure> {
    for (name, tcp) in [("unix", false), ("tcp", true)] {
        for bytes in PAYLOADS {
            let (one, two) = sockets(tcp)?;
            let mut one = std::fs::File::from(one.into_socket().unwrap());
            let mut two = std::fs::File::from(two.into_socket().unwrap());
            let count = (PAYLOAD_BYTES / bytes).min(20_000);
            let arrives = thread::spawn(move || -> Result<Instant, Failure> {
                let mut into = vec![1; bytes];
                two.read_exact(&mut into)?;
                let started = Instant::now();
                for _ in 0..count {
                    two.read_exact(&mut into)?;
                }
                Ok(started)
            });
            let payload = vec![2; bytes];
            for _ in 0..=count {
                one.write_all(&payload)?;
            }
            let started = arrives.join().map_err(|_| "a thread failed")??;
            let rate = (count * bytes) as f64 / started.elapsed().as_secs_f64() / 1e9;
            println!("raw {name}: payload {} KiB: {rate:.2} GB/s", bytes >> 10);
        }
    }
    Ok(())
}
