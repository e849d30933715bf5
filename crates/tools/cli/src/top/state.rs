//! What the screen shows, and what a key does. Nothing here does I/O or has a clock.

use penstock_link::InstanceId;
use ratatui_crossterm::crossterm::event::KeyCode;

use super::ask::Said;
use super::look::{Look, short};
use super::rates::Now;
use super::rows::{Known, Node, Row, RowId, SessionId, View, has, rows, sort};

/// Longest filter in characters: more than any name that is shown.
const FILTER_CHARS_MAX: usize = 128;

/// Rows that a key for a page moves.
const PAGE_ROWS: usize = 10;

/// Time without an answer after which a node is shown as silent. Answers come once in a second, and
/// one over SSH needs a login, which takes a second or two.
pub const SILENT_AFTER_S: f64 = 5.0;

/// What keys do now.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Mode {
    #[default]
    Watch,
    /// Letters are added to the filter.
    Filter,
    /// The next key decides whether this session ends.
    Confirm {
        session: SessionId,
        /// The client and its daemon when the question was asked.
        asked: Asked,
        /// Name of the node.
        node: String,
    },
    Help,
}

/// What must be as before when the answer comes, because the number of a process can come again.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub client: String,
    /// Time for which the session has been there, and for which its daemon has run.
    seconds: [Option<f64>; 2],
    daemon: (Option<f64>, Option<InstanceId>),
}

impl Asked {
    /// Returns whether this is still the same session, as a later look finds it.
    fn is_still(&self, now: &Self) -> bool {
        let has_begun_anew = self.seconds.iter().zip(&now.seconds).any(|(then, now)| now < then);
        (&self.client, self.daemon) == (&now.client, now.daemon) && !has_begun_anew
    }
}

/// What the caller must do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Nothing,
    Quit,
    EndSession(SessionId),
}

/// The order of a view's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub column: usize,
    pub is_descending: bool,
}

#[derive(Clone, Debug)]
pub struct State {
    pub nodes: Vec<Node>,
    /// When each node was last heard, in seconds, and what it said.
    heard: Vec<Option<(f64, Look)>>,
    /// Which running daemon each node is.
    instances: Vec<Option<InstanceId>>,
    pub view: View,
    /// For each view.
    orders: [Order; View::ALL.len()],
    pub filter: String,
    pub mode: Mode,
    selected: Option<RowId>,
    /// What came of the last order.
    pub notice: Option<String>,
    /// The rows that are shown, in their order.
    pub shown: Vec<Row>,
}

impl State {
    /// Begins with nodes that have not answered.
    pub fn new(nodes: impl Iterator<Item = (String, String)>) -> Self {
        // A node that was found on the network has any name that it likes.
        let node = |(name, address): (String, String)| {
            let name = short(&name);
            Node { name, address, known: Known::NotYet, is_known_already: false }
        };
        let nodes: Vec<Node> = nodes.map(node).collect();
        let order = |column, is_descending| Order { column, is_descending };
        let mut state = Self {
            heard: vec![None; nodes.len()],
            instances: vec![None; nodes.len()],
            nodes,
            view: View::default(),
            // Nodes as they are configured are easiest to find, and clients by what they use.
            orders: [order(0, false), order(0, false), order(5, true)],
            filter: String::new(),
            mode: Mode::default(),
            selected: None,
            notice: None,
            shown: Vec::new(),
        };
        state.refresh();
        state
    }

    /// Takes the answer of a node, or why there is none, at a time in seconds.
    pub fn hear(&mut self, node: usize, said: Said, at: f64) {
        let (Some(known), Some(heard)) = (self.nodes.get_mut(node), self.heard.get_mut(node))
        else {
            return;
        };
        if let Some(instance) = self.instances.get_mut(node) {
            *instance = said.as_ref().ok().and_then(|it| it.1);
        }
        match said {
            Ok((look, _)) => {
                let now = match heard.as_ref() {
                    Some((_, before)) => Now::after(before, look.clone()),
                    None => Now::first(look.clone()),
                };
                *heard = Some((at, look));
                known.known = Known::Here(Box::new(now));
            }
            Err(why) => {
                *heard = None;
                known.known = Known::Silent(why);
            }
        }
    }

    /// Notes which nodes have not answered for a long time, and orders the rows anew.
    pub fn look_at_clock(&mut self, now: f64) {
        let instances = self.instances.iter_mut();
        for ((node, heard), instance) in self.nodes.iter_mut().zip(&mut self.heard).zip(instances) {
            let since = heard.as_ref().map_or(0.0, |(at, _)| *at);
            if now - since > SILENT_AFTER_S && !matches!(node.known, Known::Silent(_)) {
                // The same daemon may answer at another address.
                (*heard, *instance) = (None, None);
                node.known = Known::Silent(format!("no answer for {SILENT_AFTER_S} s"));
            }
        }
        self.refresh();
    }

