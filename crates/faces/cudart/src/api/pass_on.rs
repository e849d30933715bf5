//! Functions of the runtime that only call the driver's function.

/// Defines functions that pass their arguments on to the driver's function, in the current context.
/// The parameters are those of the driver's function.
macro_rules! pass_on {
    ($($(#[$attribute:meta])* fn $name:ident = $of:ident;)+) => {
        $(::penstock_cuda_sys::driver_parameters!($of pass_on $(#[$attribute])* $name);)+
    };
    ($of:ident($($parameter:ident: $type:ty),*) $(#[$attribute:meta])* $name:ident) => {
        $crate::edge::entry! {
            $(#[$attribute])*
            fn $name($($parameter: $type),*) {
                $crate::core::context::current()?.driver.$of($($parameter),*)
            }
        }
    };
}
pub(super) use pass_on;
