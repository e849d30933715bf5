//! The table of a shim, as in `shim/wtr_mpi.h`, and safe calls for one process's part in the run.

use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

const ABI: u32 = 1;
/// Room for strings of MPI. Errors have up to 512 bytes. A library describes itself in up to 8 KiB,
/// of which the first line is enough.
const TEXT_BYTES: usize = 512;
/// Level of thread support from which one thread at a time may call. The levels are 0 single, 1
/// funneled, 2 serialized, 3 multiple.
pub const SERIALIZED: c_int = 2;

/// The C type `struct wtr_mpi`.
#[repr(C)]
#[derive(Debug)]
pub struct Opaque {
    _private: [u8; 0],
}

/// The C type `struct wtr_mpi_end`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Id of the operation, as it was started.
    pub id: u64,
    /// Number of bytes received.
    pub bytes: i64,
    /// 0, or MPI's code.
    pub error: i32,
    /// 1 if it was cancelled.
    pub cancelled: i32,
}

/// The C type `struct wtr_mpi_shim`.
#[repr(C)]
#[derive(Debug)]
pub struct Shim {
    abi: u32,
    size: u32,
    open: unsafe extern "C" fn(*mut *mut Opaque, *mut c_int) -> c_int,
    rank: unsafe extern "C" fn(*const Opaque) -> c_int,
    ranks: unsafe extern "C" fn(*const Opaque) -> c_int,
    tag_max: unsafe extern "C" fn(*const Opaque) -> c_int,
    library: unsafe extern "C" fn(*mut c_char, c_int) -> c_int,
    error_text: unsafe extern "C" fn(c_int, *mut c_char, c_int) -> c_int,
    send: unsafe extern "C" fn(*mut Opaque, *const c_void, c_int, c_int, c_int, u64) -> c_int,
    receive: unsafe extern "C" fn(*mut Opaque, *mut c_void, c_int, c_int, c_int, u64) -> c_int,
    probe: unsafe extern "C" fn(*mut Opaque, c_int, *mut c_int, *mut c_int) -> c_int,
    test: unsafe extern "C" fn(*mut Opaque, *mut *const End) -> c_int,
    pending: unsafe extern "C" fn(*const Opaque) -> c_int,
    cancel: unsafe extern "C" fn(*mut Opaque, u64) -> c_int,
    barrier: unsafe extern "C" fn(*mut Opaque, u64) -> c_int,
    close: unsafe extern "C" fn(*mut Opaque, c_int) -> c_int,
    now_ns: unsafe extern "C" fn() -> u64,
    sleep_ns: unsafe extern "C" fn(u64),
}

/// Why a shim cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// The shim, or the MPI that it needs, cannot be opened.
    #[error("{} cannot be opened: {reason}", path.display())]
    Open {
        path: PathBuf,
        /// The message of the loader.
        reason: String,
    },
    /// The shim has another version.
    #[error("{} has version {found}, libwater needs {ABI}: build both together", path.display())]
    Version { path: PathBuf, found: u32 },
    #[error("MPI does not start: {0}")]
    Start(String),
}

/// A failure of MPI.
#[derive(Clone, Debug, thiserror::Error)]
#[error("MPI: {text} (code {code})")]
pub struct Failed {
    /// MPI's code; 1 if there is none.
    pub code: c_int,
    /// MPI's text for the code.
    pub text: String,
}

impl Shim {
    /// Opens a shim and the MPI below it. Both stay open: an MPI that was started has threads and
    /// cannot be unloaded.
    ///
    /// # Errors
    /// There is no such file or no MPI, or the shim has another version.
    pub fn load(path: &Path) -> Result<&'static Self, Unusable> {
        use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
        let unusable = |error: libloading::Error| Unusable::Open {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        // MPIs load parts of themselves later. Those parts look for symbols among the global ones.
        // SAFETY: opening runs initialisers of the shim and of an MPI, which is what the user asks
        // for.
        let library =
            unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map_err(unusable)?;
        // SAFETY: the symbol has this type in each version of the shim.
        let entry =
            unsafe { library.get::<unsafe extern "C" fn() -> *const Self>(b"wtr_mpi_shim\0") }
                .map_err(unusable)?;
        // SAFETY: the function returns a constant of the shim.
        let table = unsafe { entry() };
        std::mem::forget(library);
        // SAFETY: as above, and the shim stays loaded.
        unsafe { Self::of(table, path) }
    }

