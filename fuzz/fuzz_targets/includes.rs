//! Any text as a source that includes files, with any options. The part in front of the first zero
//! byte is the options. What the search takes lies in its picture of a file system.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_client::headers::directive::Directives;
use penstock_client::headers::search::collect;
use penstock_client::headers::tree::{Entry, Files, TooLarge};
use penstock_wire::headers::components;

/// A file system in which each second name is a file with the source, and others are folders and
/// links.
struct Echo<'a>(&'a [u8]);

impl Files for Echo<'_> {
    fn entry(&self, path: &[u8]) -> Entry {
        // Each folder has all names again, so a search without a limit would not end.
        if path.len() > 40 {
            return Entry::None;
        }
        match path.last() {
            Some(b'l') => Entry::Link(path.get(..path.len() / 2).unwrap_or_default().to_vec()),
            Some(b'h') => Entry::File,
            Some(b'/' | b'x') | None => Entry::None,
            Some(_) => Entry::Folder,
        }
    }

    fn read(&self, _: &[u8], bytes_max: usize) -> Result<Option<Vec<u8>>, TooLarge> {
        if self.0.len() > bytes_max { Err(TooLarge) } else { Ok(Some(self.0.to_vec())) }
    }
}

fuzz_target!(|text: &[u8]| {
    let (options, source) = match text.iter().position(|byte| *byte == 0) {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (&b""[..], text),
    };
    let Some(directives) = Directives::of(source) else { return };
    _ = directives.relocated(source);
    let options = String::from_utf8_lossy(options);
    let Ok(Some(headers)) = collect(&Echo(source), &[&directives], &options, Some(b"/here")) else {
        return;
    };
    for file in &headers.files {
        assert!(components(&file.path).is_some_and(|names| !names.is_empty()));
    }
});
