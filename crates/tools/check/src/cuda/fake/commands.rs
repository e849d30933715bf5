//! The effects of commands on memory.

use std::sync::Arc;
use std::time::Duration;

use super::{Area, Bytes, Defect, Inner, Name, State, Task};
use crate::cuda::backend::{At, Caller, Command, Handle, PeerSide, Place};
use crate::cuda::model::pattern_bytes;
use crate::cuda::plan::{Kernel, Rows};
use crate::machine::{Tasks as _, Work};
use crate::model::mix;

/// One side of a copy: its memory, and an offset.
type End = (Bytes, usize);

fn load(end: &End, len: usize) -> Vec<u8> {
    end.0.lock()[end.1..end.1 + len].to_vec()
}

fn store(end: &End, bytes: &[u8]) {
    end.0.lock()[end.1..end.1 + bytes.len()].copy_from_slice(bytes);
}

/// Reads rows into consecutive bytes.
fn gather(end: &End, rows: &Rows, pitch: usize) -> Vec<u8> {
    let row = |row: usize| load(&(Arc::clone(&end.0), end.1 + row * pitch), rows.width);
    (0..rows.height).flat_map(row).collect()
}

fn scatter(end: &End, rows: &Rows, pitch: usize, bytes: &[u8]) {
    for (row, bytes) in bytes.chunks_exact(rows.width).enumerate() {
        store(&(Arc::clone(&end.0), end.1 + row * pitch), bytes);
    }
}

impl Inner {
    fn area(&self, at: At) -> Area {
        self.surroundings.areas.all.lock()[&at.area.0].clone()
    }

    fn end(&self, state: &State, place: Place) -> End {
        match place {
            Place::Host(at) => (self.area(at).bytes, at.offset),
            Place::Device { mem, offset } => (Arc::clone(&state.mems[&mem.0]), offset),
        }
    }

    /// Enqueues the asynchronous form of a command.
    pub(super) fn later(&self, by: Caller, name: Name, command: &Command) {
        let mut state = self.state.lock();
        let work = self.work(&state, command, self.is_captured(&state, by, command));
        let task = self.add(&mut state, name, by.context.0, Vec::new(), work);
        self.note_writer(by, command, task);
        if let (Command::Function(function), true) = (command, self.is(Defect::LateFunction)) {
            let function = Arc::clone(function);
            let late = Box::new(move || {
                std::thread::sleep(Duration::from_micros(300));
                function();
            });
            self.aside(&mut state, by, vec![task], late);
        }
        if let (Command::Fill { mem, offset, len, unit, value }, true) =
            (command, self.is(Defect::TornFill))
        {
            let half = len / 2 / unit * unit;
            let target = (Arc::clone(&state.mems[&mem.0]), offset + half);
            let bytes: Vec<u8> =
                value.to_le_bytes()[..*unit].iter().copied().cycle().take(len - half).collect();
            let late = Box::new(move || {
                std::thread::sleep(Duration::from_micros(300));
                store(&target, &bytes);
            });
            self.aside(&mut state, by, vec![task], late);
        }
    }

    /// Adds a task that nothing waits for.
    fn aside(&self, state: &mut State, by: Caller, after: Vec<usize>, work: Work) {
        let id = state.fresh();
        let task =
            Task { context: by.context.0, stream: None, work: Some(work), after, has_ended: false };
        state.tasks.insert(id, task);
        self.changed.notify_all();
    }

    /// Whether a command reads host memory when it is enqueued. A weak implementation may do so
    /// with pageable memory.
    fn is_captured(&self, state: &State, by: Caller, command: &Command) -> bool {
        let (Command::Copy { from: Place::Host(at), .. }
        | Command::Copy2D { from: Place::Host(at), .. }) = command
        else {
            return self.is(Defect::EarlyPeer) && matches!(command, Command::Peer { .. });
        };
        let area = self.area(*at);
        let foreign = area
            .writer
            .is_some_and(|(task, context)| context != by.context && !state.has_ended(task));
        self.is(Defect::EarlyCapture)
            || self.is(Defect::EarlyCaptureAcross) && foreign
            || self.surroundings.is_weak && !area.pinned
    }

