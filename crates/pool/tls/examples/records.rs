//! Measures handshakes, sealing and opening alone, and content over TCP on this host, plain and
//! encrypted in turn.
//!
//! `cargo run --release -p penstock-tls --example records [MIB [ROUNDS]]`. Sender and receiver have
//! one core each, if there are two. On a busy machine the time on the clock says little, so the
//! CPU time of the busier side is told, too: with a core for each side it is the time that counts.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use penstock_tls::limits::{PLAIN_BYTES_MAX, RECORD_OVERHEAD_BYTES, SEAL_BYTES_MIN};
use penstock_tls::{
    Expected, Handshakes, Identity, Intake, Opener, Pieces, Records, Sealer, Side, Suite,
    TrafficSecret,
};

type Failure = Box<dyn Error + Send + Sync>;

/// Number of handshakes.
const HANDSHAKES: usize = 200;
/// Content that is sealed and opened without a network.
const ALONE_BYTES: usize = 64 << 20;
/// Sizes of the send buffer that are compared.
const SEND_BYTES: [usize; 3] = [128 << 10, 256 << 10, 512 << 10];
/// Largest part that is received at a time: so much stays in the core's cache until it is opened.
const RECEIVE_BYTES_MAX: usize = 512 << 10;

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let bytes = words.next().transpose()?.unwrap_or(16) << 20;
    let rounds = words.next().transpose()?.unwrap_or(41);
    println!("handshake: {:.0} us of CPU for both sides together", 1e6 * handshake()?);
    for suite in Suite::ALL {
        let (seal, open) = alone(suite)?;
        println!("{suite:?}: seal {seal:.2} GB/s, open {open:.2} GB/s");
    }
    for suite in Suite::ALL {
        for send_bytes in SEND_BYTES {
            let mut plain = Vec::new();
            let mut sealed = Vec::new();
            let mut ways = [Way::plain()?, Way::sealed(suite, send_bytes)?];
            for _ in 0..rounds {
                plain.push(ways[0].time(bytes)?);
                sealed.push(ways[1].time(bytes)?);
            }
            println!("{suite:?}, {} KiB at a time:", send_bytes >> 10);
            tell("clock", bytes, [&plain, &sealed], |took| took.clock);
            tell("CPU of the busier side", bytes, [&plain, &sealed], |took| {
                took.sender.max(took.receiver)
            });
            let ms = |side: fn(&Took) -> f64| 1e3 * median(sealed.iter().map(side).collect());
            let (sender, receiver) = (ms(|took| took.sender), ms(|took| took.receiver));
            println!("  encrypted: sender {sender:.2} ms, receiver {receiver:.2} ms of CPU");
        }
    }
    Ok(())
}

/// Seconds that a transfer took.
struct Took {
    clock: f64,
    /// CPU time of each side.
    sender: f64,
    receiver: f64,
}

/// Prints rates and their ratio.
fn tell(name: &str, bytes: usize, ways: [&[Took]; 2], of: impl Fn(&Took) -> f64) {
    let [plain, sealed] = ways.map(|took| median(took.iter().map(&of).collect()));
    let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
    let (one, two, ratio) = (rate(plain), rate(sealed), plain / sealed);
    println!("  {name}: plain {one:.2} GB/s, encrypted {two:.2} GB/s, ratio {ratio:.2}");
}

/// Returns the CPU time of this thread in seconds.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the CPU time of a handshake, both sides, in seconds.
fn handshake() -> Result<f64, Failure> {
    let make = || -> Result<Handshakes, Failure> {
        Ok(Handshakes::new(&Identity::generate()?, b"penstock/example")?)
    };
    let (one, two) = (make()?, make()?);
    let mut times = Vec::new();
    for _ in 0..HANDSHAKES {
        let before = cpu();
        let mut client = one.connect(Expected::Key(two.public()))?;
        let mut server = two.accept()?;
        server.take(&client.output())?;
        client.take(&server.output())?;
        server.take(&client.output())?;
        client.finish()?;
        server.finish()?;
        times.push(cpu() - before);
    }
    Ok(median(times))
}

fn pair(suite: Suite) -> Result<(Sealer, Opener), Failure> {
    let secret = || TrafficSecret::new(suite, &vec![7; suite.secret_bytes()]).ok_or("a secret");
    let client = Records::new(Side::Client, secret()?, secret()?);
    let server = Records::new(Side::Server, secret()?, secret()?);
    Ok((client.sealer, server.opener))
}

