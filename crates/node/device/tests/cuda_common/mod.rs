//! Helpers of the tests over CUDA's driver: a stand-in for the driver, built from `cuda_standin.c`.
#![allow(dead_code, unused_imports, reason = "not every test file uses all of it")]

use std::path::PathBuf;
use std::sync::{Once, mpsc};
use std::time::Duration;

use penstock_device::{
    Arg, Context, Device, Driver, Event, IndexSpace, Kernel, Mem, Platform, Program, Queue, Staged,
    Status, Times, Want,
};
pub use penstock_trial::patience;
use penstock_trial::{Need, compiler, is_compiled, skip};
use penstock_wire::cuda;

pub const PROFILING: u64 = penstock_cl_sys::CL_QUEUE_PROFILING_ENABLE;

/// PTX text with kernels of the stand-in and a variable.
pub const MODULE: &str = ".version 9.0\n.target sm_75\n.address_size 64\n\
    .visible .global .align 8 .b8 table[64];\n\
    .visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) { ret; }\n\
    .visible .entry sleep_ns(.param .u64 ns) { ret; }\n\
    .visible .entry shape(.param .u64 out) { ret; }\n\
    .visible .entry trap() { ret; }\n\
    .visible .entry empty() { ret; }\n";

/// Driver and loader of the process. Each test file chooses one setup for all its tests.
#[derive(Clone, Copy)]
pub struct Setup {
    /// Whether the driver has the functions of CUDA 12.4.
    pub newer: bool,
    /// Whether the process may load an ICD loader.
    pub loader: bool,
}

/// Builds the stand-in and loads it as the process's driver. False without a C compiler.
fn prepare(setup: Setup) -> bool {
    static ONCE: Once = Once::new();
    static BUILT: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    ONCE.call_once(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda_standin.c");
        // One per process: test files run at the same time.
        let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("standin-{}.so", std::process::id()));
        let mut command = compiler();
        command
            // The stand-in for cuBLAS finds the driver by this name.
            .args(["-O1", "-g", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", "-o"])
            .arg(&library)
            .arg(source)
            .arg("-lpthread");
        if setup.newer {
            command.arg("-DNEWER");
        }
        let built = is_compiled(&mut command, Need::Compiler);
        // SAFETY: no other thread reads the environment: the first test runs this, others wait.
        unsafe { std::env::set_var("PENSTOCK_LIBCUDA", &library) };
        if !setup.loader {
            // SAFETY: as above.
            unsafe { std::env::set_var("PENSTOCK_LIBOPENCL", "/nonexistent/libOpenCL.so.1") };
        }
        if built {
            let _ = Driver::load();
            let _ = std::fs::remove_file(&library);
        }
        _ = BUILT.set(built);
    });
    let built = BUILT.get().copied().unwrap_or(false);
    if !built {
        skip(Need::Compiler, "no C compiler builds the stand-in for CUDA's driver");
    }
    built
}

/// Stand-ins for NVIDIA's libraries: the name of the source, and the variable that names the
/// library to the process.
#[derive(Clone, Copy)]
pub struct Library(&'static str, &'static str);

pub const CUBLAS: Library = Library("cublas_standin", "PENSTOCK_LIBCUBLAS");
pub const CUFFT: Library = Library("cufft_standin", "PENSTOCK_LIBCUFFT");

/// Builds a stand-in for a library and names it to the process, which has no other one. Comes
/// before all other functions. False without a C compiler.
pub fn prepare_library(Library(name, variable): Library) -> bool {
    static BUILT: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    let built = *BUILT.get_or_init(|| {
        let source = format!("{}/tests/{name}.c", env!("CARGO_MANIFEST_DIR"));
        // The library is opened by the first call, so the file stays. Another process that builds
        // it replaces it by an equal one.
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let library = folder.join(format!("{name}.so"));
        let own = folder.join(format!("{name}-{}.so", std::process::id()));
        let mut command = compiler();
        command.args(["-O1", "-g", "-fPIC", "-shared", "-o"]).arg(&own).arg(source);
        command.arg(format!("-Wl,-soname,{name}.so"));
        let built = is_compiled(command.args(["-ldl", "-lm"]), Need::Compiler)
            && std::fs::rename(&own, &library).is_ok();
        // SAFETY: no other thread reads the environment: the first test runs this, others wait.
        unsafe { std::env::set_var(variable, &library) };
        built
    });
    if !built {
        skip(Need::Compiler, "no C compiler builds the stand-in for a library of NVIDIA");
    }
    built
}

