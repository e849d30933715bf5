//! The parts of ELF that the patch needs: sections and symbols of 64-bit little-endian files.
//!
//! Files are not trusted. The crate `object` checks each number, and this module treats what it
//! refuses as absent.

use std::ffi::CStr;

use object::LittleEndian as Le;
use object::elf::{
    DT_NEEDED, DT_RPATH, DT_RUNPATH, EM_X86_64, FileHeader64, SHT_DYNSYM, SHT_STRTAB, SHT_SYMTAB,
    SHT_SYMTAB_SHNDX, STT_FUNC, SectionHeader64, SectionType, Sym64,
};
use object::read::elf::{Dyn as _, FileHeader as _, SectionHeader as _, SectionTable, Sym as _};
use object::read::{ReadRef, StringTable};

/// Longest list of folders that is read, as long as a variable of a program may be on Linux
/// (`MAX_ARG_STRLEN`).
const LIST_BYTES_MAX: u64 = 128 << 10;

/// Largest number of sections with large section numbers of symbols: one for each symbol table.
const INDEX_TABLES_MAX: usize = 2;

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

/// What a file says of the libraries that it needs, with its lists of folders as they stand there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub names: Vec<String>,
    /// `DT_RPATH`: also for the libraries that those libraries need.
    pub inherited: Option<String>,
    /// `DT_RUNPATH`: in the place of all lists of the first kind.
    pub own: Option<String>,
}

/// An ELF file whose headers were read.
#[derive(Debug)]
pub struct Elf<'data, R: ReadRef<'data>> {
    source: R,
    is_x86_64: bool,
    sections: SectionTable<'data, FileHeader64<Le>, R>,
}

impl<'data, R: ReadRef<'data>> Elf<'data, R> {
    /// Reads the headers. Returns `None` if the file is malformed or not such a file.
    pub fn read(source: R) -> Option<Self> {
        let header = FileHeader64::<Le>::parse(source).ok()?;
        let sections = header.is_little_endian().then(|| header.sections(Le, source))?.ok()?;
        Some(Self { source, is_x86_64: header.e_machine(Le) == EM_X86_64, sections })
    }

    pub const fn is_x86_64(&self) -> bool {
        self.is_x86_64
    }

    /// Whether the file has a section with this name.
    pub fn has_section(&self, name: &str) -> bool {
        self.sections.section_by_name(Le, name.as_bytes()).is_some()
    }

    /// Returns the symbols of the whole program. A stripped program has none.
    pub fn symbols(&self) -> Vec<Symbol> {
        self.table(SHT_SYMTAB).unwrap_or_default()
    }

    /// Returns the symbols that the file exports or imports.
    pub fn dynamic_symbols(&self) -> Vec<Symbol> {
        self.table(SHT_DYNSYM).unwrap_or_default()
    }

    /// Returns the libraries that the file needs, and where it says that they are.
    pub fn needs(&self) -> Option<Needs> {
        let (entries, names) = self.sections.dynamic(Le, self.source).ok()??;
        let names = self.sections.section(names).ok()?;
        let (start, size) = names.file_range(Le)?;
        let mut needs = Needs::default();
        for entry in entries {
            let place = match entry.tag(Le) {
                DT_NEEDED => None,
                DT_RPATH => Some(&mut needs.inherited),
                DT_RUNPATH => Some(&mut needs.own),
                _ => continue,
            };
            // The table may have megabytes. Only what is asked for is read.
            let (at, left) = (entry.val(Le), size.checked_sub(entry.val(Le))?);
            let text = self.source.read_bytes_at(start.checked_add(at)?, left.min(LIST_BYTES_MAX));
            let text = CStr::from_bytes_until_nul(text.ok()?).ok()?.to_str().ok()?.to_owned();
            match place {
                Some(list) => *list = Some(text),
                None => needs.names.push(text),
            }
        }
        Some(needs)
    }

    fn table(&self, kind: SectionType) -> Option<Vec<Symbol>> {
        // `symbols` reads all of them, and each may be as large as the file.
        let is_index = |section: &&SectionHeader64<Le>| section.sh_type(Le) == SHT_SYMTAB_SHNDX;
        if self.sections.iter().filter(is_index).count() > INDEX_TABLES_MAX {
            return None;
        }
        let table = self.sections.symbols(Le, self.source, kind).ok()?;
        // The names are read at once, because a file would otherwise be read for each symbol.
        let names = self.sections.section(table.string_section()).ok()?;
        let names = (names.sh_type(Le) == SHT_STRTAB).then(|| names.data(Le, self.source))?.ok()?;
        let names = StringTable::new(names, 0, names.len() as u64);
        Some(table.iter().filter_map(|entry| symbol(entry, names)).collect())
    }
}

fn symbol(entry: &Sym64<Le>, names: StringTable<'_>) -> Option<Symbol> {
    let name = std::str::from_utf8(entry.name(Le, names).ok()?).ok()?;
    let is_undefined = entry.is_undefined(Le);
    Some(Symbol {
        name: name.to_owned(),
        address: entry.st_value(Le),
        size: entry.st_size(Le),
        is_function_here: entry.st_type() == STT_FUNC && !is_undefined,
        is_wanted: is_undefined && !name.is_empty(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use object::read::ReadCache;

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
        let file = ReadCache::new(File::open(std::env::current_exe().unwrap()).unwrap());
        let of_file = Elf::read(&file).unwrap().symbols();
        assert_eq!(of_file, Elf::read(bytes.as_slice()).unwrap().symbols());
    }

    #[test]
    fn what_is_no_program_is_none() {
        for bytes in [&b""[..], b"#!/bin/sh\n", &[0x7f; 200], b"\x7fELF\x02\x01"] {
            assert!(Elf::read(bytes).is_none());
        }
    }

    #[test]
    fn a_file_with_a_thousand_index_tables_is_not_read_a_thousand_times() {
        let found = |indexes: usize| {
            let mut file = vec![0_u8; 64];
            file.splice(..7, *b"\x7fELF\x02\x01\x01");
            file.splice(40..48, 64_u64.to_le_bytes());
            file.splice(58..60, 64_u16.to_le_bytes());
            file.splice(60..62, u16::try_from(2 + indexes).unwrap().to_le_bytes());
            file.splice(62..64, 1_u16.to_le_bytes());
            let (start, text) = (64 * (3 + indexes as u64), b"\0main\0");
            let mut section = |kind: u32, start: u64, bytes: u64, link: u32| {
                let mut header = [0_u8; 64];
                header[4..8].copy_from_slice(&kind.to_le_bytes());
                header[24..32].copy_from_slice(&start.to_le_bytes());
                header[32..40].copy_from_slice(&bytes.to_le_bytes());
                header[40..44].copy_from_slice(&link.to_le_bytes());
                file.extend(header);
            };
            section(SHT_SYMTAB.0, start, 24, 1);
            section(SHT_STRTAB.0, start + 24, text.len() as u64, 0);
            // Each is as large as the file, and none is the same as another one.
            (0..indexes as u64).for_each(|n| section(SHT_SYMTAB_SHNDX.0, 4 * n, start - 4 * n, 0));
            file.extend([1, 0, 0, 0, 0x12, 0, 1, 0]);
            file.extend([0; 16]);
            file.extend(text);
            Elf::read(file.as_slice()).unwrap().symbols().len()
        };
        assert_eq!((found(0), found(INDEX_TABLES_MAX)), (1, 1));
        assert_eq!(found(1000), 0);
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
                _ = (elf.is_x86_64(), elf.has_section("x"));
            }
            bytes[at] = was;
        }
    }
}
