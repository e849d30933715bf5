//! Reads: from the device to the client.
//!
//! A small read of an idle queue is copied out of home memory. A large one goes from home memory
//! straight to the link, and a gate holds the queue's next command back until the bytes are sent.
//! All others go through staged pieces, which on a CPU device are one more copy, by a thread that
//! competes with the link for a core (16 MiB over TCP within a host: 4.5 ms instead of 3.3).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use penstock_device as device;
use penstock_device::{HomeBytes, Staged, Times, Want};
use penstock_process::{Guard, Lock};
use penstock_trial::{Defect, planted};
use penstock_wire::calls::{Attached, Serve, Served, to_client, to_worker};
use penstock_wire::id::kind;
use penstock_wire::{FrameError, Id, Status, U64};

use super::command::{CommandIds, follow, prepare, rect, refuse};
use crate::session::event::Event;
use crate::session::pieces::{Area, PIECE_BYTES_MAX, StagedBody};
use crate::session::queue::Queue;
use crate::session::send_gate::SendGate;
use crate::session::shared_session::SharedSession;
use crate::session::{Session, triple};

/// Largest read that is copied: a copy of 64 KiB takes some 5 µs, like marker and gate of a read in
/// place.
const COPIED_BYTES_MAX: u64 = 64 << 10;

/// Home memory on its way to the client.
struct Sending {
    shared: Arc<SharedSession>,
    event: Arc<Event>,
    /// For reads with times: the times of the turn at the device, and when it was noticed.
    turn: OnceLock<(Times, Instant)>,
    /// Number of steps left: the bytes are sent; the status for the client is known.
    left: AtomicUsize,
    /// Holds the queue's later commands back until all bytes are sent.
    gate: Arc<SendGate>,
}

impl Sending {
    fn new(shared: &Arc<SharedSession>, event: &Arc<Event>) -> Arc<Self> {
        Arc::new(Self {
            shared: shared.clone(),
            event: event.clone(),
            turn: OnceLock::new(),
            left: AtomicUsize::new(2),
            gate: Arc::default(),
        })
    }

    fn step(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        if let Some((times, told)) = self.turn.get() {
            // The client first: the answer to a finish that finds the queue idle must come after
            // this.
            self.shared.tell_event(
                &self.event,
                Status::OK,
                sent_after(*times, penstock_process::since(*told)),
            );
        }
        let held = self.gate.note_sent();
        self.event.end(Status::OK);
        if let Some(held) = held {
            // If the context is gone, the gate holds no command back.
            _ = held.complete(Status::OK);
        }
    }
}

/// Returns the times of a read that was sent within `took` after its turn, on the host's clock.
fn sent_after(turn: Times, took: Duration) -> Times {
    let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    let ended = turn.ended.saturating_add(took);
    Times { ended, completed: turn.completed.max(ended), ..turn }
}

/// Body of a frame that is home memory itself.
struct HomeBody {
    bytes: HomeBytes,
    sending: Arc<Sending>,
}

impl AsRef<[u8]> for HomeBody {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl Drop for HomeBody {
    fn drop(&mut self) {
        self.sending.step();
    }
}

impl Session {
    fn read(
        &mut self,
        names: CommandIds<'_>,
        mem: Id<kind::Mem>,
        area: impl FnOnce(&device::Mem) -> Result<Area, Status>,
    ) -> Result<(), FrameError> {
        // The bytes are sent under the event's id.
        let event =
            self.shared.events.announce(names.event)?.ok_or(FrameError::BadId("a read's event"))?;
        let Some((queue, waits)) = prepare(&self.shared, &mut self.queues, names, Some(&event))
        else {
            return Ok(());
        };
        let checked = self.objects.mems.get(mem).and_then(|mem| Ok((mem, area(mem)?)));
        let (mem, area) = match checked {
            Ok(checked) => checked,
            Err(status) => {
                refuse(&self.shared, Some(queue), Some(&event), status);
                return Ok(());
            }
        };
        let waits: Vec<&device::Event> = waits.iter().collect();
        let read = Read { shared: &self.shared, queue, event: &event, mem, area };
        if let Err(status) = read.start(&waits)? {
            refuse(&self.shared, None, Some(&event), status);
        }
        self.note_unflushed(names.queue);
        Ok(())
    }
}

struct Read<'a> {
    shared: &'a Arc<SharedSession>,
    queue: &'a mut Queue,
    event: &'a Arc<Event>,
    mem: &'a device::Mem,
    area: Area,
}

