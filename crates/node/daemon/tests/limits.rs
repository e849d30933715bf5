//! What one client can make its worker hold or start. This test is a process of its own, because
//! some of the limits count for the whole process, as in a worker.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of the tests themselves")]

mod common;

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard};

use common::{Client, Devices};
use penstock_cl_sys::{CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_MAX_MEM_ALLOC_SIZE};
use penstock_daemon::session::{Dialer, PeerSetup};
use penstock_link::{LinkError, Stream};
use penstock_process::Lock;
use penstock_wire::calls::to_worker;
use penstock_wire::describe::PeerInvitation;
use penstock_wire::hello::{TICKET_BYTES, feature};
use penstock_wire::{Id, Status, U64, frame, limits};

const DEVICES: Devices = Devices::Simulated;

const GIB: u64 = 1 << 30;

/// Locks the limits that count for the whole process. Each test of this file does so, because a
/// test that uses up the memory leaves none to the others.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Lock<()> = Lock::new(());
    ALONE.lock()
}

fn device_number(name: u32) -> u64 {
    let device = &common::node().description().platforms[0].devices[0];
    let bytes = penstock_wire::describe::find(&device.info, name).unwrap();
    u64::from_ne_bytes(bytes.try_into().unwrap())
}

#[test]
fn all_buffers_together_are_no_more_than_the_devices_have() {
    let _alone = alone();
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, 0);
    let devices = common::node().devices().len() as u64;
    let (most, each) = (
        device_number(CL_DEVICE_GLOBAL_MEM_SIZE) * devices,
        device_number(CL_DEVICE_MAX_MEM_ALLOC_SIZE),
    );
    // None of their pages is touched, so they cost nothing.
    let mut mems = Vec::new();
    let refused = loop {
        let mem = client.buffer(context, each);
        let event = client.read_waiting(queue, mem, 1, &[]);
        match client.status(event) {
            0 => mems.push(mem),
            status => break status,
        }
        assert!(mems.len() as u64 * each <= most, "{} buffers of {each} bytes", mems.len());
    };
    assert_eq!(refused, Status::MEM_OBJECT_ALLOCATION_FAILURE.0);
    assert!(!mems.is_empty());
    // Others can use released memory.
    let mem = mems.pop().unwrap();
    client.send(to_worker::ReleaseMem { mem }, &[], &[]);
    let mem = client.buffer(context, each);
    let event = client.read_waiting(queue, mem, 1, &[]);
    assert_eq!(client.status(event), 0);
    client.end();
}

#[test]
fn writes_behind_a_user_event_do_not_hide_its_end() {
    let _alone = alone();
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, 0);
    let piece = vec![7; 64 << 20];
    let mem = client.buffer(context, piece.len() as u64);
    let gate = client.expect_event();
    let first = client.id();
    client.send(to_worker::Marker { queue, event: first }, &[gate], &[]);
    for _ in 0..=(limits::STAGED_BYTES_MAX / piece.len() as u64) {
        client.send(
            to_worker::WriteBuffer { queue, mem, event: Id::NONE, offset: U64::ZERO },
            &[],
            &piece,
        );
    }
    // This comes behind more bytes than the worker wants to hold.
    client.resolve(gate, 0);
    assert_eq!(client.finish(queue), Status::OK);
    client.end();
}

#[test]
fn content_without_a_target_is_bounded() {
    let _alone = alone();
    let mut client = Client::rings();
    let context = client.context();
    let size = GIB / 2;
    let mem = client.buffer(context, size);
    let (offset, size) = (U64::ZERO, U64::new(size));
    for transfer in (1..=3).map(Id::new) {
        let event = client.id();
        client.send(
            to_worker::SendMem { mem, event, transfer, peer: Id::NONE, offset, size },
            &[],
            &[],
        );
        assert_eq!(client.status(event), 0, "the source may change again");
    }
    // The third did not fit; its target learns that.
    for (transfer, status) in [(3, Status::OUT_OF_RESOURCES), (1, Status::OK), (2, Status::OK)] {
        let (event, transfer) = (client.id(), Id::new(transfer));
        client.send(
            to_worker::ReceiveMem { mem, event, transfer, peer: Id::NONE, offset, size },
            &[],
            &[],
        );
        assert_eq!(client.status(event), status.0);
    }
    client.end();
}

#[test]
fn content_moves_within_one_buffer() {
    let _alone = alone();
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, 0);
    let bytes: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
    let mem = client.buffer(context, 2 << 20);
    client.write(queue, mem, 0, &bytes);
    assert_eq!(client.finish(queue), Status::OK);
    let (transfer, size) = (Id::new(9), U64::new(1 << 20));
    let (received, sent) = (client.id(), client.id());
    let (to, from) = (U64::new(100), U64::ZERO);
    let receive =
        to_worker::ReceiveMem { mem, event: received, transfer, peer: Id::NONE, offset: to, size };
    client.send(receive, &[], &[]);
    let send =
        to_worker::SendMem { mem, event: sent, transfer, peer: Id::NONE, offset: from, size };
    client.send(send, &[], &[]);
    assert_eq!((client.status(received), client.status(sent)), (0, 0));
    assert!(client.read(queue, mem, (1 << 20) + 100)[100..] == bytes);
    client.end();
}

#[test]
fn a_long_chain_of_transfers_ends() {
    let _alone = alone();
    let mut client = Client::rings();
    let context = client.context();
    let mem = client.buffer(context, 64);
    let gate = client.expect_event();
    let mut last = gate;
    for _ in 0..20_000 {
        let event = client.id();
        client.inbox.reads.insert(event.get(), vec![0; 8]);
        let (offset, size) = (U64::ZERO, U64::new(8));
        let call =
            to_worker::SendMem { mem, event, transfer: Id::NONE, peer: Id::NONE, offset, size };
        client.send(call, &[last], &[]);
        last = event;
    }
    client.resolve(gate, 0);
    assert_eq!(client.status(last), 0);
    client.end();
}

/// A dialer that waits until the test has dropped the other end.
struct Waits(Mutex<Receiver<()>>);

impl Dialer for Waits {
    fn dial(&self, _: &str, _: &[u8; TICKET_BYTES]) -> Result<Stream, LinkError> {
        let _ = self.0.lock().unwrap().recv();
        Err(LinkError::Closed)
    }
}

#[test]
fn one_thread_tries_to_reach_a_peer() {
    let _alone = alone();
    let (goes_on, waits) = mpsc::channel();
    let dialer: Arc<dyn Dialer> = Arc::new(Waits(Mutex::new(waits)));
    let peers = PeerSetup { dialer: Some(dialer), ..PeerSetup::default() };
    let mut client = Client::with_peers(feature::ALL, peers);
    let invitation = PeerInvitation { addresses: vec!["unix:/nobody".into()], ticket: [7; 32] };
    for request in [1, 2] {
        let call = to_worker::ConnectPeer { request: Id::new(request), peer: Id::new(5) };
        client.send(call, &[], &frame::encode(&invitation));
    }
    client.until("the end of the session", |inbox| inbox.fault.is_some());
    assert!(client.inbox.fault.as_ref().unwrap().contains("a peer that is being reached"));
    drop(goes_on);
}
