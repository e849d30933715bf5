//! TCP sockets on the loopback interface, one between each two processes.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Ticket, Wire};
use crate::error::{Error, Result};
use crate::host::memory::{Room, Span};

/// Longest time until all processes have met, in seconds. Each loads drivers first, perhaps on a
/// busy machine.
const MEET_S_MAX: u64 = 60;
/// How often a process looks for the others.
const MEET_NAP: Duration = Duration::from_millis(2);
/// Bytes of the greeting: the token and the rank.
const GREETING_BYTES: usize = 12;
/// Number of tries before a waiting thread yields its core. A message on the loopback interface
/// takes some microseconds, a try half a microsecond.
const SPINS: u32 = 64;
/// Longest wait for a byte. After this time the peer is gone, or hangs.
const SILENCE: Duration = Duration::from_secs(60);

/// The sockets of one process.
#[derive(Debug)]
pub struct Tcp {
    rank: u32,
    /// By rank; `None` for this process.
    peers: Vec<Option<TcpStream>>,
    spins: bool,
    /// The word that barriers send.
    token: Span,
}

impl Tcp {
    /// Meets the other processes. Each listens, writes its port into `directory`, connects to those
    /// with lower ranks, and accepts those with higher ranks.
    ///
    /// # Errors
    /// Returns [`Error::Late`] if a process does not come, otherwise [`Error::Io`].
    pub fn open(directory: &Path, token: u64, rank: u32, ranks: u32) -> Result<Self> {
        let deadline = Instant::now() + Duration::from_secs(MEET_S_MAX);
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("listening"))?;
        let port = listener.local_addr().map_err(Error::io("listening"))?.port();
        tell(directory, rank, port)?;
        let mut peers: Vec<Option<TcpStream>> = (0..ranks).map(|_| None).collect();
        for below in 0..rank {
            let port = ask(directory, below, deadline)?;
            let mut stream =
                TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(Error::io("connecting"))?;
            let greeting = [token.to_le_bytes().as_slice(), &rank.to_le_bytes()].concat();
            stream.write_all(&greeting).map_err(Error::io("greeting"))?;
            place(&mut peers, below, stream)?;
        }
        listener.set_nonblocking(true).map_err(Error::io("listening"))?;
        while peers.iter().skip(rank as usize + 1).any(Option::is_none) {
            match listener.accept() {
                Ok((stream, _)) => {
                    if let Some(from) = greeted(&stream, token, deadline) {
                        place(&mut peers, from, stream)?;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => nap(deadline)?,
                Err(error) => return Err(Error::io("accepting")(error)),
            }
        }
        Ok(Self { rank, peers, spins: false, token: Room::new(8).span(0, 8) })
    }

    fn peer(&mut self, rank: u32) -> Result<&mut TcpStream> {
        let peer = self.peers.get_mut(rank as usize).and_then(Option::as_mut);
        peer.ok_or_else(|| Error::Absent(format!("there is no rank {rank}")))
    }
}

fn tell(directory: &Path, rank: u32, port: u16) -> Result<()> {
    // The file appears under its final name only when it is complete.
    let (new, path) =
        (directory.join(format!("port.{rank}.new")), directory.join(format!("port.{rank}")));
    std::fs::write(&new, port.to_string())
        .and_then(|()| std::fs::rename(&new, &path))
        .map_err(Error::io(path.display().to_string()))
}

fn ask(directory: &Path, rank: u32, deadline: Instant) -> Result<u16> {
    let path = directory.join(format!("port.{rank}"));
    loop {
        match std::fs::read_to_string(&path).map(|text| text.parse()) {
            Ok(Ok(port)) => return Ok(port),
            _ => nap(deadline)?,
        }
    }
}

fn nap(deadline: Instant) -> Result<()> {
    if Instant::now() > deadline {
        return Err(Error::Late {
            what: "the start of the other processes".to_owned(),
            seconds: MEET_S_MAX,
        });
    }
    std::thread::sleep(MEET_NAP);
    Ok(())
}

/// Returns the rank of a peer if it knows the token. Any process on this host can connect.
fn greeted(mut stream: &TcpStream, token: u64, deadline: Instant) -> Option<u32> {
    let mut greeting = [0; GREETING_BYTES];
    stream.set_nonblocking(false).ok()?;
    stream
        .set_read_timeout(Some(deadline.saturating_duration_since(Instant::now()).max(MEET_NAP)))
        .ok()?;
    stream.read_exact(&mut greeting).ok()?;
    let (first, rank) = greeting.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*first) == token).then_some(u32::from_le_bytes(*rank.first_chunk()?))
}

