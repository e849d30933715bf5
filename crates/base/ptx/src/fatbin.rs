//! Fat binaries: the containers in which a CUDA program carries its kernels, in several forms.
//!
//! A fat binary is a header of 16 bytes, followed by entries. An entry is a header and a payload,
//! which may be compressed:
//!
//! | bytes | of the header |
//! |---|---|
//! | 0..4 | 0xba55ed50 |
//! | 4..6 | version, 1 |
//! | 6..8 | bytes of this header |
//! | 8..16 | bytes of all entries |
//!
//! | bytes | of an entry |
//! |---|---|
//! | 0..2 | kind: 1 PTX, 2 ELF |
//! | 4..8 | bytes of this header |
//! | 8..16 | bytes of the payload, with padding |
//! | 16..20 | bytes of the compressed payload, without padding |
//! | 28..32 | architecture, such as 75 |
//! | 40..48 | flags: 0x2000 LZ4, 0x8000 Zstandard |
//! | 56..64 | bytes of the payload when it is decompressed |
//!
//! All numbers are little-endian. Every length is checked: a fat binary comes from the program.

use std::io::Read;

use thiserror::Error;

use crate::lexer::{Lexer, Token};

/// First four bytes of a fat binary.
pub const MAGIC: u32 = 0xba55_ed50;

/// Number of bytes that [`total_size`] needs.
pub const HEADER_BYTES: usize = 16;

/// Length of the part of an entry's header that every version has.
const ENTRY_HEADER_BYTES: usize = 64;

/// Marks an ELF file.
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// Bytes of the header of a 64-bit ELF file.
const ELF_HEADER_BYTES: usize = 64;

/// Largest number of entries. One entry for each existing architecture and form makes fewer than
/// 100.
const ENTRIES_MAX: usize = 4096;

/// Number of tokens in which PTX text names its version and target.
const HEAD_TOKENS_MAX: usize = 16;

/// Largest size of an image after decompression. The largest modules of libraries have some 100 MiB
/// of PTX.
pub const IMAGE_BYTES_MAX: u64 = 512 << 20;

/// Largest compression ratio of LZ4: one byte stands for at most 255 bytes of the result.
const LZ4_RATIO_MAX: u64 = 255;

const KIND_PTX: u16 = 1;
const KIND_ELF: u16 = 2;
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;

/// The kernels for one architecture in one form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub kind: ImageKind,
    /// The architecture as a number, such as 75; 0 if the image does not name one.
    pub arch: u32,
    /// The decompressed image; PTX comes without the NULs at its end.
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// PTX text, which [`crate::module::parse`] takes.
    Ptx,
    /// Machine code for one architecture, in an ELF file. It can be given to a real driver only.
    Elf,
}

/// Why the bytes cannot be read as a fat binary.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FatbinError {
    /// The bytes start with no known signature.
    #[error("the bytes are neither a fat binary nor an ELF file nor PTX")]
    Unknown,
    /// The version of the fat binary is not 1.
    #[error("the fat binary has version {0}, but only version 1 is supported")]
    Version(u16),
    /// A length points beyond the end.
    #[error("{what} reaches beyond the end of the fat binary")]
    Truncated {
        /// The part whose length is wrong.
        what: &'static str,
    },
    /// A length is smaller than the part's fixed fields.
    #[error("{what} is too short: {bytes} bytes")]
    TooShort {
        /// The part whose length is wrong.
        what: &'static str,
        /// Length in bytes that the fat binary states.
        bytes: u64,
    },
    /// An image larger than [`IMAGE_BYTES_MAX`].
    #[error("an image has more than {IMAGE_BYTES_MAX} bytes")]
    TooLarge,
    /// More entries than `ENTRIES_MAX`.
    #[error("the fat binary has more than {ENTRIES_MAX} entries")]
    TooMany,
    /// A compressed image that does not decompress to the size in its header.
    #[error("entry {entry} cannot be decompressed with {method}")]
    Compression {
        /// Ordinal of the entry, counted from 0.
        entry: usize,
        method: &'static str,
    },
}

