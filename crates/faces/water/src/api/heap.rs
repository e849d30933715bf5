//! Heaps, and launches over them.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::kernel::{argument, range_of};
use super::run::{self, Buffer, Heap, Run};
use super::{Opaque, coded, enter};
use crate::command::{Arg, Command, CommandId, DeviceId, IndexSpace, ObjectId, Rank};
use crate::error::Error;
use crate::heap::resident::{self, PeDevice};
use crate::heap::{HeapPlan, Pe};
use crate::request::Request;

/// Largest number of PEs of a heap, as in `ggas.h`.
const PES_MAX: usize = penstock_ggas::layout::PES_MAX as usize;

/// Size of an argument whose `value` is an array of buffers, one for each PE. It is the same as in
/// `WTR_BUFS` of `wtr_ext.h`.
const BUFFER_OF_EACH: usize = 0xffff_fffe;

/// The C type `wtr_heap_options`.
#[repr(C)]
#[derive(Debug)]
pub struct Options {
    /// `sizeof(wtr_heap_options)`. Programs built with an older header have fewer fields.
    size: usize,
    timeout_ms: u64,
    force_proxy: c_int,
}

/// # Safety
/// `devices` has `count` entries. `options` is null, or as large as its size says. `evt` is null or
/// leads to an event pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_create_heap(
    count: c_uint,
    devices: *const *mut Opaque,
    bytes: usize,
    options: *const Options,
    evt: *mut *mut Opaque,
) -> *mut Opaque {
    enter("wtr_create_heap", std::ptr::null_mut(), || {
        let run = run::current()?;
        // SAFETY: the caller guarantees it.
        let (timeout_ms, force_proxy) = unsafe { chosen(options) }?;
        // SAFETY: the caller guarantees it.
        let pes = unsafe { pes(&run, count, devices) }?;
        if bytes == 0 {
            return Err(Error::Invalid("cannot create a heap of 0 bytes".into()));
        }
        let configured = penstock_client::config::heap_path()
            .map_err(|error| Error::Invalid(error.to_string()))?;
        let force_proxy = force_proxy || configured == penstock_client::config::HeapPath::Proxy;
        let mut plan = HeapPlan {
            heap: run.object_ids(HeapPlan::ids(pes.len() as u64)),
            bytes: bytes as u64,
            pes,
            hosts: Vec::new(),
            timeout_ms,
            force_proxy,
            secret: penstock_ggas::host::secret()
                .map_err(|_| Error::State("the system has no random numbers"))?,
        };
        let ranks = run.runtime().ranks();
        let host = |rank: &Rank| {
            ranks.get(*rank as usize).map(|it| it.hostname.clone()).unwrap_or_default()
        };
        plan.hosts = plan.members().iter().map(host).collect();
        // SAFETY: the caller guarantees it.
        unsafe { create(&run, &plan, evt) }
    })
}

/// Issues the creation of all members.
unsafe fn create(run: &Run, plan: &HeapPlan, evt: *mut *mut Opaque) -> Result<*mut Opaque, Error> {
    let requests = (0..)
        .zip(plan.members())
        .map(|(member, rank)| {
            let device = plan.own(rank).next().map_or(0, |(_, device)| device);
            let command = Command::CreateHeap { plan: Box::new(plan.clone()), member };
            Request::new(DeviceId { rank, index: device }, command)
        })
        .collect();
    // SAFETY: the caller guarantees it.
    let made = unsafe { run.commands(requests, std::ptr::null_mut(), evt) };
    let mut objects = run.objects();
    let parts = (0..)
        .zip(&plan.pes)
        .map(|(pe, at)| {
            let (id, is_part) = (plan.part(pe), true);
            objects.buffers.add(Buffer { id, device: at.id(), size: plan.bytes, is_part })
        })
        .map(|part| part.addr())
        .collect();
    let heap = Heap { id: plan.heap, pes: plan.pes.clone(), parts, users: Vec::new(), resets: 0 };
    let heap = match made {
        Ok(commands) => objects.heaps.add(Heap { users: commands, ..heap }),
        Err(error) => {
            drop(objects);
            // Releases the members that were created.
            // SAFETY: no event is given.
            _ = unsafe { release(run, &heap, std::ptr::null_mut(), std::ptr::null_mut()) };
            return Err(error);
        }
    };
    Ok(heap)
}

/// Returns the time-out in ms and whether to force the proxy.
///
/// # Safety
/// The same as for [`wtr_create_heap`].
unsafe fn chosen(options: *const Options) -> Result<(u64, bool), Error> {
    if options.is_null() {
        return Ok((0, false));
    }
    // SAFETY: the first field is always there.
    let size = unsafe { (&raw const (*options).size).read() };
    if size < size_of::<Options>() {
        return Err(Error::Invalid(format!(
            "size of the options is {size}, and must be sizeof(wtr_heap_options), which is {}",
            size_of::<Options>()
        )));
    }
    // SAFETY: the options are as large as their size says.
    let options = unsafe { &*options };
    Ok((options.timeout_ms, options.force_proxy != 0))
}

