//! Answers to OpenCL's queries, as bytes.

/// Encodes a text with a terminating NUL.
pub(super) fn text(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

pub(super) fn int(value: i32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

pub(super) fn uint(value: u32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

pub(super) fn yes(value: bool) -> Vec<u8> {
    uint(u32::from(value))
}

pub(super) fn ulong(value: u64) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

pub(super) fn sizes(values: &[usize]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}