fn place(peers: &mut [Option<TcpStream>], rank: u32, stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true).map_err(Error::io("a socket"))?;
    stream.set_read_timeout(Some(SILENCE)).map_err(Error::io("a socket"))?;
    stream.set_write_timeout(Some(SILENCE)).map_err(Error::io("a socket"))?;
    if let Some(place) = peers.get_mut(rank as usize) {
        *place = Some(stream);
    }
    Ok(())
}

/// Waits while a socket is not ready: spins, and yields from time to time.
struct Patience {
    looks: u32,
    since: Option<Instant>,
}

impl Patience {
    const NEW: Self = Self { looks: 0, since: None };

    fn wait(&mut self) -> io::Result<()> {
        self.looks += 1;
        if !self.looks.is_multiple_of(SPINS) {
            std::hint::spin_loop();
            return Ok(());
        }
        std::thread::yield_now();
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() > SILENCE { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

/// Repeats `step` until all bytes are done.
fn all(
    mut step: impl FnMut(usize) -> io::Result<usize>,
    bytes: usize,
    spins: bool,
) -> io::Result<()> {
    let (mut done, mut patience) = (0, Patience::NEW);
    while done < bytes {
        match step(done) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                done += count;
                patience = Patience::NEW;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A sleeping socket returns the same error when its time-out is over.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && spins => patience.wait()?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Wire for Tcp {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn ranks(&self) -> u32 {
        u32::try_from(self.peers.len()).unwrap_or(u32::MAX)
    }

    fn name(&self) -> String {
        "TCP on the loopback interface, TCP_NODELAY".to_owned()
    }

    fn send(&mut self, to: u32, bytes: Span) -> Result<()> {
        let spins = self.spins;
        let peer = self.peer(to)?;
        let slice = bytes.as_slice();
        let sent =
            all(|done| peer.write(slice.get(done..).unwrap_or_default()), slice.len(), spins);
        sent.map_err(Error::io(format!("sending to rank {to}")))
    }

    fn receive(&mut self, from: u32, bytes: Span) -> Result<()> {
        let spins = self.spins;
        let peer = self.peer(from)?;
        let slice = bytes.as_mut();
        let length = slice.len();
        let received =
            all(|done| peer.read(slice.get_mut(done..).unwrap_or_default()), length, spins);
        received.map_err(Error::io(format!("receiving from rank {from}")))
    }

    /// The socket buffers much, so sending at once suffices.
    fn start_send(&mut self, to: u32, bytes: Span) -> Result<Ticket> {
        self.send(to, bytes)?;
        Ok(Ticket { id: 0, receive: None })
    }

    fn start_receive(&mut self, from: u32, bytes: Span) -> Result<Ticket> {
        Ok(Ticket { id: 0, receive: Some((from, bytes)) })
    }

    fn wait(&mut self, ticket: Ticket) -> Result<()> {
        ticket.receive.map_or(Ok(()), |(from, bytes)| self.receive(from, bytes))
    }

    /// Dissemination barrier: in each round, a process hears of twice as many others.
    fn barrier(&mut self) -> Result<()> {
        let (token, ranks) = (self.token, self.ranks());
        let mut step = 1;
        while step < ranks {
            self.send((self.rank + step) % ranks, token)?;
            self.receive((self.rank + ranks - step) % ranks, token)?;
            step *= 2;
        }
        Ok(())
    }

    fn set_spins(&mut self, spins: bool) -> Result<()> {
        if self.spins != spins {
            for peer in self.peers.iter().flatten() {
                peer.set_nonblocking(spins).map_err(Error::io("a socket"))?;
            }
            self.spins = spins;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_meet_exchange_bytes_and_wait_for_each_other() {
        let directory =
            std::env::temp_dir().join(format!("penstock-bench-tcp-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let ranks = 3;
        std::thread::scope(|scope| {
            for rank in 0..ranks {
                let directory = &directory;
                scope.spawn(move || {
                    let mut tcp = Tcp::open(directory, 5, rank, ranks).unwrap();
                    let room = Room::new(1 << 20);
                    for spins in [false, true] {
                        tcp.barrier().unwrap();
                        tcp.set_spins(spins).unwrap();
                        let span = room.span(0, 1 << 20);
                        if rank == 0 {
                            span.as_mut().fill(9);
                            for to in 1..ranks {
                                tcp.send(to, span).unwrap();
                            }
                        } else {
                            let ticket = tcp.start_receive(0, span).unwrap();
                            tcp.wait(ticket).unwrap();
                            assert!(span.as_slice().iter().all(|&byte| byte == 9));
                        }
                        tcp.barrier().unwrap();
                    }
                });
            }
        });
        std::fs::remove_dir_all(directory).unwrap();
    }
}
