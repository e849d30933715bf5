//! The screen: a pure function of the state and of the size of the terminal.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

use super::rows::{Cell, Column, Known, Node, Row, View, bytes, count};
use super::state::{Mode, State};

/// Blanks between two columns.
const GAP: u16 = 1;

/// Lines above the table and below it.
const HEAD_LINES: u16 = 2;
const FOOT_LINES: u16 = 1;

const HELP: [&str; 15] = [
    "Tab 1 2 3     nodes, devices, clients",
    "arrows j k    choose a row (also PgUp, PgDn, Home, End)",
    "< >           sort by the column before or behind",
    "r             reverse the order",
    "/             show only rows with this text (Enter keeps it, Esc ends it)",
    "x             end the chosen session; asks first",
    "q Ctrl-C      end",
    "",
    "CORES     busy cores of the workers",
    "USE       time in use of the devices; 200% if two are, or two sessions use one",
    "HELD      device memory that sessions have borrowed, perhaps ahead of their use",
    "LAUNCH/S  kernels that clients have launched in a second",
    "MOVED/S   content that workers have received and sent in a second",
    "WATT      of the node, or of a client's devices, where a counter tells it",
    "-         nobody knows, or not yet",
];

/// How things look.
#[derive(Clone, Copy, Debug)]
pub struct Colours(bool);

impl Colours {
    /// Without colours, what matters is bold or reversed only.
    pub fn new(has_colours: bool) -> Self {
        Self(has_colours)
    }

    fn of(self, colour: Color) -> Style {
        if self.0 { Style::new().fg(colour) } else { Style::new() }
    }

    fn of_state(self, node: &Node) -> Style {
        match &node.known {
            Known::Silent(_) => self.of(Color::Red),
            Known::Here(now) if now.look.has_problem => self.of(Color::Red),
            Known::Here(now) if now.look.is_draining => self.of(Color::Yellow),
            _ => Style::new(),
        }
    }
}

/// Draws the state.
pub fn draw(state: &State, colours: Colours, buffer: &mut Buffer) {
    let area = buffer.area;
    // The place of a character that is wider than its cell must not keep what was there.
    buffer.reset();
    let mut screen = Screen { buffer, area };
    screen.line(0, &summary(state), Style::new().add_modifier(Modifier::BOLD));
    if state.mode == Mode::Help {
        for (row, text) in (HEAD_LINES..).zip(HELP) {
            screen.line(row, text, Style::new());
        }
    } else {
        screen.table(state, colours);
    }
    let last = area.height.saturating_sub(1);
    if last > 0 {
        let (text, style) = foot(state, colours);
        screen.line(last, &text, style);
    }
}

/// Returns the first line: the whole pool.
fn summary(state: &State) -> String {
    let nodes: Vec<_> = state.nodes.iter().filter(|node| !node.is_known_already).collect();
    let here: Vec<_> = nodes.iter().filter_map(|node| node.now()).collect();
    let clients: usize = here.iter().map(|now| now.look.sessions.len()).sum();
    let total = |figure: &dyn Fn(&super::rates::Now) -> Option<f64>| -> Option<f64> {
        here.iter().filter_map(|now| figure(now)).reduce(|a, b| a + b)
    };
    let told = |figure: Option<f64>, show: &dyn Fn(f64) -> String| {
        figure.map_or_else(|| "-".to_owned(), show)
    };
    let waiting = told(total(&|now| now.look.waiting), &|it| format!("{it:.0}"));
    let launches = told(total(&|now| now.rates.launches), &count);
    let moved = told(total(&|now| now.rates.moved_bytes), &bytes);
    let watts = total(&|now| now.watts).map(|it| format!("  {it:.0} W")).unwrap_or_default();
    format!(
        "penstock top  nodes {}/{}  clients {clients}  waiting {waiting}  {launches} launches/s  \
         {moved}/s{watts}",
        here.len(),
        nodes.len()
    )
}

/// Returns the last line: what a key does, what was asked, or what came of it.
fn foot(state: &State, colours: Colours) -> (String, Style) {
    let loud = Style::new().add_modifier(Modifier::BOLD);
    match &state.mode {
        // In this order: the key and the number fit 80 columns, whatever the client's name is.
        Mode::Confirm { session, asked, node } => {
            let (worker, client) = (session.worker, &asked.client);
            let text = format!("y ends session {worker} of {client} on node {node}; n does not");
            return (text, colours.of(Color::Yellow).patch(loud));
        }
        Mode::Filter => return (format!("filter: {}_", state.filter), loud),
        Mode::Help => return ("any key goes back".to_owned(), Style::new()),
        Mode::Watch => {}
    }
    if let Some(notice) = &state.notice {
        return (notice.clone(), loud);
    }
    let silent = state.shown.get(state.chosen()).and_then(|row| match row.id {
        super::rows::RowId::Node(index) => match &state.nodes.get(index)?.known {
            Known::Silent(why) => Some(why.clone()),
            _ => None,
        },
        _ => None,
    });
    if let Some(why) = silent {
        return (why, colours.of(Color::Red));
    }
    let filter = match state.filter.is_empty() {
        true => String::new(),
        false => format!("filter: {}  ", state.filter),
    };
    let text = format!("{filter}? help  Tab view  <> sort  r reverse  / filter  x end  q quit");
    (text, Style::new())
}

