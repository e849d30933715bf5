//! Which calls are forbidden, and which are left.

use super::*;

const PROCESS: u32 = 4711;

fn context() -> Context {
    Context { process: PROCESS, has_network: false, has_services: false, runs_programs: true }
}

fn is_forbidden(context: &Context, number: c_long, first: u64) -> bool {
    forbids(&forbidden(context), number, [first, 0, 0, 0, 0, 0])
}

#[test]
fn each_call_has_one_row_and_a_reason() {
    let calls = forbidden(&Context { runs_programs: false, ..context() });
    for (at, call) in calls.iter().enumerate() {
        assert!(!call.why.is_empty(), "{}", call.name);
        assert!(calls.iter().skip(at + 1).all(|it| it.number != call.number), "{}", call.name);
    }
    assert!(calls.len() > 80, "{}", calls.len());
}

#[test]
fn calls_of_the_lists_always_fail() {
    for (name, number, _) in ALWAYS.iter().chain(ALWAYS_HERE).chain(ALWAYS_NEW) {
        assert!(forbids(&forbidden(&context()), *number, [u64::MAX; 6]), "{name}");
        assert!(is_forbidden(&context(), *number, 0), "{name}");
    }
}

#[test]
fn what_drivers_need_is_left() {
    for (number, first) in [
        (libc::SYS_read, 0),
        (libc::SYS_openat, 0),
        (libc::SYS_mmap, 0),
        (libc::SYS_mprotect, 0),
        (libc::SYS_futex, 0),
        (libc::SYS_memfd_create, 0),
        (libc::SYS_sched_setaffinity, 0),
        (libc::SYS_execve, 0),
        (libc::SYS_ioctl, 0),
        (libc::SYS_socket, libc::AF_NETLINK as u64),
        (libc::SYS_clone, SPAWN_FLAGS),
        (libc::SYS_clone, (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND) as u64),
        (libc::SYS_kill, u64::from(PROCESS)),
        (libc::SYS_tgkill, u64::from(PROCESS)),
        (libc::SYS_process_vm_readv, u64::from(PROCESS)),
        (libc::SYS_prlimit64, 0),
        (libc::SYS_prctl, libc::PR_SET_NAME as u64),
        (libc::SYS_personality, u64::from(ASK_PERSONALITY)),
    ] {
        assert!(!is_forbidden(&context(), number, first), "{number} {first}");
    }
}

#[test]
fn other_processes_are_out_of_reach() {
    for number in [
        libc::SYS_kill,
        libc::SYS_tgkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_prlimit64,
    ] {
        // A group and all processes are others, too, and so is a number whose upper half hides.
        for other in [1, u64::MAX, u64::from(PROCESS) + 1, (1 << 32) | 1] {
            assert!(is_forbidden(&context(), number, other), "{number} {other}");
        }
    }
    assert!(is_forbidden(&context(), libc::SYS_kill, 0));
}

#[test]
fn a_worker_does_not_stop_itself() {
    let calls = forbidden(&context());
    let process = u64::from(PROCESS);
    for signal in [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
        let signal = u64::from(signal.unsigned_abs());
        for number in [libc::SYS_kill, libc::SYS_rt_sigqueueinfo] {
            assert!(forbids(&calls, number, [process, signal, 0, 0, 0, 0]), "{number}");
        }
        for number in [libc::SYS_tgkill, libc::SYS_rt_tgsigqueueinfo] {
            assert!(forbids(&calls, number, [process, process, signal, 0, 0, 0]), "{number}");
        }
    }
    // A driver ends its own process in an emergency (`abort`), and wakes its own threads.
    for signal in [libc::SIGABRT, libc::SIGUSR1, libc::SIGCONT] {
        let signal = u64::from(signal.unsigned_abs());
        assert!(!forbids(&calls, libc::SYS_kill, [process, signal, 0, 0, 0, 0]));
        assert!(!forbids(&calls, libc::SYS_tgkill, [process, process, signal, 0, 0, 0]));
    }
}

