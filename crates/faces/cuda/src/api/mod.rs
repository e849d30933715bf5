//! CUDA's functions, one module per section of the interface's documentation. Below this module
//! there are no raw pointers of programs.
//!
//! Functions with the same parameters repeat their list, because each function states its type in
//! full, as C's header does.
#![allow(non_snake_case, reason = "C's names of parameters")]

pub mod array;
pub mod capture;
pub mod context;
pub mod copy;
pub mod device;
pub mod error;
pub mod event;
pub mod function;
pub mod grant;
pub mod graph;
pub mod graph_exec;
pub mod graph_memory;
pub mod graph_node;
pub mod heap;
pub mod launch;
pub mod library;
pub mod library_call;
pub mod link;
pub mod managed;
pub mod memory;
pub mod memset;
pub mod module;
pub mod occupancy;
pub mod peer;
pub mod pointer;
pub mod pool;
pub mod primary;
pub mod proc_address;
pub mod profiler;
pub mod row;
pub mod setup;
pub mod stream;
pub mod table;
pub mod texture;
pub mod unserved;
