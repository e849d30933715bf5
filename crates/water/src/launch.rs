//! How a run begins: which transport, which back end.

use std::sync::Arc;

use crate::backend::opencl::OpenCl;
use crate::clock::{Clock, Real};
use crate::error::Error;
use crate::runtime::Runtime;
use crate::transport::alone::Alone;

/// Starts the run of this process.
///
/// # Errors
/// No way to the other ranks, or one that does not answer.
pub fn start() -> Result<Runtime, Error> {
    let clock: Arc<dyn Clock> = Arc::new(Real::new());
    Runtime::root(Box::new(Alone), Box::new(OpenCl::new(Arc::clone(&clock))), clock, true)
}
