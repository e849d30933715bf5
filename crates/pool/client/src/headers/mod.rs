//! The files that a program includes. They travel with each of its builds, because a node has no
//! files of the client, and its workers may read none.
//!
//! [`directive`] finds the directives of a source, [`options`] the folders to search, [`tree`]
//! follows names through folders and links, and [`search`] collects everything. These parts read
//! files only through the trait [`tree::Files`]. `disk` implements it.
//!
//! The search simulates what the compiler does with the options that the worker gives it. It does
//! not know which conditions hold, so it sends files that no condition includes, too.

pub mod directive;
mod disk;
pub mod options;
#[cfg(test)]
mod picture;
pub mod search;
#[cfg(test)]
mod search_tests;
pub mod tree;

use std::os::unix::ffi::OsStringExt as _;

use penstock_wire::frame;
use penstock_wire::limits::HEADERS_BYTES_MAX;

use directive::Directives;
use search::TooMuch;

/// What travels with a build.
pub(crate) struct ForBuild {
    /// An encoded [`penstock_wire::headers::Headers`].
    pub(crate) payload: Vec<u8>,
    /// Whether a kernel may print because of one of the files.
    pub(crate) may_print: bool,
}

/// Returns what a build needs from the files of this process, or `None` if it needs nothing. See
/// [`search::collect`].
///
/// # Errors
/// The program includes too much.
pub(crate) fn for_build(
    sources: &[&Directives],
    options: Option<&str>,
) -> Result<Option<ForBuild>, TooMuch> {
    let current = std::env::current_dir().ok().map(|folder| folder.into_os_string().into_vec());
    let options = options.unwrap_or_default();
    let headers = search::collect(&disk::Disk, sources, options, current.as_deref())?;
    let Some(headers) = headers else { return Ok(None) };
    let payload = frame::encode(&headers);
    if payload.len() as u64 > HEADERS_BYTES_MAX {
        return Err(TooMuch::Bytes { file: "a path or an option".into() });
    }
    let may_print = headers.files.iter().any(|file| prints(&file.text));
    Ok(Some(ForBuild { payload, may_print }))
}

/// Returns whether a kernel of this source may print.
pub(crate) fn prints(source: &[u8]) -> bool {
    memchr::memmem::find(source, b"printf").is_some()
}
