//! Output of kernels: records in a ring, formatted as C's `printf` does.

use std::ffi::CString;

use rustc_hash::FxHashMap;

/// Header of a record: its size, the size of its arguments, the address of its format.
const HEADER_BYTES: usize = 16;

/// Prints the records of a ring. `text` reads a string on the device. It is called once per
/// address, because most records share a few strings.
pub(crate) fn print(mut records: &[u8], text: &mut dyn FnMut(u64) -> Vec<u8>) {
    let mut out = Vec::new();
    let mut known = FxHashMap::<u64, Vec<u8>>::default();
    let mut text = |address| known.entry(address).or_insert_with(|| text(address)).clone();
    while let Some((header, _)) = records.split_first_chunk::<HEADER_BYTES>() {
        let u32_at = |at: usize| {
            header.get(at..).and_then(|it| it.first_chunk()).map_or(0, |it| u32::from_le_bytes(*it))
        };
        let size = u32_at(0) as usize;
        let format = header.last_chunk().map_or(0, |it| u64::from_le_bytes(*it));
        // Stops at the first invalid record, because the device's output cannot be trusted.
        let Some((record, rest)) = records.split_at_checked(size).filter(|_| size >= HEADER_BYTES)
        else {
            break;
        };
        let args = record.get(HEADER_BYTES..).unwrap_or_default();
        let args = args.get(..u32_at(4) as usize).unwrap_or(args);
        let format = text(format);
        render(&format, args, &mut text, &mut out);
        records = rest;
    }
    if !out.is_empty() {
        penstock_process::stdout::print(&out);
    }
}

/// The arguments of a call in sequence, each aligned to its size.
struct Args<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Args<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        self.at = self.at.next_multiple_of(N);
        let value = self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.first_chunk::<N>())
            .copied()
            .unwrap_or([0; N]);
        self.at += N;
        value
    }
}

/// Formats one call as C's `printf` does. The compiler laid out the arguments: integers have 4
/// bytes unless `l`, floating-point numbers are doubles.
fn render(format: &[u8], args: &[u8], text: &mut dyn FnMut(u64) -> Vec<u8>, out: &mut Vec<u8>) {
    let mut args = Args { bytes: args, at: 0 };
    let mut rest = format;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        let (before, spec) = rest.split_at(at);
        out.extend_from_slice(before);
        let length = spec
            .iter()
            .skip(1)
            .position(|byte| !b"#0-+ 123456789*.hlLqjzt".contains(byte))
            .map(|at| at + 2);
        let Some((spec, behind)) = length.and_then(|length| spec.split_at_checked(length)) else {
            out.extend_from_slice(spec);
            return;
        };
        conversion(spec, &mut args, text, out);
        rest = behind;
    }
    out.extend_from_slice(rest);
}

/// Formats one conversion, `%...`.
fn conversion(
    spec: &[u8],
    args: &mut Args<'_>,
    text: &mut dyn FnMut(u64) -> Vec<u8>,
    out: &mut Vec<u8>,
) {
    let (Some(letter), wide) =
        (spec.last().copied(), spec.iter().any(|byte| b"lqjzt".contains(byte)))
    else {
        return;
    };
    // Flags, width and precision, without C's length modifiers. "Width: '*'": an argument gives the
    // width; a negative one adds the flag `-`.
    let mut plain = Vec::with_capacity(spec.len());
    for byte in &spec[..spec.len() - 1] {
        match byte {
            b'*' => plain.extend_from_slice(i32::from_le_bytes(args.take()).to_string().as_bytes()),
            b'h' | b'l' | b'L' | b'q' | b'j' | b'z' | b't' => {}
            other => plain.push(*other),
        }
    }
    let with = |length: &str| {
        CString::new([plain.as_slice(), length.as_bytes(), &[letter]].concat()).unwrap_or_default()
    };
    let short = spec.iter().filter(|byte| **byte == b'h').count();
    match letter {
        b'%' => out.push(b'%'),
        b'd' | b'i' if wide => {
            c_format(&with("ll"), Value::Int(i64::from_le_bytes(args.take())), out)
        }
        b'd' | b'i' => {
            let value = i32::from_le_bytes(args.take());
            #[allow(clippy::cast_possible_truncation, reason = "what h asks for")]
            let value = match short {
                0 => i64::from(value),
                1 => i64::from(value as i16),
                _ => i64::from(value as i8),
            };
            c_format(&with("ll"), Value::Int(value), out);
        }
        b'u' | b'o' | b'x' | b'X' if wide => {
            c_format(&with("ll"), Value::Int(i64::from_le_bytes(args.take())), out);
        }
        b'u' | b'o' | b'x' | b'X' => {
            let value = u32::from_le_bytes(args.take());
            let value = match short {
                0 => value,
                1 => value & 0xffff,
                _ => value & 0xff,
            };
            c_format(&with("ll"), Value::Int(i64::from(value)), out);
        }
        b'c' => c_format(&with(""), Value::Char(i32::from_le_bytes(args.take())), out),
        b'e' | b'E' | b'f' | b'F' | b'g' | b'G' | b'a' | b'A' => {
            c_format(&with(""), Value::Float(f64::from_le_bytes(args.take())), out);
        }
        b'p' => c_format(&with(""), Value::Int(i64::from_le_bytes(args.take())), out),
        b's' => {
            let string = CString::new(text(u64::from_le_bytes(args.take()))).unwrap_or_default();
            c_format(&with(""), Value::Text(&string), out);
        }
        _ => out.extend_from_slice(spec),
    }
}

