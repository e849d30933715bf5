//! Carries a program's input and output between its pipes and the virtio port.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, ioctl_fionread};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::send;
use crate::limits::{ALIVE_EVERY, PAYLOAD_BYTES_MAX};
use crate::message::{Decoder, Message};

/// One of the program's outputs.
#[derive(Debug)]
struct Output {
    /// `None` after its end.
    pipe: Option<File>,
    make: fn(Vec<u8>) -> Message,
}

/// The program's input.
#[derive(Debug, Default)]
struct Input {
    /// `None` after the host has closed it, or the program has.
    pipe: Option<File>,
    /// Bytes that the program has not taken.
    waiting: VecDeque<u8>,
    /// Whether the host has sent the end.
    is_over: bool,
}

/// Carries until the program has ended, and all that it wrote was sent. A program that its children
/// outlive has ended, too.
pub fn until_end(port: &mut File, child: &mut Child) -> io::Result<ExitStatus> {
    let ended = pidfd(child)?;
    let mut outputs = [
        Output { pipe: child.stdout.take().map(file).transpose()?, make: Message::Out },
        Output { pipe: child.stderr.take().map(file).transpose()?, make: Message::Err },
    ];
    let mut input = Input { pipe: child.stdin.take().map(file).transpose()?, ..Input::default() };
    let mut decoder = Decoder::default();
    let mut spoke = Instant::now();
    loop {
        let ready = wait(port, &ended, &outputs, &input)?;
        for output in &mut outputs {
            output.carry(port)?;
        }
        if ready.port {
            receive(port, &mut decoder, &mut input)?;
        }
        input.feed();
        // Also while input comes and the program says nothing.
        if spoke.elapsed() >= ALIVE_EVERY {
            send(port, &Message::Alive)?;
            spoke = Instant::now();
        }
        if ready.has_ended {
            let status = child.wait()?;
            // The last bytes may have come between the reading above and the end.
            for output in &mut outputs {
                output.carry_rest(port)?;
            }
            return Ok(status);
        }
    }
}

fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Makes a pipe one that does not block.
fn file(pipe: impl Into<OwnedFd>) -> io::Result<File> {
    let file = File::from(pipe.into());
    ioctl_fionbio(&file, true)?;
    Ok(file)
}

#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    port: bool,
    has_ended: bool,
}

