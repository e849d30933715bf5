//! Records every frame that this process sends and receives, if the variable `PENSTOCK_TRACE` names
//! a file. `penstock_wire::trace` has the format.
//!
//! Each record is written before the call that it belongs to returns, so that the trace of a
//! process that crashes has the frame that made it crash. Tracing is for finding defects: it takes
//! one or two system calls for each frame, and a client that traces offers no shared memory for
//! buffers, because bytes that travel outside of frames would be missing in the trace.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use penstock_process::{Guard, Lock, notice, variable};
use penstock_wire::trace::{CONTENT_BYTES_MAX, RecordKind, Writer, file_header, record_header};
use zerocopy::IntoBytes as _;

use crate::error::LinkError;
use crate::standard::beyond_standard;
use crate::transport::contract::Side;

/// Most traces with the same process id. In containers the programs of many runs have the same id.
const SAME_PROCESS_MAX: u32 = 1_000;

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
    /// Bytes that the trace still keeps of the payload of the frame that was sent last.
    sent_left: AtomicU64,
    /// Bytes that the trace still keeps of the payload of the frame that was received last.
    received_left: AtomicU64,
}

impl Recorder {
    /// Returns the recorder of this process, or `None` if it does not trace. The first link decides
    /// whether the process counts as a client or a worker.
    fn of_process(side: Side) -> Option<&'static Self> {
        static RECORDER: OnceLock<Option<Recorder>> = OnceLock::new();
        let make = || {
            let name = variable::TRACE.value()?;
            let first = named(&name, std::process::id(), 1);
            Self::create(&name, side).map_err(|error| complain(&first, &error)).ok()
        };
        RECORDER.get_or_init(make).as_ref()
    }

    fn create(name: &OsStr, side: Side) -> io::Result<Self> {
        let process = std::process::id();
        let (path, mut file) = new_file(name, process)?;
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
    fn file(&self) -> Option<Guard<'_, Option<File>>> {
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

    /// Takes back the records behind a position. After a failure the trace ends there.
    fn take_back(&self, file: &mut Option<File>, position: io::Result<u64>) {
        let Some(open) = file else { return };
        let taken = position.and_then(|position| {
            open.set_len(position)?;
            open.seek(SeekFrom::Start(position))
        });
        if let Err(error) = taken {
            complain(&self.path, &error);
            *file = None;
        }
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
}

/// Returns the part of the next bytes of a payload that the trace keeps, in pieces that fit a
/// record. The trace keeps `left` more bytes of the payload. Only one thread at a time sends or
/// receives the payload.
fn kept<'a>(left: &AtomicU64, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let room = left.load(Relaxed);
    let count = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
    left.store(room.saturating_sub(count as u64), Relaxed);
    bytes.get(..count).unwrap_or_default().chunks(CONTENT_BYTES_MAX)
}

/// Makes the file of a trace.
///
/// The file is always a new one. In a directory that others can write to, somebody may have left a
/// link, a pipe or a readable file under its name. Another library of Penstock in this process may
/// write its own trace there.
fn new_file(name: &OsStr, process: u32) -> io::Result<(PathBuf, File)> {
    let mut number = 1;
    loop {
        let path = named(name, process, number);
        // The trace contains what the program computes, so only its user may read it.
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && number < SAME_PROCESS_MAX =>
            {
                number += 1;
            }
            made => {
                let file = File::from(beyond_standard(made?.into())?);
                return Ok((path, file));
            }
        }
    }
}

/// Returns the name of a trace of one process.
fn named(name: &OsStr, process: u32, number: u32) -> PathBuf {
    let mut path = name.to_owned();
    path.push(match number {
        1 => format!(".{process}"),
        _ => format!(".{process}-{number}"),
    });
    path.into()
}

fn complain(path: &Path, error: &io::Error) {
    notice::print(format_args!("the trace {} ends here: {error}", path.display()));
}

