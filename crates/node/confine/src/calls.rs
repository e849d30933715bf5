//! The system calls that a worker may not make, or not with some arguments. Each row says why.
//!
//! A call that is neither here nor in [`crate::permitted`] does not exist for a worker. These rows
//! have what reaches out of the worker, or deep into the kernel, so that the answer is EPERM, which
//! says what happened.

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
    "changes files that it may not open, because Landlock sees this only since Linux 6.2":
        SYS_truncate;
    "makes the host write out all its files": SYS_sync SYS_syncfs;
    "changes files that it may only read, so that a worker of root could give away its rights":
        SYS_fchmod SYS_fchown SYS_fsetxattr SYS_fremovexattr;
    "observes which files others use, because Landlock does not see this": SYS_inotify_add_watch;
    "takes what Linux counts for all processes of a user, or of the host":
        SYS_inotify_init1 SYS_io_setup;
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
    "takes what Linux counts for all processes of a user": SYS_inotify_init;
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
    // Here 0 is the calling process.
    let not_own = || vec![vec![at(0, Test::IsNot(0)), at(0, Test::IsNot(context.process))]];
    let other_process = "reads or changes another process";
    let mut calls = vec![
        call("process_vm_readv", libc::SYS_process_vm_readv, other_process, other(0)),
        call("process_vm_writev", libc::SYS_process_vm_writev, other_process, other(0)),
        call("prlimit64", libc::SYS_prlimit64, other_process, not_own()),
        call("move_pages", libc::SYS_move_pages, other_process, not_own()),
        call("migrate_pages", libc::SYS_migrate_pages, other_process, not_own()),
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
    calls.extend(signals(context));
    calls.extend(priorities());
    if !context.runs_programs {
        calls.push(call("execve", libc::SYS_execve, "no driver here runs programs", Vec::new()));
    }
    if !context.has_network {
        calls.extend(connecting_sends(context));
    }
    if !has_connections(context) {
        calls.extend(connections());
    }
    calls
}

/// A worker may signal its own threads, but not other processes. It may not stop itself, either,
/// because a process that is stopped looks at no limit.
fn signals(context: &Context) -> impl Iterator<Item = Call> {
    let rows = [
        ("kill", libc::SYS_kill, 1),
        ("tgkill", libc::SYS_tgkill, 2),
        ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, 1),
        ("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo, 2),
    ];
    let (process, at) = (context.process, |place, test| Argument { place, test });
    let other = at(0, Test::IsNot(process));
    rows.into_iter().map(move |(name, number, place)| {
        let stop = |signal: i32| at(place, Test::Is(signal.unsigned_abs()));
        let stops = STOPS.map(|signal| vec![at(0, Test::Is(process)), stop(signal)]);
        let cases = std::iter::once(vec![other]).chain(stops).collect();
        call(name, number, "signals another process, or stops this one", cases)
    })
}

/// The signals that stop a process.
const STOPS: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

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

/// Sends that also connect. Landlock does not see these connections. Where nothing in the worker
/// makes connections, no send names an address, either: a client may have sent the worker a socket
/// that can send to all services of the host, with the rights of the daemon.
fn connecting_sends(context: &Context) -> [Call; 3] {
    let fast = u64::from(libc::MSG_FASTOPEN.unsigned_abs());
    let rows = [
        ("sendto", libc::SYS_sendto, 3),
        ("sendmsg", libc::SYS_sendmsg, 2),
        ("sendmmsg", libc::SYS_sendmmsg, 3),
    ];
    rows.map(|(name, number, place)| {
        let mut cases = vec![vec![Argument { place, test: Test::Has(fast) }]];
        if number == libc::SYS_sendto && !has_connections(context) {
            cases.push(vec![Argument { place: 4, test: Test::IsNotWord(0) }]);
        }
        call(name, number, "connects past the rules for connecting", cases)
    })
}

/// Sockets of other families than a worker uses are refused. Drivers may ask the kernel for its
/// networks (netlink; but `getifaddrs` of the C library sends to an address, which is forbidden
/// where there is no network), and may speak to a service of their own (Unix). Other kinds of
/// netlink observe the host or lead deep into the kernel. UCX asks for RDMA cards.
fn socket(context: &Context) -> Call {
    let mut families = vec![libc::AF_NETLINK];
    if has_connections(context) {
        families.push(libc::AF_UNIX);
    }
    if context.has_network {
        families.extend([libc::AF_INET, libc::AF_INET6, libc::AF_VSOCK]);
    }
    let families = families.into_iter().map(i32::unsigned_abs);
    let other = families.map(|family| Argument { place: 0, test: Test::IsNot(family) }).collect();
    let mut kind = vec![Argument { place: 0, test: Test::Is(libc::AF_NETLINK.unsigned_abs()) }];
    let mut is_not = |kind_of: i32| {
        kind.push(Argument { place: 2, test: Test::IsNot(kind_of.unsigned_abs()) });
    };
    is_not(libc::NETLINK_ROUTE);
    if context.has_network {
        is_not(libc::NETLINK_RDMA);
    }
    let cases = vec![other, kind];
    call("socket", libc::SYS_socket, "reaches services of this host and networks", cases)
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
mod tests;
