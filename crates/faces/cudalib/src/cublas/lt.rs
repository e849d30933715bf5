//! `libcublasLt.so`: products whose parts the program describes by attributes. A product without
//! an epilogue is one of cuBLAS's own products. One with a bias is two of them (`bias`). For
//! others, the search for an algorithm finds none, and programs compute them in steps.

use std::ffi::{c_char, c_int, c_void};

use penstock_cuda_sys::driver::CUstream;
use penstock_wire::library::blas::{Batch, Number};

use super::bias::{self, One};
use super::entry::run;
use super::products::{Product, R_16F, all_stored, check_mixed, computed, kind_of, mixed};
use super::settings::{answer, cublasGetProperty, cublasGetStatusName, cublasGetStatusString};
use super::task::{Task, size};
use super::{Code, Done, Ptr};
use crate::edge::{store, version};

/// What the program allocates or lets the library allocate, and fills by attributes. `cublasLt.h`
/// has these sizes. A word has the value of the attribute with its number.
type Words<const N: usize> = [u64; N];
/// A `cublasLtMatmulDescOpaque_t`. Its last word is not 0 if the program has set an attribute that
/// changes the result and is not served.
type Description = Words<32>;
/// A `cublasLtMatrixLayoutOpaque_t`.
type Layout = Words<8>;
/// A `cublasLtMatmulPreferenceOpaque_t`. All algorithms are the node's, so nothing is preferred.
type Preference = Words<8>;

const UNSERVED: usize = 31;

/// Attributes of products.
mod of {
    pub(super) const COMPUTE: usize = 0;
    pub(super) const SCALE: usize = 1;
    pub(super) const POINTER_MODE: usize = 2;
    pub(super) const TRANSPOSE_A: usize = 3;
    pub(super) const TRANSPOSE_B: usize = 4;
    pub(super) const TRANSPOSE_C: usize = 5;
    pub(super) const FILL: usize = 6;
    pub(super) const EPILOGUE: usize = 7;
    pub(super) const BIAS: usize = 8;
    pub(super) const MULTIPROCESSORS: usize = 15;
    pub(super) const FAST_SUMS: usize = 25;
    pub(super) const BIAS_TYPE: usize = 26;
}

/// Attributes of layouts.
mod layout {
    pub(super) const TYPE: usize = 0;
    pub(super) const ORDER: usize = 1;
    pub(super) const ROWS: usize = 2;
    pub(super) const COLUMNS: usize = 3;
    pub(super) const LD: usize = 4;
    pub(super) const COUNT: usize = 5;
    pub(super) const DISTANCE: usize = 6;
    pub(super) const PLANES: usize = 7;
}

/// `CUBLAS_FILL_MODE_FULL`, `CUBLASLT_EPILOGUE_DEFAULT`, and the `cudaDataType` that is none:
const FULL: u64 = 2;
const NO_EPILOGUE: u64 = 1;
/// `CUBLASLT_EPILOGUE_BIAS`.
const WITH_BIAS: u64 = 4;
const NO_TYPE: u64 = 0xffff_ffff;
/// Bytes of the largest attribute that is served.
const ATTRIBUTE_BYTES_MAX: usize = 8;

fn product_of(compute: c_int, scale: c_int) -> Description {
    let mut words = [0; 32];
    words[of::COMPUTE] = u64::from(compute.cast_unsigned());
    words[of::SCALE] = u64::from(scale.cast_unsigned());
    words[of::FILL] = FULL;
    words[of::EPILOGUE] = NO_EPILOGUE;
    words[of::BIAS_TYPE] = NO_TYPE;
    words
}

fn layout_of(kind: c_int, rows: u64, columns: u64, ld: i64) -> Layout {
    let mut words = [0; 8];
    words[layout::TYPE] = u64::from(kind.cast_unsigned());
    words[layout::ROWS] = rows;
    words[layout::COLUMNS] = columns;
    words[layout::LD] = ld.cast_unsigned();
    words[layout::COUNT] = 1;
    words
}