    /// Takes the table of a shim that is linked or loaded.
    ///
    /// # Errors
    /// The table has another version.
    ///
    /// # Safety
    /// `table` is null, or the table of a shim of any version, and stays valid.
    pub unsafe fn of(table: *const Self, path: &Path) -> Result<&'static Self, Unusable> {
        let wrong = |found| Unusable::Version { path: path.to_owned(), found };
        let table = NonNull::new(table.cast_mut()).ok_or(wrong(0))?;
        // SAFETY: each version begins with these two numbers.
        let [abi, size] = unsafe { table.cast::<[u32; 2]>().read() };
        if abi != ABI || (size as usize) < size_of::<Self>() {
            return Err(wrong(abi));
        }
        // SAFETY: the table has this version and never changes.
        Ok(unsafe { table.as_ref() })
    }

    /// Returns the name and version of the MPI.
    pub fn library(&self) -> String {
        // SAFETY: there is room for `room` bytes.
        text(|to, room| unsafe { (self.library)(to, room) })
    }

    fn check(&self, result: c_int) -> Result<c_int, Failed> {
        if result >= 0 {
            return Ok(result);
        }
        let code = result.saturating_neg();
        // SAFETY: there is room for `room` bytes.
        let said = text(|to, room| unsafe { (self.error_text)(code, to, room) });
        Err(Failed {
            code,
            text: if said.is_empty() { "an error without a text".into() } else { said },
        })
    }

    /// Returns the failure for an error code of MPI.
    pub fn failed(&self, code: c_int) -> Failed {
        let code = code.saturating_abs().max(1);
        self.check(-code).err().unwrap_or(Failed { code, text: String::new() })
    }

    /// Returns the clock of this MPI in ns, which is simulated time under a simulator.
    pub fn now_ns(&self) -> u64 {
        // SAFETY: MPI runs, so the function may be called.
        unsafe { (self.now_ns)() }
    }

    /// Sleeps by the clock of this MPI.
    pub fn sleep_ns(&self, ns: u64) {
        // SAFETY: as above.
        unsafe { (self.sleep_ns)(ns) };
    }
}

/// Returns the string that a function of the shim writes.
fn text(write: impl FnOnce(*mut c_char, c_int) -> c_int) -> String {
    let mut bytes = [0_u8; TEXT_BYTES];
    let length = write(bytes.as_mut_ptr().cast(), c_int::try_from(TEXT_BYTES).unwrap_or(0));
    let length = usize::try_from(length).unwrap_or(0).min(TEXT_BYTES);
    String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned()
}

/// This process's part in the run.
#[derive(Debug)]
pub struct Run {
    pub shim: &'static Shim,
    run: NonNull<Opaque>,
    /// The level of thread support, see [`SERIALIZED`].
    pub threads: c_int,
}

// SAFETY: one thread at a time uses it. If MPI only allows the thread that started it (`threads`
// below `SERIALIZED`), the creator uses it in that thread: see `Launched::threaded`.
unsafe impl Send for Run {}

impl Run {
    /// Starts MPI. Blocks until all ranks have joined.
    ///
    /// # Errors
    /// MPI does not start.
    pub fn open(shim: &'static Shim) -> Result<Self, Unusable> {
        let (mut run, mut threads) = (std::ptr::null_mut(), 0);
        // SAFETY: both variables may be written.
        let result = unsafe { (shim.open)(&raw mut run, &raw mut threads) };
        shim.check(result).map_err(|failed| Unusable::Start(failed.to_string()))?;
        let run =
            NonNull::new(run).ok_or_else(|| Unusable::Start("the shim returned nothing".into()))?;
        Ok(Self { shim, run, threads })
    }

