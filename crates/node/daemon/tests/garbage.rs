//! No frame of a client, however wrong, makes a handler panic.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of the tests themselves")]

mod common;

use common::{Devices, node};
use penstock_cl_sys::{CL_MEM_OBJECT_IMAGE2D, CL_RGBA, CL_UNSIGNED_INT8};
use penstock_daemon::session::{PeerSetup, Session};
use penstock_link::Side;
use penstock_wire::calls::{to_client, to_worker};
use penstock_wire::describe::{
    BuildOrder, BuiltInKernels, HeapPlan, ImageDescription, PeerInvitation,
};
use penstock_wire::id::kind;
use penstock_wire::{Call, Frame, Header, Id, PayloadRule, U16, U32, U64, frame, limits};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

const DEVICES: Devices = Devices::Real;

/// A session whose client takes nothing and sends what the test chooses.
struct Victim {
    session: Session,
    client: (penstock_link::Sender, penstock_link::Receiver),
}

impl Victim {
    /// Makes a session with an object of each kind, under the ids 1 to 11.
    fn new() -> Self {
        let (here, there) = common::sockets();
        let (sender, _) =
            penstock_link::establish(there, 0, Side::Worker, to_worker::check).unwrap();
        let client = penstock_link::establish(here, 0, Side::Client, to_client::check).unwrap();
        let session = Session::new(node(), sender, PeerSetup::default(), None);
        let mut victim = Self { session, client };
        let (context, queue, program) = (Id::new(1), Id::new(2), Id::new(8));
        victim.good(
            to_worker::CreateContext { context, platform: U32::ZERO },
            &frame::encode(&vec![0_u32]),
        );
        for (queue, properties) in [(queue, 0), (Id::new(3), 1)] {
            let (device, properties, size) = (U32::ZERO, U64::new(properties), U32::ZERO);
            let times = U32::ZERO;
            victim.good(
                to_worker::CreateQueue { queue, context, device, properties, size, times },
                &[],
            );
        }
        for mem in [Id::new(4), Id::new(5)] {
            let (flags, size) = (U64::new(1), U64::new(4096));
            victim.good(to_worker::CreateBuffer { mem, context, flags, size }, &[]);
        }
        let image = to_worker::CreateImage {
            mem: Id::new(6),
            context,
            flags: U64::new(1),
            parent: Id::NONE,
        };
        victim.good(image, &frame::encode(&shape(16)));
        let sampler = to_worker::CreateSampler { sampler: Id::new(7), context };
        victim.good(sampler, &frame::encode(&Vec::<u64>::new()));
        // The kernel's arguments may be anything, so it touches nothing.
        let source = b"kernel void nothing(global int *a, int b, local int *c) {}";
        victim.good(to_worker::CreateProgramWithSource { program, context }, source);
        let order = BuildOrder { devices: vec![0], ..BuildOrder::default() };
        victim.good(to_worker::BuildProgram { request: Id::NONE, program }, &frame::encode(&order));
        victim.until_reply();
        victim.good(to_worker::CreateKernel { kernel: Id::new(9), program }, b"nothing");
        victim.good(to_worker::ExpectEvent { event: Id::new(10), peer: Id::NONE }, &[]);
        let (heap, me, timeout_ms) = (Id::new(11), U32::ZERO, U32::new(100));
        let create = to_worker::CreateHeap {
            request: Id::NONE,
            heap,
            me,
            bytes: U64::new(4096),
            timeout_ms,
            force_proxy: U32::ZERO,
        };
        victim.good(create, &frame::encode(&HeapPlan { members: vec![0] }));
        victim.until_reply();
        victim.good(to_worker::StartHeap { request: Id::NONE, heap }, &[]);
        victim.until_reply();
        victim
    }

    /// Waits for a reply.
    fn until_reply(&mut self) {
        let mut inbox = common::Inbox::default();
        let deadline = penstock_trial::deadline();
        while inbox.replies.is_empty() {
            let patience = penstock_link::Patience::Until(deadline);
            let received = self.client.1.receive(patience, &mut |frame, payload| {
                to_client::dispatch(&mut inbox, frame, payload)
            });
            assert_eq!(received.unwrap(), penstock_link::Received::Frame);
        }
    }

    fn good<C: Call>(&mut self, call: C, payload: &[u8]) {
        let header = C::header(0, payload.len() as u64).unwrap();
        let frame = Frame { header, body: call.as_bytes(), waits: &[] };
        to_worker::dispatch(&mut self.session, &frame, &mut &*payload).unwrap();
    }

