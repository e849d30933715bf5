//! The rows and columns of each view: what stands in which cell, and in which order the rows are.

use std::cmp::Ordering;

use super::rates::{Now, Rates};
use crate::status::duration;
use crate::table;

/// What is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    #[default]
    Nodes,
    Devices,
    Clients,
}

impl View {
    pub const ALL: [Self; 3] = [Self::Nodes, Self::Devices, Self::Clients];

    /// Returns the columns, in their order.
    pub fn columns(self) -> &'static [Column] {
        match self {
            Self::Nodes => NODES,
            Self::Devices => DEVICES,
            Self::Clients => CLIENTS,
        }
    }
}

/// A column of a view.
#[derive(Debug)]
pub struct Column {
    pub title: &'static str,
    pub is_number: bool,
    /// Characters that it takes at least.
    pub width: usize,
    /// The columns with the largest numbers make room in a narrow terminal.
    pub rank: u8,
}

const fn text(title: &'static str, width: usize, rank: u8) -> Column {
    Column { title, is_number: false, width, rank }
}

const fn number(title: &'static str, width: usize, rank: u8) -> Column {
    Column { title, is_number: true, width, rank }
}

const NODES: &[Column] = &[
    text("NODE", 10, 0),
    text("STATE", 8, 0),
    number("UP", 8, 4),
    number("CLIENTS", 7, 1),
    number("WAIT", 4, 1),
    number("CORES", 5, 2),
    number("USE", 5, 1),
    number("HELD", 9, 3),
    number("LAUNCH/S", 8, 1),
    number("MOVED/S", 9, 1),
    number("WATT", 6, 2),
];

const DEVICES: &[Column] =
    &[text("NODE", 12, 0), text("DEVICE", 20, 0), number("USE", 5, 0), number("MEMORY", 9, 1)];

const CLIENTS: &[Column] = &[
    number("SESSION", 7, 0),
    text("NODE", 10, 0),
    text("CLIENT", 16, 0),
    number("SINCE", 8, 4),
    number("CORES", 5, 2),
    number("USE", 5, 1),
    number("HELD", 9, 3),
    number("LAUNCH/S", 8, 1),
    number("MOVED/S", 9, 1),
    number("WATT", 6, 5),
];

/// What a cell shows, and what it is sorted by.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(String),
    Number {
        shown: String,
        value: f64,
    },
    /// Sorted behind all others.
    Unknown,
}

impl Cell {
    pub fn shown(&self) -> &str {
        match self {
            Self::Text(shown) | Self::Number { shown, .. } => shown,
            Self::Unknown => "-",
        }
    }

    fn number(value: Option<f64>, show: impl FnOnce(f64) -> String) -> Self {
        value.map_or(Self::Unknown, |value| Self::Number { shown: show(value), value })
    }
}

/// Which session a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId {
    /// Index of the node in the pool.
    pub node: usize,
    pub worker: u32,
}

/// A row, and what it stays while its figures change.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub id: RowId,
    pub cells: Vec<Cell>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowId {
    Node(usize),
    Device { node: usize, index: usize },
    Session(SessionId),
}

/// What is known of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// It was asked and has not answered yet.
    NotYet,
    /// It gives no answer, for this reason.
    Silent(String),
    Here(Box<Now>),
}

/// A node of the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name in the configuration.
    pub name: String,
    pub address: String,
    pub known: Known,
    /// Whether a node before it is the same daemon at another address.
    pub is_known_already: bool,
}

impl Node {
    /// Returns the node, if it answers.
    pub fn now(&self) -> Option<&Now> {
        match &self.known {
            Known::Here(now) => Some(now),
            _ => None,
        }
    }

    pub fn state(&self) -> &'static str {
        match &self.known {
            Known::NotYet => "asked",
            Known::Silent(_) => "silent",
            Known::Here(now) if now.look.is_draining => "draining",
            Known::Here(now) if now.look.has_problem => "problem",
            Known::Here(_) => "up",
        }
    }
}

/// Returns the rows of a view, in the order of the nodes.
pub fn rows(view: View, nodes: &[Node]) -> Vec<Row> {
    let nodes = nodes.iter().enumerate().filter(|(_, node)| !node.is_known_already);
    match view {
        View::Nodes => nodes.map(|(index, node)| of_node(index, node)).collect(),
        View::Devices => nodes.flat_map(|(index, node)| of_devices(index, node)).collect(),
        View::Clients => nodes.flat_map(|(index, node)| of_clients(index, node)).collect(),
    }
}