/// Returns a 32-bit number, or what is no such number as one that fits no enumeration.
fn number(word: u64) -> c_int {
    u32::try_from(word).map_or(-1, u32::cast_signed)
}

/// Allocates words for the program.
fn allocate<const N: usize>(to: *mut *mut Words<N>, words: Words<N>) -> Done {
    let made = Box::into_raw(Box::new(words));
    answer(to, made).inspect_err(|_| {
        // SAFETY: the box was made above, and nobody has its address.
        drop(unsafe { Box::from_raw(made) });
    })
}

fn free<const N: usize>(words: *mut Words<N>) -> Done {
    if !words.is_null() {
        // SAFETY: the program promises the address that `allocate` gave it, and uses it no more.
        drop(unsafe { Box::from_raw(words) });
    }
    Ok(())
}

/// Fills words that the program has allocated.
fn fill<const N: usize>(to: *mut Words<N>, bytes: usize, words: Words<N>) -> Done {
    if bytes < size_of::<Words<N>>() {
        return Err(Code::ALLOC_FAILED);
    }
    answer(to, words)
}

fn read<const N: usize>(words: *const Words<N>) -> Done<Words<N>> {
    if words.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the program promises words that were made here.
    Ok(unsafe { words.read_unaligned() })
}

/// Reads the value of an attribute.
fn value(from: Ptr, bytes: usize) -> Done<u64> {
    if from.is_null() || !(1..=ATTRIBUTE_BYTES_MAX).contains(&bytes) {
        return Err(Code::INVALID_VALUE);
    }
    let mut value = [0; ATTRIBUTE_BYTES_MAX];
    // SAFETY: the program promises the bytes, and the array has room for them.
    unsafe { std::ptr::copy_nonoverlapping(from.cast(), value.as_mut_ptr(), bytes) };
    Ok(u64::from_le_bytes(value))
}

fn set_product(words: *mut Description, attribute: c_int, from: Ptr, bytes: usize) -> Done {
    let (mut product, at) = (read(words)?, usize::try_from(attribute));
    let at = at.map_err(|_| Code::INVALID_VALUE)?;
    let value = value(from, bytes)?;
    match (at, product.get_mut(at)) {
        (UNSERVED, _) | (_, None) => product[UNSERVED] |= u64::from(value != 0),
        (_, Some(word)) => *word = value,
    }
    answer(words, product)
}

fn set_layout(words: *mut Layout, attribute: c_int, from: Ptr, bytes: usize) -> Done {
    let (mut layout, value) = (read(words)?, value(from, bytes)?);
    let at = usize::try_from(attribute).map_err(|_| Code::INVALID_VALUE)?;
    match layout.get_mut(at) {
        Some(word) => *word = value,
        // The mode of batches, in which all but 0 is a list of addresses.
        None if value == 0 => {}
        None => return Err(Code::NOT_SUPPORTED),
    }
    answer(words, layout)
}

