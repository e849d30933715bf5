//! What a worker says to the person who runs the program.

use std::sync::OnceLock;

/// Longest text of a worker that is shown: a few lines.
const CHARACTERS_MAX: usize = 1_000;

/// Shows what the worker says, as soon as somebody has said how.
#[derive(Default)]
pub(crate) struct Notices(OnceLock<Tell>);

type Tell = Box<dyn Fn(&str) + Send + Sync>;

impl Notices {
    /// Has `tell` called with each text.
    pub(crate) fn show_with(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        _ = self.0.set(Box::new(tell));
    }

    /// Shows a text as one line of limited length. A hostile worker could otherwise write what a
    /// terminal takes for commands.
    pub(super) fn show(&self, text: &str) {
        let shown = text.chars().filter(|character| !character.is_control());
        if let Some(tell) = self.0.get() {
            tell(&shown.take(CHARACTERS_MAX).collect::<String>());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_text_is_one_short_line() {
        let notices = Notices::default();
        notices.show("nobody listens");
        let (told, heard) = mpsc::channel();
        notices.show_with(move |text| told.send(text.to_owned()).unwrap());
        notices.show("\u{1b}[2J\nthe limit");
        assert_eq!(heard.recv().unwrap(), "[2Jthe limit");
        notices.show(&"x".repeat(9_999));
        assert_eq!(heard.recv().unwrap().len(), CHARACTERS_MAX);
    }
}