    fn bad(&mut self, opcode: u16, body: &[u8], waits: &[Id<kind::Event>], payload: &[u8]) {
        let header = Header {
            opcode: U16::new(opcode),
            body: U16::new(body.len() as u16),
            waits: U16::new(waits.len() as u16),
            reserved: U16::ZERO,
            payload: U64::new(payload.len() as u64),
        };
        let frame = Frame { header, body, waits };
        // An error would end the session; the test requires that nothing else happens.
        _ = to_worker::dispatch(&mut self.session, &frame, &mut &*payload);
    }
}

fn shape(width: u64) -> ImageDescription {
    ImageDescription {
        channel_order: CL_RGBA,
        channel_type: CL_UNSIGNED_INT8,
        image_type: CL_MEM_OBJECT_IMAGE2D,
        width,
        height: 16,
        depth: 1,
        array_size: 1,
        row_pitch: 0,
        slice_pitch: 0,
        mip_levels: 0,
        samples: 0,
    }
}

/// Makes words that have a meaning more often than random ones.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0..12_u64,
        4 => prop::sample::select(vec![16, 64, 4095, 4096, 4097]),
        1 => prop::sample::select(vec![u64::MAX, u64::MAX - 4095, 1 << 63, 1 << 32, i64::MAX as u64]),
        1 => any::<u64>(),
    ]
}

/// Makes payloads that decode more often than random ones.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::collection::vec(word(), 0..6);
    let small = || prop::collection::vec(0..12_u32, 0..4);
    prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..200),
        1 => Just(Vec::new()),
        1 => prop::sample::select(vec![1, 4, 16, 64, 4096]).prop_map(|size| vec![7; size]),
        1 => words.prop_map(|list| frame::encode(&list)),
        1 => small().prop_map(|list| frame::encode(&list)),
        1 => (0..40_u64).prop_map(|width| frame::encode(&shape(width))),
        1 => (small(), prop::option::of("[ -~]{0,20}"), 0..12_u64).prop_map(|(devices, options, program)| {
            frame::encode(&BuildOrder {
                devices,
                options,
                programs: vec![("h".into(), program)],
                globals: None,
            })
        }),
        1 => small().prop_map(|devices| frame::encode(&BuiltInKernels { devices, names: "a;b".into() })),
        1 => any::<[u8; 32]>().prop_map(|ticket| {
            frame::encode(&PeerInvitation { addresses: vec!["unix:/nobody".into(), "nonsense".into()], ticket })
        }),
        1 => (0..9_u32, word()).prop_map(|(index, word)| {
            let mut bytes = Vec::new();
            penstock_wire::args::write(&mut bytes, index, penstock_wire::args::Arg::Mem(Id::new(word))).unwrap();
            penstock_wire::args::write(&mut bytes, index, penstock_wire::args::Arg::Local(word)).unwrap();
            penstock_wire::args::write(&mut bytes, index, penstock_wire::args::Arg::Queue(Id::new(word))).unwrap();
            bytes
        }),
    ]
}

#[derive(Debug)]
struct Case {
    call: usize,
    words: Vec<u64>,
    waits: Vec<u64>,
    payload: Vec<u8>,
}

fn case() -> impl Strategy<Value = Case> {
    let words = prop::collection::vec(word(), limits::BODY_BYTES_MAX / 8);
    let waits = prop::collection::vec(0..14_u64, 0..3);
    (0..to_worker::TABLE.len(), words, waits, payload())
        .prop_map(|(call, words, waits, payload)| Case { call, words, waits, payload })
}

fn run(victim: &mut Victim, case: &Case) {
    let (opcode, name, size, rule) = to_worker::TABLE[case.call];
    // Launches of 2^63 work-items are valid, and would take as long as they take.
    let launch = name == "LaunchKernel";
    let word = |word: &u64| if launch { word % 64 } else { *word };
    let body: Vec<u8> =
        case.words.iter().flat_map(|it| word(it).to_le_bytes()).take(size).collect();
    let waits: Vec<Id<kind::Event>> = case.waits.iter().map(|id| Id::new(*id)).collect();
    let payload = if rule == PayloadRule::None { &[][..] } else { &case.payload };
    victim.bad(opcode, &body, &waits, payload);
}

#[test]
fn any_frames_leave_a_session_standing() {
    let mut victim = Victim::new();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for round in 0..6_000 {
        if round % 500 == 499 {
            victim = Victim::new();
        }
        let case = case().new_tree(&mut runner).unwrap().current();
        run(&mut victim, &case);
    }
}

#[test]
fn every_call_takes_any_words() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for call in 0..to_worker::TABLE.len() {
        let mut victim = Victim::new();
        for _ in 0..60 {
            let case = Case { call, ..case().new_tree(&mut runner).unwrap().current() };
            run(&mut victim, &case);
        }
    }
}
