//! Memory that a guest shares with this host: who gets a part, and when another session gets it.
//! The "guest" is this process, which opens the daemon's file in place of a PCI device.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of the tests themselves")]

mod common;
#[path = "common/daemon.rs"]
mod daemon;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{Client, Devices};
use daemon::{Daemon, is_alive, works};
use penstock_link::{Arena, Key, LinkError, Side, Stream, establish, open_on};
use penstock_trial::{deadline, wait_for};
use penstock_wire::calls::to_client;
use penstock_wire::describe::NodeDescription;
use penstock_wire::frame;
use penstock_wire::hello::Role;
use rustix::process::{Pid, Signal, kill_process};

const DEVICES: Devices = Devices::Simulated;

/// File of a guest's memory, and the key of its host.
struct Guest {
    memory: PathBuf,
    key: PathBuf,
    name: String,
}

impl Guest {
    fn new(name: &str) -> Self {
        let file = |kind: &str| format!("penstock-{kind}-{name}-{}", std::process::id());
        let memory = Path::new("/dev/shm").join(file("memory"));
        let key = std::env::temp_dir().join(file("key"));
        Key::create(&key).unwrap();
        Self { memory, key, name: name.to_owned() }
    }

    /// Starts a daemon whose guest has `sessions` parts and connects over TCP.
    fn daemon(&self, name: &str, sessions: usize) -> Daemon {
        let (key, address) = (self.key.display().to_string(), "tcp:127.0.0.1:0");
        let memory = format!("{address}={},size=32M,sessions={sessions}", self.memory.display());
        let name = format!("{}-{name}", self.name);
        let options = ["--key", &key, "--listen", address, "--guest-memory", &memory];
        Daemon::start(&name, &options)
    }

    /// Opens a session as a program in the guest does.
    fn open(&self, daemon: &Daemon, sees: &Path) -> Session {
        self.try_open(daemon, sees).unwrap()
    }

    fn try_open(&self, daemon: &Daemon, sees: &Path) -> Result<Session, LinkError> {
        let deadline = deadline();
        let stream = Stream::connect(&daemon.addresses[1], deadline)?;
        let key = Key::load(&self.key)?;
        let stream = stream.seeing(sees.to_owned());
        let opened = open_on(stream, "the host", Role::Client, None, Some(&key), deadline)?;
        let name = "a description";
        let bytes = opened.stream.read_sized_until(name, 1 << 24, deadline)?;
        let node: NodeDescription = frame::decode(name, &bytes)?;
        let (sender, receiver) =
            establish(opened.stream, opened.features, Side::Client, to_client::check)?;
        let arena = sender.arena().cloned();
        Ok(Session { client: Client::of_link(sender, receiver), arena, worker: node.worker })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.memory);
        _ = fs::remove_file(&self.key);
    }
}

struct Session {
    client: Client,
    /// The shared memory for buffers, if the session has got a part.
    arena: Option<Arc<Arena>>,
    worker: u32,
}

impl Session {
    fn arena(&self) -> &Arc<Arena> {
        self.arena.as_ref().expect("the session shares no memory")
    }

    fn is_clear(&self) -> bool {
        let mut bytes = vec![1; self.arena().bytes()];
        self.arena().read(0, &mut bytes) && bytes.iter().all(|&byte| byte == 0)
    }

    fn fill(&self) {
        let bytes = self.arena().bytes();
        assert!(self.arena().write(0, &vec![9; bytes]));
    }
}

