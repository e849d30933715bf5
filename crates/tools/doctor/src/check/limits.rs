//! Limits of the user's processes.

use super::define::{Check, Seen, bytes, when};
use crate::facts::{Facts, Pci};
use crate::finding::Severity::Warning;
use crate::finding::Topic::Limits;

pub const CHECKS: &[Check] = &[
    Check {
        id: "memory-locked",
        topic: Limits,
        severity: Warning,
        title: "The user's processes may lock less memory than the host has.",
        why: "RDMA cards and VFIO lock all memory that they reach: registrations of buffers and \
              guests with devices fail beyond the limit.",
        find: memory_locked,
    },
    Check {
        id: "files-open",
        topic: Limits,
        severity: Warning,
        title: "A daemon may open few files.",
        why: "A daemon needs up to 8,192 descriptors for its 256 sessions and the clients in \
              line. It drops connections when it has none left.",
        find: files_open,
    },
];

fn memory_locked(facts: &Facts) -> Vec<Seen> {
    let needs_rdma = !facts.network.rdma.is_empty();
    let needs_vfio = facts.pci.iter().any(Pci::is_for_guests);
    // A process with the right to ignore the limit runs as root.
    let Some(limit) = facts.user.memory_locked.and_then(|limit| limit.soft) else {
        return Vec::new();
    };
    let is_little = facts.memory.bytes.is_none_or(|all| limit < all);
    when(is_little && (needs_rdma || needs_vfio) && !facts.user.is_root(), || {
        let text = format!("the limit of locked memory is {}", bytes(limit));
        let repair = "add `* - memlock unlimited` to /etc/security/limits.d/penstock.conf and \
                      LimitMEMLOCK=infinity to the daemon's unit";
        Seen::new("proc/self/limits", text, repair)
    })
}

fn files_open(facts: &Facts) -> Vec<Seen> {
    // `DESCRIPTORS_MAX` of the daemon, which raises its soft limit to the hard one.
    const NEEDED: u64 = 8_192;
    let hard = facts.user.files_open.and_then(|limit| limit.hard);
    when(hard.is_some_and(|limit| limit < NEEDED), || {
        let text = format!("the hard limit is {} open files", hard.unwrap_or_default());
        let repair = "add LimitNOFILE=8192 to the daemon's unit, or `* hard nofile 8192` to \
                      /etc/security/limits.d/penstock.conf";
        Seen::new("proc/self/limits", text, repair)
    })
}
