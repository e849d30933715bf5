//! CUDA's device code: fat binaries, PTX, and the translation of PTX to OpenCL C.
//!
//! - [`fatbin`] finds the PTX in the fat binary that a program registers.
//! - [`module::parse`] parses PTX into [`ir`] and checks it against the table in [`forms`].
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
