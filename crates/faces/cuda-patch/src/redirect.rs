//! Redirection: a jump at the start of each function of the runtime inside a program leads to the
//! function of the same name in a library.
//!
//! A jump to any address takes more bytes than the smallest functions have. So each function jumps
//! to a table near the program (5 bytes), and the table jumps into the library.

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use penstock_process::Lock;
use thiserror::Error;

use crate::elf::Symbol;
use crate::program::{Runtime, inspect};

/// Size of a `jmp` with a 32-bit distance.
const NEAR_JUMP_BYTES: u64 = 5;

/// Size of `jmp *0(%rip)` and the address behind it, rounded up to a multiple of eight.
const FAR_JUMP_BYTES: u64 = 16;

/// Reach of a near jump, less the size of the largest program and table.
const NEAR_BYTES: u64 = 1 << 30;

/// Distance between the places near the program that are tried for the table.
const STEP_BYTES: u64 = 1 << 16;

/// Address ranges of the tables that were made.
static TABLES: Lock<Vec<std::ops::Range<u64>>> = Lock::new(Vec::new());

/// The lowest address that a process may use on most systems.
const LOWEST: u64 = 1 << 16;

/// Reason why the runtime inside a program cannot be redirected.
#[derive(Debug, Error)]
pub enum RedirectError {
    /// The runtime to jump to cannot be loaded.
    #[error("{library} cannot be loaded: {reason}")]
    NoLibrary {
        library: PathBuf,
        /// Message of the dynamic loader.
        reason: String,
    },
    #[error("no memory near the program is free")]
    NoRoom,
    /// The system does not allow the code to be changed.
    #[error("the system does not allow its code to be changed: {0}")]
    Protected(std::io::Error),
    /// The named functions have no room for a jump.
    #[error(
        "these functions are too short for a jump: {0}; link the program with `-cudart shared`"
    )]
    TooShort(String),
    #[error("its version is unknown; link the program with `-cudart shared`")]
    Version,
    #[error("this works on x86-64 only; link the program with `-cudart shared`")]
    Machine,
}

/// Redirects the runtime inside this process's program, if there is one, to the `libcudart.so` of
/// its version in the folder of this library. Reports a failure in one line on standard error.
/// Called before the program's own constructors.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_cuda_redirect() {
    own_folder();
    // SAFETY: the loader lists the program first, and runs its constructors after this function.
    let done = std::panic::catch_unwind(|| unsafe {
        redirect(Path::new("/proc/self/exe"), program_base())
    });
    if let Ok(Err(error)) = done {
        say("this program", &error);
    }
}

/// Reports why the runtime inside a program or library cannot be replaced.
pub(crate) fn say(inside: &str, error: &RedirectError) {
    use std::io::Write as _;
    let text = format!("penstock: CUDA's libraries in {inside} cannot be replaced: {error}\n");
    // If there is no standard error, nothing can be done.
    _ = std::io::stderr().write_all(text.as_bytes());
}

