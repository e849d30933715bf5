//! Handshakes with other implementations, which need what the crate does not show to its users.

mod interop;
