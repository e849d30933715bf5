//! How a program describes a transform.

use std::ffi::{c_int, c_longlong};

use penstock_wire::library::fft::{Layout, RANK_MAX};

use super::plan::{self, Description, Type};
use super::{Code, Done, run};
use crate::edge::store;

/// The numbers of `cufftPlanMany`, in 64 bits.
struct Many {
    sizes: Vec<i64>,
    /// Embedding, stride and distance of both sides, or `None` if the program gave no embedding.
    layouts: Option<[SideNumbers; 2]>,
    batch: i64,
}

/// The numbers for one side of a transform.
struct SideNumbers {
    embed: Vec<i64>,
    stride: i64,
    distance: i64,
}

/// Converts a size of a transform, which must be positive.
fn positive(value: i64) -> Done<u32> {
    let size = i32::try_from(value).ok().filter(|size| *size > 0);
    size.map(i32::unsigned_abs).ok_or(Code::INVALID_SIZE)
}

fn three(values: &[i64]) -> Done<[u32; RANK_MAX]> {
    let mut all = [0; RANK_MAX];
    if values.is_empty() || values.len() > RANK_MAX {
        return Err(Code::INVALID_SIZE);
    }
    for (to, from) in all.iter_mut().zip(values) {
        *to = positive(*from)?;
    }
    Ok(all)
}

impl Many {
    fn described(&self, kind: c_int) -> Done<Description> {
        let layout = |SideNumbers { embed, stride, distance }: &SideNumbers| {
            Ok(Layout {
                embed: three(embed)?,
                stride: positive(*stride)?,
                distance: u64::try_from(*distance).map_err(|_| Code::INVALID_VALUE)?,
            })
        };
        let layouts = match &self.layouts {
            Some([input, output]) => Some([layout(input)?, layout(output)?]),
            None => None,
        };
        let description = Description {
            kind: Type::of(kind)?,
            sizes: three(&self.sizes)?,
            rank: u8::try_from(self.sizes.len()).map_err(|_| Code::INVALID_SIZE)?,
            batch: positive(self.batch)?,
            layouts,
        };
        // Embeddings that are too small are refused now, and not when the plan is used.
        let shape = description.shape(true, false);
        shape.bytes(true).and_then(|_| shape.bytes(false)).map_err(|_| Code::INVALID_SIZE)?;
        Ok(description)
    }
}

/// Stores the number of bytes of device memory that a plan needs. The libraries have their own.
fn store_size(to: *mut usize) {
    // SAFETY: the program promises that the place is null or writable.
    _ = unsafe { store(to, 0) };
}

fn make(number: c_int, many: &Many, kind: c_int, size: *mut usize) -> Done {
    plan::find(number)?;
    plan::describe(number, many.described(kind)?)?;
    store_size(size);
    Ok(())
}

/// Makes a plan with its description.
fn make_new(to: *mut c_int, many: &Many, kind: c_int) -> Done {
    if to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let description = many.described(kind)?;
    let number = plan::create()?;
    plan::describe(number, description)?;
    // SAFETY: the program promises that the place is writable.
    _ = unsafe { store(to, number) };
    Ok(())
}

fn simple(sizes: &[c_int], batch: c_int) -> Many {
    let sizes = sizes.iter().map(|size| i64::from(*size)).collect();
    Many { sizes, layouts: None, batch: batch.into() }
}

/// Reads a list of numbers of a program.
///
/// # Safety
/// `list` is null or has `count` numbers.
unsafe fn list<T: Copy + Into<i64>>(list: *const T, count: usize) -> Vec<i64> {
    // SAFETY: the caller promises the numbers.
    (0..count).map(|index| unsafe { list.add(index).read_unaligned() }.into()).collect()
}

/// One side as a program describes it: embedding, stride, distance.
struct ProgramSide<T>(*const T, i64, i64);

/// # Safety
/// The lists are null or have `rank` numbers.
unsafe fn many<T: Copy + Into<i64>>(
    rank: c_int,
    sizes: *const T,
    sides: [ProgramSide<T>; 2],
    batch: i64,
) -> Done<Many> {
    let rank = usize::try_from(rank).ok().filter(|rank| (1..=RANK_MAX).contains(rank));
    let rank = rank.ok_or(Code::INVALID_VALUE)?;
    if sizes.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // "If inembed and onembed are set to NULL, all other stride information is ignored."
    let is_basic = sides.iter().any(|side| side.0.is_null());
    let numbers = |side: ProgramSide<T>| SideNumbers {
        // SAFETY: the caller promises the lists, and none is null where this is called.
        embed: unsafe { list(side.0, rank) },
        stride: side.1,
        distance: side.2,
    };
    let layouts = (!is_basic).then(|| sides.map(numbers));
    // SAFETY: as above.
    Ok(Many { sizes: unsafe { list(sizes, rank) }, layouts, batch })
}