/// Redirects the runtime inside the program or library in `file`, if there is one. The code was
/// loaded `base` bytes above the addresses in the file. Returns the addresses of the constructors
/// that register its kernels. If it is already redirected, nothing changes and the list is empty.
///
/// # Errors
/// Fails if there is a runtime that cannot be redirected. Then no function was changed, unless the
/// error is [`RedirectError::Protected`].
///
/// # Safety
/// The file is loaded at `base`. No thread runs or enters a function of its runtime, unless it is
/// already redirected.
pub(crate) unsafe fn redirect(file: &Path, base: u64) -> Result<Vec<u64>, RedirectError> {
    let (major, functions, registering) = match inspect(file) {
        Runtime::Inside { major, functions, registering } => (major, functions, registering),
        Runtime::Unknown => return Err(RedirectError::Version),
        Runtime::OtherMachine => return Err(RedirectError::Machine),
        Runtime::Elsewhere | Runtime::Stripped => return Ok(Vec::new()),
    };
    let library = own_folder().join(format!("libcudart.so.{major}"));
    let handle = load(&library)?;
    let known: Vec<_> =
        functions.iter().filter_map(|it| Some((it, Jump::of(it, base, handle)?))).collect();
    let (known, short): (Vec<_>, Vec<_>) =
        known.into_iter().partition(|(function, _)| function.size >= NEAR_JUMP_BYTES);
    // A function that only returns may stay. Any other would go on in NVIDIA's runtime.
    // SAFETY: the code is loaded, and the symbol table gives the functions' sizes.
    let goes_on =
        short.iter().filter(|(function, jump)| !unsafe { only_returns(jump.from, function.size) });
    let names: Vec<_> = goes_on.map(|(function, _)| function.name.clone()).collect();
    if !names.is_empty() {
        return Err(RedirectError::TooShort(names.join(", ")));
    }
    let jumps: Vec<Jump> = known.into_iter().map(|(_, jump)| jump).collect();
    // SAFETY: the function is loaded and has room for a jump.
    if jumps.first().is_some_and(|jump| unsafe { is_redirected(jump.from) }) {
        return Ok(Vec::new());
    }
    // SAFETY: the caller guarantees that none of these functions runs.
    unsafe { write(&jumps) }?;
    Ok(registering.iter().filter_map(|constructor| base.checked_add(constructor.address)).collect())
}

/// Whether a function begins with a jump into one of our tables.
///
/// # Safety
/// `NEAR_JUMP_BYTES` bytes can be read at `address`.
unsafe fn is_redirected(address: u64) -> bool {
    let place: *const [u8; 5] =
        std::ptr::with_exposed_provenance(usize::try_from(address).unwrap_or(0));
    // SAFETY: the caller upholds the contract of this function.
    let [0xe9, a, b, c, d] = (unsafe { place.read_unaligned() }) else { return false };
    let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
    let target = (address + NEAR_JUMP_BYTES).wrapping_add_signed(distance);
    TABLES.lock().iter().any(|table| table.contains(&target))
}

/// Whether a short function only sets a register and returns: at most `xor` or `mov`, and `ret`.
///
/// # Safety
/// `size` bytes can be read at `address`.
unsafe fn only_returns(address: u64, size: u64) -> bool {
    const RET: u8 = 0xc3;
    /// First bytes of `xor` and `mov` between registers, and of `mov` with a byte constant. 0x48
    /// below is the prefix for 64 bits.
    const HARMLESS: [u8; 5] = [0x31, 0x33, 0x89, 0x8b, 0xb0];
    let place: *const u8 = std::ptr::with_exposed_provenance(usize::try_from(address).unwrap_or(0));
    // SAFETY: the caller upholds the contract of this function.
    let code = unsafe { std::slice::from_raw_parts(place, usize::try_from(size).unwrap_or(0)) };
    match code {
        [RET] => true,
        [first, _, RET] | [0x48, first, _, RET] => HARMLESS.contains(first),
        _ => false,
    }
}

/// A jump from one function to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Jump {
    from: u64,
    to: u64,
}

impl Jump {
    /// Returns the jump for a function that the library has too.
    fn of(function: &Symbol, base: u64, library: *mut c_void) -> Option<Self> {
        let name = CString::new(function.name.as_str()).ok()?;
        // SAFETY: the library is open, and the name is a C string.
        let target = unsafe { libc::dlsym(library, name.as_ptr()) };
        let from = base.checked_add(function.address)?;
        (!target.is_null()).then(|| Self { from, to: target.expose_provenance() as u64 })
    }
}

/// Returns the folder of the library that contains this code. The first call is made before a
/// second thread exists: it may take a lock of the loader.
pub(crate) fn own_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(find_own_folder)
}

