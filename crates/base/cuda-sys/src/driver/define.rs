//! Macros around the list of functions in `functions.rs`.

/// Makes the types, the text for the comparison with C, and `driver_parameters` from the list.
///
/// A line `one / other(...)` lists two functions of the same type. The second one uses the calling
/// thread's default stream. The first token is `$`, which the macro that is made needs.
macro_rules! functions {
    ($d:tt $($name:ident $(/ $twin:ident)? ($($parameter:ident: $type:ty),* $(,)?);)*) => {
        /// The types of the functions, each under the name of its symbol.
        #[allow(non_camel_case_types, reason = "C's names")]
        pub mod function {
            use super::*;

            $(
                pub type $name = unsafe extern "C" fn($($type),*) -> CUresult;
                $(pub type $twin = $name;)?
            )*
        }

        /// All functions in the list, as text.
        pub const FUNCTIONS: &[Function] = &[$(Function {
            symbols: &[stringify!($name) $(, stringify!($twin))?],
            parameters: &[$(stringify!($type)),*],
        },)*];

        /// `driver_parameters!(cuInit with more)` becomes `with! { cuInit(flags: c_uint) more }`.
        /// The types need `use penstock_cuda_sys::driver::*` and those of `std::ffi`.
        #[macro_export]
        macro_rules! driver_parameters {
            $(($name $d with:ident $d ($d more:tt)*) => {
                $d with! { $name($($parameter: $type),*) $d ($d more)* }
            };)*
        }
    };
}
pub(super) use functions;

/// One line of the list of functions, as text.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// The symbol, and that of the function which uses the thread's default stream.
    pub symbols: &'static [&'static str],
    /// Types of the parameters in Rust.
    pub parameters: &'static [&'static str],
}

/// Makes a struct of driver functions, and `load`, which looks them up.
///
/// `load` fails if one of the `needed` functions is missing. An `optional` function is an `Option`.
/// `field = symbol` gives a field another name than the symbol. A name that is not in the list of
/// functions does not compile, and neither does a call with wrong arguments:
///
/// ```
/// penstock_cuda_sys::driver_table! { pub struct Driver { needed { cuInit } } }
/// fn start(driver: &Driver) {
///     _ = unsafe { (driver.cuInit)(0) };
/// }
/// ```
/// ```compile_fail
/// penstock_cuda_sys::driver_table! { pub struct Driver { needed { cuInnit } } }
/// ```
/// ```compile_fail
/// penstock_cuda_sys::driver_table! { pub struct Driver { needed { cuInit } } }
/// fn start(driver: &Driver) {
///     _ = unsafe { (driver.cuInit)(std::ptr::null_mut::<i32>()) };
/// }
/// ```
#[macro_export]
macro_rules! driver_table {
    (@type $symbol:ident) => { $crate::driver::function::$symbol };
    (@type $field:ident $symbol:ident) => { $crate::driver::function::$symbol };
    (@name $symbol:ident) => { stringify!($symbol) };
    (@name $field:ident $symbol:ident) => { stringify!($symbol) };
    (@look $find:ident $($name:ident)+) => {{
        const NAME: &::std::ffi::CStr = $crate::driver::c_name(
            concat!($crate::driver_table!(@name $($name)+), "\0")
        );
        $find(NAME).map(|address| {
            // SAFETY: `find` returns the function of this name, and the list has its type.
            unsafe {
                ::std::mem::transmute::<
                    ::std::ptr::NonNull<::std::ffi::c_void>,
                    $crate::driver_table!(@type $($name)+),
                >(address)
            }
        })
    }};
    (
        $(#[$attribute:meta])*
        $visible:vis struct $table:ident {
            $(needed { $($needed:ident $(= $needed_symbol:ident)?),* $(,)? })?
            $(optional { $($optional:ident $(= $optional_symbol:ident)?),* $(,)? })?
        }
    ) => {
        $(#[$attribute])*
        #[allow(non_snake_case, reason = "C's names")]
        $visible struct $table {
            $($($visible $needed: $crate::driver_table!(@type $needed $($needed_symbol)?),)*)?
            $($($visible $optional: ::std::option::Option<
                $crate::driver_table!(@type $optional $($optional_symbol)?)
            >,)*)?
        }

        impl $table {
            /// Looks up the functions with `find`. Fails with the symbol of a needed function that
            /// is missing.
            ///
            /// # Safety
            /// `find` returns the address of the function with this symbol in a library with CUDA's
            /// driver interface. The library stays loaded as long as the functions are used.
            $visible unsafe fn load(
                mut find: impl FnMut(
                    &'static ::std::ffi::CStr,
                ) -> ::std::option::Option<::std::ptr::NonNull<::std::ffi::c_void>>,
            ) -> ::std::result::Result<Self, &'static str> {
                Ok(Self {
                    $($($needed: $crate::driver_table!(@look find $needed $($needed_symbol)?)
                        .ok_or($crate::driver_table!(@name $needed $($needed_symbol)?))?,)*)?
                    $($($optional:
                        $crate::driver_table!(@look find $optional $($optional_symbol)?),)*)?
                })
            }
        }
    };
}

/// Converts the name of a function, with a final NUL, to a C string.
#[doc(hidden)]
pub const fn c_name(name: &'static str) -> &'static std::ffi::CStr {
    match std::ffi::CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("the name has no final NUL, or more than one"),
    }
}
