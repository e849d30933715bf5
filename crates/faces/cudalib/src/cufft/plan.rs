//! Plans. A plan is a description: the worker makes and keeps what its library needs.

use std::ffi::c_int;
use std::sync::atomic::AtomicBool;

use penstock_cuda_sys::driver::{CUcontext, CUstream};
use penstock_process::SharedLock;
use penstock_wire::library::fft::{self, Layout, RANK_MAX, Shape};
use penstock_wire::library::{Kind, Libraries};

use super::{Code, Done};
use crate::driver::{Driver, driver};
use crate::edge::say_unserved;

/// The types of transforms: `cufftType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) form: Form,
    pub(super) is_double: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Complex,
    FromReal,
    ToReal,
}

impl Type {
    pub(super) fn of(number: c_int) -> Done<Self> {
        let (form, is_double) = match number {
            0x29 => (Form::Complex, false),
            0x2a => (Form::FromReal, false),
            0x2c => (Form::ToReal, false),
            0x69 => (Form::Complex, true),
            0x6a => (Form::FromReal, true),
            0x6c => (Form::ToReal, true),
            _ => return Err(Code::INVALID_TYPE),
        };
        Ok(Self { form, is_double })
    }
}

/// What a program has said about a transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) kind: Type,
    pub(super) rank: u8,
    pub(super) sizes: [u32; RANK_MAX],
    pub(super) batch: u32,
    /// The layouts of both sides, or `None` for that of arrays without gaps.
    pub(super) layouts: Option<[Layout; 2]>,
}

impl Description {
    /// Returns the shape of a transform in this direction. Arrays of real elements in place have
    /// room for the complex elements.
    pub(super) fn shape(&self, forward: bool, in_place: bool) -> Shape {
        let kind = match self.kind.form {
            Form::Complex => fft::Kind::Complex { forward },
            Form::FromReal => fft::Kind::FromReal,
            Form::ToReal => fft::Kind::ToReal,
        };
        let [input, output] = self.layouts.unwrap_or_else(|| {
            [
                self.basic(kind == fft::Kind::FromReal, kind == fft::Kind::ToReal, in_place),
                self.basic(kind == fft::Kind::ToReal, kind == fft::Kind::FromReal, in_place),
            ]
        });
        let Self { kind: Type { is_double, .. }, rank, sizes, batch, .. } = *self;
        Shape { kind, is_double, rank, sizes, batch, input, output }
    }

    /// Returns the layout of one side without gaps.
    fn basic(&self, is_real: bool, is_halved: bool, in_place: bool) -> Layout {
        let mut embed = self.sizes;
        if let Some(last) = embed.get_mut(usize::from(self.rank).wrapping_sub(1)) {
            let halved = *last / 2 + 1;
            if is_halved {
                *last = halved;
            } else if is_real && in_place {
                *last = 2 * halved;
            }
        }
        let count = embed.iter().take(usize::from(self.rank)).map(|size| u64::from(*size));
        // A product that overflows does not fit any operand either.
        let distance = count.fold(1_u64, u64::saturating_mul);
        Layout { embed, stride: 1, distance }
    }
}

/// A plan of a program.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) driver: &'static Driver,
    context: usize,
    stream: usize,
    /// `None` until the program has described the transform.
    pub(super) description: Option<Description>,
    is_served: bool,
}

impl Plan {
    pub(super) fn place(&self) -> (CUcontext, CUstream) {
        let context = std::ptr::with_exposed_provenance_mut(self.context);
        (context, std::ptr::with_exposed_provenance_mut(self.stream))
    }

    /// # Errors
    /// `CUFFT_NOT_SUPPORTED` if the device has no library for transforms.
    pub(super) fn check_served(&self) -> Done {
        static SAID: AtomicBool = AtomicBool::new(false);
        if self.is_served {
            return Ok(());
        }
        say_unserved(&SAID, Kind::Fft);
        Err(Code::NOT_SUPPORTED)
    }
}

/// All plans of the process, each at the index that its number names.
static PLANS: SharedLock<Vec<Option<Plan>>> = SharedLock::new(Vec::new());

/// Numbers of plans begin here, so that a plan that was never made is recognised.
const FIRST: usize = 1;

fn index(number: c_int) -> Done<usize> {
    let number = usize::try_from(number).map_err(|_| Code::INVALID_PLAN)?;
    number.checked_sub(FIRST).ok_or(Code::INVALID_PLAN)
}

/// Makes a plan without a description, and returns its number.
pub(super) fn create() -> Done<c_int> {
    let driver = driver().ok_or(Code::SETUP_FAILED)?;
    let context = driver.context().map_err(|_| Code::SETUP_FAILED)?.expose_provenance();
    let served = Libraries::from_bytes(&driver.support().to_le_bytes());
    let is_served = served.has(Kind::Fft);
    let plan = Plan { driver, context, stream: 0, description: None, is_served };
    let mut all = PLANS.write();
    let index = all.iter().position(Option::is_none).unwrap_or(all.len());
    match all.get_mut(index) {
        Some(slot) => *slot = Some(plan),
        None => all.push(Some(plan)),
    }
    c_int::try_from(index + FIRST).map_err(|_| Code::ALLOC_FAILED)
}

pub(super) fn find(number: c_int) -> Done<Plan> {
    PLANS.read().get(index(number)?).copied().flatten().ok_or(Code::INVALID_PLAN)
}

pub(super) fn destroy(number: c_int) -> Done {
    let taken = PLANS.write().get_mut(index(number)?).and_then(Option::take);
    taken.map(drop).ok_or(Code::INVALID_PLAN)
}

fn change(number: c_int, change: impl FnOnce(&mut Plan)) -> Done {
    let mut all = PLANS.write();
    let plan = all.get_mut(index(number)?).and_then(Option::as_mut).ok_or(Code::INVALID_PLAN)?;
    change(plan);
    Ok(())
}

pub(super) fn describe(number: c_int, description: Description) -> Done {
    change(number, |plan| plan.description = Some(description))
}

pub(super) fn set_stream(number: c_int, stream: CUstream) -> Done {
    change(number, |plan| plan.stream = stream.expose_provenance())
}
