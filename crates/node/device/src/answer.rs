//! Answers to OpenCL's queries, as bytes.

/// Encodes a text with a terminating NUL.
pub(crate) fn text(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

pub(crate) fn int(value: i32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

pub(crate) fn uint(value: u32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

pub(crate) fn yes(value: bool) -> Vec<u8> {
    uint(u32::from(value))
}

pub(crate) fn ulong(value: u64) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

pub(crate) fn sizes(values: &[usize]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}
