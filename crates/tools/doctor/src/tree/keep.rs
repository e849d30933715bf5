//! Filters: what a tree keeps of a file that it reads.
//!
//! The facts see only what a filter keeps, and a collected tree contains only this. So each filter
//! names what the checks need, instead of what is secret. A filter changes nothing in a text that
//! it made itself: a copy of a tree reads like the tree.

use crate::limits::CAPABILITIES_MAX;

/// A filter: what is kept of a text.
pub type Keep = fn(&str) -> String;

/// Number of bytes of one line that is kept.
const LINE_BYTES_MAX: usize = 1_024;

/// Keeps the first line, as files of sysfs have only one.
pub fn line(text: &str) -> String {
    printable(text.lines().next().unwrap_or_default())
}

/// Keeps one word if it is one of `known`. Every other text becomes `other`.
pub fn one_of(text: &str, known: &[&str]) -> String {
    let word = text.trim();
    if known.contains(&word) { word.to_owned() } else { "other".to_owned() }
}

/// Keeps the lines `key: value`, `key=value` or `key value` with one of these keys. The first line
/// of each key counts.
pub fn keys(text: &str, keys: &[&str]) -> String {
    let line_of = |key: &&str| {
        text.lines().find_map(|line| {
            let rest = line.trim_start().strip_prefix(*key)?;
            let whole = rest.starts_with([':', '=', ' ', '\t']);
            whole.then(|| printable(line.trim()))
        })
    };
    let lines: Vec<String> = keys.iter().filter_map(line_of).collect();
    lines.join("\n")
}

/// Returns the value in a line that [`keys`] kept.
pub fn value<'a>(kept: &'a str, key: &str) -> Option<&'a str> {
    kept.lines().find_map(|line| {
        let rest = line.strip_prefix(key).filter(|rest| rest.starts_with([':', '=', ' ', '\t']))?;
        Some(rest.trim_start().trim_start_matches([':', '=']).trim())
    })
}

/// Keeps the words `name` or `name=value` whose name is one of `names`.
pub fn words(text: &str, names: &[&str]) -> String {
    let is_kept =
        |word: &&str| names.contains(&word.split_once('=').map_or(*word, |(name, _)| name));
    text.split_whitespace().filter(is_kept).map(printable).collect::<Vec<_>>().join(" ")
}

/// Keeps all lines that are hexadecimal or decimal numbers, such as those of a PCI device's
/// `resource`.
pub fn numbers(text: &str) -> String {
    let is_number = |word: &str| {
        word.strip_prefix("0x").unwrap_or(word).chars().all(|digit| digit.is_ascii_hexdigit())
    };
    let lines = text.lines().filter(|line| line.split_whitespace().all(is_number));
    lines.take(64).map(printable).collect::<Vec<_>>().join("\n")
}

/// Replaces control characters by spaces, and shortens the line.
pub fn printable(line: &str) -> String {
    let mut text = String::new();
    for letter in line.trim().chars() {
        if text.len() + letter.len_utf8() > LINE_BYTES_MAX {
            break;
        }
        text.push(if letter.is_control() { ' ' } else { letter });
    }
    // A control character at the start or end has become a space.
    text.trim().to_owned()
}

/// Offset of the first extended capability in the configuration space.
pub const EXTENDED: usize = 0x100;
/// Extended capability: access control services.
pub const ACS: u16 = 0x000d;

/// Keeps the heads of the extended capabilities, and the registers of [`ACS`]. All other bytes
/// become zero: among them is the device's serial number.
pub fn pci_config(config: &[u8]) -> Vec<u8> {
    let mut kept = vec![0; config.len().min(0x1000)];
    for (at, id) in capabilities(config) {
        // The head has 4 bytes, and access control services have two registers of 2 bytes more.
        let length = if id == ACS { 8 } else { 4 };
        if let (Some(to), Some(from)) = (kept.get_mut(at..at + length), config.get(at..at + length))
        {
            to.copy_from_slice(from);
        }
    }
    kept
}

/// Returns the offsets and the identifiers of the extended capabilities.
pub fn capabilities(config: &[u8]) -> Vec<(usize, u16)> {
    let mut found: Vec<(usize, u16)> = Vec::new();
    let mut at = EXTENDED;
    while let Some(head) = word(config, at) {
        let id = (head & 0xffff) as u16;
        let is_end = head == 0 || head == u32::MAX || found.len() >= CAPABILITIES_MAX;
        if is_end || found.iter().any(|(seen, _)| *seen == at) {
            break;
        }
        found.push((at, id));
        // The lowest two bits of the offset of the next capability are reserved.
        at = (head >> 20) as usize & !3;
        if at < EXTENDED {
            break;
        }
    }
    found
}

/// Returns the little-endian number at this offset.
pub fn word(config: &[u8], at: usize) -> Option<u32> {
    let bytes = config.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}