/// Returns an attribute of a product or a layout, whose sizes in bytes are known.
fn get<const N: usize>(
    words: *const Words<N>,
    (attribute, small): (c_int, &[usize]),
    (to, bytes): (*mut c_void, usize),
    written: *mut usize,
) -> Done {
    let words = read(words)?;
    let at = usize::try_from(attribute).map_err(|_| Code::INVALID_VALUE)?;
    let word = *words.get(at).filter(|_| at != UNSERVED).ok_or(Code::NOT_SUPPORTED)?;
    let size = if small.contains(&at) { 4 } else { 8 };
    // "If sizeInBytes is 0: number of bytes needed to write full contents."
    if bytes != 0 {
        if to.is_null() || bytes < size {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the program promises the bytes.
        unsafe { std::ptr::copy_nonoverlapping(word.to_le_bytes().as_ptr(), to.cast(), size) };
    }
    // SAFETY: the program promises that the place is null or writable.
    _ = unsafe { store(written, size) };
    Ok(())
}

/// The matrices of a product: address and layout.
type Side = (Ptr, Layout);

/// A product of cuBLAS, and the task that computes it.
struct Plain {
    task: Task,
    product: Product,
    /// The types of A, B and D.
    kinds: [c_int; 3],
    batch: Batch,
}

/// Makes the product that cuBLAS computes, and the task that computes it.
///
/// # Errors
/// `CUBLAS_STATUS_NOT_SUPPORTED` if it is no plain product.
fn plain(
    stream: CUstream,
    product: &Description,
    factors: [Ptr; 2],
    [a, b, c, d]: [Side; 4],
) -> Done<Plain> {
    let has_bias = product[of::EPILOGUE] == WITH_BIAS;
    let is_plain = (has_bias || product[of::EPILOGUE] == NO_EPILOGUE)
        && product[of::FILL] == FULL
        && product[of::TRANSPOSE_C] == 0
        && product[of::POINTER_MODE] <= 1;
    // Of the others, these have no influence: a bias without an epilogue, and how to compute.
    let ignored = [of::BIAS, of::MULTIPROCESSORS, of::FAST_SUMS, of::BIAS_TYPE];
    let others = product.iter().enumerate().skip(of::EPILOGUE + 1);
    let has_others = others.filter(|(at, _)| !ignored.contains(at)).any(|(_, word)| *word != 0);
    // The result is in the place of the third matrix, or that matrix does not matter.
    let is_in_place = c.0 == d.0 && c.1 == d.1;
    let sides = [&a.1, &b.1, &d.1];
    let columns = sides.iter().all(|it| it[layout::ORDER] == 0 && it[layout::PLANES] == 0);
    let count = d.1[layout::COUNT];
    let is_one_batch = sides.iter().all(|it| it[layout::COUNT] == count);
    let bias_fits = product[of::POINTER_MODE] == 0
        && count == 1
        && [NO_TYPE, d.1[layout::TYPE]].contains(&product[of::BIAS_TYPE]);
    if has_bias && !bias_fits {
        return Err(Code::NOT_SUPPORTED);
    }
    if !is_plain || has_others || !is_in_place || !columns || !is_one_batch {
        return Err(Code::NOT_SUPPORTED);
    }
    let (m, n) = (d.1[layout::ROWS], d.1[layout::COLUMNS]);
    let long = |word: u64| i64::try_from(word).map_err(|_| Code::NOT_SUPPORTED);
    let shape = |side: &Layout, is_transposed: bool| {
        let [rows, columns] = [side[layout::ROWS], side[layout::COLUMNS]];
        if is_transposed { (columns, rows) } else { (rows, columns) }
    };
    let operations = [product[of::TRANSPOSE_A], product[of::TRANSPOSE_B]];
    let (a_shape, b_shape) = (shape(&a.1, operations[0] != 0), shape(&b.1, operations[1] != 0));
    let k = a_shape.1;
    if a_shape.0 != m || b_shape != (k, n) {
        return Err(Code::INVALID_VALUE);
    }
    let of_product = Product {
        operations: operations.map(number),
        sizes: [long(m)?, long(n)?, long(k)?],
        factors,
        matrices: [
            (a.0, long(a.1[layout::LD])?),
            (b.0, long(b.1[layout::LD])?),
            (d.0, long(d.1[layout::LD])?),
        ],
        ..Product::default()
    };
    let distance = |side: &Side| side.1[layout::DISTANCE].cast_signed();
    let batch = match count {
        1 => Batch::One,
        _ => Batch::Strided {
            count: size(long(count)?)?,
            a: distance(&a),
            b: distance(&b),
            c: distance(&d),
        },
    };
    let task = Task::on(stream, Number::F32, product[of::POINTER_MODE] == 1)?;
    let kinds = [&a, &b, &d].map(|it| number(it.1[layout::TYPE]));
    Ok(Plain { task, product: of_product, kinds, batch })
}

/// Checks that matrices of these types are served, and that factors have the type in which cuBLAS
/// has them. Returns how the product is computed.
fn check_types(product: &Description, kinds: [c_int; 3]) -> Done<c_int> {
    let (compute, scale) = (number(product[of::COMPUTE]), number(product[of::SCALE]));
    let (number, has_half_factors) = computed(compute, kinds[2])?;
    all_stored(kinds, number)?;
    let expected = if has_half_factors { R_16F } else { kind_of(number) };
    if scale == expected { Ok(compute) } else { Err(Code::NOT_SUPPORTED) }
}

fn multiply(stream: CUstream, product: &Description, factors: [Ptr; 2], sides: [Side; 4]) -> Done {
    let Plain { mut task, product: mut of_product, kinds, batch } =
        plain(stream, product, factors, sides)?;
    let compute = check_types(product, kinds)?;
    let one = One::of(number(product[of::SCALE]));
    if product[of::EPILOGUE] == WITH_BIAS {
        let at = usize::try_from(product[of::BIAS]).map_err(|_| Code::INVALID_VALUE)?;
        let bias = (std::ptr::without_provenance(at), kinds[2]);
        // A refused call writes nothing, so the second product is checked before the first is sent.
        let second = Product { factors: [of_product.factors[0], one.address()], ..of_product };
        check_mixed(&mut task.beside(), second, kinds, Some(compute), batch)?;
        bias::add(&mut task.beside(), &mut of_product, bias, (compute, &one))?;
    }
    mixed(&mut task, of_product, kinds, Some(compute), batch)
}

/// Defines functions.
macro_rules! functions {
    ($(fn $name:ident($($parameter:ident: $type:ty),*) $body:block)+) => {$(
        /// # Safety
        /// The program follows the rules of cuBLASLt for the pointers that it passes.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "C's shape")]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> c_int {
            run(|| $body)
        }
    )+};
}

