//! The command lines of `penstock slurm` and of what it starts on each node.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::run::args::MpiName;

pub const AFTER_SLURM: &str = "\
Examples:
  sbatch --nodes 4 --wrap 'penstock slurm -- ./program'
  salloc --nodes 2 penstock slurm -- clinfo -l
  sbatch job.sh    (with `#SBATCH hetjob` and `penstock slurm --het-group 1 -- ./program` in it)
  penstock slurm -- srun --overlap --mpi=pmix -n 8 ./mpi-program

The pool:
Within a job, the command starts a daemon on each node of the job by srun, runs the program on \
the first node with these daemons as its pool, and ends them. Each daemon offers what the job has \
on its node: the devices of --gres (CUDA_VISIBLE_DEVICES) and the cores. PENSTOCK_DEVICES and \
--devices choose among them. Nothing has to be set up: no daemon, no key, no port.

The end:
The daemons end with the program, with the job (scancel, time limit, failure of a node), and with \
this command, also by kill -9. That also ends the process that this command has started, but not \
the children of that process. This command returns when the daemons have ended.

Heterogeneous jobs:
The program runs in component 0. All components offer their devices, or those that --het-group \
names.

Exit status:
That of the program, or 128 and the number of the signal that ended it; 125 if the pool could not \
be set up, 126 if the program cannot be executed, 127 if it is not found. SIGTERM and SIGHUP are \
passed on to the program.";

#[derive(Args, Debug)]
pub struct SlurmArgs {
    /// Components of a heterogeneous job whose nodes offer their devices [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub het_group: Vec<u32>,
    /// Show the program only the devices that this query selects; overrides PENSTOCK_DEVICES
    #[arg(long, value_name = "QUERY")]
    pub devices: Option<String>,
    /// Let the program pass CUDA device memory to MPI
    #[arg(long, value_enum, value_name = "MPI", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "auto")]
    pub mpi: Option<MpiName>,
    /// Summarise the run on standard error when the program ends, or add JSON to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    #[allow(clippy::option_option, reason = "the form of clap for an option without its value")]
    pub summary: Option<Option<PathBuf>>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

impl SlurmArgs {
    /// Returns the options that `penstock run` understands, too, and the program.
    pub fn of_run(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        if let Some(query) = &self.devices {
            words.push(format!("--devices={query}").into());
        }
        if let Some(mpi) = self.mpi {
            words.push(format!("--mpi={}", mpi.word()).into());
        }
        if let Some(file) = &self.summary {
            let mut word = OsString::from("--summary");
            if let Some(file) = file {
                word.push("=");
                word.push(file);
            }
            words.push(word);
        }
        words.push("--".into());
        words.extend(self.program.iter().cloned());
        words
    }
}

/// `penstock slurm-node`; [`super::node`] describes it.
#[derive(Args, Debug)]
pub struct NodeArgs {
    /// Name of the directory that all nodes of the job have
    #[arg(long)]
    pub directory: String,
    /// Component of the job
    #[arg(long)]
    pub component: u32,
    /// Run a daemon
    #[arg(long)]
    pub serve: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: SlurmArgs,
    }

    #[test]
    fn options_of_the_program_stay_its_own_and_ours_reach_penstock_run() {
        let of = |words: &[&str]| {
            let words = ["slurm"].iter().chain(words);
            let line = Line::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
            line.args.of_run().join(" ".as_ref()).into_string().unwrap()
        };
        assert_eq!(of(&["--", "./it", "--mpi", "x"]), "-- ./it --mpi x");
        assert_eq!(
            of(&["--devices", "gpu", "--mpi=openmpi", "--summary=a b", "./it"]),
            "--devices=gpu --mpi=openmpi --summary=a b -- ./it"
        );
        assert_eq!(of(&["--mpi", "--summary", "./it"]), "--mpi=auto --summary -- ./it");
    }
}