impl Read<'_> {
    fn start(mut self, waits: &[&device::Event]) -> Result<Result<(), Status>, FrameError> {
        if self.area.bytes == 0 {
            return Ok(self.queue.pass_gate().and_then(|()| self.nothing(waits)));
        }
        if let Some(offset) = self.area.linear() {
            // If times are wanted, the device must say when the read had its turn.
            let idle = !self.queue.timed && waits.is_empty() && self.queue.can_be_read();
            if idle && self.area.bytes <= COPIED_BYTES_MAX {
                self.shared.wait_for_room(self.area.bytes)?;
                if self.copy(offset) {
                    return Ok(Ok(()));
                }
            }
            if self.queue.in_order
                && self.area.bytes > COPIED_BYTES_MAX
                && let Some(bytes) = self.mem.home_bytes(offset, self.area.bytes)
            {
                return Ok(self.in_place(bytes, idle, waits));
            }
        }
        if let Err(status) = self.queue.pass_gate() {
            return Ok(Err(status));
        }
        self.in_pieces(waits)
    }

    /// Reads no bytes: only takes its turn.
    fn nothing(&mut self, waits: &[&device::Event]) -> Result<(), Status> {
        let marker =
            self.queue.device.marker(waits, Want::Event)?.ok_or(Status::OUT_OF_RESOURCES)?;
        let mark = self.queue.count();
        self.queue.set_last(self.event);
        follow(self.shared, self.event.clone(), &marker, mark);
        Ok(())
    }

    /// Copies out of home memory at once.
    fn copy(&self, offset: u64) -> bool {
        let Some(home) = self.mem.home() else { return false };
        let Ok(size) = usize::try_from(self.area.bytes) else { return false };
        let Ok(mut bytes) = Staged::new(size) else { return false };
        if home.read(offset, &mut bytes).is_err() {
            return false;
        }
        let call = to_client::ReadData { event: self.event.id(), offset: U64::ZERO };
        let body = self.shared.content(StagedBody(bytes));
        self.shared.outbox.post_before(&call, &[], body);
        self.shared.end_event(self.event, Status::OK, Times::default());
        true
    }

    /// Sends home memory itself, now or in its turn.
    fn in_place(
        &mut self,
        bytes: HomeBytes,
        idle: bool,
        waits: &[&device::Event],
    ) -> Result<(), Status> {
        let sending = Sending::new(self.shared, self.event);
        let body = HomeBody { bytes, sending: sending.clone() };
        if idle {
            send_in_place(body);
            self.queue.set_sending(sending.gate.clone(), self.event);
            return Ok(());
        }
        let timed = self.queue.timed;
        if timed {
            // Its times must not overlap those of the read before.
            self.queue.pass_gate()?;
        }
        // Without times it does not pass the gate: a read may overtake the sending of another one.
        let turn = self.queue.device.marker(waits, Want::Event)?.ok_or(Status::OUT_OF_RESOURCES)?;
        let end_turn = self.queue.count().expect();
        self.queue.set_sending(sending.gate.clone(), self.event);
        turn.on_complete(Box::new(move |status, times| {
            let event = body.sending.event.clone();
            event.when_known(status, move |status| {
                end_turn.take(move |mark| {
                    mark.reach();
                    send_or_fail(body, status, timed.then_some(times));
                });
            });
        }));
        Ok(())
    }

    /// Reads pieces into staged memory; each is sent while the next is read.
    fn in_pieces(self, waits: &[&device::Event]) -> Result<Result<(), Status>, FrameError> {
        let mut pieces: Vec<_> = self.area.pieces(PIECE_BYTES_MAX).collect();
        if planted(Defect::LastPiece) && pieces.len() > 1 {
            pieces.pop();
        }
        let awaited = if planted(Defect::FirstPiece) { 1 } else { pieces.len() };
        let gather = Arc::new(PieceGather::new(self.shared.clone(), self.event.clone(), awaited));
        let last = pieces.len().saturating_sub(1);
        for (at, piece) in pieces.iter().enumerate() {
            self.shared.wait_for_room(piece.bytes)?;
            let reading = match self.area.read(&self.queue.device, self.mem, piece, waits) {
                Ok(reading) => reading,
                Err(status) => {
                    // Earlier pieces are pending: the event ends with the last of them.
                    gather.fail(status, pieces.len() - at);
                    break;
                }
            };
            let end_turn = self.queue.count().expect();
            if self.queue.in_order && at == last {
                self.event.set_native(reading.event());
            }
            let (gather, offset) = (gather.clone(), piece.offset);
            reading.on_complete(Box::new(move |status, times, bytes| {
                let event = gather.event.clone();
                event.when_known(status, move |status| {
                    end_turn.take(move |mark| {
                        gather.arrived(offset, status, times, bytes);
                        // Comes last: the answer to a finish that finds the queue idle must follow
                        // the bytes.
                        mark.reach();
                    });
                });
            }));
            if at < last {
                // The device starts while more pieces are enqueued.
                self.queue.flush();
            }
        }
        self.queue.set_last(self.event);
        Ok(Ok(()))
    }
}

