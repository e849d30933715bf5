//! `penstock metrics`, with a daemon whose device is simulated.

use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Stdio};

use crate::common::{Home, stderr, stdout};
use crate::daemon::{Daemon, serve_with};
use penstock_trial::{patience, wait_for};

const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n";

/// More clients than the server serves at the same time.
const SLOW: usize = 20;

/// A connection to the server.
trait Connection: Read + Write {
    /// Says that no more bytes come.
    fn end(&self);
}

impl Connection for TcpStream {
    fn end(&self) {
        // If this fails, the server has ended the connection already.
        _ = self.shutdown(Shutdown::Write);
    }
}

impl Connection for UnixStream {
    fn end(&self) {
        _ = self.shutdown(Shutdown::Write);
    }
}

/// `penstock metrics --listen`, killed when the test ends.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(home: &Home, listen: &str, nodes: &str) -> Self {
        let mut command = home.penstock(&["metrics", "--listen", listen, "--nodes", nodes]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect(&line).to_owned();
        Self { child, address }
    }

    fn connect(&self) -> Box<dyn Connection> {
        let limit = Some(patience());
        if let Some(path) = self.address.strip_prefix("unix:") {
            let stream = UnixStream::connect(path).unwrap();
            stream.set_read_timeout(limit).unwrap();
            return Box::new(stream);
        }
        let stream = TcpStream::connect(self.address.strip_prefix("tcp:").unwrap()).unwrap();
        stream.set_read_timeout(limit).unwrap();
        Box::new(stream)
    }

    /// Sends these bytes, and returns the whole answer. On a busy host a client can be so slow that
    /// the server ends its connection. Then another one tries.
    fn ask(&self, bytes: &[u8]) -> String {
        let mut told = None;
        wait_for("an answer of the server", || {
            let mut connection = self.connect();
            told = connection.write_all(bytes).ok().and_then(|()| answer(&mut *connection));
            told.as_ref().is_some_and(|told| !told.is_empty())
        });
        told.unwrap()
    }

    /// Returns what the server first says on standard error.
    fn says(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Reads until the server closes the connection. Returns `None` if bytes were lost in that, because
/// the server had not read all that was sent.
fn answer(connection: &mut dyn Connection) -> Option<String> {
    let mut text = String::new();
    match connection.read_to_string(&mut text) {
        Ok(_) => Some(text),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
            None
        }
    }
}

/// Returns the value of the metric with this name and these labels after the node.
fn value(text: &str, name: &str, labels: &str) -> Option<f64> {
    let is_it = |line: &&str| {
        let rest = line.strip_prefix(name).and_then(|rest| rest.strip_prefix("{node="));
        rest.is_some_and(|rest| rest.contains(&format!("{labels}}} ")))
    };
    text.lines().find(is_it)?.rsplit(' ').next()?.parse().ok()
}

fn start_daemon(home: &Home) -> Daemon {
    serve_with(home, &["--platform", "null"], &[])
}

