//! Connections to other nodes, which the daemon makes for its workers.

mod common;
#[path = "common/daemon.rs"]
mod daemon;

use std::net::TcpListener;
use std::path::PathBuf;

use common::Devices;
use daemon::{Daemon, is_alive, works};
use penstock_link::{
    AUTHORIZED_CLIENTS_FILE, AuthorizedClients, Encryption, EncryptionOptions, Key, Keys, Pins,
    PublicKey, Rule,
};
use penstock_trial::wait_for;
use penstock_wire::calls::to_worker;
use penstock_wire::describe::PeerInvitation;
use penstock_wire::id::kind;
use penstock_wire::{Id, Status, frame};

use crate::common::Client;

const DEVICES: Devices = Devices::Simulated;

/// Key of a pool, in a folder that goes with it.
struct PoolKey(PathBuf);

impl PoolKey {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("penstockd-dial-{}-{name}", std::process::id()));
        _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("penstock")).unwrap();
        Key::create(&folder.join("key")).unwrap();
        Self(folder)
    }

    /// Returns the same key in another folder, for a node with an identity of its own.
    fn another(&self, name: &str) -> Self {
        let other = Self::new(name);
        std::fs::copy(self.0.join("key"), other.0.join("key")).unwrap();
        other
    }

    fn name(&self) -> &str {
        self.0.file_name().unwrap().to_str().unwrap()
    }

    fn public(&self) -> PublicKey {
        let folder = Some(self.0.join("penstock"));
        let options = EncryptionOptions { rule: Rule::Always, folder };
        Encryption::new(&options, Pins::Never).unwrap().public().unwrap()
    }

    /// Revokes the key of another node, which the list may lack.
    fn revoke(&self, other: &PublicKey) {
        let list = self.0.join("penstock").join(AUTHORIZED_CLIENTS_FILE);
        let clients = AuthorizedClients::load(&list).unwrap();
        if let Some(known) = clients.with_key(other) {
            AuthorizedClients::revoke(&list, &known.name).unwrap().unwrap();
        } else {
            std::fs::write(&list, format!("other {other} revoked\n")).unwrap();
        }
    }

    /// Starts a daemon with this key, on a Unix socket and a TCP port.
    fn serve(&self, name: &str, environment: &[(&str, &str)]) -> Daemon {
        let key = self.0.join("key");
        let home = [("XDG_CONFIG_HOME", self.0.to_str().unwrap())];
        let environment = [&home[..], environment].concat();
        let options = ["--listen", "tcp:127.0.0.1:0", "--key", key.to_str().unwrap()];
        Daemon::start_with(name, &options, &environment)
    }
}