/// Returns the size in bytes of a fat binary and its header, computed from its first 16 bytes.
///
/// # Errors
/// [`FatbinError::Unknown`] if the bytes do not start a fat binary, [`FatbinError::Version`],
/// [`FatbinError::TooShort`], and [`FatbinError::TooLarge`] for a length that no program can hold.
pub fn total_size(header: &[u8; HEADER_BYTES]) -> Result<u64, FatbinError> {
    if field::<4>(header, 0) != Some(MAGIC.to_le_bytes()) {
        return Err(FatbinError::Unknown);
    }
    let version = u16::from_le_bytes(field(header, 4).unwrap_or_default());
    if version != 1 {
        return Err(FatbinError::Version(version));
    }
    let header_bytes = u64::from(u16::from_le_bytes(field(header, 6).unwrap_or_default()));
    if header_bytes < HEADER_BYTES as u64 {
        return Err(FatbinError::TooShort { what: "the header", bytes: header_bytes });
    }
    let payload = u64::from_le_bytes(field(header, 8).unwrap_or_default());
    // User space has half of the 48-bit address space, which bounds every valid length.
    payload.checked_add(header_bytes).filter(|size| *size < 1 << 47).ok_or(FatbinError::TooLarge)
}

/// Returns the images in a fat binary, an ELF file, or PTX text, which may end with NULs.
///
/// Entries of unknown kinds are skipped.
///
/// # Errors
/// A [`FatbinError`] for bytes of any other format, for lengths that point beyond the end, and for
/// images that cannot be decompressed.
pub fn images(bytes: &[u8]) -> Result<Vec<Image>, FatbinError> {
    if bytes.starts_with(&MAGIC.to_le_bytes()) {
        return entries(bytes);
    }
    if bytes.starts_with(ELF_MAGIC) {
        let arch = elf_arch(bytes)?;
        return Ok(vec![Image { kind: ImageKind::Elf, arch, bytes: bytes.to_vec() }]);
    }
    let text = without_nuls(bytes);
    let arch = ptx_arch(text).ok_or(FatbinError::Unknown)?;
    Ok(vec![Image { kind: ImageKind::Ptx, arch, bytes: text.to_vec() }])
}

fn entries(bytes: &[u8]) -> Result<Vec<Image>, FatbinError> {
    let header: &[u8; HEADER_BYTES] =
        bytes.first_chunk().ok_or(FatbinError::Truncated { what: "the header" })?;
    let total = usize::try_from(total_size(header)?).map_err(|_| FatbinError::TooLarge)?;
    let start = usize::from(u16::from_le_bytes(field(header, 6).unwrap_or_default()));
    let mut rest =
        bytes.get(start..total).ok_or(FatbinError::Truncated { what: "the last entry" })?;
    let mut images = Vec::new();
    let mut number = 0;
    while !rest.is_empty() {
        if number == ENTRIES_MAX {
            return Err(FatbinError::TooMany);
        }
        let (image, behind) = entry(rest, number)?;
        images.extend(image);
        rest = behind;
        number += 1;
    }
    Ok(images)
}

/// Returns the first entry of `bytes` and the bytes behind it. The entry is `None` if its kind is
/// unknown.
fn entry(bytes: &[u8], number: usize) -> Result<(Option<Image>, &[u8]), FatbinError> {
    let short = FatbinError::Truncated { what: "an entry's header" };
    let fixed: &[u8; ENTRY_HEADER_BYTES] = bytes.first_chunk().ok_or(short.clone())?;
    let kind = u16::from_le_bytes(field(fixed, 0).unwrap_or_default());
    let header_bytes = u32::from_le_bytes(field(fixed, 4).unwrap_or_default());
    let size = u64::from_le_bytes(field(fixed, 8).unwrap_or_default());
    let compressed = u32::from_le_bytes(field(fixed, 16).unwrap_or_default());
    let arch = u32::from_le_bytes(field(fixed, 28).unwrap_or_default());
    let flags = u64::from_le_bytes(field(fixed, 40).unwrap_or_default());
    let raw_size = u64::from_le_bytes(field(fixed, 56).unwrap_or_default());
    if (header_bytes as usize) < ENTRY_HEADER_BYTES {
        return Err(FatbinError::TooShort {
            what: "an entry's header",
            bytes: u64::from(header_bytes),
        });
    }
    let body = bytes.get(header_bytes as usize..).ok_or(short)?;
    let split = usize::try_from(size).ok().and_then(|size| body.split_at_checked(size));
    let (payload, behind) = split.ok_or(FatbinError::Truncated { what: "an entry's payload" })?;
    let kind = match kind {
        KIND_PTX => ImageKind::Ptx,
        KIND_ELF => ImageKind::Elf,
        _ => return Ok((None, behind)),
    };
    let content = if flags & (FLAG_LZ4 | FLAG_ZSTD) == 0 {
        payload.to_vec()
    } else {
        let packed = payload
            .get(..compressed as usize)
            .ok_or(FatbinError::Truncated { what: "an entry's compressed payload" })?;
        if flags & FLAG_ZSTD != 0 {
            unpack_zstd(packed, raw_size, number)?
        } else {
            unpack_lz4(packed, raw_size, number)?
        }
    };
    let content = if kind == ImageKind::Ptx { without_nuls(&content).to_vec() } else { content };
    Ok((Some(Image { kind, arch, bytes: content }), behind))
}