#[test]
fn slow_and_hostile_clients_hold_up_no_scrape() {
    let home = Home::new("metrics-clients");
    let daemon = start_daemon(&home);
    let socket = home.path.join("metrics.sock");
    let at_socket = format!("unix:{}", socket.display());
    for listen in ["127.0.0.1:0", &at_socket] {
        let server = Server::start(&home, listen, &daemon.addresses[0]);
        let scrape = || {
            let told = server.ask(SCRAPE.as_bytes());
            assert!(told.starts_with("HTTP/1.1 200 OK\r\n") && told.ends_with("# EOF\n"), "{told}");
            told
        };
        // On a busy host the daemon may not answer in time.
        wait_for("an answer of the node", || scrape().contains("\"} 1.0"));
        let mut slow: Vec<_> = (0..SLOW).map(|_| server.connect()).collect();
        for client in &mut slow {
            // If this fails, the server has ended the connection already.
            _ = client.write_all(&SCRAPE.as_bytes()[..SCRAPE.len() - 1]);
        }
        scrape();
        // They get no answer, and their connections end.
        for client in &mut slow {
            assert_eq!(answer(&mut **client).unwrap_or_default(), "");
        }
        for (bytes, status) in [
            (&b"\x16\x03\x01\x02\x00 is no HTTP\r\n\r\n"[..], "400"),
            // As long as a head may be. The server has read all of it before it answers.
            (&[b'a'; 8 << 10][..], "400"),
            (b"GET / HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405"),
        ] {
            let told = server.ask(bytes);
            assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{told}");
            scrape();
        }
        let mut half = server.connect();
        _ = half.write_all(b"GET /metr");
        half.end();
        assert_eq!(answer(&mut *half).unwrap_or_default(), "");
        drop(server.connect());
        scrape();
    }
    assert_eq!(std::fs::metadata(socket).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn totals_stay_when_a_session_has_ended() {
    let home = Home::new("metrics-totals");
    let daemon = start_daemon(&home);
    let server = Server::start(&home, "127.0.0.1:0", &daemon.addresses[0]);
    let (mut text, mut last) = (String::new(), 0.0);
    let mut scrape = |name: &str, labels: &str, wanted: f64| {
        wait_for(name, || {
            text = server.ask(SCRAPE.as_bytes());
            if let Some(now) = value(&text, "penstock_core_seconds_total", "") {
                assert!(now >= last, "{last} s before, then {now} s");
                last = now;
            }
            value(&text, name, labels) == Some(wanted)
        });
        last
    };
    scrape("penstock_sessions_begun_total", "", 0.0);
    let address = daemon.addresses[0].parse().unwrap();
    let pool = penstock_client::Pool::open(&[address], None, patience(), |_| {});
    assert_eq!(pool.nodes().len(), 1, "{:?}", pool.absent());
    scrape("penstock_sessions", "", 1.0);
    drop(pool);
    scrape("penstock_sessions_ended_total", ",how=\"orderly\"", 1.0);
    let used = scrape("penstock_sessions", "", 0.0);
    assert!(used > 0.0, "the worker has loaded its drivers");
    assert_eq!(value(&text, "penstock_sessions_begun_total", ""), Some(1.0), "{text}");
    assert_eq!(value(&text, "penstock_sessions_limit", ""), Some(256.0), "{text}");
    assert_eq!(value(&text, "penstock_connections_refused_total", ",reason=\"key\""), Some(0.0));
    assert!(text.contains(",simulated=\"true\"} 1.0"), "{text}");
}

#[test]
fn a_node_that_does_not_answer_is_a_metric_and_no_error() {
    let home = Home::new("metrics-silent");
    // The kernel completes connections to it, and nobody answers.
    let silent = home.path.join("silent.sock");
    let _listener = UnixListener::bind(&silent).unwrap();
    let daemon = start_daemon(&home);
    let nodes = format!("unix:{},{},unix:/nowhere", silent.display(), daemon.addresses[0]);
    wait_for("an answer of the node", || {
        let output = home.penstock(&["metrics", "--nodes", &nodes]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(text.contains("penstock_node_up{node=\"unix:/nowhere\"} 0.0\n"), "{text}");
        let silent = format!("penstock_node_up{{node=\"unix:{}\"}} 0.0\n", silent.display());
        assert!(text.contains(&silent) && text.ends_with("# EOF\n"), "{text}");
        // On a busy host the thread that asks may be late.
        let is_told = stderr(&output).contains("does not answer: cannot connect to unix:/nowhere");
        is_told
            && text.contains(&format!("penstock_node_up{{node=\"{}\"}} 1.0\n", daemon.addresses[0]))
    });
    let none = home.penstock(&["metrics", "--nodes", "none"]).output().unwrap();
    assert_eq!(none.status.code(), Some(3), "{}", stderr(&none));
}

#[test]
fn metrics_are_written_also_if_standard_error_takes_nothing() {
    let home = Home::new("metrics-full");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = home.penstock(&["metrics", "--nodes", "unix:/nowhere"]);
    let output = command.stderr(full).output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    assert!(stdout(&output).ends_with("penstock_node_up{node=\"unix:/nowhere\"} 0.0\n# EOF\n"));
}

#[test]
fn an_address_that_others_reach_is_told() {
    let home = Home::new("metrics-open");
    let mut server = Server::start(&home, "0.0.0.0:0", "unix:/nowhere");
    let said = server.says();
    assert!(said.contains("everybody who reaches tcp:0.0.0.0:"), "{said}");
    let wrong = home.penstock(&["metrics", "--listen", "9367"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{}", stderr(&wrong));
}
