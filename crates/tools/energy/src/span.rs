//! What one span of time yields.

use crate::cores::CoreSeconds;
use crate::reason::Reason;
use crate::tally::Taken;

/// Result of a span of time, with one entry for each channel.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) seconds: f64,
    pub(crate) taken: Vec<Result<Taken, Reason>>,
    pub(crate) cores: CoreSeconds,
}