#[test]
fn processes_start_only_as_the_linker_does() {
    let without = Context { runs_programs: false, ..context() };
    let fork = libc::SIGCHLD as u64;
    assert!(is_forbidden(&context(), libc::SYS_clone, fork));
    assert!(is_forbidden(&without, libc::SYS_clone, SPAWN_FLAGS));
    assert!(is_forbidden(&without, libc::SYS_execve, 0));
    assert!(!is_forbidden(&without, libc::SYS_clone, CLONE_THREAD));
    for bit in NAMESPACES {
        assert!(is_forbidden(&context(), libc::SYS_clone, CLONE_THREAD | bit), "{bit:x}");
        assert!(is_forbidden(&context(), libc::SYS_clone, SPAWN_FLAGS | bit), "{bit:x}");
    }
}

#[test]
fn only_workers_with_a_service_connect_within_the_host() {
    let service = Context { has_services: true, ..context() };
    let unix = u64::from(libc::AF_UNIX.unsigned_abs());
    let pair = |context: &Context, kind: i32| {
        let kind = u64::from((kind | libc::SOCK_CLOEXEC).unsigned_abs());
        forbids(&forbidden(context), libc::SYS_socketpair, [unix, kind, 0, 0, 0, 0])
    };
    for number in [libc::SYS_connect, libc::SYS_socket] {
        assert!(is_forbidden(&context(), number, unix), "{number}");
        assert!(!is_forbidden(&service, number, unix), "{number}");
    }
    for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
        assert!(pair(&context(), kind) && !pair(&service, kind), "{kind}");
    }
    let inet = u64::from(libc::AF_INET.unsigned_abs());
    assert!(is_forbidden(&service, libc::SYS_socket, inet));
    let vsock = u64::from(libc::AF_VSOCK.unsigned_abs());
    assert!(is_forbidden(&service, libc::SYS_socket, vsock));
}

#[test]
fn networks_are_open_only_for_workers_that_connect_themselves() {
    let open = Context { has_network: true, ..context() };
    for family in [libc::AF_INET, libc::AF_INET6, libc::AF_VSOCK] {
        let family = u64::from(family.unsigned_abs());
        assert!(is_forbidden(&context(), libc::SYS_socket, family), "{family}");
        assert!(!is_forbidden(&open, libc::SYS_socket, family), "{family}");
    }
    let flags = u64::from(libc::MSG_FASTOPEN.unsigned_abs());
    for (number, place) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2)] {
        let mut arguments = [0; 6];
        assert!(!forbids(&forbidden(&context()), number, arguments));
        arguments[place] = flags | u64::from(libc::MSG_NOSIGNAL.unsigned_abs());
        assert!(forbids(&forbidden(&context()), number, arguments));
        assert!(!forbids(&forbidden(&open), number, arguments));
    }
    for family in [libc::AF_PACKET, libc::AF_ALG, libc::AF_BLUETOOTH, libc::AF_XDP] {
        assert!(is_forbidden(&open, libc::SYS_socket, u64::from(family.unsigned_abs())));
    }
}

#[test]
fn netlink_tells_of_networks_only() {
    let netlink = |context: &Context, kind: i32| {
        let words = [libc::AF_NETLINK, libc::SOCK_RAW, kind, 0, 0, 0].map(i64::from);
        forbids(&forbidden(context), libc::SYS_socket, words.map(i64::unsigned_abs))
    };
    let open = Context { has_network: true, ..context() };
    assert!(!netlink(&context(), libc::NETLINK_ROUTE) && !netlink(&open, libc::NETLINK_ROUTE));
    assert!(netlink(&context(), libc::NETLINK_RDMA) && !netlink(&open, libc::NETLINK_RDMA));
    for kind in [libc::NETLINK_KOBJECT_UEVENT, libc::NETLINK_AUDIT, libc::NETLINK_CRYPTO] {
        assert!(netlink(&context(), kind) && netlink(&open, kind), "{kind}");
    }
}

