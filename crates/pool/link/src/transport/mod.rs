//! The transports: one folder for each kind of connection between two processes.
//!
//! A transport fills one [`contract::Transport`], which reads addresses and takes sockets. Its
//! addresses implement [`contract::Reach`], and its listeners [`contract::Accepting`]. Both make a
//! [`contract::Connection`] of three parts: bytes, facts and liveness.
//!
//! All other code asks these parts and never which transport it has. CONTRIBUTING.md, "A new
//! transport", lists the steps.
//!
//! Three layers lie over the bytes of any transport: [`tls`] encrypts them, and [`rings`] and
//! [`region`] move the frames into memory that both sides share.

pub(crate) mod contract;
pub(crate) mod exact;
mod host_port;
mod plain;
pub(crate) mod region;
pub(crate) mod rings;
pub(crate) mod socket_file;
pub(crate) mod syscall;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
#[cfg(feature = "world")]
mod world;

use contract::Transport;
use rustix::net::AddressFamily;

/// Declares the transports. Each module has a static `TRANSPORT`, and in its module of tests a
/// function `addresses`, with which the tests of all transports run over this one.
macro_rules! transports {
    ($($(#[$when:meta])? $module:ident,)+) => {
        $($(#[$when])? pub(crate) mod $module;)+

        /// All transports. If several could take the same socket, the first one gets it.
        static ALL: &[&Transport] = &[$($(#[$when])? &$module::TRANSPORT),+];

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
    #[cfg(any(test, feature = "world"))]
    mem,
}

/// Returns the transport with this scheme.
pub(crate) fn of_scheme(scheme: &str) -> Option<&'static Transport> {
    ALL.iter().copied().find(|transport| transport.scheme == scheme)
}

/// Returns the transport whose connections are plain sockets of this family.
pub(crate) fn of_family(family: AddressFamily) -> Option<&'static Transport> {
    ALL.iter().copied().find(|transport| transport.families.contains(&family))
}

/// See [`Transport::brought`].
pub(crate) fn brought(features: u64) -> Option<contract::Way> {
    ALL.iter().find_map(|transport| (transport.brought)(features))
}

/// Returns the forms of addresses and then `more` as a list for a message: "A, B or C".
pub(crate) fn forms(more: &[&str]) -> String {
    let all: Vec<&str> =
        ALL.iter().map(|transport| transport.form).chain(more.iter().copied()).collect();
    match all.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => all.concat(),
    }
}
