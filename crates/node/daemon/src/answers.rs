//! Answers that threads of a worker wait for: one thread asks the daemon, and another thread
//! receives what the daemon says.

use std::time::Duration;

use penstock_process::{Lock, Signal};
use rustc_hash::FxHashMap;

/// Longest wait for an answer that the daemon's thread gives by itself, within some milliseconds.
/// On a machine with a hundred busy processes per core, a process waits for its turn for less than
/// a second.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The questions of one kind that are open.
#[derive(Debug)]
pub(crate) struct Answers<A> {
    wait_max: Duration,
    open_max: usize,
    open: Lock<Open<A>>,
    changed: Signal,
}

#[derive(Debug)]
struct Open<A> {
    /// Number of the last question.
    last: u64,
    /// By number: what each thread waits for.
    answers: FxHashMap<u64, Option<A>>,
}

impl<A> Answers<A> {
    /// At most `open_max` questions are open at once, each for at most `wait_max`.
    pub(crate) fn new(open_max: usize, wait_max: Duration) -> Self {
        let open = Open { last: 0, answers: FxHashMap::default() };
        Self { wait_max, open_max, open: Lock::new(open), changed: Signal::new() }
    }

    /// Takes the daemon's answer to a question. Returns the answer if nobody waits for it, because
    /// the thread that asked has given up.
    pub(crate) fn take(&self, number: u64, answer: A) -> Option<A> {
        let mut open = self.open.lock();
        let Some(waiting @ None) = open.answers.get_mut(&number) else { return Some(answer) };
        *waiting = Some(answer);
        drop(open);
        self.changed.notify_all();
        None
    }

    /// Waits until one more question may be open, has `send` send the question with this number,
    /// and waits for the answer.
    ///
    /// # Errors
    /// Fails with the reason why there is no answer.
    pub(crate) fn ask(&self, send: impl FnOnce(u64) -> Result<(), String>) -> Result<A, String> {
        let is_full = |open: &mut Open<A>| open.answers.len() >= self.open_max;
        let open = self.open.lock();
        let (mut open, _) = self.changed.wait_timeout_while(open, self.wait_max, is_full);
        if is_full(&mut open) {
            return Err("the daemon has not answered earlier questions".to_owned());
        }
        open.last += 1;
        let number = open.last;
        open.answers.insert(number, None);
        drop(open);
        let sent = send(number);
        let open = self.open.lock();
        let is_open = |open: &mut Open<A>| matches!(open.answers.get(&number), Some(None));
        let wait_max = if sent.is_ok() { self.wait_max } else { Duration::ZERO };
        let (mut open, _) = self.changed.wait_timeout_while(open, wait_max, is_open);
        let answer = open.answers.remove(&number).flatten();
        drop(open);
        // Another thread may ask now.
        self.changed.notify_all();
        match (answer, sent) {
            (Some(answer), _) => Ok(answer),
            (None, Err(why)) => Err(why),
            (None, Ok(())) => {
                Err(format!("the daemon has not answered for {} s", self.wait_max.as_secs()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn each_thread_gets_its_own_answer_and_no_more_ask_than_may() {
        let answers = Answers::new(2, ANSWER_MAX);
        let (asked, questions) = mpsc::channel();
        thread::scope(|scope| {
            let ask = || {
                answers.ask(|number| {
                    asked.send(number).unwrap();
                    Ok(())
                })
            };
            let threads = [scope.spawn(ask), scope.spawn(ask), scope.spawn(ask)];
            let open = [questions.recv().unwrap(), questions.recv().unwrap()];
            questions.recv_timeout(Duration::from_millis(20)).unwrap_err();
            for number in open {
                assert_eq!(answers.take(number, number), None);
            }
            let third = questions.recv().unwrap();
            assert_eq!(answers.take(third, third), None);
            let mut got = threads.map(|thread| thread.join().unwrap().unwrap());
            got.sort_unstable();
            assert_eq!(got, [1, 2, 3]);
        });
        assert!(answers.open.lock().answers.is_empty());
    }

    #[test]
    fn an_answer_that_nobody_awaits_comes_back() {
        let answers = Answers::new(1, ANSWER_MAX);
        assert_eq!(answers.take(1, "early"), Some("early"));
        let answer = answers.ask(|number| {
            assert_eq!(answers.take(number - 1, "earlier"), Some("earlier"));
            assert_eq!(answers.take(number, "right"), None);
            assert_eq!(answers.take(number, "again"), Some("again"));
            Ok(())
        });
        assert_eq!(answer, Ok("right"));
        assert_eq!(answers.take(1, "late"), Some("late"));
    }

    #[test]
    fn without_an_answer_the_thread_learns_why() {
        let answers = Answers::<()>::new(1, Duration::ZERO);
        assert_eq!(answers.ask(|_| Err("it has ended".to_owned())), Err("it has ended".to_owned()));
        assert_eq!(answers.ask(|_| Ok(())), Err("the daemon has not answered for 0 s".to_owned()));
        let inner = || answers.ask(|_| unreachable!());
        let full = "the daemon has not answered earlier questions".to_owned();
        assert_eq!(answers.ask(|_| inner()), Err(full));
        assert!(answers.open.lock().answers.is_empty());
    }
}
