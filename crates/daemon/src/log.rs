//! Structured logs: one line per event, on standard error.

use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Format of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Log {
    /// `TIME LEVEL event key=value ...`
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl std::str::FromStr for Log {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("`{text}` is no log format; it is text or json")),
        }
    }
}

impl Display for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// A log: its format, and the process that writes it.
#[derive(Clone, Debug, Default)]
pub struct Logger {
    format: Log,
    /// Process id of a worker, whose lines name it.
    worker: Option<u32>,
}

/// Longest value in a line, in characters; longer ones are cut. A client may have chosen the text.
const VALUE_CHARS_MAX: usize = 500;

/// Most lines of one kind per second, so that frequent connections do not fill the disk.
const LINES_PER_SECOND_MAX: u32 = 20;

/// Limits the number of lines of one kind.
#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    second: u64,
    lines: u32,
    suppressed: u64,
}

impl Throttle {
    /// If a line may be written in this second, returns the number of lines suppressed before it.
    pub(crate) fn pass(&self, second: u64) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if window.second != second {
            (window.second, window.lines) = (second, 0);
        }
        if window.lines >= LINES_PER_SECOND_MAX {
            window.suppressed += 1;
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.suppressed))
    }
}

/// Keys and values of an event.
pub type Fields<'a> = [(&'a str, &'a dyn Display)];

impl Logger {
    pub fn new(format: Log) -> Self {
        Self { format, worker: None }
    }

    #[must_use]
    pub fn of_worker(self) -> Self {
        Self { worker: Some(std::process::id()), ..self }
    }

    /// Logs an event of normal operation.
    pub fn info(&self, event: &str, fields: &Fields<'_>) {
        self.write("info", event, fields);
    }

    /// Logs an event that somebody should look at.
    pub fn warn(&self, event: &str, fields: &Fields<'_>) {
        self.write("warn", event, fields);
    }

    fn write(&self, level: &str, event: &str, fields: &Fields<'_>) {
        let mut line = self.line(SystemTime::now(), level, event, fields);
        line.push('\n');
        // One write per line, so that lines of several processes do not mix. Errors are ignored.
        _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn line(&self, now: SystemTime, level: &str, event: &str, fields: &Fields<'_>) -> String {
        let time = timestamp(now);
        match self.format {
            Log::Text => {
                let mut line = format!("{time} {level} {event}");
                if let Some(worker) = self.worker {
                    _ = write!(line, " worker={worker}");
                }
                for (key, value) in fields {
                    _ = write!(line, " {key}={}", quoted(&cut(value)));
                }
                line
            }
            Log::Json => {
                let mut object = serde_json::Map::new();
                object.insert("time".into(), time.into());
                object.insert("level".into(), level.into());
                object.insert("event".into(), event.into());
                if let Some(worker) = self.worker {
                    object.insert("worker".into(), worker.into());
                }
                for (key, value) in fields {
                    object.insert((*key).into(), cut(value).into());
                }
                serde_json::Value::Object(object).to_string()
            }
        }
    }
}

fn cut(value: &dyn Display) -> String {
    let mut text = value.to_string();
    if let Some((end, _)) = text.char_indices().nth(VALUE_CHARS_MAX) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// Quotes a value with spaces or control characters, so that it cannot look like another field.
fn quoted(value: &str) -> String {
    let plain = !value.is_empty()
        && value.chars().all(|c| !c.is_whitespace() && !c.is_control() && c != '"');
    if plain { value.to_owned() } else { format!("{value:?}") }
}

/// Formats a time as in RFC 3339, in UTC with milliseconds.
fn timestamp(now: SystemTime) -> String {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        since.subsec_millis()
    )
}

/// Returns the Gregorian date of a day since 1970-01-01. It counts in years that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + carry, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_are_lines() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_186_784_042);
        let fields: &Fields<'_> = &[("peer", &"process 7"), ("evil", &"a\nb=\"c\""), ("n", &3)];
        let text = Logger::new(Log::Text).line(now, "info", "event", fields);
        assert_eq!(
            text,
            "2026-11-20T14:59:44.042Z info event peer=\"process 7\" evil=\"a\\nb=\\\"c\\\"\" n=3"
        );
        let json = Logger::new(Log::Json).line(now, "info", "event", fields);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["evil"], "a\nb=\"c\"");
    }

    #[test]
    fn long_values_are_cut() {
        let long = "\u{e4}".repeat(70_000);
        let line = Logger::new(Log::Text).line(
            SystemTime::UNIX_EPOCH,
            "info",
            "event",
            &[("evil", &long)],
        );
        assert!(line.len() < 1_100 && line.ends_with("..."));
    }

    #[test]
    fn a_flood_is_counted_and_not_written() {
        let throttle = Throttle::default();
        assert!((0..LINES_PER_SECOND_MAX).all(|_| throttle.pass(5) == Some(0)));
        assert_eq!(throttle.pass(5), None);
        assert_eq!(throttle.pass(5), None);
        assert_eq!(throttle.pass(6), Some(2));
        assert_eq!(throttle.pass(6), Some(0));
    }

    #[test]
    fn dates_of_leap_years() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_777), (2026, 11, 20));
    }
}
