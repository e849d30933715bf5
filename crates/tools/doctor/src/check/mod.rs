//! The checks: pure functions from facts to findings, one file for each topic.

mod define;
mod devices;
mod domains;
mod gpudirect;
mod iommu;
mod launchers;
mod limits;
mod memory;
mod network;
mod numa;
mod opencl;
mod pci;
mod pool;
mod processors;
mod virtualisation;

pub use define::Check;

use crate::facts::Facts;
use crate::finding::Finding;

/// Tables of the topics, in the order of [`Topic`].
const TABLES: [&[Check]; 14] = [
    devices::CHECKS,
    opencl::CHECKS,
    pool::CHECKS,
    pci::CHECKS,
    iommu::CHECKS,
    virtualisation::CHECKS,
    domains::CHECKS,
    numa::CHECKS,
    memory::CHECKS,
    processors::CHECKS,
    limits::CHECKS,
    network::CHECKS,
    gpudirect::CHECKS,
    launchers::CHECKS,
];

/// Returns all checks, topic by topic.
pub fn all() -> impl Iterator<Item = &'static Check> {
    TABLES.into_iter().flatten()
}

/// Runs all checks. The findings are in the order of the topics.
pub fn examine(facts: &Facts) -> Vec<Finding> {
    all().flat_map(|check| check.findings(facts)).collect()
}

/// Checks whose findings can be the reason why no device appears, the most likely reason first.
const HIDE_DEVICES: [&str; 13] = [
    "pool-file",
    "device-permission",
    "nvidia-versions",
    "nvidia-library",
    "nvidia-uvm",
    "device-nodes",
    "container-devices",
    "driver-missing",
    "icd-variable",
    "icd-library",
    "loader-missing",
    "icd-none",
    "icd-gpu",
];

/// Returns the finding that most likely is the reason why no device appears.
pub fn cause_of_no_device(findings: &[Finding]) -> Option<&Finding> {
    let of = |id: &&str| findings.iter().filter(|finding| finding.check == *id).collect::<Vec<_>>();
    let candidates = HIDE_DEVICES.iter().flat_map(of);
    // Of equally bad findings, the first check counts.
    candidates.rev().max_by_key(|finding| finding.severity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_unique_and_topics_are_in_order() {
        let checks: Vec<&Check> = all().collect();
        for (index, check) in checks.iter().enumerate() {
            assert!(checks.iter().take(index).all(|other| other.id != check.id), "{}", check.id);
        }
        assert!(checks.is_sorted_by_key(|check| check.topic));
        assert!(HIDE_DEVICES.iter().all(|id| checks.iter().any(|check| check.id == *id)));
    }
}
