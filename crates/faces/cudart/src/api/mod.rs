//! The functions of the interface by topic, and their table.
//!
//! Functions with the same parameters repeat their list, because each function states its type in
//! full, as C's header does.

pub mod array;
pub mod capture;
pub mod copy;
pub mod device;
pub mod error;
pub mod event;
pub mod function;
pub mod graph;
pub mod graph_node;
pub mod kernel;
pub mod launch;
pub mod managed;
pub mod memory;
pub mod memset;
mod pass_on;
pub mod peer;
pub mod pool;
pub mod registration;
pub mod row;
pub mod stream;
pub mod symbol;
pub mod table;
pub mod texture;
pub mod version;
