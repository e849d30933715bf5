//! Kernels whose protocol is known by their name.
//!
//! Two threads may exchange values, or one may wait for the other. The text of a kernel does not
//! always show which threads these are, because it depends on addresses that are computed. The
//! translation then assumes any threads, and the kernel becomes a state machine. For the kernels of
//! this table, the source code of the library tells more. For each of them, this holds in every
//! version that the table names:
//!
//! 1. A loop that waits for a value in memory waits for a block that started earlier, whatever that
//!    block still waits for itself. It does not wait for a thread of its own block, for a block
//!    that starts later, or for the host. So the threads of a block may execute such a loop one
//!    after the other.
//! 2. Threads of a block exchange values through memory only across meetings of the text: barriers,
//!    `bar.warp.sync`, votes and shuffles of which they use the results. So lanes need no other
//!    stops. `idle_votes` removes votes without a use.
//!
//! Decision 71 shows this for each step of the kernel. A program that gives its own kernel such a
//! name promises the same.

use std::ops::RangeInclusive;

/// Kernel templates of a library that follow a known protocol.
struct KnownKernel {
    namespace: &'static str,
    /// Namespaces that may follow.
    inner: &'static [&'static str],
    name: &'static str,
    /// What is in front of the version in the name of an inline namespace.
    version_marks: &'static [&'static str],
    versions: RangeInclusive<u32>,
}

/// Pass of CUB's radix sort. CUB 1.11 had it first, and 3.4 is the last release that has been read.
/// Releases before 1.17 have no inline namespace. The last two digits count corrections.
const KNOWN: [KnownKernel; 1] = [KnownKernel {
    namespace: "cub",
    inner: &["detail", "radix_sort"],
    name: "DeviceRadixSortOnesweepKernel",
    version_marks: &["CUB_", "_V_"],
    versions: 101_100..=300_499,
}];

/// Whether a kernel with this mangled name follows a known protocol.
pub(super) fn is_known(mangled: &str) -> bool {
    let Some(parts) = nested_name(mangled) else { return false };
    let [namespace, inner @ .., name] = &parts[..] else { return false };
    KNOWN.iter().any(|known| {
        known.namespace == *namespace
            && known.name == *name
            && inner.iter().all(|part| known.inner.contains(part) || known.has_version(part))
    })
}

impl KnownKernel {
    /// Whether an inline namespace names a version of the table.
    fn has_version(&self, part: &str) -> bool {
        let behind = self.version_marks.iter().find_map(|mark| part.strip_prefix(mark));
        let number = behind.and_then(|behind| behind.split('_').next()?.parse().ok());
        number.is_some_and(|number| self.versions.contains(&number))
    }
}

/// Returns the parts of the nested name of a template: `_ZN3cub6detail1kI...` has `cub`, `detail`
/// and `k`.
fn nested_name(mangled: &str) -> Option<Vec<&str>> {
    let mut rest = mangled.strip_prefix("_ZN")?;
    let mut parts = Vec::new();
    while !rest.starts_with('I') {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let length: usize = rest[..digits].parse().ok()?;
        let behind = &rest[digits..];
        parts.push(behind.get(..length)?);
        rest = &behind[length..];
    }
    Some(parts)
}