    /// Returns whether an open copy writes the array of this place.
    fn is_being_written(&self, at: At) -> bool {
        let writer = self.area(at).writer;
        writer.is_some_and(|(task, _)| !self.state.lock().has_ended(task))
    }

    fn note_writer(&self, by: Caller, command: &Command, task: usize) {
        let (Command::Copy { to: Place::Host(at), .. }
        | Command::Copy2D { to: Place::Host(at), .. }) = command
        else {
            return;
        };
        self.surroundings
            .areas
            .all
            .lock()
            .entry(at.area.0)
            .and_modify(|it| it.writer = Some((task, by.context)));
    }

    /// Performs the synchronous form of a command.
    pub(super) fn now(&self, by: Caller, command: &Command) -> i32 {
        let name = Name::Legacy(by.context);
        let (Command::Copy { to, from, .. } | Command::Copy2D { to, from, .. }) = command else {
            if let Command::Peer { to, from, .. } = command {
                return self.peer_now(by, [to.context, from.context], command);
            }
            self.later(by, name, command);
            return 0;
        };
        let pinned_source = matches!(from, Place::Host(at) if self.area(*at).pinned);
        let (is_write, is_read) = (matches!(from, Place::Host(_)), matches!(to, Place::Host(_)));
        let overtakes = self.is(Defect::EarlyPageableWrite)
            && matches!(from, Place::Host(at) if !self.is_being_written(*at));
        if is_write && !pinned_source && !overtakes {
            // "A stream sync is performed before the copy is initiated."
            let before = {
                let state = self.state.lock();
                self.before(&state, name, by.context.0)
            };
            let code = self.wait(&before);
            if code != 0 {
                return code;
            }
        }
        let task = {
            let mut state = self.state.lock();
            let work = self.work(&state, command, is_write && !pinned_source);
            self.add(&mut state, name, by.context.0, Vec::new(), work)
        };
        let returns_early = pinned_source && self.is(Defect::EarlyPinnedWrite)
            || is_read && self.is(Defect::EarlyRead)
            || is_write && !pinned_source && overtakes
            || is_write && !pinned_source && self.surroundings.is_weak;
        if (is_write || is_read) && !returns_early { self.wait(&[task]) } else { 0 }
    }

    /// Copies between contexts, in the order of the legacy default streams of both contexts.
    fn peer_now(&self, by: Caller, contexts: [Handle; 2], command: &Command) -> i32 {
        let mut state = self.state.lock();
        let names = contexts.map(Name::Legacy);
        let after = names
            .iter()
            .zip(contexts)
            .flat_map(|(name, it)| self.before(&state, *name, it.0))
            .collect();
        let work = self.work(&state, command, self.is(Defect::EarlyPeer));
        let task = self.add(&mut state, Name::Legacy(by.context), by.context.0, after, work);
        for (name, context) in names.into_iter().zip(contexts) {
            let queue = state.queues.entry(name).or_default();
            (queue.context, queue.tail) = (context.0, Some(task));
        }
        0
    }

    /// Launches a graph: adds one task for each part, and one that joins them.
    pub(super) fn launch(&self, by: Caller, graph: Handle, name: Name) {
        let mut state = self.state.lock();
        let Some(known) = state.graphs.get(&graph.0) else { return };
        let (parts, last) = (known.parts.clone(), known.last);
        let mut entry: Vec<usize> =
            last.filter(|_| !self.is(Defect::OverlappingLaunches)).into_iter().collect();
        entry.extend(self.before(&state, name, by.context.0));
        let (mut first, mut second): (Vec<usize>, Option<Vec<usize>>) = (entry, None);
        for (beside, command) in &parts {
            let work = self.work(&state, command, self.is(Defect::EarlyCapture));
            let branch =
                if *beside { second.get_or_insert_with(|| first.clone()) } else { &mut first };
            let id = state.fresh();
            let after = std::mem::replace(branch, vec![id]);
            let context = by.context.0;
            state.tasks.insert(
                id,
                Task { context, stream: Some(name), work: Some(work), after, has_ended: false },
            );
        }
        if !self.is(Defect::LooseBranch) {
            first.extend(second.into_iter().flatten());
        }
        let join = self.add(&mut state, name, by.context.0, first, Box::new(|| {}));
        if let Some(known) = state.graphs.get_mut(&graph.0) {
            known.last = Some(join);
        }
    }

