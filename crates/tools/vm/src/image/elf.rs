//! What an initramfs needs to know of ELF files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use object::LittleEndian as Le;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};

/// Section of a kernel module with lines such as `depends=virtio,virtio_ring`.
const MODULE_INFO: &str = ".modinfo";

fn header(bytes: &[u8]) -> Option<&FileHeader64<Le>> {
    FileHeader64::<Le>::parse(bytes).ok().filter(|header| header.is_little_endian())
}

/// Returns the loader that a program names. A static program and a library name none.
pub fn interpreter(bytes: &[u8]) -> Option<PathBuf> {
    let programs = header(bytes)?.program_headers(Le, bytes).ok()?;
    let name = programs.iter().find_map(|it| it.interpreter(Le, bytes).ok().flatten())?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

/// Whether the file needs shared libraries.
pub fn is_dynamic(bytes: &[u8]) -> bool {
    let programs = header(bytes).and_then(|it| it.program_headers(Le, bytes).ok());
    programs.is_some_and(|list| list.iter().any(|it| it.p_type(Le) == object::elf::PT_DYNAMIC))
}

/// Returns the modules on which a kernel module depends.
pub fn module_dependencies(bytes: &[u8]) -> Option<Vec<String>> {
    let sections = header(bytes)?.sections(Le, bytes).ok()?;
    let (_, section) = sections.section_by_name(Le, MODULE_INFO.as_bytes())?;
    let text = section.data(Le, bytes).ok()?;
    let line = text.split(|byte| *byte == 0).find_map(|line| line.strip_prefix(b"depends="))?;
    let names = String::from_utf8_lossy(line).into_owned();
    Some(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// Returns only the part of a program or library that is loaded. Sections with names and lines for
/// debuggers are nine tenths of Penstock's files. They lie behind the loaded part, and only
/// debuggers need the table of sections.
pub fn loaded_part(mut bytes: Vec<u8>) -> Vec<u8> {
    let Some(end) = loaded_end(&bytes) else { return bytes };
    bytes.truncate(end);
    // `e_shoff`, and the pair `e_shnum` and `e_shstrndx`: there is no table of sections.
    for field in [0x28..0x30, 0x3c..0x40] {
        bytes.get_mut(field).unwrap_or_default().fill(0);
    }
    bytes
}

fn loaded_end(bytes: &[u8]) -> Option<usize> {
    let programs = header(bytes)?.program_headers(Le, bytes).ok()?;
    let ends = programs.iter().map(|it| it.p_offset(Le).checked_add(it.p_filesz(Le)));
    let end = ends.collect::<Option<Vec<_>>>()?.into_iter().max()?;
    usize::try_from(end).ok().filter(|end| *end <= bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaded_part_of_this_program_is_a_program() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let short = loaded_part(bytes.clone());
        assert!(short.len() < bytes.len());
        assert!(is_dynamic(&short));
        assert_eq!(interpreter(&short), interpreter(&bytes));
        // What is not a program stays as it is.
        assert_eq!(loaded_part(b"#!/bin/sh\n".to_vec()), b"#!/bin/sh\n");
        assert_eq!(loaded_part(bytes[..70].to_vec()), bytes[..70]);
    }
}
