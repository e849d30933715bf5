use super::super::look::{Session, Totals};
use super::*;

fn look(sessions: &[(u32, &str, f64)]) -> Look {
    let session = |(worker, client, figure): &(u32, &str, f64)| Session {
        worker: *worker,
        client: (*client).to_owned(),
        totals: Totals { in_use_seconds: Some(*figure), ..Totals::default() },
        ..Session::default()
    };
    let sessions = sessions.iter().map(session).collect();
    Look { pid: Some(1.0), uptime_s: Some(1.0), sessions, ..Look::default() }
}

/// As `look`, at this time of the daemon.
fn later(uptime_ms: f64, sessions: &[(u32, &str, f64)]) -> Look {
    Look { uptime_ms: Some(uptime_ms), ..look(sessions) }
}

fn state(names: &[&str]) -> State {
    State::new(names.iter().map(|name| ((*name).to_owned(), format!("unix:/{name}"))))
}

/// Two nodes with three clients, of which `b` uses its devices the most.
fn busy() -> State {
    let mut state = state(&["n", "m"]);
    state.hear(0, Ok((later(1e3, &[(10, "a", 0.0), (11, "b", 0.0)]), None)), 1.0);
    state.hear(1, Ok((later(1e3, &[(10, "c", 0.0)]), None)), 1.0);
    state.hear(0, Ok((later(2e3, &[(10, "a", 0.5), (11, "b", 0.9)]), None)), 2.0);
    state.hear(1, Ok((later(2e3, &[(10, "c", 0.7)]), None)), 2.0);
    state.look_at_clock(2.0);
    state
}

fn keys(state: &mut State, keys: &str) -> Act {
    let press = |_: Act, key: char| match key {
        '\n' => state.press(KeyCode::Enter, false),
        '\u{8}' => state.press(KeyCode::Backspace, false),
        '\u{1b}' => state.press(KeyCode::Esc, false),
        key => state.press(KeyCode::Char(key), false),
    };
    keys.chars().fold(Act::Nothing, press)
}

fn clients(state: &State) -> Vec<String> {
    state.shown.iter().map(|row| row.cells[2].shown().to_owned()).collect()
}

#[test]
fn clients_are_sorted_by_their_use_and_the_bar_stays_on_its_row() {
    let mut state = busy();
    keys(&mut state, "3");
    assert_eq!(clients(&state), ["b", "c", "a"]);
    keys(&mut state, "j");
    assert_eq!(state.chosen(), 1);
    state.hear(1, Ok((later(3e3, &[(10, "c", 2.7)]), None)), 3.0);
    state.look_at_clock(3.0);
    assert_eq!((clients(&state), state.chosen()), (vec!["c".into(), "b".into(), "a".into()], 0));
    keys(&mut state, "r");
    assert_eq!(clients(&state), ["a", "b", "c"]);
    assert_eq!(state.chosen(), 2);
    // By the session, and backwards over the edge.
    for _ in 0..5 {
        state.press(KeyCode::Left, false);
    }
    let order = state.order();
    assert_eq!((order.column, order.is_descending), (0, true), "numbers begin with the largest");
    assert_eq!(clients(&state)[0], "b");
    state.press(KeyCode::Left, false);
    assert_eq!(state.order().column, View::Clients.columns().len() - 1);
    keys(&mut state, ">>>");
    assert_eq!((state.order().column, state.order().is_descending), (2, false));
}

#[test]
fn the_bar_ends_at_both_ends() {
    let mut state = busy();
    keys(&mut state, "3");
    for (key, at) in [
        (KeyCode::Up, 0),
        (KeyCode::PageDown, 2),
        (KeyCode::Down, 2),
        (KeyCode::PageUp, 0),
        (KeyCode::End, 2),
        (KeyCode::Home, 0),
        (KeyCode::Down, 1),
    ] {
        state.press(key, false);
        assert_eq!(state.chosen(), at, "{key:?}");
    }
    // The chosen client leaves.
    state.hear(1, Ok((look(&[]), None)), 3.0);
    state.look_at_clock(3.0);
    assert_eq!((state.chosen(), state.shown.len()), (0, 2));
    let mut none = self::state(&[]);
    for key in [KeyCode::Up, KeyCode::Down, KeyCode::End, KeyCode::PageDown, KeyCode::Char('x')] {
        assert_eq!(none.press(key, false), Act::Nothing);
    }
}

