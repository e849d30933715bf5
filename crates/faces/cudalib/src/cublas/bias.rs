//! A bias of cuBLASLt: a vector that is added to each column of a matrix. This is a product, too:
//! the vector times one, in a batch of columns.

use std::ffi::c_int;

use penstock_process::Lock;
use penstock_wire::library::blas::Batch;

use super::copies::upload;
use super::handle::checked;
use super::products::{C_32F, C_64F, Product, R_16BF, R_16F, R_32F, R_64F, mixed};
use super::task::{Task, size};
use super::{Code, Done, Ptr};
use crate::driver::{Driver, driver};

/// The types of elements that have a one.
const KINDS: [c_int; 6] = [R_32F, R_64F, R_16F, C_32F, C_64F, R_16BF];
/// Bytes of the largest element. All ones in device memory have this distance.
const ELEMENT_BYTES: usize = 16;

/// The number one in the type of an element, as it lies in memory.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub(super) struct One([u8; ELEMENT_BYTES]);

impl One {
    /// Returns the one of a `cudaDataType`.
    pub(super) fn of(kind: c_int) -> Self {
        let bits: u64 = match kind {
            R_64F | C_64F => 1_f64.to_bits(),
            R_16F => 0x3c00,
            R_16BF => 0x3f80,
            // The imaginary part of a complex number is zero.
            _ => 1_f32.to_bits().into(),
        };
        let mut bytes = [0; ELEMENT_BYTES];
        bytes[..8].copy_from_slice(&bits.to_le_bytes());
        Self(bytes)
    }

    pub(super) fn address(&self) -> Ptr {
        (&raw const self.0).cast()
    }
}

/// Makes the ones of the current context, before a stream may be captured.
pub(super) fn prepare() -> Done {
    one_on_device(R_32F).map(drop)
}

/// Returns the address of a one in the memory of the current context's device. The memory ends with
/// the context.
fn one_on_device(kind: c_int) -> Done<Ptr> {
    static ONES: Lock<Vec<(usize, u64)>> = Lock::new(Vec::new());
    let index = KINDS.iter().position(|it| *it == kind).ok_or(Code::NOT_SUPPORTED)?;
    let driver = driver().ok_or(Code::NOT_INITIALIZED)?;
    let context = driver.context().map_err(|_| Code::NOT_INITIALIZED)?.addr();
    let mut ones = ONES.lock();
    let known = ones.iter().find(|(of, _)| *of == context).map(|(_, address)| *address);
    let start = match known {
        Some(address) => address,
        None => {
            let address = allocate(driver)?;
            ones.push((context, address));
            address
        }
    };
    let address = usize::try_from(start).map_err(|_| Code::INTERNAL_ERROR)?;
    Ok(std::ptr::without_provenance(address + index * ELEMENT_BYTES))
}

fn allocate(driver: &Driver) -> Done<u64> {
    let all = KINDS.map(One::of);
    let mut address = 0;
    // SAFETY: the pointer is valid for a write of the answer.
    checked(unsafe { (driver.functions.cuMemAlloc_v2)(&raw mut address, size_of_val(&all)) })?;
    let to = usize::try_from(address).map_err(|_| Code::INTERNAL_ERROR)?;
    let bytes = size_of_val(&all);
    upload((&raw const all).cast(), std::ptr::without_provenance_mut(to), bytes)?;
    Ok(address)
}

/// Computes `C = beta * C + bias` for each column of C, as a part of a product whose sizes, factors
/// and matrices are `of`. The product then has one as its `beta`.
pub(super) fn add(
    task: &mut Task,
    of: &mut Product,
    (bias, kind): (Ptr, c_int),
    (compute, one): (c_int, &One),
) -> Done {
    let [rows, columns, _] = of.sizes;
    let [.., (c, ld)] = of.matrices;
    let [_, beta] = of.factors;
    let column = Product {
        sizes: [rows, 1, 1],
        factors: [one.address(), beta],
        matrices: [(bias, rows.max(1)), (one_on_device(kind)?, 1), (c, ld)],
        ..Product::default()
    };
    let batch = Batch::Strided { count: size(columns)?, a: 0, b: 0, c: ld };
    mixed(task, column, [kind; 3], Some(compute), batch)?;
    of.factors[1] = one.address();
    Ok(())
}
