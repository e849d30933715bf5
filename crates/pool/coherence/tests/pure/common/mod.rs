//! A machine with one allocation, and short calls for single cases.

use penstock_coherence::{
    Access, Action, AllocationId, CommandId, ContextId, Fetch, GRAIN_BYTES, Machine, NodeId, Place,
    Plan, QueueId, Submit, Use, Verdict,
};

pub const ALL: AllocationId = AllocationId(1);
pub const CONTEXT: ContextId = ContextId(1);
pub const SIZE: u64 = 2 * GRAIN_BYTES;
/// Names that the machine asks for are above all names that the cases use.
const OWN_NAMES: u64 = 1_000_000;

pub struct Test {
    pub machine: Machine,
    names: u64,
}

impl Test {
    /// Makes a test whose allocation has one place for each element of `nodes`.
    pub fn on(mut machine: Machine, nodes: &[u32], has_initial: bool) -> Self {
        let nodes = nodes.iter().map(|node| NodeId(*node)).collect();
        machine.allocate(ALL, SIZE, false, nodes, has_initial);
        Self { machine, names: OWN_NAMES }
    }

    /// Submits a command on the whole allocation, in the in-order queue of its place.
    pub fn submit(
        &mut self,
        id: u64,
        place: Place,
        waits: &[CommandId],
        access: Access,
    ) -> Verdict {
        let uses = [Use { allocation: ALL, start: 0, end: SIZE, access }];
        let command = Submit {
            id: CommandId(id),
            queue: QueueId(place as u64),
            in_order: true,
            context: CONTEXT,
            place,
            waits,
            sync: None,
            uses: &uses,
            reads_host: None,
            writes_host: None,
            gate: None,
        };
        let names = &mut self.names;
        self.machine.submit(&command, &mut || next(names))
    }

    /// Sends a command that nothing holds back.
    pub fn send(&mut self, id: u64, place: Place, access: Access) -> Plan {
        let verdict = self.submit(id, place, &[], access);
        let Verdict::Send { plan, .. } = verdict else { panic!("{verdict:?}") };
        self.machine.sent(CommandId(id));
        plan
    }

    pub fn next_action(&mut self) -> Option<Action> {
        let names = &mut self.names;
        self.machine.next_action(&mut || next(names))
    }
}

fn next(names: &mut u64) -> CommandId {
    *names += 1;
    CommandId(*names)
}

/// Returns the only transfer of the plan.
pub fn only_fetch(plan: &Plan) -> Fetch {
    let [fetch] = plan.fetches.as_slice() else { panic!("{plan:?}") };
    fetch.clone()
}