/// Makes the file of the trace of this worker, if it traces, before it has a link. Call this before
/// the worker restricts which files it may use.
pub fn begin_trace_of_worker() {
    Recorder::of_process(Side::Worker);
}

impl LinkTrace {
    /// Begins the trace of a link, if this process traces. `peer` names the other side.
    pub(crate) fn begin(side: Side, peer: impl FnOnce() -> String) -> Option<Self> {
        Recorder::of_process(side).map(|recorder| Self::of(recorder, &peer()))
    }

    fn of(recorder: &'static Recorder, peer: &str) -> Self {
        let number = recorder.links.fetch_add(1, Relaxed) + 1;
        recorder.record(RecordKind::Opened, number, &[peer.as_bytes()]);
        Self { recorder, number, sent_left: AtomicU64::new(0), received_left: AtomicU64::new(0) }
    }

    /// Records the head of a frame that this side sends.
    pub(crate) fn sent(&self, head: &[&[u8]]) {
        self.sent_left.store(self.recorder.payload_bytes_max, Relaxed);
        self.recorder.record(RecordKind::Sent, self.number, head);
    }

    /// Records a frame if `send` sends it. The record is written first and taken back if the frame
    /// was not sent: the process may be killed as soon as the peer has the frame. Holds the file
    /// meanwhile, so that the answer, which another thread receives, comes behind the frame. `send`
    /// does not block.
    pub(crate) fn sent_if(
        &self,
        head: &[&[u8]],
        payload: &[u8],
        mut send: impl FnMut() -> Result<bool, LinkError>,
    ) -> Result<bool, LinkError> {
        let recorder = self.recorder;
        let Some(mut file) = recorder.file() else { return send() };
        let time = recorder.time();
        let before = file.as_mut().map(|file| file.stream_position());
        recorder.write(&mut file, time, RecordKind::Sent, self.number, head);
        self.sent_left.store(recorder.payload_bytes_max, Relaxed);
        for piece in kept(&self.sent_left, payload) {
            recorder.write(&mut file, time, RecordKind::SentPayload, self.number, &[piece]);
        }
        let sent = send();
        if let (Ok(false) | Err(_), Some(before)) = (&sent, before) {
            recorder.take_back(&mut file, before);
        }
        sent
    }

    /// Records the next bytes of the payload of the frame that was sent last.
    pub(crate) fn sent_payload(&self, bytes: &[u8]) {
        for piece in kept(&self.sent_left, bytes) {
            self.recorder.record(RecordKind::SentPayload, self.number, &[piece]);
        }
    }

    /// Records the head of a frame that this side has received.
    pub(crate) fn received(&self, head: &[&[u8]]) {
        self.received_left.store(self.recorder.payload_bytes_max, Relaxed);
        self.recorder.record(RecordKind::Received, self.number, head);
    }

    /// Records the next bytes of the payload of the frame that was received last.
    pub(crate) fn received_payload(&self, bytes: &[u8]) {
        for piece in kept(&self.received_left, bytes) {
            self.recorder.record(RecordKind::ReceivedPayload, self.number, &[piece]);
        }
    }
}

impl Drop for LinkTrace {
    fn drop(&mut self) {
        self.recorder.record(RecordKind::Closed, self.number, &[]);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use penstock_wire::trace::read;

    use super::*;

    /// Folder of one test. Dropping this value removes the folder.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("penstock-link-trace-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_trace_is_a_new_file_that_only_its_user_reads() {
        let folder = Folder::new("file");
        let (name, other) = (folder.0.join("trace"), folder.0.join("other"));
        let taken = named(name.as_os_str(), std::process::id(), 1);
        let leave: [&dyn Fn(); 5] = [
            &|| fs::write(&taken, "a file that all can read").unwrap(),
            &|| symlink(&other, &taken).unwrap(),
            &|| symlink(folder.0.join("nothing"), &taken).unwrap(),
            &|| fs::hard_link(&other, &taken).unwrap(),
            // Whoever opens a pipe for writing waits for a reader.
            &|| rustix::fs::mkfifoat(rustix::fs::CWD, &taken, 0o666.into()).unwrap(),
        ];
        for leave in leave {
            fs::write(&other, "content").unwrap();
            leave();
            let recorder = Recorder::create(name.as_os_str(), Side::Client).unwrap();
            assert_eq!(recorder.path, named(name.as_os_str(), std::process::id(), 2));
            let about = fs::symlink_metadata(&recorder.path).unwrap();
            assert!(about.is_file() && about.permissions().mode() & 0o077 == 0, "{about:?}");
            assert_eq!(fs::read_to_string(&other).unwrap(), "content");
            assert!(!folder.0.join("nothing").exists());
            for path in [&taken, &recorder.path] {
                fs::remove_file(path).unwrap();
            }
        }
    }

