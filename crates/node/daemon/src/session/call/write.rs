//! Writes: from the client to the device.
//!
//! If nothing that uses memory is outstanding, the bytes go from the link straight to home memory,
//! and the command has ended before the next call is read. Otherwise they go through staged pieces.

use std::sync::Arc;

use penstock_device as device;
use penstock_device::{Staged, Times, Want};
use penstock_trial::{Defect, planted};
use penstock_wire::calls::{Attached, Serve, Served, to_worker};
use penstock_wire::id::kind;
use penstock_wire::{FrameError, Id, Payload, Status};

use super::command::{CommandIds, follow, prepare, rect, refuse};
use crate::session::event::Event;
use crate::session::pieces::{Area, PIECE_BYTES_MAX, into_home};
use crate::session::queue::Queue;
use crate::session::shared_session::SharedSession;
use crate::session::{Session, triple};

impl Session {
    fn write(
        &mut self,
        names: CommandIds<'_>,
        mem: Id<kind::Mem>,
        payload: &mut dyn Payload,
        area: impl FnOnce(&device::Mem, u64) -> Result<Area, Status>,
    ) -> Result<(), FrameError> {
        let event = self.shared.events.announce(names.event)?;
        let Some((queue, waits)) = prepare(&self.shared, &mut self.queues, names, event.as_ref())
        else {
            return Ok(());
        };
        let checked =
            self.objects.mems.get(mem).and_then(|mem| Ok((mem, area(mem, payload.left())?)));
        let checked = checked.and_then(|(mem, area)| match area.bytes == payload.left() {
            true => Ok((mem, area)),
            false => Err(Status::INVALID_VALUE),
        });
        let (mem, area) = match checked {
            Ok(checked) => checked,
            Err(status) => {
                refuse(&self.shared, Some(queue), event.as_ref(), status);
                return Ok(());
            }
        };
        let waits: Vec<&device::Event> = waits.iter().collect();
        let mut write = Write { shared: &self.shared, queue, event: event.as_ref(), mem, area };
        if let Err(status) = write.start(&waits, payload)? {
            refuse(&self.shared, Some(write.queue), event.as_ref(), status);
        }
        self.note_unflushed(names.queue);
        Ok(())
    }

    /// Sets the content given at creation. An error becomes the object's status.
    fn init(
        &mut self,
        mem: Id<kind::Mem>,
        payload: &mut dyn Payload,
        area: impl FnOnce(&device::Mem, u64) -> Result<Area, Status>,
    ) -> Result<(), FrameError> {
        let Ok(object) = self.objects.mems.get(mem) else { return Ok(()) };
        let filled = match area(object, payload.left()) {
            Ok(area) if area.bytes == payload.left() => fill(&self.shared, object, &area, payload)?,
            Ok(_) => Err(Status::INVALID_VALUE),
            Err(status) => Err(status),
        };
        if let Err(status) = filled {
            self.objects.mems.remove(mem);
            self.objects.mems.insert(mem, Err(status))?;
        }
        Ok(())
    }
}

fn fill(
    shared: &SharedSession,
    mem: &device::Mem,
    area: &Area,
    payload: &mut dyn Payload,
) -> Result<Result<(), Status>, FrameError> {
    if let Some(filled) = into_home(mem, area, payload) {
        return filled.map(Ok);
    }
    for piece in area.pieces(PIECE_BYTES_MAX) {
        let bytes = match receive(shared, piece.bytes, payload)? {
            Ok(bytes) => bytes,
            Err(status) => return Ok(Err(status)),
        };
        if let Err(status) = area.init(mem, &piece, &bytes) {
            return Ok(Err(status));
        }
    }
    Ok(Ok(()))
}

fn receive(
    shared: &SharedSession,
    bytes: u64,
    payload: &mut dyn Payload,
) -> Result<Result<Staged, Status>, FrameError> {
    shared.wait_for_room(bytes)?;
    let Ok(size) = usize::try_from(bytes) else { return Ok(Err(Status::OUT_OF_HOST_MEMORY)) };
    match Staged::new(size) {
        Ok(mut staged) => {
            payload.read(&mut staged)?;
            Ok(Ok(staged))
        }
        Err(status) => Ok(Err(status)),
    }
}

struct Write<'a> {
    shared: &'a Arc<SharedSession>,
    queue: &'a mut Queue,
    event: Option<&'a Arc<Event>>,
    mem: &'a device::Mem,
    area: Area,
}

