//! What a tree may make this crate read, follow and keep.

/// Number of bytes that are read of one file. The longest file that a check needs whole is a
/// pool.toml of 512 KiB (`penstock_client::config`).
pub const FILE_BYTES_MAX: usize = 512 << 10;

/// Number of bytes that are read of all files of one tree. A host with 512 cores and 64
/// accelerators needs less than 4 MiB.
pub const TREE_BYTES_MAX: u64 = 64 << 20;

/// Number of bytes of one tree in a file. Such a file stores binary content with two characters for
/// each byte, so a whole tree fits.
pub const LISTING_BYTES_MAX: u64 = 2 * TREE_BYTES_MAX;

/// Number of entries that are read of one directory. The largest directory that a check needs has
/// an entry for each CPU, and Linux supports 8,192 CPUs.
pub const ENTRIES_MAX: usize = 8_192;

/// Number of symbolic links on the way to one file. Linux has the same limit.
pub const LINKS_MAX: usize = 40;

/// Number of names that one path may still have to go through. Linux limits a path to 4,096
/// bytes, and each name takes at least two of them.
pub const NAMES_MAX: usize = 2_048;

/// Number of PCI devices that are examined. The largest servers have some hundred.
pub const PCI_DEVICES_MAX: usize = 1_024;

/// Number of PCI capabilities in one list. Each takes at least 4 of the 4,096 bytes.
pub const CAPABILITIES_MAX: usize = 1_024;

/// Number of findings of one check. A defect that all devices share needs no more lines.
pub const FINDINGS_PER_CHECK_MAX: usize = 32;

/// Number of characters that a finding shows of a text that it has from a tree.
pub const SHOWN_CHARACTERS_MAX: usize = 200;