#[test]
fn no_send_names_an_address() {
    let service = Context { has_services: true, ..context() };
    let forbids = |context: &Context, address: u64| {
        forbids(&forbidden(context), libc::SYS_sendto, [3, 0x1000, 8, 0, address, 16])
    };
    assert!(!forbids(&context(), 0) && !forbids(&service, 0));
    for address in [0x1000, 1 << 40] {
        assert!(forbids(&context(), address) && !forbids(&service, address), "{address:x}");
    }
}

#[test]
fn a_worker_cannot_undo_what_it_did_to_itself() {
    for operation in PRCTL {
        assert!(is_forbidden(&context(), libc::SYS_prctl, operation.into()), "{operation}");
    }
    let calls = forbidden(&context());
    for request in IOCTL.map(u64::from) {
        assert!(forbids(&calls, libc::SYS_ioctl, [0, request, 0, 0, 0, 0]), "{request:x}");
        // The kernel ignores the upper half.
        assert!(forbids(&calls, libc::SYS_ioctl, [0, request | 1 << 40, 0, 0, 0, 0]));
    }
    assert!(!forbids(&calls, libc::SYS_ioctl, [0, libc::FIONBIO, 0, 0, 0, 0]));
    assert!(is_forbidden(&context(), libc::SYS_personality, 0x0040_0000));
}

#[test]
fn no_descriptor_signals_another_process() {
    let calls = forbidden(&context());
    for operation in FCNTL {
        let operation = u64::from(operation.unsigned_abs());
        for high in [0, 1 << 40] {
            let arguments = [3, operation | high, 1, 0, 0, 0];
            assert!(forbids(&calls, libc::SYS_fcntl, arguments), "{operation}");
        }
    }
    for operation in [libc::F_GETFL, libc::F_SETFL, libc::F_DUPFD_CLOEXEC, libc::F_ADD_SEALS] {
        let operation = u64::from(operation.unsigned_abs());
        assert!(!forbids(&calls, libc::SYS_fcntl, [3, operation, 0, 0, 0, 0]));
    }
}

#[test]
fn files_keep_their_modes_owners_flags_and_times() {
    let calls = forbidden(&context());
    for number in [
        libc::SYS_fchmod,
        libc::SYS_fchown,
        libc::SYS_fsetxattr,
        libc::SYS_fremovexattr,
        libc::SYS_utimensat,
    ] {
        assert!(forbids(&calls, number, [3, 0o4755, 0, 0, 0, 0]), "{number}");
    }
    assert!(forbids(&calls, libc::SYS_ioctl, [3, libc::FS_IOC_SETFLAGS, 0, 0, 0, 0]));
    assert!(!forbids(&calls, libc::SYS_ioctl, [3, libc::FS_IOC_GETFLAGS, 0, 0, 0, 0]));
    assert!(IOCTL.map(u64::from).contains(&libc::TIOCSTI));
    assert!(IOCTL.map(u64::from).contains(&libc::TIOCLINUX));
    assert!(IOCTL.map(u64::from).contains(&libc::TIOCSETD));
}

#[test]
fn only_its_own_priority_changes() {
    let calls = forbidden(&context());
    let forbids = |number, arguments: [u64; 2]| {
        forbids(&calls, number, [arguments[0], arguments[1], 0, 0, 0, 0])
    };
    assert!(!forbids(libc::SYS_setpriority, [0, 0]));
    assert!(!forbids(libc::SYS_ioprio_set, [1, 0]));
    assert!(!forbids(libc::SYS_sched_setscheduler, [0, 0]));
    for (number, arguments) in [
        // A process, and all processes of a group and of a user.
        (libc::SYS_setpriority, [0, 1]),
        (libc::SYS_setpriority, [1, 0]),
        (libc::SYS_setpriority, [2, 0]),
        (libc::SYS_ioprio_set, [1, 1]),
        (libc::SYS_ioprio_set, [3, 0]),
        (libc::SYS_sched_setattr, [1, 0]),
        (libc::SYS_sched_setparam, [1, 0]),
        (libc::SYS_sched_setscheduler, [1, 0]),
    ] {
        assert!(forbids(number, arguments), "{number} {arguments:?}");
    }
}
