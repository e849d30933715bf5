//! The proxy: it carries what kernels write into their rings to other members, and what those send
//! into the parts.
//!
//! | file | contains |
//! |---|---|
//! | `ring.rs`, `request.rs` | the ring of a PE, and the requests in its entries |
//! | `carrier.rs` | the transport of bytes to and from one other member |
//! | `input.rs`, `output.rs` | the frames that another member sends, and those for it |
//! | `thread.rs` | the thread, which serves all rings and all members |
//! | `listener.rs` | the receiving side without a socket, for tests and fuzzing |

pub(crate) mod carrier;
mod input;
mod listener;
mod output;
mod request;
pub mod ring;
mod thread;

pub use self::input::PeerMessage;
pub use self::listener::Listener;
pub(crate) use self::thread::start;
