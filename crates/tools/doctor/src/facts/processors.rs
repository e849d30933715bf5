//! Processors, their clock and their limits.

use super::files::{count, number_list};
use crate::tree::{Tree, keep};

#[derive(Clone, Debug)]
pub struct Processors {
    /// Numbers of the CPUs that are on.
    pub online: Vec<u32>,
    /// Whether the processor can run virtual machines.
    pub virtualises: bool,
    /// Governor and driver of the frequency, if a driver sets it.
    pub governor: Option<String>,
    pub frequency_driver: Option<String>,
    /// Whether turbo frequencies are switched off.
    pub has_no_turbo: bool,
    /// Cores that the control group may use at most, and the file that says so.
    pub quota: Option<(f64, String)>,
    pub clock: Option<String>,
    pub clocks: Vec<String>,
}

const POLICY: &str = "sys/devices/system/cpu/cpu0/cpufreq";
const CLOCK: &str = "sys/devices/system/clocksource/clocksource0";

/// Keeps the flags that checks know.
pub fn kept(text: &str) -> String {
    let line = keep::keys(text, &["flags"]);
    let flags = keep::words(&line, &["vmx", "svm", "hypervisor"]);
    format!("flags : {flags}")
}

impl Processors {
    pub fn read(tree: &Tree) -> Self {
        let line = |path: &str| tree.read(path, keep::line);
        let flags = tree.read("proc/cpuinfo", kept).unwrap_or_default();
        let virtualises = flags.split_whitespace().any(|flag| flag == "vmx" || flag == "svm");
        let clocks = line(&format!("{CLOCK}/available_clocksource")).unwrap_or_default();
        Self {
            online: number_list(&line("sys/devices/system/cpu/online").unwrap_or_default()),
            virtualises,
            governor: line(&format!("{POLICY}/scaling_governor")),
            frequency_driver: line(&format!("{POLICY}/scaling_driver")),
            has_no_turbo: count(tree, "sys/devices/system/cpu/intel_pstate/no_turbo") == Some(1)
                || count(tree, "sys/devices/system/cpu/cpufreq/boost") == Some(0),
            quota: quota(tree),
            clock: line(&format!("{CLOCK}/current_clocksource")),
            clocks: clocks.split_whitespace().map(str::to_owned).collect(),
        }
    }
}

/// Returns the smallest quota of the control groups of this process, in cores.
fn quota(tree: &Tree) -> Option<(f64, String)> {
    let quotas = control_groups(tree).into_iter().filter_map(|group| {
        let path = format!("{group}/cpu.max");
        let text = tree.read(&path, keep::line)?;
        let (quota, period) = text.split_once(' ')?;
        let (quota, period) = (quota.parse::<f64>().ok()?, period.trim().parse::<f64>().ok()?);
        Some((quota / period, path)).filter(|(cores, _)| *cores > 0.0 && cores.is_finite())
    });
    quotas.min_by(|one, other| one.0.total_cmp(&other.0))
}

/// Returns the directories of the control groups of this process, from the innermost one.
pub fn control_groups(tree: &Tree) -> Vec<String> {
    // Line of version 2 of control groups. Their depth is limited as the kernel limits it by
    // default in practice: no system nests more than some ten.
    const DEPTH_MAX: usize = 32;
    let own = tree.read("proc/self/cgroup", |text| {
        let line = text.lines().find_map(|line| line.strip_prefix("0::"));
        line.map(|path| format!("0::{}", keep::printable(path))).unwrap_or_default()
    });
    let own = own.unwrap_or_default();
    let own = own.trim_start_matches("0::").trim_end_matches('/');
    let mut groups = Vec::new();
    let mut path = format!("sys/fs/cgroup{own}");
    while groups.len() < DEPTH_MAX && path.starts_with("sys/fs/cgroup") {
        groups.push(path.clone());
        match path.rsplit_once('/') {
            Some((above, _)) => path = above.to_owned(),
            None => break,
        }
    }
    groups
}
