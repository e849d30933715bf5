//! A pool of one node for the tests of one file, and short forms of common calls.
#![allow(dead_code, unreachable_pub, reason = "each file of tests uses some of it")]

use std::cell::RefCell;
use std::ffi::{CString, c_void};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::ptr::null_mut;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, OnceLock, mpsc};
use std::thread;

use penstock_cuda::api::context::{cuCtxCreate_v2, cuCtxDestroy_v2, cuCtxSynchronize};
use penstock_cuda::api::copy::{cuMemcpyDtoH_v2, cuMemcpyHtoD_v2};
use penstock_cuda::api::error::cuInit;
use penstock_cuda::api::event::cuEventCreate;
use penstock_cuda::api::launch::cuLaunchKernel;
use penstock_cuda::api::memory::cuMemAlloc_v2;
use penstock_cuda::api::module::{cuModuleGetFunction, cuModuleLoadData};
use penstock_cuda::api::stream::{cuLaunchHostFunc, cuStreamCreate};
use penstock_cuda_sys::driver::*;
use penstock_process::{Lock, Signal};
use penstock_trial::patience;

/// Environment variable: nodes for the tests, instead of a node of their own.
const NODES_VARIABLE: &str = "PENSTOCK_CUDA_TEST_NODES";

/// Starts the node, once. It ends with this process.
fn node() {
    static NODE: OnceLock<()> = OnceLock::new();
    NODE.get_or_init(|| {
        if let Some(nodes) = std::env::var_os(NODES_VARIABLE) {
            // SAFETY: the first action of each test; other threads wait in the cell meanwhile.
            return unsafe { std::env::set_var("PENSTOCK_NODES", nodes) };
        }
        // The tests are in target/PROFILE/deps, and the examples in target/PROFILE/examples.
        let tests = std::env::current_exe().unwrap();
        let program = tests.ancestors().nth(2).unwrap().join("examples/node");
        assert!(
            program.exists(),
            "{} is missing: run cargo build -p penstock-cuda --example node",
            program.display()
        );
        let socket =
            std::env::temp_dir().join(format!("penstock-cuda-{}.sock", std::process::id()));
        let (ready, is_ready) = mpsc::channel();
        let mut command = Command::new(program);
        let devices =
            if TWO_DEVICES.load(Ordering::Relaxed) { "pthread pthread" } else { "pthread" };
        command
            .arg(&socket)
            .env("POCL_DEVICES", devices)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // The node ends with the thread that started it, and threads of tests end early.
        thread::spawn(move || {
            let mut process = command.spawn().unwrap();
            let mut line = String::new();
            BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
            ready.send(line).unwrap();
            _ = process.wait();
        });
        let address = is_ready.recv().unwrap();
        // SAFETY: the first action of each test; other threads wait in the cell meanwhile. This
        // variable takes precedence over all other sources of nodes.
        unsafe { std::env::set_var("PENSTOCK_NODES", address.trim()) };
    });
}

static TWO_DEVICES: AtomicBool = AtomicBool::new(false);

/// Asks for a node with two devices. Must be called before everything else.
pub fn two_devices() {
    TWO_DEVICES.store(true, Ordering::Relaxed);
}

/// Checks that a call has succeeded.
#[track_caller]
pub fn ok(code: CUresult) {
    assert_eq!(code, CUDA_SUCCESS, "{:?}", code.entry());
}

/// Calls `cuInit` on the pool of the tests.
pub fn init() {
    node();
    // SAFETY: the call takes no pointers.
    ok(unsafe { cuInit(0) });
}

/// The right of one test to the device. Freed memory goes to the next test that allocates, so what
/// a test finds at a freed address would depend on the tests beside it.
struct Turn {
    _alone: MutexGuard<'static, ()>,
}

impl Turn {
    /// Waits until no other thread has its turn. A thread that has it gets it again.
    fn take() -> Rc<Self> {
        static ALONE: Lock<()> = Lock::new(());
        thread_local! {
            static OWN: RefCell<Weak<Turn>> = const { RefCell::new(Weak::new()) };
        }
        OWN.with_borrow_mut(|own| {
            own.upgrade().unwrap_or_else(|| {
                let turn = Rc::new(Self { _alone: ALONE.lock() });
                *own = Rc::downgrade(&turn);
                turn
            })
        })
    }
}

/// A context that is current in this thread and ends with the test. While it lives, no other thread
/// of the tests has one.
pub struct TestContext(pub CUcontext, #[expect(dead_code, reason = "held, never read")] Rc<Turn>);

impl TestContext {
    pub fn new() -> Self {
        let turn = Turn::take();
        init();
        let mut context = null_mut();
        // SAFETY: the result goes to a local variable.
        ok(unsafe { cuCtxCreate_v2(&raw mut context, 0, 0) });
        Self(context, turn)
    }
}

impl Drop for TestContext {
    fn drop(&mut self) {
        // SAFETY: handles are checked and never followed. Tests may have destroyed the context
        // themselves.
        _ = unsafe { cuCtxDestroy_v2(self.0) };
    }
}

pub fn synchronize() {
    // SAFETY: the call takes no pointers.
    ok(unsafe { cuCtxSynchronize() });
}

pub fn allocate(bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    // SAFETY: the result goes to a local variable.
    ok(unsafe { cuMemAlloc_v2(&raw mut address, bytes) });
    address
}

pub fn upload<T: Copy>(to: CUdeviceptr, values: &[T]) {
    // SAFETY: `values` has this number of bytes.
    ok(unsafe { cuMemcpyHtoD_v2(to, values.as_ptr().cast(), size_of_val(values)) });
}

pub fn download<T: Copy + Default>(from: CUdeviceptr, count: usize) -> Vec<T> {
    let mut values = vec![T::default(); count];
    // SAFETY: `values` has room for all bytes.
    ok(unsafe { cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), from, count * size_of::<T>()) });
    values
}

