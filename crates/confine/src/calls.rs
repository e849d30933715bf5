//! The system calls that a worker may not make. Each row says why.
//!
//! This is a list of what is forbidden and not of what is allowed, because nobody knows all calls
//! of all drivers. It has what reaches out of the worker, or deep into the kernel, and what no
//! driver needs once it is loaded.

use std::ffi::c_long;

/// What the rows depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Number of the worker's process.
    pub process: u32,
    /// Whether something in the worker makes connections to networks itself.
    pub has_network: bool,
    /// Whether a driver connects to a service of this host: NVIDIA's MPS.
    pub has_services: bool,
    /// Whether a driver runs programs: PoCL runs the linker.
    pub runs_programs: bool,
}

/// A test of one argument of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its place, from 0.
    pub place: u8,
    pub test: Test,
}

/// Arguments are compared as 32 bits where the kernel takes an `int`, because it ignores the upper
/// half, and a caller could put anything there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// The lower 32 bits are this number.
    Is(u32),
    IsNot(u32),
    /// All 64 bits are not this number.
    IsNotWord(u64),
    /// The argument has all of these bits.
    Has(u64),
    /// The argument has none of these bits.
    Lacks(u64),
}

/// A forbidden call. It fails with EPERM if all tests of one of the cases hold; a call without
/// cases always fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: &'static str,
    pub number: c_long,
    pub cases: Vec<Vec<Argument>>,
    pub why: &'static str,
}

macro_rules! always {
    ($($why:literal: $($id:ident)*;)*) => {
        &[$($((stringify!($id), libc::$id, $why),)*)*]
    };
}

/// Calls that always fail: name, number and reason.
const ALWAYS: &[(&str, c_long, &str)] = always! {
    "reads or changes another process":
        SYS_ptrace SYS_pidfd_getfd SYS_pidfd_send_signal SYS_process_madvise SYS_process_mrelease
        SYS_kcmp SYS_tkill;
    "makes calls that no filter sees": SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register;
    "runs code in the kernel":
        SYS_bpf SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load;
    "observes the host": SYS_perf_event_open SYS_syslog SYS_fanotify_init;
    "helps to win races in the kernel": SYS_userfaultfd;
    "changes what is mounted":
        SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_open_tree SYS_move_mount SYS_fsopen
        SYS_fsconfig SYS_fsmount SYS_fspick SYS_mount_setattr;
    "changes the namespaces or the user":
        SYS_unshare SYS_setns SYS_setuid SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid
        SYS_setresgid SYS_setgroups SYS_setfsuid SYS_setfsgid SYS_capset;
    "leaves the process group by which the daemon ends the session": SYS_setsid SYS_setpgid;
    "reaches keys of the user": SYS_add_key SYS_request_key SYS_keyctl;
    "opens files past their folders": SYS_open_by_handle_at;
    "reaches memory and queues that all processes of the user share":
        SYS_shmget SYS_shmat SYS_shmctl SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl SYS_semget
        SYS_semop SYS_semtimedop SYS_semctl SYS_mq_open SYS_mq_unlink;
    "changes the host":
        SYS_reboot SYS_acct SYS_swapon SYS_swapoff SYS_quotactl SYS_settimeofday SYS_clock_settime
        SYS_clock_adjtime SYS_adjtimex SYS_sethostname SYS_setdomainname SYS_vhangup;
    "runs a program that has no path": SYS_execveat;
    "changes files that it may not open, because Landlock does not see this":
        SYS_fchmodat SYS_fchownat SYS_setxattr SYS_lsetxattr SYS_removexattr SYS_lremovexattr
        SYS_utimensat;
    "changes files that it may only read, so that a worker of root could give away its rights":
        SYS_fchmod SYS_fchown SYS_fsetxattr SYS_fremovexattr;
    "observes which files others use, because Landlock does not see this": SYS_inotify_add_watch;
};

