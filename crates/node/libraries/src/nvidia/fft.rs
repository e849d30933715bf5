//! cuFFT: a plan for each shape, which is kept with the stream that uses it. All plans of a stream
//! work in one area of device memory, because a stream runs one transform at a time.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use libloading::os::unix::Library;
use penstock_wire::library::LibraryCall;
use penstock_wire::library::fft::{Kind, Layout, Shape};
use penstock_wire::status::Status;

use super::address_of;
use super::find::{self, CUFFT};

/// Number of plans that a stream keeps. A program has some ten shapes, and a plan has tables on the
/// device.
const PLANS_MAX: usize = 16;

type Exec = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void) -> c_int;
type ExecWithDirection = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void, c_int) -> c_int;
#[rustfmt::skip]
type MakePlan = unsafe extern "C" fn(
    c_int, c_int, *mut i64, *mut i64, i64, i64, *mut i64, i64, i64, c_int, i64, *mut usize,
) -> c_int;

/// cuFFT, opened. Pairs are in single and in double precision.
struct Cufft {
    create: unsafe extern "C" fn(*mut c_int) -> c_int,
    make: MakePlan,
    set_stream: unsafe extern "C" fn(c_int, *mut c_void) -> c_int,
    set_auto_allocation: unsafe extern "C" fn(c_int, c_int) -> c_int,
    set_work_area: unsafe extern "C" fn(c_int, *mut c_void) -> c_int,
    destroy: unsafe extern "C" fn(c_int) -> c_int,
    complex: [ExecWithDirection; 2],
    from_real: [Exec; 2],
    to_real: [Exec; 2],
}

fn opened(driver_version: u32) -> Option<&'static Cufft> {
    static OPENED: OnceLock<Option<Cufft>> = OnceLock::new();
    let open = || load(find::open(&CUFFT.find(driver_version)?)?);
    OPENED.get_or_init(open).as_ref()
}

fn load(library: &'static Library) -> Option<Cufft> {
    // SAFETY: `cufft.h` declares the functions of these names with the types of the fields.
    unsafe {
        Some(Cufft {
            create: find::get(library, c"cufftCreate")?,
            make: find::get(library, c"cufftMakePlanMany64")?,
            set_stream: find::get(library, c"cufftSetStream")?,
            set_auto_allocation: find::get(library, c"cufftSetAutoAllocation")?,
            set_work_area: find::get(library, c"cufftSetWorkArea")?,
            destroy: find::get(library, c"cufftDestroy")?,
            complex: [find::get(library, c"cufftExecC2C")?, find::get(library, c"cufftExecZ2Z")?],
            from_real: [find::get(library, c"cufftExecR2C")?, find::get(library, c"cufftExecD2Z")?],
            to_real: [find::get(library, c"cufftExecC2R")?, find::get(library, c"cufftExecZ2D")?],
        })
    }
}

/// What the owner of a stream does for its plans.
pub trait Ground {
    /// Returns the address of at least this much device memory. The address may differ from that
    /// of the call before. Transforms that the stream already has keep their memory until they have
    /// ended.
    ///
    /// # Errors
    /// The error of the allocation.
    fn area(&mut self, bytes: usize) -> Result<u64, Status>;

    /// Drops a plan, in the stream's context, when the device has finished its transforms. It must
    /// not wait for them: the end of a plan waits for the device, whose kernels may wait for the
    /// caller.
    fn retire(&mut self, plan: Plan);
}

/// The plans of one stream, the one used last at the end.
pub struct Plans {
    cufft: &'static Cufft,
    stream: *mut c_void,
    list: Vec<(Shape, Plan)>,
}

// SAFETY: a stream is only an address here, and any thread may use it in its context.
unsafe impl Send for Plans {}

/// A plan of cuFFT.
pub struct Plan {
    cufft: &'static Cufft,
    number: c_int,
    /// Bytes of the area in which its transforms work.
    needs: usize,
    /// Address of the area, 0 before it has one.
    area: u64,
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: the plan is this object's. Its transforms have ended, see `Ground`.
        _ = checked_fft("cufftDestroy", unsafe { (self.cufft.destroy)(self.number) });
    }
}

impl Plans {
    /// Makes the place for the plans of a stream.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` if cuFFT is not there.
    ///
    /// # Safety
    /// As [`Handle::new`](super::Handle::new).
    pub unsafe fn new(driver_version: u32, stream: *mut c_void) -> Result<Self, Status> {
        let cufft = opened(driver_version).ok_or(Status::INVALID_OPERATION)?;
        Ok(Self { cufft, stream, list: Vec::new() })
    }

    /// Enqueues a transform.
    ///
    /// # Errors
    /// The error of cuFFT.
    ///
    /// # Safety
    /// As [`Handle::call`](super::Handle::call).
    pub unsafe fn call(
        &mut self,
        call: &LibraryCall,
        addresses: &[u64],
        ground: &mut dyn Ground,
    ) -> Result<(), Status> {
        let LibraryCall::Fft(call) = call else { return Err(Status::INVALID_OPERATION) };
        let input = address_of(addresses, call.input)?;
        let output = call.output.map_or(Ok(input), |place| address_of(addresses, place))?;
        let (cufft, shape) = (self.cufft, call.shape);
        let (plan, precision) = (self.plan(&shape, ground)?, usize::from(shape.is_double));
        // SAFETY: the plan lives, and the caller promises the memory.
        let code = unsafe {
            match shape.kind {
                Kind::Complex { forward } => {
                    let direction = if forward { -1 } else { 1 };
                    (cufft.complex[precision])(plan, input, output, direction)
                }
                Kind::FromReal => (cufft.from_real[precision])(plan, input, output),
                Kind::ToReal => (cufft.to_real[precision])(plan, input, output),
            }
        };
        checked_fft("cufftExec", code)
    }

