//! Calls of libraries on the memory of a device.

use std::sync::Arc;

use penstock_coherence::Access;
use penstock_wire::calls::to_worker;
use penstock_wire::library::{self, Arena, DEVICE_LIBRARIES, Libraries, Operand, Order};

use crate::command::Spec;
use crate::event::Event;
use crate::memory::Memory;
use crate::pool::Device;
use crate::queue::{Enqueued, Queue, Range, Want};
use crate::source::Given;
use crate::uses::Use;

/// An operand of a call: bytes of a buffer, or no bytes.
#[derive(Clone, Debug)]
pub struct LibraryOperand {
    pub memory: Option<Arc<Memory>>,
    pub range: Range,
    pub access: library::Access,
}

/// The memory that a call of a library uses.
#[derive(Clone, Debug, Default)]
pub struct LibraryMemory {
    pub operands: Vec<LibraryOperand>,
    /// Buffers that addresses in the operands lead to, each with the address of its first byte.
    pub arenas: Vec<(Arc<Memory>, u64)>,
}

impl Device {
    /// Returns the calls of libraries that the device serves.
    pub fn libraries(&self) -> Libraries {
        self.info(DEVICE_LIBRARIES).map(Libraries::from_bytes).unwrap_or_default()
    }
}

impl Queue {
    /// Calls a library. `call` is an encoded [`library::LibraryCall`].
    ///
    /// # Errors
    /// If the node is lost.
    pub fn call_library(
        self: &Arc<Self>,
        call: &[u8],
        memory: &LibraryMemory,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let mut uses = Vec::with_capacity(memory.operands.len());
        for it in &memory.operands {
            let Some(of) = &it.memory else { continue };
            let access = match it.access {
                library::Access::Read => Access::Read,
                library::Access::Write => Access::Write,
            };
            uses.push(Use::part(of, access, it.range));
        }
        uses.extend(memory.arenas.iter().map(|(of, _)| Use::all(of, Access::Write)));
        let place = self.place();
        let operand = |it: &LibraryOperand| {
            let mem = it.memory.as_ref().map_or(0, |memory| memory.id_at(place).get());
            Operand { mem, offset: it.range.offset, bytes: it.range.size }
        };
        let arena =
            |(of, base): &(Arc<Memory>, u64)| Arena { mem: of.id_at(place).get(), base: *base };
        let order = Order {
            operands: memory.operands.iter().map(operand).collect(),
            arenas: memory.arenas.iter().map(arena).collect(),
            call: call.to_vec(),
        };
        let queue = self.id();
        self.issue(Spec::new(&uses, waits, want), &Given(&order.encode()), move |event| {
            to_worker::CallLibrary { queue, event }
        })
    }
}