/// Returns what the daemon says of its only session.
fn way(daemon: &Daemon) -> serde_json::Value {
    let status = daemon.status();
    let sessions = status["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    sessions[0]["transport"].clone()
}

/// Returns the number of parts of the guest's memory that are in use.
fn parts(daemon: &Daemon) -> u64 {
    daemon.status()["guest_memory"][0]["sessions"].as_u64().unwrap()
}

fn says(daemon: &Daemon, why: &str) -> bool {
    way(daemon)["why_not_better"].as_str().is_some_and(|text| text.contains(why))
}

#[test]
fn a_session_shares_memory_and_the_status_says_so() {
    let guest = Guest::new("use");
    let daemon = guest.daemon("one", 2);
    let mut session = guest.open(&daemon, &guest.memory);
    assert!(session.arena.is_some());
    works(&mut session.client);
    wait_for("the report of the worker", || way(&daemon)["guest_memory"] == true);
    assert_eq!(way(&daemon)["shares_memory"], true);
    assert_eq!(way(&daemon)["name"], "TCP");
    assert!(way(&daemon)["why_not_better"].is_null());
}

#[test]
fn a_guest_without_the_memory_is_served_and_the_status_says_why() {
    let (guest, other) = (Guest::new("absent"), Guest::new("other"));
    let (daemon, _others) = (guest.daemon("one", 1), other.daemon("one", 1));
    for (sees, why) in [
        (Path::new("/dev/shm/penstock-absent"), "has no ivshmem device"),
        (Path::new("/sys/kernel/fscaps"), "may not open the ivshmem device"),
        (&other.memory, "shows other memory than the daemon's"),
    ] {
        let mut session = guest.open(&daemon, sees);
        assert!(session.arena.is_none(), "{}", sees.display());
        works(&mut session.client);
        wait_for(why, || says(&daemon, why));
        drop(session.client.end());
        wait_for("the end of the session", || daemon.sessions() == 0);
    }
}

#[test]
fn a_session_beyond_the_parts_is_served_over_the_connection() {
    let guest = Guest::new("full");
    let daemon = guest.daemon("one", 1);
    let first = guest.open(&daemon, &guest.memory);
    let mut second = guest.open(&daemon, &guest.memory);
    assert!(first.arena.is_some() && second.arena.is_none());
    works(&mut second.client);
    drop((first.arena, first.client.end()));
    let why = "other sessions have all parts";
    wait_for(why, || daemon.sessions() == 1 && says(&daemon, why));
}

#[test]
fn a_part_comes_back_clear_when_its_program_has_ended() {
    let guest = Guest::new("again");
    let daemon = guest.daemon("one", 1);
    for _ in 0..5 {
        let mut session = guest.open(&daemon, &guest.memory);
        assert!(session.is_clear());
        works(&mut session.client);
        session.fill();
        // The link closes without a goodbye, as when a program is killed.
        drop(session);
        wait_for("the end of the session", || parts(&daemon) == 0);
    }
}

#[test]
fn a_part_is_not_given_away_while_a_program_has_it_mapped() {
    let guest = Guest::new("worker");
    let daemon = guest.daemon("one", 1);
    let mut first = guest.open(&daemon, &guest.memory);
    kill_process(Pid::from_raw(first.worker as i32).unwrap(), Signal::KILL).unwrap();
    first.client.until_end();
    wait_for("the end of the worker", || parts(&daemon) == 0);
    // The program has not noticed, and writes through a pointer that it still has.
    let mut second = guest.open(&daemon, &guest.memory);
    assert!(second.arena.is_none());
    wait_for("the reason", || says(&daemon, "still holds the part"));
    first.fill();
    works(&mut second.client);
    drop((first, second));
    wait_for("the end of the session", || parts(&daemon) == 0);
    assert!(guest.open(&daemon, &guest.memory).is_clear());
}

#[test]
fn a_daemon_that_replaces_a_killed_one_gives_away_what_is_free() {
    let guest = Guest::new("daemon");
    let mut killed = guest.daemon("one", 1);
    let first = guest.open(&killed, &guest.memory);
    killed.process.kill().unwrap();
    killed.process.wait().unwrap();
    wait_for("the end of the worker", || !is_alive(first.worker));
    let daemon = guest.daemon("two", 1);
    let held = guest.open(&daemon, &guest.memory);
    assert!(held.arena.is_none());
    wait_for("the reason", || says(&daemon, "still holds the part"));
    first.fill();
    drop((first, held));
    wait_for("the end of the session", || parts(&daemon) == 0);
    let mut second = guest.open(&daemon, &guest.memory);
    assert!(second.is_clear());
    works(&mut second.client);
}

#[test]
fn a_key_is_needed_as_without_the_memory() {
    let (guest, other) = (Guest::new("key"), Guest::new("stranger"));
    let daemon = guest.daemon("one", 1);
    fs::copy(&other.key, &guest.key).unwrap();
    let refused = guest.try_open(&daemon, &guest.memory);
    assert!(matches!(refused, Err(LinkError::WrongKey { .. })), "{:?}", refused.err());
}