/// Returns the rates of sealing, with the copy into the send buffer, and of opening in place.
fn alone(suite: Suite) -> Result<(f64, f64), Failure> {
    let content = vec![1; ALONE_BYTES];
    let records = 16;
    let mut out = vec![0; records * (PLAIN_BYTES_MAX + RECORD_OVERHEAD_BYTES)];
    let (mut sealer, mut opener) = pair(suite)?;
    let (mut seal, mut open) = (Vec::new(), Vec::new());
    for part in content.chunks(records * PLAIN_BYTES_MAX) {
        let pieces = [part];
        let mut pieces = Pieces::new(&pieces);
        let before = Instant::now();
        let written = sealer.seal(&mut pieces, &mut out)?;
        seal.push(before.elapsed().as_secs_f64() / part.len() as f64);
        let mut rest = out.get_mut(..written).unwrap_or_default();
        let before = Instant::now();
        while !rest.is_empty() {
            let bytes = rest.len().min(PLAIN_BYTES_MAX + RECORD_OVERHEAD_BYTES);
            let (record, later) = rest.split_at_mut(bytes);
            opener.open(record)?;
            rest = later;
        }
        open.push(before.elapsed().as_secs_f64() / part.len() as f64);
    }
    Ok((1e-9 / median(seal), 1e-9 / median(open)))
}

/// Connection over which content is sent, and how.
struct Way {
    out: TcpStream,
    input: TcpStream,
    sealer: Option<Sealer>,
    opener: Option<Opener>,
    /// Send buffer.
    sealed: Vec<u8>,
    intake: Intake,
}

impl Way {
    fn plain() -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        // As Penstock does within a host; the choice must be made before the connection.
        let _ = rustix::net::sockopt::set_tcp_congestion(&listener, "reno");
        let out = TcpStream::connect(listener.local_addr()?)?;
        let (input, _) = listener.accept()?;
        let _ = rustix::net::sockopt::set_tcp_congestion(&out, "reno");
        out.set_nodelay(true)?;
        input.set_nodelay(true)?;
        let (sealed, intake) = (Vec::new(), Intake::new(0));
        Ok(Self { out, input, sealer: None, opener: None, sealed, intake })
    }

    fn sealed(suite: Suite, send_bytes: usize) -> Result<Self, Failure> {
        let (sealer, opener) = pair(suite)?;
        let records = send_bytes / PLAIN_BYTES_MAX;
        let sealed =
            vec![0; SEAL_BYTES_MIN.max(records * (PLAIN_BYTES_MAX + RECORD_OVERHEAD_BYTES))];
        Ok(Self { sealer: Some(sealer), opener: Some(opener), sealed, ..Self::plain()? })
    }

    /// Returns the seconds until the receiver has all content in its memory and has said so.
    fn time(&mut self, bytes: usize) -> Result<Took, Failure> {
        let Self { out, input, sealer, opener, sealed, intake } = self;
        let content: Vec<u8> = (0..bytes).map(|at| at.to_le_bytes()[0]).collect();
        let mut target = vec![1; bytes];
        let took = thread::scope(|scope| -> Result<Took, Failure> {
            let target = target.as_mut_slice();
            let receives = scope.spawn(move || -> Result<f64, Failure> {
                pin(1);
                let before = cpu();
                match opener {
                    None => input.read_exact(target)?,
                    Some(opener) => receive(input, opener, intake, target)?,
                }
                input.write_all(&[1])?;
                Ok(cpu() - before)
            });
            let content = content.as_slice();
            let sends = scope.spawn(move || -> Result<[f64; 2], Failure> {
                pin(0);
                let (before, cpu_before) = (Instant::now(), cpu());
                match sealer {
                    None => out.write_all(content)?,
                    Some(sealer) => send(out, sealer, sealed, content)?,
                }
                out.read_exact(&mut [0])?;
                Ok([before.elapsed().as_secs_f64(), cpu() - cpu_before])
            });
            let receiver = receives.join().map_err(|_| "a thread failed")??;
            let [clock, sender] = sends.join().map_err(|_| "a thread failed")??;
            Ok(Took { clock, sender, receiver })
        })?;
        if target == content { Ok(took) } else { Err("other content came".into()) }
    }
}

fn send(
    out: &mut TcpStream,
    sealer: &mut Sealer,
    sealed: &mut [u8],
    content: &[u8],
) -> Result<(), Failure> {
    let pieces = [content];
    let mut pieces = Pieces::new(&pieces);
    while pieces.left() > 0 {
        let bytes = sealer.seal(&mut pieces, sealed)?;
        out.write_all(sealed.get(..bytes).unwrap_or_default())?;
    }
    Ok(())
}

fn receive(
    input: &mut TcpStream,
    opener: &mut Opener,
    intake: &mut Intake,
    target: &mut [u8],
) -> Result<(), Failure> {
    let mut done = 0;
    while let Some(rest) = target.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let bytes = rest.len().clamp(RECORD_OVERHEAD_BYTES, RECEIVE_BYTES_MAX);
        let room = intake.room_for(bytes);
        let got = input.read(room.get_mut(..bytes).unwrap_or_default())?;
        done += intake.filled_into(got, opener, rest)?;
    }
    Ok(())
}

fn pin(core: usize) {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    // On a host with one core, both threads share it.
    let _ = rustix::thread::sched_setaffinity(None, &cores);
}
