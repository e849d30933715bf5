//! Numbers for people.

use std::time::Duration;

/// Returns a number with commas between the thousands.
pub(super) fn number(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", self::number(number / 1000), number % 1000),
    }
}

/// Returns a number of bytes with three digits.
pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} B"),
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        _ => scaled(bytes as f64 / 1e3, &["kB", "MB", "GB", "TB", "PB"]),
    }
}

/// Returns a time with three digits.
pub(super) fn time(time: Duration) -> String {
    scaled(time.as_secs_f64() * 1e6, &["µs", "ms", "s"])
}

/// Returns a number in the first of `units`, each of which is 1000 of the one before.
fn scaled(number: f64, units: &[&str]) -> String {
    match units {
        // 999.5 would be shown as 1000.
        [_, larger @ ..] if number >= 999.5 && !larger.is_empty() => scaled(number / 1e3, larger),
        [unit, ..] if number >= 99.95 => format!("{number:.0} {unit}"),
        [unit, ..] if number >= 9.995 => format!("{number:.1} {unit}"),
        [unit, ..] => format!("{number:.2} {unit}"),
        [] => String::new(),
    }
}
