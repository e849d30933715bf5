//! CUDA's device code: fat binaries, PTX, and the translation of PTX to OpenCL C.
//!
//! - [`fatbin`] finds the PTX in the fat binary that a program registers.
//! - [`module::parse`] parses PTX into [`ir`] and checks it against the table in [`forms`].
//! - [`link::link`] makes one module of several.
//! - [`translate::translate`] turns a parsed module into OpenCL C.
//!
//! # Layers
//!
//! A file only imports files of its own layer and of the layers below it, and no two files import
//! each other. These are the layers, from the top to the bottom:
//!
//! | layer | files |
//! |---|---|
//! | what other crates call | `module`, `fatbin`, `translate`, `link` and the files in `link/` |
//! | reading the text | `parser` and the files in `parser/` |
//! | layout of a whole module | `layout` |
//! | vocabulary | `forms`, `symbols`, `lexer`, `error`, `ir` |
//!
//! The files in `translate/` have layers of their own:
//!
//! | layer | files |
//! |---|---|
//! | a whole kernel | `body`, `machine`, `prelude` |
//! | one instruction, jumps, meetings | `statement`, `jump`, `warp`, `broadcast`, `call` |
//! | families: numbers | `integer`, `compare`, `float`, `half`, `convert` |
//! | families: memory | `memory`, `atomic`, `texture` |
//! | expressions in C | `operand`, `address`, `param`, `special` |
//! | the text so far | `writer` |
//! | stops of a warp's lanes | `order`, `stop_search`, `access`, `alias`, `spin`, `peers` |
//! | values of addresses | `conditions`, `address_form`, `values`, `roots`, `linear` |
//! | who reaches a meeting | `agree`, `convergence`, `paths`, `ending`, `regions` |
//! | control flow | `uniform`, `flow` |
//! | one function per kernel | `inline`, `promote` |
//! | vocabulary | `kernel`, `options`, `control`, `lvalue`, `c_type`, `effects`, `error` |
#![forbid(unsafe_code)]

mod error;
pub mod fatbin;
pub mod forms;
pub mod ir;
mod layout;
mod lexer;
pub mod link;
pub mod module;
mod parser;
mod symbols;
pub mod translate;
