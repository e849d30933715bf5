//! Helpers of the tests on a real driver. In the program `null` they use the simulated device.
#![allow(dead_code, unused_imports, reason = "not every test file uses all of it")]

use std::sync::mpsc;

use penstock_device::{
    Arg, Context, Device, Driver, Event, IndexSpace, Kernel, Mem, Program, Queue, Staged, Status,
    Times,
};
pub use penstock_trial::patience;
use penstock_trial::{Need, skip};

pub const READ_WRITE: u64 = penstock_cl_sys::CL_MEM_READ_WRITE;
pub const OUT_OF_ORDER: u64 = penstock_cl_sys::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
pub const PROFILING: u64 = penstock_cl_sys::CL_QUEUE_PROFILING_ENABLE;

/// Makes a context over the first device, and a queue; `None` without a device.
pub fn first(properties: u64) -> Option<(Context, Queue)> {
    let (platform, device) = first_device()?;
    let context = Context::new(
        &platform,
        std::slice::from_ref(&device),
        Box::new(|text| eprintln!("driver: {text}")),
    )
    .unwrap();
    let queue = Queue::new(&context, &device, properties, 0).unwrap();
    Some((context, queue))
}

/// As [`first`], but only if commands on the device may wait for pending ones.
pub fn first_that_waits(properties: u64) -> Option<(Context, Queue)> {
    let found = first(properties)?;
    if found.1.device().must_not_wait() {
        let name = found.1.device().name();
        skip(Need::Ability, format_args!("commands must not wait on {name}"));
        return None;
    }
    Some(found)
}

pub fn first_device() -> Option<(penstock_device::Platform, Device)> {
    let found = platforms()
        .iter()
        .find_map(|platform| Some((platform.clone(), platform.devices().first()?.clone())));
    if found.is_none() {
        skip(Need::OpenCl, "no OpenCL device on this machine (Debian: pocl-opencl-icd)");
    }
    found
}

/// Returns the platforms of the machine. Skips the test if there is no ICD loader.
pub fn platforms() -> Vec<penstock_device::Platform> {
    if env!("CARGO_CRATE_NAME") == "null" {
        Driver::simulate();
    }
    match Driver::load() {
        Ok(driver) => driver.platforms(),
        Err(error) => {
            skip(Need::OpenCl, error);
            Vec::new()
        }
    }
}

pub fn kernel(context: &Context, source: &str, name: &str) -> Kernel {
    let program = Program::with_source(context, source.as_bytes()).unwrap();
    program.build(context.devices(), "").unwrap();
    Kernel::new(&program, name).unwrap()
}

pub fn range(length: u64) -> IndexSpace {
    IndexSpace::line(length, None)
}

pub fn staged(bytes: &[u8]) -> Staged {
    Staged::from(bytes.to_vec())
}

pub fn read_all(queue: &Queue, mem: &Mem) -> Vec<u8> {
    let reading = queue.read(mem, 0, mem.size(), &[]).unwrap();
    queue.flush().unwrap();
    reading.wait().unwrap().to_vec()
}

pub fn set_mems(kernel: &Kernel, mems: &[&Mem]) {
    for (index, mem) in mems.iter().enumerate() {
        kernel.set(u32::try_from(index).unwrap(), Arg::Mem(Some(mem))).unwrap();
    }
}

/// Reports how the event ends, through its callback, which must come exactly once.
pub fn completion(event: &Event) -> mpsc::Receiver<(Status, Times)> {
    let (tell, told) = mpsc::channel();
    event.on_complete(Box::new(move |status, times| tell.send((status, times)).unwrap()));
    told
}

pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|&word| u32::from_ne_bytes(word)).collect()
}

pub fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
