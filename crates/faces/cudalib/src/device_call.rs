//! The operands of a call, and its way to the driver.

use std::ffi::c_void;

use penstock_cuda_sys::driver::{CUDA_ERROR_INVALID_CONTEXT, CUcontext, CUresult, CUstream};
use penstock_wire::library::{Access, LibraryCall, Place};
use penstock_wire::limits::LIBRARY_OPERANDS_MAX;

use crate::driver::{Driver, Operand};

/// The addresses of a call's operands.
#[derive(Default)]
pub(crate) struct Addresses {
    list: [u64; LIBRARY_OPERANDS_MAX],
    count: u8,
}

/// Why a call was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The sizes do not fit together.
    Misfit,
    Driver(CUresult),
}

impl Addresses {
    /// Adds an operand, and returns its place.
    pub(crate) fn add(&mut self, address: *const c_void) -> Place {
        let place = Place(self.count);
        // No call has more operands; a place without an address would be refused as a misfit.
        if let Some(entry) = self.list.get_mut(usize::from(self.count)) {
            *entry = address.addr() as u64;
            self.count += 1;
        }
        place
    }
}

/// The operands of a call whose sizes fit together.
struct Operands {
    list: [Operand; LIBRARY_OPERANDS_MAX],
    count: usize,
    /// Whether the call writes anything.
    writes: bool,
}

impl Operands {
    fn of(call: &LibraryCall, addresses: &Addresses) -> Result<Self, Refusal> {
        let extents = call.extents().map_err(|_| Refusal::Misfit)?;
        let mut list = [Operand::default(); LIBRARY_OPERANDS_MAX];
        let mut writes = call.follows_addresses();
        for ((to, extent), address) in list.iter_mut().zip(extents.iter()).zip(addresses.list) {
            let is_written = extent.access == Access::Write;
            writes |= is_written && extent.bytes > 0;
            *to = Operand { address, bytes: extent.bytes, is_written: u64::from(is_written) };
        }
        Ok(Self { list, count: extents.len(), writes })
    }

    fn all(&self) -> &[Operand] {
        self.list.get(..self.count).unwrap_or_default()
    }
}

/// Sends a call into a stream of a context. A call that writes nothing is not sent.
pub(crate) fn send(
    driver: &Driver,
    (context, stream): (CUcontext, CUstream),
    call: &LibraryCall,
    addresses: &Addresses,
) -> Result<(), Refusal> {
    let operands = Operands::of(call, addresses)?;
    if !operands.writes {
        return Ok(());
    }
    let (bytes, follows) = (call.encode(), call.follows_addresses());
    in_context(driver, context, || driver.call(stream, &bytes, operands.all(), follows))
}

/// Refuses what [`send`] would refuse, and sends nothing.
pub(crate) fn check(
    driver: &Driver,
    (context, stream): (CUcontext, CUstream),
    call: &LibraryCall,
    addresses: &Addresses,
) -> Result<(), Refusal> {
    let operands = Operands::of(call, addresses)?;
    if !operands.writes {
        return Ok(());
    }
    in_context(driver, context, || driver.check(stream, operands.all()))
}

/// Makes a context current if the thread has none: it has not called CUDA yet.
fn in_context(
    driver: &Driver,
    context: CUcontext,
    mut run: impl FnMut() -> Result<(), CUresult>,
) -> Result<(), Refusal> {
    let result = match run() {
        Err(CUDA_ERROR_INVALID_CONTEXT) => {
            driver.use_context(context).map_err(Refusal::Driver)?;
            run()
        }
        other => other,
    };
    result.map_err(Refusal::Driver)
}
