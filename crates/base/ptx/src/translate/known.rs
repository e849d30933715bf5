//! Kernels whose protocol is known by their name.
//!
//! Two threads may exchange values, or one may wait for the other. The text of a kernel does not
//! always show which threads these are, because it depends on addresses that are computed. The
//! translation then assumes any threads, and the kernel becomes a state machine. For the kernel of
//! this file, the source code of its library tells more. This holds in every version that is named
//! here:
//!
//! 1. A loop that waits for a value in memory waits for a block that started earlier, whatever that
//!    block still waits for itself. It does not wait for a thread of its own block, for a block
//!    that starts later, or for the host. So the threads of a block may execute such a loop one
//!    after the other.
//! 2. Threads of a block exchange values through memory only across meetings of the text: barriers,
//!    `bar.warp.sync`, votes and shuffles of which they use the results. So lanes need no other
//!    stops. `idle_votes` removes votes without a use.
//! 3. They exchange these values through shared memory only. So a meeting of a warp orders nothing
//!    if shared memory does not change next to it. `idle_syncs` removes such meetings.
//! 4. `bar.red.or` asks whether the block may take a shorter way. The longer way is right for all
//!    keys, and `shorter_way` takes it.
//!
//! Decision 71 shows this for each step of the kernel. A program that gives its own kernel such a
//! name promises the same.

/// Versions in the names of CUB's inline namespaces. CUB 1.11 had the kernel first, and 3.4 is the
/// last release that has been read. The last two digits count corrections.
const CUB_VERSIONS: std::ops::RangeInclusive<u32> = 101_100..=300_499;

/// Whether a kernel with this mangled name follows a known protocol: a pass of CUB's radix sort.
///
/// The name has the version of CUB. Only where the kernel lies in the namespace `cub` itself may
/// the version be missing, as in releases before 1.17. Newer releases have the kernel in
/// `cub::detail::radix_sort`. They can be compiled without a version in the name, and then the
/// release is unknown.
pub(super) fn is_known(mangled: &str) -> bool {
    let Some(parts) = nested_name(mangled) else { return false };
    match parts[..] {
        ["cub", "DeviceRadixSortOnesweepKernel"] => true,
        ["cub", version, "DeviceRadixSortOnesweepKernel"]
        | ["cub", version, "detail", "radix_sort", "DeviceRadixSortOnesweepKernel"] => {
            is_known_version(version)
        }
        _ => false,
    }
}

/// Whether an inline namespace, like `CUB_200500_750_NS` or `_V_300402_SM_750`, names a version
/// that has been read.
fn is_known_version(namespace: &str) -> bool {
    let behind = namespace.strip_prefix("CUB_").or_else(|| namespace.strip_prefix("_V_"));
    let number = behind.and_then(|behind| behind.split('_').next()?.parse().ok());
    number.is_some_and(|number| CUB_VERSIONS.contains(&number))
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
