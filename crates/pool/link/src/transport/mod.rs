//! The transports: one module for each kind of connection between two processes.
//!
//! A transport implements these traits:
//! * [`contract::Transport`] names the scheme of its addresses and reads them.
//! * [`contract::Endpoint`] is one address: it connects, listens, and answers what callers ask of
//!   addresses.
//! * [`contract::Accepting`] makes connections of the sockets that a listener accepts. A transport
//!   that only connects does without it.
//! * [`contract::Connection`] is one connected socket: it moves bytes and knows its peer.
//!
//! All other code asks these traits and never which transport it has. CONTRIBUTING.md, "A new
//! transport", lists the steps.
//!
//! Each connection has one socket. Threads sleep on this socket, and its hang-up is the end of the
//! connection. By default the bytes go through it too. A connection may carry them elsewhere, and
//! then uses the socket as the doorbell and as the sign of life.

pub(crate) mod contract;
pub(crate) mod exact;
mod host_port;
pub(crate) mod region;
pub(crate) mod rings;
pub(crate) mod syscall;
#[cfg(test)]
mod tests;
pub(crate) mod tls;

use contract::Transport;
use rustix::net::AddressFamily;

/// Declares the transports. Each module has a constant `TRANSPORT`, and in its module of tests a
/// function `addresses`, with which the tests of all transports run over this one.
macro_rules! transports {
    ($($module:ident,)+) => {
        $(pub(crate) mod $module;)+

        /// All transports. If several could take the same socket, the first one gets it.
        static ALL: &[&dyn Transport] = &[$(&$module::TRANSPORT),+];

        #[cfg(test)]
        mod suites {
            $(mod $module {
                crate::transport::tests::over!(crate::transport::$module::tests::addresses);
            })+
        }
    };
}

transports! {
    unix,
    tcp,
    vsock,
    ssh,
}

/// Returns the transport with this scheme.
pub(crate) fn of_scheme(scheme: &str) -> Option<&'static dyn Transport> {
    ALL.iter().copied().find(|transport| transport.scheme() == scheme)
}

/// Returns the transport whose connections are plain sockets of this family.
pub(crate) fn of_family(family: AddressFamily) -> Option<&'static dyn Transport> {
    ALL.iter().copied().find(|transport| transport.families().contains(&family))
}

/// Returns the forms of addresses and then `more` as a list for a message: "A, B or C".
pub(crate) fn forms(more: &[&str]) -> String {
    let all: Vec<&str> =
        ALL.iter().map(|transport| transport.form()).chain(more.iter().copied()).collect();
    match all.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => all.concat(),
    }
}
