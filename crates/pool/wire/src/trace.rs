//! Format of a trace: every frame that one process sent or received, with its time. Without I/O.
//!
//! ```text
//! | FileHeader | RecordHeader | content | RecordHeader | content | ...
//! ```
//!
//! A frame is one record with its head (header, body and wait list), then any number of records
//! with the bytes of its payload. On one link the records of one direction have the order of the
//! frames. A process that was killed leaves a trace whose last record may be cut off.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::frame::{Frame, FrameError, Header};
use crate::id::{Id, kind};
use crate::limits::PROTOCOL_VERSION;

/// First bytes of every trace.
pub const MAGIC: [u8; 8] = *b"PENTRACE";

/// Version of this format. A reader refuses all others.
pub const VERSION: u16 = 1;

/// The process that wrote a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Writer {
    Client = 1,
    Worker = 2,
}

/// First part of a trace.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct FileHeader {
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U16,
    /// Version of the protocol, [`PROTOCOL_VERSION`].
    pub protocol: U16,
    /// Number of a [`Writer`].
    pub writer: U16,
    /// Process id of the writer.
    pub process: U32,
    /// Time of the records with time 0, in ns since the beginning of 1970.
    pub started: U64,
}

/// What a record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum RecordKind {
    /// A link was established. Content: the peer, as a text.
    Opened = 1,
    /// This process sent a frame. Content: the frame's head.
    Sent = 2,
    /// Content: the next bytes of the payload of the frame that was sent last.
    SentPayload = 3,
    /// This process received a frame. Content: the frame's head.
    Received = 4,
    /// Content: the next bytes of the payload of the frame that was received last.
    ReceivedPayload = 5,
    /// The link has ended. Without content.
    Closed = 6,
}

impl RecordKind {
    const ALL: [Self; 6] = [
        Self::Opened,
        Self::Sent,
        Self::SentPayload,
        Self::Received,
        Self::ReceivedPayload,
        Self::Closed,
    ];

    fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u16 == number)
    }
}

/// Fixed part of a record.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RecordHeader {
    /// Number of a [`RecordKind`].
    pub kind: U16,
    /// Number of the link among those of this process, from 1.
    pub link: U32,
    /// Time since [`FileHeader::started`], in ns.
    pub time: U64,
    /// Size of the content, in bytes.
    pub bytes: U32,
}

/// Largest content of one record, in bytes. Longer payloads are several records.
pub const CONTENT_BYTES_MAX: usize = 1 << 30;

/// One record of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub kind: RecordKind,
    /// Number of the link among those of this process, from 1.
    pub link: u32,
    /// Time since [`FileHeader::started`], in ns.
    pub time: u64,
    pub content: &'a [u8],
}

/// Why a file is not a trace that this version can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    #[error("this is not a trace")]
    NotATrace,
    #[error("this trace has version {0} of the format; this program reads version {VERSION}")]
    Version(u16),
    #[error("this trace has protocol {0}; this program reads protocol {PROTOCOL_VERSION}")]
    Protocol(u16),
    #[error("the record at byte {at} is not one of a trace")]
    Record {
        /// Position of the record in the file, in bytes.
        at: usize,
    },
}

/// Returns the header of a new trace.
#[must_use]
pub fn file_header(writer: Writer, process: u32, started: u64) -> FileHeader {
    FileHeader {
        magic: MAGIC,
        version: U16::new(VERSION),
        protocol: U16::new(PROTOCOL_VERSION),
        writer: U16::new(writer as u16),
        process: U32::new(process),
        started: U64::new(started),
    }
}

/// Returns the fixed part of a record with `bytes` bytes of content.
#[must_use]
pub fn record_header(kind: RecordKind, link: u32, time: u64, bytes: u32) -> RecordHeader {
    RecordHeader {
        kind: U16::new(kind as u16),
        link: U32::new(link),
        time: U64::new(time),
        bytes: U32::new(bytes),
    }
}

/// The content of a trace.
#[derive(Clone, Debug)]
pub struct Trace<'a> {
    pub writer: Writer,
    /// Process id of the writer.
    pub process: u32,
    /// Time of the records with time 0, in ns since the beginning of 1970.
    pub started: u64,
    pub records: Vec<Record<'a>>,
    /// Number of bytes at the end that belong to a record that was cut off.
    pub cut_off: usize,
}

