//! Carries the program's output from the guest to this process's outputs, and this process's input
//! to the program.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::{End, Report};
use crate::error::VmError;
use crate::limits::{PAYLOAD_BYTES_MAX, SILENCE_MAX};
use crate::message::{Decoder, Message};

/// Why the guest can no longer be heard.
#[derive(Debug)]
pub enum Broken {
    /// The guest or QEMU is the reason.
    Guest(String),
    Other(VmError),
}

/// The connection to a guest.
#[derive(Debug)]
pub struct Carrier {
    stream: UnixStream,
    decoder: Decoder,
    began: Instant,
    boot_deadline: Instant,
    program_max: Option<Duration>,
    /// When the program started.
    started: Option<Instant>,
    /// When the guest was last heard.
    heard: Instant,
}

impl Carrier {
    pub fn new(
        stream: UnixStream,
        began: Instant,
        boot_deadline: Instant,
        program_max: Option<Duration>,
    ) -> Self {
        let decoder = Decoder::default();
        Self { stream, decoder, began, boot_deadline, program_max, started: None, heard: began }
    }

    pub fn has_started(&self) -> bool {
        self.started.is_some()
    }

    /// Carries until the program has ended, or took too long. Writes the announcement to standard
    /// error when the program starts.
    pub fn until_end(&mut self, announcement: &str) -> Result<Report, Broken> {
        loop {
            while let Some(message) = self.decoder.next_message().map_err(other)? {
                if let Some(end) = self.obey(message, announcement)? {
                    return Ok(self.report(end));
                }
            }
            if let Some(end) = self.receive()? {
                return Ok(self.report(end));
            }
        }
    }

    fn report(&self, end: End) -> Report {
        let now = Instant::now();
        let started = self.started.unwrap_or(now);
        Report { end, boot: started - self.began, program: now - started }
    }

    /// Returns the end of the program if the message says it.
    fn obey(&mut self, message: Message, announcement: &str) -> Result<Option<End>, Broken> {
        let written = match message {
            Message::Alive => Ok(()),
            Message::Ready if self.started.is_none() => {
                self.started = Some(Instant::now());
                // Like all that the program writes, it may have no reader.
                _ = writeln!(io::stderr(), "{announcement}");
                self.send_input().map_err(|error| Broken::Guest(error.to_string()))?;
                Ok(())
            }
            Message::Out(bytes) => write(io::stdout(), &bytes),
            Message::Err(bytes) => write(io::stderr(), &bytes),
            Message::Exit(status) => return Ok(Some(End::Exit(status))),
            Message::NotStarted { status, why } => {
                return Ok(Some(End::NotStarted { status, why }));
            }
            message @ (Message::Ready | Message::In(_)) => {
                return Err(Broken::Guest(format!(
                    "the guest sent {message:?}, which it must not"
                )));
            }
        };
        written.map_err(|error| other(VmError::Output(error)))?;
        // The time of a reader that waits is not the guest's.
        self.heard = Instant::now();
        Ok(None)
    }

    /// Reads what has come. Returns an end if a time is over.
    fn receive(&mut self) -> Result<Option<End>, Broken> {
        let silent = self.heard + SILENCE_MAX;
        let program = self.started.zip(self.program_max).map(|(from, max)| from + max);
        let next = match self.started {
            None => self.boot_deadline,
            Some(_) => program.map_or(silent, |program| program.min(silent)),
        };
        let left = next.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return self.late(program);
        }
        let failed = |error: io::Error| Broken::Guest(format!("the guest is lost: {error}"));
        self.stream.set_read_timeout(Some(left)).map_err(failed)?;
        let mut bytes = vec![0; PAYLOAD_BYTES_MAX];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(ended_early()),
            // The guest hung up before it had read all of its program's input.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(ended_early()),
            Ok(length) => {
                self.decoder.push(bytes.get(..length).unwrap_or_default());
                Ok(None)
            }
            Err(error) if is_early(&error) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn late(&self, program: Option<Instant>) -> Result<Option<End>, Broken> {
        if self.started.is_none() {
            let limit = (self.boot_deadline - self.began).as_secs();
            return Err(Broken::Guest(format!("the guest did not start within {limit} s")));
        }
        if program.is_some_and(|program| program <= Instant::now()) {
            return Ok(Some(End::TooLong));
        }
        let limit = SILENCE_MAX.as_secs();
        Err(Broken::Guest(format!("the guest gave no sign of life for {limit} s")))
    }

