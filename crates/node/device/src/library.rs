//! Calls of libraries on the memory of a device.
//!
//! Devices that compute on the host's memory are served by the libraries of the crate `libraries`,
//! as a task in the turn of a command.

use penstock_libraries::{Operands, Region};
use penstock_wire::library::{Kind, Libraries, LibraryCall};
use penstock_wire::status::Status;

use crate::command::Command;
use crate::driver::{Device, Mem, Queue, Want};
use crate::event::Event;

/// An operand of a call: bytes of a buffer, or no bytes.
#[derive(Clone, Copy, Debug)]
pub struct LibraryOperand<'a> {
    pub mem: Option<&'a Mem>,
    pub offset: u64,
    pub bytes: u64,
}

/// A buffer whose bytes have addresses for programs.
#[derive(Clone, Copy, Debug)]
pub struct LibraryArena<'a> {
    pub mem: &'a Mem,
    /// Address of the first byte.
    pub base: u64,
}

impl Device {
    /// Returns the calls of libraries that the device serves, or `None` if it can serve none,
    /// whatever is on the host.
    pub fn libraries(&self) -> Option<Libraries> {
        if !self.shares_host_memory() || !self.0.driver.runs_tasks() {
            return None;
        }
        let present = Kind::ALL.into_iter().filter(|kind| penstock_libraries::is_present(*kind));
        Some(present.fold(Libraries::default(), Libraries::with))
    }
}

impl Queue {
    /// Enqueues a call of a library. `failed` hears of a failure while the library runs.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` if the device cannot use the library, or if the library is not
    /// there; `CL_INVALID_VALUE` if the call touches bytes outside of its operands; the driver's
    /// error.
    pub fn call_library(
        &self,
        call: &LibraryCall,
        (operands, arenas): (&[LibraryOperand<'_>], &[LibraryArena<'_>]),
        failed: Box<dyn FnOnce(Status) + Send>,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        if !self.device().0.driver.runs_tasks() {
            return Err(Status::INVALID_OPERATION);
        }
        let library = penstock_libraries::library(Kind::of(call))?;
        let mut kept = Vec::with_capacity(operands.len() + arenas.len());
        let list = operands.iter().map(|it| self.region(it, &mut kept));
        let list = list.collect::<Result<Vec<_>, _>>()?;
        let whole = |arena: &LibraryArena<'_>, kept: &mut Vec<Mem>| {
            let bytes = arena.mem.size();
            let operand = LibraryOperand { mem: Some(arena.mem), offset: 0, bytes };
            Ok((arena.base, self.region(&operand, kept)?))
        };
        let arenas = arenas.iter().map(|arena| whole(arena, &mut kept));
        let arenas = arenas.collect::<Result<Vec<_>, Status>>()?;
        let operands = Operands::new(call, list, arenas).ok_or(Status::INVALID_VALUE)?;
        let call = *call;
        let task = move || {
            if let Err(status) = library.call(&call, &operands) {
                failed(status);
            }
            drop(kept);
        };
        self.enqueue(Command::Task(Box::new(task)), waits, want)
    }

    /// Returns the memory of an operand, which `kept` keeps.
    fn region(&self, operand: &LibraryOperand<'_>, kept: &mut Vec<Mem>) -> Result<Region, Status> {
        let Some(mem) = operand.mem.filter(|_| operand.bytes > 0) else {
            return Ok(Region::EMPTY);
        };
        mem.expect_buffer()?;
        self.expect_same_context(&[mem])?;
        let home = mem.home().ok_or(Status::INVALID_OPERATION)?;
        let bytes = usize::try_from(operand.bytes).map_err(|_| Status::INVALID_VALUE)?;
        let place = home.place(operand.offset, bytes)?;
        let start = std::ptr::NonNull::new(place).ok_or(Status::INVALID_VALUE)?;
        kept.push(mem.clone());
        // SAFETY: the range was checked. `kept` is dropped after the region.
        Ok(unsafe { Region::new(start, bytes) })
    }
}
