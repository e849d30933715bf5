//! What decides the speed and the correctness of a node's accelerators, read from files.
//!
//! Three layers, each of which uses only those above it in this table:
//!
//! | module | contents |
//! |---|---|
//! | [`tree`] | a read-only view of a file tree: that of this host, or a copy of another's |
//! | [`facts`] | what the files of a tree say, as types |
//! | [`check`] | pure functions from facts to [`Finding`]s, and the table of all checks |
//! | [`collect`] | a copy of the files that the facts need, without secrets |
//!
//! docs/doctor.md is made from the table of all checks.
//!
//! Every file passes a filter of [`tree::keep`] when the tree reads it, and the facts see only what
//! the filter kept. A collected tree holds exactly this text. So it contains no more than the
//! checks need, and gives the same findings as the host.
//!
//! A copied tree may be hostile: no read leaves the tree or exceeds the limits in [`limits`].
#![forbid(unsafe_code)]

pub mod check;
pub mod collect;
pub mod facts;
mod finding;
pub mod limits;
pub mod tree;

pub use check::examine;
pub use facts::Facts;
pub use finding::{Finding, Severity, Topic};
pub use tree::{Answers, Tree, TreeError};