    /// Returns a closure that does the work of a command. If `captured` is set, copies read their
    /// source now and not when the closure runs. Other commands ignore `captured`.
    fn work(&self, state: &State, command: &Command, captured: bool) -> Work {
        match command {
            Command::Copy { to, from, len } => {
                let (to, from, len) = (self.end(state, *to), self.end(state, *from), *len);
                let early = captured.then(|| load(&from, len));
                Box::new(move || store(&to, &early.unwrap_or_else(|| load(&from, len))))
            }
            Command::Copy2D { to, from, rows } => {
                let wrong = self.is(Defect::WrongPitch);
                let pitch = |place: &Place, pitch| {
                    if wrong && matches!(place, Place::Host(_)) { rows.width } else { pitch }
                };
                let (to_pitch, from_pitch) =
                    (pitch(to, rows.to_pitch), pitch(from, rows.from_pitch));
                let (to, from, rows) = (self.end(state, *to), self.end(state, *from), *rows);
                let early = captured.then(|| gather(&from, &rows, from_pitch));
                Box::new(move || {
                    let bytes = early.unwrap_or_else(|| gather(&from, &rows, from_pitch));
                    scatter(&to, &rows, to_pitch, &bytes);
                })
            }
            Command::Peer { to, from, len } => {
                let end = |side: &PeerSide| (Arc::clone(&state.mems[&side.mem.0]), side.offset);
                let (to, from, len) = (end(to), end(from), *len);
                let early = captured.then(|| load(&from, len));
                Box::new(move || store(&to, &early.unwrap_or_else(|| load(&from, len))))
            }
            Command::Fill { mem, offset, len, unit, value } => {
                let target = (Arc::clone(&state.mems[&mem.0]), *offset);
                let len = if self.is(Defect::TornFill) { len / 2 / unit * unit } else { *len };
                let bytes: Vec<u8> =
                    value.to_le_bytes()[..*unit].iter().copied().cycle().take(len).collect();
                Box::new(move || store(&target, &bytes))
            }
            Command::Fill2D { mem, offset, rows, value } => {
                let (target, rows) = ((Arc::clone(&state.mems[&mem.0]), *offset), *rows);
                let bytes: Vec<u8> = value
                    .to_le_bytes()
                    .iter()
                    .copied()
                    .cycle()
                    .take(rows.width * rows.height)
                    .collect();
                Box::new(move || scatter(&target, &rows, rows.to_pitch, &bytes))
            }
            Command::Launch { kernel, a, b, count, seed, spin } => {
                let target = (Arc::clone(&state.mems[&a.0.0]), a.1);
                let source = b.map(|b| (Arc::clone(&state.mems[&b.0.0]), b.1));
                let (kernel, len, seed, spin) = (*kernel, count * 4, *seed, u64::from(*spin));
                Box::new(move || {
                    if kernel == Kernel::Slow {
                        std::thread::sleep(Duration::from_nanos(spin / 8));
                    }
                    match &source {
                        Some(source) => {
                            store(&target, &mixed(&load(&target, len), &load(source, len), seed))
                        }
                        None => store(&target, &pattern_bytes(seed, len)),
                    }
                })
            }
            Command::Function(function) => {
                let function = Arc::clone(function);
                if self.is(Defect::LateFunction) {
                    Box::new(|| {})
                } else {
                    Box::new(move || function())
                }
            }
        }
    }
}

fn mixed(own: &[u8], other: &[u8], seed: u32) -> Vec<u8> {
    let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let words = own.chunks_exact(4).zip(other.chunks_exact(4));
    words.flat_map(|(own, other)| mix(word(own), word(other), seed).to_le_bytes()).collect()
}
