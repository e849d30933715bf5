//! Clients with one-time keys, which a bridge has brought.

mod common;
#[path = "common/daemon.rs"]
mod daemon;

use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::time::Duration;

use common::{Client, Devices};
use daemon::{Daemon, works};
use penstock_link::{
    Address, Encryption, Invitation, Key, Keys, LinkError, Offer, Opened, Pins, PublicKey, Side,
    Stream, Trust, ask_for_invitation, open_on,
};
use penstock_trial::{deadline, wait_for};
use penstock_wire::calls::{to_client, to_worker};
use penstock_wire::hello::{Role, TICKET_BYTES, Verdict};
use penstock_wire::limits::{DESCRIPTION_BYTES_MAX, INVITATION_MS_MAX};
use penstock_wire::{Id, Status};

const DEVICES: Devices = Devices::Simulated;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Asks as a bridge does.
fn invite(daemon: &Daemon) -> Invitation {
    let deadline = deadline();
    let stream = Stream::connect(&daemon.addresses[0], deadline).unwrap();
    match ask_for_invitation(stream, HERE, deadline).unwrap() {
        Offer::Invitation(invitation) => invitation,
        other => panic!("{other:?}"),
    }
}

/// What a client brings. A test exchanges one of them.
struct Brought {
    node: PublicKey,
    key: Key,
    ticket: [u8; TICKET_BYTES],
    role: Role,
}

impl Brought {
    fn of(invitation: &Invitation) -> Self {
        let (node, key, ticket) = (invitation.node(), invitation.key(), invitation.ticket());
        Self { node, key, ticket, role: Role::Client }
    }

    fn open(&self, invitation: &Invitation) -> Result<Opened, LinkError> {
        let deadline = deadline();
        let address = invitation.address();
        let address = Address::tcp(&address.ip().to_string(), address.port());
        let stream = Stream::connect(&address, deadline)?;
        let encryption = Encryption::for_now(Pins::Key(self.node))?;
        let trust = Trust { pool: Some(&self.key), encryption: Some(&encryption), guests: None };
        open_on(stream, "the node", self.role, Some(self.ticket), trust, deadline)
    }
}

fn open(invitation: &Invitation) -> Result<Opened, LinkError> {
    Brought::of(invitation).open(invitation)
}

fn client(opened: Opened) -> Client {
    let deadline = deadline();
    opened.stream.read_sized_until("a description", DESCRIPTION_BYTES_MAX, deadline).unwrap();
    let (sender, receiver) =
        penstock_link::establish(opened.stream, opened.features, Side::Client, to_client::check)
            .unwrap();
    Client::of_link(sender, receiver)
}

fn must_not_be_invited(opened: Result<Opened, LinkError>) {
    let refused = opened.map(drop).unwrap_err();
    let is_right = matches!(refused, LinkError::Refused { verdict: Verdict::NotInvited, .. });
    assert!(is_right, "{refused}");
}

fn is_open(invitation: &Invitation) -> bool {
    TcpStream::connect(invitation.address()).is_ok()
}

#[test]
fn a_client_with_a_one_time_key_is_served_directly_and_as_the_bridges_user() {
    let daemon = Daemon::start("invited-serve", &[]);
    let invitation = invite(&daemon);
    let mut client = client(open(&invitation).unwrap());
    works(&mut client);
    let status = daemon.status();
    let session = &status["sessions"][0];
    assert_eq!(session["transport"]["name"], "TCP beside SSH", "{session}");
    assert_eq!(session["transport"]["encryption"], "AES-128-GCM", "{session}");
    // The key of the client was made for this connection.
    assert!(session["key"].is_null(), "{session}");
    let user = rustix::process::geteuid().as_raw().to_string();
    let rows = status["quota"]["rows"].to_string();
    assert!(rows.contains(&format!("\"user\":\"{user}\"")), "{rows}");
    // The daemon listens only as long as a key is good. The session goes on.
    wait_for("the end of the listener", || !is_open(&invitation));
    works(&mut client);
    let again = invite(&daemon);
    assert_eq!(again.node(), invitation.node());
    works(&mut self::client(open(&again).unwrap()));
}

#[test]
fn a_key_is_good_once_and_for_a_session_only() {
    let daemon = Daemon::start("invited-once", &[]);
    // As long as this one is unused, the daemon listens.
    let unused = invite(&daemon);
    let used = invite(&daemon);
    works(&mut client(open(&used).unwrap()));
    must_not_be_invited(open(&used));
    for role in [Role::Control, Role::Survey, Role::Invitation, Role::Administration] {
        let other = invite(&daemon);
        must_not_be_invited(Brought { role, ..Brought::of(&other) }.open(&other));
        // An attempt for another purpose takes the key away, too.
        must_not_be_invited(open(&other));
    }
    works(&mut client(open(&unused).unwrap()));
}

