//! Calls of libraries on the memory of a device.
//!
//! Devices that compute on the host's memory are served by OpenBLAS and FFTW, as a task in the turn
//! of a command. GPUs of CUDA's driver are served by NVIDIA's cuBLAS and cuFFT, which enqueue the
//! work into the stream of the queue. The crate `libraries` has all of them.

use penstock_libraries::{Operands, Region};
use penstock_wire::library::{Kind, Libraries, LibraryCall};
use penstock_wire::status::Status;

use crate::command::Command;
use crate::driver::{Device, Mem, Queue, Want};
use crate::event::Event;
use crate::region;

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
        if let Some(served) = self.0.driver.libraries() {
            return Some(served);
        }
        if !self.shares_host_memory() || !self.0.driver.runs_tasks() {
            return None;
        }
        let present = Kind::ALL.into_iter().filter(|kind| penstock_libraries::is_present(*kind));
        Some(present.fold(Libraries::default(), Libraries::with))
    }
}

impl Queue {
    /// Enqueues a call of a library. [`Queue::on_failure`] tells of a failure in its turn.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` if the device cannot use the library, or if the library is not
    /// there; `CL_INVALID_VALUE` if the call touches bytes outside of its operands; the driver's
    /// error.
    pub fn call_library(
        &self,
        call: &LibraryCall,
        (operands, arenas): (&[LibraryOperand<'_>], &[LibraryArena<'_>]),
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        if let Some(served) = self.device().0.driver.libraries() {
            if !served.has(Kind::of(call)) {
                return Err(Status::INVALID_OPERATION);
            }
            self.check_operands(call, operands)?;
            return self.enqueue(Command::Library { call, operands }, waits, want);
        }
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
        let (call, failed) = (*call, self.0.failed.get().cloned());
        let task = move || {
            if let (Err(status), Some(failed)) = (library.call(&call, &operands), failed) {
                failed(status);
            }
            drop(kept);
        };
        self.enqueue(Command::Task(Box::new(task)), waits, want)
    }

    /// Checks that each operand lies within a buffer and has the bytes that the call touches.
    fn check_operands(
        &self,
        call: &LibraryCall,
        operands: &[LibraryOperand<'_>],
    ) -> Result<(), Status> {
        let extents = call.extents().map_err(|_| Status::INVALID_VALUE)?;
        if extents.len() != operands.len() {
            return Err(Status::INVALID_VALUE);
        }
        for (extent, operand) in extents.iter().zip(operands) {
            let bytes = match operand.mem.filter(|_| operand.bytes > 0) {
                Some(mem) => {
                    mem.expect_buffer()?;
                    self.expect_same_context(&[mem])?;
                    region::range(mem.size(), operand.offset, operand.bytes)?;
                    operand.bytes
                }
                None => 0,
            };
            if bytes < extent.bytes {
                return Err(Status::INVALID_VALUE);
            }
        }
        Ok(())
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
