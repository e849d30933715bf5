//! MPI's blocking calls, through libWater's shim for MPI (`crates/faces/water/shim/wtr_mpi.h`).

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{NonNull, null_mut};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::{Ticket, Wire};
use crate::error::{Error, Result};
use crate::host::memory::Span;

/// The value of `WTR_MPI_BLOCKING_ABI`.
const ABI: u32 = 1;
/// Room for texts of MPI. An error text has up to 512 bytes; of a library's text the first line is
/// enough.
const TEXT_BYTES: usize = 512;
/// Tag of all messages. Messages between two ranks stay in order.
const TAG: c_int = 7;

/// C's `struct wtr_mpi`, which is opaque.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

/// C's `struct wtr_mpi_blocking` of the shim.
#[repr(C)]
#[derive(Clone, Copy)]
struct Calls {
    abi: u32,
    size: u32,
    open: unsafe extern "C" fn(*mut *mut Opaque, *mut c_int) -> c_int,
    rank: unsafe extern "C" fn(*const Opaque) -> c_int,
    ranks: unsafe extern "C" fn(*const Opaque) -> c_int,
    library: unsafe extern "C" fn(*mut c_char, c_int) -> c_int,
    error_text: unsafe extern "C" fn(c_int, *mut c_char, c_int) -> c_int,
    start_send: unsafe extern "C" fn(*mut Opaque, *const c_void, c_int, c_int, c_int, u64) -> c_int,
    start_receive:
        unsafe extern "C" fn(*mut Opaque, *mut c_void, c_int, c_int, c_int, u64) -> c_int,
    close: unsafe extern "C" fn(*mut Opaque, c_int) -> c_int,
    wait: unsafe extern "C" fn(*mut Opaque, u64) -> c_int,
    send: unsafe extern "C" fn(*mut Opaque, *const c_void, c_int, c_int, c_int) -> c_int,
    receive: unsafe extern "C" fn(*mut Opaque, *mut c_void, c_int, c_int, c_int) -> c_int,
    barrier: unsafe extern "C" fn(*mut Opaque) -> c_int,
}

/// This process's part in an MPI run.
pub struct Mpi {
    calls: &'static Calls,
    run: NonNull<Opaque>,
    next: u64,
}

impl std::fmt::Debug for Mpi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mpi").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Mpi {
    /// Opens the shim, starts MPI, and waits for all ranks.
    ///
    /// # Errors
    /// Returns [`Error::Library`] or [`Error::Mpi`].
    pub fn open(shim: &Path) -> Result<Self> {
        let calls = load(shim)?;
        let (mut run, mut threads) = (null_mut(), 0);
        // SAFETY: both pointers lead to variables that may be written.
        let code = unsafe { (calls.open)(&raw mut run, &raw mut threads) };
        calls.check(code)?;
        let run = NonNull::new(run).ok_or_else(|| calls.failed(1))?;
        Ok(Self { calls, run, next: 0 })
    }
}

impl Calls {
    fn check(&self, code: c_int) -> Result<()> {
        if code >= 0 { Ok(()) } else { Err(self.failed(code.saturating_neg())) }
    }

    fn failed(&self, code: c_int) -> Error {
        // SAFETY: `to` has room for `room` bytes.
        Error::Mpi { code, text: text(|to, room| unsafe { (self.error_text)(code, to, room) }) }
    }
}

fn load(shim: &Path) -> Result<&'static Calls> {
    let told = |reason: String| Error::Library { path: shim.to_owned(), reason };
    // MPI implementations load parts of themselves later. These search for symbols of the first
    // part among the global ones.
    // SAFETY: opening runs initialisers of the shim and of MPI, which the user asks for.
    let library = unsafe { Library::open(Some(shim), RTLD_NOW | RTLD_GLOBAL) }
        .map_err(|error| told(error.to_string()))?;
    // SAFETY: the symbol has this type in each version.
    let entry =
        unsafe { library.get::<unsafe extern "C" fn() -> *const Calls>(b"wtr_mpi_blocking\0") }
            .map_err(|error| told(format!("{error}; build it again together with this program")))?;
    // SAFETY: the function returns a constant of the shim.
    let table = NonNull::new(unsafe { entry() }.cast_mut())
        .ok_or_else(|| told("it has no calls".to_owned()))?;
    // A running MPI has threads and cannot be unloaded.
    std::mem::forget(library);
    // SAFETY: the table of each version begins with these two numbers.
    let [abi, size] = unsafe { table.cast::<[u32; 2]>().read() };
    if abi != ABI || (size as usize) < size_of::<Calls>() {
        return Err(told(format!(
            "it is of version {abi}, this program needs {ABI}: build both together"
        )));
    }
    // SAFETY: the table is of this version, stays loaded and never changes.
    Ok(unsafe { table.as_ref() })
}