    /// Makes the rows anew.
    fn refresh(&mut self) {
        let instances = &self.instances;
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let own = instances.get(index).copied().flatten();
            let before = instances.iter().take(index);
            node.is_known_already = own.is_some() && before.into_iter().any(|it| *it == own);
        }
        self.shown = rows(self.view, &self.nodes);
        self.shown.retain(|row| has(row, &self.filter));
        let Order { column, is_descending } = self.order();
        sort(&mut self.shown, column, is_descending);
        // The bar stays on its row, and at the top as long as nobody has moved it.
        if self.index().is_none() {
            self.selected = None;
        }
    }

    pub fn order(&self) -> Order {
        let [nodes, devices, clients] = self.orders;
        match self.view {
            View::Nodes => nodes,
            View::Devices => devices,
            View::Clients => clients,
        }
    }

    fn set_order(&mut self, order: Order) {
        let [nodes, devices, clients] = &mut self.orders;
        *match self.view {
            View::Nodes => nodes,
            View::Devices => devices,
            View::Clients => clients,
        } = order;
        self.refresh();
    }

    fn index(&self) -> Option<usize> {
        let selected = self.selected?;
        self.shown.iter().position(|row| row.id == selected)
    }

    /// Returns the index of the chosen row among those that are shown.
    pub fn chosen(&self) -> usize {
        self.index().unwrap_or(0)
    }

    /// Does what a key means. `is_control` says whether the control key was held.
    pub fn press(&mut self, key: KeyCode, is_control: bool) -> Act {
        if is_control {
            return if key == KeyCode::Char('c') { Act::Quit } else { Act::Nothing };
        }
        match std::mem::take(&mut self.mode) {
            Mode::Watch => self.press_watching(key),
            Mode::Filter => {
                self.press_filtering(key);
                Act::Nothing
            }
            Mode::Confirm { session, asked, .. } if matches!(key, KeyCode::Char('y' | 'Y')) => {
                if self.asked(session).is_some_and(|now| asked.is_still(&now)) {
                    return Act::EndSession(session);
                }
                self.notice = Some(format!("session {} is not there any more", session.worker));
                Act::Nothing
            }
            // Any other key goes back.
            Mode::Confirm { .. } | Mode::Help => Act::Nothing,
        }
    }

    fn press_watching(&mut self, key: KeyCode) -> Act {
        self.notice = None;
        let last = self.shown.len().saturating_sub(1);
        let at = self.chosen();
        match key {
            KeyCode::Char('q') => return Act::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('x') | KeyCode::Delete => self.ask(),
            KeyCode::Esc => self.set_filter(String::new()),
            KeyCode::Up | KeyCode::Char('k') => self.choose(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose((at + 1).min(last)),
            KeyCode::PageUp => self.choose(at.saturating_sub(PAGE_ROWS)),
            KeyCode::PageDown => self.choose((at + PAGE_ROWS).min(last)),
            KeyCode::Home => self.choose(0),
            KeyCode::End => self.choose(last),
            KeyCode::Left | KeyCode::Char('<') => self.sort_by(false),
            KeyCode::Right | KeyCode::Char('>') => self.sort_by(true),
            KeyCode::Char('r') => {
                let Order { column, is_descending } = self.order();
                self.set_order(Order { column, is_descending: !is_descending });
            }
            KeyCode::Tab => self.show(self.beside(1)),
            KeyCode::BackTab => self.show(self.beside(View::ALL.len() - 1)),
            KeyCode::Char('1') => self.show(View::Nodes),
            KeyCode::Char('2') => self.show(View::Devices),
            KeyCode::Char('3') => self.show(View::Clients),
            _ => {}
        }
        Act::Nothing
    }

    fn press_filtering(&mut self, key: KeyCode) {
        let mut filter = self.filter.clone();
        match key {
            KeyCode::Enter => return,
            KeyCode::Esc => return self.set_filter(String::new()),
            KeyCode::Backspace => _ = filter.pop(),
            KeyCode::Char(letter)
                if !letter.is_control() && filter.chars().count() < FILTER_CHARS_MAX =>
            {
                filter.push(letter);
            }
            _ => {}
        }
        self.mode = Mode::Filter;
        self.set_filter(filter);
    }

    fn set_filter(&mut self, filter: String) {
        self.filter = filter;
        self.refresh();
    }

    /// Asks whether the chosen session shall end.
    fn ask(&mut self) {
        let Some(RowId::Session(session)) = self.shown.get(self.chosen()).map(|row| row.id) else {
            self.notice = Some("choose a client first: key 3, then the arrows".to_owned());
            return;
        };
        let node = self.nodes.get(session.node).map(|node| node.name.clone()).unwrap_or_default();
        if let Some(asked) = self.asked(session) {
            self.mode = Mode::Confirm { session, asked, node };
        }
    }

    /// Returns what a question about this session is about; `None` if nobody has the session.
    fn asked(&self, session: SessionId) -> Option<Asked> {
        let look = &self.nodes.get(session.node)?.now()?.look;
        let of = look.sessions.iter().find(|it| it.worker == session.worker)?;
        let instance = self.instances.get(session.node).copied().flatten();
        let (seconds, daemon) = ([of.seconds, look.uptime_s], (look.pid, instance));
        Some(Asked { client: of.client.clone(), seconds, daemon })
    }

    fn choose(&mut self, index: usize) {
        self.selected = self.shown.get(index).map(|row| row.id);
    }

    /// Sorts by the column beside the present one. Numbers begin with the largest.
    fn sort_by(&mut self, is_next: bool) {
        let columns = self.view.columns();
        let step = if is_next { 1 } else { columns.len() - 1 };
        let column = (self.order().column + step) % columns.len();
        let is_descending = columns.get(column).is_some_and(|it| it.is_number);
        self.set_order(Order { column, is_descending });
    }

    fn beside(&self, step: usize) -> View {
        let at = View::ALL.iter().position(|view| *view == self.view).unwrap_or_default();
        View::ALL.iter().cycle().nth(at + step).copied().unwrap_or_default()
    }

    fn show(&mut self, view: View) {
        (self.view, self.selected) = (view, None);
        self.refresh();
    }
}

#[cfg(test)]
mod tests;
