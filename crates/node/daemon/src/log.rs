//! The log of a daemon and its workers: one line for each event, on standard error. The code
//! writes events with the macros of `tracing`; this module writes the lines. Workers write JSON to
//! their daemon (`said.rs`), which writes it in its own format under the worker's number.

use std::fmt::{Debug, Display};

use penstock_process::Lock;
use penstock_process::log::{self, Filter, Level};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// Format of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Log {
    /// `TIME LEVEL event key=value ...`
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The levels of events, as lines name them.
const LEVELS: [&str; 5] = ["trace", "debug", "info", "warn", "error"];

/// Most fields of an event of a worker. A worker may be hostile; its own events have up to six.
const FIELDS_MAX: usize = 16;

impl Log {
    /// Returns the line for what a worker has written: an event of its log, or any other text. The
    /// worker is not believed when this was, nor which worker it is.
    pub(crate) fn relayed(self, worker: u32, line: &[u8]) -> String {
        let number = ("worker".to_owned(), worker.to_string());
        let Some((level, Told { event, fields })) = event_of(line) else {
            let text = cut(String::from_utf8_lossy(line).into_owned());
            return self.line(&now(), "info", "a worker writes", [number, ("text".into(), text)]);
        };
        let fields = std::iter::once(number).chain(fields);
        self.line(&now(), level, &event, fields)
    }

    /// Returns the line that says how many lines of a worker are missing; nothing if none is.
    pub(crate) fn left_out(self, worker: u32, lines: u64) -> String {
        if lines == 0 {
            return String::new();
        }
        let fields = [("worker", worker.to_string()), ("lines", lines.to_string())];
        let fields = fields.map(|(key, value)| (key.to_owned(), value));
        self.line(&now(), "warn", "a worker writes too much; lines are left out", fields)
    }

    fn line(
        self,
        time: &str,
        level: &str,
        event: &str,
        fields: impl IntoIterator<Item = (String, String)>,
    ) -> String {
        let fields = fields.into_iter();
        match self {
            Self::Text => {
                let mut line = format!("{time} {level} {}", one_line(event));
                for (key, value) in fields {
                    line.extend([" ", &key, "=", &quoted(&value)]);
                }
                line + "\n"
            }
            Self::Json => {
                let mut object = serde_json::Map::new();
                object.insert("time".into(), time.into());
                object.insert("level".into(), level.into());
                object.insert("event".into(), event.into());
                object.extend(fields.map(|(key, value)| (key, value.into())));
                format!("{}\n", serde_json::Value::Object(object))
            }
        }
    }
}

type Fields = Vec<(String, String)>;

/// Returns the level, the event and the fields of a line of a worker's log.
fn event_of(line: &[u8]) -> Option<(&'static str, Told)> {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(line).ok()?;
    let word = |name: &str| object.get(name)?.as_str();
    let (level, event) = (word("level")?, cut(word("event")?.to_owned()));
    let level = LEVELS.into_iter().find(|it| *it == level)?;
    // Otherwise it could look like an event with fields.
    let event = if event.contains('=') { format!("{event:?}") } else { event };
    let is_plain = |key: &str| {
        key.len() < 40 && key.bytes().all(|it| it == b'_' || it.is_ascii_alphanumeric())
    };
    let own = ["time", "level", "event", "worker"];
    let fields = object.iter().filter(|(key, _)| is_plain(key) && !own.contains(&key.as_str()));
    let text = |(key, value): (&String, &serde_json::Value)| {
        Some((key.clone(), cut(value.as_str()?.to_owned())))
    };
    let fields = fields.filter_map(text).take(FIELDS_MAX).collect();
    Some((level, Told { event, fields }))
}