/// Returns a text that a function of the shim writes.
fn text(write: impl FnOnce(*mut c_char, c_int) -> c_int) -> String {
    let mut bytes = [0_u8; TEXT_BYTES];
    let length = write(bytes.as_mut_ptr().cast(), c_int::try_from(TEXT_BYTES).unwrap_or(0));
    let length = usize::try_from(length).unwrap_or(0).min(TEXT_BYTES);
    String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned()
}

/// Converts a number to C's `int`, which MPI uses.
fn int(number: impl TryInto<c_int>) -> c_int {
    number.try_into().unwrap_or(c_int::MAX)
}

impl Wire for Mpi {
    fn rank(&self) -> u32 {
        // SAFETY: the run is open.
        u32::try_from(unsafe { (self.calls.rank)(self.run.as_ptr()) }).unwrap_or(0)
    }

    fn ranks(&self) -> u32 {
        // SAFETY: the run is open.
        u32::try_from(unsafe { (self.calls.ranks)(self.run.as_ptr()) }).unwrap_or(1)
    }

    fn name(&self) -> String {
        // SAFETY: `to` has room for `room` bytes.
        let name = text(|to, room| unsafe { (self.calls.library)(to, room) });
        // MPICH puts a tab before its version.
        name.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn send(&mut self, to: u32, bytes: Span) -> Result<()> {
        let start = bytes.start().cast_const().cast();
        // SAFETY: the bytes are valid for the call.
        let code =
            unsafe { (self.calls.send)(self.run.as_ptr(), start, int(bytes.len()), int(to), TAG) };
        self.calls.check(code)
    }

    fn receive(&mut self, from: u32, bytes: Span) -> Result<()> {
        let start = bytes.start().cast();
        // SAFETY: the bytes are valid for the call.
        let code = unsafe {
            (self.calls.receive)(self.run.as_ptr(), start, int(bytes.len()), int(from), TAG)
        };
        self.calls.check(code)
    }

    fn start_send(&mut self, to: u32, bytes: Span) -> Result<Ticket> {
        self.next += 1;
        let (run, start) = (self.run.as_ptr(), bytes.start().cast_const().cast());
        // SAFETY: the bytes stay valid until the ticket has been waited for, as the trait requires.
        let code = unsafe {
            (self.calls.start_send)(run, start, int(bytes.len()), int(to), TAG, self.next)
        };
        self.calls.check(code)?;
        Ok(Ticket { id: self.next, receive: None })
    }

    fn start_receive(&mut self, from: u32, bytes: Span) -> Result<Ticket> {
        self.next += 1;
        let (run, start) = (self.run.as_ptr(), bytes.start().cast());
        // SAFETY: as for `start_send`.
        let code = unsafe {
            (self.calls.start_receive)(run, start, int(bytes.len()), int(from), TAG, self.next)
        };
        self.calls.check(code)?;
        Ok(Ticket { id: self.next, receive: None })
    }

    fn wait(&mut self, ticket: Ticket) -> Result<()> {
        // SAFETY: the run is open.
        let code = unsafe { (self.calls.wait)(self.run.as_ptr(), ticket.id) };
        self.calls.check(code)
    }

    fn barrier(&mut self) -> Result<()> {
        // SAFETY: the run is open.
        let code = unsafe { (self.calls.barrier)(self.run.as_ptr()) };
        self.calls.check(code)
    }

    /// MPI spins. Its launcher decides whether it yields.
    fn set_spins(&mut self, _spins: bool) -> Result<()> {
        Ok(())
    }

    /// Waits for all ranks.
    fn close(&mut self) -> Result<()> {
        // SAFETY: the run is open, and the trait promises that it is not used afterwards.
        let code = unsafe { (self.calls.close)(self.run.as_ptr(), 1) };
        self.calls.check(code)
    }
}
