//! Tests of host memory that CUDA kernels store into. The driver is a stand-in, whose GPU sees only
//! registered memory and has its own addresses for it.

mod cuda_common;

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cuda_common::*;
use penstock_device::{
    Arg, Context, HostMemory, IndexSpace, Kernel, Mem, Queue, Rect, Status, Want,
};
use penstock_trial::wait_for;
use penstock_wire::cuda;

const SETUP: Setup = Setup { newer: true, loader: false };
const PAGE: usize = 4096;
/// Size of the lent memory: three pages, the second of which is declared missing.
const BYTES: usize = 3 * PAGE;

const MODULE: &str = ".version 9.0\n.target sm_75\n.address_size 64\n\
    .visible .entry put(.param .u64 at, .param .u64 value) { ret; }\n.visible .entry empty() { ret; }\n";

/// Locks the stand-in's counters, which are global: tests that read them run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the address of one of the stand-in's counters.
fn number(name: &str) -> *mut i32 {
    let path = std::env::var("PENSTOCK_LIBCUDA").unwrap();
    // SAFETY: the library is loaded already.
    let library = unsafe { libloading::Library::new(path) }.unwrap();
    // SAFETY: a variable of this type, in a library that stays loaded.
    let symbol = unsafe { library.get::<*mut i32>(name.as_bytes()) }.unwrap();
    *symbol
}

fn value(name: &str) -> i32 {
    // SAFETY: see `number`; the value is read in one piece.
    unsafe { number(name).read_volatile() }
}

/// Pages that report when they are given back.
struct Pages {
    start: NonNull<u8>,
    gone: Arc<AtomicBool>,
    is_for_kernels: bool,
}

// SAFETY: it only holds an address; the pages live as long as the value.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn layout() -> Layout {
        Layout::from_size_align(BYTES, PAGE).unwrap()
    }

    fn new() -> (Self, Arc<AtomicBool>) {
        // SAFETY: the layout has a size.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(Self::layout()) }).unwrap();
        let gone = Arc::new(AtomicBool::new(false));
        (Self { start, gone: gone.clone(), is_for_kernels: true }, gone)
    }
}

// SAFETY: the whole range is mapped, and so are the pieces.
unsafe impl HostMemory for Pages {
    fn range(&self) -> (NonNull<u8>, usize) {
        (self.start, BYTES)
    }

    fn pieces(&self) -> Vec<std::ops::Range<usize>> {
        vec![0..PAGE, 2 * PAGE..BYTES]
    }

    fn is_for_kernels(&self) -> bool {
        self.is_for_kernels
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Release);
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), Self::layout()) };
    }
}

fn kernel_of(context: &Context, name: &str) -> Kernel {
    let (program, built) = program(context, MODULE);
    built.unwrap();
    Kernel::new(&program, name).unwrap()
}

fn lend(context: &Context) -> (Result<Mem, Status>, NonNull<u8>, Arc<AtomicBool>) {
    let (pages, gone) = Pages::new();
    let start = pages.start;
    (Mem::buffer_in(context, 1, BYTES as u64, Box::new(pages)), start, gone)
}

fn first() -> Option<(Context, Queue)> {
    cuda_common::first(SETUP, 0)
}

fn word(start: NonNull<u8>, at: usize) -> u64 {
    // SAFETY: the address lies within the pages, which live while the caller looks.
    unsafe { start.as_ptr().add(at).cast::<u64>().read_volatile() }
}

fn blocks(count: u64, threads: u64) -> IndexSpace {
    IndexSpace::line(count * threads, Some(threads))
}

#[test]
fn kernels_store_into_memory_of_the_host_and_read_what_is_there() {
    let Some((context, queue)) = first() else { return };
    let _alone = alone();
    let (mem, start, _) = lend(&context);
    let mem = mem.unwrap();
    let address = mem.device_address().unwrap();
    assert_ne!(address, start.addr().get() as u64, "the stand-in has addresses of its own");
    let put = kernel_of(&context, "put");
    for at in [8, 2 * PAGE + 16] {
        set_params(&put, &[address + at as u64, 4711 + at as u64]);
        queue.launch(&put, &one(), &[], Want::Nothing).unwrap();
        queue.finish().unwrap();
        assert_eq!(word(start, at), 4711 + at as u64);
    }
    // A part of it, like a PE's own: copies see what the host sees.
    let part = Mem::sub_buffer(&mem, 1, 2 * PAGE as u64, PAGE as u64).unwrap();
    let read = queue.read(&part, 16, 8, &[]).unwrap().wait().unwrap();
    assert_eq!(*read, (4711 + 2 * PAGE as u64 + 16).to_ne_bytes());
    queue.write(&part, 24, staged(&77_u64.to_ne_bytes()), &[], Want::Nothing).unwrap();
    queue.finish().unwrap();
    assert_eq!(word(start, 2 * PAGE + 24), 77);
}

