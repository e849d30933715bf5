//! The command line.

use std::path::PathBuf;

use clap::Args;

use crate::feature::{self, Named};
use crate::planner::OPS_DEFAULT;

/// What can be asked for.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// The platform: the first one with devices whose name contains this text
    #[arg(long, value_name = "NAME", default_value = "")]
    pub platform: String,
    /// The seed of the first program; the next programs have the next seeds
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// How many programs are run
    #[arg(long, value_name = "NUMBER", conflicts_with = "seconds")]
    pub programs: Option<u64>,
    /// For how long programs are run [default: 60]
    #[arg(long, value_name = "NUMBER")]
    pub seconds: Option<u64>,
    /// Roughly how many operations a program has at most
    #[arg(long, value_name = "NUMBER", default_value_t = OPS_DEFAULT)]
    pub ops: usize,
    /// How many programs run at a time, each in a process of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub jobs: usize,
    /// Programs contain only these features besides buffers, in-order queues, transfers and launches
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Programs do not contain these features
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    pub without: Vec<String>,
    /// For how long each kind of finding is made smaller; 0 leaves the programs as they are
    #[arg(long, value_name = "NUMBER", default_value_t = 60)]
    pub shrink_seconds: u64,
    /// After how many seconds a program counts as hanging
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub hang_seconds: u64,
    /// How many findings end the run
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub findings: usize,
    /// The folder for the programs that found something, as C files
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Run the program of a file that an earlier run wrote, instead of random ones
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Write the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// Run programs of CUDA's driver interface, with the libcuda.so.1 that the loader finds
    #[arg(long)]
    pub cuda: bool,
    /// List the features and end
    #[arg(long)]
    pub list: bool,
    /// Serve a campaign: requests come from standard input
    #[arg(long, hide = true)]
    pub child: bool,
}

impl CheckArgs {
    /// The features that programs may contain.
    ///
    /// # Errors
    ///
    /// A name that no feature of the interface has.
    pub fn features<F: Named>(&self) -> Result<Vec<F>, String> {
        let (only, without) =
            (feature::named::<F>(&self.only)?, feature::named::<F>(&self.without)?);
        let wanted = |feature: &&F| {
            (only.is_empty() || only.contains(feature)) && !without.contains(feature)
        };
        Ok(F::ALL.iter().filter(wanted).copied().collect())
    }
}
