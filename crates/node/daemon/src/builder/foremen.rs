//! How a worker gets a foreman: it asks the daemon, which has one copied from the fork server.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use penstock_process::{Lock, Signal};

use crate::message::{Control, ToDaemon};

/// Longest wait for the daemon's answer. Its thread answers within some milliseconds, in which it
/// may start the fork server. On a machine with a hundred busy processes per core, a process waits
/// for its turn for less than a second.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A connection to a foreman, or the reason why there is none.
pub(crate) type Answer = Result<OwnedFd, String>;

/// The worker's side.
#[derive(Debug)]
pub(crate) struct Foremen {
    daemon: Arc<Control>,
    asked: Lock<Asked>,
    answered: Signal,
}

#[derive(Debug, Default)]
struct Asked {
    /// Number of the last question. An answer to an earlier one comes too late.
    last: u64,
    answer: Option<Answer>,
}

impl Foremen {
    pub(crate) fn of(daemon: Arc<Control>) -> Self {
        Self { daemon, asked: Lock::default(), answered: Signal::new() }
    }

    /// Takes the daemon's answer.
    pub(crate) fn answered(&self, question: u64, answer: Answer) {
        let mut asked = self.asked.lock();
        if asked.last == question {
            asked.answer = Some(answer);
        }
        drop(asked);
        self.answered.notify_all();
    }

    /// Asks the daemon, and waits for the answer. One thread may ask at a time.
    ///
    /// # Errors
    /// Fails with the reason why there is no foreman.
    pub(super) fn engage(&self) -> Result<Control, String> {
        let mut asked = self.asked.lock();
        asked.last += 1;
        asked.answer = None;
        let question = ToDaemon::Foreman { question: asked.last };
        drop(asked);
        self.daemon.send(&question, None).map_err(|error| error.to_string())?;
        let asked = self.asked.lock();
        let unanswered = |asked: &mut Asked| asked.answer.is_none();
        let (mut asked, _) = self.answered.wait_timeout_while(asked, ANSWER_MAX, unanswered);
        let answer = asked.answer.take();
        answer.unwrap_or_else(|| Err("the daemon has not answered".to_owned())).map(Control::of)
    }
}