/// Sorts rows by a column. Rows that are equal there keep their order.
pub fn sort(rows: &mut [Row], column: usize, is_descending: bool) {
    let by = |a: &Row, b: &Row| match (a.cells.get(column), b.cells.get(column)) {
        (Some(Cell::Number { value: a, .. }), Some(Cell::Number { value: b, .. })) => {
            turned(a.total_cmp(b), is_descending)
        }
        (Some(Cell::Text(a)), Some(Cell::Text(b))) => turned(a.cmp(b), is_descending),
        (a, b) => (a.is_none_or(is_unknown)).cmp(&b.is_none_or(is_unknown)),
    };
    rows.sort_by(by);
}

fn is_unknown(cell: &Cell) -> bool {
    *cell == Cell::Unknown
}

fn turned(ordering: Ordering, is_descending: bool) -> Ordering {
    if is_descending { ordering.reverse() } else { ordering }
}

/// Returns whether any cell has this text. The case of letters does not matter.
pub fn has(row: &Row, filter: &str) -> bool {
    let filter = filter.to_lowercase();
    row.cells.iter().any(|cell| cell.shown().to_lowercase().contains(&filter))
}

fn of_node(index: usize, node: &Node) -> Row {
    let text = |text: &str| Cell::Text(text.to_owned());
    let mut cells = vec![text(&node.name), text(node.state())];
    if let Some(Now { look, rates, watts, .. }) = node.now() {
        #[expect(clippy::cast_precision_loss, reason = "a node has at most 1,024 of them")]
        let sessions = look.sessions.len() as f64;
        cells.push(Cell::number(look.uptime_s, seconds));
        cells.push(Cell::number(Some(sessions), whole));
        cells.push(Cell::number(look.waiting, whole));
        cells.extend(figures(rates, look.held_bytes, *watts));
    }
    filled(RowId::Node(index), cells, View::Nodes)
}

fn of_devices(node: usize, of: &Node) -> Vec<Row> {
    let Some(now) = of.now() else { return Vec::new() };
    let devices = now.look.devices.iter().zip(&now.in_use).enumerate();
    let row = |(index, (device, in_use)): (usize, (&super::look::Device, &Option<f64>))| Row {
        id: RowId::Device { node, index },
        cells: vec![
            Cell::Text(of.name.clone()),
            Cell::Text(device.name.clone()),
            Cell::number(*in_use, percent),
            Cell::number(device.memory_bytes, bytes),
        ],
    };
    devices.map(row).collect()
}

fn of_clients(node: usize, of: &Node) -> Vec<Row> {
    let Some(now) = of.now() else { return Vec::new() };
    let sessions = now.look.sessions.iter().zip(&now.sessions);
    let row = |(session, of_session): (&super::look::Session, &super::rates::SessionNow)| {
        let worker = session.worker;
        let mut cells = vec![
            Cell::number(Some(f64::from(worker)), whole),
            Cell::Text(of.name.clone()),
            Cell::Text(session.client.clone()),
            Cell::number(session.seconds, seconds),
        ];
        cells.extend(figures(&of_session.rates, session.held_bytes, of_session.watts));
        filled(RowId::Session(SessionId { node, worker }), cells, View::Clients)
    };
    sessions.map(row).collect()
}

/// Returns the cells that nodes and clients have.
fn figures(rates: &Rates, held: Option<f64>, watts: Option<f64>) -> [Cell; 6] {
    [
        Cell::number(rates.cores, |cores| format!("{cores:.1}")),
        Cell::number(rates.in_use, percent),
        Cell::number(held, bytes),
        Cell::number(rates.launches, count),
        Cell::number(rates.moved_bytes, bytes),
        Cell::number(watts, |watts| format!("{watts:.0}")),
    ]
}

fn filled(id: RowId, mut cells: Vec<Cell>, view: View) -> Row {
    cells.resize(view.columns().len(), Cell::Unknown);
    Row { id, cells }
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn percent(value: f64) -> String {
    format!("{:.0}%", value * 100.0)
}

/// Shows a rate of events in at most seven characters.
pub fn count(value: f64) -> String {
    match value {
        0.0..10_000.0 => format!("{value:.0}"),
        0.0..10_000_000.0 => format!("{:.0}k", value / 1e3),
        0.0..10_000_000_000.0 => format!("{:.0}M", value / 1e6),
        _ => format!("{:.0}G", value / 1e9),
    }
}

/// Returns the whole part. A figure is at least 0 and at most 2^53, and its rate is at most 1,000
/// times as much.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates"
)]
fn whole_number(value: f64) -> u64 {
    value as u64
}