    /// Starts the thread that sends this process's input. The thread ends with the guest or with
    /// this process.
    fn send_input(&self) -> io::Result<()> {
        let mut stream = self.stream.try_clone()?;
        penstock_process::start("input", move || {
            let mut bytes = vec![0; PAYLOAD_BYTES_MAX];
            loop {
                let length = io::stdin().read(&mut bytes).unwrap_or(0);
                let message = Message::In(bytes.get(..length).unwrap_or_default().to_vec());
                if stream.write_all(&message.bytes()).is_err() || length == 0 {
                    return;
                }
            }
        })
        .map(drop)
    }
}

fn other(error: impl Into<VmError>) -> Broken {
    Broken::Other(error.into())
}

fn ended_early() -> Broken {
    Broken::Guest("the guest ended before its program".to_owned())
}

fn is_early(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn write(mut target: impl io::Write, bytes: &[u8]) -> io::Result<()> {
    target.write_all(bytes)?;
    target.flush()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use penstock_trial::patience;

    use super::*;

    /// Plays a guest that sends these messages and then hangs up.
    fn hear(messages: &[Message], boot_max_ms: u64, program_max_ms: Option<u64>) -> Carrier {
        let (host, mut guest) = UnixStream::pair().unwrap();
        let bytes: Vec<u8> = messages.iter().flat_map(Message::bytes).collect();
        // A guest that said nothing stays silent.
        thread::spawn(move || {
            guest.write_all(&bytes).unwrap();
            if bytes.len() < 9 {
                thread::sleep(2 * patience());
            }
        });
        let now = Instant::now();
        let boot = now + Duration::from_millis(boot_max_ms);
        Carrier::new(host, now, boot, program_max_ms.map(Duration::from_millis))
    }

    #[test]
    fn a_program_ends_with_its_status() {
        let mut carrier = hear(&[Message::Ready, Message::Alive, Message::Exit(9)], 60_000, None);
        assert_eq!(carrier.until_end("").unwrap().end, End::Exit(9));
        assert!(carrier.has_started());
    }

    #[test]
    fn a_guest_that_does_not_start_is_an_error() {
        let mut carrier = hear(&[], 50, None);
        let Err(Broken::Guest(what)) = carrier.until_end("") else { panic!() };
        assert!(what.starts_with("the guest did not start within"), "{what}");
        assert!(!carrier.has_started());
    }

    #[test]
    fn a_program_may_take_too_long() {
        let mut carrier = hear(&[Message::Ready], 60_000, Some(50));
        assert_eq!(carrier.until_end("").unwrap().end, End::TooLong);
    }

    #[test]
    fn a_guest_that_ends_before_its_program_is_an_error() {
        let mut carrier = hear(&[Message::Ready, Message::Alive], 60_000, None);
        let Err(Broken::Guest(what)) = carrier.until_end("") else { panic!() };
        assert_eq!(what, "the guest ended before its program");
    }

    #[test]
    fn a_guest_that_ends_before_it_reads_its_input_is_the_same_error() {
        let (host, guest) = UnixStream::pair().unwrap();
        (&host).write_all(&Message::In(vec![1]).bytes()).unwrap();
        // Closing a Unix socket with unread bytes resets the connection.
        drop(guest);
        let now = Instant::now();
        let mut carrier = Carrier::new(host, now, now + Duration::from_secs(5), None);
        let Err(Broken::Guest(what)) = carrier.until_end("") else { panic!() };
        assert_eq!(what, "the guest ended before its program");
    }

    #[test]
    fn a_guest_that_breaks_the_rules_is_an_error() {
        for messages in
            [vec![Message::Ready, Message::Ready], vec![Message::Ready, Message::In(vec![1])]]
        {
            let mut carrier = hear(&messages, 5000, None);
            assert!(matches!(carrier.until_end(""), Err(Broken::Guest(_))));
        }
    }
}
