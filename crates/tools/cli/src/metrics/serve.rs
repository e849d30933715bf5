//! Serves the metrics over HTTP, at a TCP port or a Unix socket.
//!
//! A few threads accept connections, and each serves one connection at a time. So no connection can
//! hold the others for longer than its limits of time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

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

/// Serves the metrics until the process ends.
pub fn serve(place: &Place, scraper: Scraper) -> Result<(), Failure> {
    let listener = Arc::new(Listener::bind(&place.address)?);
    if place.is_open {
        table::say(&format!(
            "everybody who reaches {} can read the metrics, which name nodes, devices and the \
             numbers of users",
            listener.address()
        ));
    }
    table::print(&format!("{LISTENING}{}\n", listener.address()))?;
    let scraper = Arc::new(Lock::new(scraper));
    let serve = || {
        let (listener, scraper) = (listener.clone(), scraper.clone());
        penstock_process::start("metrics", move || serve_all(&listener, &scraper))
    };
    let threads: Result<Vec<_>, _> = (0..CONNECTIONS_MAX).map(|_| serve()).collect();
    let doing = "starting a thread";
    let threads = threads.map_err(|source| LinkError::System { doing, source })?;
    // No thread ends before the process does.
    threads.into_iter().for_each(|thread| _ = thread.join());
    Ok(())
}

fn serve_all(listener: &Listener, scraper: &Lock<Scraper>) {
    loop {
        match listener.accept() {
            // What fails here concerns only this client.
            Ok(stream) => _ = serve_one(&stream, scraper),
            Err(error) => {
                table::say(&error.to_string());
                thread::sleep(ACCEPT_RETRY);
            }
        }
    }
}

fn serve_one(stream: &Stream, scraper: &Lock<Scraper>) -> Result<(), LinkError> {
    let answer = match read_head(stream, Instant::now() + CLIENT_MAX)? {
        Head::Part => return Ok(()),
        Head::Metrics => http::metrics(&scraper.lock().text()),
        Head::Wrong(refusal) => http::refusal(refusal),
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
