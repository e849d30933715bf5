//! What the kernel tells of the host.

/// Returns how many bytes of the host's memory programs can still have, if the kernel says it.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// Parses "MemAvailable:    1234 kB".
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:       12 kB\n"), Some(12 << 10));
        assert_eq!(available("MemAvailable: none\n"), None);
    }
}
