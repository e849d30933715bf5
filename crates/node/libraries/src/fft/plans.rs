//! Plans that were made, so that a program that repeats a transform does not plan it again.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use penstock_wire::library::fft::{Call, Kind, Layout, Shape};
use penstock_wire::status::Status;

use super::functions::{Functions, Planned, Side};

/// Number of plans of one precision that are kept. A program has some ten shapes, and a plan of a
/// large transform has some megabytes of factors.
const PLANS_MAX: usize = 64;

/// The planner decides by rules and measures nothing. So it touches no memory.
const ESTIMATE: u32 = 1 << 6;
const UNALIGNED: u32 = 1 << 1;
const DESTROY_INPUT: u32 = 1 << 0;
const PRESERVE_INPUT: u32 = 1 << 4;

/// Alignment in bytes that vector instructions of FFTW need.
const ALIGNMENT: usize = 16;

/// A plan of FFTW.
pub(super) struct Plan(*mut c_void);

// SAFETY: FFTW's plans may be executed by several threads at the same time.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl Plan {
    pub(super) fn address(&self) -> *mut c_void {
        self.0
    }
}

/// What a plan depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    shape: Shape,
    in_place: bool,
    is_aligned: bool,
}

/// A plan that a call needs, and the memory of the call.
pub(super) struct Wanted {
    key: Key,
    input: *mut c_void,
    output: *mut c_void,
}

impl Wanted {
    pub(super) fn of(call: &Call, input: *mut c_void, output: *mut c_void) -> Self {
        let is_aligned = [input, output].iter().all(|at| at.addr().is_multiple_of(ALIGNMENT));
        let key = Key { shape: call.shape, in_place: input == output, is_aligned };
        Self { key, input, output }
    }

    fn side(&self, layout: &Layout, at: *mut c_void) -> Option<Side> {
        let mut embed = [0; 3];
        for (to, from) in embed.iter_mut().zip(layout.embed) {
            *to = c_int::try_from(from).ok()?;
        }
        let stride = c_int::try_from(layout.stride).ok()?;
        // One transform has no distance.
        let distance = if self.key.shape.batch == 1 { 0 } else { layout.distance };
        Some(Side { at, embed, stride, distance: c_int::try_from(distance).ok()? })
    }

    /// Returns the arguments of the planner, or `None` if a number exceeds those of FFTW.
    fn planned(&self) -> Option<Planned> {
        let shape = &self.key.shape;
        let mut sizes = [0; 3];
        for (to, from) in sizes.iter_mut().zip(shape.sizes()) {
            *to = c_int::try_from(*from).ok()?;
        }
        let alignment = if self.key.is_aligned { 0 } else { UNALIGNED };
        let may_overwrite = self.key.in_place || (shape.kind == Kind::ToReal && shape.rank > 1);
        let input = if may_overwrite { DESTROY_INPUT } else { PRESERVE_INPUT };
        Some(Planned {
            kind: shape.kind,
            rank: c_int::from(shape.rank),
            sizes,
            batch: c_int::try_from(shape.batch).ok()?,
            input: self.side(&shape.input, self.input)?,
            output: self.side(&shape.output, self.output)?,
            flags: ESTIMATE | alignment | input,
        })
    }
}

/// The plans that were used last, the latest one at the end.
#[derive(Default)]
pub(super) struct Plans(Vec<(Key, Arc<Plan>)>);

impl Plans {
    /// Returns a plan. The caller holds the lock of the planner.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` if FFTW cannot plan the transform.
    pub(super) fn get(
        &mut self,
        functions: &Functions,
        wanted: &Wanted,
    ) -> Result<Arc<Plan>, Status> {
        if let Some(at) = self.0.iter().position(|(key, _)| *key == wanted.key) {
            let found = self.0.remove(at);
            let plan = found.1.clone();
            self.0.push(found);
            return Ok(plan);
        }
        let planned = wanted.planned().ok_or(Status::INVALID_OPERATION)?;
        // SAFETY: the operands of the call have all elements of the transform.
        let plan = unsafe { functions.plan(&planned) };
        if plan.is_null() {
            return Err(Status::INVALID_OPERATION);
        }
        self.forget_one(functions);
        let plan = Arc::new(Plan(plan));
        self.0.push((wanted.key, plan.clone()));
        Ok(plan)
    }

    /// Destroys the plan that was used longest ago, if there are too many. Plans that are being
    /// executed stay.
    fn forget_one(&mut self, functions: &Functions) {
        if self.0.len() < PLANS_MAX {
            return;
        }
        let idle = self.0.iter_mut().position(|(_, plan)| Arc::get_mut(plan).is_some());
        if let Some(at) = idle {
            let (_, plan) = self.0.remove(at);
            // SAFETY: this was the last reference, and the caller holds the lock of the planner.
            unsafe { functions.destroy(plan.address()) };
        }
    }
}
