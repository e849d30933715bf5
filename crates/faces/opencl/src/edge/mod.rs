//! The C interface: entry points, errors, handles, arrays and strings of the program, and answers
//! to information queries.

mod entry;
mod error;
mod handle;
mod info;
mod memory;
mod slot;
mod stub;
mod user;

pub(crate) use entry::{cl_entry, failed, functions, guard};
pub use error::{ClError, ClResult, require};
pub use handle::{Handle, Object, Ref};
pub use info::{Answer, Plain};
pub use memory::{array, properties, store, text};
pub use stub::Stub;
pub use user::UserData;
