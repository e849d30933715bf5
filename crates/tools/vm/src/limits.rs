//! Limits of guests, and how they were derived.

use std::time::Duration;

/// Largest initramfs. A program with CUDA's libraries has 30 MB; the whole file is in the host's
/// memory once and in the guest's twice.
pub const INITRAMFS_BYTES_MAX: u64 = 2 << 30;

/// Deepest chain of scripts, of which each is the interpreter of the one before. Linux allows four.
pub const SCRIPT_DEPTH_MAX: usize = 4;

/// Deepest folder below a folder that is copied into a guest.
pub const FOLDER_DEPTH_MAX: usize = 40;

/// Largest payload of a message between host and guest: that of a pipe.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 10;

/// Kept end of a console. A boot with all messages of the kernel has some 30 KiB.
pub const CONSOLE_BYTES_MAX: usize = 64 << 10;

/// Number of lines of a console that an error shows. A panic of the kernel has about 50.
pub const CONSOLE_LINES_SHOWN: usize = 60;

/// Longest start of a guest under KVM until its first process is ready. It takes 1 s or less. A
/// KVM that cannot run Linux is noticed after this time at the latest.
pub const KVM_BOOT_MAX: Duration = Duration::from_secs(15);

/// Longest start of an emulated guest: it takes 2 s on an idle host, and 20 s beside eight others.
pub const BOOT_MAX: Duration = Duration::from_secs(120);

/// Time between two signs of life of a guest.
pub const ALIVE_EVERY: Duration = Duration::from_secs(2);

/// Longest silence of a guest. A guest that is one of many on a busy host may be late by a few
/// seconds.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Longest time until a helper of QEMU listens at its socket.
pub const HELPER_START_MAX: Duration = Duration::from_secs(20);

/// Longest time until QEMU connects to the host's socket, or until a device appears in the guest.
pub const CONNECT_MAX: Duration = Duration::from_secs(30);
