//! What a C interface needs: the form of entry points, errors, handles, and access to the program's
//! memory.

mod entry;
mod error;
mod handle;
mod image;
mod log;
mod memory;
mod pages;
mod process;
pub(crate) mod window;

pub(crate) use entry::{DefaultStream, cu_entry, cu_stream_entry, guard};
pub(crate) use error::{CuResult, of_error, of_status, require};
pub(crate) use handle::{Object, forget, forget_of, has_handle, new_number, publish};
pub(crate) use image::image;
pub(crate) use log::Logs;
pub(crate) use memory::{
    Bytes, HostCall, HostSource, HostTarget, UserData, array, load, store, text,
};
pub(crate) use pages::Pages;
pub(crate) use process::{check_process, watch_forks};
