//! Guests: small ones that run one program, and definitions of others.
//!
//! | module | contents |
//! |---|---|
//! | [`image`] | the initramfs of a guest: the program, its libraries, the modules of the kernel |
//! | [`machine`] | a guest as one value, and the QEMU command line for it |
//! | [`message`] | what the guest and the host tell each other about the program |
//! | [`host`] | the host's side: starts QEMU, carries the program's input and output |
//! | [`guest`] | the guest's side: the first process, which starts the program |
//! | [`define`] | a libvirt domain, and QEMU's command line for the same guest |
//!
//! The first process is the command `penstock` itself. It needs no shell in the guest, so no
//! argument is ever quoted, and no second program has to be built for guests.
//!
//! A guest is not trusted: [`message`] checks each byte that comes from it, and [`limits`] bounds
//! what it can make the host keep.
#![forbid(unsafe_code)]

pub mod define;
mod error;
pub mod guest;
pub mod host;
pub mod image;
pub mod limits;
pub mod machine;
pub mod message;

pub use error::VmError;
