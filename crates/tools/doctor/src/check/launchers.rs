//! MPI and Slurm.

use super::define::{Check, Seen, when};
use crate::facts::Facts;
use crate::finding::Severity::{Note, Warning};
use crate::finding::Topic::Launchers;

pub const CHECKS: &[Check] = &[
    Check {
        id: "mpi-missing",
        topic: Launchers,
        severity: Note,
        title: "Neither Open MPI nor MPICH is installed.",
        why: "libWater's programs run on the daemons of the pool or in one process, but not with \
              mpirun.",
        find: mpi_missing,
    },
    Check {
        id: "mpi-mixed",
        topic: Launchers,
        severity: Warning,
        title: "mpirun belongs to another MPI than the library that programs are linked with.",
        why: "Each process then believes that it is alone: the program runs N times instead of \
              once with N ranks.",
        find: mpi_mixed,
    },
    Check {
        id: "slurm-gpus",
        topic: Launchers,
        severity: Warning,
        title: "Slurm does not know of the host's accelerators.",
        why: "Jobs cannot ask for them, and several jobs get the same device.",
        find: slurm_gpus,
    },
    Check {
        id: "slurm-memory",
        topic: Launchers,
        severity: Warning,
        title: "Slurm gives jobs the limit of locked memory of the host that submitted them.",
        why: "RDMA cards cannot register the buffers of such a job, although the limit of this \
              host allows it.",
        find: slurm_memory,
    },
    Check {
        id: "slurm-devices",
        topic: Launchers,
        severity: Note,
        title: "Slurm does not keep jobs from the devices of other jobs.",
        why: "A daemon that starts in a job offers all devices of the host.",
        find: slurm_devices,
    },
];

fn mpi_missing(facts: &Facts) -> Vec<Seen> {
    let mpi = &facts.mpi;
    when(!mpi.has_open_mpi && !mpi.has_mpich && mpi.launcher.is_none(), || {
        let text = "there is neither libmpi.so nor mpirun";
        let repair =
            "if libWater's programs shall use MPI: sudo apt install openmpi-bin libopenmpi3";
        Seen::new("usr/lib", text, repair)
    })
}

fn mpi_mixed(facts: &Facts) -> Vec<Seen> {
    let chosen = facts.mpi.chosen().filter(|(launcher, library)| launcher != library);
    let seen = |(launcher, library): &(&str, &str)| {
        let text = format!("mpirun is of {launcher}, and programs are linked with {library}");
        let repair = "sudo update-alternatives --config mpirun, and --config mpi";
        Seen::new("etc/alternatives", text, repair)
    };
    chosen.iter().map(seen).collect()
}

fn slurm_gpus(facts: &Facts) -> Vec<Seen> {
    let Some(file) = &facts.slurm.file else { return Vec::new() };
    let count = facts.own_accelerators().count();
    when(count > 0 && !facts.slurm.has_gpus, || {
        let text = format!("GresTypes has no gpu; accelerators of the host: {count}");
        let repair = "add GresTypes=gpu and Gres=gpu:N to the node's line in slurm.conf, and \
                      AutoDetect to gres.conf";
        Seen::new(file, text, repair)
    })
}

fn slurm_memory(facts: &Facts) -> Vec<Seen> {
    let Some(file) = &facts.slurm.file else { return Vec::new() };
    let matters = !facts.network.rdma.is_empty();
    when(matters && facts.slurm.propagates_locked_memory, || {
        let text = "PropagateResourceLimitsExcept does not name MEMLOCK";
        Seen::new(file, text, "add PropagateResourceLimitsExcept=MEMLOCK to slurm.conf")
    })
}

fn slurm_devices(facts: &Facts) -> Vec<Seen> {
    let Some(file) = &facts.slurm.file else { return Vec::new() };
    let matters = facts.own_accelerators().next().is_some();
    when(matters && facts.slurm.constrains_devices != Some(true), || {
        let file = file.replace("slurm.conf", "cgroup.conf");
        let repair = "add ConstrainDevices=yes to cgroup.conf";
        Seen::new(file, "ConstrainDevices is not yes", repair)
    })
}
