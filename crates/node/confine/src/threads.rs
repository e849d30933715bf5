//! What the kernel says about the threads of this process.

use std::io;

/// What restricts one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// Whether it can never gain rights.
    pub no_new_privs: bool,
    /// Whether a filter sees its calls.
    pub has_filter: bool,
}

/// Returns the restrictions of all threads of this process.
///
/// # Errors
/// Fails if `/proc` cannot be read.
pub fn of_this_process() -> io::Result<Vec<Restrictions>> {
    let mut threads = Vec::new();
    for entry in std::fs::read_dir("/proc/self/task")? {
        match std::fs::read_to_string(entry?.path().join("status")) {
            Ok(status) => threads.push(read(&status)),
            // It has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(threads)
}

/// Reads `/proc/PID/task/TID/status`. What is missing counts as not restricted.
#[must_use]
pub fn read(status: &str) -> Restrictions {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim)
    };
    Restrictions {
        no_new_privs: field("NoNewPrivs") == Some("1"),
        // 2 is SECCOMP_MODE_FILTER.
        has_filter: field("Seccomp") == Some("2"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        let status = "Name:\tworker\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        assert_eq!(read(status), Restrictions { no_new_privs: true, has_filter: true });
        let status = "NoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t2\n";
        assert_eq!(read(status), Restrictions::default());
        assert_eq!(read("Seccomp:\t1"), Restrictions::default());
        assert_eq!(read(""), Restrictions::default());
    }

    #[test]
    fn this_process_has_threads() {
        assert!(!of_this_process().unwrap().is_empty());
    }
}