/// Returns a counter of a stand-in that this process has opened.
pub fn counter(Library(name, _): Library, counter: &str) -> i32 {
    const RTLD_NOLOAD: i32 = 4;
    let flags = libloading::os::unix::RTLD_NOW | RTLD_NOLOAD;
    // SAFETY: the library is loaded already.
    let library = unsafe { libloading::os::unix::Library::open(Some(format!("{name}.so")), flags) };
    let library = library.expect("the stand-in is open");
    // SAFETY: a variable of this type, in a library that stays loaded.
    let symbol = unsafe { library.get::<*const i32>(counter.as_bytes()) }.unwrap();
    // SAFETY: as above; the value is read in one piece.
    unsafe { symbol.read_volatile() }
}

/// Returns the platform over CUDA's driver.
pub fn platform(setup: Setup) -> Option<Platform> {
    if !prepare(setup) {
        return None;
    }
    let driver = Driver::load().unwrap();
    let found =
        driver.platforms().into_iter().find(|platform| platform.name() == cuda::PLATFORM_NAME);
    Some(found.expect("the stand-in is a platform"))
}

/// Makes a context over the first device, and a queue.
pub fn first(setup: Setup, properties: u64) -> Option<(Context, Queue)> {
    let platform = platform(setup)?;
    let device = platform.devices().first().unwrap().clone();
    let context = context(&platform, &device);
    let queue = Queue::new(&context, &device, properties, 0).unwrap();
    Some((context, queue))
}

pub fn context(platform: &Platform, device: &Device) -> Context {
    Context::new(platform, std::slice::from_ref(device), Box::new(|_| ())).unwrap()
}

/// Makes a program from a module's text and builds it.
pub fn program(context: &Context, text: &str) -> (Program, Result<(), Status>) {
    let device = context.devices().first().unwrap().clone();
    let (codes, program) = Program::with_binary(context, &[(device, text.as_bytes().to_vec())]);
    assert_eq!(codes, [0]);
    let program = program.unwrap();
    let built = program.build(context.devices(), "");
    (program, built)
}

pub fn kernel(context: &Context, name: &str) -> Kernel {
    let (program, built) = program(context, MODULE);
    built.unwrap();
    Kernel::new(&program, name).unwrap()
}

pub fn set_params(kernel: &Kernel, words: &[u64]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    kernel.set(cuda::ARG_PARAMS, Arg::Bytes(&bytes)).unwrap();
}

/// Makes a kernel that runs for `time`.
pub fn sleeper(context: &Context, time: Duration) -> Kernel {
    let kernel = kernel(context, "sleep_ns");
    set_params(&kernel, &[u64::try_from(time.as_nanos()).unwrap()]);
    kernel
}

/// Makes a kernel that computes `c = a + b` in words.
pub fn adder(context: &Context, [a, b, c]: [&Mem; 3]) -> Kernel {
    let kernel = kernel(context, "add");
    let address = |mem: &Mem| mem.device_address().unwrap();
    set_params(&kernel, &[address(a), address(b), address(c), a.size() / 4]);
    kernel
}

pub fn one() -> IndexSpace {
    IndexSpace::line(1, Some(1))
}

pub fn buffer(context: &Context, size: u64) -> Mem {
    Mem::buffer(context, 1, size).unwrap()
}

/// Makes a buffer of equal words.
pub fn words(context: &Context, queue: &Queue, count: usize, value: u32) -> Mem {
    let mem = buffer(context, count as u64 * 4);
    queue.fill(&mem, &value.to_ne_bytes(), 0, mem.size(), &[], Want::Nothing).unwrap();
    mem
}

pub fn staged(bytes: &[u8]) -> Staged {
    let mut staged = Staged::new(bytes.len()).unwrap();
    staged.copy_from_slice(bytes);
    staged
}

pub fn read_all(queue: &Queue, mem: &Mem) -> Vec<u8> {
    queue.read(mem, 0, mem.size(), &[]).unwrap().wait().unwrap().to_vec()
}

/// Returns whether all words of a buffer have this value.
pub fn all_words_are(queue: &Queue, mem: &Mem, value: u32) -> bool {
    read_all(queue, mem).chunks(4).all(|word| word == value.to_ne_bytes())
}

/// Reports how the event ends, through its callback, which must come exactly once.
pub fn completion(event: &Event) -> mpsc::Receiver<(Status, Times)> {
    let (tell, told) = mpsc::channel();
    event.on_complete(Box::new(move |status, times| tell.send((status, times)).unwrap()));
    told
}

/// Returns bytes that differ from place to place.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect()
}
