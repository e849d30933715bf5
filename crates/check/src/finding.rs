//! What a program has shown.

use serde::{Deserialize, Serialize};

/// Kinds of findings.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A look at memory saw other bytes than the model.
    WrongBytes,
    /// A read saw bytes of several commands of an in-order queue.
    TornRead,
    /// A call returned another code than the specification says.
    WrongCode,
    /// An event has another status.
    WrongStatus,
    /// An event that has ended has no times, or times that contradict each other.
    WrongTimes,
    /// A callback ran with another status.
    WrongCallback,
    /// A launch that did not run was never reported.
    LostError,
    /// The program does not end.
    Hang,
    /// The process ended.
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
    /// Its kind.
    pub kind: Kind,
    /// The operation that saw it.
    pub op: Option<usize>,
    /// The first wrong byte, for wrong bytes.
    pub at: Option<usize>,
    /// What was expected and what was seen.
    pub what: String,
}