enum Value<'a> {
    Int(i64),
    Char(i32),
    Float(f64),
    Text(&'a CString),
}

/// Lets C format one value, so that all rules are C's.
fn c_format(spec: &CString, value: Value<'_>, out: &mut Vec<u8>) {
    /// Longer output of one value is cut.
    const BYTES_MAX: usize = 64 << 10;
    let format = |room: &mut [u8]| {
        let (to, size, spec) = (room.as_mut_ptr().cast(), room.len(), spec.as_ptr());
        // SAFETY: `to` has `size` bytes, and `spec` has one conversion, which the caller made for
        // this type.
        let length = unsafe {
            match value {
                Value::Int(value) => libc::snprintf(to, size, spec, value),
                Value::Char(value) => libc::snprintf(to, size, spec, value),
                Value::Float(value) => libc::snprintf(to, size, spec, value),
                Value::Text(text) => libc::snprintf(to, size, spec, text.as_ptr()),
            }
        };
        usize::try_from(length).unwrap_or(0)
    };
    let mut room = vec![0; 512];
    let mut length = format(&mut room);
    if length >= room.len() {
        room.resize(length.saturating_add(1).min(BYTES_MAX), 0);
        length = format(&mut room).min(room.len() - 1);
    }
    out.extend_from_slice(room.get(..length).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(format: &str, args: &[u8]) -> String {
        let mut out = Vec::new();
        render(format.as_bytes(), args, &mut |at| format!("text{at}").into_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn arguments_are_taken_as_the_compiler_laid_them_out() {
        let mut args = Vec::new();
        args.extend((-7i32).to_le_bytes());
        args.extend([0; 4]);
        args.extend(2.5f64.to_le_bytes());
        args.extend(9u64.to_le_bytes());
        args.extend(65u32.to_le_bytes());
        args.extend([0; 4]);
        args.extend((1i64 << 40).to_le_bytes());
        assert_eq!(rendered("%d|%5.2f|%s|%c|%lld%%\n", &args), "-7| 2.50|text9|A|1099511627776%\n");
    }

    #[test]
    fn flags_widths_and_odd_formats_are_those_of_c() {
        let seven = 7u32.to_le_bytes();
        assert_eq!(rendered("%04x", &seven), "0007");
        assert_eq!(rendered("%-4u|", &seven), "7   |");
        assert_eq!(rendered("%+d", &seven), "+7");
        assert_eq!(rendered("%hhd", &[0xff, 0, 0, 0]), "-1");
        assert_eq!(rendered("%u", &[0xff; 4]), "4294967295");
        assert_eq!(rendered("%", &[]), "%");
        assert_eq!(rendered("a%5", &[]), "a%5");
        let star = [(-4i32).to_le_bytes(), 7i32.to_le_bytes()].concat();
        assert_eq!(rendered("%*d|", &star), "7   |");
        // Missing arguments are zeros; nothing outside `args` is read.
        assert_eq!(rendered("%d %f", &[]), "0 0.000000");
    }

    #[test]
    fn a_text_is_asked_for_once() {
        // One record: its size, no arguments, the address of its format.
        let record = [16_u32.to_le_bytes(), [0; 4], 0x500_u32.to_le_bytes(), [0; 4]].concat();
        let mut asked = Vec::new();
        print(&record.repeat(1000), &mut |address| {
            asked.push(address);
            Vec::new()
        });
        assert_eq!(asked, [0x500]);
    }

    #[test]
    fn records_that_are_none_end_the_printing() {
        let mut calls = 0;
        let mut text = |_| {
            calls += 1;
            Vec::new()
        };
        print(&[0; 64], &mut text);
        print(&[0xff; 64], &mut text);
        print(&[1; 3], &mut text);
        assert_eq!(calls, 0);
    }
}
