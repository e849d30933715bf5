//! What went wrong in a program.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A look at memory saw other bytes than the model.
    WrongBytes,
    /// A read saw bytes of several commands of an in-order queue.
    TornRead,
    /// A call returned a code other than the specification demands.
    WrongCode,
    /// An event has a wrong status.
    WrongStatus,
    /// An ended event has no times, or contradictory times.
    WrongTimes,
    /// A callback received a wrong status.
    WrongCallback,
    /// The failure of a launch that did not run was never reported.
    LostError,
    /// The program does not end.
    Hang,
    Crash,
}

impl Kind {
    /// The words that reports use for this kind of finding.
    pub fn name(self) -> &'static str {
        match self {
            Self::WrongBytes => "wrong bytes",
            Self::TornRead => "torn read",
            Self::WrongCode => "wrong code",
            Self::WrongStatus => "wrong status",
            Self::WrongTimes => "wrong times",
            Self::WrongCallback => "wrong callback",
            Self::LostError => "lost error",
            Self::Hang => "hang",
            Self::Crash => "crash",
        }
    }
}

/// One difference between a program and the model.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Finding {
    pub kind: Kind,
    /// The operation that saw it.
    pub op: Option<usize>,
    /// For wrong bytes: the offset of the first one.
    pub at: Option<usize>,
    /// What was expected and what was seen.
    pub what: String,
}
