//! Grants to workers of other clients: what they can do, and what they cannot.

mod common;
#[path = "common/daemon.rs"]
mod daemon;

use common::Devices;
use penstock_link::{LinkError, Opened, Patience, Receiver, Sender, Side};
use penstock_trial::{deadline, wait_for};
use penstock_wire::calls::{Attached, Serve, Served, to_guest, to_host, to_worker};
use penstock_wire::describe::PeerInvitation;
use penstock_wire::hello::{Role, feature};
use penstock_wire::id::kind;
use penstock_wire::{I32, Id, Status, U64, frame, limits};

use crate::common::Client;
use crate::daemon::Daemon;

const DEVICES: Devices = Devices::Simulated;

/// Names of the two workers for each other.
const GUEST: Id<kind::Peer> = Id::new(1 << 33);
const HOST: Id<kind::Peer> = Id::new(1 << 34);

const TICKET: [u8; 32] = [7; 32];

/// Bytes of a buffer, and of a piece in its middle that is granted.
const SIZE: u64 = 1 << 20;
const PIECE: u64 = 1 << 18;

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

fn admit(host: &mut Client) {
    let admit = to_worker::AdmitGuest { request: Id::NONE, peer: GUEST };
    assert_eq!(host.request(admit, &TICKET).0, Status::OK);
}

fn connect(guest: &mut Client, addresses: Vec<String>) -> Status {
    let invitation = frame::encode(&PeerInvitation { addresses, ticket: TICKET });
    let connect = to_worker::ConnectHost { request: Id::NONE, peer: HOST };
    guest.request(connect, &invitation).0
}

/// The bytes from `PIECE` of a buffer on, for the guest.
fn grant_of(
    mem: Id<kind::Mem>,
    event: Id<kind::Event>,
    transfer: u64,
    size: u64,
) -> to_worker::GrantMem {
    to_worker::GrantMem {
        request: Id::NONE,
        mem,
        event,
        transfer: Id::new(transfer),
        peer: GUEST,
        offset: U64::new(PIECE),
        size: U64::new(size),
    }
}

fn grant(host: &mut Client, mem: Id<kind::Mem>, transfer: u64, size: u64) -> Id<kind::Event> {
    let event = host.id();
    assert_eq!(host.request(grant_of(mem, event, transfer, size), &[]).0, Status::OK);
    event
}

fn claim(
    guest: &mut Client,
    mem: Id<kind::Mem>,
    transfer: u64,
    size: u64,
) -> (Status, Id<kind::Event>) {
    let event = guest.id();
    let call = to_worker::ClaimGrant {
        request: Id::NONE,
        mem,
        event,
        transfer: Id::new(transfer),
        peer: HOST,
        offset: U64::ZERO,
        size: U64::new(size),
    };
    (guest.request(call, &[]).0, event)
}

/// Returns whether the grant is gone.
fn revoke(host: &mut Client, transfer: u64) -> bool {
    let transfer = Id::new(transfer);
    let call = to_worker::RevokeGrant { request: Id::NONE, transfer, peer: GUEST };
    let (status, answer) = host.request(call, &[]);
    assert_eq!(status, Status::OK);
    frame::decode("RevokeGrant", &answer).unwrap()
}

/// A session with a buffer of equal bytes.
struct Party {
    client: Client,
    queue: Id<kind::Queue>,
    mem: Id<kind::Mem>,
}

impl Party {
    fn new(mut client: Client, byte: u8) -> Self {
        let context = client.context();
        let queue = client.queue(context, 0);
        let mem = client.buffer(context, SIZE);
        let written = client.write(queue, mem, 0, &vec![byte; length(SIZE)]);
        assert_eq!(client.status(written), 0);
        Self { client, queue, mem }
    }

    fn content(&mut self) -> Vec<u8> {
        self.client.read(self.queue, self.mem, SIZE)
    }

