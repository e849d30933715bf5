//! The parts of ELF that the patch needs: sections and symbols of 64-bit little-endian files.
//!
//! Files are not trusted: each number is checked before use, and a malformed file yields [`None`].

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Maximum number of sections. Linked programs have far fewer; only object files with a section for
/// each function may have more.
const SECTIONS_MAX: usize = 4096;

/// Maximum size of a table in bytes. The symbols of the largest programs take about 100 MiB.
const TABLE_BYTES_MAX: u64 = 1 << 30;

const HEADER_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;

const TYPE_SYMBOLS: u32 = 2;
const TYPE_STRINGS: u32 = 3;
const TYPE_DYNAMIC_SYMBOLS: u32 = 11;

/// The type of symbols that are functions (`STT_FUNC`).
const KIND_FUNCTION: u8 = 2;

/// The section index of symbols that are defined elsewhere.
const UNDEFINED: u16 = 0;

/// Bytes that can be read at any offset.
pub trait Source {
    /// Reads `length` bytes from `offset` on. Returns `None` if the source is shorter.
    fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>>;
}

impl Source for File {
    fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        // Checked first, so that a wrong length does not allocate memory.
        let end = offset.checked_add(length as u64)?;
        if end > self.metadata().ok()?.len() {
            return None;
        }
        let mut bytes = vec![0; length];
        self.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }
}

impl Source for &[u8] {
    fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        let start = usize::try_from(offset).ok()?;
        self.get(start..start.checked_add(length)?).map(<[u8]>::to_vec)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub name: String,
    /// Address in the file, before the program is relocated to where it is loaded.
    pub address: u64,
    /// Size of the symbol in bytes.
    pub size: u64,
    /// Whether the symbol is a function that this file defines.
    pub is_function_here: bool,
    /// Whether another library must define the symbol.
    pub is_wanted: bool,
}

/// The processor that a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    X86_64,
    /// The number of another processor.
    Other(u16),
}

#[derive(Clone, Copy, Debug)]
struct Section {
    name: u32,
    kind: u32,
    offset: u64,
    size: u64,
    link: u32,
}

