//! What a worker says to the person who runs the program, and what is said of its end.

use std::sync::{Arc, OnceLock};

use penstock_process::Lock;
use penstock_wire::describe::KernelDescription;

/// Longest text of a worker that is shown: a few lines.
const CHARACTERS_MAX: usize = 1_000;

/// Longest name of a kernel that is shown. The names come from the worker.
const NAME_CHARACTERS_MAX: usize = 100;

/// Shows what the worker says, as soon as somebody has said how.
#[derive(Default)]
pub(crate) struct Notices {
    tell: OnceLock<Tell>,
    /// The kernels that were launched last, the latest one first.
    recent: Lock<Vec<Arc<KernelDescription>>>,
}

/// Number of kernels that are remembered. A worker that crashes seldom has more in progress.
const RECENT_MAX: usize = 3;

type Tell = Box<dyn Fn(&str) + Send + Sync>;

impl Notices {
    /// Has `tell` called with each text.
    pub(crate) fn show_with(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        _ = self.tell.set(Box::new(tell));
    }

    /// Shows a text as one line of limited length. A hostile worker could otherwise write what a
    /// terminal takes for commands.
    pub(super) fn show(&self, text: &str) {
        if let Some(tell) = self.tell.get() {
            tell(&harmless(text, CHARACTERS_MAX));
        }
    }
}

/// Returns the first characters of a worker's text, without those that control a terminal.
fn harmless(text: &str, characters_max: usize) -> String {
    text.chars().filter(|character| !character.is_control()).take(characters_max).collect()
}

impl Notices {
    /// Remembers a kernel that is launched.
    pub(crate) fn launched(&self, kernel: &Arc<KernelDescription>) {
        let mut recent = self.recent.lock();
        match recent.iter().position(|it| Arc::ptr_eq(it, kernel)) {
            // Most programs launch one kernel many times.
            Some(0) => return,
            Some(at) => _ = recent.remove(at),
            None => recent.truncate(RECENT_MAX - 1),
        }
        recent.insert(0, kernel.clone());
    }

    /// Returns what may have ended a worker that a kernel has crashed, and what helps.
    pub(super) fn suspects(&self) -> Option<String> {
        let name =
            |it: &Arc<KernelDescription>| format!("`{}`", harmless(&it.name, NAME_CHARACTERS_MAX));
        let names: Vec<_> = self.recent.lock().iter().map(name).collect();
        (!names.is_empty()).then(|| {
            format!(
                "; the kernels that this program launched there last, the latest first: {}; \
                 `oclgrind PROGRAM` finds addresses that a kernel may not use",
                names.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_last_kernels_are_named_once() {
        let notices = Notices::default();
        assert_eq!(notices.suspects(), None);
        let named = |name: &str| {
            Arc::new(KernelDescription { name: name.to_owned(), ..Default::default() })
        };
        let kernels = ["a", "b", "c", "d"].map(named);
        for index in [0, 0, 1, 2, 3, 1, 1] {
            notices.launched(&kernels[index]);
        }
        assert!(notices.suspects().unwrap().contains("first: `b`, `d`, `c`; "));
        notices.launched(&named(&format!("\u{1b}[2J\n{}", "x".repeat(999))));
        let shown = format!("first: `[2J{}`, `b`", "x".repeat(NAME_CHARACTERS_MAX - 3));
        assert!(notices.suspects().unwrap().contains(&shown));
    }

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
