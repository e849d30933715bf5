//! A worker's questions to the machines of its links, which the daemon asks.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use penstock_link::{Answer, Asker, Asking, Machine};
use penstock_process::Lock;
use rustc_hash::FxHashMap;

use crate::message::{Control, ToDaemon};

/// The questions that are open.
#[derive(Debug)]
pub(crate) struct Questions {
    control: Arc<Control>,
    open: Lock<Open>,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    /// By number. A link that has given up no longer holds its question.
    asked: FxHashMap<u64, Weak<Asking>>,
}

impl Questions {
    /// Has the daemon ask from now on, for all links of this process.
    pub(crate) fn to_daemon(control: Arc<Control>) -> Arc<Self> {
        let questions = Arc::new(Self { control, open: Lock::default() });
        penstock_link::let_ask(Box::new(ByDaemon(questions.clone())));
        questions
    }

    /// Takes the daemon's answer.
    pub(crate) fn answered(&self, number: u64, answer: Option<Answer>, socket: Option<OwnedFd>) {
        let asked = self.open.lock().asked.remove(&number);
        if let Some(asking) = asked.and_then(|it| it.upgrade()) {
            asking.begun(socket.ok_or(answer.unwrap_or(Answer::Unclear)));
        }
    }

    fn put(&self, machine: &Machine, asking: &Arc<Asking>) {
        let number = {
            let mut open = self.open.lock();
            open.asked.retain(|_, asked| asked.strong_count() > 0);
            open.last += 1;
            let number = open.last;
            open.asked.insert(number, Arc::downgrade(asking));
            number
        };
        let message = ToDaemon::Ask { number, machine: machine.clone() };
        if self.control.send(&message, None).is_err() {
            // The daemon has ended, or has no room for a message now.
            self.answered(number, None, None);
        }
    }
}

struct ByDaemon(Arc<Questions>);

impl Asker for ByDaemon {
    fn ask(&self, machine: &Machine, asking: &Arc<Asking>) {
        self.0.put(machine, asking);
    }
}