    /// Checks that only the first `size` bytes of the granted piece are `there`.
    fn expect(&mut self, here: u8, there: u8, size: u64) {
        let (start, end) = (length(PIECE), length(PIECE + size));
        let content = self.content();
        assert!(content[start..end].iter().all(|byte| *byte == there), "the bytes did not come");
        let outside = content[..start].iter().chain(&content[end..]);
        assert!(outside.copied().all(|byte| byte == here), "other bytes have changed");
    }
}

/// Two clients of two daemons, whose workers are linked.
fn linked(name: &str) -> (Daemon, Daemon, Party, Party) {
    let here = Daemon::start(&format!("{name}-a"), &[]);
    let there = Daemon::start(&format!("{name}-b"), &[]);
    let (guest, (host, node)) = (here.client().0, there.client());
    let (mut guest, mut host) = (Party::new(guest, b'g'), Party::new(host, b'h'));
    admit(&mut host.client);
    assert_eq!(connect(&mut guest.client, node.addresses), Status::OK);
    (here, there, guest, host)
}

#[test]
fn bytes_go_from_worker_to_worker_into_the_granted_range() {
    let (_here, _there, mut guest, mut host) = linked("grants-range");
    for (transfer, size) in [(10, PIECE), (11, PIECE / 2 + 1)] {
        let arrival = grant(&mut host.client, host.mem, transfer, PIECE);
        let (claimed, departure) = claim(&mut guest.client, guest.mem, transfer, size);
        assert_eq!(claimed, Status::OK);
        assert_eq!(guest.client.status(departure), 0);
        assert_eq!(host.client.status(arrival), 0);
    }
    host.expect(b'h', b'g', PIECE);
    // Each grant is good once.
    assert!(claim(&mut guest.client, guest.mem, 10, 1).0.is_error());
    assert!(!revoke(&mut host.client, 10));
}

#[test]
fn a_revoked_grant_cannot_be_claimed() {
    let (_here, _there, mut guest, mut host) = linked("grants-revoked");
    let arrival = grant(&mut host.client, host.mem, 10, PIECE);
    assert!(revoke(&mut host.client, 10));
    assert!(host.client.status(arrival) < 0);
    let (claimed, departure) = claim(&mut guest.client, guest.mem, 10, PIECE);
    assert!(claimed.is_error());
    assert!(guest.client.status(departure) < 0);
    host.expect(b'h', b'h', PIECE);
}

#[test]
fn the_end_of_either_session_ends_what_waits_for_it() {
    let (_here, _there, guest, mut host) = linked("grants-guest-ends");
    let arrival = grant(&mut host.client, host.mem, 10, PIECE);
    guest.client.end();
    assert_eq!(host.client.status(arrival), Status::NODE_LOST.0);
    let late = host.client.id();
    let refused = host.client.request(grant_of(host.mem, late, 11, PIECE), &[]).0;
    assert_eq!(refused, Status::NODE_LOST);
    assert_eq!(host.client.status(late), Status::NODE_LOST.0);
    host.expect(b'h', b'h', PIECE);

    let (_here, _there, mut guest, host) = linked("grants-host-ends");
    host.client.end();
    let (claimed, departure) = claim(&mut guest.client, guest.mem, 10, PIECE);
    assert!(claimed.is_error());
    assert!(guest.client.status(departure) < 0);
    assert_eq!(guest.content(), vec![b'g'; length(SIZE)]);
}

/// The other clients decide how many grants a client makes, so the limit ends no session.
#[test]
fn grants_beyond_the_limit_are_refused() {
    let (_here, _there, _guest, mut host) = linked("grants-many");
    let first = 10;
    let last = first + limits::GRANTS_PER_SESSION_MAX as u64;
    for transfer in first..last {
        grant(&mut host.client, host.mem, transfer, 1);
    }
    let event = host.client.id();
    let refused = host.client.request(grant_of(host.mem, event, last, 1), &[]).0;
    assert_eq!(refused, Status::OUT_OF_RESOURCES);
    assert!(host.client.status(event) < 0);
    assert!(revoke(&mut host.client, first));
    grant(&mut host.client, host.mem, last, 1);
}