/// A column, where it stands, and its width.
struct Placed<'a> {
    index: usize,
    column: &'a Column,
    at: u16,
    width: u16,
}

/// Chooses the columns that fit, and their places. The texts share the room that is left, as far as
/// they need it.
fn place<'a>(view: View, rows: &[Row], width: u16) -> Vec<Placed<'a>> {
    let all = view.columns();
    let mut chosen: Vec<(usize, usize)> =
        all.iter().enumerate().map(|(index, column)| (index, column.width)).collect();
    let needs = |chosen: &[(usize, usize)]| {
        chosen.iter().map(|(_, width)| width + usize::from(GAP)).sum::<usize>().saturating_sub(1)
    };
    let rank = |index: usize| all.get(index).map_or(0, |it| it.rank);
    while needs(&chosen) > usize::from(width) {
        // Of equal ones the last goes first.
        let last = (0..).zip(&chosen).max_by_key(|(at, (index, _))| (rank(*index), *at));
        match last.map(|(at, (index, _)): (usize, _)| (at, rank(*index))) {
            Some((at, rank)) if rank > 0 => _ = chosen.remove(at),
            // What is always there is cut at the edge.
            _ => break,
        }
    }
    let longest = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.cells.get(index));
        cells.map(|cell| cell.shown().chars().count()).max().unwrap_or_default()
    };
    let mut left = usize::from(width).saturating_sub(needs(&chosen));
    for (index, column_width) in &mut chosen {
        if all.get(*index).is_some_and(|it| !it.is_number) {
            let more = longest(*index).saturating_sub(*column_width).min(left);
            *column_width += more;
            left -= more;
        }
    }
    let mut at = 0;
    let mut placed = Vec::new();
    for (index, width) in chosen {
        let Some(column) = all.get(index) else { continue };
        let width = u16::try_from(width).unwrap_or(u16::MAX);
        placed.push(Placed { index, column, at, width });
        at = at.saturating_add(width).saturating_add(GAP);
    }
    placed
}

struct Screen<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
}

impl Screen<'_> {
    fn table(&mut self, state: &State, colours: Colours) {
        let lines = self.area.height.saturating_sub(HEAD_LINES + FOOT_LINES);
        let chosen = state.chosen();
        // The chosen row is in the middle, except near the ends.
        let lines_count = usize::from(lines);
        let most = state.shown.len().saturating_sub(lines_count);
        let first = chosen.saturating_sub(lines_count / 2).min(most);
        let shown = state.shown.get(first..).unwrap_or_default();
        let shown = shown.get(..lines_count.min(shown.len())).unwrap_or_default();
        let columns = place(state.view, shown, self.area.width);
        if self.area.height > HEAD_LINES {
            self.titles(state, &columns, colours);
        }
        for ((line, row), index) in (HEAD_LINES..).zip(shown).zip(first..) {
            let style = match row.id {
                super::rows::RowId::Node(node) => {
                    state.nodes.get(node).map(|node| colours.of_state(node)).unwrap_or_default()
                }
                _ => Style::new(),
            };
            let bar = if index == chosen { Modifier::REVERSED } else { Modifier::empty() };
            let style = style.add_modifier(bar);
            self.buffer.set_style(Rect { y: line, height: 1, ..self.area }, style);
            for placed in &columns {
                let text = row.cells.get(placed.index).map_or("", Cell::shown);
                self.cell(placed, line, text, style);
            }
        }
        if state.shown.is_empty() && lines > 0 {
            let why = match (state.filter.is_empty(), state.view) {
                (false, _) => "nothing has this text (Esc shows all)",
                (true, View::Clients) => "no clients",
                (true, _) => "nothing yet",
            };
            self.line(HEAD_LINES, why, Style::new());
        }
    }

    fn titles(&mut self, state: &State, columns: &[Placed<'_>], colours: Colours) {
        let style = colours.of(Color::Cyan).add_modifier(Modifier::UNDERLINED);
        self.buffer.set_style(Rect { y: 1, height: 1, ..self.area }, style);
        for placed in columns {
            let is_order = state.order().column == placed.index;
            let bold = if is_order { Modifier::BOLD } else { Modifier::empty() };
            self.cell(placed, 1, placed.column.title, style.add_modifier(bold));
        }
    }

    fn cell(&mut self, placed: &Placed<'_>, line: u16, text: &str, style: Style) {
        let room = self.area.width.saturating_sub(placed.at).min(placed.width);
        // Figures have only letters and digits, each as wide as a cell.
        let length = u16::try_from(text.chars().count()).unwrap_or(u16::MAX);
        let blank = if placed.column.is_number { room.saturating_sub(length) } else { 0 };
        let (at, room) = (placed.at.saturating_add(blank), room.saturating_sub(blank));
        if room > 0 {
            self.buffer.set_stringn(at, line, text, usize::from(room), style);
        }
    }

    fn line(&mut self, line: u16, text: &str, style: Style) {
        if line < self.area.height {
            self.buffer.set_stringn(0, line, text, usize::from(self.area.width), style);
        }
    }
}

#[cfg(test)]
mod tests;
