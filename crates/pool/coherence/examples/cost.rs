//! Measures the cost of the machine for simple commands, in nanoseconds per command.
//!
//! Run it with `cargo run --profile quick -p penstock-coherence --example cost`.

use std::collections::VecDeque;
use std::time::Instant;

use penstock_coherence::{
    Access, AllocationId, CommandId, ContextId, HostShape, Machine, NodeId, QueueId, Submit, Use,
    Verdict,
};

const COMMANDS: u64 = 1_000_000;
/// Number of commands that have been sent and have not ended.
const OPEN: u64 = 16;

fn main() {
    cost("launch, one place, quiet", &[], 0, false);
    cost("launch, one place, behind a read of another queue", &[], 1, false);
    cost("read into the program's memory, one place", &[], 0, true);
    let both = |access| {
        let of = |id| Use { allocation: AllocationId(id), start: 0, end: 1 << 20, access };
        [of(1), of(2)]
    };
    cost("launch with two buffers to write, two places", &both(Access::Write), 0, false);
    cost("launch with two buffers to read, two places", &both(Access::Read), 0, false);
    for turn in [1, 8] {
        let name = format!("launch with a buffer to write, two places in turns of {turn}");
        cost_in_turns(&name, turn, 1);
        cost_in_turns(&format!("{name}, a quarter of it"), turn, 4);
    }
}

/// Measures launches that write one of the equal `parts` of a buffer after the other: `turn`
/// launches in one place, then as many in the other.
fn cost_in_turns(name: &str, turn: u64, parts: u64) {
    let mut machine = Machine::default();
    let mut names = 1 << 40;
    let mut next = || {
        names += 1;
        CommandId(names)
    };
    let (allocation, bytes) = (AllocationId(1), 1 << 20);
    machine.allocate(allocation, bytes, false, vec![NodeId(0), NodeId(1)], true);
    let mut open = VecDeque::new();
    let began = Instant::now();
    for number in 0..COMMANDS / 4 {
        let start = number % parts * (bytes / parts);
        let uses = [Use { allocation, start, end: start + bytes / parts, access: Access::Write }];
        let place = usize::from(number / turn % 2 == 1);
        let command = Submit { place, ..launch(100 + number, 1 + place as u64, &uses) };
        let Verdict::Send { plan, .. } = machine.submit(&command, &mut next) else {
            panic!("held back")
        };
        machine.sent(command.id);
        open.extend(plan.fetches.iter().flat_map(|fetch| [fetch.departure, fetch.arrival]));
        open.push_back(command.id);
        while open.len() as u64 > OPEN {
            open.pop_front().into_iter().for_each(|id| machine.ended(id, true));
        }
    }
    let nanoseconds = began.elapsed().as_nanos() as f64 / (COMMANDS / 4) as f64;
    println!("{nanoseconds:8.1} ns  {name}");
}

/// Measures commands with these uses, while `reads` commands of another queue have not ended and
/// will write the program's memory.
fn cost(name: &str, uses: &[Use], reads: u64, writes_host: bool) {
    let mut machine = Machine::default();
    let mut names = 1 << 40;
    let mut next = || {
        names += 1;
        CommandId(names)
    };
    for it in uses {
        machine.allocate(it.allocation, it.end, false, vec![NodeId(0), NodeId(1)], false);
    }
    for id in 0..reads {
        let read =
            Submit { writes_host: Some(HostShape::linear(1 << 20, 64)), ..launch(id + 1, 2, &[]) };
        machine.submit(&read, &mut next);
        machine.sent(read.id);
    }
    let began = Instant::now();
    for number in 0..COMMANDS {
        let id = 100 + number;
        let host = writes_host.then(|| HostShape::linear(number % (2 * OPEN) * 64, 64));
        let command = Submit { writes_host: host, ..launch(id, 1, uses) };
        let verdict = machine.submit(&command, &mut next);
        if matches!(verdict, Verdict::Send { is_tracked: true, .. }) {
            machine.sent(command.id);
            if number >= OPEN {
                machine.ended(CommandId(id - OPEN), true);
            }
        }
    }
    let nanoseconds = began.elapsed().as_nanos() as f64 / COMMANDS as f64;
    println!("{nanoseconds:8.1} ns  {name}");
}

fn launch<'a>(id: u64, queue: u64, uses: &'a [Use]) -> Submit<'a> {
    Submit {
        id: CommandId(id),
        queue: QueueId(queue),
        in_order: true,
        context: ContextId(1),
        place: 0,
        waits: &[],
        sync: None,
        uses,
        reads_host: None,
        writes_host: None,
        gate: None,
    }
}
