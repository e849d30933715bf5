use penstock_device::{LibraryArena, LibraryOperand};
use penstock_wire::calls::{Attached, Serve, Served, to_worker};
use penstock_wire::library::{LibraryCall, Order};
use penstock_wire::{Id, Status};

use super::command::CommandIds;
use crate::session::{Objects, Session};

impl Serve<to_worker::CallLibrary> for Session {
    fn serve(&mut self, call: &to_worker::CallLibrary, with: Attached<'_>) -> Served {
        let order = Order::decode(&with.payload.read_all()?)?;
        let library_call = LibraryCall::decode(&order.call)?;
        let names = CommandIds { queue: call.queue, event: call.event, waits: with.waits };
        self.command(names, |inputs| {
            let operands = operands(inputs.objects, &order)?;
            let arenas = arenas(inputs.objects, &order)?;
            let memory = (operands.as_slice(), arenas.as_slice());
            inputs.queue.call_library(&library_call, memory, inputs.waits, inputs.want)
        })
    }
}

fn operands<'a>(objects: &'a Objects, order: &Order) -> Result<Vec<LibraryOperand<'a>>, Status> {
    let operand = |it: &penstock_wire::library::Operand| {
        let mem = if it.bytes > 0 { Some(objects.mems.get(Id::new(it.mem))?) } else { None };
        Ok(LibraryOperand { mem, offset: it.offset, bytes: it.bytes })
    };
    order.operands.iter().map(operand).collect()
}

fn arenas<'a>(objects: &'a Objects, order: &Order) -> Result<Vec<LibraryArena<'a>>, Status> {
    let arena = |it: &penstock_wire::library::Arena| {
        Ok(LibraryArena { mem: objects.mems.get(Id::new(it.mem))?, base: it.base })
    };
    order.arenas.iter().map(arena).collect()
}