fn unpack_zstd(packed: &[u8], raw_size: u64, entry: usize) -> Result<Vec<u8>, FatbinError> {
    if raw_size > IMAGE_BYTES_MAX {
        return Err(FatbinError::TooLarge);
    }
    let error = FatbinError::Compression { entry, method: "Zstandard" };
    let decoder = ruzstd::decoding::StreamingDecoder::new(packed).map_err(|_| error.clone())?;
    let mut content = Vec::new();
    // Reads one byte more than the stated size, to notice content that is too long.
    decoder.take(raw_size + 1).read_to_end(&mut content).map_err(|_| error.clone())?;
    if content.len() as u64 == raw_size { Ok(content) } else { Err(error) }
}

fn unpack_lz4(packed: &[u8], raw_size: u64, entry: usize) -> Result<Vec<u8>, FatbinError> {
    if raw_size > IMAGE_BYTES_MAX {
        return Err(FatbinError::TooLarge);
    }
    let error = FatbinError::Compression { entry, method: "LZ4" };
    // The size in the header is not trusted: it is refused if the packed bytes cannot hold that
    // much.
    if raw_size > packed.len() as u64 * LZ4_RATIO_MAX {
        return Err(error);
    }
    let mut content = vec![0; usize::try_from(raw_size).map_err(|_| FatbinError::TooLarge)?];
    match lz4_flex::block::decompress_into(packed, &mut content) {
        Ok(length) if length as u64 == raw_size => Ok(content),
        _ => Err(error),
    }
}

/// Returns the architecture of a device's ELF file, which its flags state.
fn elf_arch(bytes: &[u8]) -> Result<u32, FatbinError> {
    let header = bytes
        .get(..ELF_HEADER_BYTES)
        .ok_or(FatbinError::Truncated { what: "the header of the ELF file" })?;
    let abi = header[8];
    let flags = u32::from_le_bytes(field(header, 48).unwrap_or_default());
    // Up to CUDA 12 the lowest byte of the flags holds the architecture. From ABI version 8 on the
    // second byte does.
    Ok(if abi >= 8 { (flags >> 8) & 0xff } else { flags & 0xff })
}

/// Returns the architecture that PTX text names behind `.target`, or `None` if the text is not PTX.
fn ptx_arch(text: &[u8]) -> Option<u32> {
    // Comments may come before the head, which may be in one line.
    let mut lexer = Lexer::new(std::str::from_utf8(text).ok()?);
    let (mut has_version, mut is_behind_target) = (false, false);
    for _ in 0..HEAD_TOKENS_MAX {
        match lexer.next().ok()?.0 {
            Token::Dotted("version") => has_version = true,
            Token::Dotted("target") => is_behind_target = true,
            Token::Word(name) if is_behind_target && has_version => {
                let digits = name.strip_prefix("sm_").unwrap_or("");
                let end = digits.bytes().take_while(u8::is_ascii_digit).count();
                return Some(digits[..end].parse().unwrap_or(0));
            }
            _ => {}
        }
    }
    None
}

fn without_nuls(bytes: &[u8]) -> &[u8] {
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..length]
}

