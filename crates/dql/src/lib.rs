//! The device query language (DQL): which devices of the pool, in which order.
//!
//! ```text
//! SELECT [ALL | TOP k | POS i] [FROM NODE n, a-b, host, ...] [WHERE condition] [ORDER BY attribute [ASC | DESC], ...]
//! ```
//!
//! ```
//! use penstock_dql::{Attribute, Listed, Query, Value};
//!
//! let memory = Attribute::find("global_memory").unwrap();
//! let small = Listed::new().with(memory, Value::Int(1 << 30));
//! let large = Listed::new().with(memory, Value::Int(8 << 30));
//! let query = Query::parse("SELECT ALL WHERE global_memory > 1024MB")?;
//! assert_eq!(query.select(&[small, large]), [1]);
//! # Ok::<(), penstock_dql::Error>(())
//! ```
//!
//! * Attributes are those of `clGetDeviceInfo` in small letters without `CL_DEVICE_`, short names for some of them, and
//!   what is known of a device's node: see [`Attribute::all`].
//! * A condition on what is not known of a device (`NULL`) is neither true nor false, so that it and its opposite do not
//!   select that device. `IS NULL` asks for it.
//! * Texts are compared without regard to the case of ASCII letters. `vendor = nvidia` (a bare word) is true for a text that
//!   is the word or in which the word stands alone; `vendor = 'nvidia'` only if that is the whole text. `LIKE` knows `%`
//!   (anything) and `_` (one character).
//! * `KB` to `TB` and `KiB` to `TiB` are powers of 1024; sizes without a unit are bytes. `Hz` to `GHz` are powers of 1000;
//!   frequencies without a unit are MHz.
//! * `POS i` counts from 1 in the order of the query.
//! * Where nothing else decides, devices come in the order of rank, then index in the node (which counts platform by
//!   platform), then as they are given.
//!
//! [`Template`] is a query with holes, as for `printf`. Values are put into the parsed query and never into its text, so a
//! value cannot change what the query means.
#![forbid(unsafe_code)]

mod attribute;
mod attributes;
mod check;
mod device;
mod error;
mod eval;
mod lex;
pub mod limits;
mod print;
mod query;
mod suggest;
mod syntax;
mod template;
mod text;
mod value;

pub use attribute::{Attribute, Kind, Named, NodeAttribute, Source};
pub use device::{Device, Listed, NodeFacts, RawDevice};
pub use error::{Error, ErrorKind};
pub use query::{Query, Selection};
pub use template::{HoleKind, Template};
pub use value::{Value, Version};