pub fn load(ptx: &str) -> CUmodule {
    let text = CString::new(ptx).unwrap();
    let mut module = null_mut();
    // SAFETY: the result goes to a local variable, and the string ends with a 0.
    ok(unsafe { cuModuleLoadData(&raw mut module, text.as_ptr().cast()) });
    module
}

pub fn function(module: CUmodule, name: &str) -> CUfunction {
    let name = CString::new(name).unwrap();
    let mut function = null_mut();
    // SAFETY: the result goes to a local variable, and the string ends with a 0.
    ok(unsafe { cuModuleGetFunction(&raw mut function, module, name.as_ptr()) });
    function
}

pub fn stream(flags: u32) -> CUstream {
    let mut stream = null_mut();
    // SAFETY: the result goes to a local variable.
    ok(unsafe { cuStreamCreate(&raw mut stream, flags) });
    stream
}

pub fn event(flags: u32) -> CUevent {
    let mut event = null_mut();
    // SAFETY: the result goes to a local variable.
    ok(unsafe { cuEventCreate(&raw mut event, flags) });
    event
}

/// Stops a stream until the test opens it. The test fails if something waits for the stream
/// meanwhile.
#[derive(Default)]
pub struct Gate {
    is_open: Lock<bool>,
    opened: Signal,
    was_late: AtomicBool,
}

impl Gate {
    /// Stops a stream. The gate must live until the stream has been waited for.
    pub fn close(&self, stream: CUstream) {
        // SAFETY: the gate lives until the stream has been waited for, and `hold` expects a gate.
        ok(unsafe {
            cuLaunchHostFunc(stream, Some(hold), std::ptr::from_ref(self).cast_mut().cast())
        });
    }

    pub fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
        assert!(!self.was_late.load(Ordering::SeqCst), "a call waited for the closed stream");
    }
}

unsafe extern "C" fn hold(gate: *mut c_void) {
    // SAFETY: `close` passes a gate that lives until the stream has been waited for.
    let gate = unsafe { &*gate.cast::<Gate>() };
    let is_open = gate.is_open.lock();
    let (is_open, _) = gate.opened.wait_timeout_while(is_open, patience(), |is_open| !*is_open);
    gate.was_late.store(!*is_open, Ordering::SeqCst);
}

/// Launches a kernel whose parameters have 8 bytes each.
pub fn launch(
    function: CUfunction,
    grid: u32,
    block: u32,
    stream: CUstream,
    params: &[u64],
) -> CUresult {
    let mut addresses: Vec<*mut c_void> =
        params.iter().map(|param| std::ptr::from_ref(param).cast_mut().cast()).collect();
    // SAFETY: the parameters are those of the kernel.
    unsafe {
        cuLaunchKernel(
            function,
            grid,
            1,
            1,
            block,
            1,
            1,
            0,
            stream,
            addresses.as_mut_ptr(),
            null_mut(),
        )
    }
}

/// Kernels of the tests: `add_one(u32 *values)`, `slow(u32 *value, u64 rounds)`, which adds 1 after
/// counting to `rounds`, `count()` and `empty()`.
pub const KERNELS: &str = r"
.version 7.5
.target sm_75
.address_size 64

.visible .global .align 4 .u32 counter = 7;
.visible .const .align 4 .b8 table[8] = {1, 0, 0, 0, 2, 0, 0, 0};

.visible .entry add_one(.param .u64 values)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [values];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r5, [%rd4];
    add.u32 %r5, %r5, 1;
    st.global.u32 [%rd4], %r5;
    ret;
}

.visible .entry slow(.param .u64 value, .param .u64 rounds)
{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [value];
    ld.param.u64 %rd2, [rounds];
    cvta.to.global.u64 %rd3, %rd1;
    mov.u64 %rd4, 0;
$loop:
    ld.volatile.global.u32 %r1, [%rd3];
    st.volatile.global.u32 [%rd3], %r1;
    add.u64 %rd4, %rd4, 1;
    setp.lt.u64 %p1, %rd4, %rd2;
    @%p1 bra $loop;
    ld.volatile.global.u32 %r2, [%rd3];
    add.u32 %r3, %r2, 1;
    st.volatile.global.u32 [%rd3], %r3;
    ret;
}

.visible .entry count()
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    mov.u64 %rd1, counter;
    ld.global.u32 %r1, [%rd1];
    ld.const.u32 %r2, [table+4];
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd1], %r1;
    ret;
}

.visible .entry empty()
{
    ret;
}
";

/// Runs `work` and returns what the process writes to a descriptor, 1 or 2, meanwhile. All threads
/// share the descriptor, so the file of such a test has no other test.
pub fn written(descriptor: i32, work: impl FnOnce()) -> String {
    let path = std::env::temp_dir().join(format!("penstock-cuda-written-{}", std::process::id()));
    let mut options = std::fs::File::options();
    let mut file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    // SAFETY: the descriptor belongs to this process.
    let kept = unsafe { libc::dup(descriptor) };
    // SAFETY: both descriptors belong to this process.
    unsafe { libc::dup2(file.as_raw_fd(), descriptor) };
    work();
    // SAFETY: both descriptors belong to this process.
    unsafe { libc::dup2(kept, descriptor) };
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    std::fs::remove_file(&path).unwrap();
    text
}