/// Returns the devices that take part.
///
/// # Safety
/// The same as for [`wtr_create_heap`].
unsafe fn pes(run: &Run, count: c_uint, devices: *const *mut Opaque) -> Result<Vec<Pe>, Error> {
    let count = count as usize;
    if count == 0 || count > PES_MAX {
        return Err(Error::Invalid(format!(
            "a heap has 1 to {PES_MAX} devices, {count} were given"
        )));
    }
    if devices.is_null() {
        return Err(Error::Invalid("the devices are NULL".into()));
    }
    let mut pes: Vec<Pe> = Vec::with_capacity(count);
    for place in 0..count {
        // SAFETY: the caller guarantees it.
        let handle = unsafe { devices.add(place).read() };
        let device = run.device(handle)?;
        let pe = Pe { rank: device.rank, device: device.index };
        if let Some(before) = pes.iter().position(|it| *it == pe) {
            return Err(Error::Invalid(format!(
                "device {place} is the same as device {before}; each device can be one PE only"
            )));
        }
        pes.push(pe);
    }
    Ok(pes)
}

#[unsafe(no_mangle)]
pub extern "C" fn wtr_heap_num_pes(heap: *mut Opaque) -> c_uint {
    enter("wtr_heap_num_pes", 0, || {
        let run = run::current()?;
        let count = run.objects().heaps.get(heap)?.pes.len();
        Ok(c_uint::try_from(count).unwrap_or(c_uint::MAX))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wtr_heap_part(heap: *mut Opaque, pe: c_uint) -> *mut Opaque {
    enter("wtr_heap_part", std::ptr::null_mut(), || {
        let run = run::current()?;
        let objects = run.objects();
        let heap = objects.heaps.get(heap)?;
        let part = heap.parts.get(pe as usize).copied().ok_or_else(|| no_pe(pe, heap))?;
        Ok(std::ptr::without_provenance_mut(part))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wtr_heap_path(heap: *mut Opaque, from: c_uint, to: c_uint) -> c_int {
    let mut path = 0;
    let code = coded("wtr_heap_path", || {
        let run = run::current()?;
        let id = {
            let objects = run.objects();
            let heap = objects.heaps.get(heap)?;
            for pe in [from, to] {
                if pe as usize >= heap.pes.len() {
                    return Err(no_pe(pe, heap));
                }
            }
            heap.id
        };
        path = run.runtime().with_root(|root| root.path(id, from, to)).flatten().ok_or(
            Error::State("the heap does not exist yet: wait for the event of wtr_create_heap"),
        )?;
        Ok(())
    });
    if code == 0 { path.into() } else { code }
}

fn no_pe(pe: c_uint, heap: &Heap) -> Error {
    Error::Invalid(format!(
        "the heap has PEs 0 to {}, but no PE {pe}",
        heap.pes.len().saturating_sub(1)
    ))
}

/// # Safety
/// `kernels` has an entry for each PE. A value whose size says that it is an array has a buffer for
/// each PE. The rest is the same as for `wtr_run_kernel_v`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_run_collective_v(
    heap: *mut Opaque,
    kernels: *const *mut Opaque,
    work_dim: c_uint,
    global_work_size: *const usize,
    local_work_size: *const usize,
    wait_evt: *mut *mut Opaque,
    evt: *mut *mut Opaque,
    num_args: c_uint,
    sizes: *const usize,
    values: *const *const c_void,
) {
    enter("wtr_run_collective", (), || {
        let run = run::current()?;
        // SAFETY: the caller guarantees it.
        let range =
            unsafe { range_of(work_dim, std::ptr::null(), global_work_size, local_work_size) }?;
        let (id, pes) = {
            let objects = run.objects();
            let heap = objects.heaps.get(heap)?;
            (heap.id, heap.pes.clone())
        };
        check_resident(&run, &pes, &range)?;
        if kernels.is_null() {
            return Err(Error::Invalid("the kernels are NULL".into()));
        }
        let requests = |before: &[CommandId]| {
            let mut requests = Vec::with_capacity(pes.len());
            for (place, pe) in pes.iter().enumerate() {
                // SAFETY: there is a kernel for each PE.
                let handle = unsafe { kernels.add(place).read() };
                let kernel = *run.objects().kernels.get(handle)?;
                if kernel.device != pe.id() {
                    return Err(Error::Invalid(format!(
                        "kernel {place} belongs to another device than PE {place}"
                    )));
                }
                let mut args = Vec::with_capacity(num_args as usize);
                for index in 0..num_args as usize {
                    // SAFETY: both have `num_args` entries.
                    let (size, value) =
                        unsafe { (sizes.add(index).read(), values.add(index).read()) };
                    // SAFETY: the caller guarantees it.
                    args.push(unsafe {
                        own_argument(&run, (id, heap), place, &kernel, index, size, value)
                    }?);
                }
                if !args.contains(&Arg::Heap(id)) {
                    return Err(Error::Invalid(
                        "no argument is the heap: pass it as WTR_HEAP(heap)".into(),
                    ));
                }
                let command = Command::Run { kernel: kernel.id, range, args };
                requests.push(Request::new(pe.id(), command).after(before));
            }
            Ok(requests)
        };
        // SAFETY: the caller guarantees it.
        unsafe { run.collective(heap, requests, wait_evt, evt) }
    });
}

/// Returns one argument for one PE.
///
/// # Safety
/// The same as for [`wtr_run_collective_v`].
unsafe fn own_argument(
    run: &Run,
    (id, heap): (ObjectId, *mut Opaque),
    place: usize,
    kernel: &run::Kernel,
    index: usize,
    size: usize,
    value: *const c_void,
) -> Result<Arg, Error> {
    if size == 0 && value.addr() == heap.addr() {
        return Ok(Arg::Heap(id));
    }
    if size != BUFFER_OF_EACH {
        // SAFETY: the caller guarantees it.
        return unsafe { argument(run, kernel, index, size, value) };
    }
    if value.is_null() {
        return Err(Error::Invalid(format!("argument {index}: the array of buffers is NULL")));
    }
    // SAFETY: the array has a buffer for each PE.
    let buffer = unsafe { value.cast::<*const c_void>().add(place).read() };
    // SAFETY: with size 0 the value is a handle, which is never followed.
    unsafe { argument(run, kernel, index, 0, buffer) }
}

fn check_resident(run: &Run, pes: &[Pe], range: &IndexSpace) -> Result<(), Error> {
    let mut launched = Vec::with_capacity(pes.len());
    for pe in pes {
        let mut devices = run.devices().iter();
        let device = devices.find(|it| it.rank == pe.rank && it.index == pe.device);
        let device = device.ok_or(Error::State("a device vanished"))?;
        launched.push(PeDevice { rank: pe.rank, info: &device.info });
    }
    resident::check(&launched, range)
}

/// # Safety
/// `reason` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_abort_heap(heap: *mut Opaque, reason: *const c_char) {
    enter("wtr_abort_heap", (), || {
        let run = run::current()?;
        let reason = if reason.is_null() {
            "the program has aborted it".to_owned()
        } else {
            // SAFETY: the caller guarantees the terminating zero.
            unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned()
        };
        let (id, pe) = {
            let objects = run.objects();
            let heap = objects.heaps.get(heap)?;
            (heap.id, heap.pes.first().copied().ok_or(Error::State("a heap without devices"))?)
        };
        let request = Request::new(pe.id(), Command::AbortHeap { heap: id, reason });
        // SAFETY: no event is given.
        unsafe { run.command(request, std::ptr::null_mut(), std::ptr::null_mut()) }
    });
}

/// # Safety
/// The events are null or lead to event pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_reset_heap(
    heap: *mut Opaque,
    wait_evt: *mut *mut Opaque,
    evt: *mut *mut Opaque,
) {
    enter("wtr_reset_heap", (), || {
        let run = run::current()?;
        let (id, pes) = {
            let objects = run.objects();
            let heap = objects.heaps.get(heap)?;
            (heap.id, heap.pes.clone())
        };
        let requests = |before: &[CommandId], generation| {
            let mut requests = for_each_rank(&pes, || Command::ResetHeap { heap: id, generation });
            for request in &mut requests {
                request.after = before.to_vec();
            }
            requests
        };
        // SAFETY: the caller guarantees it.
        unsafe { run.reset_heap(heap, requests, wait_evt, evt) }
    });
}

/// Returns a request for each rank that has PEs, for the first one there.
fn for_each_rank(pes: &[Pe], command: impl Fn() -> Command) -> Vec<Request> {
    let mut requests: Vec<Request> = Vec::new();
    for pe in pes {
        if requests.iter().all(|request| request.device.rank != pe.rank) {
            requests.push(Request::new(pe.id(), command()));
        }
    }
    requests
}

/// # Safety
/// The events are null or lead to event pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_release_heap(
    heap: *mut Opaque,
    wait_evt: *mut *mut Opaque,
    evt: *mut *mut Opaque,
) {
    enter("wtr_release_heap", (), || {
        let run = run::current()?;
        let heap = run.remove_heap(heap)?;
        // SAFETY: the caller guarantees it.
        unsafe { release(&run, &heap, wait_evt, evt) }
    });
}

/// Releases all members when all launches over the heap have ended.
unsafe fn release(
    run: &Run,
    heap: &Heap,
    wait_evt: *mut *mut Opaque,
    evt: *mut *mut Opaque,
) -> Result<(), Error> {
    {
        let mut objects = run.objects();
        for part in &heap.parts {
            objects.buffers.remove(std::ptr::without_provenance_mut(*part))?;
        }
    }
    run.runtime().with_root(|root| root.forget_paths(heap.id));
    let requests = for_each_rank(&heap.pes, || Command::ReleaseHeap { heap: heap.id });
    // SAFETY: the caller guarantees it.
    unsafe { run.commands_after(&heap.users, requests, wait_evt, evt) }.map(|_| ())
}
