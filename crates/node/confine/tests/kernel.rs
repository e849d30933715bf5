//! The rows of the filter in the kernel, call by call. The filter binds only the thread of a test.

use std::process::Command;
use std::thread;

use penstock_confine::calls::{Argument, Call, Context, SPAWN_FLAGS, Test, forbidden};
use penstock_confine::{permitted, restrict_this_thread};

fn context(runs_programs: bool) -> Context {
    Context { process: std::process::id(), has_network: false, has_services: false, runs_programs }
}

/// Makes a call, and returns its result or the number of its error.
fn make(number: i64, words: [u64; 6]) -> Result<i64, i32> {
    let [a, b, c, d, e, f] = words;
    // SAFETY: the calls of these tests are forbidden, or have arguments that the kernel refuses, or
    // only ask.
    let done = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if done == -1 {
        Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    } else {
        Ok(done)
    }
}

/// Returns arguments that a case forbids. All others are such that a kernel refuses them.
fn words_of(case: &[Argument]) -> [u64; 6] {
    let mut words = [u64::MAX; 6];
    for argument in case {
        words[usize::from(argument.place)] = match argument.test {
            Test::Is(value) => value.into(),
            Test::IsNot(value) => u64::from(value) ^ 0x1000_0000,
            Test::IsNotWord(_) | Test::Lacks(_) => 0,
            Test::Has(bits) => bits,
        };
    }
    words
}

fn in_a_restricted_thread(runs_programs: bool, act: impl FnOnce(&[Call]) + Send + 'static) {
    let thread = thread::spawn(move || {
        let calls = forbidden(&context(runs_programs));
        restrict_this_thread(&calls).unwrap();
        act(&calls);
    });
    thread.join().unwrap();
}

#[test]
fn each_forbidden_call_fails_with_eperm() {
    in_a_restricted_thread(false, |calls| {
        for call in calls {
            let cases = call.cases.iter().map(|case| words_of(case));
            let cases: Vec<_> =
                if call.cases.is_empty() { vec![[u64::MAX; 6]] } else { cases.collect() };
            for words in cases {
                let made = make(call.number, words);
                assert_eq!(made, Err(libc::EPERM), "{} {words:x?}", call.name);
            }
        }
    });
}

/// More numbers than any kernel has calls.
const NUMBERS: i64 = 1024;

/// `uretprobe` and `uprobe` of x86-64, which the kernel shows to no filter. The first one ends a
/// process that makes it by itself.
const OF_PROBES: [i64; 2] = [335, 336];

#[test]
fn calls_of_no_list_do_not_exist() {
    in_a_restricted_thread(false, |calls| {
        let listed: Vec<i64> = permitted::calls().map(|call| call.number).collect();
        let is_forbidden = |number: &i64| calls.iter().any(|call| call.number == *number);
        let others = (0..NUMBERS).filter(|it| !listed.contains(it) && !is_forbidden(it));
        let others = others.filter(|it| !OF_PROBES.contains(it));
        let others: Vec<i64> = others.collect();
        assert!(others.contains(&libc::SYS_clone3) && others.contains(&libc::SYS_pidfd_open));
        for number in others {
            assert_eq!(make(number, [u64::MAX; 6]), Err(libc::ENOSYS), "{number}");
        }
    });
}

/// What the headers of this system know is in one of the lists, or somebody has decided that no
/// driver needs it.
#[test]
#[cfg(target_arch = "x86_64")]
fn somebody_has_decided_on_each_call() {
    let header = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";
    let Ok(header) = std::fs::read_to_string(header) else {
        return penstock_trial::skip(penstock_trial::Need::Compiler, "no headers of the kernel");
    };
    let calls = forbidden(&context(false));
    let defined = header.lines().filter_map(|line| line.strip_prefix("#define __NR_"));
    let defined: Vec<(&str, i64)> = defined
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, number)| Some((name, number.trim().parse().ok()?)))
        .collect();
    assert!(defined.len() > 300, "{}", defined.len());
    for (name, number) in defined {
        // Newer calls are closed until somebody decides.
        if number > LAST_DECIDED {
            continue;
        }
        let is_permitted = permitted::calls().any(|call| call.name == name);
        let row = calls.iter().find(|call| call.name == name);
        let is_left_out = LEFT_OUT.contains(&name);
        let decisions = [is_permitted, row.is_some(), is_left_out];
        // A row may forbid some arguments of a permitted call, or forbid it in this context only.
        let is_always = row.is_some_and(|row| row.cases.is_empty());
        let may_be_both = ["execve", "connect", "socketpair"].contains(&name);
        let is_clear = match row {
            Some(_) => may_be_both || is_permitted != is_always,
            None => is_permitted != is_left_out,
        };
        assert!(is_clear, "{name}: permitted, forbidden, left out: {decisions:?}");
    }
}

