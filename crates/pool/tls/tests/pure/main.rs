//! The tests that use no device and no daemon. They are one program, because the building of a
//! program takes longer than most of its tests.

mod common;
mod files;
mod handshake;
mod rustls;
mod tamper;
