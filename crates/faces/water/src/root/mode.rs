//! The mode of dynamic collective replacement.

/// The mode of replacement, from `WTR_DCR`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    Off,
    /// Replaces everything that looks like a collective over all ranks, and blocks these ranks
    /// until it is done, as in the paper.
    Paper,
    /// Replaces transfers if the cost model predicts a gain.
    #[default]
    Auto,
}

impl Mode {
    /// Returns the mode of this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "off" => Some(Self::Off),
            "paper" => Some(Self::Paper),
            "auto" => Some(Self::Auto),
            _ => None,
        }
    }
}