#[test]
fn views_follow_each_other() {
    let mut state = busy();
    let mut views = Vec::new();
    for key in [KeyCode::Tab, KeyCode::Tab, KeyCode::Tab, KeyCode::BackTab, KeyCode::Char('2')] {
        state.press(key, false);
        views.push(state.view);
    }
    use View::{Clients, Devices, Nodes};
    assert_eq!(views, [Devices, Clients, Nodes, Clients, Devices]);
}

#[test]
fn a_filter_is_typed_kept_and_ended() {
    let mut state = busy();
    keys(&mut state, "3/b");
    assert_eq!((clients(&state), &state.mode), (vec!["b".to_owned()], &Mode::Filter));
    // Letters of commands are letters here.
    keys(&mut state, "q");
    assert_eq!((state.shown.len(), state.filter.as_str()), (0, "bq"));
    keys(&mut state, "\u{8}\n");
    assert_eq!((state.filter.as_str(), &state.mode), ("b", &Mode::Watch));
    keys(&mut state, "\u{1b}");
    assert_eq!(state.shown.len(), 3);
    keys(&mut state, "/");
    keys(&mut state, &"y".repeat(2 * FILTER_CHARS_MAX));
    assert_eq!(state.filter.len(), FILTER_CHARS_MAX);
    keys(&mut state, "\u{1b}");
    assert_eq!((state.filter.as_str(), &state.mode), ("", &Mode::Watch));
}

#[test]
fn a_session_ends_only_after_a_yes() {
    let mut state = busy();
    assert_eq!(keys(&mut state, "x"), Act::Nothing);
    assert!(state.notice.take().is_some_and(|it| it.contains("choose a client")));
    keys(&mut state, "3x");
    let session = SessionId { node: 0, worker: 11 };
    let asked = state.mode.clone();
    let is_right = |it: &Mode| match it {
        Mode::Confirm { session: of, asked, node } => {
            *of == session && asked.client == "b" && node == "n"
        }
        _ => false,
    };
    assert!(is_right(&asked), "{asked:?}");
    for no in ["n", "q", "x", "\n", "\u{1b}"] {
        state.mode = asked.clone();
        assert_eq!((keys(&mut state, no), &state.mode), (Act::Nothing, &Mode::Watch), "{no:?}");
    }
    // The rows change between the question and the answer.
    keys(&mut state, "x");
    state.hear(0, Ok((later(3e3, &[(12, "d", 9.0), (11, "b", 0.9)]), None)), 3.0);
    state.look_at_clock(3.0);
    assert_eq!(keys(&mut state, "y"), Act::EndSession(session));
    assert_eq!(keys(&mut state, "y"), Act::Nothing);
    // The other node has a session of the same number.
    keys(&mut state, "/c\n");
    assert_eq!(keys(&mut state, "xy"), Act::EndSession(SessionId { node: 1, worker: 10 }));
}

#[test]
fn a_yes_is_only_for_the_session_of_the_question() {
    let instance = || Some(penstock_link::Instance::create().unwrap().id());
    let session = || look(&[(11, "b", 0.0)]);
    let own = instance();
    let with = |seconds: f64, of: Look| {
        let sessions = of.sessions.iter().cloned();
        let sessions = sessions.map(|it| Session { seconds: Some(seconds), ..it }).collect();
        Look { sessions, ..of }
    };
    let before = || Ok((with(5.0, session()), own));
    let answers: [(Said, bool); 8] = [
        (before(), true),
        (Ok((with(6.0, Look { uptime_s: Some(2.0), ..session() }), own)), true),
        // Another client, another session of it, and another daemon.
        (Ok((with(5.0, look(&[(11, "c", 0.0)])), own)), false),
        (Ok((with(1.0, session()), own)), false),
        (Ok((with(5.0, session()), instance())), false),
        (Ok((with(5.0, Look { pid: Some(2.0), ..session() }), own)), false),
        (Ok((with(5.0, Look { uptime_s: Some(0.0), ..session() }), own)), false),
        (Err("no daemon".to_owned()), false),
    ];
    for (at, (answer, is_same)) in answers.into_iter().enumerate() {
        let mut state = state(&["n"]);
        state.hear(0, before(), 1.0);
        state.look_at_clock(1.0);
        keys(&mut state, "3x");
        state.hear(0, answer, 2.0);
        state.look_at_clock(2.0);
        let ends = keys(&mut state, "y") == Act::EndSession(SessionId { node: 0, worker: 11 });
        assert_eq!((ends, state.notice.is_none()), (is_same, is_same), "{at}");
    }
}

