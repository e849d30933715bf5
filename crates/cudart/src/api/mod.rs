//! The functions of the interface by topic, and their table.

pub mod arrays;
pub mod capture;
pub mod copies;
pub mod device;
pub mod errors;
pub mod events;
pub mod functions;
pub mod graph_nodes;
pub mod graphs;
pub mod kernels;
pub mod launch;
pub mod memory;
pub mod memset;
pub mod peers;
pub mod pools;
pub mod registration;
pub mod rows;
pub mod streams;
pub mod symbols;
pub mod table;
pub mod textures;
pub mod versions;
