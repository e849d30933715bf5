//! What Slurm tells a process of its job, and what `srun` is told. Pure.

use std::ffi::OsString;

use penstock_client::config::slurm::expand;

use super::args::SlurmArgs;
use super::error::SlurmError;

/// Name of the file with the key in the directory of the job.
pub const KEY_FILE: &str = "key";

/// Variables by which the options of a job become options of each `srun`. A daemon is one task for
/// each node with all that the job has there, whatever the job's own tasks get.
pub const NOT_FOR_SRUN: [&str; 30] = [
    "SLURM_CPU_BIND",
    "SLURM_CPUS_PER_GPU",
    "SLURM_CPUS_PER_TASK",
    "SLURM_DISTRIBUTION",
    "SLURM_EXACT",
    "SLURM_EXCLUSIVE",
    "SLURM_EXPORT_ENV",
    "SLURM_GPU_BIND",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_SOCKET",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GRES",
    "SLURM_HINT",
    "SLURM_LABELIO",
    "SLURM_MEM_BIND",
    "SLURM_MULTI_PROG",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_RELATIVE",
    "SLURM_SPREAD_JOB",
    "SLURM_STDINMODE",
    "SLURM_STDOUTMODE",
    "SLURM_STEP_GRES",
    "SLURM_THREADS_PER_CORE",
    "SLURM_TIMELIMIT",
    "SLURM_TRES_BIND",
    "SLURM_TRES_PER_TASK",
    "SLURM_WHOLE",
    "SRUN_CPUS_PER_TASK",
];

/// Variables by which Slurm tells a task its devices. Slurm sets them only on nodes on which the
/// step has devices, and elsewhere a task would get those of the first node.
pub const DEVICES_OF_A_NODE: [&str; 5] = [
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
];

/// The job in which a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// One, or those of a heterogeneous job.
    pub components: Vec<Component>,
    is_heterogeneous: bool,
    /// Name of the node on which the process runs. `None` for a host outside the job, on which
    /// `salloc` has started the process.
    pub here: Option<String>,
}

/// Component of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    pub number: u32,
    /// Names of its nodes.
    pub nodes: Vec<String>,
    /// Whether its nodes offer their devices.
    pub serves: bool,
    /// Number of GPUs that a step must ask for on each node. By default a step gets all devices of
    /// its job on a node, but only those of one task if the job asks for GPUs by task.
    gpus: Option<u32>,
}

impl Job {
    /// Reads the job of a process with these variables. `serving` has the numbers of the components
    /// that offer their devices; all do if it is empty.
    pub fn read(
        variable: impl Fn(&str) -> Option<String>,
        serving: &[u32],
    ) -> Result<Self, SlurmError> {
        let number = |name: &str| variable(name)?.parse::<u32>().ok();
        let list = |name: &str| variable(name).filter(|list| !list.trim().is_empty());
        let whole = list("SLURM_JOB_NODELIST").ok_or(SlurmError::NoJob)?;
        if number("SLURM_STEP_NUM_TASKS").is_some_and(|tasks| tasks > 1) {
            return Err(SlurmError::ManyTasks);
        }
        let is_heterogeneous = variable("SLURM_HET_SIZE").is_some();
        let size = if is_heterogeneous { number("SLURM_HET_SIZE") } else { Some(1) };
        let size = size.filter(|size| *size > 0);
        let size = size.ok_or_else(|| SlurmError::Unreadable { name: "SLURM_HET_SIZE".into() })?;
        let component = |number: u32| {
            let nodes = if is_heterogeneous {
                let name = format!("SLURM_JOB_NODELIST_HET_GROUP_{number}");
                &list(&name).ok_or(SlurmError::Unreadable { name })?
            } else {
                &whole
            };
            let nodes = expand(nodes).map_err(|source| SlurmError::List { source })?;
            let serves = serving.is_empty() || serving.contains(&number);
            let gpus =
                if serves { gpus(&variable, is_heterogeneous.then_some(number))? } else { None };
            Ok(Component { number, nodes, serves, gpus })
        };
        let components: Vec<_> = (0..size).map(component).collect::<Result<_, _>>()?;
        let unknown = serving.iter().find(|it| !components.iter().any(|its| its.number == **it));
        if let Some(&number) = unknown {
            return Err(SlurmError::NoComponent { number, count: components.len() });
        }
        // A node of another job may have started `salloc`.
        let is_ours = |name: &String| components.iter().any(|it| it.nodes.contains(name));
        let here = variable("SLURMD_NODENAME").filter(is_ours);
        Ok(Self { components, is_heterogeneous, here })
    }