#[test]
fn q_and_control_c_end_it_where_they_are_no_letters() {
    let mut state = busy();
    assert_eq!(keys(&mut state, "?q"), Act::Nothing, "it ends the help");
    assert_eq!(keys(&mut state, "q"), Act::Quit);
    for before in ["", "?", "/", "3x"] {
        let mut state = busy();
        keys(&mut state, before);
        assert_eq!(state.press(KeyCode::Char('c'), true), Act::Quit, "{before:?}");
        assert_eq!(state.press(KeyCode::Char('q'), true), Act::Nothing);
    }
}

#[test]
fn a_node_that_falls_silent_has_no_old_figures() {
    let mut state = state(&["n", "m", "o"]);
    state.hear(0, Ok((look(&[(10, "a", 1.0)]), None)), 1.0);
    state.hear(1, Err("no daemon".to_owned()), 1.0);
    state.look_at_clock(SILENT_AFTER_S);
    let states = |state: &State| state.nodes.iter().map(Node::state).collect::<Vec<_>>();
    assert_eq!(states(&state), ["up", "silent", "asked"]);
    state.look_at_clock(SILENT_AFTER_S + 0.5);
    assert_eq!(states(&state), ["up", "silent", "silent"]);
    state.look_at_clock(SILENT_AFTER_S + 1.5);
    assert_eq!(states(&state), ["silent"; 3]);
    // What it has done meanwhile is no rate of the last second.
    state.hear(0, Ok((look(&[(10, "a", 9.0)]), None)), 60.0);
    state.look_at_clock(60.0);
    let now = state.nodes[0].now().unwrap();
    assert_eq!(now.sessions[0].rates.in_use, None);
    state.hear(9, Err(String::new()), 61.0);
}

#[test]
fn a_daemon_with_two_addresses_is_shown_once() {
    let instance = || Some(penstock_link::Instance::create().unwrap().id());
    let mut state = state(&["n", "m", "o"]);
    let (one, other) = (instance(), instance());
    for (node, instance) in [(0, one), (1, one), (2, other)] {
        state.hear(node, Ok((look(&[(10, "a", 0.0)]), instance)), 1.0);
    }
    state.look_at_clock(1.0);
    let names: Vec<_> = state.shown.iter().map(|row| row.cells[0].shown()).collect();
    assert_eq!(names, ["n", "o"]);
    state.hear(0, Err("gone".to_owned()), 2.0);
    state.look_at_clock(2.0);
    assert_eq!(state.shown.len(), 3);
}

#[test]
fn a_daemon_is_shown_at_its_second_address_if_the_first_one_falls_silent() {
    let one = Some(penstock_link::Instance::create().unwrap().id());
    let mut state = state(&["n", "m"]);
    state.hear(0, Ok((look(&[]), one)), 1.0);
    for at in [1.0, 3.0 + SILENT_AFTER_S] {
        state.hear(1, Ok((look(&[]), one)), at);
        state.look_at_clock(at);
    }
    let names = state.shown.iter().map(|row| row.cells[0].shown());
    assert_eq!(names.collect::<Vec<_>>(), ["m", "n"]);
    assert_eq!(state.nodes.iter().map(Node::state).collect::<Vec<_>>(), ["silent", "up"]);
}
