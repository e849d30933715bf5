//! The terminal while `penstock top` has it. It is given back when the command ends, panics or gets
//! a signal.

use std::io::{self, Stdout, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui_core::buffer::Buffer;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// Whether this process has the terminal.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Fails if the terminal does not do what it is told.
    pub fn take() -> io::Result<Self> {
        give_back_at_panics();
        IS_TAKEN.store(true, Ordering::SeqCst);
        // Dropped on an error, which gives the terminal back.
        let screen = Self { terminal: Terminal::new(CrosstermBackend::new(stdout()))? };
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Has `draw` fill the screen, and sends what has changed.
    ///
    /// # Errors
    /// Fails if the terminal takes nothing any more.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame.buffer_mut())).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives back how the terminal treats keys, also while another thread waits for the terminal to
/// take what it writes.
pub fn give_up() {
    // Nothing more can be done.
    _ = disable_raw_mode();
}

/// Gives the terminal back, once.
fn give_back() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        // If the terminal is gone, nothing needs to be repaired.
        _ = execute!(stdout(), LeaveAlternateScreen, Show);
        _ = disable_raw_mode();
    }
}

/// Has a panic of this thread give the terminal back first, so that its message can be read.
fn give_back_at_panics() {
    let (own, before) = (std::thread::current().id(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |about| {
        if std::thread::current().id() == own {
            give_back();
        }
        before(about);
    }));
}
