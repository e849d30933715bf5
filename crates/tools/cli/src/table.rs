//! Tables that fit the terminal.

use std::io::Write as _;

use penstock_client::config::NodeAddress;

use crate::failure::Failure;

/// Narrowest column. Fitting the terminal makes no column narrower.
const WIDTH_MIN: usize = 6;

/// Text between two columns.
const GAP: &str = "  ";

/// A table: a head, and rows with as many cells as the head.
#[derive(Debug)]
pub struct Table {
    head: Vec<&'static str>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates an empty table. A column whose name starts with `>` is right-aligned.
    pub fn new(columns: &[&'static str]) -> Self {
        let right = columns.iter().map(|name| name.starts_with('>')).collect();
        Self::with(columns.iter().map(|name| name.trim_start_matches('>')).collect(), right)
    }

    /// Creates an empty table. Each element of `right` says whether a column is right-aligned.
    pub fn with(head: Vec<&'static str>, right: Vec<bool>) -> Self {
        Self { head, right, rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| printable(cell)).collect());
    }

    /// Returns the text. Its lines have at most `width` characters if that is possible.
    pub fn render(&self, width: Option<usize>) -> String {
        let widths = self.widths(width);
        let mut text = String::new();
        let head: Vec<String> = self.head.iter().map(|name| (*name).to_owned()).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, &width), &right) in row.iter().zip(&widths).zip(&self.right) {
                let cell = cut(cell, width);
                let blank = " ".repeat(width.saturating_sub(cell.chars().count()));
                if !line.is_empty() {
                    line.push_str(GAP);
                }
                line.push_str(&if right { blank + &cell } else { cell + &blank });
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn widths(&self, fit: Option<usize>) -> Vec<usize> {
        let widest = |column: usize| {
            self.rows.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max()
        };
        let mut widths: Vec<usize> = (0..)
            .zip(&self.head)
            .map(|(column, name)| name.chars().count().max(widest(column).unwrap_or_default()))
            .collect();
        let Some(fit) = fit else { return widths };
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        // The widest column shrinks first.
        while widths.iter().sum::<usize>() + gaps > fit {
            match widths.iter_mut().max().filter(|width| **width > WIDTH_MIN) {
                Some(width) => *width -= 1,
                None => break,
            }
        }
        widths
    }
}

/// Replaces control characters. Names come from other hosts and must not control the terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if controls(c) { '\u{fffd}' } else { c }).collect()
}

/// Returns whether a character controls the terminal, or is invisible and changes the order of what
/// stands beside it (Unicode's bidirectional controls) or hides in a name.
fn controls(c: char) -> bool {
    let is_hidden = matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}');
    c.is_control() || is_hidden || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Returns the width of the terminal, or `None` if standard output is no terminal.
pub fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|&width| width > 0)
}

/// Replaces control characters within lines. What other hosts say must not control the terminal.
fn lines(text: &str) -> String {
    text.chars().map(|c| if controls(c) && !"\n\t".contains(c) { '\u{fffd}' } else { c }).collect()
}

/// Says a line on standard error, if that can be written.
pub fn say(line: &str) {
    _ = writeln!(std::io::stderr(), "penstock: {}", lines(line));
}

/// Prints `text`. It is no failure if the reader has gone (as with `| head`).
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(lines(text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        _ => Ok(()),
    }
}

/// Returns the shortest clear name of a node's address.
pub fn address(node: &NodeAddress) -> String {
    if node.name == "local" { node.name.clone() } else { node.to_string() }
}

/// Formats a number of bytes for people.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = "B";
    let mut tenths = u128::from(count) * 10;
    for next in UNITS {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        unit = next;
    }
    if unit == "B" || tenths % 10 == 0 {
        return format!("{} {unit}", tenths / 10);
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["NODE", "DEVICE", ">UNITS"]);
        table.row(vec!["a".into(), "a very long name of a device".into(), "8".into()]);
        table.row(vec!["gpu02".into(), "x".into(), "1024".into()]);
        table
    }

    #[test]
    fn columns_line_up() {
        assert_eq!(
            table().render(None),
            "NODE   DEVICE                        UNITS\n\
             a      a very long name of a device      8\n\
             gpu02  x                              1024\n"
        );
    }

    #[test]
    fn the_widest_column_gives_way() {
        let text = table().render(Some(30));
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
        assert!(text.contains("a very long nam…"), "{text}");
        // Too narrow for any table: no line is lost, and none is empty.
        assert_eq!(table().render(Some(1)).lines().count(), 3);
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        let mut table = Table::new(&["A"]);
        table.row(vec!["\x1b[2J\n".into()]);
        assert_eq!(table.render(None), "A\n\u{fffd}[2J\u{fffd}\n");
        assert_eq!(printable("a\u{202e}b\u{200b}\u{feff}é"), "a\u{fffd}b\u{fffd}\u{fffd}é");
        assert_eq!(lines("a\tb\n\x1b[2J\r\u{9b}\n"), "a\tb\n\u{fffd}[2J\u{fffd}\u{fffd}\n");
    }

    #[test]
    fn bytes_are_short() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536 << 20, "1.5 GiB"),
            (8 << 30, "8 GiB"),
            (u64::MAX, "16383.9 PiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }
}