    /// Returns the plan of a shape, with an area.
    fn plan(&mut self, shape: &Shape, ground: &mut dyn Ground) -> Result<c_int, Status> {
        if let Some(at) = self.list.iter().position(|(known, _)| known == shape) {
            let known = self.list.remove(at);
            self.list.push(known);
        } else {
            let mut plan = Plan::new(self.cufft)?;
            if let Err(status) = plan.make(shape, self.stream) {
                ground.retire(plan);
                return Err(status);
            }
            if self.list.len() == PLANS_MAX {
                ground.retire(self.list.remove(0).1);
            }
            self.list.push((*shape, plan));
        }
        let (_, plan) = self.list.last_mut().ok_or(Status::OUT_OF_RESOURCES)?;
        plan.enter(ground)?;
        Ok(plan.number)
    }
}

impl Plan {
    fn new(cufft: &'static Cufft) -> Result<Self, Status> {
        let mut number = 0;
        // SAFETY: the output location outlives the call.
        checked_fft("cufftCreate", unsafe { (cufft.create)(&raw mut number) })?;
        Ok(Self { cufft, number, needs: 0, area: 0 })
    }

    /// Has the next transforms work in the stream's area.
    fn enter(&mut self, ground: &mut dyn Ground) -> Result<(), Status> {
        if self.needs == 0 {
            return Ok(());
        }
        let area = ground.area(self.needs)?;
        if area != self.area {
            let start = usize::try_from(area).map_err(|_| Status::INVALID_VALUE)?;
            let start = std::ptr::without_provenance_mut(start);
            // SAFETY: the plan lives, and the area has the bytes that the plan has asked for.
            let code = unsafe { (self.cufft.set_work_area)(self.number, start) };
            checked_fft("cufftSetWorkArea", code)?;
            self.area = area;
        }
        Ok(())
    }

    #[rustfmt::skip]
    fn make(&mut self, shape: &Shape, stream: *mut c_void) -> Result<(), Status> {
        let number = self.number;
        // Memory that cuFFT allocates counts for no client.
        // SAFETY: the plan lives.
        let code = unsafe { (self.cufft.set_auto_allocation)(number, 0) };
        checked_fft("cufftSetAutoAllocation", code)?;
        let mut sizes = shape.sizes.map(i64::from);
        let embeds = [&shape.input, &shape.output].map(|side| side.embed.map(i64::from));
        let [mut from, mut to] = embeds;
        let apart = |side: &Layout| {
            let distance = i64::try_from(side.distance).map_err(|_| Status::INVALID_VALUE)?;
            Ok((i64::from(side.stride), distance))
        };
        let ((stride_in, far_in), (stride_out, far_out)) =
            (apart(&shape.input)?, apart(&shape.output)?);
        // SAFETY: the arrays have as many sizes as the largest rank. The others are values.
        let code = unsafe {
            (self.cufft.make)(
                number, shape.rank.into(), sizes.as_mut_ptr(),
                from.as_mut_ptr(), stride_in, far_in, to.as_mut_ptr(), stride_out, far_out,
                kind_of(shape), shape.batch.into(), &raw mut self.needs,
            )
        };
        checked_fft("cufftMakePlanMany64", code)?;
        // SAFETY: the plan was made above, and the caller of `Plans::new` promised the stream.
        let code = unsafe { (self.cufft.set_stream)(number, stream) };
        checked_fft("cufftSetStream", code)
    }
}

/// Returns the `cufftType` of a shape.
const fn kind_of(shape: &Shape) -> c_int {
    match (shape.kind, shape.is_double) {
        (Kind::FromReal, false) => 0x2a,
        (Kind::ToReal, false) => 0x2c,
        (Kind::Complex { .. }, false) => 0x29,
        (Kind::FromReal, true) => 0x6a,
        (Kind::ToReal, true) => 0x6c,
        (Kind::Complex { .. }, true) => 0x69,
    }
}

/// Translates a code of cuFFT.
fn checked_fft(what: &str, code: c_int) -> Result<(), Status> {
    match code {
        0 => Ok(()),
        // CUFFT_ALLOC_FAILED
        2 => Err(Status::MEM_OBJECT_ALLOCATION_FAILURE),
        // CUFFT_INVALID_VALUE and CUFFT_INVALID_SIZE
        4 | 8 => Err(Status::INVALID_VALUE),
        // CUFFT_NOT_SUPPORTED
        16 => Err(Status::INVALID_OPERATION),
        _ => Err(Status::OUT_OF_RESOURCES),
    }
    .inspect_err(|_| super::tell(what, code))
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("needs", &self.needs).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Plans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plans").field("count", &self.list.len()).finish_non_exhaustive()
    }
}