impl Write<'_> {
    fn start(
        &mut self,
        waits: &[&device::Event],
        payload: &mut dyn Payload,
    ) -> Result<Result<(), Status>, FrameError> {
        let timed = self.queue.timed && self.event.is_some();
        // The end of a write with an event is reported after the ends of earlier commands.
        let has_turn =
            self.queue.is_idle() || (self.event.is_none() && self.queue.can_be_written());
        if !timed
            && waits.is_empty()
            && has_turn
            && let Some(filled) = into_home(self.mem, &self.area, payload)
        {
            filled?;
            if let Some(event) = self.event {
                self.shared.end_event(event, Status::OK, Times::default());
            }
            return Ok(Ok(()));
        }
        if let Err(status) = self.queue.pass_gate() {
            return Ok(Err(status));
        }
        self.in_pieces(waits, payload)
    }

    fn in_pieces(
        &mut self,
        waits: &[&device::Event],
        payload: &mut dyn Payload,
    ) -> Result<Result<(), Status>, FrameError> {
        if self.area.bytes == 0 {
            return Ok(self.take_turn(waits));
        }
        let mut natives = Vec::new();
        for piece in self.area.pieces(PIECE_BYTES_MAX) {
            let bytes = match receive(self.shared, piece.bytes, payload)? {
                Ok(bytes) => bytes,
                Err(status) => return Ok(Err(status)),
            };
            let last = piece.offset + piece.bytes == self.area.bytes;
            // In order the last piece stands for all; out of order each is needed.
            let want = match self.event {
                Some(_) if last || !self.queue.in_order => Want::Event,
                _ => Want::Nothing,
            };
            match self.area.write(&self.queue.device, self.mem, &piece, bytes, waits, want) {
                Ok(native) => natives.extend(native),
                Err(status) => return Ok(Err(status)),
            }
            let mark = self.queue.count();
            if let (Some(event), true, [native]) = (self.event, last, natives.as_slice()) {
                self.queue.set_last(event);
                if planted(Defect::EarlyEnd) {
                    self.shared.end_event(event, Status::OK, Times::default());
                }
                follow(self.shared, event.clone(), native, mark);
                return Ok(Ok(()));
            }
            if !last {
                // The device starts while more pieces come.
                self.queue.flush();
            }
        }
        if self.event.is_none() {
            return Ok(Ok(()));
        }
        let natives: Vec<&device::Event> = natives.iter().collect();
        Ok(self.take_turn(&natives))
    }

    /// Enqueues a marker so that the command ends when `waits` have.
    fn take_turn(&mut self, waits: &[&device::Event]) -> Result<(), Status> {
        let want = if self.event.is_some() { Want::Event } else { Want::Nothing };
        let marker = self.queue.device.marker(waits, want)?;
        let mark = self.queue.count();
        if let (Some(event), Some(marker)) = (self.event, marker) {
            self.queue.set_last(event);
            follow(self.shared, event.clone(), &marker, mark);
        }
        Ok(())
    }
}

impl Serve<to_worker::WriteBuffer> for Session {
    fn serve(&mut self, call: &to_worker::WriteBuffer, with: Attached<'_>) -> Served {
        let names = CommandIds { queue: call.queue, event: call.event, waits: with.waits };
        self.write(names, call.mem, with.payload, |mem, size| {
            Area::bytes(mem, call.offset.get(), size)
        })
    }
}

impl Serve<to_worker::WriteBufferRect> for Session {
    fn serve(&mut self, call: &to_worker::WriteBufferRect, with: Attached<'_>) -> Served {
        let names = CommandIds { queue: call.queue, event: call.event, waits: with.waits };
        let to = rect(call.origin, call.row_pitch, call.slice_pitch);
        self.write(names, call.mem, with.payload, |mem, _| Area::rect(mem, to, triple(call.region)))
    }
}

impl Serve<to_worker::WriteImage> for Session {
    fn serve(&mut self, call: &to_worker::WriteImage, with: Attached<'_>) -> Served {
        let names = CommandIds { queue: call.queue, event: call.event, waits: with.waits };
        self.write(names, call.mem, with.payload, |mem, _| {
            Area::image(mem, triple(call.origin), triple(call.region))
        })
    }
}

impl Serve<to_worker::InitBuffer> for Session {
    fn serve(&mut self, call: &to_worker::InitBuffer, with: Attached<'_>) -> Served {
        self.init(call.mem, with.payload, |mem, size| Area::bytes(mem, call.offset.get(), size))
    }
}

impl Serve<to_worker::InitImage> for Session {
    fn serve(&mut self, call: &to_worker::InitImage, with: Attached<'_>) -> Served {
        self.init(call.mem, with.payload, |mem, _| {
            Area::image(mem, triple(call.origin), triple(call.region))
        })
    }
}
