//! The device query language (DQL). A query selects devices of the pool, and orders them.
//!
//! ```text
//! SELECT [ALL | TOP k | POS i] [FROM NODE n, a-b, host, ...] [WHERE condition]
//!     [ORDER BY attribute [ASC | DESC], ...]
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
//! * The attributes are those of `clGetDeviceInfo` in lower case without `CL_DEVICE_`, short names
//!   for some of them, and the properties of a device's node: see [`Attribute::all`].
//! * A condition on an unknown value (`NULL`) is neither true nor false, so neither the condition
//!   nor its opposite selects the device. `IS NULL` tests for unknown values.
//! * Comparisons of texts ignore the case of ASCII letters. `vendor = nvidia` (a bare word) is true
//!   for a text that contains this word alone; `vendor = 'nvidia'` only if it is the whole text. In
//!   `LIKE`, `%` stands for any characters and `_` for one.
//! * `KB` to `TB` and `KiB` to `TiB` are powers of 1024; sizes without a unit are bytes. `Hz` to
//!   `GHz` are powers of 1000; frequencies without a unit are MHz.
//! * `POS i` counts from 1 in the order of the query.
//! * Devices that the query does not order come by rank, then by index in the node (which counts
//!   platform by platform), then in the given order.
//!
//! [`Template`] is a query with holes, as for `printf`. Values are put into the parsed query and
//! never into its text, so a value cannot change the meaning of the query.
//!
//! # Layers
//!
//! A file only imports files of the layers below it, and a file named before it in its own layer.
//!
//! * Operations: `query`, `template`. Users call them.
//! * Steps: `lex` (text to tokens), `syntax` (tokens to a tree), `check` (tree to a checked query),
//!   `eval` (which devices), `print` (the canonical text).
//! * Data: `tree` (a query as written), `checked` (a checked query).
//! * Vocabulary: `error`, `value`, `hole`, `kind` and `table` (types and names of attributes),
//!   `attribute`, `device`.
//! * Helpers: `limits`, `suggest` (similar names), `text` (comparisons of texts).
#![forbid(unsafe_code)]

mod attribute;
mod check;
mod checked;
mod device;
mod error;
mod eval;
mod hole;
mod kind;
mod lex;
pub mod limits;
mod print;
mod query;
mod suggest;
mod syntax;
mod table;
mod template;
mod text;
mod tree;
mod value;

pub use attribute::Attribute;
pub use checked::{Query, Selection};
pub use device::{Device, Listed, NodeFacts, RawDevice};
pub use error::{Error, ErrorKind};
pub use hole::HoleKind;
pub use kind::{Kind, Named, NodeAttribute, Source};
pub use template::Template;
pub use value::{Value, Version};
