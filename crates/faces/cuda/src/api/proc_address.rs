//! Lookup of functions by name and version.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use penstock_cuda_sys::driver::*;
use penstock_process::{log, notice};

use super::table;
use crate::edge::{CuResult, cu_entry, require, store, text};

/// Result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Here(usize),
    /// The function exists only in later versions.
    TooNew,
    Nothing,
}

/// Version and address of each form of a function, in ascending order: `cuCtxCreate`,
/// `cuCtxCreate_v2`, ...
type Forms = Vec<(c_int, usize)>;

struct Names {
    legacy: BTreeMap<&'static str, Forms>,
    /// Forms that use the thread's own default stream.
    per_thread: BTreeMap<&'static str, Forms>,
    exact: BTreeMap<&'static str, usize>,
}

/// Returns a symbol without its suffix such as `_v2`.
fn without_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((base, digits))
            if !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit()) =>
        {
            base
        }
        _ => name,
    }
}

fn names() -> &'static Names {
    static NAMES: OnceLock<Names> = OnceLock::new();
    NAMES.get_or_init(|| {
        let exact: BTreeMap<&str, usize> = table::addresses().chain(table::own()).collect();
        let (mut legacy, mut per_thread) =
            (BTreeMap::<_, Forms>::new(), BTreeMap::<_, Forms>::new());
        for (name, version) in table::symbols() {
            let Some(address) = exact.get(name).copied() else { continue };
            let twin = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds"));
            let forms = if twin.is_some() { &mut per_thread } else { &mut legacy };
            forms
                .entry(without_version(twin.unwrap_or(name)))
                .or_default()
                .push((version, address));
        }
        for forms in legacy.values_mut().chain(per_thread.values_mut()) {
            forms.sort_unstable();
        }
        Names { legacy, per_thread, exact }
    })
}

/// Returns the newest version of a function that is not newer than `version`.
fn look_up(name: &str, version: c_int, per_thread: bool) -> Found {
    let names = names();
    let newest = |forms: Option<&Forms>| {
        let forms = forms?;
        let fits = forms.iter().rev().find(|(since, _)| *since <= version);
        Some(fits.map_or(Found::TooNew, |(_, address)| Found::Here(*address)))
    };
    let own = if per_thread { newest(names.per_thread.get(name)) } else { None };
    match own.filter(|found| *found != Found::TooNew).or_else(|| newest(names.legacy.get(name))) {
        Some(found) => found,
        // Some programs ask for a symbol with its suffix.
        None => names.exact.get(name).map_or(Found::Nothing, |address| Found::Here(*address)),
    }
}

/// # Safety
/// `symbol` is null or a string; `function` and `status` are null or writable.
unsafe fn get(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_uint,
) -> CuResult {
    const KNOWN: u64 =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    require(!function.is_null() && flags & !KNOWN == 0, CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller promises that `symbol` is null or a string.
    let name = unsafe { text(symbol) }?.to_str().unwrap_or_default();
    let (address, code) =
        match look_up(name, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM != 0) {
            Found::Here(address) => (address, CU_GET_PROC_ADDRESS_SUCCESS),
            Found::TooNew => (0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT),
            Found::Nothing => (0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
        };
    // SAFETY: the caller promises that `function` is null or writable.
    unsafe { store(function, std::ptr::with_exposed_provenance_mut(address)) };
    // SAFETY: the caller promises that `status` is null or writable.
    unsafe { store(status, code) };
    // If the program gives a place for the status, a missing function is not an error.
    if address != 0 || !status.is_null() { Ok(()) } else { Err(CUDA_ERROR_NOT_FOUND) }
}

cu_entry! {
    fn cuGetProcAddress(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64) {
        // SAFETY: the program promises what `get` demands.
        unsafe { get(symbol, function, version, flags, std::ptr::null_mut()) }
    }
    fn cuGetProcAddress_v2(
        symbol: *const c_char,
        function: *mut *mut c_void,
        version: c_int,
        flags: u64,
        status: *mut c_uint,
    ) {
        // SAFETY: the program promises what `get` demands.
        unsafe { get(symbol, function, version, flags, status) }
    }
    /// Always fails: the undocumented tables of the driver do not exist here.
    fn cuGetExportTable(table: *mut *const c_void, id: *const CUuuid) {
        // SAFETY: the program promises that `id` is null or a name of 16 bytes.
        let name = unsafe { id.as_ref() }.map_or(0, |id| u128::from_be_bytes(id.bytes));
        log!(Debug, "the program asks for the undocumented table {name:032x}");
        notice::once_about(
            "cuGetExportTable",
            format_args!(
                "cuGetExportTable: the driver's undocumented tables are not served; a program that \
                 needs them has NVIDIA's runtime linked into it; link it with nvcc -cudart shared"
            ),
        );
        // SAFETY: the program promises that `table` is null or writable.
        unsafe { store(table, std::ptr::null()) };
        Err(CUDA_ERROR_NOT_FOUND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(name: &str) -> Found {
        Found::Here(table::addresses().find(|(known, _)| *known == name).unwrap().1)
    }

    #[test]
    fn the_version_asked_for_chooses_the_form() {
        assert_eq!(look_up("cuCtxCreate", 3020, false), address("cuCtxCreate_v2"));
        assert_eq!(look_up("cuCtxCreate", 12_000, false), address("cuCtxCreate_v3"));
        assert_eq!(look_up("cuCtxCreate", 13_000, false), address("cuCtxCreate_v4"));
        assert_eq!(look_up("cuMemAlloc", 13_000, false), address("cuMemAlloc_v2"));
        assert_eq!(look_up("cuLibraryLoadData", 11_000, false), Found::TooNew);
        assert_eq!(look_up("cuNoSuchThing", 13_000, false), Found::Nothing);
    }

    #[test]
    fn the_flag_chooses_the_default_stream() {
        assert_eq!(look_up("cuLaunchKernel", 13_000, false), address("cuLaunchKernel"));
        assert_eq!(look_up("cuLaunchKernel", 13_000, true), address("cuLaunchKernel_ptsz"));
        assert_eq!(look_up("cuMemcpyHtoD", 13_000, true), address("cuMemcpyHtoD_v2_ptds"));
        // The `_ptsz` form exists since 7.0, so an older version gets the other one.
        assert_eq!(look_up("cuLaunchKernel", 4000, true), address("cuLaunchKernel"));
        assert_eq!(look_up("cuDeviceGet", 13_000, true), address("cuDeviceGet"));
    }

    #[test]
    fn symbols_are_found_by_their_own_name_too() {
        assert_eq!(
            look_up("cuMemcpyHtoDAsync_v2_ptsz", 13_000, false),
            address("cuMemcpyHtoDAsync_v2_ptsz")
        );
        assert_eq!(without_version("cuMemAlloc_v2"), "cuMemAlloc");
        assert_eq!(without_version("cuStream_value"), "cuStream_value");
    }
}
