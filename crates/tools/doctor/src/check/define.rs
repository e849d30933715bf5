//! What a check is, and what it sees.

use crate::facts::Facts;
use crate::finding::{Finding, Severity, Topic};
use crate::limits::{FINDINGS_PER_CHECK_MAX, SHOWN_CHARACTERS_MAX};

/// A check. The texts are those of docs/doctor.md.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Identifier, such as `link-width`. It never changes its meaning.
    pub id: &'static str,
    pub topic: Topic,
    /// Severity of the findings, unless what the check saw has a severity of its own.
    pub severity: Severity,
    /// What the check finds.
    pub title: &'static str,
    /// Why that matters, with the cost where it is known.
    pub why: &'static str,
    pub(super) find: fn(&Facts) -> Vec<Seen>,
}

/// One thing that a check saw.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Path from which it was read.
    place: String,
    text: String,
    repair: String,
    severity: Option<Severity>,
}

impl Seen {
    pub fn new(
        place: impl Into<String>,
        text: impl Into<String>,
        repair: impl Into<String>,
    ) -> Self {
        Self { place: place.into(), text: text.into(), repair: repair.into(), severity: None }
    }

    pub fn with(self, severity: Severity) -> Self {
        Self { severity: Some(severity), ..self }
    }
}

/// Returns what a check saw, if the check looks for one thing only.
pub fn when(condition: bool, seen: impl FnOnce() -> Seen) -> Vec<Seen> {
    if condition { vec![seen()] } else { Vec::new() }
}

impl Check {
    /// Returns the findings of this check.
    pub fn findings(&self, facts: &Facts) -> Vec<Finding> {
        let seen = (self.find)(facts).into_iter().take(FINDINGS_PER_CHECK_MAX);
        seen.map(|seen| Finding {
            check: self.id,
            topic: self.topic,
            severity: seen.severity.unwrap_or(self.severity),
            place: shown(&seen.place),
            seen: shown(&seen.text),
            why: self.why.to_owned(),
            repair: shown(&seen.repair),
        })
        .collect()
    }
}

/// Makes a text from a tree fit for a terminal: control characters cannot steer it.
fn shown(text: &str) -> String {
    let letters = text.chars().map(|it| if it.is_control() { '\u{fffd}' } else { it });
    if text.chars().count() <= SHOWN_CHARACTERS_MAX {
        return letters.collect();
    }
    letters.take(SHOWN_CHARACTERS_MAX - 1).chain(['…']).collect()
}

/// Writes bytes for people, in the largest unit that gives a whole number or at least 10.
pub fn bytes(count: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = |shift: &u32| count.is_multiple_of(1_u64 << shift) || count >> shift >= 10;
    match UNITS.iter().find(|(shift, _)| count >> shift > 0 && fits(shift)) {
        Some((shift, unit)) => format!("{} {unit}", count >> shift),
        None => format!("{count} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_short() {
        for (count, text) in [(1, "1 bytes"), (16 << 30, "16 GiB"), (268_435_456, "256 MiB")] {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(bytes((4 << 30) + 1), "4096 MiB");
    }
}