fn find_own_folder() -> PathBuf {
    // SAFETY: all zeros is a valid value of this structure of pointers.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let inside = penstock_cuda_redirect as extern "C" fn() as *const c_void;
    // SAFETY: `inside` is an address of this library, and `found` is valid for the write.
    if unsafe { libc::dladdr(inside, &raw mut found) } == 0 || found.dli_fname.is_null() {
        return PathBuf::new();
    }
    // SAFETY: the loader keeps the name, a C string, while the library is loaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    path.parent().map(Path::to_path_buf).unwrap_or_default()
}

pub(crate) fn load(library: &Path) -> Result<*mut c_void, RedirectError> {
    let failed = |reason: String| RedirectError::NoLibrary { library: library.to_owned(), reason };
    let name =
        CString::new(library.as_os_str().as_bytes()).map_err(|error| failed(error.to_string()))?;
    // SAFETY: the name is a C string, and the library is ours.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: `dlerror` may always be called. Its message is copied before the loader's next call.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return Err(failed("no reason is given".to_owned()));
    }
    // SAFETY: the message is a C string of the loader.
    Err(failed(unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()))
}

/// Returns how far the program was moved from the addresses in its file. The loader lists it first.
fn program_base() -> u64 {
    extern "C" fn first(info: *mut libc::dl_phdr_info, _size: usize, base: *mut c_void) -> c_int {
        // SAFETY: the loader's information is valid, and `base` points to the variable below.
        unsafe { *base.cast::<u64>() = (*info).dlpi_addr };
        1
    }
    let mut base = 0_u64;
    // SAFETY: `first` has the form that the loader requires, and the variable outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut base).cast()) };
    base
}

fn page_bytes() -> u64 {
    // SAFETY: the function only returns a number.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Writes the table and the jumps to it.
///
/// # Safety
/// Each jump begins at a function that has room for it and that no thread runs.
unsafe fn write(jumps: &[Jump]) -> Result<(), RedirectError> {
    let (Some(first), Some(last)) =
        (jumps.iter().map(|jump| jump.from).min(), jumps.iter().map(|jump| jump.from).max())
    else {
        return Ok(());
    };
    let page = page_bytes();
    let bytes = (jumps.len() as u64 * FAR_JUMP_BYTES).next_multiple_of(page);
    let table = reserve(first, last, bytes).ok_or(RedirectError::NoRoom)?;
    let places = (table..).step_by(usize::try_from(FAR_JUMP_BYTES).unwrap_or(usize::MAX));
    // Computed for all jumps first: a program must not use half of each runtime.
    let near: Option<Vec<_>> = jumps
        .iter()
        .zip(places)
        .map(|(jump, place)| Some((jump, place, near_jump(jump.from, place)?)))
        .collect();
    let near = near.ok_or(RedirectError::NoRoom)?;
    for (jump, place, _) in &near {
        // SAFETY: the table has room for all entries.
        unsafe { bytes_at(*place, &far_jump(jump.to)) };
    }
    protect(table, bytes, libc::PROT_READ | libc::PROT_EXEC)?;
    let start = first / page * page;
    let length = (last + NEAR_JUMP_BYTES).next_multiple_of(page) - start;
    protect(start, length, libc::PROT_READ | libc::PROT_WRITE)?;
    for (jump, _, code) in &near {
        // SAFETY: the caller guarantees room for each jump, and the pages are writable now.
        unsafe { bytes_at(jump.from, code) };
    }
    TABLES.lock().push(table..table + bytes);
    protect(start, length, libc::PROT_READ | libc::PROT_EXEC)
}

/// # Safety
/// `bytes.len()` bytes can be written at `address`.
unsafe fn bytes_at(address: u64, bytes: &[u8]) {
    let place: *mut u8 =
        std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0));
    // SAFETY: the caller upholds the contract of this function.
    unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