/// Attributes with 32 bits.
const SMALL_OF_PRODUCTS: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7, 15, 22, 26];
const SMALL_OF_LAYOUTS: &[usize] = &[0, 1, 5];

functions! {
    fn cublasLtCreate(to: *mut Ptr) {
        // A handle has no state here: each call names its stream, and works in the current context.
        static HANDLE: u8 = 0;
        answer(to, (&raw const HANDLE).cast())
    }
    fn cublasLtDestroy(handle: Ptr) {
        if handle.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }
    fn cublasLtMatmulDescCreate(to: *mut *mut Description, compute: c_int, scale: c_int) {
        allocate(to, product_of(compute, scale))
    }
    fn cublasLtMatmulDescInit_internal(
        to: *mut Description, bytes: usize, compute: c_int, scale: c_int
    ) {
        fill(to, bytes, product_of(compute, scale))
    }
    fn cublasLtMatmulDescDestroy(product: *mut Description) {
        free(product)
    }
    fn cublasLtMatmulDescSetAttribute(
        product: *mut Description, attribute: c_int, from: Ptr, bytes: usize
    ) {
        set_product(product, attribute, from, bytes)
    }
    fn cublasLtMatmulDescGetAttribute(
        product: *const Description, attribute: c_int, to: *mut c_void, bytes: usize,
        written: *mut usize
    ) {
        get(product, (attribute, SMALL_OF_PRODUCTS), (to, bytes), written)
    }
    fn cublasLtMatrixLayoutCreate(
        to: *mut *mut Layout, kind: c_int, rows: u64, columns: u64, ld: i64
    ) {
        allocate(to, layout_of(kind, rows, columns, ld))
    }
    fn cublasLtMatrixLayoutInit_internal(
        to: *mut Layout, bytes: usize, kind: c_int, rows: u64, columns: u64, ld: i64
    ) {
        fill(to, bytes, layout_of(kind, rows, columns, ld))
    }
    fn cublasLtMatrixLayoutDestroy(layout: *mut Layout) {
        free(layout)
    }
    fn cublasLtMatrixLayoutSetAttribute(
        layout: *mut Layout, attribute: c_int, from: Ptr, bytes: usize
    ) {
        set_layout(layout, attribute, from, bytes)
    }
    fn cublasLtMatrixLayoutGetAttribute(
        layout: *const Layout, attribute: c_int, to: *mut c_void, bytes: usize,
        written: *mut usize
    ) {
        get(layout, (attribute, SMALL_OF_LAYOUTS), (to, bytes), written)
    }
    fn cublasLtMatmulPreferenceCreate(to: *mut *mut Preference) {
        allocate(to, [0; 8])
    }
    fn cublasLtMatmulPreferenceInit_internal(to: *mut Preference, bytes: usize) {
        fill(to, bytes, [0; 8])
    }
    fn cublasLtMatmulPreferenceDestroy(preference: *mut Preference) {
        free(preference)
    }
    fn cublasLtMatmulPreferenceSetAttribute(
        preference: *mut Preference, _attribute: c_int, _from: Ptr, _bytes: usize
    ) {
        read(preference).map(drop)
    }
    fn cublasLtMatmulAlgoGetHeuristic(
        _handle: Ptr, product: *const Description, a: *const Layout, b: *const Layout,
        c: *const Layout, d: *const Layout, _preference: *const Preference, most: c_int,
        results: *mut Found, count: *mut c_int
    ) {
        let product = read(product)?;
        let none = std::ptr::null();
        let sides = [(none, read(a)?), (none, read(b)?), (none, read(c)?), (none, read(d)?)];
        if most < 1 {
            return Err(Code::INVALID_VALUE);
        }
        let found = plain(std::ptr::null_mut(), &product, [none; 2], sides)
            .and_then(|it| check_types(&product, it.kinds))
            .and_then(|_| bias::prepare());
        match found {
            // The one algorithm is the node's.
            Ok(()) => answer(results, Found { waves: 1.0, ..Found::default() })?,
            Err(Code::NOT_SUPPORTED) => return answer(count, 0),
            Err(other) => return Err(other),
        }
        answer(count, 1)
    }
    fn cublasLtMatmul(
        _handle: Ptr, product: *const Description, alpha: Ptr, a: Ptr, a_layout: *const Layout,
        b: Ptr, b_layout: *const Layout, beta: Ptr, c: Ptr, c_layout: *const Layout,
        d: *mut c_void, d_layout: *const Layout, _algorithm: Ptr, _workspace: *mut c_void,
        _workspace_bytes: usize, stream: CUstream
    ) {
        let product = read(product)?;
        let (a, b) = ((a, read(a_layout)?), (b, read(b_layout)?));
        let (c, d) = ((c, read(c_layout)?), (d.cast_const(), read(d_layout)?));
        multiply(stream, &product, [alpha, beta], [a, b, c, d])
    }
    fn cublasLtGetProperty(property: c_int, to: *mut c_int) {
        // SAFETY: the program promises what the function demands.
        match unsafe { cublasGetProperty(property, to) } { 0 => Ok(()), code => Err(Code(code)) }
    }
}

/// A `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// Programs ask for the version to learn whether the library fits: JAX uses no GPU if the answer is
/// 0.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    usize::try_from(version()).unwrap_or(0)
}

/// # Safety
/// Safe with any argument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtGetStatusName(code: c_int) -> *const c_char {
    // SAFETY: safe with any argument.
    unsafe { cublasGetStatusName(code) }
}

/// # Safety
/// Safe with any argument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtGetStatusString(code: c_int) -> *const c_char {
    // SAFETY: safe with any argument.
    unsafe { cublasGetStatusString(code) }
}
