//! The loop of `penstock top`: one thread shows, and others ask, read keys and wait for signals.

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use penstock_link::LinkError;
use penstock_process::variable;
use penstock_wire::administration::Act as Order;
use ratatui_crossterm::crossterm::event::{self, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::REFRESH;
use super::ask::{Asker, Said};
use super::draw::{Colours, draw};
use super::rows::SessionId;
use super::screen::{self, Screen};
use super::state::{Act, State};
use crate::administer;
use crate::failure::Failure;

/// Time for which answers are gathered before they are shown.
const GATHER: Duration = Duration::from_millis(150);

/// Time that the loop has to end after a signal. It needs some ms to write a screen. A terminal
/// that takes nothing would hold it up for ever.
const SIGNAL_MAX: Duration = Duration::from_secs(2);

/// What the loop hears of.
enum Event {
    Key {
        key: KeyCode,
        is_control: bool,
    },
    Resized,
    Said {
        node: usize,
        said: Box<Said>,
        at: Instant,
    },
    /// What came of an order.
    Told(String),
    Signal(i32),
    /// The terminal gives no more keys.
    NoKeys(io::Error),
}

/// Shows the pool until the user ends it.
pub fn watch(asker: &Asker, mut state: State) -> Result<ExitCode, Failure> {
    let (tell, told) = mpsc::channel();
    let started = listen_to_signals(&tell).and_then(|()| listen_to_keys(&tell));
    let doing = "starting a thread";
    started.map_err(|source| LinkError::System { doing, source })?;
    let mut screen = Screen::take().map_err(Failure::Output)?;
    let ended = run(asker, &mut state, &mut screen, &tell, &told);
    drop(screen);
    match ended? {
        None => Ok(ExitCode::SUCCESS),
        Some(signal) => {
            // Ends this process as the signal would have done.
            _ = emulate_default_handler(signal);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Returns the signal that ended the loop, if one did.
fn run(
    asker: &Asker,
    state: &mut State,
    screen: &mut Screen,
    tell: &Sender<Event>,
    told: &Receiver<Event>,
) -> Result<Option<i32>, Failure> {
    let begun = Instant::now();
    let seconds = |at: Instant| at.saturating_duration_since(begun).as_secs_f64();
    let colours = Colours::new(!variable::NO_COLOR.is_set());
    let (mut ask_at, mut draw_at) = (begun, begun);
    loop {
        let now = Instant::now();
        if now >= ask_at {
            let tell = tell.clone();
            asker.ask(move |node, said| {
                // The loop may have ended.
                _ = tell.send(Event::Said { node, said: Box::new(said), at: Instant::now() });
            });
            // After a pause of this process, only once.
            ask_at = (ask_at + REFRESH).max(now);
        }
        if now >= draw_at {
            state.look_at_clock(seconds(now));
            screen.draw(|buffer| draw(state, colours, buffer)).map_err(Failure::Output)?;
            draw_at = now + REFRESH;
        }
        let event = told.recv_timeout(ask_at.min(draw_at).saturating_duration_since(now));
        match event {
            Ok(Event::Key { key, is_control }) => {
                match state.press(key, is_control) {
                    Act::Nothing => {}
                    Act::Quit => return Ok(None),
                    Act::EndSession(session) => end_session(asker, session, tell),
                }
                draw_at = now;
            }
            Ok(Event::Resized) => draw_at = now,
            Ok(Event::Said { node, said, at }) => {
                state.hear(node, *said, seconds(at));
                draw_at = draw_at.min(now + GATHER);
            }
            Ok(Event::Told(text)) => {
                state.notice = Some(text);
                draw_at = now;
            }
            Ok(Event::Signal(signal)) => return Ok(Some(signal)),
            Ok(Event::NoKeys(error)) => return Err(Failure::Output(error)),
            // This function has a sender, too, so this was the time-out.
            Err(_) => {}
        }
    }
}

/// Has a thread give the order to end a session.
fn end_session(asker: &Asker, SessionId { node, worker }: SessionId, tell: &Sender<Event>) {
    let (config, teller) = (asker.config(), tell.clone());
    let order = move || {
        let Some(at) = config.nodes.get(node) else { return };
        let done = administer::order(&config, at, Order::Kill(worker));
        let text = match done {
            Ok(()) => format!("session {worker} of node {} ends", at.name),
            Err(failure) => super::look::short(&failure.to_string()),
        };
        _ = teller.send(Event::Told(text));
    };
    if let Err(error) = penstock_process::start("top-order", order) {
        _ = tell.send(Event::Told(super::look::short(&error.to_string())));
    }
}

fn listen_to_signals(tell: &Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGQUIT])?;
    let tell = tell.clone();
    penstock_process::start("top-signals", move || {
        let Some(signal) = signals.forever().next() else { return };
        _ = tell.send(Event::Signal(signal));
        // The loop ends this process before that if it can.
        std::thread::sleep(SIGNAL_MAX);
        screen::give_up();
        _ = emulate_default_handler(signal);
    })?;
    Ok(())
}

fn listen_to_keys(tell: &Sender<Event>) -> io::Result<()> {
    let tell = tell.clone();
    penstock_process::start("top-keys", move || {
        loop {
            let event = match event::read() {
                Ok(event::Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
                    Event::Key { key: key.code, is_control }
                }
                Ok(event::Event::Resize(..)) => Event::Resized,
                Ok(_) => continue,
                Err(error) => Event::NoKeys(error),
            };
            let is_last = matches!(event, Event::NoKeys(_));
            if tell.send(event).is_err() || is_last {
                return;
            }
        }
    })?;
    Ok(())
}