    /// Returns the arguments of the `srun` that starts one process on each node of a component.
    pub fn for_daemons(&self, component: &Component) -> Vec<String> {
        let count = component.nodes.len();
        let mut words: Vec<_> = [
            // The tasks of the program have the same cores, memory and devices.
            "--overlap",
            "--export=ALL",
            "--mpi=none",
            "--cpu-bind=none",
            "--ntasks-per-node=1",
            // The end of one daemon is not the end of the others.
            "--kill-on-bad-exit=0",
            "--no-kill",
            "--wait=0",
            "--input=all",
            "--output=all",
            "--quiet",
            "--job-name=penstock",
        ]
        .map(str::to_owned)
        .into();
        words.extend([format!("--nodes={count}"), format!("--ntasks={count}")]);
        words.extend(self.group(component.number));
        words.extend(component.gpus.map(|gpus| format!("--gpus-per-node={gpus}")));
        words
    }

    /// Returns the arguments of the `srun` that starts this command on the first node.
    pub fn for_first_node(&self, has_terminal: bool) -> Vec<String> {
        let words = ["--overlap", "--mpi=none", "--cpu-bind=none", "--nodes=1", "--ntasks=1"];
        let terminal = has_terminal.then(|| "--pty".to_owned());
        words.map(str::to_owned).into_iter().chain(self.group(0)).chain(terminal).collect()
    }

    fn group(&self, number: u32) -> Option<String> {
        self.is_heterogeneous.then(|| format!("--het-group={number}"))
    }
}

/// Returns the number of GPUs on each node of a component, if the job asks for GPUs by task.
/// `group` is the number of the component of a heterogeneous job. Slurm tells the number of GPUs
/// only for the node of this process, so it is computed for the nodes of such a component.
fn gpus(
    variable: impl Fn(&str) -> Option<String>,
    group: Option<u32>,
) -> Result<Option<u32>, SlurmError> {
    let find = |name: &str| match group {
        None => variable(name),
        Some(group) => variable(&format!("{name}_HET_GROUP_{group}")),
    };
    let Some(by_task) = find("SLURM_GPUS_PER_TASK") else { return Ok(None) };
    let tasks = find("SLURM_TASKS_PER_NODE").map(|tasks| equal_tasks(&tasks));
    let count = match (group, tasks) {
        (None, Some(None)) => None,
        (None, _) => variable("SLURM_GPUS_ON_NODE").and_then(|text| text.parse().ok()),
        (Some(_), tasks) => {
            gpus_of_task(&by_task).and_then(|gpus| gpus.checked_mul(tasks.flatten()?))
        }
    };
    count.map(Some).ok_or(SlurmError::Gpus { component: group.unwrap_or(0) })
}

/// Reads a number of GPUs, such as `2`, `a100:2` or `a100:1,v100:1`.
fn gpus_of_task(text: &str) -> Option<u32> {
    let of_kind = |kind: &str| kind.rsplit(':').next()?.parse::<u32>().ok();
    text.split(',').try_fold(0u32, |sum, kind| sum.checked_add(of_kind(kind)?))
}

/// Reads numbers of tasks on nodes, such as `2(x3),1`. Returns `None` if they are not the same.
fn equal_tasks(text: &str) -> Option<u32> {
    let of_nodes = |part: &str| part.split('(').next()?.parse::<u32>().ok();
    let first = of_nodes(text)?;
    text.split(',').all(|part| of_nodes(part) == Some(first)).then_some(first)
}

/// Returns the name of a daemon's socket in the directory of the job. Two components may have the
/// same node.
pub fn socket_name(component: u32) -> String {
    format!("node-{component}.sock")
}