/// The last call of Linux 6.18.
#[cfg(target_arch = "x86_64")]
const LAST_DECIDED: i64 = 469;

/// Calls that exist and that no driver needs.
#[cfg(target_arch = "x86_64")]
const LEFT_OUT: &[&str] = &[
    // Their flags lie in memory, and older calls do the same.
    "clone3",
    "openat2",
    // The C library does not use them, or has another way.
    "get_robust_list",
    "getpmsg",
    "pidfd_open",
    "remap_file_pages",
    "sync_file_range",
    "tee",
    "vmsplice",
    "name_to_handle_at",
    "memfd_secret",
    "set_mempolicy_home_node",
    "cachestat",
    "map_shadow_stack",
    "statmount",
    "listmount",
    "lsm_get_self_attr",
    "lsm_set_self_attr",
    "lsm_list_modules",
    "uretprobe",
    "uprobe",
    "getxattrat",
    "listxattrat",
    "open_tree_attr",
    "file_getattr",
    // They need a descriptor that only a forbidden call makes.
    "fanotify_mark",
    "inotify_rm_watch",
    "io_cancel",
    "io_destroy",
    "io_getevents",
    "io_pgetevents",
    "io_submit",
    "mq_getsetattr",
    "mq_notify",
    "mq_timedreceive",
    "mq_timedsend",
    "shmdt",
    "quotactl_fd",
    // Of old programs, of other processors, or never made.
    "_sysctl",
    "afs_syscall",
    "create_module",
    "epoll_ctl_old",
    "epoll_wait_old",
    "get_kernel_syms",
    "get_thread_area",
    "putpmsg",
    "query_module",
    "security",
    "set_thread_area",
    "sysfs",
    "tuxcall",
    "vserver",
];

#[test]
fn the_same_calls_fail_otherwise_without_the_filter() {
    // Calls that do nothing with such arguments, whoever makes them.
    for (number, words) in [
        (libc::SYS_ptrace, [u64::MAX; 6]),
        (libc::SYS_mount, [u64::MAX; 6]),
        (libc::SYS_socket, [libc::AF_INET as u64, u64::MAX, 0, 0, 0, 0]),
        (libc::SYS_keyctl, [u64::MAX; 6]),
        (libc::SYS_io_uring_enter, [u64::MAX; 6]),
    ] {
        let made = make(number, words);
        assert!(made.is_err() && made != Err(libc::EPERM), "{number}: {made:?}");
    }
}

#[test]
fn threads_and_programs_start_under_the_filter() {
    in_a_restricted_thread(true, |_| {
        assert_eq!(make(libc::SYS_clone3, [0; 6]), Err(libc::ENOSYS));
        assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
        assert!(Command::new("/bin/true").status().unwrap().success());
        // The child has the filter, too.
        let killed = Command::new("/bin/sh").args(["-c", "kill -0 1"]).status().unwrap();
        assert!(!killed.success());
    });
}

#[test]
fn programs_do_not_start_where_no_driver_needs_them() {
    in_a_restricted_thread(false, |_| {
        assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
        let error = Command::new("/bin/true").status().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
        assert_eq!(make(libc::SYS_clone, [SPAWN_FLAGS, 0, 0, 0, 0, 0]), Err(libc::EPERM));
    });
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_x32_interface_is_no_way_round() {
    in_a_restricted_thread(true, |_| {
        // ptrace has another number there.
        for number in [521, libc::SYS_mount, libc::SYS_fork] {
            assert_eq!(make(number | 0x4000_0000, [u64::MAX; 6]), Err(libc::ENOSYS), "{number}");
        }
    });
}

#[test]
fn a_thread_may_still_act_on_its_own_process() {
    in_a_restricted_thread(true, |_| {
        let own = u64::from(std::process::id());
        assert_eq!(make(libc::SYS_kill, [own, 0, 0, 0, 0, 0]), Ok(0));
        assert_eq!(make(libc::SYS_kill, [1, 0, 0, 0, 0, 0]), Err(libc::EPERM));
    });
}