fn wait(port: &File, ended: &OwnedFd, outputs: &[Output], input: &Input) -> io::Result<Ready> {
    let mut list = vec![PollFd::new(ended, PollFlags::IN)];
    // While bytes wait for the program, the host must wait, too.
    let takes = input.waiting.is_empty();
    list.push(PollFd::new(port, if takes { PollFlags::IN } else { PollFlags::empty() }));
    let pipes = outputs.iter().filter_map(|it| it.pipe.as_ref());
    list.extend(pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
    if let Some(pipe) = input.pipe.as_ref().filter(|_| !takes) {
        list.push(PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::OUT));
    }
    let patience = Timespec::try_from(ALIVE_EVERY).ok();
    match poll(&mut list, patience.as_ref()) {
        Err(Errno::INTR) => return Ok(Ready::default()),
        other => other?,
    };
    let is = |index: usize, wanted: PollFlags| {
        list.get(index).is_some_and(|it: &PollFd<'_>| it.revents().intersects(wanted))
    };
    Ok(Ready { has_ended: is(0, PollFlags::IN), port: is(1, PollFlags::IN) })
}

impl Output {
    /// Sends what the pipe has, at most one message. Returns the number of bytes.
    fn carry(&mut self, port: &mut File) -> io::Result<usize> {
        let Some(pipe) = &mut self.pipe else { return Ok(0) };
        let mut bytes = vec![0; PAYLOAD_BYTES_MAX];
        match pipe.read(&mut bytes) {
            Ok(0) => self.pipe = None,
            Ok(length) => {
                bytes.truncate(length);
                send(port, &(self.make)(bytes))?;
                return Ok(length);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(0)
    }

    /// Sends what the pipe has now. A child that outlives the program may write for ever.
    fn carry_rest(&mut self, port: &mut File) -> io::Result<()> {
        let Some(pipe) = &self.pipe else { return Ok(()) };
        let mut left = ioctl_fionread(pipe)?;
        while left > 0 {
            let sent = self.carry(port)?;
            if sent == 0 {
                break;
            }
            left = left.saturating_sub(sent as u64);
        }
        Ok(())
    }
}

fn receive(port: &mut File, decoder: &mut Decoder, input: &mut Input) -> io::Result<()> {
    let mut bytes = vec![0; PAYLOAD_BYTES_MAX];
    let length = port.read(&mut bytes)?;
    decoder.push(bytes.get(..length).unwrap_or_default());
    while let Some(message) = decoder.next_message().map_err(io::Error::other)? {
        match message {
            Message::In(bytes) if bytes.is_empty() => input.is_over = true,
            Message::In(bytes) => input.waiting.extend(bytes),
            other => return Err(io::Error::other(format!("the host sent {other:?}"))),
        }
    }
    Ok(())
}

impl Input {
    /// Gives the program what it takes.
    fn feed(&mut self) {
        while let Some(pipe) = self.pipe.as_mut().filter(|_| !self.waiting.is_empty()) {
            match pipe.write(self.waiting.make_contiguous()) {
                Ok(length) => drop(self.waiting.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The program has closed its input, and never reads the rest.
                Err(_) => self.pipe = None,
            }
        }
        if self.pipe.is_none() {
            self.waiting.clear();
        } else if self.is_over {
            self.pipe = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    use penstock_trial::in_time;

    /// Runs a shell's program with this input. A socket stands for the virtio port.
    fn run(script: &str, input: &[Message]) -> (Vec<u8>, Vec<u8>, ExitStatus) {
        let (host, guest) = UnixStream::pair().unwrap();
        let mut port = File::from(OwnedFd::from(guest));
        let mut host = File::from(OwnedFd::from(host));
        for message in input {
            host.write_all(&message.bytes()).unwrap();
        }
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let reader = std::thread::spawn(move || {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut decoder = Decoder::default();
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = host.read(&mut bytes) {
                decoder.push(&bytes[..length]);
                while let Some(message) = decoder.next_message().unwrap() {
                    match message {
                        Message::Out(bytes) => out.extend(bytes),
                        Message::Err(bytes) => err.extend(bytes),
                        other => assert_eq!(other, Message::Alive),
                    }
                }
            }
            (out, err)
        });
        let status = until_end(&mut port, &mut child).unwrap();
        drop(port);
        let (out, err) = reader.join().unwrap();
        (out, err, status)
    }

    #[test]
    fn input_output_and_status_arrive() {
        let input = [Message::In(b"hello\n".to_vec()), Message::In(Vec::new())];
        let (out, err, status) = run("cat; echo oops >&2; exit 7", &input);
        assert_eq!((out.as_slice(), err.as_slice()), (&b"hello\n"[..], &b"oops\n"[..]));
        assert_eq!(status.code(), Some(7));
    }

    #[test]
    fn everything_that_the_program_wrote_arrives() {
        let (out, _, _) = run("head -c 3000000 /dev/zero; printf end", &[]);
        assert_eq!(out.len(), 3_000_003);
        assert!(out.ends_with(b"end"));
    }

    /// A child that holds the pipes does not keep the guest alive.
    #[test]
    fn a_child_that_stays_is_not_waited_for() {
        let (out, _, status) = run("sleep 600 & echo $!; exit 0", &[]);
        assert!(status.success());
        let pid = String::from_utf8(out).unwrap().trim().to_owned();
        assert!(Command::new("kill").arg(pid).status().unwrap().success(), "it has ended");
    }

    /// Nor is one waited for that writes without end.
    #[test]
    fn a_child_that_writes_for_ever_is_not_waited_for() {
        let (out, _, status) = in_time("a program", || run("yes & exit 5", &[]));
        assert_eq!(status.code(), Some(5));
        assert!(out.iter().all(|byte| b"y\n".contains(byte)));
    }

    #[test]
    fn input_that_nobody_reads_is_dropped() {
        let input = vec![Message::In(vec![b'x'; PAYLOAD_BYTES_MAX]); 3];
        let (_, _, status) = run("exec 0<&-; sleep 0.2; exit 4", &input);
        assert_eq!(status.code(), Some(4));
    }

    /// The host takes a silent guest for lost.
    #[test]
    fn a_program_that_only_reads_is_alive() {
        let (host, guest) = UnixStream::pair().unwrap();
        let mut port = File::from(OwnedFd::from(guest));
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg("cat >/dev/null").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut sender = File::from(OwnedFd::from(host.try_clone().unwrap()));
        let feeder = std::thread::spawn(move || {
            let until = Instant::now() + ALIVE_EVERY * 3 / 2;
            while Instant::now() < until {
                sender.write_all(&Message::In(vec![1]).bytes()).unwrap();
                std::thread::sleep(ALIVE_EVERY / 50);
            }
            sender.write_all(&Message::In(Vec::new()).bytes()).unwrap();
        });
        assert!(until_end(&mut port, &mut child).unwrap().success());
        feeder.join().unwrap();
        drop(port);
        let mut said = Vec::new();
        File::from(OwnedFd::from(host)).read_to_end(&mut said).unwrap();
        let mut decoder = Decoder::default();
        decoder.push(&said);
        assert_eq!(decoder.next_message(), Ok(Some(Message::Alive)));
    }
}
