use std::ffi::{c_int, c_uint};

use super::report::{CError, ReportedError};
use super::run::{self, Event, Run};
use super::{Opaque, enter};
use crate::command::CommandId;
use crate::error::{Error, code};

#[unsafe(no_mangle)]
pub extern "C" fn wtr_create_event() -> *mut Opaque {
    enter("wtr_create_event", std::ptr::null_mut(), || {
        Ok(run::current()?.objects().events.add(Event::default()))
    })
}

/// Releases an event. Its command goes on.
#[unsafe(no_mangle)]
pub extern "C" fn wtr_release_event(evt: *mut Opaque) {
    enter("wtr_release_event", (), || {
        let run = run::current()?;
        release(&run, evt)
    });
}

fn release(run: &Run, evt: *mut Opaque) -> Result<(), Error> {
    let event = run.objects().events.remove(evt)?;
    run.let_go(&event.commands);
    Ok(())
}

/// Creates `num` events.
///
/// # Safety
/// `evt` has room for `num` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_init_event_array(num: c_uint, evt: *mut *mut Opaque) {
    enter("wtr_init_event_array", (), || {
        let run = run::current()?;
        if evt.is_null() && num > 0 {
            return Err(Error::Invalid("the array is NULL".into()));
        }
        let mut objects = run.objects();
        for index in 0..num as usize {
            // SAFETY: the caller guarantees it.
            unsafe { evt.add(index).write(objects.events.add(Event::default())) };
        }
        Ok(())
    });
}

/// Releases events, however they were created, and sets the pointers to null.
///
/// # Safety
/// `evt` has `num` event pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_release_event_array(num: c_uint, evt: *mut *mut Opaque) {
    enter("wtr_release_event_array", (), || {
        let run = run::current()?;
        if evt.is_null() && num > 0 {
            return Err(Error::Invalid("the array is NULL".into()));
        }
        for index in 0..num as usize {
            // SAFETY: the caller guarantees it.
            let event = unsafe { evt.add(index).read() };
            release(&run, event)
                .map_err(|error| Error::Invalid(format!("event {index} of the array: {error}")))?;
            // SAFETY: the caller guarantees it.
            unsafe { evt.add(index).write(std::ptr::null_mut()) };
        }
        Ok(())
    });
}

/// Returns the commands that `num` events stand for.
unsafe fn commands(
    run: &Run,
    num: c_uint,
    events: *const *mut *mut Opaque,
) -> Result<Vec<CommandId>, Error> {
    let mut commands = Vec::new();
    let objects = run.objects();
    for index in 0..num as usize {
        // SAFETY: the caller guarantees it.
        let slot = unsafe { events.add(index).read() };
        if slot.is_null() {
            return Err(Error::Invalid(format!("event {index} is NULL")));
        }
        // SAFETY: the caller guarantees it.
        let event = objects.events.get(unsafe { slot.read() })?;
        if !event.is_bound {
            return Err(Error::Invalid(format!(
                "event {index} was not given to any command yet, so it would never end"
            )));
        }
        commands.extend_from_slice(&event.commands);
    }
    commands.sort_unstable();
    commands.dedup();
    Ok(commands)
}

/// Creates an event that ends when all of these have ended.
///
/// # Safety
/// `events` has `num` addresses of event pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_merge_events_v(
    num: c_uint,
    events: *const *mut *mut Opaque,
) -> *mut Opaque {
    enter("wtr_merge_events", std::ptr::null_mut(), || {
        let run = run::current()?;
        // SAFETY: the caller guarantees it.
        let commands = unsafe { commands(&run, num, events) }?;
        run.runtime().with_root(|root| commands.iter().for_each(|command| root.hold(*command)));
        Ok(run.objects().events.add(Event { commands, is_bound: true, error: None }))
    })
}

/// # Safety
/// `events` has `num` addresses of event pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_wait_for_events_v(num: c_uint, events: *const *mut *mut Opaque) {
    enter("wtr_wait_for_events", (), || {
        let run = run::current()?;
        // SAFETY: the caller guarantees it.
        let commands = unsafe { commands(&run, num, events) }?;
        run.wait(&commands)
    });
}

/// Returns 1 if the event has not ended, 0 if it has succeeded, or the negative code of its error.
#[unsafe(no_mangle)]
pub extern "C" fn wtr_event_status(evt: *mut Opaque) -> c_int {
    enter("wtr_event_status", code::INVALID, || {
        let run = run::current()?;
        let (commands, is_bound) = {
            let objects = run.objects();
            let event = objects.events.get(evt)?;
            (event.commands.clone(), event.is_bound)
        };
        let mut status = if is_bound { 0 } else { 1 };
        for command in commands {
            match run.runtime().outcome(command) {
                None => status = 1,
                Some(Ok(())) => {}
                Some(Err(fault)) => return Ok(fault.code),
            }
        }
        Ok(status)
    })
}

/// Returns the error of a failed event, or null.
#[unsafe(no_mangle)]
pub extern "C" fn wtr_event_error(evt: *mut Opaque) -> *const CError {
    enter("wtr_event_error", std::ptr::null(), || {
        let run = run::current()?;
        let commands = run.objects().events.get(evt)?.commands.clone();
        let fault = commands
            .iter()
            .find_map(|command| run.runtime().outcome(*command).and_then(Result::err));
        let Some(fault) = fault else { return Ok(std::ptr::null()) };
        let mut objects = run.objects();
        let event = objects.events.get_mut(evt)?;
        Ok(event.error.get_or_insert_with(|| Box::new(ReportedError::of_fault(&fault))).as_c())
    })
}

/// The C type `wtr_profile`.
#[repr(C)]
#[derive(Debug)]
pub struct Profile {
    queued: u64,
    received: u64,
    started: u64,
    ended: u64,
}

/// # Safety
/// `profile` is null or leads to room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_event_profile(evt: *mut Opaque, profile: *mut Profile) -> c_int {
    enter("wtr_event_profile", code::INVALID, || {
        let run = run::current()?;
        if profile.is_null() {
            return Err(Error::Invalid("the profile is NULL".into()));
        }
        let last = run.objects().events.get(evt)?.commands.last().copied();
        let last = last
            .ok_or_else(|| Error::Invalid("the event was not given to any command yet".into()))?;
        let (queued, times) =
            run.runtime().with_root(|root| root.times(last)).flatten().unwrap_or_default();
        let told = Profile {
            queued,
            received: times.received,
            started: times.started,
            ended: times.ended,
        };
        // SAFETY: the caller guarantees it.
        unsafe { profile.write(told) };
        Ok(0)
    })
}