    #[test]
    fn two_libraries_in_one_process_write_two_traces() {
        let folder = Folder::new("two");
        let name = folder.0.join("trace");
        let create = || Recorder::create(name.as_os_str(), Side::Client).unwrap();
        let (one, two) = (create(), create());
        one.record(RecordKind::Opened, 1, &[b"one"]);
        two.record(RecordKind::Opened, 1, &[b"two"]);
        for (recorder, peer) in [(one, b"one"), (two, b"two")] {
            let file = fs::read(&recorder.path).unwrap();
            let [record] = read(&file).unwrap().records[..] else { panic!("not one record") };
            assert_eq!(record.content, peer);
        }
    }

    #[test]
    fn a_trace_keeps_the_beginning_of_each_payload_and_not_of_each_piece() {
        let folder = Folder::new("payload");
        let name = folder.0.join("trace");
        let mut recorder = Recorder::create(name.as_os_str(), Side::Client).unwrap();
        let path = recorder.path.clone();
        recorder.payload_bytes_max = 5;
        let trace = LinkTrace::of(Box::leak(Box::new(recorder)), "the test");
        for _ in 0..2 {
            trace.sent(&[b"head"]);
            for row in [b"abc", b"def", b"ghi"] {
                trace.sent_payload(row);
            }
            trace.received(&[b"head"]);
            for part in [b"123", b"456"] {
                trace.received_payload(part);
            }
        }
        assert!(trace.sent_if(&[b"head"], b"uvwxyz", || Ok(true)).unwrap());
        let file = fs::read(&path).unwrap();
        let content = |kind: RecordKind| {
            let records = read(&file).unwrap().records.into_iter();
            let ours = records.filter(|record| record.kind == kind);
            ours.map(|record| String::from_utf8_lossy(record.content)).collect::<String>()
        };
        assert_eq!(content(RecordKind::SentPayload), "abcdeabcdeuvwxy");
        assert_eq!(content(RecordKind::ReceivedPayload), "1234512345");
    }

    #[test]
    fn a_frame_is_recorded_before_it_is_sent_and_not_if_it_cannot_be() {
        let folder = Folder::new("before");
        let recorder = Recorder::create(folder.0.join("trace").as_os_str(), Side::Worker).unwrap();
        let path = recorder.path.clone();
        let trace = LinkTrace::of(Box::leak(Box::new(recorder)), "the test");
        let content = || -> Vec<String> {
            let file = fs::read(&path).unwrap();
            let records = read(&file).unwrap().records.into_iter().skip(1);
            records.map(|record| String::from_utf8_lossy(record.content).into_owned()).collect()
        };
        let mut seen = Vec::new();
        let sent = trace.sent_if(&[b"one"], b"payload", || {
            seen = content();
            Ok(true)
        });
        assert!(sent.unwrap() && seen == ["one", "payload"], "{seen:?}");
        assert!(!trace.sent_if(&[b"two"], b"payload", || Ok(false)).unwrap());
        trace.sent_if(&[b"three"], b"", || Err(LinkError::Closed)).unwrap_err();
        assert!(trace.sent_if(&[b"four"], b"", || Ok(true)).unwrap());
        assert_eq!(content(), ["one", "payload", "four"]);
    }
}
