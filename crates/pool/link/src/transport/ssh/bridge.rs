//! The far end of a connection through SSH, and what a tool may do beside the connections.
//!
//! A bridge runs on the node, started by the SSH server as the user of the login. It greets the
//! client and copies bytes between its standard input and output and a daemon. It decides nothing
//! and reads nothing of what it copies.
//!
//! If the greeting has an invitation, the client first tries to reach the daemon directly.
//! Meanwhile it says single bytes: it asks whether the bridge lives ([`SIGN_OF_LIFE`]), and tells
//! the bridge to connect and to copy from then on ([`RELAY`]). If the client has a direct
//! connection, it says nothing more, and the bridge waits for its end: the login lasts as long as
//! the session.
//!
//! It copies through buffers. `splice` would save one of the copies, but needs a pipe on one side,
//! and the SSH server gives a program sockets. SSH's own work for a byte costs ten times as much as
//! these copies.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use super::greeting;
pub use super::{
    direct_allowed as direct_ssh_allowed, end_shared as end_shared_ssh, has_greeted, let_ssh_ask,
    share_in as share_ssh_in,
};
use crate::invitation::{ANSWER, Offer, RELAY, SIGN_OF_LIFE};

/// Size in bytes of the buffer of each direction: one that the sockets fill at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Time that a worker has to end after its client. After it, the bridge hangs up.
const LINGER: Duration = Duration::from_secs(10);

/// Greets a client with an offer. Unless the client uses the offer, connects to the daemon with
/// `connect` and copies bytes between both, until the daemon hangs up, or until some time after the
/// client has. A thread that still waits for the client ends with the process.
///
/// # Errors
/// Fails if the client does not take the bytes, or `connect` fails.
pub fn bridge(
    mut input: impl Read + Send + 'static,
    mut output: impl Write,
    offer: &Offer,
    connect: impl FnOnce() -> io::Result<UnixStream>,
) -> io::Result<()> {
    output.write_all(&greeting(rustix::process::geteuid().as_raw(), offer))?;
    output.flush()?;
    if matches!(offer, Offer::Invitation(_)) && !is_needed(&mut input, &mut output)? {
        return Ok(());
    }
    let daemon = connect()?;
    let up = daemon.try_clone()?;
    penstock_process::start("up", move || {
        // An error on either side is the end, as a hang-up is.
        _ = copy(input, &up);
        // The worker still receives what was sent before.
        _ = up.shutdown(Shutdown::Write);
        thread::sleep(LINGER);
        _ = up.shutdown(Shutdown::Both);
    })?;
    let copied = copy(&daemon, &mut output);
    // A client that is not read any more must not wait for this process.
    _ = daemon.shutdown(Shutdown::Both);
    copied
}

/// Answers a client that tries to reach the daemon directly. Returns whether the client wants the
/// bridge to copy. Takes no byte behind that wish.
fn is_needed(input: &mut impl Read, output: &mut impl Write) -> io::Result<bool> {
    let mut said = [0];
    loop {
        match input.read(&mut said) {
            Ok(0) => return Ok(false),
            Ok(_) => match said {
                [SIGN_OF_LIFE] => {
                    output.write_all(&[ANSWER])?;
                    output.flush()?;
                }
                [RELAY] => return Ok(true),
                // No client of this protocol.
                _ => return Ok(false),
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

/// Copies until the end. Passes on each piece as soon as it is there.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(got) => {
                to.write_all(buffer.get(..got).unwrap_or_default())?;
                to.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The other side has hung up with bytes on their way.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a bridge. Returns the client's end and the daemon's end.
    fn bridged() -> (UnixStream, UnixStream) {
        let (client, theirs) = UnixStream::pair().unwrap();
        let (daemon, to_daemon) = UnixStream::pair().unwrap();
        let input = theirs.try_clone().unwrap();
        thread::spawn(move || {
            let copied = bridge(input, &theirs, &Offer::NotAsked, || Ok(to_daemon));
            _ = theirs.shutdown(Shutdown::Both);
            copied
        });
        let mut greeting = greeting(rustix::process::geteuid().as_raw(), &Offer::NotAsked);
        let expected = greeting.clone();
        (&client).read_exact(&mut greeting).unwrap();
        assert_eq!(greeting, expected);
        (client, daemon)
    }

    #[test]
    fn what_was_sent_before_a_hang_up_arrives_on_both_sides() {
        for side in [0, 1] {
            let (client, daemon) = bridged();
            let (mut one, mut other) = if side == 0 { (client, daemon) } else { (daemon, client) };
            let sent = vec![side; 3 << 20];
            thread::scope(|scope| {
                let expected = sent.clone();
                scope.spawn(move || {
                    let mut heard = Vec::new();
                    other.read_to_end(&mut heard).unwrap();
                    assert!(heard == expected);
                });
                one.write_all(&sent).unwrap();
                drop(one);
            });
        }
    }

    #[test]
    fn a_client_with_an_invitation_is_answered_until_it_wants_a_copy_or_is_gone() {
        let says = |said: &[u8]| {
            let (mut input, mut heard) = (said, Vec::new());
            let is_needed = is_needed(&mut input, &mut heard).unwrap();
            (is_needed, heard, input.to_vec())
        };
        assert_eq!(says(b""), (false, vec![], vec![]));
        assert_eq!(says(b"?"), (false, b"!".to_vec(), vec![]));
        assert_eq!(says(b"??>PENSTOCK"), (true, b"!!".to_vec(), b"PENSTOCK".to_vec()));
        assert_eq!(says(b">PENSTOCK"), (true, vec![], b"PENSTOCK".to_vec()));
        assert_eq!(says(b"PENSTOCK"), (false, vec![], b"ENSTOCK".to_vec()));
    }
}