#[test]
fn links_beyond_the_limit_are_refused_and_lost_ones_do_not_count() {
    let daemon = Daemon::start("grants-links", &[]);
    let mut client = daemon.client().0;
    let max = limits::GRANT_LINKS_MAX as u64;
    let invitation =
        frame::encode(&PeerInvitation { addresses: vec!["unix:/nowhere".into()], ticket: TICKET });
    for peer in 0..=max {
        let connect =
            to_worker::ConnectHost { request: Id::NONE, peer: Id::new(HOST.get() + peer) };
        assert_eq!(client.request(connect, &invitation).0, Status::NODE_LOST, "link {peer}");
    }
    let mut admit = |peer: u64| {
        let mut ticket = TICKET;
        ticket[..8].copy_from_slice(&peer.to_le_bytes());
        let admit = to_worker::AdmitGuest { request: Id::NONE, peer: Id::new(GUEST.get() + peer) };
        client.request(admit, &ticket).0
    };
    for peer in 0..max {
        assert_eq!(admit(peer), Status::OK, "link {peer}");
    }
    assert_eq!(admit(max), Status::OUT_OF_RESOURCES);
    client.context();
}

/// Brings a ticket to a daemon, and is handed to the worker.
fn knock(daemon: &Daemon, ticket: [u8; 32]) -> Opened {
    let deadline = deadline();
    let address = &daemon.addresses[0];
    penstock_link::open(address, Role::Peer, Some(ticket), None, deadline).unwrap()
}

/// A worker that says what it wants.
struct Forger {
    sender: Sender,
    receiver: Receiver,
    answers: Answers,
}

#[derive(Default)]
struct Answers(Vec<(u64, Status)>);

impl Serve<to_guest::Beat> for Answers {
    fn serve(&mut self, _: &to_guest::Beat, _: Attached<'_>) -> Served {
        Ok(())
    }
}

impl Serve<to_guest::ClaimAnswered> for Answers {
    fn serve(&mut self, call: &to_guest::ClaimAnswered, _: Attached<'_>) -> Served {
        self.0.push((call.transfer.get(), Status(call.status.get())));
        Ok(())
    }
}

impl Forger {
    fn come(daemon: &Daemon) -> Self {
        let (sender, receiver) = penstock_link::establish(
            knock(daemon, TICKET).stream,
            feature::SHARED_RINGS,
            Side::Client,
            to_guest::check,
        )
        .unwrap();
        Self { sender, receiver, answers: Answers::default() }
    }

    fn receive(&mut self) -> Result<(), LinkError> {
        self.sender.flush()?;
        let deadline = deadline();
        let answers = &mut self.answers;
        self.receiver
            .receive(Patience::Until(deadline), &mut |frame, payload| {
                to_guest::dispatch(answers, frame, payload)
            })
            .map(drop)
    }

    /// Claims a grant, and returns the answer.
    fn claim(&mut self, transfer: u64, size: u64) -> Status {
        let call = to_host::Claim { transfer: Id::new(transfer), size: U64::new(size) };
        self.sender.send(&call, &[], &[]).unwrap();
        self.receive().unwrap();
        let (answered, status) = self.answers.0.pop().unwrap();
        assert_eq!(answered, transfer);
        status
    }

    fn send(&mut self, transfer: u64, status: i32, bytes: &[u8]) {
        let call = to_host::GrantData { transfer: Id::new(transfer), status: I32::new(status) };
        // The link may have ended.
        _ = self.sender.send(&call, &[], bytes);
        _ = self.sender.flush();
    }

    /// Checks that the worker ends the link.
    fn expect_end(mut self) {
        assert!(self.receive().is_err(), "the worker accepts what it has not granted");
    }
}

/// A session that has granted one piece as transfer 10, and a forger that may claim it.
fn with_forger(name: &str) -> (Daemon, Party, Id<kind::Event>, Forger) {
    let daemon = Daemon::start(name, &[]);
    let mut host = Party::new(daemon.client().0, b'h');
    admit(&mut host.client);
    let forger = Forger::come(&daemon);
    let arrival = grant(&mut host.client, host.mem, 10, PIECE);
    (daemon, host, arrival, forger)
}

