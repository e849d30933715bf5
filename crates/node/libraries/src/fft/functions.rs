//! The functions of FFTW, found by name.

use std::ffi::{CString, c_int, c_uint, c_void};

use libloading::os::unix::Library;
use penstock_wire::library::fft::Kind;

use super::plans::Plan;

type Address = *mut c_void;

/// Defines the type of a planner. That for complex transforms has a sign, too.
macro_rules! planner {
    ($(#[$doc:meta])* $name:ident $($sign:ty)?) => {
        $(#[$doc])*
        type $name = unsafe extern "C" fn(
            c_int,
            *const c_int,
            c_int,
            Address,
            *const c_int,
            c_int,
            c_int,
            Address,
            *const c_int,
            c_int,
            c_int,
            $($sign,)?
            c_uint,
        ) -> Address;
    };
}

planner! {
    /// `fftw_plan_many_dft`.
    PlanComplex c_int
}
planner! {
    /// `fftw_plan_many_dft_r2c` and `fftw_plan_many_dft_c2r`.
    PlanReal
}

/// Calls a planner.
macro_rules! plan {
    ($planner:expr, $it:ident $(, $sign:expr)?) => {
        $planner(
            $it.rank,
            $it.sizes.as_ptr(),
            $it.batch,
            $it.input.at,
            $it.input.embed.as_ptr(),
            $it.input.stride,
            $it.input.distance,
            $it.output.at,
            $it.output.embed.as_ptr(),
            $it.output.stride,
            $it.output.distance,
            $($sign,)?
            $it.flags,
        )
    };
}

type Execute = unsafe extern "C" fn(Address, Address, Address);

/// The functions of one precision.
pub(super) struct Functions {
    init_threads: unsafe extern "C" fn() -> c_int,
    plan_with_threads: unsafe extern "C" fn(c_int),
    plan_complex: PlanComplex,
    plan_from_real: PlanReal,
    plan_to_real: PlanReal,
    execute_complex: Execute,
    execute_from_real: Execute,
    execute_to_real: Execute,
    destroy: unsafe extern "C" fn(Address),
}

/// One side of a transform, in the numbers of FFTW.
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) at: Address,
    pub(super) embed: [c_int; 3],
    pub(super) stride: c_int,
    pub(super) distance: c_int,
}

/// The arguments of the planner.
pub(super) struct Planned {
    pub(super) kind: Kind,
    pub(super) rank: c_int,
    pub(super) sizes: [c_int; 3],
    pub(super) batch: c_int,
    pub(super) input: Side,
    pub(super) output: Side,
    pub(super) flags: c_uint,
}

const FORWARD: c_int = -1;
const BACKWARD: c_int = 1;

impl Functions {
    pub(super) fn of(library: &Library, prefix: &str) -> Option<Self> {
        fn find<T: Copy>(library: &Library, prefix: &str, name: &str) -> Option<T> {
            let name = CString::new(format!("{prefix}{name}")).ok()?;
            // SAFETY: the fields of `Functions` have the types that FFTW's header declares.
            unsafe { library.get::<T>(name.as_bytes_with_nul()) }.ok().map(|symbol| *symbol)
        }
        Some(Self {
            init_threads: find(library, prefix, "init_threads")?,
            plan_with_threads: find(library, prefix, "plan_with_nthreads")?,
            plan_complex: find(library, prefix, "plan_many_dft")?,
            plan_from_real: find(library, prefix, "plan_many_dft_r2c")?,
            plan_to_real: find(library, prefix, "plan_many_dft_c2r")?,
            execute_complex: find(library, prefix, "execute_dft")?,
            execute_from_real: find(library, prefix, "execute_dft_r2c")?,
            execute_to_real: find(library, prefix, "execute_dft_c2r")?,
            destroy: find(library, prefix, "destroy_plan")?,
        })
    }

    /// Lets later plans use threads. Called once, before any plan is made.
    pub(super) fn start_threads(&self, count: c_int) -> Option<()> {
        // SAFETY: no other function of the library has been called.
        if unsafe { (self.init_threads)() } == 0 {
            return None;
        }
        // SAFETY: the part for threads has been initialised.
        unsafe { (self.plan_with_threads)(count) };
        Some(())
    }

    /// Makes a plan, or returns null. Only one thread may do so at a time.
    ///
    /// # Safety
    /// The memory at both sides has all elements of the transform.
    pub(super) unsafe fn plan(&self, it: &Planned) -> Address {
        match it.kind {
            Kind::Complex { forward } => {
                let sign = if forward { FORWARD } else { BACKWARD };
                // SAFETY: the caller promises the memory; the lists have `rank` entries.
                unsafe { plan!((self.plan_complex), it, sign) }
            }
            // SAFETY: as above.
            Kind::FromReal => unsafe { plan!((self.plan_from_real), it) },
            // SAFETY: as above.
            Kind::ToReal => unsafe { plan!((self.plan_to_real), it) },
        }
    }

    /// # Safety
    /// The plan was made for this kind and for memory of this layout and alignment.
    pub(super) unsafe fn execute(&self, plan: &Plan, kind: Kind, input: Address, output: Address) {
        let execute = match kind {
            Kind::Complex { .. } => self.execute_complex,
            Kind::FromReal => self.execute_from_real,
            Kind::ToReal => self.execute_to_real,
        };
        // SAFETY: the caller promises that plan and memory fit.
        unsafe { execute(plan.address(), input, output) }
    }

    /// # Safety
    /// Nobody executes the plan any more, and no other thread uses the planner.
    pub(super) unsafe fn destroy(&self, plan: Address) {
        // SAFETY: the caller promises that nobody uses the plan.
        unsafe { (self.destroy)(plan) }
    }
}