/// # Safety
/// `to` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftCreate(to: *mut c_int) -> c_int {
    run(|| {
        if to.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the program promises that the place is writable.
        _ = unsafe { store(to, plan::create()?) };
        Ok(())
    })
}

/// Defines the functions for one number of dimensions: a new plan, a description of a plan, and
/// the sizes.
macro_rules! dimensions {
    ($(
        $new:ident $make:ident $get:ident $estimate:ident
        ($($size:ident),+) ($($batch:ident)?);
    )+) => {$(
        /// # Safety
        /// `plan` is null or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $new(
            plan: *mut c_int, $($size: c_int,)+ kind: c_int, $($batch: c_int,)?
        ) -> c_int {
            run(|| make_new(plan, &simple(&[$($size),+], dimensions!(@ $($batch)?)), kind))
        }

        /// # Safety
        /// `bytes` is null or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $make(
            plan: c_int, $($size: c_int,)+ kind: c_int, $($batch: c_int,)? bytes: *mut usize,
        ) -> c_int {
            run(|| make(plan, &simple(&[$($size),+], dimensions!(@ $($batch)?)), kind, bytes))
        }

        /// # Safety
        /// `bytes` is null or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(
            plan: c_int, $($size: c_int,)+ kind: c_int, $($batch: c_int,)? bytes: *mut usize,
        ) -> c_int {
            run(|| {
                plan::find(plan)?;
                simple(&[$($size),+], dimensions!(@ $($batch)?)).described(kind)?;
                store_size(bytes);
                Ok(())
            })
        }

        /// # Safety
        /// `bytes` is null or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $estimate(
            $($size: c_int,)+ kind: c_int, $($batch: c_int,)? bytes: *mut usize,
        ) -> c_int {
            run(|| {
                simple(&[$($size),+], dimensions!(@ $($batch)?)).described(kind)?;
                store_size(bytes);
                Ok(())
            })
        }
    )+};
    (@) => { 1 };
    (@ $batch:ident) => { $batch };
}

dimensions! {
    cufftPlan1d cufftMakePlan1d cufftGetSize1d cufftEstimate1d (x) (batch);
    cufftPlan2d cufftMakePlan2d cufftGetSize2d cufftEstimate2d (x, y) ();
    cufftPlan3d cufftMakePlan3d cufftGetSize3d cufftEstimate3d (x, y, z) ();
}

/// Defines the functions with strides. `$($first)*` are the parameters before the rank.
macro_rules! strided {
    ($(
        $name:ident $type:ident ($($first:ident: $first_type:ty)?) ($($bytes:ident)?) $then:expr;
    )+) => {$(
        /// # Safety
        /// The lists are null or have `rank` numbers. Places are null or writable.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "C's shape")]
        pub unsafe extern "C" fn $name(
            $($first: $first_type,)?
            rank: c_int,
            sizes: *const $type,
            inembed: *const $type,
            istride: $type,
            idist: $type,
            onembed: *const $type,
            ostride: $type,
            odist: $type,
            kind: c_int,
            batch: $type,
            $($bytes: *mut usize,)?
        ) -> c_int {
            run(|| {
                let input = ProgramSide(inembed, istride.into(), idist.into());
                let output = ProgramSide(onembed, ostride.into(), odist.into());
                // SAFETY: the program promises the lists.
                let many = unsafe { many(rank, sizes, [input, output], batch.into()) }?;
                #[allow(clippy::redundant_closure_call, reason = "the forms differ only here")]
                ($then)($($first,)? many, kind, $($bytes,)?)
            })
        }
    )+};
}

fn only_size(many: &Many, kind: c_int, bytes: *mut usize) -> Done {
    many.described(kind)?;
    store_size(bytes);
    Ok(())
}

strided! {
    cufftPlanMany c_int (plan: *mut c_int) () |plan, many, kind| make_new(plan, &many, kind);
    cufftMakePlanMany c_int (plan: c_int) (bytes)
        |plan, many, kind, bytes| make(plan, &many, kind, bytes);
    cufftMakePlanMany64 c_longlong (plan: c_int) (bytes)
        |plan, many, kind, bytes| make(plan, &many, kind, bytes);
    cufftGetSizeMany c_int (plan: c_int) (bytes)
        |plan, many: Many, kind, bytes| plan::find(plan).and_then(|_| only_size(&many, kind,
            bytes));
    cufftGetSizeMany64 c_longlong (plan: c_int) (bytes)
        |plan, many: Many, kind, bytes| plan::find(plan).and_then(|_| only_size(&many, kind,
            bytes));
    cufftEstimateMany c_int () (bytes) |many: Many, kind, bytes| only_size(&many, kind, bytes);
}

/// # Safety
/// `bytes` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftGetSize(plan: c_int, bytes: *mut usize) -> c_int {
    run(|| {
        plan::find(plan)?.description.ok_or(Code::INVALID_PLAN)?;
        store_size(bytes);
        Ok(())
    })
}