pub fn bytes(value: f64) -> String {
    table::bytes(whole_number(value))
}

fn seconds(value: f64) -> String {
    duration(whole_number(value))
}

#[cfg(test)]
mod tests {
    use super::super::look::{Device, Look, Session};
    use super::*;

    fn here(name: &str, sessions: Vec<Session>) -> Node {
        let device = Device {
            name: "card".to_owned(),
            memory_bytes: Some(8.0 * 1024.0),
            in_use_seconds: None,
        };
        let look = Look {
            uptime_s: Some(61.0),
            waiting: Some(2.0),
            held_bytes: Some(1536.0),
            devices: vec![device],
            sessions,
            ..Look::default()
        };
        let mut now = Now::first(look);
        now.rates.in_use = Some(1.5);
        now.rates.launches = Some(12_345.0);
        now.watts = Some(250.4);
        let known = Known::Here(Box::new(now));
        let (name, address) = (name.to_owned(), format!("tcp:{name}"));
        Node { name, address, known, is_known_already: false }
    }

    fn silent(name: &str) -> Node {
        let known = Known::Silent("why".to_owned());
        let (name, address) = (name.to_owned(), name.to_owned());
        Node { name, address, known, is_known_already: false }
    }

    fn session(worker: u32, client: &str) -> Session {
        Session { worker, client: client.to_owned(), ..Session::default() }
    }

    fn shown(row: &Row) -> Vec<&str> {
        row.cells.iter().map(Cell::shown).collect()
    }

    #[test]
    fn each_view_has_a_cell_for_each_column() {
        let nodes = [here("a", vec![session(7, "matmul")]), silent("b")];
        for (view, count) in [(View::Nodes, 2), (View::Devices, 1), (View::Clients, 1)] {
            let rows = rows(view, &nodes);
            assert_eq!(rows.len(), count, "{view:?}");
            assert!(rows.iter().all(|row| row.cells.len() == view.columns().len()), "{view:?}");
            for (cell, column) in rows[0].cells.iter().zip(view.columns()) {
                assert_eq!(matches!(cell, Cell::Text(_)), !column.is_number, "{}", column.title);
            }
        }
        let nodes = rows(View::Nodes, &nodes);
        let told = ["a", "up", "1 min", "1", "2", "-", "150%", "1.5 KiB", "12k", "-", "250"];
        assert_eq!(shown(&nodes[0]), told);
        assert_eq!(shown(&nodes[1])[..3], ["b", "silent", "-"]);
    }

    #[test]
    fn rows_are_sorted_by_what_they_mean() {
        let sessions = vec![session(9, "b"), session(10, "a"), session(2, "c")];
        let mut rows = rows(View::Clients, &[here("n", sessions)]);
        let order = |rows: &[Row]| -> Vec<String> {
            rows.iter().map(|row| row.cells[0].shown().to_owned()).collect()
        };
        sort(&mut rows, 0, false);
        assert_eq!(order(&rows), ["2", "9", "10"], "numbers, not texts");
        sort(&mut rows, 0, true);
        assert_eq!(order(&rows), ["10", "9", "2"]);
        sort(&mut rows, 2, false);
        assert_eq!(order(&rows), ["10", "9", "2"]);
        rows[0].cells[4] = Cell::Unknown;
        for (row, value) in rows.iter_mut().skip(1).zip([1.0, 2.0]) {
            row.cells[4] = Cell::Number { shown: String::new(), value };
        }
        for is_descending in [false, true] {
            sort(&mut rows, 4, is_descending);
            assert_eq!(rows[2].cells[4], Cell::Unknown, "it is last in both orders");
        }
        sort(&mut rows, 99, true);
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn a_filter_finds_what_is_shown() {
        let rows = rows(View::Clients, &[here("gpu01", vec![session(24_010, "MatMul of ada")])]);
        let finds = |filter: &str| has(&rows[0], filter);
        assert!(finds("") && finds("matmul") && finds("ADA") && finds("gpu0") && finds("2401"));
        assert!(!finds("gpu02"));
    }

    #[test]
    fn rates_are_short() {
        for (value, text) in [
            (0.4, "0"),
            (9_999.0, "9999"),
            (10_000.0, "10k"),
            (1.5e9, "1500M"),
            (9.0e15, "9000000G"),
        ] {
            assert_eq!(count(value), text);
        }
        assert_eq!((bytes(1e300), seconds(1e300).is_empty()), ("16383.9 PiB".to_owned(), false));
    }
}
