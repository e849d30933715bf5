use penstock_link::InstanceId;
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::crossterm::event::KeyCode;

use super::super::look::{Device, Look, Session};
use super::*;

const SIZES: [(u16, u16); 7] = [(80, 24), (200, 60), (20, 5), (1, 1), (3, 2), (10, 3), (300, 1)];

fn look(name: &str, sessions: u32) -> Look {
    let session = |worker| Session {
        worker: 24_000 + worker,
        client: format!("{name} ({worker}) of ada"),
        seconds: Some(3_700.0),
        held_bytes: Some(1e9),
        ..Session::default()
    };
    Look {
        host: name.to_owned(),
        pid: Some(7.0),
        uptime_s: Some(90_000.0),
        waiting: Some(2.0),
        held_bytes: Some(3e9),
        devices: vec![Device {
            name: name.to_owned(),
            memory_bytes: Some(8e9),
            in_use_seconds: Some(1.0),
        }],
        sessions: (0..sessions).map(session).collect(),
        ..Look::default()
    }
}

fn none() -> Option<InstanceId> {
    None
}

fn state() -> State {
    let names = ["gpu01", "gpu02", "gpu03"].map(|name| (name.to_owned(), format!("tcp:{name}")));
    let mut state = State::new(names.into_iter());
    state.hear(0, Ok((look("matmul", 40), none())), 1.0);
    state.hear(1, Err("no daemon listens there".to_owned()), 1.0);
    let drained = Look { is_draining: true, ..look("lammps", 0) };
    state.hear(2, Ok((drained, none())), 1.0);
    state.look_at_clock(1.0);
    state
}

fn buffer(state: &State, (width, height): (u16, u16), colours: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(state, Colours::new(colours), frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(state: &State, size: (u16, u16)) -> Vec<String> {
    let buffer = buffer(state, size, false);
    let symbols: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    let rows = symbols.chunks(usize::from(size.0).max(1));
    rows.map(|row| row.concat().trim_end().to_owned()).collect()
}

#[test]
fn nodes_fit_a_terminal_of_80_columns() {
    let lines = lines(&state(), (80, 24));
    let wanted = [
        "penstock top  nodes 2/3  clients 40  waiting 4  - launches/s  -/s",
        "NODE         STATE    CLIENTS WAIT CORES   USE      HELD LAUNCH/S   MOVED/S WATT",
        "gpu01        up            40    2     -     -   2.7 GiB        -         -    -",
        "gpu02        silent         -    -     -     -         -        -         -    -",
        "gpu03        draining       0    2     -     -   2.7 GiB        -         -    -",
    ];
    let cut = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    for (line, wanted) in lines.iter().zip(wanted) {
        assert_eq!(cut(line), cut(wanted), "{lines:#?}");
    }
    assert_eq!(lines[23], "? help  Tab view  <> sort  r reverse  / filter  x end  q quit");
}

#[test]
fn a_wide_terminal_has_all_columns_and_whole_names() {
    let mut state = state();
    let wide = lines(&state, (200, 60));
    for column in View::Nodes.columns() {
        assert!(wide[1].contains(column.title), "{}", wide[1]);
    }
    assert!(wide[2].contains("1 d 1 h"), "{}", wide[2]);
    state.press(KeyCode::Char('3'), false);
    let wide = lines(&state, (200, 60));
    assert!(wide[1].contains("SINCE") && wide[2].contains("matmul (0) of ada"), "{wide:#?}");
    let shown = wide.iter().filter(|line| line.contains("matmul (")).count();
    assert_eq!(shown, 40);
}

#[test]
fn a_small_terminal_shows_what_fits_and_the_chosen_row() {
    let mut state = state();
    state.press(KeyCode::Char('3'), false);
    let small = lines(&state, (20, 5));
    assert_eq!(small[1], "SESSION NODE       C");
    assert!(small[2].starts_with("  24000 gpu01"), "{small:#?}");
    state.press(KeyCode::End, false);
    let small = lines(&state, (20, 5));
    assert!(small[3].starts_with("  24039 gpu01"), "{small:#?}");
    for _ in 0..20 {
        state.press(KeyCode::Up, false);
    }
    let chosen = buffer(&state, (80, 24), false);
    let row = (0..24).find(|y| chosen[(0, *y)].modifier.contains(Modifier::REVERSED)).unwrap();
    let text: String = (0..80).map(|x| chosen[(x, row)].symbol()).collect();
    assert!(text.contains("  24019 gpu01"), "{text}");
}

#[test]
fn every_mode_is_drawn_at_every_size() {
    for view in ['1', '2', '3'] {
        for keys in ["", "?", "/zz", "x"] {
            let mut state = state();
            state.press(KeyCode::Char(view), false);
            for key in keys.chars() {
                state.press(KeyCode::Char(key), false);
            }
            for size in SIZES {
                let lines = lines(&state, size);
                assert_eq!(lines.len(), usize::from(size.1), "{view} {keys} {size:?}");
            }
        }
    }
    let mut state = state();
    for key in "3x".chars() {
        state.press(KeyCode::Char(key), false);
    }
    let lines = lines(&state, (80, 24));
    assert_eq!(lines[23], "y ends session 24000 of matmul (0) of ada on node gpu01; n does not");
    state.mode = Mode::Help;
    let lines = self::lines(&state, (80, 24));
    assert!(lines.iter().any(|line| line.contains("kernels that clients have launched")));
    assert!(HELP.iter().all(|line| line.len() <= 80), "they fit 80 columns");
    let mut nobody = State::new(std::iter::empty());
    nobody.press(KeyCode::Char('3'), false);
    assert_eq!(self::lines(&nobody, (80, 24))[2], "no clients");
}

#[test]
fn a_silent_node_says_why_when_it_is_chosen() {
    let mut state = state();
    state.press(KeyCode::Down, false);
    assert_eq!(lines(&state, (80, 24))[23], "no daemon listens there");
}

#[test]
fn without_colours_no_cell_has_one() {
    let state = state();
    let has_colour = |colours| {
        let buffer = buffer(&state, (80, 24), colours);
        buffer.content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(has_colour(true) && !has_colour(false));
}

#[test]
fn names_of_a_hostile_node_stay_in_their_cells() {
    let wide = "\u{4f60}".repeat(100);
    for name in
        ["\u{1b}[2J\u{1b}]0;x\u{7}", wide.as_str(), "\u{202e}\u{200b}\u{61c}e\u{301}\u{1f469}"]
    {
        let mut state = State::new(std::iter::once((name.to_owned(), name.to_owned())));
        let status = serde_json::json!({
            "host": name, "devices": [name], "sessions": [{ "worker": 1, "client": name }],
        });
        let look = Look::read(&serde_json::from_value(status).unwrap());
        state.hear(0, Ok((look, none())), 1.0);
        for view in ['1', '2', '3'] {
            state.press(KeyCode::Char(view), false);
            state.look_at_clock(1.0);
            for size in SIZES {
                let buffer = buffer(&state, size, true);
                let symbols = buffer.content().iter().map(|cell| cell.symbol());
                for symbol in symbols {
                    assert!(!symbol.contains(char::is_control), "{name:?} {symbol:?}");
                }
            }
            let line = &lines(&state, (80, 24))[2];
            assert!(!line.contains(['\u{202e}', '\u{200b}', '\u{61c}']), "{line:?}");
        }
    }
}
