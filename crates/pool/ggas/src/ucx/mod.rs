//! UCX as carrier of the proxy's bytes between two members, over InfiniBand and other networks.
//!
//! * Members meet over their authenticated stream. There they exchange a secret and the addresses
//!   of their ends of UCX. Each message carries the receiver's secret and a sequence number. A
//!   message without the secret is a stranger's and is dropped.
//! * The stream stays open. It reveals the end of a member at once, and a leaving member reports
//!   over it how many messages it has sent.
//! * Bytes are sent as eager active messages of bounded size over one lane, so they keep their
//!   order. The number would reveal a violation.
//! * UCX gets no turn while more than a few MiB are unread, so arrivals cannot pile up.
//!
//! Only our own processes use UCX, never a library that a program loads: UCX has a thread, and is
//! as large as all of Penstock.
//!
//! | file | contains |
//! |---|---|
//! | `sys.rs`, `error.rs` | the used part of UCX's C interface, and why UCX is not used |
//! | `library.rs` | the library, initialised once in a process |
//! | `arrivals.rs` | messages that have arrived and are unread |
//! | `engine.rs` | one heap's end of UCX |
//! | `carrier.rs` | a stream of bytes to and from another member |
//! | `agreement.rs`, `offer.rs` | the agreement of two members on UCX, and a heap's offer of it |

mod agreement;
mod arrivals;
mod carrier;
mod engine;
mod error;
mod library;
mod offer;
mod sys;
#[cfg(test)]
mod tests;

pub(crate) use self::agreement::{UcxAgreement, agree};
pub use self::error::UcxError;
pub use self::library::{ENVIRONMENT, open};
pub(crate) use self::offer::Offer;
