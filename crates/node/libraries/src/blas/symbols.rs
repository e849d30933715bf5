//! The functions of OpenBLAS, found by name.

use std::ffi::{CString, c_void};

use libloading::os::unix::Library;
use penstock_wire::library::blas::Number;
use penstock_wire::status::Status;

type Address = *const c_void;

/// One routine for all types of elements.
#[derive(Clone, Copy)]
pub(super) struct Entry([Option<Address>; 4]);

impl Entry {
    fn of(library: &Library, names: [&str; 4]) -> Self {
        Self(names.map(|name| {
            let name = CString::new(name).ok()?;
            // SAFETY: only the address of the symbol is taken.
            let found = unsafe { library.get::<Address>(name.as_bytes_with_nul()) }.ok()?;
            let address: Address = found.into_raw().cast_const();
            (!address.is_null()).then_some(address)
        }))
    }

    fn address(&self, number: Number) -> Result<Address, Status> {
        self.0[number as usize].ok_or(Status::INVALID_OPERATION)
    }

    /// Calls a function of the Fortran interface that returns nothing.
    ///
    /// # Safety
    /// The arguments are those of the routine, and the memory behind them is valid.
    pub(super) unsafe fn run(&self, number: Number, args: &[Address]) -> Result<(), Status> {
        let function = self.address(number)?;
        // SAFETY: the caller promises the arguments of this routine.
        unsafe { apply(function, args) }
    }

    /// Calls a function `f(n, x, incx)` that returns a number of type `T`.
    ///
    /// # Safety
    /// As [`Entry::run`], and `T` is the type that the function returns.
    pub(super) unsafe fn reduce<T>(&self, number: Number, args: [Address; 3]) -> Result<T, Status> {
        type Reduce<T> = unsafe extern "C" fn(Address, Address, Address) -> T;
        let function = self.address(number)?;
        // SAFETY: the caller promises that the function has this type.
        let function = unsafe { std::mem::transmute::<Address, Reduce<T>>(function) };
        let [n, x, step] = args;
        // SAFETY: the caller promises valid arguments.
        Ok(unsafe { function(n, x, step) })
    }

    /// Calls a function `f(n, x, incx, y, incy)` that returns a number of type `T`.
    ///
    /// # Safety
    /// As [`Entry::reduce`].
    pub(super) unsafe fn dot<T>(&self, number: Number, args: [Address; 5]) -> Result<T, Status> {
        type Dot<T> = unsafe extern "C" fn(Address, Address, Address, Address, Address) -> T;
        let function = self.address(number)?;
        // SAFETY: the caller promises that the function has this type.
        let function = unsafe { std::mem::transmute::<Address, Dot<T>>(function) };
        let [n, x, x_step, y, y_step] = args;
        // SAFETY: the caller promises valid arguments.
        Ok(unsafe { function(n, x, x_step, y, y_step) })
    }

    /// Calls a function of the C interface that writes the dot product to `result`.
    ///
    /// # Safety
    /// As [`Entry::run`].
    pub(super) unsafe fn dot_sub(
        &self,
        number: Number,
        n: i32,
        (x, x_step): (Address, i32),
        (y, y_step): (Address, i32),
        result: *mut c_void,
    ) -> Result<(), Status> {
        type Dot = unsafe extern "C" fn(i32, Address, i32, Address, i32, *mut c_void);
        let function = self.address(number)?;
        // SAFETY: the functions of the C interface have this type.
        let function = unsafe { std::mem::transmute::<Address, Dot>(function) };
        // SAFETY: the caller promises valid arguments.
        unsafe { function(n, x, x_step, y, y_step, result) };
        Ok(())
    }
}

/// Calls a function with the given number of addresses.
///
/// # Safety
/// As [`Entry::run`].
unsafe fn apply(function: Address, args: &[Address]) -> Result<(), Status> {
    macro_rules! by_number {
        ($(($($arg:ident)+))+) => {
            match args {
                $([$($arg),+] => {
                    type Function = unsafe extern "C" fn($(by_number!(@ $arg)),+);
                    // SAFETY: the caller promises that the function takes this number of
                    // addresses.
                    let function = unsafe { std::mem::transmute::<Address, Function>(function) };
                    // SAFETY: the caller promises valid arguments.
                    unsafe { function($(*$arg),+) }
                })+
                _ => return Err(Status::INVALID_OPERATION),
            }
        };
        (@ $arg:ident) => { Address };
    }
    by_number! {
        (a b c d)
        (a b c d e)
        (a b c d e f)
        (a b c d e f g)
        (a b c d e f g h)
        (a b c d e f g h i)
        (a b c d e f g h i j)
        (a b c d e f g h i j k)
        (a b c d e f g h i j k l)
        (a b c d e f g h i j k l m)
    }
    Ok(())
}

