//! How a worker gets a foreman: it asks the daemon, which has one copied from the fork server.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::answers::{ANSWER_MAX, Answers};
use crate::message::{Control, ToDaemon};

/// A connection to a foreman, or the reason why there is none.
pub(crate) type Answer = Result<OwnedFd, String>;

/// The worker's side.
#[derive(Debug)]
pub(crate) struct Foremen {
    daemon: Arc<Control>,
    answers: Answers<Answer>,
}

impl Foremen {
    pub(crate) fn of(daemon: Arc<Control>) -> Self {
        Self { daemon, answers: Answers::new(1, ANSWER_MAX) }
    }

    /// Takes the daemon's answer. A foreman that nobody waits for ends with its connection.
    pub(crate) fn answered(&self, question: u64, answer: Answer) {
        _ = self.answers.take(question, answer);
    }

    /// Asks the daemon, and waits for the answer.
    ///
    /// # Errors
    /// Fails with the reason why there is no foreman.
    pub(super) fn engage(&self) -> Result<Control, String> {
        let send = |question| {
            let sent = self.daemon.send(&ToDaemon::Foreman { question }, None);
            sent.map_err(|error| error.to_string())
        };
        self.answers.ask(send)?.map(Control::of)
    }
}
