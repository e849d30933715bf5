//! The functions of `penstock_energy.h`. Only this module knows the C side of this library and
//! converts errors to codes.
//!
//! Handles are numbers that are never reused. A closed or invalid one is detected and never
//! followed.

mod shown;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, c_char, c_double, c_int, c_uint};
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::cores;
use crate::error::Error;
use crate::meter::Meter;
use crate::model::PowerModel;
use crate::options::{Options, Roots};
use penstock_process::{Guard, Lock};
use shown::{CCores, CFigure, CModel, CTotal, Shown, c_text};

/// Error codes of the header.
mod code {
    pub(super) const SUCCESS: i32 = 0;
    pub(super) const INVALID: i32 = -21001;
    pub(super) const ORDER: i32 = -21002;
    pub(super) const SYSTEM: i32 = -21003;
    pub(super) const MODEL: i32 = -21004;
    pub(super) const DEFECT: i32 = -21005;
}

/// The type that handles point to in C.
#[repr(C)]
#[derive(Debug)]
pub struct Opaque {
    _private: [u8; 0],
}

/// Layout of the header's `penstock_energy_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct COptions {
    size: usize,
    root: *const c_char,
    nvml: *const c_char,
    power_model: *const c_char,
    interval_s: c_double,
    watch_s: c_double,
    psys: c_int,
}

/// A wrong argument of the program, or a failure.
enum Refusal {
    Argument(&'static str),
    Error(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Refusal {
    fn told(self) -> (i32, String) {
        match self {
            Self::Argument(text) => (code::INVALID, text.to_owned()),
            Self::Error(error) => {
                let code = match &error {
                    Error::Order(_) => code::ORDER,
                    Error::Span { .. } => code::INVALID,
                    Error::Model { .. } => code::MODEL,
                    _ => code::SYSTEM,
                };
                (code, error.to_string())
            }
        }
    }
}

/// A meter of a program, with its figures in C's form.
struct Kept {
    meter: Meter,
    shown: Shown,
}

/// All open meters, and the last handle that was given.
struct Meters {
    open: BTreeMap<usize, Arc<Lock<Kept>>>,
    last: usize,
}

static METERS: Lock<Meters> = Lock::new(Meters { open: BTreeMap::new(), last: 0 });

thread_local! {
    static LAST_ERROR: RefCell<Option<CString>> = const { RefCell::new(None) };
}

fn meters() -> Guard<'static, Meters> {
    METERS.lock()
}

/// Runs the body of a function. Keeps an error's text and returns its code, also for a panic.
fn enter(body: impl FnOnce() -> Result<(), Refusal>) -> c_int {
    let (code, text) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => (code::SUCCESS, None),
        Ok(Err(refusal)) => {
            let (code, text) = refusal.told();
            (code, Some(c_text(&text)))
        }
        Err(_) => (
            code::DEFECT,
            Some(c_text("libpenstock_energy panicked, which is a defect of the library")),
        ),
    };
    LAST_ERROR.with(|last| *last.borrow_mut() = text);
    code
}

/// Calls `body` with a meter. Blocks while another thread uses the same meter.
fn with<T>(
    meter: *mut Opaque,
    body: impl FnOnce(&mut Kept) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let kept = meters().open.get(&meter.addr()).cloned();
    let kept = kept.ok_or(Refusal::Argument("this is not an open meter"))?;
    let mut kept = kept.lock();
    body(&mut kept)
}

/// Converts an optional text of the program to a path. An empty text counts as missing.
fn path_of<'a>(text: *const c_char) -> Option<&'a Path> {
    if text.is_null() {
        return None;
    }
    // SAFETY: `text` is not null, and the header requires a C string that outlives the call.
    let text = unsafe { CStr::from_ptr(text) };
    Some(Path::new(OsStr::from_bytes(text.to_bytes()))).filter(|path| !path.as_os_str().is_empty())
}

/// Converts a time in seconds. Zero yields the default.
fn time_of(seconds: c_double, default: Duration) -> Result<Duration, Refusal> {
    if seconds == 0.0 {
        return Ok(default);
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Refusal::Argument("a time must be a number of seconds that is not negative"))
}

fn options_of(given: *const COptions) -> Result<(Options, Option<PowerModel>), Refusal> {
    if given.is_null() {
        return Ok((Options::of_process(), None));
    }
    // SAFETY: `given` is not null, and the program's structure begins with its size.
    let size = unsafe { (&raw const (*given).size).read() };
    if size < size_of::<COptions>() {
        return Err(Refusal::Argument("options.size must be sizeof(penstock_energy_options)"));
    }
    // SAFETY: the program's structure is at least as large as ours.
    let given = unsafe { given.read() };
    let mut roots = path_of(given.root).map_or_else(Roots::of_process, Roots::below);
    if let Some(nvml) = path_of(given.nvml) {
        roots.nvml = Some(nvml.to_path_buf());
    }
    let mut options = Options::with_roots(roots);
    options.interval = time_of(given.interval_s, options.interval)?;
    options.watch = time_of(given.watch_s, options.watch)?;
    options.psys = given.psys != 0;
    let model = path_of(given.power_model).map(PowerModel::read).transpose()?;
    Ok((options, model))
}

/// Finds what can be measured.
///
/// # Safety
/// `options` is null or points to the header's structure. `meter` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_energy_open(
    options: *const COptions,
    meter: *mut *mut Opaque,
) -> c_int {
    enter(|| {
        if meter.is_null() {
            return Err(Refusal::Argument("meter must not be NULL"));
        }
        let (options, model) = options_of(options)?;
        let mut opened = Meter::open(&options);
        opened.set_model(model);
        let shown = Shown::of_channels(&opened.channels());
        let kept = Arc::new(Lock::new(Kept { meter: opened, shown }));
        let mut all = meters();
        all.last += 1;
        let number = all.last;
        all.open.insert(number, kept);
        // SAFETY: `meter` is not null, and the header requires that it is valid for a write.
        unsafe { meter.write(std::ptr::without_provenance_mut(number)) };
        Ok(())
    })
}