macro_rules! symbols {
    ($($field:ident: $names:expr;)+) => {
        /// The routines by name. The four names of each are those of single and double precision,
        /// real and complex.
        pub(super) struct Symbols {
            $(pub(super) $field: Entry,)+
        }

        impl Symbols {
            pub(super) fn of(library: &Library) -> Self {
                Self { $($field: Entry::of(library, $names),)+ }
            }
        }
    };
}

symbols! {
    axpy: ["saxpy_", "daxpy_", "caxpy_", "zaxpy_"];
    scal: ["sscal_", "dscal_", "cscal_", "zscal_"];
    scal_real: ["sscal_", "dscal_", "csscal_", "zdscal_"];
    copy: ["scopy_", "dcopy_", "ccopy_", "zcopy_"];
    swap: ["sswap_", "dswap_", "cswap_", "zswap_"];
    dot: ["sdot_", "ddot_", "", ""];
    dotu: ["", "", "cblas_cdotu_sub", "cblas_zdotu_sub"];
    dotc: ["", "", "cblas_cdotc_sub", "cblas_zdotc_sub"];
    nrm2: ["snrm2_", "dnrm2_", "scnrm2_", "dznrm2_"];
    iamax: ["isamax_", "idamax_", "icamax_", "izamax_"];
    rot: ["srot_", "drot_", "crot_", "zrot_"];
    rot_real: ["srot_", "drot_", "csrot_", "zdrot_"];
    gemv: ["sgemv_", "dgemv_", "cgemv_", "zgemv_"];
    gbmv: ["sgbmv_", "dgbmv_", "cgbmv_", "zgbmv_"];
    ger: ["sger_", "dger_", "cgeru_", "zgeru_"];
    gerc: ["sger_", "dger_", "cgerc_", "zgerc_"];
    symv: ["ssymv_", "dsymv_", "csymv_", "zsymv_"];
    hemv: ["ssymv_", "dsymv_", "chemv_", "zhemv_"];
    hbmv: ["ssbmv_", "dsbmv_", "chbmv_", "zhbmv_"];
    hpmv: ["sspmv_", "dspmv_", "chpmv_", "zhpmv_"];
    syr: ["ssyr_", "dsyr_", "csyr_", "zsyr_"];
    her: ["ssyr_", "dsyr_", "cher_", "zher_"];
    hpr: ["sspr_", "dspr_", "chpr_", "zhpr_"];
    syr2: ["ssyr2_", "dsyr2_", "csyr2_", "zsyr2_"];
    her2: ["ssyr2_", "dsyr2_", "cher2_", "zher2_"];
    hpr2: ["sspr2_", "dspr2_", "chpr2_", "zhpr2_"];
    trmv: ["strmv_", "dtrmv_", "ctrmv_", "ztrmv_"];
    tbmv: ["stbmv_", "dtbmv_", "ctbmv_", "ztbmv_"];
    tpmv: ["stpmv_", "dtpmv_", "ctpmv_", "ztpmv_"];
    trsv: ["strsv_", "dtrsv_", "ctrsv_", "ztrsv_"];
    tbsv: ["stbsv_", "dtbsv_", "ctbsv_", "ztbsv_"];
    tpsv: ["stpsv_", "dtpsv_", "ctpsv_", "ztpsv_"];
    gemm: ["sgemm_", "dgemm_", "cgemm_", "zgemm_"];
    symm: ["ssymm_", "dsymm_", "csymm_", "zsymm_"];
    hemm: ["ssymm_", "dsymm_", "chemm_", "zhemm_"];
    syrk: ["ssyrk_", "dsyrk_", "csyrk_", "zsyrk_"];
    herk: ["ssyrk_", "dsyrk_", "cherk_", "zherk_"];
    syr2k: ["ssyr2k_", "dsyr2k_", "csyr2k_", "zsyr2k_"];
    her2k: ["ssyr2k_", "dsyr2k_", "cher2k_", "zher2k_"];
    trmm: ["strmm_", "dtrmm_", "ctrmm_", "ztrmm_"];
    trsm: ["strsm_", "dtrsm_", "ctrsm_", "ztrsm_"];
}

// SAFETY: the addresses are those of functions of a library that is never closed.
unsafe impl Send for Symbols {}
// SAFETY: as above.
unsafe impl Sync for Symbols {}
