//! The functions of `penstock_energy.h`. The only place that knows C's side of this library, and where errors become codes.
//!
//! Handles are numbers that were never given before, so one that was closed, or never was one, is found out and never followed.

mod shown;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, c_char, c_double, c_int, c_uint};
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cores;
use crate::error::Error;
use crate::meter::Meter;
use crate::model::PowerModel;
use crate::options::{Options, Roots};
use shown::{CCores, CFigure, CModel, CTotal, Shown, c_text};

/// Codes of the header.
mod code {
    pub(super) const SUCCESS: i32 = 0;
    pub(super) const INVALID: i32 = -21001;
    pub(super) const ORDER: i32 = -21002;
    pub(super) const SYSTEM: i32 = -21003;
    pub(super) const MODEL: i32 = -21004;
    pub(super) const DEFECT: i32 = -21005;
}

/// What handles point to, as far as C knows.
#[repr(C)]
#[derive(Debug)]
pub struct Opaque {
    _private: [u8; 0],
}

/// `penstock_energy_options`.
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

/// What the program did wrong, or what failed.
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

/// A meter of a program, and its figures in C's form.
struct Kept {
    meter: Meter,
    shown: Shown,
}

/// All meters that are open, and the last number that was given.
struct Meters {
    open: BTreeMap<usize, Arc<Mutex<Kept>>>,
    last: usize,
}

static METERS: Mutex<Meters> = Mutex::new(Meters { open: BTreeMap::new(), last: 0 });

thread_local! {
    static LAST_ERROR: RefCell<Option<CString>> = const { RefCell::new(None) };
}

fn meters() -> MutexGuard<'static, Meters> {
    METERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the body of a function. Its error becomes a code and a text; a panic, which would be a defect of ours, does not unwind into C.
fn enter(body: impl FnOnce() -> Result<(), Refusal>) -> c_int {
    let (code, text) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => (code::SUCCESS, None),
        Ok(Err(refusal)) => {
            let (code, text) = refusal.told();
            (code, Some(c_text(&text)))
        }
        Err(_) => (code::DEFECT, Some(c_text("libpenstock_energy has a defect: it panicked here"))),
    };
    LAST_ERROR.with(|last| *last.borrow_mut() = text);
    code
}

/// Does something with a meter. Others with the same meter wait; those with other meters do not.
fn with<T>(
    meter: *mut Opaque,
    body: impl FnOnce(&mut Kept) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let kept = meters().open.get(&meter.addr()).cloned();
    let kept = kept.ok_or(Refusal::Argument("this is no meter that is open"))?;
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    body(&mut kept)
}

/// A text of the program that may be missing.
fn path_of<'a>(text: *const c_char) -> Option<&'a Path> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null; a text that ends with a NUL and stays during the call is what the header asks for.
    let text = unsafe { CStr::from_ptr(text) };
    Some(Path::new(OsStr::from_bytes(text.to_bytes()))).filter(|path| !path.as_os_str().is_empty())
}

/// A time of the program in seconds; 0 is the default.
fn time_of(seconds: c_double, default: Duration) -> Result<Duration, Refusal> {
    if seconds == 0.0 {
        return Ok(default);
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Refusal::Argument("a time must be a number of seconds, not negative"))
}

fn options_of(given: *const COptions) -> Result<(Options, Option<PowerModel>), Refusal> {
    if given.is_null() {
        return Ok((Options::of_process(), None));
    }
    // SAFETY: not null; the program's struct begins with its size.
    let size = unsafe { (&raw const (*given).size).read() };
    if size < size_of::<COptions>() {
        return Err(Refusal::Argument("options.size must be sizeof(penstock_energy_options)"));
    }
    // SAFETY: the program's struct is at least as large as ours.
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
/// `options` is `NULL` or leads to the struct of the header; `meter` leads to a place for a pointer.
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
        let kept = Arc::new(Mutex::new(Kept { meter: opened, shown }));
        let mut all = meters();
        all.last += 1;
        let number = all.last;
        all.open.insert(number, kept);
        // SAFETY: not null; that it leads to a place for a pointer is what the header asks for.
        unsafe { meter.write(std::ptr::without_provenance_mut(number)) };
        Ok(())
    })
}