impl Drop for PoolKey {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the ticket of a peer with this number.
fn ticket(number: u64) -> [u8; 32] {
    [u8::try_from(number).unwrap(); 32]
}

fn peer(number: u64) -> Id<kind::Peer> {
    Id::new(number)
}

/// Has the worker of `client` connect to these addresses.
fn connect(client: &mut Client, number: u64, addresses: &[String]) -> Status {
    let addresses = addresses.to_vec();
    let invitation = frame::encode(&PeerInvitation { addresses, ticket: ticket(number) });
    let call = to_worker::ConnectPeer { request: Id::NONE, peer: peer(number) };
    client.request(call, &invitation).0
}

fn admit(client: &mut Client, number: u64) {
    let call = to_worker::AdmitPeer { request: Id::NONE, peer: peer(number) };
    assert_eq!(client.request(call, &ticket(number)).0, Status::OK);
}

fn dials(daemon: &Daemon) -> u64 {
    daemon.status()["dials"].as_u64().unwrap()
}

/// Links a worker of one daemon to one of the other over TCP.
fn link(here: &Daemon, there: &Daemon) -> Status {
    let (mut guest, mut host) = (here.client().0, there.client().0);
    admit(&mut host, 1);
    let linked = connect(&mut guest, 1, &[there.addresses[1].to_string()]);
    works(&mut guest);
    works(&mut host);
    linked
}

#[test]
fn workers_without_keys_are_linked_over_plain_and_encrypted_tcp() {
    let (key, other) = (PoolKey::new("linked"), PoolKey::new("linked-other"));
    for rule in ["never", "always"] {
        let rule = &[("PENSTOCK_ENCRYPTION", rule)];
        let (here, there) = (key.serve("dial-here", rule), key.serve("dial-there", rule));
        assert_eq!(link(&here, &there), Status::OK, "{rule:?}");
        let stranger = other.serve("dial-stranger", rule);
        assert_eq!(link(&here, &stranger), Status::NODE_LOST, "{rule:?}");
        assert_eq!(dials(&here), 0);
    }
}

/// Each of two nodes may be the one that no longer trusts the other. The session at each of them
/// goes on, and so does a link to a third node.
#[test]
fn links_end_when_the_key_of_the_other_node_is_revoked() {
    let always = &[("PENSTOCK_ENCRYPTION", "always")];
    for case in ["accepted", "made"] {
        let key = PoolKey::new(&format!("revoke-{case}"));
        let rings =
            ["here", "there", "third"].map(|it| key.another(&format!("revoke-{case}-{it}")));
        let nodes = rings.each_ref().map(|ring| ring.serve(ring.name(), always));
        let [mut here, mut there, mut third] = nodes.each_ref().map(|node| node.client().0);
        let address = [nodes[1].addresses[1].to_string()];
        for (number, guest) in [(1, &mut here), (2, &mut third)] {
            admit(&mut there, number);
            assert_eq!(connect(guest, number, &address), Status::OK);
        }
        match case {
            "accepted" => rings[1].revoke(&rings[0].public()),
            _ => rings[0].revoke(&rings[1].public()),
        }
        for client in [&mut here, &mut there] {
            client.until("the end of the link", |inbox| inbox.peers_lost == [1]);
        }
        admit(&mut there, 3);
        assert_eq!(connect(&mut here, 3, &address), Status::NODE_LOST, "{case}");
        admit(&mut there, 4);
        assert_eq!(connect(&mut third, 4, &address), Status::OK, "{case}");
        for client in [&mut here, &mut there, &mut third] {
            works(client);
        }
        assert!(third.inbox.peers_lost.is_empty(), "{case}");
        assert!(!there.inbox.peers_lost.iter().any(|peer| [2, 4].contains(peer)), "{case}");
    }
}

#[test]
fn a_daemon_connects_only_in_the_networks_that_it_is_told() {
    let key = PoolKey::new("networks");
    let there = key.serve("dial-target", &[]);
    for (networks, linked) in [("127.0.0.0/8", Status::OK), ("10.0.0.0/8", Status::NODE_LOST)] {
        let here = key.serve("dial-networks", &[("PENSTOCK_PEER_NETWORKS", networks)]);
        assert_eq!(link(&here, &there), linked, "{networks}");
    }
}

#[test]
fn a_node_that_says_nothing_holds_up_nobody_and_leaves_nothing() {
    let key = PoolKey::new("silent");
    let here = key.serve("dial-silent", &[]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = vec![format!("tcp:{}", silent.local_addr().unwrap())];
    let (mut client, description) = here.client();
    for number in 1..=8 {
        let invitation = PeerInvitation { addresses: address.clone(), ticket: ticket(number) };
        let request = client.id();
        let call = to_worker::ConnectPeer { request, peer: peer(number) };
        client.send(call, &[], &frame::encode(&invitation));
    }
    wait_for("the connections", || dials(&here) == 2);
    // The worker and the daemon serve meanwhile.
    works(&mut client);
    // Whoever waits for the silent node waits until the daemon gives a connection up and makes the
    // next one. A busy machine may be as slow once, but not every time.
    silent.set_nonblocking(true).unwrap();
    let mut made = Vec::new();
    let mut count = || {
        made.extend(silent.incoming().map_while(Result::ok));
        made.len()
    };
    wait_for("a session during one attempt", || {
        let before = count();
        works(&mut here.client().0);
        assert!(dials(&here) > 0, "all attempts are over");
        count() == before
    });
    drop(client);
    wait_for("the end of the worker", || !is_alive(description.worker));
    wait_for("the end of its connections", || dials(&here) == 0);
}

#[test]
fn the_answer_does_not_say_whether_a_port_is_open() {
    let key = PoolKey::new("answer");
    let here = key.serve("dial-answer", &[]);
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = open.local_addr().unwrap().port();
    let mut client = here.client().0;
    let mut ask = |port: u16| connect(&mut client, 1, &[format!("tcp:127.0.0.1:{port}")]);
    let hang_up = std::thread::spawn(move || drop(open.accept().unwrap()));
    let heard = ask(port);
    hang_up.join().unwrap();
    assert_eq!((heard, ask(port)), (Status::NODE_LOST, Status::NODE_LOST));
}

#[test]
fn a_setting_that_names_no_network_ends_the_daemon() {
    let folder = PoolKey::new("none");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_penstockd"))
        .args(["--listen", &format!("unix:{}/node.sock", folder.0.display())])
        .env("PENSTOCK_PEER_NETWORKS", "10.0.0.0/99")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("PENSTOCK_PEER_NETWORKS"), "{said}");
}

#[test]
fn the_network_is_closed_to_workers_of_a_daemon_with_a_key() {
    let key = PoolKey::new("own");
    let here = key.serve("dial-own", &[]);
    let options = EncryptionOptions { rule: Rule::Never, folder: None };
    let keys = Keys::load(Some(&key.0.join("key")), &options, Pins::Never).unwrap();
    works(&mut here.open(&keys, 1).unwrap().0);
    let told = here.status()["confinement"].clone();
    assert_eq!(told["network"], "closed", "{told}");
}
