//! MPI's blocking calls, through libWater's shim to it (`crates/water/shim/wtr_mpi.h`).

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{NonNull, null_mut};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::{Ticket, Wire};
use crate::error::{Error, Result};
use crate::host::memory::Span;

/// `WTR_MPI_BLOCKING_ABI`.
const ABI: u32 = 1;
/// Room for texts of MPI: an error's has up to 512 bytes, of a library's the first line is enough.
const TEXT_BYTES: usize = 512;
/// The tag of all messages: one sends to another in order.
const TAG: c_int = 7;

/// `struct wtr_mpi`.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

/// `struct wtr_mpi_blocking`.
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

/// This process's part in a run of MPI.
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
    /// [`Error::Library`], [`Error::Mpi`].
    pub fn open(shim: &Path) -> Result<Self> {
        let calls = load(shim)?;
        let (mut run, mut threads) = (null_mut(), 0);
        // SAFETY: both are there to be written.
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
        // SAFETY: there is room for so many bytes.
        Error::Mpi { code, text: text(|to, room| unsafe { (self.error_text)(code, to, room) }) }
    }
}

fn load(shim: &Path) -> Result<&'static Calls> {
    let told = |reason: String| Error::Library { path: shim.to_owned(), reason };
    // MPIs load parts of themselves later, and those look for symbols of the first among the global ones.
    // SAFETY: opening runs initialisers of the shim and of an MPI, which is what the user asks for.
    let library = unsafe { Library::open(Some(shim), RTLD_NOW | RTLD_GLOBAL) }
        .map_err(|error| told(error.to_string()))?;
    // SAFETY: the symbol is of this type in each version.
    let entry =
        unsafe { library.get::<unsafe extern "C" fn() -> *const Calls>(b"wtr_mpi_blocking\0") }
            .map_err(|error| told(format!("{error}; build it again together with this program")))?;
    // SAFETY: it gives a constant of the shim.
    let table = NonNull::new(unsafe { entry() }.cast_mut())
        .ok_or_else(|| told("it has no calls".to_owned()))?;
    // An MPI that was started has threads and cannot be unloaded.
    std::mem::forget(library);
    // SAFETY: each version begins with these two numbers.
    let [abi, size] = unsafe { table.cast::<[u32; 2]>().read() };
    if abi != ABI || (size as usize) < size_of::<Calls>() {
        return Err(told(format!(
            "it is of version {abi}, this program needs {ABI}: build both together"
        )));
    }
    // SAFETY: it is of this version, stays and never changes.
    Ok(unsafe { table.as_ref() })
}

/// A text that a function of the shim writes.
fn text(write: impl FnOnce(*mut c_char, c_int) -> c_int) -> String {
    let mut bytes = [0_u8; TEXT_BYTES];
    let length = write(bytes.as_mut_ptr().cast(), c_int::try_from(TEXT_BYTES).unwrap_or(0));
    let length = usize::try_from(length).unwrap_or(0).min(TEXT_BYTES);
    String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned()
}

/// MPI's numbers are `int`.
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
        // SAFETY: there is room for so many bytes.
        let name = text(|to, room| unsafe { (self.calls.library)(to, room) });
        // MPICH sets its version off by a tabulator.
        name.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn send(&mut self, to: u32, bytes: Span) -> Result<()> {
        let start = bytes.start().cast_const().cast();
        // SAFETY: the bytes are there.
        let code =
            unsafe { (self.calls.send)(self.run.as_ptr(), start, int(bytes.len()), int(to), TAG) };
        self.calls.check(code)
    }

    fn receive(&mut self, from: u32, bytes: Span) -> Result<()> {
        let start = bytes.start().cast();
        // SAFETY: the bytes are there.
        let code = unsafe {
            (self.calls.receive)(self.run.as_ptr(), start, int(bytes.len()), int(from), TAG)
        };
        self.calls.check(code)
    }

    fn start_send(&mut self, to: u32, bytes: Span) -> Result<Ticket> {
        self.next += 1;
        let (run, start) = (self.run.as_ptr(), bytes.start().cast_const().cast());
        // SAFETY: the bytes stay until the ticket was waited for, as the trait asks.
        let code = unsafe {
            (self.calls.start_send)(run, start, int(bytes.len()), int(to), TAG, self.next)
        };
        self.calls.check(code)?;
        Ok(Ticket { id: self.next, receive: None })
    }

    fn start_receive(&mut self, from: u32, bytes: Span) -> Result<Ticket> {
        self.next += 1;
        let (run, start) = (self.run.as_ptr(), bytes.start().cast());
        // SAFETY: as above.
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

    /// MPIs spin; whether they yield is the launcher's choice.
    fn set_spins(&mut self, _spins: bool) -> Result<()> {
        Ok(())
    }

    /// Waits for all ranks.
    fn close(&mut self) -> Result<()> {
        // SAFETY: the run is open, and the trait promises that it is not used after this.
        let code = unsafe { (self.calls.close)(self.run.as_ptr(), 1) };
        self.calls.check(code)
    }
}
