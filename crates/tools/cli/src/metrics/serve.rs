//! Serves the metrics over HTTP, at a TCP port or a Unix socket.
//!
//! A few threads accept connections, and each serves one connection at a time. So no connection can
//! hold the others for longer than its limits of time. Many idle connections can: the kernel queues
//! them, and each has a thread for [`CLIENT_MAX`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};
use std::{io, thread};

use penstock_link::{Address, LinkError, Listener, Stream};
use penstock_process::Lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::http::{self, Head};
use super::scrape::Scraper;
use crate::failure::Failure;
use crate::serve::LISTENING;
use crate::table;

/// Number of connections that are served at the same time. Two servers of Prometheus need two. The
/// others are for clients that are slow.
const CONNECTIONS_MAX: usize = 16;

/// Time that a client has for its request, and once more to take the answer. Prometheus sends its
/// request at once, and over the slowest network two seconds are several round trips.
const CLIENT_MAX: Duration = Duration::from_secs(2);

/// Age up to which an answer is given out once more. Several servers that scrape at the same time,
/// and strangers, make the nodes no more work than one server that scrapes each second.
const FRESH_MAX: Duration = Duration::from_secs(1);

/// Pause after a failed accept: the process has no free descriptor until a connection ends.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Where to listen.
#[derive(Debug)]
pub struct Place {
    pub address: Address,
    /// Whether other hosts can connect.
    pub is_open: bool,
}

impl Place {
    /// Reads an address of the form IP:PORT or unix:PATH.
    pub fn read(text: &str) -> Result<Self, Failure> {
        let socket = text.parse::<SocketAddr>();
        let address = match &socket {
            Ok(_) => format!("tcp:{text}"),
            Err(_) if text.starts_with("unix:") => text.to_owned(),
            Err(_) => {
                let reason = "write IP:PORT, such as 127.0.0.1:9367, or unix:PATH".to_owned();
                return Err(Failure::Argument { argument: format!("--listen {text}"), reason });
            }
        };
        let is_open = socket.is_ok_and(|socket| !socket.ip().is_loopback());
        Ok(Self { address: Address::for_listener(&address)?, is_open })
    }
}

/// Serves the metrics. Returns only if that fails, so that the system can start the command anew.
pub fn serve(place: &Place, scraper: Scraper) -> Result<(), Failure> {
    let listener = Arc::new(Listener::bind(&place.address)?);
    if place.is_open {
        table::say(&format!(
            "everybody who reaches {} can read the metrics, which name nodes, devices and users \
             (by number, key, address or guest), and can stop scrapes with idle connections",
            listener.address()
        ));
    }
    table::print(&format!("{LISTENING}{}\n", listener.address()))?;
    let latest = Arc::new(Lock::new(Latest { scraper, last: None }));
    let ended = until_one_ends(CONNECTIONS_MAX, move || serve_all(&listener, &latest));
    ended.map_err(|source| LinkError::System { doing: "starting a thread", source })?;
    Err(Failure::Thread)
}

/// The answer to a scrape.
struct Latest {
    scraper: Scraper,
    last: Option<(Instant, Arc<str>)>,
}

impl Latest {
    /// Returns the whole answer. It is made once, and all connections share it.
    fn answer(&mut self) -> Arc<str> {
        if let Some((at, answer)) = &self.last
            && at.elapsed() <= FRESH_MAX
        {
            return answer.clone();
        }
        let answer: Arc<str> = http::metrics(&self.scraper.text()).into();
        self.last = Some((Instant::now(), answer.clone()));
        answer
    }
}

/// Tells that a thread has ended, also if it has panicked.
struct Life(Sender<()>);

impl Drop for Life {
    fn drop(&mut self) {
        // If nobody listens, another thread has ended before.
        _ = self.0.send(());
    }
}

/// Calls `work` in each of `count` threads, and returns when one of them has ended.
fn until_one_ends(count: usize, work: impl Fn() + Clone + Send + 'static) -> io::Result<()> {
    let (tell, told) = mpsc::channel();
    for _ in 0..count {
        let (life, work) = (Life(tell.clone()), work.clone());
        penstock_process::start("metrics", move || {
            let _life = life;
            work();
        })?;
    }
    // It cannot fail, because this side has a sender, too.
    _ = told.recv();
    Ok(())
}

fn serve_all(listener: &Listener, latest: &Lock<Latest>) {
    loop {
        match listener.accept() {
            // What fails here concerns only this client.
            Ok(stream) => _ = serve_one(&stream, latest),
            Err(error) => {
                table::say(&error.to_string());
                thread::sleep(ACCEPT_RETRY);
            }
        }
    }
}

fn serve_one(stream: &Stream, latest: &Lock<Latest>) -> Result<(), LinkError> {
    let answer = match read_head(stream, Instant::now() + CLIENT_MAX)? {
        Head::Part => return Ok(()),
        Head::Metrics => latest.lock().answer(),
        Head::Wrong(refusal) => http::refusal(refusal).into(),
    };
    stream.write_all_until(answer.as_bytes(), Instant::now() + CLIENT_MAX)?;
    stream.end_politely();
    Ok(())
}

/// Reads until the head of the request is whole or too long, or until the deadline.
fn read_head(stream: &Stream, deadline: Instant) -> Result<Head, LinkError> {
    let (mut bytes, mut got) = ([0; http::HEAD_BYTES_MAX], 0);
    loop {
        if let Some(free) = bytes.get_mut(got..)
            && let Some(more) = stream.recv_now(free)?
        {
            got += more;
            match http::judge(bytes.get(..got).unwrap_or_default()) {
                Head::Part => continue,
                head => return Ok(head),
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        let is_over = poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&left));
        if is_over.is_ok_and(|ready| ready == 0) {
            return Ok(Head::Part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ends_is_noticed() {
        for panics in [false, true] {
            let calls = Arc::new(Lock::new(0));
            let work = move || {
                let call = {
                    let mut calls = calls.lock();
                    *calls += 1;
                    *calls
                };
                assert!(!panics || call != 3, "the third thread panics");
                // The others stay until the process ends.
                if call != 3 {
                    loop {
                        thread::park();
                    }
                }
            };
            until_one_ends(5, work).unwrap();
        }
    }

    #[test]
    fn an_address_is_a_port_or_a_socket() {
        for (text, address, is_open) in [
            ("127.0.0.1:9", "tcp:127.0.0.1:9", false),
            ("[::1]:9", "tcp:[::1]:9", false),
            ("0.0.0.0:9", "tcp:0.0.0.0:9", true),
            ("192.0.2.1:9", "tcp:192.0.2.1:9", true),
            ("unix:/run/a", "unix:/run/a", false),
        ] {
            let place = Place::read(text).unwrap();
            assert_eq!((place.address.to_string().as_str(), place.is_open), (address, is_open));
        }
        for text in ["9367", "localhost:9367", "vsock:9", "tcp:127.0.0.1:9", ""] {
            assert!(Place::read(text).unwrap_err().to_string().contains("IP:PORT"), "{text}");
        }
    }
}
