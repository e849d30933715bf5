//! A link between two processes, and the sudden end of one of them.

mod common;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{anything, in_time, pattern, soon};
use penstock_link::{
    Address, Key, LinkError, Listener, Patience, Receiver, Sender, Side, accept_hello, establish,
    open,
};
use penstock_wire::calls::to_worker::{InitBuffer, Ping};
use penstock_wire::hello::{Role, Verdict};
use penstock_wire::{Id, U64};

const ADDRESS: &str = "PENSTOCK_LINK_TEST_ADDRESS";

/// Runs as the second process of the tests below. Returns every payload twice as long.
#[test]
fn other_process() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let key = Key::from_bytes(&[9; 32]);
    let opened = open(&address.parse().unwrap(), Role::Client, None, Some(&key), soon()).unwrap();
    let (sender, mut receiver) =
        establish(opened.stream, opened.features, Side::Client, anything).unwrap();
    loop {
        let mut bytes = Vec::new();
        let served = receiver.receive(Patience::Forever, &mut |_, payload| {
            bytes = payload.read_all()?;
            Ok(())
        });
        if matches!(served, Err(LinkError::Closed)) {
            return;
        }
        served.unwrap();
        let call = InitBuffer { mem: Id::new(1), offset: U64::ZERO };
        let mut pieces = [&bytes[..], &bytes[..]].into_iter();
        sender.send_pieces(&call, &[], 2 * bytes.len() as u64, &mut pieces).unwrap();
        sender.flush().unwrap();
    }
}

fn start(address: &Address) -> (Child, Sender, Receiver) {
    let listener = Listener::bind(address).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "other_process", "--nocapture"])
        .env(ADDRESS, listener.address().to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let key = Key::from_bytes(&[9; 32]);
    let me = rustix::process::getuid().as_raw();
    let accepted =
        accept_hello(listener.accept().unwrap(), Some(&key), &|peer| peer.uid == me, soon())
            .unwrap();
    if let Some(credentials) = accepted.credentials {
        assert_eq!(credentials.pid, i32::try_from(child.id()).unwrap());
    }
    let features = accepted.features;
    let stream = accepted.finish(Verdict::Welcome).unwrap();
    let (sender, receiver) = establish(stream, features, Side::Worker, anything).unwrap();
    (child, sender, receiver)
}

fn addresses(name: &str) -> [Address; 2] {
    let path = std::env::temp_dir().join(format!("penstock-link-{name}-{}", std::process::id()));
    [Address::unix(path), "tcp:127.0.0.1:0".parse().unwrap()]
}

#[test]
fn payloads_go_to_another_process_and_back() {
    for address in addresses("processes") {
        let (mut child, sender, mut receiver) = start(&address);
        for bytes in [0, 1, 5_000, 1 << 20, 16 << 20] {
            let sent = pattern(bytes as u64, bytes);
            sender.send(&InitBuffer { mem: Id::new(1), offset: U64::ZERO }, &[], &sent).unwrap();
            sender.flush().unwrap();
            let mut got = Vec::new();
            let served = receiver.receive(Patience::Until(soon()), &mut |_, payload| {
                got = payload.read_all()?;
                Ok(())
            });
            served.unwrap();
            assert!(got == [sent.clone(), sent].concat(), "{address} {bytes}");
        }
        sender.close();
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_killed_process_is_noticed() {
    for address in addresses("killed") {
        in_time(&address.to_string(), || kill(&address));
    }
}

fn kill(address: &Address) {
    let (mut child, sender, mut receiver) = start(address);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        child.kill().unwrap();
        child.wait().unwrap();
    });
    let served = receiver.receive(Patience::Forever, &mut |_, _| Ok(()));
    assert!(matches!(served, Err(LinkError::Closed)), "{served:?}");
    killer.join().unwrap();
    // Sending also ends, at the latest when the ring is full.
    let big = vec![0; 64 << 20];
    let call = InitBuffer { mem: Id::new(1), offset: U64::ZERO };
    while sender.send(&call, &[], &big).is_ok()
        && sender.send(&Ping { request: Id::new(1) }, &[], &[]).is_ok()
    {}
}