/// Calls that always fail and for which the C library has no names yet: name, number and reason.
/// All processors have the same numbers.
const ALWAYS_NEW: &[(&str, c_long, &str)] = &[
    ("fchmodat2", 452, OF_ANY_FILE),
    ("setxattrat", 463, OF_ANY_FILE),
    ("removexattrat", 466, OF_ANY_FILE),
    ("file_setattr", 469, OF_ANY_FILE),
];

const OF_ANY_FILE: &str = "changes files that it may not open, because Landlock does not see this";

#[cfg(target_arch = "x86_64")]
const ALWAYS_HERE: &[(&str, c_long, &str)] = always! {
    "runs code in the kernel": SYS_kexec_file_load;
    "starts a process as no driver does": SYS_fork SYS_vfork;
    "changes files that it may not open, because Landlock does not see this":
        SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes SYS_futimesat;
    "reaches hardware, or old corners of the kernel":
        SYS_iopl SYS_ioperm SYS_modify_ldt SYS_uselib SYS__sysctl SYS_ustat SYS_nfsservctl
        SYS_lookup_dcookie;
};

#[cfg(not(target_arch = "x86_64"))]
const ALWAYS_HERE: &[(&str, c_long, &str)] = always! {
    "runs code in the kernel": SYS_kexec_file_load;
};

