//! CUDA's device code: fat binaries, PTX, and its translation to OpenCL C.
//!
//! - [`fatbin`] finds the PTX in what a program registers.
//! - [`module::parse`] reads PTX into [`ir`], checked against the table in [`forms`].
#![forbid(unsafe_code)]

mod error;
pub mod fatbin;
pub mod forms;
pub mod ir;
mod layout;
mod lexer;
pub mod module;
mod parser;
pub mod translate;