    /// Returns this process's rank.
    pub fn rank(&self) -> u32 {
        // SAFETY: the run is open.
        u32::try_from(unsafe { (self.shim.rank)(self.run.as_ptr()) }).unwrap_or(0)
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> u32 {
        // SAFETY: the run is open.
        u32::try_from(unsafe { (self.shim.ranks)(self.run.as_ptr()) }).unwrap_or(1)
    }

    /// Returns the largest tag that MPI allows.
    pub fn tag_max(&self) -> u32 {
        // SAFETY: the run is open.
        u32::try_from(unsafe { (self.shim.tag_max)(self.run.as_ptr()) }).unwrap_or(0)
    }

    /// Starts a send.
    ///
    /// # Errors
    /// MPI refuses.
    ///
    /// # Safety
    /// The bytes stay valid and unchanged until the operation has ended.
    pub unsafe fn send(
        &mut self,
        bytes: *const u8,
        count: c_int,
        to: c_int,
        tag: c_int,
        id: u64,
    ) -> Result<(), Failed> {
        // SAFETY: the caller guarantees it.
        let result =
            unsafe { (self.shim.send)(self.run.as_ptr(), bytes.cast(), count, to, tag, id) };
        self.shim.check(result).map(drop)
    }

    /// Starts a receive.
    ///
    /// # Errors
    /// MPI refuses.
    ///
    /// # Safety
    /// The memory stays valid, and nobody else uses it, until the operation has ended.
    pub unsafe fn receive(
        &mut self,
        bytes: *mut u8,
        room: c_int,
        from: c_int,
        tag: c_int,
        id: u64,
    ) -> Result<(), Failed> {
        // SAFETY: the caller guarantees it.
        let result =
            unsafe { (self.shim.receive)(self.run.as_ptr(), bytes.cast(), room, from, tag, id) };
        self.shim.check(result).map(drop)
    }

    /// Returns sender and length of a message with this tag that could be received now, if there is
    /// one.
    ///
    /// # Errors
    /// MPI fails.
    pub fn probe(&mut self, tag: c_int) -> Result<Option<(c_int, c_int)>, Failed> {
        let (mut from, mut count) = (0, 0);
        // SAFETY: both variables may be written.
        let result =
            unsafe { (self.shim.probe)(self.run.as_ptr(), tag, &raw mut from, &raw mut count) };
        Ok((self.shim.check(result)? > 0).then_some((from, count)))
    }

    /// Appends the operations that have ended since the last call.
    ///
    /// # Errors
    /// MPI as a whole has failed.
    pub fn test(&mut self, ended: &mut Vec<End>) -> Result<(), Failed> {
        let mut ends = std::ptr::null();
        // SAFETY: the variable may be written.
        let result = unsafe { (self.shim.test)(self.run.as_ptr(), &raw mut ends) };
        let count = usize::try_from(self.shim.check(result)?).unwrap_or(0);
        if count > 0 && !ends.is_null() {
            // SAFETY: the shim says that `count` entries are valid until its next call.
            ended.extend_from_slice(unsafe { std::slice::from_raw_parts(ends, count) });
        }
        Ok(())
    }

    /// Returns the number of operations that have not ended.
    pub fn pending(&self) -> usize {
        // SAFETY: the run is open.
        usize::try_from(unsafe { (self.shim.pending)(self.run.as_ptr()) }).unwrap_or(0)
    }

    /// Cancels a receive, which still ends.
    pub fn cancel(&mut self, id: u64) {
        // If this fails, the receive goes on, and nothing can be done about it.
        // SAFETY: the run is open.
        unsafe { (self.shim.cancel)(self.run.as_ptr(), id) };
    }

    /// Starts a barrier of all ranks.
    ///
    /// # Errors
    /// MPI refuses.
    pub fn barrier(&mut self, id: u64) -> Result<(), Failed> {
        // SAFETY: the run is open.
        let result = unsafe { (self.shim.barrier)(self.run.as_ptr(), id) };
        self.shim.check(result).map(drop)
    }

    /// Ends this process's part. With `finalize` it also ends MPI, which waits for all ranks.
    ///
    /// # Errors
    /// MPI fails at its end.
    pub fn close(self, finalize: bool) -> Result<(), Failed> {
        // SAFETY: the run is open, and is not used after this.
        let result = unsafe { (self.shim.close)(self.run.as_ptr(), c_int::from(finalize)) };
        self.shim.check(result).map(drop)
    }
}
