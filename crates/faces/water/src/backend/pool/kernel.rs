//! A kernel on the pool.

use std::sync::Arc;

use penstock_client::Kernel;

use crate::backend::Failure;
use crate::command::Code;
use crate::error::code;

/// Identifies a built program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProgramKey {
    pub(super) device: u32,
    pub(super) code: Code,
    pub(super) options: String,
}

/// A kernel for one device.
#[derive(Debug)]
pub(super) struct PoolKernel {
    pub(super) kernel: Arc<Kernel>,
}

impl PoolKernel {
    pub(super) fn name(&self) -> &str {
        &self.kernel.description().name
    }

    /// Checks the number of arguments.
    pub(super) fn check(&self, given: usize) -> Result<(), Failure> {
        let takes = self.kernel.description().args.len();
        if takes == given {
            return Ok(());
        }
        let message = format!("kernel {} takes {takes} arguments, {given} were given", self.name());
        Err(Failure { code: code::INVALID_VALUE, message, log: String::new() })
    }
}