/// Closes a meter, and ends its measurement if one runs.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_energy_close(meter: *mut Opaque) {
    enter(|| {
        let kept = meters().open.remove(&meter.addr());
        if kept.is_none() && !meter.is_null() {
            return Err(Refusal::Argument("this is not an open meter"));
        }
        Ok(())
    });
}

/// Measures idle power, and sleeps meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_energy_idle(meter: *mut Opaque, seconds: c_double) -> c_int {
    enter(|| {
        let time = time_of(seconds, Duration::ZERO)?;
        with(meter, |kept| {
            kept.meter.idle(time)?;
            // Before the first measurement, there is no report.
            if let Ok(report) = kept.meter.report() {
                kept.shown = Shown::of_report(&report);
            }
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_energy_start(meter: *mut Opaque) -> c_int {
    enter(|| with(meter, |kept| Ok(kept.meter.start()?)))
}

/// Stops the measurement and updates the figures.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_energy_stop(meter: *mut Opaque) -> c_int {
    enter(|| {
        with(meter, |kept| {
            kept.meter.stop()?;
            kept.shown = Shown::of_report(&kept.meter.report()?);
            Ok(())
        })
    })
}

/// Updates the figures without stopping the measurement.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_energy_update(meter: *mut Opaque) -> c_int {
    enter(|| {
        with(meter, |kept| {
            kept.shown = Shown::of_report(&kept.meter.report_so_far()?);
            Ok(())
        })
    })
}

/// Returns the number of figures, or 0 if the meter is invalid.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_energy_num_figures(meter: *mut Opaque) -> c_uint {
    let mut count = 0;
    enter(|| {
        count = with(meter, |kept| {
            Ok(c_uint::try_from(kept.shown.figures.len()).unwrap_or(c_uint::MAX))
        })?;
        Ok(())
    });
    count
}

/// Copies a structure to the program's, which begins with its size. An older program with a smaller
/// structure gets the part that it knows.
fn give<T: Copy>(place: *mut T, value: &T) -> Result<(), Refusal> {
    if place.is_null() {
        return Err(Refusal::Argument("the struct must not be NULL"));
    }
    // SAFETY: `place` is not null, and all structures of the header begin with their size.
    let size = unsafe { place.cast::<usize>().read() };
    if size < 2 * size_of::<usize>() {
        return Err(Refusal::Argument("the struct's size must be set to its sizeof"));
    }
    let (first, bytes) = (size_of::<usize>(), size.min(size_of::<T>()) - size_of::<usize>());
    // SAFETY: both structures have `bytes` bytes after the size, and they do not overlap.
    unsafe {
        let from = (&raw const *value).cast::<u8>().add(first);
        place.cast::<u8>().add(first).copy_from_nonoverlapping(from, bytes);
    }
    Ok(())
}

/// Returns the figure with an index.
///
/// # Safety
/// `figure` is null or points to the header's structure with its size set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_energy_get_figure(
    meter: *mut Opaque,
    index: c_uint,
    figure: *mut CFigure,
) -> c_int {
    enter(|| {
        with(meter, |kept| {
            let shown = kept.shown.figures.get(index as usize);
            give(figure, shown.ok_or(Refusal::Argument("there is no figure with this index"))?)
        })
    })
}