/// Returns the arguments of `penstock run` that binds the program to the process `parent`.
pub fn run_words(args: &SlurmArgs, parent: u32, directory: &std::path::Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["run", "--no-local", "--bound-to"].map(Into::into).into();
    words.extend([parent.to_string().into(), "--in".into(), directory.into()]);
    words.extend(args.of_run());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)], serving: &[u32]) -> Result<Job, SlurmError> {
        let find = |name: &str| {
            variables.iter().find(|it| it.0 == name).map(|(_, value)| (*value).to_owned())
        };
        Job::read(find, serving)
    }

    const HET: [(&str, &str); 5] = [
        ("SLURM_JOB_NODELIST", "c1"),
        ("SLURM_HET_SIZE", "2"),
        ("SLURM_JOB_NODELIST_HET_GROUP_0", "c1"),
        ("SLURM_JOB_NODELIST_HET_GROUP_1", "g[01-02,7],x5"),
        ("SLURMD_NODENAME", "c1"),
    ];

    #[test]
    fn a_job_has_one_component_with_all_its_nodes() {
        let job = read(&[("SLURM_JOB_NODELIST", "node[01-03,7],x5")], &[]).unwrap();
        let [component] = &job.components[..] else { panic!("{job:?}") };
        assert_eq!(component.nodes, ["node01", "node02", "node03", "node7", "x5"]);
        assert!(component.serves && job.here.is_none());
        let words = job.for_daemons(component);
        assert!(
            words.contains(&"--nodes=5".to_owned()) && words.contains(&"--ntasks=5".to_owned())
        );
        assert!(!words.iter().any(|word| word.starts_with("--het-group")));
    }

    #[test]
    fn a_heterogeneous_job_has_several() {
        let job = read(&HET, &[]).unwrap();
        assert_eq!(job.components[0].nodes, ["c1"]);
        assert_eq!(job.components[1].nodes, ["g01", "g02", "g7", "x5"]);
        assert_eq!(job.here.as_deref(), Some("c1"));
        assert!(job.for_daemons(&job.components[1]).contains(&"--het-group=1".to_owned()));
        assert!(job.for_first_node(true).contains(&"--het-group=0".to_owned()));
        let serves = |serving: &[u32]| {
            read(&HET, serving).unwrap().components.iter().map(|it| it.serves).collect::<Vec<_>>()
        };
        assert_eq!(serves(&[]), [true, true]);
        assert_eq!(serves(&[1]), [false, true]);
    }

    #[test]
    fn gpus_of_all_tasks_of_a_component_are_asked_for() {
        let gpus = |by_task: &str, tasks: &str| {
            let named = [
                ("SLURM_GPUS_PER_TASK_HET_GROUP_1", by_task),
                ("SLURM_TASKS_PER_NODE_HET_GROUP_1", tasks),
                // Those of the node of component 0.
                ("SLURM_GPUS_ON_NODE", "9"),
            ];
            read(&[&HET[..], &named].concat(), &[]).map(|job| {
                assert_eq!(job.components[0].gpus, None);
                job.components[1].gpus
            })
        };
        for (by_task, tasks, count) in
            [("1", "2", 2), ("a100:2", "3(x4)", 6), ("a:1,b:2", "2(x2),2", 6), ("2", "1(x3),1", 2)]
        {
            assert_eq!(gpus(by_task, tasks).unwrap(), Some(count), "{by_task} {tasks}");
        }
        for (by_task, tasks) in
            [("1", "2(x3),1"), ("1", "2,"), ("", "2"), ("a100", "2"), ("4000000000", "2")]
        {
            let said = gpus(by_task, tasks).unwrap_err().to_string();
            assert!(said.contains("component 1") && said.contains("--gpus-per-node"), "{said}");
        }
        let unknown = [("SLURM_GPUS_PER_TASK_HET_GROUP_0", "1")];
        assert!(read(&[&HET[..], &unknown].concat(), &[0]).is_err());
        assert!(read(&[&HET[..], &unknown].concat(), &[1]).is_ok());
        let unequal = [
            ("SLURM_JOB_NODELIST", "a,b"),
            ("SLURM_GPUS_PER_TASK", "1"),
            ("SLURM_GPUS_ON_NODE", "2"),
            ("SLURM_TASKS_PER_NODE", "2,1"),
        ];
        assert!(matches!(read(&unequal, &[0]), Err(SlurmError::Gpus { component: 0 })));
        assert!(read(&unequal[..3], &[0]).is_ok());
        let outside = [("SLURM_JOB_NODELIST", "a"), ("SLURM_GPUS_PER_TASK", "1")];
        assert!(read(&outside, &[]).is_err());
    }

    #[test]
    fn gpus_of_all_tasks_are_asked_for() {
        let gpus = |variables: &[(&str, &str)]| {
            let all = [&[("SLURM_JOB_NODELIST", "a"), ("SLURM_GPUS_ON_NODE", "4")], variables];
            let job = read(&all.concat(), &[]).unwrap();
            job.for_daemons(&job.components[0]).contains(&"--gpus-per-node=4".to_owned())
        };
        assert!(gpus(&[("SLURM_GPUS_PER_TASK", "2")]) && !gpus(&[]));
    }

    #[test]
    fn what_is_no_job_is_refused_with_a_reason() {
        let said =
            |variables: &[_], serving: &[_]| read(variables, serving).unwrap_err().to_string();
        assert!(said(&[], &[]).contains("sbatch"));
        assert!(said(&[("SLURM_JOB_NODELIST", " ")], &[]).contains("sbatch"));
        let tasks = [("SLURM_JOB_NODELIST", "a"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert!(said(&tasks, &[]).contains("penstock slurm -- srun"));
        assert!(said(&[("SLURM_JOB_NODELIST", "a[1")], &[]).contains("SLURM_JOB_NODELIST"));
        assert!(said(&HET, &[2]).contains("no component 2"));
        for (name, value) in [
            ("SLURM_HET_SIZE", "two"),
            ("SLURM_HET_SIZE", "0"),
            ("SLURM_JOB_NODELIST_HET_GROUP_1", " "),
            ("SLURM_JOB_NODELIST_HET_GROUP_1", ""),
        ] {
            assert!(said(&[&[(name, value)], &HET[..]].concat(), &[]).contains(name), "{name}");
        }
        assert!(said(&HET[..3], &[]).contains("SLURM_JOB_NODELIST_HET_GROUP_1"));
    }

    #[test]
    fn a_node_of_another_job_is_not_here() {
        let here = |name| {
            let variables = [("SLURM_JOB_NODELIST", "n[1-2]"), ("SLURMD_NODENAME", name)];
            read(&variables, &[]).unwrap().here
        };
        assert_eq!(here("n2").as_deref(), Some("n2"));
        assert_eq!((here("n3"), here("")), (None, None));
    }
}