#[test]
fn a_worker_of_another_node_is_let_in_with_a_ticket_that_is_awaited() {
    let daemon = Daemon::start("invited-peer", &[]);
    // As long as one key is unused, the daemon listens.
    let (used, unused) = (invite(&daemon), invite(&daemon));
    let mut client = client(open(&used).unwrap());
    let ticket = [5; TICKET_BYTES];
    let peer = |ticket| {
        let key = Key::from_bytes(&[0; 32]);
        Brought { node: unused.node(), key, ticket, role: Role::Peer }.open(&unused)
    };
    must_not_be_invited(peer(ticket));
    let call = to_worker::AdmitPeer { request: Id::NONE, peer: Id::new(1) };
    assert_eq!(client.request(call, &ticket).0, Status::OK);
    must_not_be_invited(peer([6; TICKET_BYTES]));
    let _link = peer(ticket).unwrap();
    // A ticket is good once, and is no one-time key.
    must_not_be_invited(peer(ticket));
    must_not_be_invited(peer(unused.ticket()));
    works(&mut client);
    works(&mut self::client(open(&unused).unwrap()));
}

#[test]
fn without_the_secret_nobody_is_let_in() {
    let daemon = Daemon::start("invited-secret", &[]);
    let (unused, known) = (invite(&daemon), invite(&daemon));
    let others = Key::from_bytes(&[7; 32]);
    // Somebody who knows the name of a key, but not its secret.
    must_not_be_invited(Brought { key: others, ..Brought::of(&known) }.open(&known));
    must_not_be_invited(open(&known));
    for ticket in [[0; TICKET_BYTES], [7; TICKET_BYTES]] {
        must_not_be_invited(Brought { ticket, ..Brought::of(&unused) }.open(&unused));
    }
    // Somebody who does not even encrypt.
    let deadline = deadline();
    let address = Address::tcp("127.0.0.1", unused.address().port());
    let keys = Keys { pool: Some(unused.key()), ..Keys::default() };
    let plain = penstock_link::open(&address, Role::Client, None, &keys, deadline);
    let refused = plain.map(drop).unwrap_err();
    let is_right = matches!(refused, LinkError::Refused { verdict: Verdict::NeedsEncryption, .. });
    assert!(is_right, "{refused}");
    works(&mut client(open(&unused).unwrap()));
}

#[test]
fn a_client_believes_only_the_daemon_whose_key_it_has_got() {
    let (daemon, other) = (Daemon::start("invited-node", &[]), Daemon::start("invited-other", &[]));
    let (ours, theirs) = (invite(&daemon), invite(&other));
    assert_ne!(ours.node(), theirs.node());
    let wrong = Brought { node: theirs.node(), ..Brought::of(&ours) }.open(&ours);
    let error = wrong.map(drop).unwrap_err();
    assert!(matches!(error, LinkError::Handshake { .. }), "{error}");
    // The client has sent nothing, so the key is still good.
    works(&mut client(open(&ours).unwrap()));
}

#[test]
fn the_pools_key_brings_neither_a_one_time_key_nor_a_session_at_that_port() {
    let folder = std::env::temp_dir().join(format!("penstockd-invited-{}", std::process::id()));
    let file = folder.join("key");
    let key = Key::create(&file).unwrap();
    let options = ["--listen", "tcp:127.0.0.1:0", "--key", file.to_str().unwrap()];
    let daemon = Daemon::start_with("invited-pool", &options, &[("PENSTOCK_ENCRYPTION", "never")]);
    let keys = Keys { pool: Some(key), ..Keys::default() };
    let deadline = deadline();
    let stream = Stream::connect(&daemon.addresses[1], deadline).unwrap();
    let asked = open_on(stream, "it", Role::Invitation, None, &keys, deadline);
    let refused = asked.map(drop).unwrap_err();
    let is_right = matches!(refused, LinkError::Refused { verdict: Verdict::WrongUser, .. });
    assert!(is_right, "{refused}");
    // The rule for the pool's links does not hold for this port, which always encrypts.
    let invitation = invite(&daemon);
    let key = Key::load(&file).unwrap();
    must_not_be_invited(Brought { key, ..Brought::of(&invitation) }.open(&invitation));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
#[ignore = "long: it lasts as long as a key and a half, 45 s"]
fn long_a_key_that_nobody_uses_expires_and_the_port_closes() {
    let daemon = Daemon::start("invited-expiry", &[]);
    let (early, late) = (invite(&daemon), invite(&daemon));
    std::thread::sleep(Duration::from_millis(INVITATION_MS_MAX / 2));
    let last = invite(&daemon);
    works(&mut client(open(&early).unwrap()));
    // Now the second one has expired, and the last one has not.
    std::thread::sleep(Duration::from_millis(INVITATION_MS_MAX / 2 + 1));
    assert!(is_open(&last));
    must_not_be_invited(open(&late));
    wait_for("the end of the listener", || !is_open(&last));
    // The daemon is as before.
    works(&mut daemon.client().0);
    works(&mut client(open(&invite(&daemon)).unwrap()));
}