/// Returns the total.
///
/// # Safety
/// `total` is null or points to the header's structure with its size set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_energy_get_total(
    meter: *mut Opaque,
    total: *mut CTotal,
) -> c_int {
    enter(|| with(meter, |kept| give(total, kept.shown.total.as_ref().ok_or(NOTHING)?)))
}

/// Returns the core-seconds.
///
/// # Safety
/// `cores` is null or points to the header's structure with its size set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_energy_get_cores(
    meter: *mut Opaque,
    cores: *mut CCores,
) -> c_int {
    enter(|| with(meter, |kept| give(cores, kept.shown.cores.as_ref().ok_or(NOTHING)?)))
}

/// Returns the figures of the power model.
///
/// # Safety
/// `model` is null or points to the header's structure with its size set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_energy_get_model(
    meter: *mut Opaque,
    model: *mut CModel,
) -> c_int {
    enter(|| with(meter, |kept| give(model, kept.shown.model.as_ref().ok_or(NO_MODEL)?)))
}

const NOTHING: Refusal = Refusal::Error(Error::Order("nothing was measured yet"));
const NO_MODEL: Refusal = Refusal::Error(Error::Order(
    "nothing was measured yet, or no power model was given to penstock_energy_open",
));

/// Returns the whole report as JSON, or null if nothing was measured.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_energy_get_json(meter: *mut Opaque) -> *const c_char {
    let mut json = std::ptr::null();
    enter(|| {
        json = with(meter, |kept| Ok(kept.shown.json.as_ref().ok_or(NOTHING)?.as_ptr()))?;
        Ok(())
    });
    json
}

/// Returns the core time of a process in seconds.
///
/// # Safety
/// `seconds` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_energy_process_seconds(
    pid: u32,
    seconds: *mut c_double,
) -> c_int {
    enter(|| {
        if seconds.is_null() {
            return Err(Refusal::Argument("seconds must not be NULL"));
        }
        let time = cores::of_process(pid)?;
        // SAFETY: `seconds` is not null, and the header requires that it is valid for a write.
        unsafe { seconds.write(time.as_secs_f64()) };
        Ok(())
    })
}

/// Returns the error of this thread's last call, or null. Valid until the thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_energy_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ref().map_or(std::ptr::null(), |text| text.as_ptr()))
}
