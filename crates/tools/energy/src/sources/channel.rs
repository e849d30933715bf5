//! What all sources say of a channel.

use std::fmt;
use std::time::Duration;

use crate::component::{Component, Method, Source};
use crate::reason::Reason;

/// RAPL steps about once a millisecond.
pub(super) const RAPL_STEP: Duration = Duration::from_millis(1);

/// Reads raw values of a channel.
pub(crate) trait Sensor: Send + fmt::Debug {
    /// Returns the counter or the power in the channel's own unit.
    fn read(&mut self) -> Result<u64, Reason>;
}

/// Meaning of a channel's raw values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Joules per unit of a counter, or watts per unit of a sample.
    pub(crate) per_unit: f64,
    /// Value after which the counter starts again at 0. If `None`, the counter must not go back.
    pub(crate) wraps_after: Option<u64>,
}

/// Description of a channel.
#[derive(Clone, Debug)]
pub(crate) struct ChannelInfo {
    pub(crate) component: Component,
    pub(crate) source: Source,
    pub(crate) method: Method,
    /// The file, event or function, and what to know about it.
    pub(crate) detail: String,
    /// Time between changes of the value, as far as known.
    pub(crate) step: Duration,
}

/// A channel that can be read.
#[derive(Debug)]
pub(crate) struct LiveChannel {
    pub(crate) sensor: Box<dyn Sensor>,
    pub(crate) scale: Scale,
}

/// A channel, or the reason why it cannot be read.
#[derive(Debug)]
pub(crate) struct FoundChannel {
    pub(crate) info: ChannelInfo,
    pub(crate) state: Result<LiveChannel, Reason>,
}
