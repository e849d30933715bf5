//! TCP peers that vanish silently, and peers that merely do not read.

mod common;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::{Transport, in_time, pair, soon};
use penstock_link::{LinkError, Patience, Received};
use penstock_trial::{Need, skip};
use penstock_wire::calls::to_worker::{InitBuffer, Ping};
use penstock_wire::{Id, U64};

/// Set in the process that runs in its own network namespace, which it may cut.
const INSIDE: &str = "PENSTOCK_LINK_TEST_VANISH";

fn bulk() -> InitBuffer {
    InitBuffer { mem: Id::new(1), offset: U64::ZERO }
}

/// Runs a test of this file in its own network namespace. Returns `false` if this process already
/// runs there and must run the test itself.
fn outside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        lo("up");
        return false;
    }
    let possible = Command::new("unshare").args(["-rn", "ip", "link", "set", "lo", "up"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        skip(Need::NetworkNamespaces, "cutting a network needs `unshare -rn` and `ip`");
        return true;
    }
    let inside = Command::new("unshare")
        .arg("-rn")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .status();
    assert!(inside.unwrap().success());
    true
}

fn lo(state: &str) {
    assert!(Command::new("ip").args(["link", "set", "lo", state]).status().unwrap().success());
}

#[test]
fn unacknowledged_calls_end_the_link_in_seconds() {
    if outside("unacknowledged_calls_end_the_link_in_seconds") {
        return;
    }
    let ((sender, mut input), (_reply, _receiver)) = pair(Transport::Tcp);
    lo("down");
    let before = Instant::now();
    sender.send(&Ping { request: Id::new(1) }, &[], &[]).unwrap();
    sender.flush().unwrap();
    let served = in_time("a silence", || input.receive(Patience::Forever, &mut |_, _| Ok(())));
    assert!(matches!(served, Err(LinkError::Vanished)), "{served:?}");
    // A short disturbance ends no link.
    assert!(Instant::now() > before + Duration::from_millis(1_500));
    assert!(sender.send(&bulk(), &[], &[0; 100_000]).is_err());
}

#[test]
fn a_blocked_sender_learns_that_its_peer_is_gone() {
    if outside("a_blocked_sender_learns_that_its_peer_is_gone") {
        return;
    }
    let ((sender, _input), (_reply, _receiver)) = pair(Transport::Tcp);
    let cut = thread::spawn(|| {
        thread::sleep(Duration::from_millis(300));
        lo("down");
    });
    // The peer does not read, so the send blocks on a full window before the peer vanishes.
    let sent = in_time("a send", || sender.send(&bulk(), &[], &vec![0; 256 << 20]));
    assert!(matches!(sent, Err(LinkError::Vanished)), "{sent:?}");
    cut.join().unwrap();
}

#[test]
fn an_idle_peer_that_vanishes_is_noticed() {
    if outside("an_idle_peer_that_vanishes_is_noticed") {
        return;
    }
    let ((_sender, mut input), (_reply, _receiver)) = pair(Transport::Tcp);
    lo("down");
    let served = in_time("a silence", || input.receive(Patience::Forever, &mut |_, _| Ok(())));
    assert!(matches!(served, Err(LinkError::Vanished)), "{served:?}");
}

#[test]
fn a_living_peer_that_does_not_read_keeps_its_link() {
    let ((sender, _input), (_reply, mut receiver)) = pair(Transport::Tcp);
    let payload = vec![3; 64 << 20];
    thread::scope(|scope| {
        let sends = scope.spawn(|| {
            sender.send(&bulk(), &[], &payload)?;
            sender.flush()
        });
        // Longer than any limit for a silent peer.
        thread::sleep(Duration::from_secs(7));
        let served = receiver.receive(Patience::Until(soon()), &mut |_, payload| {
            assert!(payload.read_all()?.iter().all(|byte| *byte == 3));
            Ok(())
        });
        assert_eq!(served.unwrap(), Received::Frame);
        sends.join().unwrap().unwrap();
    });
}
