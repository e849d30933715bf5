//! Records every frame that this process sends and receives, if the variable `PENSTOCK_TRACE` names
//! a file. `penstock_wire::trace` has the format.
//!
//! Each record is written before the call that it belongs to returns, so that the trace of a
//! process that crashes has the frame that made it crash. Tracing is for finding defects: it takes
//! one or two system calls for each frame, and a client that traces offers no shared memory for
//! buffers, because bytes that travel outside of frames would be missing in the trace.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use penstock_process::{Lock, notice, variable};
use penstock_wire::trace::{CONTENT_BYTES_MAX, RecordKind, Writer, file_header, record_header};
use zerocopy::IntoBytes as _;

use crate::error::LinkError;
use crate::transport::contract::Side;

/// The trace of this process.
#[derive(Debug)]
struct Recorder {
    path: PathBuf,
    /// `None` after a write has failed.
    file: Lock<Option<File>>,
    started: Instant,
    process: u32,
    /// Number of links so far.
    links: AtomicU32,
    payload_bytes_max: u64,
}

/// The trace of one link.
#[derive(Debug)]
pub(crate) struct LinkTrace {
    recorder: &'static Recorder,
    number: u32,
}

impl Recorder {
    /// Returns the recorder of this process, or `None` if it does not trace. The first link decides
    /// whether the process counts as a client or a worker.
    fn of_process(side: Side) -> Option<&'static Self> {
        static RECORDER: OnceLock<Option<Recorder>> = OnceLock::new();
        let make = || {
            let path = named(variable::TRACE.value()?, std::process::id());
            Self::create(path.clone(), side).map_err(|error| complain(&path, &error)).ok()
        };
        RECORDER.get_or_init(make).as_ref()
    }

    fn create(path: PathBuf, side: Side) -> io::Result<Self> {
        let process = std::process::id();
        let mut options = OpenOptions::new();
        // The trace contains what the program computes, so only its user may read it.
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = Instant::now();
        let writer = match side {
            Side::Client => Writer::Client,
            Side::Worker => Writer::Worker,
        };
        let since = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        file.write_all(file_header(writer, process, since).as_bytes())?;
        let payload_bytes_max = variable::TRACE_PAYLOAD.number().unwrap_or(u64::MAX);
        let (file, links) = (Lock::new(Some(file)), AtomicU32::new(0));
        Ok(Self { path, file, started, process, links, payload_bytes_max })
    }

    /// Returns the file while no other thread writes a record. Returns `None` in a forked child,
    /// which has the descriptor of its parent.
    fn file(&self) -> Option<MutexGuard<'_, Option<File>>> {
        (std::process::id() == self.process).then(|| self.file.lock())
    }

    fn record(&self, kind: RecordKind, link: u32, content: &[&[u8]]) {
        if let Some(mut file) = self.file() {
            self.write(&mut file, self.time(), kind, link, content);
        }
    }

    /// Returns the time since the beginning of the trace, in ns.
    fn time(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Writes one record. After a failure the trace ends there.
    fn write(
        &self,
        file: &mut Option<File>,
        time: u64,
        kind: RecordKind,
        link: u32,
        content: &[&[u8]],
    ) {
        let Some(open) = file else { return };
        let bytes = content.iter().map(|piece| piece.len()).sum::<usize>();
        // A head has at most 512 KiB, and `payload` keeps to `CONTENT_BYTES_MAX`.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let fixed = record_header(kind, link, time, bytes);
        let mut written = open.write_all(fixed.as_bytes());
        for piece in content {
            written = written.and_then(|()| open.write_all(piece));
        }
        if let Err(error) = written {
            complain(&self.path, &error);
            *file = None;
        }
    }

    /// Returns the part of a payload that the trace keeps, in pieces that fit a record.
    fn kept<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let count = usize::try_from(self.payload_bytes_max).unwrap_or(usize::MAX).min(bytes.len());
        bytes.get(..count).unwrap_or_default().chunks(CONTENT_BYTES_MAX)
    }

    fn payload(&self, kind: RecordKind, link: u32, bytes: &[u8]) {
        for piece in self.kept(bytes) {
            self.record(kind, link, &[piece]);
        }
    }
}

/// Returns the name of the trace of one process.
fn named(mut path: OsString, process: u32) -> PathBuf {
    path.push(format!(".{process}"));
    path.into()
}

fn complain(path: &Path, error: &io::Error) {
    notice::print(format_args!("the trace {} ends here: {error}", path.display()));
}

impl LinkTrace {
    /// Begins the trace of a link to `peer`, if this process traces.
    pub(crate) fn begin(side: Side, peer: &str) -> Option<Self> {
        let recorder = Recorder::of_process(side)?;
        let trace = Self { recorder, number: recorder.links.fetch_add(1, Relaxed) + 1 };
        trace.recorder.record(RecordKind::Opened, trace.number, &[peer.as_bytes()]);
        Some(trace)
    }

    /// Records the head of a frame that this side sends.
    pub(crate) fn sent(&self, head: &[&[u8]]) {
        self.recorder.record(RecordKind::Sent, self.number, head);
    }

    /// Records a frame if `send` sends it. Holds the file meanwhile, so that the answer, which
    /// another thread receives, comes behind the frame. `send` does not block.
    pub(crate) fn sent_if(
        &self,
        head: &[&[u8]],
        payload: &[u8],
        mut send: impl FnMut() -> Result<bool, LinkError>,
    ) -> Result<bool, LinkError> {
        let recorder = self.recorder;
        let Some(mut file) = recorder.file() else { return send() };
        let time = recorder.time();
        let sent = send()?;
        if sent {
            recorder.write(&mut file, time, RecordKind::Sent, self.number, head);
            for piece in recorder.kept(payload) {
                recorder.write(&mut file, time, RecordKind::SentPayload, self.number, &[piece]);
            }
        }
        Ok(sent)
    }

    /// Records the next bytes of the payload of the frame that was sent last.
    pub(crate) fn sent_payload(&self, bytes: &[u8]) {
        self.recorder.payload(RecordKind::SentPayload, self.number, bytes);
    }

    /// Records the head of a frame that this side has received.
    pub(crate) fn received(&self, head: &[&[u8]]) {
        self.recorder.record(RecordKind::Received, self.number, head);
    }

    /// Records the next bytes of the payload of the frame that was received last.
    pub(crate) fn received_payload(&self, bytes: &[u8]) {
        self.recorder.payload(RecordKind::ReceivedPayload, self.number, bytes);
    }
}

impl Drop for LinkTrace {
    fn drop(&mut self) {
        self.recorder.record(RecordKind::Closed, self.number, &[]);
    }
}
