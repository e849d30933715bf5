//! What can go wrong with a link.

use std::io;
use std::path::PathBuf;

use penstock_wire::FrameError;
use penstock_wire::hello::Verdict;

use crate::address::Address;

/// A failure of a link, its hello, or what it needs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The peer ended the session, and told why.
    #[error("the peer ended the session: {0}")]
    Fault(String),
    /// Text that is no address.
    #[error("`{text}` is no address: {why}; write unix:PATH or tcp:HOST:PORT")]
    Address {
        /// The text.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A key file that can not be used.
    #[error("the key file {}: {why}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// There is no home directory in which the key could lie.
    #[error(
        "neither XDG_CONFIG_HOME nor HOME is set, so there is no default place for the key file"
    )]
    NoHome,
    /// Nobody answers at the address.
    #[error("can not connect to {address}: {source}; is penstockd running there?")]
    Connect {
        /// Where.
        address: Address,
        /// Why.
        source: io::Error,
    },
    /// The address can not be listened on.
    #[error("can not listen on {address}: {source}")]
    Listen {
        /// Where.
        address: Address,
        /// Why.
        source: io::Error,
    },
    /// Somebody listens on the address already.
    #[error("another process serves {address} already")]
    InUse {
        /// Where.
        address: Address,
    },
    /// The link goes over TCP, and this side has no key.
    #[error(
        "{peer} is reached over TCP, which needs the pool's key; copy the key file of that node here (penstock key)"
    )]
    NoKey {
        /// The peer.
        peer: String,
    },
    /// The peer proved another key than ours, or none.
    #[error(
        "{peer} has another key than this side; both sides need the same key file (penstock key)"
    )]
    WrongKey {
        /// The peer.
        peer: String,
    },
    /// The peer said no.
    #[error("{peer} refused: {verdict}")]
    Refused {
        /// The peer.
        peer: String,
        /// Its reason.
        verdict: Verdict,
    },
    /// This side said no to a peer.
    #[error("{peer} was refused: {verdict}")]
    Turned {
        /// The peer.
        peer: String,
        /// The reason given to it.
        verdict: Verdict,
    },
    /// The two sides speak different versions of the protocol.
    #[error(
        "{peer} speaks version {theirs} of the protocol, this side version {ours}; install the same release on both"
    )]
    WrongVersion {
        /// The peer.
        peer: String,
        /// Our version.
        ours: u16,
        /// Its version.
        theirs: u16,
    },
    /// The peer's bytes are not those of this protocol.
    #[error("{peer} does not speak this protocol; is the address right?")]
    NotPenstock {
        /// The peer.
        peer: String,
    },
    /// The peer did not finish the hello in time.
    #[error("{peer} did not finish the hello in time")]
    HelloTimeout {
        /// The peer.
        peer: String,
    },
    /// A daemon said nothing any more to this client in its line.
    #[error(
        "{peer} let us wait in line and then said nothing for {silence_ms} ms; it is stopped or overloaded"
    )]
    SilentLine {
        /// The peer.
        peer: String,
        /// How long it was silent.
        silence_ms: u64,
    },
    /// This side does not want the link any more, before it stood.
    #[error("this side gave up the link to {peer}")]
    GivenUp {
        /// The peer.
        peer: String,
    },
    /// The peer hung up, or this side closed the link.
    #[error("the link is closed")]
    Closed,
    /// A TCP peer no longer acknowledges anything.
    #[error("the peer has vanished: it acknowledges nothing any more")]
    Vanished,
    /// A child process used a link of its parent.
    #[error("the link belongs to the process that forked this one; open a new one after fork()")]
    Forked,
    /// The peer broke the protocol.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer's shared memory is not what was agreed, or it wrote nonsense into it.
    #[error("the shared memory of the link: {0}")]
    Ring(&'static str),
    /// The pieces of a payload are not as long as announced.
    #[error("a payload of {announced} bytes was announced, its pieces have {given}")]
    Pieces {
        /// Bytes announced.
        announced: u64,
        /// Bytes given so far.
        given: u64,
    },
    /// The system refused something.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl LinkError {
    /// For `map_err`: what was tried when the system refused.
    pub(crate) fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { doing, source: error.into() }
    }
}
