//! What the kernel says about the threads of this process.

use std::io;

/// What is known of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Whether it can never gain rights.
    pub no_new_privs: bool,
    /// Whether a filter sees its calls.
    pub has_filter: bool,
    /// Whether it waits for something.
    pub sleeps: bool,
    pub number: u64,
    /// How often it has lost or left its core.
    pub switches: u64,
}

/// Returns all threads of this process.
///
/// # Errors
/// Fails if `/proc` cannot be read.
pub fn of_this_process() -> io::Result<Vec<Thread>> {
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
pub fn read(status: &str) -> Thread {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim)
    };
    let count = |name| field(name).and_then(|value| value.parse().ok()).unwrap_or_default();
    Thread {
        no_new_privs: field("NoNewPrivs") == Some("1"),
        // 2 is SECCOMP_MODE_FILTER.
        has_filter: field("Seccomp") == Some("2"),
        sleeps: field("State").is_some_and(|state| state.starts_with('S')),
        number: count("Pid"),
        switches: count("voluntary_ctxt_switches") + count("nonvoluntary_ctxt_switches"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        let status = "Name:\tworker\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        let expected = Thread { no_new_privs: true, has_filter: true, ..Thread::default() };
        assert_eq!(read(status), expected);
        let status = "NoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t2\n";
        assert_eq!(read(status), Thread::default());
        assert_eq!(read("Seccomp:\t1"), Thread::default());
        assert_eq!(read(""), Thread::default());
        let status = "State:\tS (sleeping)\nPid:\t7\nvoluntary_ctxt_switches:\t4\n\
                      nonvoluntary_ctxt_switches:\t2\n";
        let expected = Thread { sleeps: true, number: 7, switches: 6, ..Thread::default() };
        assert_eq!(read(status), expected);
        assert!(!read("State:\tR (running)").sleeps);
        assert!(!read("State:\tD (disk sleep)").sleeps);
    }

    #[test]
    fn this_process_has_threads() {
        assert!(!of_this_process().unwrap().is_empty());
    }
}