#[test]
fn copies_between_the_host_and_the_device_take_every_row() {
    const WIDTH: usize = 100;
    let Some((context, queue)) = first() else { return };
    let _alone = alone();
    let (mem, start, _) = lend(&context);
    let mem = mem.unwrap();
    let own = buffer(&context, PAGE as u64);
    queue.write(&own, 0, staged(&pattern(PAGE)), &[], Want::Nothing).unwrap();
    // From the device: all bytes, and rows that lie farther apart on the host.
    queue.copy(&own, 0, &mem, 2 * PAGE as u64, PAGE as u64, &[], Want::Nothing).unwrap();
    let region = [WIDTH as u64, 10, 1];
    let rows = |x, row_pitch| Rect { origin: [x, 0, 0], row_pitch, slice_pitch: 0 };
    let (close, far) = (rows(0, 2 * WIDTH as u64), rows(3, 3 * WIDTH as u64));
    queue.copy_rect(&own, &close, &mem, &far, region, &[], Want::Nothing).unwrap();
    queue.finish().unwrap();
    let bytes = pattern(PAGE);
    // SAFETY: the pages live while `mem` does, and nothing writes them now.
    let host = unsafe { std::slice::from_raw_parts(start.as_ptr(), BYTES) };
    assert_eq!(host[2 * PAGE..], bytes);
    let row = |at: usize| &bytes[at * 2 * WIDTH..][..WIDTH];
    (0..10).for_each(|at| assert_eq!(&host[3 + at * 3 * WIDTH..][..WIDTH], row(at)));
    assert_eq!((host[2], host[3 + WIDTH]), (0, 0));
    // And back.
    let back = buffer(&context, PAGE as u64);
    queue.copy_rect(&mem, &far, &back, &close, region, &[], Want::Nothing).unwrap();
    let end = 3 * PAGE as u64 - 8;
    queue.copy(&mem, end, &back, PAGE as u64 - 8, 8, &[], Want::Nothing).unwrap();
    queue.finish().unwrap();
    let back = read_all(&queue, &back);
    (0..10).for_each(|at| assert_eq!(&back[at * 2 * WIDTH..][..WIDTH], row(at)));
    assert_eq!(back[PAGE - 8..], bytes[PAGE - 8..]);
}

#[test]
fn what_is_not_there_is_not_registered() {
    let Some((context, queue)) = first() else { return };
    let _alone = alone();
    let (mem, ..) = lend(&context);
    let mem = mem.unwrap();
    assert!(queue.read(&mem, 0, 64, &[]).and_then(|reading| reading.wait().map(drop)).is_ok());
    let hole = queue.read(&mem, PAGE as u64, 64, &[]).and_then(|reading| reading.wait().map(drop));
    // CUDA_ERROR_INVALID_VALUE
    assert_eq!(hole.map_err(cuda::code), Err(Some(1)));
}

#[test]
fn memory_is_given_back_when_the_device_is_through_with_it() {
    let Some((context, queue)) = first() else { return };
    let _alone = alone();
    wait_for("an empty map", || value("standin_mapped") == 0);
    let (mem, _, gone) = lend(&context);
    let mem = mem.unwrap();
    assert_eq!(value("standin_mapped"), 2);
    let part = Mem::sub_buffer(&mem, 1, 0, 64).unwrap();
    let sleeper = sleeper(&context, Duration::from_millis(300));
    let began = Instant::now();
    queue.launch(&sleeper, &one(), &[], Want::Nothing).unwrap();
    drop(mem);
    assert!(!gone.load(Ordering::Acquire), "a part of it is there");
    drop(part);
    wait_for("the end of the memory", || gone.load(Ordering::Acquire));
    assert!(Instant::now() >= began + Duration::from_millis(300), "a kernel may still use it");
    assert_eq!(value("standin_mapped"), 0);
}

#[test]
fn pieces_at_other_distances_are_refused_and_given_back() {
    let Some((context, _)) = first() else { return };
    let _alone = alone();
    wait_for("an empty map", || value("standin_mapped") == 0);
    // SAFETY: see `number`; the lock excludes other users.
    unsafe { number("standin_scatters").write_volatile(1) };
    let (mem, _, gone) = lend(&context);
    // SAFETY: as above.
    unsafe { number("standin_scatters").write_volatile(0) };
    assert_eq!(mem.err(), Some(Status::INVALID_OPERATION));
    assert!(gone.load(Ordering::Acquire));
    assert_eq!(value("standin_mapped"), 0);
}

