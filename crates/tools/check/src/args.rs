//! The command line.

use std::path::PathBuf;

use clap::Args;

use crate::feature::{self, Named};
use crate::planner::OPS_DEFAULT;

#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// Use the first platform that has devices and whose name contains this text
    #[arg(long, value_name = "NAME", default_value = "")]
    pub platform: String,
    /// Seed of the first program; the following programs have the following seeds
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Number of programs to run
    #[arg(long, value_name = "NUMBER", conflicts_with = "seconds")]
    pub programs: Option<u64>,
    /// How long to run programs, in seconds [default: 60]
    #[arg(long, value_name = "NUMBER")]
    pub seconds: Option<u64>,
    /// Approximate largest number of operations in a program
    #[arg(long, value_name = "NUMBER", default_value_t = OPS_DEFAULT)]
    pub ops: usize,
    /// Number of programs that run at the same time, each in its own process
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub jobs: usize,
    /// Restrict programs to these features, in addition to buffers, in-order queues, transfers and
    /// launches
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Exclude these features from programs
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    pub without: Vec<String>,
    /// How long to shrink the program of each kind of finding, in seconds; 0 leaves the programs as
    /// they are
    #[arg(long, value_name = "NUMBER", default_value_t = 60)]
    pub shrink_seconds: u64,
    /// Seconds after which a program counts as hanging
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub hang_seconds: u64,
    /// Number of findings that end the run
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub findings: usize,
    /// Folder for the programs with findings, as C files
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Run the program in this file, which an earlier run wrote, instead of random programs
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Write the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// Run programs of CUDA's driver interface, with the libcuda.so.1 that the loader finds
    #[arg(long)]
    pub cuda: bool,
    /// Run random kernels of CUDA, and compare their results with those of an emulator
    #[arg(long, conflicts_with = "cuda")]
    pub kernels: bool,
    /// List the features and end
    #[arg(long)]
    pub list: bool,
    /// Serve a campaign: read requests from standard input
    #[arg(long, hide = true)]
    pub child: bool,
}

impl CheckArgs {
    /// Returns the features that programs may contain.
    ///
    /// # Errors
    ///
    /// A name is not that of a feature of the interface.
    pub fn features<F: Named>(&self) -> Result<Vec<F>, String> {
        let (only, without) =
            (feature::named::<F>(&self.only)?, feature::named::<F>(&self.without)?);
        let wanted = |feature: &&F| {
            (only.is_empty() || only.contains(feature)) && !without.contains(feature)
        };
        Ok(F::ALL.iter().filter(wanted).copied().collect())
    }
}