/// Reads a trace.
///
/// # Errors
/// If the bytes are not a trace of this version.
pub fn read(file: &[u8]) -> Result<Trace<'_>, TraceError> {
    let (header, mut rest) =
        FileHeader::read_from_prefix(file).map_err(|_| TraceError::NotATrace)?;
    if header.magic != MAGIC {
        return Err(TraceError::NotATrace);
    }
    if header.version.get() != VERSION {
        return Err(TraceError::Version(header.version.get()));
    }
    if header.protocol.get() != PROTOCOL_VERSION {
        return Err(TraceError::Protocol(header.protocol.get()));
    }
    let writer = [Writer::Client, Writer::Worker]
        .into_iter()
        .find(|writer| *writer as u16 == header.writer.get())
        .ok_or(TraceError::NotATrace)?;
    let mut records = Vec::new();
    while let Ok((fixed, after)) = RecordHeader::read_from_prefix(rest) {
        let at = file.len() - rest.len();
        let kind = RecordKind::from_number(fixed.kind.get()).ok_or(TraceError::Record { at })?;
        let bytes = usize::try_from(fixed.bytes.get()).map_err(|_| TraceError::Record { at })?;
        let Some((content, after)) = after.split_at_checked(bytes) else { break };
        records.push(Record { kind, link: fixed.link.get(), time: fixed.time.get(), content });
        rest = after;
    }
    Ok(Trace {
        writer,
        process: header.process.get(),
        started: header.started.get(),
        records,
        cut_off: rest.len(),
    })
}

/// Takes the head of a frame apart: its header, body and wait list.
///
/// # Errors
/// If the parts do not have the sizes that the header tells.
pub fn head(content: &[u8]) -> Result<Frame<'_>, FrameError> {
    let (header, rest) = Header::read_from_prefix(content).map_err(|_| FrameError::Broken)?;
    let (body, waits) =
        rest.split_at_checked(usize::from(header.body.get())).ok_or(FrameError::Broken)?;
    let waits = <[Id<kind::Event>]>::ref_from_bytes(waits).map_err(|_| FrameError::Broken)?;
    if waits.len() != usize::from(header.waits.get()) {
        return Err(FrameError::Broken);
    }
    Ok(Frame { header, body, waits })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(records: &[(RecordKind, &[u8])]) -> Vec<u8> {
        let mut file = file_header(Writer::Worker, 42, 1000).as_bytes().to_vec();
        for (kind, content) in records {
            let bytes = u32::try_from(content.len()).unwrap();
            file.extend_from_slice(record_header(*kind, 3, 7, bytes).as_bytes());
            file.extend_from_slice(content);
        }
        file
    }

    #[test]
    fn a_trace_survives_a_round_trip() {
        let written: Vec<(RecordKind, &[u8])> = RecordKind::ALL
            .into_iter()
            .zip([b"abc".as_slice(), b"", b"x", b"yy", b"z", b""])
            .collect();
        let file = file(&written);
        let trace = read(&file).unwrap();
        assert_eq!((trace.writer, trace.process, trace.started), (Writer::Worker, 42, 1000));
        assert_eq!(trace.cut_off, 0);
        let read: Vec<_> =
            trace.records.iter().map(|record| (record.kind, record.content)).collect();
        assert_eq!(read, written);
        assert!(trace.records.iter().all(|record| (record.link, record.time) == (3, 7)));
    }

    #[test]
    fn a_trace_that_was_cut_off_keeps_its_whole_records() {
        let whole = file(&[(RecordKind::Sent, b"0123456789"), (RecordKind::Received, b"abcdefgh")]);
        let first = size_of::<FileHeader>() + size_of::<RecordHeader>() + 10;
        for length in size_of::<FileHeader>()..whole.len() {
            let trace = read(whole.get(..length).unwrap()).unwrap();
            assert_eq!(trace.records.len(), usize::from(length >= first));
            let complete = if length >= first { first } else { size_of::<FileHeader>() };
            assert_eq!(trace.cut_off, length - complete);
        }
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        assert_eq!(read(b"").unwrap_err(), TraceError::NotATrace);
        let mut wrong = file(&[(RecordKind::Opened, b"peer")]);
        wrong[8] = 9;
        assert_eq!(read(&wrong).unwrap_err(), TraceError::Version(9));
        wrong[8] = 1;
        let at = size_of::<FileHeader>();
        wrong[at] = 99;
        assert_eq!(read(&wrong).unwrap_err(), TraceError::Record { at });
        wrong[0] = 0;
        assert_eq!(read(&wrong).unwrap_err(), TraceError::NotATrace);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_behind_a_header_are_read_or_refused(
            tail in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        ) {
            let mut bytes = file(&[]);
            bytes.extend_from_slice(&tail);
            if let Ok(trace) = read(&bytes) {
                for record in trace.records {
                    _ = head(record.content).map(|frame| {
                        crate::calls::show(frame.header.opcode.get(), frame.body)
                    });
                }
            }
        }
    }
}