/// Sends a read in place in its turn, or ends it if it has failed.
fn send_or_fail(body: HomeBody, status: Status, times: Option<Times>) {
    if status.is_error() {
        // Reported first, because dropping the body counts as sent.
        let sending = body.sending.clone();
        sending.shared.end_event(&sending.event, status, times.unwrap_or_default());
        sending.step();
        drop(body);
        return;
    }
    if let Some(times) = times {
        _ = body.sending.turn.set((times, penstock_process::now()));
    }
    send_in_place(body);
}

fn send_in_place(body: HomeBody) {
    let sending = body.sending.clone();
    let (shared, event) = (&sending.shared, &sending.event);
    let call = to_client::ReadData { event: event.id(), offset: U64::ZERO };
    shared.outbox.post(&call, &[], shared.content(body));
    if sending.turn.get().is_none() {
        // Follows the bytes directly. Without times, the client need not know when they were sent.
        shared.tell_event(event, Status::OK, Times::default());
    }
    sending.step();
}

/// The pieces of one read.
struct PieceGather {
    shared: Arc<SharedSession>,
    event: Arc<Event>,
    state: Lock<ReadProgress>,
}

struct ReadProgress {
    left: usize,
    status: Status,
    times: Option<Times>,
}

impl PieceGather {
    fn new(shared: Arc<SharedSession>, event: Arc<Event>, pieces: usize) -> Self {
        Self {
            shared,
            event,
            state: Lock::new(ReadProgress { left: pieces, status: Status::OK, times: None }),
        }
    }

    fn arrived(&self, offset: u64, status: Status, times: Times, bytes: Staged) {
        self.shared.launches.note_piece();
        if !status.is_error() {
            let call = to_client::ReadData { event: self.event.id(), offset: U64::new(offset) };
            self.shared.outbox.post(&call, &[], self.shared.content(StagedBody(bytes)));
        }
        let mut state = self.state.lock();
        let so_far = state.times.get_or_insert(times);
        so_far.queued = so_far.queued.min(times.queued);
        so_far.submitted = so_far.submitted.min(times.submitted);
        so_far.started = so_far.started.min(times.started);
        so_far.ended = so_far.ended.max(times.ended);
        so_far.completed = so_far.completed.max(times.completed);
        self.step(state, status, 1);
    }

    /// Counts `pieces` that will not come.
    fn fail(&self, status: Status, pieces: usize) {
        self.step(self.state.lock(), status, pieces);
    }

    fn step(&self, mut state: Guard<'_, ReadProgress>, status: Status, pieces: usize) {
        if status.is_error() && !state.status.is_error() {
            state.status = status;
        }
        state.left = state.left.saturating_sub(pieces);
        if state.left == 0 {
            let (status, times) = (state.status, state.times.unwrap_or_default());
            drop(state);
            self.shared.end_event(&self.event, status, times);
        }
    }
}

impl Serve<to_worker::ReadBuffer> for Session {
    fn serve(&mut self, call: &to_worker::ReadBuffer, with: Attached<'_>) -> Served {
        let names = CommandIds { queue: call.queue, event: call.event, waits: with.waits };
        self.read(names, call.mem, |mem| Area::bytes(mem, call.offset.get(), call.size.get()))
    }
}

impl Serve<to_worker::ReadBufferRect> for Session {
    fn serve(&mut self, call: &to_worker::ReadBufferRect, with: Attached<'_>) -> Served {
        let names = CommandIds { queue: call.queue, event: call.event, waits: with.waits };
        let from = rect(call.origin, call.row_pitch, call.slice_pitch);
        self.read(names, call.mem, |mem| Area::rect(mem, from, triple(call.region)))
    }
}

impl Serve<to_worker::ReadImage> for Session {
    fn serve(&mut self, call: &to_worker::ReadImage, with: Attached<'_>) -> Served {
        let names = CommandIds { queue: call.queue, event: call.event, waits: with.waits };
        self.read(names, call.mem, |mem| Area::image(mem, triple(call.origin), triple(call.region)))
    }
}
