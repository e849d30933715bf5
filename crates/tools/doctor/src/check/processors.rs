//! The frequency of processors, their number, and the clock.

use super::define::{Check, Seen, when};
use crate::facts::Facts;
use crate::finding::Severity::{Note, Warning};
use crate::finding::Topic::Processors;

pub const CHECKS: &[Check] = &[
    Check {
        id: "governor",
        topic: Processors,
        severity: Warning,
        title: "The processors run at a low frequency to save power.",
        why: "Threads that wait for a device wake up slowly, and CPU devices compute slowly.",
        find: governor,
    },
    Check {
        id: "turbo",
        topic: Processors,
        severity: Note,
        title: "Turbo frequencies are switched off.",
        why: "Single threads, such as those that hand commands to a driver, run slower than they \
              could. Measurements vary less in exchange.",
        find: turbo,
    },
    Check {
        id: "cpu-quota",
        topic: Processors,
        severity: Warning,
        title: "A control group limits the time of the processors.",
        why: "CPU devices start a thread for each core that they see. If the quota is used up, \
              all threads stop until the next period.",
        find: cpu_quota,
    },
    Check {
        id: "clock-source",
        topic: Processors,
        severity: Warning,
        title: "The kernel's clock is a slow one.",
        why: "Each look at the clock becomes a system call and an access to a device. Waiting \
              threads, profiling and MPI look at the clock all the time.",
        find: clock_source,
    },
];

fn governor(facts: &Facts) -> Vec<Seen> {
    let processors = &facts.processors;
    let driver = processors.frequency_driver.as_deref().unwrap_or_default();
    // These drivers choose the frequency themselves, and `powersave` is their usual setting.
    let chooses_itself = driver == "intel_pstate" || driver == "amd-pstate-epp";
    when(processors.governor.as_deref() == Some("powersave"), || {
        let path = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
        let text = format!("the governor is powersave, the driver is {driver}");
        let repair = "sudo cpupower frequency-set -g performance";
        Seen::new(path, text, repair).with(if chooses_itself { Note } else { Warning })
    })
}

fn turbo(facts: &Facts) -> Vec<Seen> {
    when(facts.processors.has_no_turbo, || {
        let repair = "echo 0 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo, or echo 1 | \
                      sudo tee /sys/devices/system/cpu/cpufreq/boost";
        Seen::new("sys/devices/system/cpu", "turbo frequencies are off", repair)
    })
}

fn cpu_quota(facts: &Facts) -> Vec<Seen> {
    let Some((cores, path)) = &facts.processors.quota else { return Vec::new() };
    let seen = match facts.user.cpus.len() {
        0 => facts.processors.online.len(),
        allowed => allowed,
    };
    let is_less = u32::try_from(seen).is_ok_and(|seen| *cores < f64::from(seen));
    when(is_less, || {
        let text = format!("the quota is {cores:.1} cores, and programs see {seen}");
        let repair = "give whole cores instead of time (a CPU set: --cpuset-cpus, or Slurm's \
                      task/affinity)";
        Seen::new(path, text, repair)
    })
}

fn clock_source(facts: &Facts) -> Vec<Seen> {
    const SLOW: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies"];
    let processors = &facts.processors;
    let slow = processors.clock.as_deref().filter(|clock| SLOW.contains(clock));
    let seen = |clock: &&str| {
        let path = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        let better = ["tsc", "kvm-clock"]
            .into_iter()
            .find(|it| processors.clocks.iter().any(|clock| clock == it));
        let repair = match better {
            Some(better) => format!("echo {better} | sudo tee /{path}"),
            None => "look in `dmesg | grep -i tsc` why the kernel does not trust the processor's \
                     counter; a BIOS update may help"
                .to_owned(),
        };
        Seen::new(path, format!("the clock is {clock}"), repair)
    };
    slow.iter().map(seen).collect()
}