#[test]
fn a_worker_of_another_client_can_only_use_what_it_was_granted() {
    let (_daemon, mut host, arrival, mut forger) = with_forger("grants-forger");
    for (transfer, size) in [(11, 1), (0, 1), (10, 0), (10, PIECE + 1), (10, u64::MAX)] {
        assert!(forger.claim(transfer, size).is_error(), "transfer {transfer} of {size} bytes");
    }
    assert_eq!(forger.claim(10, 100), Status::OK);
    assert!(forger.claim(10, 100).is_error(), "a grant was claimed twice");
    assert!(!revoke(&mut host.client, 10), "a claimed grant was revoked");
    forger.send(10, 0, &[b'f'; 100]);
    assert_eq!(host.client.status(arrival), 0);
    host.expect(b'h', b'f', 100);
    forger.send(10, 0, &[b'F'; 100]);
    forger.expect_end();
    host.expect(b'h', b'f', 100);
}

#[test]
fn bytes_that_were_not_claimed_end_the_link_and_change_nothing() {
    let (_daemon, mut host, arrival, mut forger) = with_forger("grants-unclaimed");
    forger.send(10, 0, &vec![b'f'; length(PIECE)]);
    forger.expect_end();
    assert_eq!(host.client.status(arrival), Status::NODE_LOST.0);
    host.expect(b'h', b'h', PIECE);

    for wrong in [99_usize, 101] {
        let name = format!("grants-length-{wrong}");
        let (_daemon, mut host, arrival, mut forger) = with_forger(&name);
        assert_eq!(forger.claim(10, 100), Status::OK);
        forger.send(10, 0, &vec![b'f'; wrong]);
        forger.expect_end();
        assert_eq!(host.client.status(arrival), Status::INVALID_VALUE.0);
        host.expect(b'h', b'h', PIECE);
    }
}

#[test]
fn a_sender_that_cannot_send_says_so() {
    let (_daemon, mut host, arrival, mut forger) = with_forger("grants-failed");
    assert_eq!(forger.claim(10, 100), Status::OK);
    forger.send(10, -5, &[]);
    assert_eq!(host.client.status(arrival), -5);
    host.expect(b'h', b'h', PIECE);
}

#[test]
fn a_link_for_grants_serves_no_other_calls() {
    let (_daemon, mut host, arrival, forger) = with_forger("grants-calls");
    let told = penstock_wire::calls::to_peer::PeerEvent { event: arrival, status: I32::ZERO };
    forger.sender.send(&told, &[], &[]).unwrap();
    forger.expect_end();
    assert_eq!(host.client.status(arrival), Status::NODE_LOST.0);
}

/// The thread to which the daemon hands a stranger also watches over the worker.
#[test]
fn a_stranger_that_says_nothing_holds_nobody_up() {
    const OTHER: [u8; 32] = [8; 32];
    // Whoever waits for the stranger waits until it is sent away. A busy machine may be as slow
    // once, but not every time.
    wait_for("a grant that is served before the stranger is sent away", || {
        let daemon = Daemon::start("grants-silent", &[]);
        let mut host = Party::new(daemon.client().0, b'h');
        let silent = to_worker::AdmitGuest { request: Id::NONE, peer: Id::new(GUEST.get() + 1) };
        assert_eq!(host.client.request(silent, &OTHER).0, Status::OK);
        admit(&mut host.client);
        let silent = knock(&daemon, OTHER);
        let mut forger = Forger::come(&daemon);
        let arrival = grant(&mut host.client, host.mem, 10, PIECE);
        assert_eq!(forger.claim(10, 100), Status::OK);
        forger.send(10, 0, &[b'f'; 100]);
        assert_eq!(host.client.status(arrival), 0);
        !silent.stream.has_hung_up()
    });
}
