//! C types, error codes and attributes of CUDA's public interfaces. Every crate takes CUDA's
//! constants from here.
#![forbid(unsafe_code)]

pub mod driver;
pub mod runtime;
pub mod runtime_codes;
pub mod runtime_properties;