fn protect(start: u64, length: u64, protection: c_int) -> Result<(), RedirectError> {
    let place = std::ptr::with_exposed_provenance_mut(usize::try_from(start).unwrap_or(0));
    // SAFETY: the pages belong to the program's code or to the table.
    match unsafe { libc::mprotect(place, usize::try_from(length).unwrap_or(0), protection) } {
        0 => Ok(()),
        _ => Err(RedirectError::Protected(std::io::Error::last_os_error())),
    }
}

/// Maps memory that near jumps of all functions reach. Tries below the program first, so that the
/// heap above it can grow.
fn reserve(first: u64, last: u64, bytes: u64) -> Option<u64> {
    let steps = NEAR_BYTES / STEP_BYTES;
    let start = first / STEP_BYTES * STEP_BYTES;
    let below = (1..steps)
        .map_while(|step| start.checked_sub(step * STEP_BYTES))
        .take_while(|at| *at >= LOWEST);
    let end = last.next_multiple_of(STEP_BYTES);
    let above = (1..steps).filter_map(|step| end.checked_add(step * STEP_BYTES));
    below.chain(above).find(|at| map_at(*at, bytes))
}

fn map_at(address: u64, bytes: u64) -> bool {
    let (Ok(place), Ok(length)) = (usize::try_from(address), usize::try_from(bytes)) else {
        return false;
    };
    let hint: *mut c_void = std::ptr::without_provenance_mut(place);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: `MAP_FIXED_NOREPLACE` maps new memory where none is mapped.
    let made = unsafe { libc::mmap(hint, length, protection, flags, -1, 0) };
    if made == libc::MAP_FAILED {
        return false;
    }
    if made.addr() == place {
        made.expose_provenance();
        return true;
    }
    // Kernels that do not know the flag treat the address as a hint.
    // SAFETY: this mapping was just made, and nothing uses it.
    unsafe { libc::munmap(made, length) };
    false
}

/// Encodes `jmp *0(%rip)` and the address behind it.
fn far_jump(to: u64) -> [u8; 14] {
    let mut code = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (place, byte) in code.iter_mut().skip(6).zip(to.to_le_bytes()) {
        *place = byte;
    }
    code
}

/// Encodes a `jmp` from one address to another, if the distance fits in 32 bits.
fn near_jump(from: u64, to: u64) -> Option<[u8; 5]> {
    let distance = i64::try_from(i128::from(to) - i128::from(from + NEAR_JUMP_BYTES)).ok()?;
    let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_jumps_count_from_behind_themselves() {
        assert_eq!(near_jump(0x1000, 0x1005), Some([0xe9, 0, 0, 0, 0]));
        assert_eq!(near_jump(0x2000, 0x1000), Some([0xe9, 0xfb, 0xef, 0xff, 0xff]));
        assert_eq!(near_jump(0, 1 << 40), None);
        assert_eq!(near_jump(u64::MAX - 100, 0), None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_function_that_was_redirected_is_another() {
        extern "C" fn target(x: u64) -> u64 {
            x + 1000
        }
        // A function on a page of its own: mov rax, rdi; ret; nops.
        let code = [0x48_u8, 0x89, 0xf8, 0xc3, 0x90, 0x90, 0x90, 0x90];
        let page = page_bytes();
        let here =
            (target as extern "C" fn(u64) -> u64 as *const c_void).expose_provenance() as u64;
        let place = reserve(here, here, page).unwrap();
        // SAFETY: the memory was just mapped. The function in it takes and returns a number.
        let (before, after) = unsafe {
            bytes_at(place, &code);
            protect(place, page, libc::PROT_READ | libc::PROT_EXEC).unwrap();
            let function =
                std::ptr::with_exposed_provenance::<c_void>(usize::try_from(place).unwrap());
            let function: extern "C" fn(u64) -> u64 = std::mem::transmute(function);
            let before = function(7);
            assert!(!is_redirected(place));
            write(&[Jump { from: place, to: here }]).unwrap();
            assert!(is_redirected(place), "a jump must not be written twice");
            (before, function(7))
        };
        assert_eq!((before, after), (7, 1007));
    }
}
