//! The system calls that a worker may make, unless a row of [`crate::calls`] forbids them with
//! their arguments. All others are answered as by a kernel that does not have them: ENOSYS. So a
//! call that a new kernel brings is closed until somebody has put it into one of the two lists.
//!
//! The lists are for all drivers, because NVIDIA's and those of other vendors are not open. A call
//! is here if a driver, a compiler, the C library or Penstock may need it once a client is there,
//! and if it acts on the worker alone, or on files and sockets that Landlock and the rows judge.

use std::ffi::c_long;

macro_rules! calls {
    ($($why:literal: $($id:ident)*;)*) => {
        &[$($((stringify!($id), libc::$id, $why),)*)*]
    };
}

/// Name, number and reason of each call that all processors have.
const ALL: &[(&str, c_long, &str)] = calls! {
    "uses files, which Landlock judges":
        SYS_read SYS_write SYS_pread64 SYS_pwrite64 SYS_readv SYS_writev SYS_preadv SYS_pwritev
        SYS_preadv2 SYS_pwritev2 SYS_openat SYS_close SYS_close_range SYS_lseek SYS_dup SYS_dup3
        SYS_fcntl SYS_ioctl SYS_flock SYS_fsync SYS_fdatasync SYS_ftruncate SYS_fallocate
        SYS_readahead SYS_fadvise64 SYS_sendfile SYS_copy_file_range SYS_splice SYS_pipe2
        SYS_mkdirat SYS_unlinkat SYS_linkat SYS_symlinkat SYS_renameat SYS_renameat2 SYS_mknodat;
    "looks at files": SYS_fstat SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs SYS_faccessat
        SYS_faccessat2 SYS_readlinkat SYS_getdents64 SYS_getxattr SYS_lgetxattr SYS_fgetxattr
        SYS_listxattr SYS_llistxattr SYS_flistxattr;
    "chooses its own folder": SYS_getcwd SYS_chdir SYS_fchdir SYS_umask;
    "has memory of its own":
        SYS_mmap SYS_munmap SYS_mprotect SYS_mremap SYS_msync SYS_mincore SYS_madvise SYS_brk
        SYS_mlock SYS_mlock2 SYS_munlock SYS_mlockall SYS_munlockall SYS_memfd_create SYS_mbind
        SYS_get_mempolicy SYS_set_mempolicy SYS_move_pages SYS_migrate_pages SYS_pkey_mprotect
        SYS_pkey_alloc SYS_pkey_free SYS_membarrier SYS_process_vm_readv SYS_process_vm_writev;
    "has threads, and programs where the rows let it start them":
        SYS_clone SYS_execve SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_futex
        SYS_set_tid_address SYS_set_robust_list SYS_rseq SYS_gettid SYS_getpid SYS_getppid
        SYS_sched_yield SYS_sched_setaffinity SYS_sched_getaffinity SYS_sched_getparam
        SYS_sched_setparam SYS_sched_getscheduler SYS_sched_setscheduler SYS_sched_getattr
        SYS_sched_setattr SYS_sched_get_priority_max SYS_sched_get_priority_min
        SYS_sched_rr_get_interval SYS_getpriority SYS_setpriority SYS_ioprio_get SYS_ioprio_set
        SYS_getcpu;
    "gets signals, and sends them to itself":
        SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending
        SYS_rt_sigtimedwait SYS_rt_sigsuspend SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo
        SYS_sigaltstack SYS_signalfd4 SYS_kill SYS_tgkill SYS_restart_syscall;
    "waits, and asks for the time":
        SYS_ppoll SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2
        SYS_eventfd2 SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime SYS_timer_create
        SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete SYS_getitimer
        SYS_setitimer SYS_nanosleep SYS_clock_nanosleep SYS_clock_gettime SYS_clock_getres
        SYS_gettimeofday SYS_times;
    "uses the sockets that it has":
        SYS_socket SYS_connect SYS_socketpair SYS_bind SYS_listen SYS_accept SYS_accept4
        SYS_getsockname SYS_getpeername SYS_getsockopt SYS_setsockopt SYS_sendto SYS_recvfrom
        SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg SYS_shutdown;
    "asks about itself and the host":
        SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getgroups SYS_getresuid SYS_getresgid
        SYS_getpgid SYS_getsid SYS_capget SYS_getrusage SYS_sysinfo SYS_uname SYS_prlimit64
        SYS_personality SYS_getrandom;
    "restricts itself further":
        SYS_prctl SYS_seccomp SYS_landlock_create_ruleset SYS_landlock_add_rule
        SYS_landlock_restrict_self;
};

/// The same for calls that have no names in the C library yet. All processors have these numbers.
const NEW: &[(&str, c_long, &str)] = &[
    ("futex_waitv", 449, OF_THREADS),
    ("futex_wake", 454, OF_THREADS),
    ("futex_wait", 455, OF_THREADS),
    ("futex_requeue", 456, OF_THREADS),
    ("mseal", 462, "restricts itself further"),
];

const OF_THREADS: &str = "has threads";

/// The older forms of the calls above, which new processors do not have.
#[cfg(target_arch = "x86_64")]
const OLD: &[(&str, c_long, &str)] = calls! {
    "uses files, which Landlock judges":
        SYS_open SYS_creat SYS_dup2 SYS_pipe SYS_mkdir SYS_rmdir SYS_unlink SYS_link SYS_symlink
        SYS_rename SYS_mknod;
    "looks at files": SYS_stat SYS_lstat SYS_access SYS_readlink SYS_getdents;
    "has threads": SYS_arch_prctl SYS_getpgrp;
    "waits, and asks for the time":
        SYS_poll SYS_select SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_signalfd SYS_pause
        SYS_alarm SYS_time;
    "asks about itself and the host": SYS_getrlimit SYS_setrlimit;
};

#[cfg(not(target_arch = "x86_64"))]
const OLD: &[(&str, c_long, &str)] = &[];

/// A call that a worker may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permitted {
    pub name: &'static str,
    pub number: c_long,
    pub why: &'static str,
}

/// Returns the permitted calls.
pub fn calls() -> impl Iterator<Item = Permitted> {
    let all = ALL.iter().chain(OLD).chain(NEW);
    all.map(|&(name, number, why)| {
        let name = name.strip_prefix("SYS_").unwrap_or(name);
        Permitted { name, number, why }
    })
}