fn now() -> String {
    let mut time = String::new();
    // It writes into a string, which cannot fail.
    _ = SystemTime.format_time(&mut Writer::new(&mut time));
    time
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

/// Longest value in a line, in characters; longer ones are cut. A client may have chosen the text.
const VALUE_CHARS_MAX: usize = 500;

/// Most lines of one kind per second, so that frequent connections do not fill the disk.
const LINES_PER_SECOND_MAX: u32 = 20;

/// Limits the number of lines of one kind.
#[derive(Debug, Default)]
pub(crate) struct Throttle(Lock<Window>);

#[derive(Debug, Default)]
struct Window {
    second: u64,
    lines: u32,
    suppressed: u64,
}

impl Throttle {
    /// If a line may be written in this second, returns the number of lines suppressed before it.
    pub(crate) fn pass(&self, second: u64) -> Option<u64> {
        let mut window = self.0.lock();
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

/// Begins the log of this process, with the events that `PENSTOCK_LOG` asks for. Without the
/// variable these are the events of normal operation. Only the first call has an effect.
pub(crate) fn begin(format: Log) {
    let normal = || Filter { default: Level::Info, modules: Vec::new() };
    let filter = Filter::of_process().unwrap_or_else(normal);
    let lines = Lines { format };
    _ = tracing::subscriber::set_global_default(subscriber(lines, &filter, std::io::stderr));
    log::set_writer(filter, write_message);
}

/// Target of the messages of libraries. They have passed the filter when they arrive.
const LIBRARY: &str = "library";

/// Writes a message of a library into this log.
fn write_message(level: Level, module: &str, text: std::fmt::Arguments<'_>) {
    match level {
        Level::Off => {}
        Level::Error => tracing::error!(target: LIBRARY, module, "{text}"),
        Level::Warn => tracing::warn!(target: LIBRARY, module, "{text}"),
        Level::Info => tracing::info!(target: LIBRARY, module, "{text}"),
        Level::Debug => tracing::debug!(target: LIBRARY, module, "{text}"),
        Level::Trace => tracing::trace!(target: LIBRARY, module, "{text}"),
    }
}

fn subscriber(
    lines: Lines,
    filter: &Filter,
    output: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync {
    let own = filter.modules.iter().filter(|(name, _)| name.split("::").next() == Some("daemon"));
    let targets = Targets::new()
        .with_target("penstock_daemon", limit(filter.default))
        .with_targets(own.map(|(name, level)| (format!("penstock_{name}"), limit(*level))))
        .with_target(LIBRARY, LevelFilter::TRACE);
    // The layer formats a line and writes it at once, so that lines of several processes do not
    // mix. It ignores errors.
    let layer = tracing_subscriber::fmt::layer().event_format(lines).with_writer(output);
    tracing_subscriber::registry().with(layer.with_filter(targets))
}

fn limit(level: Level) -> LevelFilter {
    match level {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}

/// Writes the line of an event.
struct Lines {
    format: Log,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        let mut told = Told::default();
        event.record(&mut told);
        line.write_str(&self.format.line(&now(), &level, &told.event, told.fields))
    }
}

/// The name of an event, and its fields.
#[derive(Default)]
struct Told {
    event: String,
    fields: Fields,
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let value = cut(format!("{value:?}"));
        match field.name() {
            "message" => self.event = value,
            name => self.fields.push((name.to_owned(), value)),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(VALUE_CHARS_MAX) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// Escapes control characters, so that the text of a library's message, in which a peer may have
/// chosen words, cannot look like another line.
fn one_line(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(escaped).collect()
}

/// Quotes a value with spaces or control characters, so that it cannot look like another field.
fn quoted(value: &str) -> String {
    let plain = !value.is_empty()
        && value.chars().all(|c| !c.is_whitespace() && !c.is_control() && c != '"');
    if plain { value.to_owned() } else { format!("{value:?}") }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Lock<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the lines that `work` logs, without their times.
    fn lines(format: Log, filter: &str, work: impl FnOnce()) -> Vec<String> {
        let (written, filter) = (Written::default(), Filter::parse(filter).unwrap());
        let output = written.clone();
        let lines = Lines { format };
        let subscriber = subscriber(lines, &filter, move || output.clone());
        tracing::subscriber::with_default(subscriber, work);
        let bytes = std::mem::take(&mut *written.0.lock());
        let text = String::from_utf8(bytes).unwrap();
        let without_time = |line: &str| match format {
            Log::Text => {
                let (time, rest) = line.split_once(' ').unwrap();
                assert!(time.starts_with("20") && time.ends_with('Z'), "{line}");
                rest.to_owned()
            }
            Log::Json => line.to_owned(),
        };
        text.lines().map(without_time).collect()
    }

    #[test]
    fn an_event_is_one_line() {
        let evil = "a\nb=\"c\"";
        let event = || tracing::info!(peer = "process 7", evil = %evil, n = 3, "session ended");
        assert_eq!(
            lines(Log::Text, "1", event),
            ["info session ended peer=\"process 7\" evil=\"a\\nb=\\\"c\\\"\" n=3"]
        );
        let json = lines(Log::Json, "1", event);
        let object: serde_json::Value = serde_json::from_str(&json[0]).unwrap();
        assert_eq!((json.len(), &object["evil"]), (1, &evil.into()));
        assert_eq!((&object["level"], &object["event"]), (&"info".into(), &"session ended".into()));
        assert_eq!(object["n"], "3");
    }

    #[test]
    fn a_message_of_a_library_is_one_line() {
        let message = || write_message(Level::Warn, "link", format_args!("peer a\n2030 info b"));
        assert_eq!(lines(Log::Text, "1", message), ["warn peer a\\n2030 info b module=link"]);
    }

    #[test]
    fn a_worker_is_believed_neither_the_time_nor_its_number() {
        let line = |log: Log, text: &str| {
            let line = log.relayed(7, text.as_bytes());
            assert!(line.ends_with('\n') && line.lines().count() == 1, "{line}");
            line
        };
        let without_time = |text: &str| line(Log::Text, text).split_once(' ').unwrap().1.to_owned();
        let own =
            r#"{"time":"1970","level":"warn","event":"a\nb","worker":"8","why":"c d","x y":"z"}"#;
        assert_eq!(without_time(own), "warn a\\nb worker=7 why=\"c d\"\n");
        assert!(!line(Log::Text, own).starts_with("1970"));
        let forged = "2030-01-01T00:00:00Z info session client=\"x\"";
        assert!(without_time(forged).starts_with("info a worker writes worker=7 text=\"2030-"));
        assert!(without_time("\x1b[31m").contains("\\u{1b}[31m"));
        for other in ["{}", "[1]", r#"{"level":"off","event":"x"}"#, "\u{fffd}"] {
            assert!(without_time(other).starts_with("info a worker writes worker=7 text="));
        }
        let fields = r#"{"level":"info","event":"session ended worker=8"}"#;
        assert_eq!(without_time(fields), "info \"session ended worker=8\" worker=7\n");
        let json: serde_json::Value = serde_json::from_str(&line(Log::Json, own)).unwrap();
        assert_eq!((&json["worker"], &json["why"]), (&"7".into(), &"c d".into()));
        assert!(Log::Text.left_out(7, 0).is_empty());
        assert!(Log::Text.left_out(7, 3).contains("worker=7 lines=3"));
        assert!(line(Log::Text, &"y".repeat(10_000)).len() < 700);
    }

    #[test]
    fn the_filter_takes_levels_and_modules() {
        let events = || {
            tracing::info!("normal");
            tracing::warn!("strange");
            write_message(Level::Trace, "link", format_args!("a frame"));
        };
        // What a library writes has passed its own filter.
        let library = "trace a frame module=link";
        assert_eq!(lines(Log::Text, "off", events), [library]);
        assert_eq!(lines(Log::Text, "warn", events), ["warn strange", library]);
        assert_eq!(
            lines(Log::Text, "warn,daemon::log=info", events),
            ["info normal", "warn strange", library]
        );
        assert_eq!(lines(Log::Text, "daemon=warn,info", events), ["warn strange", library]);
    }

    #[test]
    fn long_values_are_cut() {
        let long = "\u{e4}".repeat(70_000);
        let lines = lines(Log::Text, "1", || tracing::info!(evil = %long, "event"));
        assert!(lines[0].len() < 1_100 && lines[0].ends_with("..."));
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
}
