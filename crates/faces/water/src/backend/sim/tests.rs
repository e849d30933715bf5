use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::command::{Arg, Code, IndexSpace};

/// A clock that stands still until it is set.
#[derive(Debug, Default)]
struct Hand(AtomicU64);

impl Hand {
    fn set(&self, ns: u64) {
        self.0.store(ns, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::SeqCst);
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

const MODEL: &str = r#"{
    "about": "two devices: one far, one in the host's memory",
    "devices": [
        { "name": "far", "type": "gpu", "flops": 1e9, "bytes_per_s": 1e9, "transfer_bytes_per_s": 1e9, "transfer_us": 1 },
        { "name": "near", "flops": 2e9, "bytes_per_s": 1e9, "kernels": { "own": { "seconds": 0.5 } } }
    ],
    "ranks": { "3": [ { "name": "special", "count": 3 } ] },
    "kernels": {
        "fixed": { "seconds": 1e-3 },
        "items": { "ns_per_item": 10 },
        "roof": { "flops_per_item": 2, "bytes_per_item": 1 },
        "loop": { "ns_per_item": 1, "times_args": [0] },
        "table": { "table": [[100, 1e-6], [200, 3e-6]] },
        "own": { "seconds": 1 }
    }
}"#;

fn model() -> Model {
    Model::parse(MODEL).unwrap()
}

fn sim() -> (Sim, Arc<Hand>) {
    let clock = Arc::new(Hand::default());
    let sim = Sim::new(model(), 0, None, Arc::clone(&clock) as Arc<dyn Clock>);
    (sim, clock)
}

fn range(items: u64) -> IndexSpace {
    // The sizes of dimensions that the space does not have do not count.
    IndexSpace { global: [items, 7, 7], ..IndexSpace::line(items, None) }
}

fn start(sim: &mut Sim, id: u64, device: u32, command: &Command, after: &[u64]) {
    let after: Vec<_> = after.iter().map(|id| CommandId(*id)).collect();
    // SAFETY: hollow devices touch no memory.
    unsafe { sim.start(CommandId(id), device, command, &after) };
}

fn kernel(sim: &mut Sim, id: u64, name: &str) -> ObjectId {
    let code = Code::Source(Vec::new());
    start(
        sim,
        id,
        0,
        &Command::CreateKernel {
            kernel: ObjectId(id),
            code,
            name: name.into(),
            options: String::new(),
        },
        &[],
    );
    ObjectId(id)
}

fn run(sim: &mut Sim, id: u64, device: u32, kernel: ObjectId, items: u64, after: &[u64]) {
    start(sim, id, device, &Command::Run { kernel, range: range(items), args: Vec::new() }, after);
}

fn write(sim: &mut Sim, id: u64, device: u32, bytes: usize, after: &[u64]) {
    start(
        sim,
        id,
        device,
        &Command::Write { buffer: ObjectId(1), offset: 0, size: bytes as u64, address: 0 },
        after,
    );
}

/// Returns ids and times of the operations that have ended.
fn ended(sim: &mut Sim) -> Vec<(u64, u64, u64)> {
    let mut ended = Vec::new();
    sim.poll(&mut ended);
    ended.iter().map(|end| (end.operation.0, end.times.started, end.times.ended)).collect()
}

#[test]
fn kernels_of_one_device_run_one_after_the_other_and_of_two_at_the_same_time() {
    let (mut sim, clock) = sim();
    let fixed = kernel(&mut sim, 1, "fixed");
    ended(&mut sim);
    run(&mut sim, 2, 0, fixed, 1, &[]);
    run(&mut sim, 3, 0, fixed, 1, &[]);
    run(&mut sim, 4, 1, fixed, 1, &[]);
    assert_eq!(sim.next_end(), Some(0), "they begin");
    assert!(ended(&mut sim).is_empty());
    assert_eq!(sim.next_end(), Some(1_000_000));
    clock.set(999_999);
    assert!(ended(&mut sim).is_empty());
    clock.set(1_000_000);
    assert_eq!(ended(&mut sim), [(2, 0, 1_000_000), (4, 0, 1_000_000)]);
    assert_eq!(sim.next_end(), Some(2_000_000));
    clock.set(2_500_000);
    assert_eq!(ended(&mut sim), [(3, 1_000_000, 2_000_000)]);
    assert_eq!(sim.next_end(), None);
}

#[test]
fn an_operation_begins_when_what_it_comes_after_has_ended_however_late_somebody_looks() {
    let (mut sim, clock) = sim();
    let fixed = kernel(&mut sim, 1, "fixed");
    write(&mut sim, 2, 0, 4_000, &[]);
    run(&mut sim, 3, 0, fixed, 1, &[2]);
    // This one is ready at once, and does not wait for an operation that came before it but is not
    // ready.
    run(&mut sim, 4, 0, fixed, 1, &[]);
    clock.set(10_000_000);
    assert_eq!(
        ended(&mut sim),
        [(1, 0, 0), (2, 0, 5_000), (4, 0, 1_000_000), (3, 1_000_000, 2_000_000)]
    );
}

#[test]
fn transfers_in_and_out_and_kernels_overlap_and_cost_nothing_in_the_hosts_memory() {
    let (mut sim, clock) = sim();
    let fixed = kernel(&mut sim, 1, "fixed");
    write(&mut sim, 2, 0, 1_000, &[]);
    write(&mut sim, 3, 0, 1_000, &[]);
    let read = Command::Read { buffer: ObjectId(1), offset: 0, size: 1_000, address: 0 };
    start(&mut sim, 4, 0, &read, &[]);
    run(&mut sim, 5, 0, fixed, 1, &[]);
    write(&mut sim, 6, 1, 1_000_000, &[]);
    clock.set(10_000_000);
    let mut all = ended(&mut sim);
    all.sort_unstable();
    assert_eq!(
        all,
        [(1, 0, 0), (2, 0, 2_000), (3, 2_000, 4_000), (4, 0, 2_000), (5, 0, 1_000_000), (6, 0, 0)]
    );
    assert!(sim.takes_time(0) && !sim.takes_time(1));
}

#[test]
fn costs_are_constant_or_by_item_or_by_roofline_or_by_table_or_by_argument() {
    let model = model();
    let devices = model.devices(0);
    let cost = |device: usize, name: &str, items, args: &[Arg]| {
        model.kernel_ns(&devices[device], name, &range(items), args).unwrap()
    };
    assert_eq!(cost(0, "fixed", 5, &[]), 1_000_000);
    assert_eq!(cost(0, "items", 5, &[]), 50);
    assert_eq!(cost(0, "roof", 1_000, &[]), 2_000, "bound by computing");
    assert_eq!(cost(1, "roof", 1_000, &[]), 1_000, "twice as fast, then bound by memory");
    assert_eq!(cost(0, "loop", 3, &[Arg::Bytes(100_u32.to_ne_bytes().to_vec())]), 300);
    assert_eq!(cost(0, "loop", 3, &[Arg::Bytes(100_u64.to_ne_bytes().to_vec())]), 300);
    assert_eq!(cost(0, "table", 150, &[]), 2_000);
    assert_eq!(cost(0, "table", 400, &[]), 7_000);
    assert_eq!(cost(0, "own", 1, &[]), 1_000_000_000);
    assert_eq!(cost(1, "own", 1, &[]), 500_000_000);
}

#[test]
fn what_the_model_does_not_say_is_an_error_and_not_zero() {
    let model = model();
    let devices = model.devices(0);
    let error = |name: &str, args: &[Arg]| {
        model.kernel_ns(&devices[0], name, &range(1), args).unwrap_err().to_string()
    };
    assert!(error("nothing", &[]).contains("`nothing`"));
    assert!(error("loop", &[]).contains("argument 0"));
    assert!(error("loop", &[Arg::Local(4)]).contains("argument 0"));
    let slow = Model::parse(r#"{"devices":[{}],"kernels":{"*":{"flops_per_item":1}}}"#).unwrap();
    assert!(
        slow.kernel_ns(&slow.devices(0)[0], "x", &range(1), &[])
            .unwrap_err()
            .to_string()
            .contains("flops")
    );
    assert!(Model::parse(r#"{"speed": 1}"#).is_err());
    let (mut sim, _) = sim();
    let nothing = kernel(&mut sim, 1, "nothing");
    run(&mut sim, 2, 0, nothing, 1, &[]);
    let mut ended = Vec::new();
    sim.poll(&mut ended);
    assert!(ended.iter().any(|end| end.operation == CommandId(2) && end.outcome.is_err()));
}

#[test]
fn a_rank_can_have_devices_of_its_own() {
    assert_eq!(model().devices(0).len(), 2);
    assert_eq!(model().devices(3).len(), 3);
    assert_eq!(Sim::new(model(), 3, None, Arc::new(Hand::default())).devices().len(), 3);
}

/// A back end that ends operations when it is told to.
#[derive(Debug, Default)]
struct Inner {
    infos: Vec<DeviceInfo>,
    started: Vec<CommandId>,
    open: Arc<AtomicU64>,
}

impl Backend for Inner {
    fn devices(&self) -> &[DeviceInfo] {
        &self.infos
    }

    fn orders(&self, _: u32, _: u32) -> bool {
        true
    }

    unsafe fn start(&mut self, id: CommandId, _: u32, _: &Command, _: &[CommandId]) {
        self.started.push(id);
    }

    fn poll(&mut self, ended: &mut Vec<Ended>) {
        let last = self.open.load(Ordering::SeqCst);
        for id in self.started.extract_if(.., |id| id.0 <= last) {
            ended.push(Ended { operation: id, outcome: Ok(()), times: Times::default() });
        }
    }

    fn wake_with(&mut self, _: Doorbell) {}
}

#[test]
fn a_real_operation_ends_when_both_its_result_and_its_modelled_time_are_there() {
    let (clock, open) = (Arc::new(Hand::default()), Arc::new(AtomicU64::new(2)));
    let inner = Inner { open: Arc::clone(&open), ..Inner::default() };
    let mut sim = Sim::new(model(), 0, Some(Box::new(inner)), Arc::clone(&clock) as Arc<dyn Clock>);
    assert!(!sim.is_hollow());
    let fixed = kernel(&mut sim, 1, "fixed");
    run(&mut sim, 2, 0, fixed, 1, &[]);
    run(&mut sim, 3, 1, fixed, 1, &[]);
    assert_eq!(ended(&mut sim), [(1, 0, 0)], "the result of 2 is there, but not its time");
    clock.set(1_000_000);
    assert_eq!(
        ended(&mut sim),
        [(2, 0, 1_000_000)],
        "the time of 3 is over, but its result is not there"
    );
    open.store(3, Ordering::SeqCst);
    assert_eq!(ended(&mut sim), [(3, 0, 1_000_000)]);
}