/// Closes a meter. A measurement that runs ends.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_energy_close(meter: *mut Opaque) {
    enter(|| {
        let kept = meters().open.remove(&meter.addr());
        if kept.is_none() && !meter.is_null() {
            return Err(Refusal::Argument("this is no meter that is open"));
        }
        Ok(())
    });
}

/// Measures idle power.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_energy_idle(meter: *mut Opaque, seconds: c_double) -> c_int {
    enter(|| {
        let time = time_of(seconds, Duration::ZERO)?;
        with(meter, |kept| {
            kept.meter.idle(time)?;
            // Before the start there is nothing to show yet.
            if let Ok(report) = kept.meter.report() {
                kept.shown = Shown::of_report(&report);
            }
            Ok(())
        })
    })
}

/// Starts.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_energy_start(meter: *mut Opaque) -> c_int {
    enter(|| with(meter, |kept| Ok(kept.meter.start()?)))
}

/// Stops.
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

/// The figures from the start to now.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_energy_update(meter: *mut Opaque) -> c_int {
    enter(|| {
        with(meter, |kept| {
            kept.shown = Shown::of_report(&kept.meter.report_so_far()?);
            Ok(())
        })
    })
}

/// How many figures there are; 0 for what is no meter.
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

/// Copies a struct into the program's, which says first how large it is. An older program has less place: it gets what it knows.
fn give<T: Copy>(place: *mut T, value: &T) -> Result<(), Refusal> {
    if place.is_null() {
        return Err(Refusal::Argument("the struct must not be NULL"));
    }
    // SAFETY: not null; all structs of the header begin with their size.
    let size = unsafe { place.cast::<usize>().read() };
    if size < 2 * size_of::<usize>() {
        return Err(Refusal::Argument("the struct's size must be set to its sizeof"));
    }
    let (first, bytes) = (size_of::<usize>(), size.min(size_of::<T>()) - size_of::<usize>());
    // SAFETY: `bytes` behind the size are both in the program's struct and in ours, which do not overlap.
    unsafe {
        let from = (&raw const *value).cast::<u8>().add(first);
        place.cast::<u8>().add(first).copy_from_nonoverlapping(from, bytes);
    }
    Ok(())
}

/// One figure.
///
/// # Safety
/// `figure` leads to the struct of the header, whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_energy_get_figure(
    meter: *mut Opaque,
    index: c_uint,
    figure: *mut CFigure,
) -> c_int {
    enter(|| {
        with(meter, |kept| {
            let shown = kept.shown.figures.get(index as usize);
            give(figure, shown.ok_or(Refusal::Argument("there is no figure of this index"))?)
        })
    })
}

/// The total.
///
/// # Safety
/// `total` leads to the struct of the header, whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_energy_get_total(
    meter: *mut Opaque,
    total: *mut CTotal,
) -> c_int {
    enter(|| with(meter, |kept| give(total, kept.shown.total.as_ref().ok_or(NOTHING)?)))
}

/// Core-seconds.
///
/// # Safety
/// `cores` leads to the struct of the header, whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_energy_get_cores(
    meter: *mut Opaque,
    cores: *mut CCores,
) -> c_int {
    enter(|| with(meter, |kept| give(cores, kept.shown.cores.as_ref().ok_or(NOTHING)?)))
}

/// What the power model says.
///
/// # Safety
/// `model` leads to the struct of the header, whose size is set.
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

/// All of it as JSON.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_energy_get_json(meter: *mut Opaque) -> *const c_char {
    let mut json = std::ptr::null();
    enter(|| {
        json = with(meter, |kept| Ok(kept.shown.json.as_ref().ok_or(NOTHING)?.as_ptr()))?;
        Ok(())
    });
    json
}

/// Core time of a process.
///
/// # Safety
/// `seconds` leads to a place for a number.
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
        // SAFETY: not null; that it leads to a place for a number is what the header asks for.
        unsafe { seconds.write(time.as_secs_f64()) };
        Ok(())
    })
}

/// What went wrong in this thread's last call.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_energy_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ref().map_or(std::ptr::null(), |text| text.as_ptr()))
}