fn field<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &[u8] =
        b"//\n.version 9.0\n.target sm_75\n.address_size 64\n\n.visible .entry k()\n{\n\tret;\n}\n\0";

    fn entry(kind: u16, flags: u64, payload: &[u8], raw_size: u64) -> Vec<u8> {
        let padded = payload.len().next_multiple_of(8);
        let mut bytes = vec![0; ENTRY_HEADER_BYTES];
        bytes[0..2].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&64u32.to_le_bytes());
        bytes[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
        bytes[16..20].copy_from_slice(&u32::try_from(payload.len()).expect("small").to_le_bytes());
        bytes[28..32].copy_from_slice(&75u32.to_le_bytes());
        bytes[40..48].copy_from_slice(&flags.to_le_bytes());
        bytes[56..64].copy_from_slice(&raw_size.to_le_bytes());
        bytes.extend_from_slice(payload);
        bytes.resize(ENTRY_HEADER_BYTES + padded, 0);
        bytes
    }

    fn fatbin(entries: &[Vec<u8>]) -> Vec<u8> {
        let payload = entries.concat();
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[1, 0, 16, 0]);
        bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&payload);
        bytes
    }

    fn sample() -> Vec<u8> {
        let text = PTX.len() as u64;
        let zstd =
            ruzstd::encoding::compress_to_vec(PTX, ruzstd::encoding::CompressionLevel::Fastest);
        fatbin(&[
            entry(KIND_ELF, 0, b"\x7fELF and so on", 0),
            entry(KIND_PTX, FLAG_ZSTD, &zstd, text),
            entry(KIND_PTX, FLAG_LZ4, &lz4_flex::block::compress(PTX), text),
            entry(KIND_PTX, 0, PTX, 0),
            entry(7, 0, b"unknown", 0),
        ])
    }

    #[test]
    fn every_kind_of_entry_is_found() {
        let images = images(&sample()).expect("well formed");
        let kinds: Vec<ImageKind> = images.iter().map(|image| image.kind).collect();
        assert_eq!(kinds, [ImageKind::Elf, ImageKind::Ptx, ImageKind::Ptx, ImageKind::Ptx]);
        for image in &images[1..] {
            assert_eq!(image.arch, 75);
            assert_eq!(image.bytes, &PTX[..PTX.len() - 1], "without the NUL");
        }
    }

    #[test]
    fn text_and_elf_alone_are_one_image() {
        let found = images(PTX).expect("PTX text");
        assert_eq!((found.len(), found[0].kind, found[0].arch), (1, ImageKind::Ptx, 75));
        let mut elf = vec![0u8; 64];
        elf[..4].copy_from_slice(ELF_MAGIC);
        elf[8] = 7;
        elf[48..52].copy_from_slice(&0x0055_0556u32.to_le_bytes());
        let found = images(&elf).expect("an ELF file");
        assert_eq!((found[0].kind, found[0].arch), (ImageKind::Elf, 0x56));
        let line = b"// 1\n.version 9.0 .target sm_80, debug .address_size 64 .func f() { ret; }";
        assert_eq!(images(line).expect("a head in one line")[0].arch, 80);
        assert_eq!(images(b"int main(void)"), Err(FatbinError::Unknown));
        assert_eq!(images(b""), Err(FatbinError::Unknown));
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = sample();
        for length in 0..bytes.len() {
            assert!(images(&bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
        }
    }

    #[test]
    fn a_size_that_the_content_does_not_have_is_an_error() {
        let packed = lz4_flex::block::compress(PTX);
        let zstd =
            ruzstd::encoding::compress_to_vec(PTX, ruzstd::encoding::CompressionLevel::Fastest);
        for raw_size in
            [0, 1, PTX.len() as u64 - 1, PTX.len() as u64 + 1, u64::MAX, IMAGE_BYTES_MAX]
        {
            assert!(
                images(&fatbin(&[entry(KIND_PTX, FLAG_LZ4, &packed, raw_size)])).is_err(),
                "LZ4, {raw_size}"
            );
            assert!(
                images(&fatbin(&[entry(KIND_PTX, FLAG_ZSTD, &zstd, raw_size)])).is_err(),
                "Zstandard, {raw_size}"
            );
        }
    }

    #[test]
    fn the_size_is_that_of_the_header_and_all_entries() {
        let bytes = sample();
        let header = bytes.first_chunk().expect("a header");
        assert_eq!(total_size(header), Ok(bytes.len() as u64));
        let mut wrong = *header;
        wrong[8..16].fill(0xff);
        assert_eq!(total_size(&wrong), Err(FatbinError::TooLarge));
        wrong = *header;
        wrong[6] = 8;
        assert!(matches!(total_size(&wrong), Err(FatbinError::TooShort { .. })));
        wrong = *header;
        wrong[4] = 2;
        assert_eq!(total_size(&wrong), Err(FatbinError::Version(2)));
    }
}
