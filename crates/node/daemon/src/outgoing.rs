//! A worker's connections to other nodes. Its daemon makes them, because a worker has no keys and
//! may make no sockets for networks.

use std::sync::Arc;
use std::time::Duration;

use penstock_link::{LinkError, Stream};
use penstock_wire::hello::TICKET_BYTES;
use penstock_wire::limits::HELLO_MS_MAX;

use crate::answers::Answers;
use crate::dials::{ADDRESS_BYTES_MAX, PER_SESSION_MAX};
use crate::message::{Control, ToDaemon};
use crate::session::Dialer;

/// Longest wait for the daemon's answer. The daemon answers after [`HELLO_MS_MAX`], unless the
/// system takes longer to look up a name.
const ANSWER_MAX: Duration = Duration::from_millis(2 * HELLO_MS_MAX);

/// A connection, or the reason why there is none.
pub(crate) type Answer = Result<Stream, String>;

/// The connections that the daemon was asked for.
#[derive(Debug)]
pub(crate) struct Outgoing {
    control: Arc<Control>,
    answers: Answers<Answer>,
}

impl Outgoing {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        // The daemon would refuse one more.
        Self { control, answers: Answers::new(PER_SESSION_MAX, ANSWER_MAX) }
    }

    /// Takes the daemon's answer. It is dropped if the thread that asked has given up.
    pub(crate) fn answered(&self, number: u64, answer: Answer) {
        _ = self.answers.take(number, answer);
    }

    /// Asks the daemon. Waits until it may ask, and for the answer.
    fn ask(&self, address: &str, ticket: &[u8; TICKET_BYTES]) -> Answer {
        // A longer message would not fit into the daemon's buffer, and so end the session.
        if address.len() > ADDRESS_BYTES_MAX {
            return Err("the address is too long".to_owned());
        }
        self.answers.ask(|number| {
            let address = address.to_owned();
            let sent =
                self.control.send(&ToDaemon::Connect { number, address, ticket: *ticket }, None);
            sent.map_err(|error| format!("the daemon cannot be asked: {error}"))
        })?
    }
}

impl Dialer for Outgoing {
    fn dial(&self, address: &str, ticket: &[u8; TICKET_BYTES]) -> Result<Stream, LinkError> {
        let unreached = |why| LinkError::Unreached { address: address.to_owned(), why };
        self.ask(address, ticket).map_err(unreached)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use penstock_link::Patience;

    use super::*;

    fn pair() -> (Arc<Outgoing>, Control) {
        let (daemon, worker) = Control::pair().unwrap();
        (Arc::new(Outgoing::new(Arc::new(Control::of(worker)))), daemon)
    }

    fn next(daemon: &Control) -> u64 {
        let (message, _) = daemon.receive::<ToDaemon>(Patience::Forever).unwrap().unwrap();
        let ToDaemon::Connect { number, .. } = message else { panic!("{message:?}") };
        number
    }

    fn dial(outgoing: &Arc<Outgoing>) -> thread::JoinHandle<Result<Stream, LinkError>> {
        let outgoing = outgoing.clone();
        thread::spawn(move || outgoing.dial("tcp:a:1", &[1; TICKET_BYTES]))
    }

    #[test]
    fn each_thread_gets_its_own_answer_and_no_more_ask_than_the_daemon_takes() {
        let (outgoing, daemon) = pair();
        let threads: Vec<_> = (0..=PER_SESSION_MAX).map(|_| dial(&outgoing)).collect();
        let numbers: Vec<u64> = (0..PER_SESSION_MAX).map(|_| next(&daemon)).collect();
        thread::sleep(Duration::from_millis(20));
        assert!(daemon.receive::<ToDaemon>(Patience::Never).unwrap().is_none());
        let (here, _there) = UnixStream::pair().unwrap();
        outgoing.answered(numbers[0], Ok(Stream::from_fd(here.into()).unwrap()));
        let waited = next(&daemon);
        for number in numbers.into_iter().skip(1).chain([waited]) {
            outgoing.answered(number, Err(format!("number {number}")));
        }
        let made = threads.into_iter().map(|it| it.join().unwrap()).filter(Result::is_ok).count();
        assert_eq!(made, 1);
    }

    #[test]
    fn a_long_address_does_not_reach_the_daemon() {
        let (outgoing, daemon) = pair();
        let error = outgoing.dial(&"x".repeat(1 << 20), &[1; TICKET_BYTES]).unwrap_err();
        assert!(error.to_string().contains("too long"), "{error}");
        assert!(daemon.receive::<ToDaemon>(Patience::Never).unwrap().is_none());
    }

    #[test]
    fn without_a_daemon_nobody_waits() {
        let (outgoing, daemon) = pair();
        drop(daemon);
        let error = dial(&outgoing).join().unwrap().unwrap_err().to_string();
        assert!(error.contains("tcp:a:1") && error.contains("cannot be asked"), "{error}");
        // Nobody waits for this answer.
        outgoing.answered(9, Err(String::new()));
    }
}