/// Flags with which the C library starts a program: the parent waits until the program runs.
pub const SPAWN_FLAGS: u64 = (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u64;

const CLONE_THREAD: u64 = libc::CLONE_THREAD as u64;

/// Bits of `clone` that make a namespace. `CLONE_NEWTIME` is among the bits of the signal, and only
/// `clone3` and `unshare` know it.
const NAMESPACES: [u64; 7] = [
    libc::CLONE_NEWNS as u64,
    libc::CLONE_NEWCGROUP as u64,
    libc::CLONE_NEWUTS as u64,
    libc::CLONE_NEWIPC as u64,
    libc::CLONE_NEWUSER as u64,
    libc::CLONE_NEWPID as u64,
    libc::CLONE_NEWNET as u64,
];

/// Operations of `prctl` that undo what the worker has done to itself: it would be inspected again,
/// outlive its daemon, or adopt processes.
const PRCTL: [u32; 5] = [
    libc::PR_SET_DUMPABLE as u32,
    libc::PR_SET_PDEATHSIG as u32,
    libc::PR_SET_PTRACER as u32,
    libc::PR_SET_MM as u32,
    libc::PR_SET_CHILD_SUBREAPER as u32,
];

/// Operations of `fcntl` that choose the process and the signal of a descriptor. The system then
/// sends any signal, also SIGKILL, to any process of the same user, and no filter of `kill` sees
/// it. The last two make others wait for a file, or tell who uses a folder. A descriptor for
/// reading is enough for them.
const FCNTL: [i32; 5] = [libc::F_SETOWN, F_SETSIG, F_SETOWN_EX, libc::F_SETLEASE, libc::F_NOTIFY];

/// From `asm-generic/fcntl.h`, which all processors of [`crate::filter`] share.
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;

/// Requests of `ioctl` on every descriptor or terminal. The first two do the same as `F_SETOWN`;
/// `asm-generic/sockios.h` has their numbers. Those of `linux/fs.h`, `linux/fsverity.h` and
/// `linux/fscrypt.h` change a file that is open for reading.
const IOCTL: [u32; 12] = [
    0x8901,      // FIOSETOWN
    0x8902,      // SIOCSPGRP
    0x5412,      // TIOCSTI
    0x541c,      // TIOCLINUX
    0x5423,      // TIOCSETD
    0x4008_6602, // FS_IOC_SETFLAGS
    0x4004_6602, // FS_IOC32_SETFLAGS
    0x4008_7602, // FS_IOC_SETVERSION
    0x4004_7602, // FS_IOC32_SETVERSION
    0x401c_5820, // FS_IOC_FSSETXATTR
    0x4080_6685, // FS_IOC_ENABLE_VERITY
    0x800c_6613, // FS_IOC_SET_ENCRYPTION_POLICY
];

/// The value of `personality` that only asks.
const ASK_PERSONALITY: u32 = u32::MAX;

/// Returns all forbidden calls.
#[must_use]
pub fn forbidden(context: &Context) -> Vec<Call> {
    let always = ALWAYS.iter().chain(ALWAYS_HERE).chain(ALWAYS_NEW);
    let always = always.map(|(name, number, why)| call(name, *number, why, Vec::new()));
    always.chain(by_argument(context)).collect()
}

fn call(name: &'static str, number: c_long, why: &'static str, cases: Vec<Vec<Argument>>) -> Call {
    let name = name.strip_prefix("SYS_").unwrap_or(name);
    Call { name, number, cases, why }
}

/// Returns the calls that depend on their arguments.
fn by_argument(context: &Context) -> Vec<Call> {
    let at = |place, test| Argument { place, test };
    let other = |place| vec![vec![at(place, Test::IsNot(context.process))]];
    let other_process = "reads or changes another process";
    let mut calls = vec![
        call("kill", libc::SYS_kill, other_process, other(0)),
        call("tgkill", libc::SYS_tgkill, other_process, other(0)),
        call("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, other_process, other(0)),
        call("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo, other_process, other(0)),
        call("process_vm_readv", libc::SYS_process_vm_readv, other_process, other(0)),
        call("process_vm_writev", libc::SYS_process_vm_writev, other_process, other(0)),
        call(
            "prlimit64",
            libc::SYS_prlimit64,
            other_process,
            vec![vec![at(0, Test::IsNot(0)), at(0, Test::IsNot(context.process))]],
        ),
        call(
            "personality",
            libc::SYS_personality,
            "switches protections off",
            vec![vec![at(0, Test::IsNot(ASK_PERSONALITY))]],
        ),
        call(
            "prctl",
            libc::SYS_prctl,
            "undoes what confines the worker",
            PRCTL.map(|operation| vec![at(0, Test::Is(operation))]).into(),
        ),
        call(
            "fcntl",
            libc::SYS_fcntl,
            "has the system signal another process, or reaches others through a file",
            FCNTL.map(|operation| vec![at(1, Test::Is(operation.unsigned_abs()))]).into(),
        ),
        call(
            "ioctl",
            libc::SYS_ioctl,
            "has the system signal another process, or changes a file or the daemon's terminal",
            IOCTL.map(|request| vec![at(1, Test::Is(request))]).into(),
        ),
        socket(context),
        clone(context),
    ];
    calls.extend(priorities());
    if !context.runs_programs {
        calls.push(call("execve", libc::SYS_execve, "no driver here runs programs", Vec::new()));
    }
    if !context.has_network {
        calls.extend(connecting_sends());
    }
    if !has_connections(context) {
        calls.extend(connections());
    }
    calls
}

/// A worker may change its own priority, and not that of other processes of its user. The CPUs of a
/// process stay open (`sched_setaffinity`): the worker itself names its threads there by number.
fn priorities() -> impl Iterator<Item = Call> {
    let is_other = |place| vec![Argument { place, test: Test::IsNot(0) }];
    let why = "slows other processes down";
    // 0 is PRIO_PROCESS, and as a number of a process the calling thread.
    let setpriority = call("setpriority", libc::SYS_setpriority, why, [0, 1].map(is_other).into());
    let process = vec![Argument { place: 0, test: Test::IsNot(IOPRIO_WHO_PROCESS) }];
    let ioprio_set = call("ioprio_set", libc::SYS_ioprio_set, why, vec![process, is_other(1)]);
    let of_thread = [
        ("sched_setattr", libc::SYS_sched_setattr),
        ("sched_setparam", libc::SYS_sched_setparam),
        ("sched_setscheduler", libc::SYS_sched_setscheduler),
    ];
    let of_thread = of_thread.map(|(name, number)| call(name, number, why, vec![is_other(0)]));
    [setpriority, ioprio_set].into_iter().chain(of_thread)
}

/// From `linux/ioprio.h`.
const IOPRIO_WHO_PROCESS: u32 = 1;

/// Returns whether anything in the worker makes connections. Its daemon makes those to other nodes.
fn has_connections(context: &Context) -> bool {
    context.has_network || context.has_services
}

/// A worker has connected sockets from its daemon, and must not connect them to anything else.
/// A pair of datagram sockets could send to any other such socket. Any pair could hold descriptors
/// that nobody receives: Linux counts them for all processes of the user together, and at some
/// number the daemon could hand no more clients to workers.
fn connections() -> [Call; 2] {
    let why = "reaches services of this host and networks";
    let pair = "holds descriptors that nobody receives";
    [
        call("connect", libc::SYS_connect, why, Vec::new()),
        call("socketpair", libc::SYS_socketpair, pair, Vec::new()),
    ]
}

/// Returns the calls that send descriptors. They are forbidden from the moment at which a worker
/// gets a client who could not send the daemon's descriptors by himself. Such a client can leave
/// them in his end of the link, where they count as those of a pair do.
///
/// The limit of a sender ([`crate::limits`]) does not suffice: the kernel looks at it before it
/// counts what the call sends, and in between, any number of threads can wait.
#[must_use]
pub fn sends() -> [Call; 2] {
    let why = "leaves descriptors of the daemon's user where nobody receives them";
    [("sendmsg", libc::SYS_sendmsg), ("sendmmsg", libc::SYS_sendmmsg)]
        .map(|(name, number)| call(name, number, why, Vec::new()))
}

/// Sends that also connect. Landlock does not see these connections.
fn connecting_sends() -> [Call; 3] {
    let fast = u64::from(libc::MSG_FASTOPEN.unsigned_abs());
    let rows = [
        ("sendto", libc::SYS_sendto, 3),
        ("sendmsg", libc::SYS_sendmsg, 2),
        ("sendmmsg", libc::SYS_sendmmsg, 3),
    ];
    rows.map(|(name, number, place)| {
        let fast = vec![vec![Argument { place, test: Test::Has(fast) }]];
        call(name, number, "connects past the rules for connecting", fast)
    })
}

/// Sockets of other families than a worker uses are refused. Drivers speak to the kernel (netlink)
/// and may speak to a service of their own (Unix).
fn socket(context: &Context) -> Call {
    let mut families = vec![libc::AF_NETLINK];
    if has_connections(context) {
        families.push(libc::AF_UNIX);
    }
    if context.has_network {
        families.extend([libc::AF_INET, libc::AF_INET6, libc::AF_VSOCK]);
    }
    let families = families.into_iter().map(i32::unsigned_abs);
    let case = families.map(|family| Argument { place: 0, test: Test::IsNot(family) }).collect();
    call("socket", libc::SYS_socket, "reaches services of this host and networks", vec![case])
}

/// Threads start as ever. A process starts only as the C library starts a program.
fn clone(context: &Context) -> Call {
    let at = |test| Argument { place: 0, test };
    let mut process = vec![at(Test::Lacks(CLONE_THREAD))];
    if context.runs_programs {
        process.push(at(Test::IsNotWord(SPAWN_FLAGS)));
    }
    let namespaces = NAMESPACES.map(|bit| vec![at(Test::Has(bit))]);
    let cases = std::iter::once(process).chain(namespaces).collect();
    call("clone", libc::SYS_clone, "starts processes or makes namespaces", cases)
}

/// Returns whether the rows forbid a call with these arguments, as the filter in the kernel does.
#[must_use]
pub fn forbids(calls: &[Call], number: c_long, arguments: [u64; 6]) -> bool {
    let holds = |argument: &Argument| {
        let value = arguments.get(usize::from(argument.place)).copied().unwrap_or_default();
        let low = value & u64::from(u32::MAX);
        match argument.test {
            Test::Is(wanted) => low == u64::from(wanted),
            Test::IsNot(other) => low != u64::from(other),
            Test::IsNotWord(other) => value != other,
            Test::Has(bits) => value & bits == bits,
            Test::Lacks(bits) => value & bits == 0,
        }
    };
    let fits =
        |call: &Call| call.cases.is_empty() || call.cases.iter().any(|case| case.iter().all(holds));
    calls.iter().any(|call| call.number == number && fits(call))
}

#[cfg(test)]
mod tests {
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
}
