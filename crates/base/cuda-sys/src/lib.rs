//! C types, error codes and attributes of CUDA's public interfaces.
#![forbid(unsafe_code)]

pub mod driver;
pub mod runtime;
pub mod runtime_codes;
pub mod runtime_properties;
