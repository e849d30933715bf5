//! The functions of cuBLAS, found by name. The types are those of `cublas_api.h`, where all
//! pointers count as one type.

use std::ffi::{CString, c_int, c_void};

use libloading::os::unix::Library;
use penstock_wire::library::blas::Number;

/// An address of a device, or of a factor on the host.
pub(super) type Ptr = *mut c_void;
/// A `cublasHandle_t`.
pub(super) type Raw = *mut c_void;
/// A size or a distance.
pub(super) type Int = c_int;
/// A value of one of the enumerations.
pub(super) type Op = c_int;
/// C's `long long`.
pub(super) type Long = i64;

/// One routine for all types of elements that it has.
#[derive(Clone, Copy)]
pub(super) struct Entry<F>([Option<F>; 4]);

impl<F: Copy> Entry<F> {
    /// # Safety
    /// The functions with these names have the type `F`.
    unsafe fn load(library: &Library, names: [&str; 4], ending: &str) -> Self {
        Self(names.map(|name| {
            let name = CString::new(format!("cublas{name}{ending}")).ok()?;
            // SAFETY: the caller promises the type.
            let found = unsafe { library.get::<F>(name.as_bytes_with_nul()) }.ok()?;
            Some(*found)
        }))
    }

    /// Returns the function for elements of this type.
    pub(super) fn of(&self, number: Number) -> Option<F> {
        self.0[number as usize]
    }
}

/// Defines the table. After the equals sign are the names for single and double precision, real
/// and complex, and their common ending. `_`: there is no such function.
macro_rules! functions {
    ($($name:ident($($type:ty),*) = [$($symbol:tt)+] $($ending:ident)?;)+) => {
        pub(super) struct Functions {
            $(pub(super) $name: Entry<unsafe extern "C" fn(Raw, $($type),*) -> c_int>,)+
        }

        impl Functions {
            /// # Safety
            /// The library is NVIDIA's cuBLAS, or has its interface, and is never closed.
            pub(super) unsafe fn load(library: &Library) -> Self {
                Self {$(
                    // SAFETY: the functions of cuBLAS have these types, and the caller promises
                    // that the library has its interface.
                    $name: unsafe {
                        let ending = concat!($(stringify!($ending))?);
                        Entry::load(library, [$(stringify!($symbol)),+], ending)
                    },
                )+}
            }
        }

        /// All names, for tests.
        #[cfg(test)]
        const NAMES: &[([&str; 4], &str)] =
            &[$(([$(stringify!($symbol)),+], concat!($(stringify!($ending))?))),+];
    };
}

