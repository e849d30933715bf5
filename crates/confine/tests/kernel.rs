//! The rows of the filter in the kernel, call by call. The filter binds only the thread of a test.

use std::process::Command;
use std::thread;

use penstock_confine::calls::{Argument, Call, Context, SPAWN_FLAGS, Test, forbidden};
use penstock_confine::restrict_this_thread;

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