/// Lends memory that the GPU only copies.
fn lend_for_copies(context: &Context) -> (Mem, NonNull<u8>, Arc<AtomicBool>) {
    let (mut pages, gone) = Pages::new();
    pages.is_for_kernels = false;
    let start = pages.start;
    (Mem::buffer_in(context, 1, BYTES as u64, Box::new(pages)).unwrap(), start, gone)
}

#[test]
fn memory_that_only_copies_use_is_not_mapped() {
    let Some((context, queue)) = first() else { return };
    let _alone = alone();
    wait_for("an empty map", || value("standin_mapped") == 0);
    let before = value("standin_in_place");
    let (mem, start, gone) = lend_for_copies(&context);
    assert_eq!((value("standin_in_place"), value("standin_mapped")), (before + 2, 0));
    let own = buffer(&context, PAGE as u64);
    queue.write(&own, 0, staged(&pattern(PAGE)), &[], Want::Nothing).unwrap();
    queue.copy(&own, 0, &mem, 2 * PAGE as u64, 8, &[], Want::Nothing).unwrap();
    queue.copy(&mem, 2 * PAGE as u64, &own, 64, 8, &[], Want::Nothing).unwrap();
    queue.finish().unwrap();
    let bytes: [u8; 8] = pattern(PAGE)[..8].try_into().unwrap();
    assert_eq!(word(start, 2 * PAGE), u64::from_ne_bytes(bytes));
    assert_eq!(read_all(&queue, &own)[64..72], bytes);
    drop(mem);
    wait_for("the end of the memory", || gone.load(Ordering::Acquire));
    assert_eq!(value("standin_in_place"), before);
}

#[test]
fn memory_that_stays_pinned_is_not_given_back() {
    let Some((context, _)) = first() else { return };
    let _alone = alone();
    wait_for("an empty map", || value("standin_mapped") == 0);
    let (mem, _, gone) = lend_for_copies(&context);
    let (other, _, other_gone) = lend_for_copies(&context);
    // SAFETY: see `number`; the lock excludes other users.
    unsafe { number("standin_holds").write_volatile(1) };
    drop(mem);
    wait_for("the attempt", || value("standin_holds") == 0);
    // One thread gives back the one after the other.
    drop(other);
    wait_for("the end of the other memory", || other_gone.load(Ordering::Acquire));
    assert!(!gone.load(Ordering::Acquire));
}

#[test]
fn the_driver_says_how_many_blocks_run_at_a_time() {
    let Some((context, _)) = first() else { return };
    let kernel = kernel_of(&context, "empty");
    let ask = |threads| kernel.resident_groups(threads).unwrap();
    // The stand-in has 4 multiprocessors of 2,048 threads and 8 blocks.
    assert_eq!((ask(1), ask(512), ask(1024), ask(1025)), (32, 16, 8, 0));
    kernel.set(cuda::ARG_SHARED, Arg::Local(50 << 10)).unwrap();
    assert_eq!(ask(1), 8);
    assert!(kernel.resident_groups(cuda::RESIDENT_THREADS_MAX).is_err());
}

#[test]
fn blocks_with_a_heap_start_together_where_they_fit() {
    let Some((context, queue)) = first() else { return };
    let _alone = alone();
    let (mem, ..) = lend(&context);
    let mem = mem.unwrap();
    let kernel = kernel_of(&context, "empty");
    let whole = |range: &IndexSpace| {
        let before = value("standin_whole");
        queue.launch(&kernel, range, &[], Want::Nothing).unwrap();
        queue.finish().unwrap();
        value("standin_whole") - before
    };
    assert_eq!(whole(&blocks(32, 1)), 0, "no heap");
    kernel.set(cuda::ARG_HEAP, Arg::Mem(Some(&mem))).unwrap();
    assert_eq!(whole(&blocks(1, 1)), 0, "one block has nobody to wait for");
    assert_eq!(whole(&blocks(32, 1)), 1);
    assert_eq!(whole(&blocks(33, 1)), 0, "more blocks than fit cannot meet");
    // The kernel does not keep the heap alive, and refuses a launch without it.
    drop(mem);
    assert!(queue.launch(&kernel, &blocks(1, 1), &[], Want::Nothing).is_err());
    kernel.set(cuda::ARG_HEAP, Arg::Mem(None)).unwrap();
    assert_eq!(whole(&blocks(32, 1)), 0);
}