/// An ELF file whose headers were read.
#[derive(Debug)]
pub struct Elf<S> {
    source: S,
    machine: Machine,
    sections: Vec<Section>,
    names: Vec<u8>,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Returns the string at an offset of a table.
fn string_at(table: &[u8], at: u32) -> Option<&str> {
    let rest = table.get(at as usize..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(rest.get(..end)?).ok()
}

impl<S: Source> Elf<S> {
    /// Reads the headers. Returns `None` if the file is malformed or not such a file.
    pub fn read(source: S) -> Option<Self> {
        let header = source.read(0, HEADER_BYTES)?;
        // Magic number, 64 bits, little-endian.
        if header.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let machine = match u16_at(&header, 18)? {
            62 => Machine::X86_64,
            other => Machine::Other(other),
        };
        let (table, entry) = (u64_at(&header, 40)?, usize::from(u16_at(&header, 58)?));
        let (count, names) = (usize::from(u16_at(&header, 60)?), usize::from(u16_at(&header, 62)?));
        if count > SECTIONS_MAX || (count > 0 && entry != SECTION_BYTES) {
            return None;
        }
        let bytes = source.read(table, count * SECTION_BYTES)?;
        let sections: Vec<Section> =
            bytes.chunks_exact(SECTION_BYTES).map(section).collect::<Option<_>>()?;
        let mut elf = Self { source, machine, sections, names: Vec::new() };
        elf.names =
            elf.sections.get(names).copied().and_then(|names| elf.bytes(names)).unwrap_or_default();
        Some(elf)
    }

    /// Returns the processor that the file is for.
    pub const fn machine(&self) -> Machine {
        self.machine
    }

    /// Whether the file has a section with this name.
    pub fn has_section(&self, name: &str) -> bool {
        self.sections.iter().any(|section| string_at(&self.names, section.name) == Some(name))
    }

    /// Returns the symbols of the whole program. A stripped program has none.
    pub fn symbols(&self) -> Vec<Symbol> {
        self.table(TYPE_SYMBOLS)
    }

    /// Returns the symbols that the file exports or imports.
    pub fn dynamic_symbols(&self) -> Vec<Symbol> {
        self.table(TYPE_DYNAMIC_SYMBOLS)
    }

    fn bytes(&self, section: Section) -> Option<Vec<u8>> {
        if section.size > TABLE_BYTES_MAX {
            return None;
        }
        self.source.read(section.offset, usize::try_from(section.size).ok()?)
    }

    fn table(&self, kind: u32) -> Vec<Symbol> {
        let read = || {
            let table = self.sections.iter().find(|section| section.kind == kind)?;
            let names = self
                .sections
                .get(table.link as usize)
                .filter(|names| names.kind == TYPE_STRINGS)?;
            let (table, names) = (self.bytes(*table)?, self.bytes(*names)?);
            Some(
                table
                    .chunks_exact(SYMBOL_BYTES)
                    .filter_map(|entry| symbol(entry, &names))
                    .collect(),
            )
        };
        read().unwrap_or_default()
    }
}

fn section(bytes: &[u8]) -> Option<Section> {
    Some(Section {
        name: u32_at(bytes, 0)?,
        kind: u32_at(bytes, 4)?,
        offset: u64_at(bytes, 24)?,
        size: u64_at(bytes, 32)?,
        link: u32_at(bytes, 40)?,
    })
}

fn symbol(bytes: &[u8], names: &[u8]) -> Option<Symbol> {
    let name = string_at(names, u32_at(bytes, 0)?)?;
    let kind = *bytes.get(4)? & 0xf;
    let place = u16_at(bytes, 6)?;
    Some(Symbol {
        name: name.to_owned(),
        address: u64_at(bytes, 8)?,
        size: u64_at(bytes, 16)?,
        is_function_here: kind == KIND_FUNCTION && place != UNDEFINED,
        is_wanted: place == UNDEFINED && !name.is_empty(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn the_functions_of_a_program_are_found() {
        let bytes = own();
        let elf = Elf::read(bytes.as_slice()).unwrap();
        assert!(elf.has_section(".text") && !elf.has_section(".nonsense"));
        let main = elf.symbols().into_iter().find(|symbol| symbol.name == "main").unwrap();
        assert!(main.is_function_here && main.address > 0);
        assert!(
            elf.dynamic_symbols().iter().any(|symbol| symbol.is_wanted && symbol.name == "write")
        );
    }

    #[test]
    fn a_file_and_its_bytes_say_the_same() {
        let bytes = own();
        let file = Elf::read(File::open(std::env::current_exe().unwrap()).unwrap()).unwrap();
        assert_eq!(file.symbols(), Elf::read(bytes.as_slice()).unwrap().symbols());
    }

    #[test]
    fn what_is_no_program_is_none() {
        for bytes in [&b""[..], b"#!/bin/sh\n", &[0x7f; 200], b"\x7fELF\x02\x01"] {
            assert!(Elf::read(bytes).is_none());
        }
    }

    #[test]
    fn truncated_and_changed_files_are_read_without_harm() {
        let mut bytes = own();
        for length in [63, 64, 65, 4096, bytes.len() - 1] {
            if let Some(elf) = Elf::read(&bytes[..length]) {
                _ = (elf.symbols(), elf.dynamic_symbols(), elf.has_section("x"));
            }
        }
        // Every byte of the header, and of the table of sections at the end of the file.
        let end = bytes.len();
        for at in (0..64).chain(end - 2048..end) {
            let was = std::mem::replace(&mut bytes[at], 0xff);
            if let Some(elf) = Elf::read(bytes.as_slice()) {
                _ = (elf.machine(), elf.has_section("x"));
            }
            bytes[at] = was;
        }
    }
}