// Real symmetric matrices are Hermitian, so both forms have the functions for real elements.
functions! {
    axpy(Int, Ptr, Ptr, Int, Ptr, Int) = [Saxpy Daxpy Caxpy Zaxpy] _v2;
    scal(Int, Ptr, Ptr, Int) = [Sscal Dscal Cscal Zscal] _v2;
    scal_real(Int, Ptr, Ptr, Int) = [Sscal Dscal Csscal Zdscal] _v2;
    copy(Int, Ptr, Int, Ptr, Int) = [Scopy Dcopy Ccopy Zcopy] _v2;
    swap(Int, Ptr, Int, Ptr, Int) = [Sswap Dswap Cswap Zswap] _v2;
    dot(Int, Ptr, Int, Ptr, Int, Ptr) = [Sdot Ddot Cdotu Zdotu] _v2;
    dotc(Int, Ptr, Int, Ptr, Int, Ptr) = [Sdot Ddot Cdotc Zdotc] _v2;
    nrm2(Int, Ptr, Int, Ptr) = [Snrm2 Dnrm2 Scnrm2 Dznrm2] _v2;
    asum(Int, Ptr, Int, Ptr) = [Sasum Dasum Scasum Dzasum] _v2;
    amax(Int, Ptr, Int, Ptr) = [Isamax Idamax Icamax Izamax] _v2;
    amin(Int, Ptr, Int, Ptr) = [Isamin Idamin Icamin Izamin] _v2;
    amax_wide(Long, Ptr, Long, Ptr) = [Isamax Idamax Icamax Izamax] _v2_64;
    amin_wide(Long, Ptr, Long, Ptr) = [Isamin Idamin Icamin Izamin] _v2_64;
    rot(Int, Ptr, Int, Ptr, Int, Ptr, Ptr) = [Srot Drot Crot Zrot] _v2;
    rot_real(Int, Ptr, Int, Ptr, Int, Ptr, Ptr) = [Srot Drot Csrot Zdrot] _v2;
    gemv(Op, Int, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Ptr, Int) = [Sgemv Dgemv Cgemv Zgemv] _v2;
    gbmv(Op, Int, Int, Int, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Ptr, Int) =
        [Sgbmv Dgbmv Cgbmv Zgbmv] _v2;
    ger(Int, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Int) = [Sger Dger Cgeru Zgeru] _v2;
    gerc(Int, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Int) = [Sger Dger Cgerc Zgerc] _v2;
    symv(Op, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Ptr, Int) = [Ssymv Dsymv Csymv Zsymv] _v2;
    hemv(Op, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Ptr, Int) = [Ssymv Dsymv Chemv Zhemv] _v2;
    sbmv(Op, Int, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Ptr, Int) = [Ssbmv Dsbmv _ _] _v2;
    hbmv(Op, Int, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Ptr, Int) = [Ssbmv Dsbmv Chbmv Zhbmv] _v2;
    spmv(Op, Int, Ptr, Ptr, Ptr, Int, Ptr, Ptr, Int) = [Sspmv Dspmv _ _] _v2;
    hpmv(Op, Int, Ptr, Ptr, Ptr, Int, Ptr, Ptr, Int) = [Sspmv Dspmv Chpmv Zhpmv] _v2;
    syr(Op, Int, Ptr, Ptr, Int, Ptr, Int) = [Ssyr Dsyr Csyr Zsyr] _v2;
    her(Op, Int, Ptr, Ptr, Int, Ptr, Int) = [Ssyr Dsyr Cher Zher] _v2;
    spr(Op, Int, Ptr, Ptr, Int, Ptr) = [Sspr Dspr _ _] _v2;
    hpr(Op, Int, Ptr, Ptr, Int, Ptr) = [Sspr Dspr Chpr Zhpr] _v2;
    syr2(Op, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Int) = [Ssyr2 Dsyr2 Csyr2 Zsyr2] _v2;
    her2(Op, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Int) = [Ssyr2 Dsyr2 Cher2 Zher2] _v2;
    spr2(Op, Int, Ptr, Ptr, Int, Ptr, Int, Ptr) = [Sspr2 Dspr2 _ _] _v2;
    hpr2(Op, Int, Ptr, Ptr, Int, Ptr, Int, Ptr) = [Sspr2 Dspr2 Chpr2 Zhpr2] _v2;
    trmv(Op, Op, Op, Int, Ptr, Int, Ptr, Int) = [Strmv Dtrmv Ctrmv Ztrmv] _v2;
    tbmv(Op, Op, Op, Int, Int, Ptr, Int, Ptr, Int) = [Stbmv Dtbmv Ctbmv Ztbmv] _v2;
    tpmv(Op, Op, Op, Int, Ptr, Ptr, Int) = [Stpmv Dtpmv Ctpmv Ztpmv] _v2;
    trsv(Op, Op, Op, Int, Ptr, Int, Ptr, Int) = [Strsv Dtrsv Ctrsv Ztrsv] _v2;
    tbsv(Op, Op, Op, Int, Int, Ptr, Int, Ptr, Int) = [Stbsv Dtbsv Ctbsv Ztbsv] _v2;
    tpsv(Op, Op, Op, Int, Ptr, Ptr, Int) = [Stpsv Dtpsv Ctpsv Ztpsv] _v2;
    gemm(Op, Op, Int, Int, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Ptr, Int) =
        [Sgemm Dgemm Cgemm Zgemm] _v2;
    gemm_strided(
        Op, Op, Int, Int, Int, Ptr, Ptr, Int, Long, Ptr, Int, Long, Ptr, Ptr, Int, Long, Int
    ) = [SgemmStrided DgemmStrided CgemmStrided ZgemmStrided] Batched;
    gemm_batched(Op, Op, Int, Int, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Ptr, Int, Int) =
        [Sgemm Dgemm Cgemm Zgemm] Batched;
    gemm_ex(
        Op, Op, Int, Int, Int, Ptr, Ptr, Op, Int, Ptr, Op, Int, Ptr, Ptr, Op, Int, Op, Op
    ) = [GemmEx _ _ _];
    gemm_strided_ex(
        Op, Op, Int, Int, Int, Ptr, Ptr, Op, Int, Long, Ptr, Op, Int, Long, Ptr, Ptr, Op, Int,
        Long, Int, Op, Op
    ) = [GemmStridedBatchedEx _ _ _];
    gemm_batched_ex(
        Op, Op, Int, Int, Int, Ptr, Ptr, Op, Int, Ptr, Op, Int, Ptr, Ptr, Op, Int, Int, Op, Op
    ) = [GemmBatchedEx _ _ _];
    symm(Op, Op, Int, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Ptr, Int) =
        [Ssymm Dsymm Csymm Zsymm] _v2;
    hemm(Op, Op, Int, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Ptr, Int) = [Ssymm Dsymm Chemm Zhemm] _v2;
    syrk(Op, Op, Int, Int, Ptr, Ptr, Int, Ptr, Ptr, Int) = [Ssyrk Dsyrk Csyrk Zsyrk] _v2;
    herk(Op, Op, Int, Int, Ptr, Ptr, Int, Ptr, Ptr, Int) = [Ssyrk Dsyrk Cherk Zherk] _v2;
    syr2k(Op, Op, Int, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Ptr, Int) =
        [Ssyr2k Dsyr2k Csyr2k Zsyr2k] _v2;
    her2k(Op, Op, Int, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Ptr, Int) =
        [Ssyr2k Dsyr2k Cher2k Zher2k] _v2;
    syrkx(Op, Op, Int, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Ptr, Int) =
        [Ssyrkx Dsyrkx Csyrkx Zsyrkx];
    herkx(Op, Op, Int, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Ptr, Int) = [Ssyrkx Dsyrkx Cherkx Zherkx];
    trmm(Op, Op, Op, Op, Int, Int, Ptr, Ptr, Int, Ptr, Int, Ptr, Int) =
        [Strmm Dtrmm Ctrmm Ztrmm] _v2;
    trsm(Op, Op, Op, Op, Int, Int, Ptr, Ptr, Int, Ptr, Int) = [Strsm Dtrsm Ctrsm Ztrsm] _v2;
    trsm_batched(Op, Op, Op, Op, Int, Int, Ptr, Ptr, Int, Ptr, Int, Int) =
        [Strsm Dtrsm Ctrsm Ztrsm] Batched;
    geam(Op, Op, Int, Int, Ptr, Ptr, Int, Ptr, Ptr, Int, Ptr, Int) =
        [Sgeam Dgeam Cgeam Zgeam];
    dgmm(Op, Int, Int, Ptr, Int, Ptr, Int, Ptr, Int) = [Sdgmm Ddgmm Cdgmm Zdgmm];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cublas_has_every_function() {
        let list = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tools/cuda/cublas-13.symbols");
        let list = std::fs::read_to_string(list).unwrap();
        let known: Vec<&str> = list.lines().collect();
        for (names, ending) in NAMES {
            for name in names.iter().filter(|name| **name != "_") {
                let symbol = format!("cublas{name}{ending}");
                assert!(known.contains(&symbol.as_str()), "{symbol}");
            }
        }
    }
}
