//! What fails, fails whoever depends on it, with the root cause; nothing hangs; what a program does wrong is found at the call.

mod common;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{Cluster, Host};
use water::backend::Backend;
use water::clock::Real;
use water::command::{Arg, Code, CommandId, Fault, ObjectId, Range, Rank, Stream};
use water::doorbell::Doorbell;
use water::error::code;
use water::root::{Request, Root};
use water::runtime::Runtime;
use water::transport::loopback::Loopback;
use water::transport::{Happening, Span, Token, Transport};

/// No test takes a second; a full machine may make it many.
const MOST: Duration = Duration::from_secs(60);

/// Runs a test's body in a thread, and fails if it hangs.
fn bounded<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = body();
        tell.send(()).unwrap();
        result
    });
    match told.recv_timeout(MOST) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// What the tests ask of a runtime.
struct Program<'a>(&'a Runtime);

impl Program<'_> {
    fn object(&self) -> ObjectId {
        self.0.with_root(Root::object).unwrap()
    }

    fn issue(&self, rank: Rank, waits: &[CommandId], request: Request) -> CommandId {
        self.0.with_root(|root| root.issue(rank, 0, waits.to_vec(), request)).unwrap()
    }

    fn buffer(&self, rank: Rank, size: usize) -> (ObjectId, CommandId) {
        let buffer = self.object();
        (buffer, self.issue(rank, &[], Request::CreateBuffer { buffer, size: size as u64, flags: 1 }))
    }

    fn kernel(&self, rank: Rank, name: &str) -> (ObjectId, CommandId) {
        let kernel = self.object();
        let code = Code::Source(Vec::new());
        (
            kernel,
            self.issue(
                rank,
                &[],
                Request::CreateKernel { kernel, code, name: name.into(), options: String::new() },
            ),
        )
    }

    fn run(&self, rank: Rank, kernel: ObjectId, buffer: ObjectId, waits: &[CommandId]) -> CommandId {
        let args = vec![Arg::Buffer(buffer), Arg::Buffer(buffer), Arg::Bytes(vec![1])];
        let range = Range { dims: 1, offset: [0; 3], global: [1; 3], local: None };
        self.issue(rank, waits, Request::Run { kernel, range, args })
    }

    fn write(&self, rank: Rank, buffer: ObjectId, bytes: &[u8], waits: &[CommandId]) -> CommandId {
        let address = bytes.as_ptr().expose_provenance() as u64;
        self.issue(rank, waits, Request::Write { buffer, offset: 0, size: bytes.len() as u64, address })
    }

    fn read(&self, rank: Rank, buffer: ObjectId, bytes: &mut [u8], waits: &[CommandId]) -> CommandId {
        let address = bytes.as_mut_ptr().expose_provenance() as u64;
        self.issue(rank, waits, Request::Read { buffer, offset: 0, size: bytes.len() as u64, address })
    }

    fn copy(
        &self,
        from: (Rank, ObjectId),
        to: (Rank, ObjectId),
        size: usize,
        waits: &[CommandId],
    ) -> CommandId {
        let request = Request::Copy {
            from: from.1,
            from_rank: from.0,
            from_device: 0,
            from_offset: 0,
            to: to.1,
            to_offset: 0,
            size: size as u64,
        };
        self.issue(to.0, waits, request)
    }

    fn wait(&self, command: CommandId) -> Result<(), Box<Fault>> {
        self.0.wait(&[command])
    }
}

#[test]
fn a_failed_command_fails_what_depends_on_it_on_all_ranks_with_its_own_fault() {
    bounded(|| {
        for size in [64, 100_000] {
            let cluster = Cluster::new(3, 1);
            let program = Program(cluster.runtime());
            let (one, made_one) = program.buffer(1, size);
            let (two, made_two) = program.buffer(2, size);
            let (fail, made_fail) = program.kernel(1, "fail");
            let (mix, made_mix) = program.kernel(2, "mix");
            let failed = program.run(1, fail, one, &[made_one, made_fail]);
            let copied = program.copy((1, one), (2, two), size, &[failed, made_two]);
            let ran = program.run(2, mix, two, &[copied, made_mix]);
            let mut bytes = vec![0xAB; size];
            let read = program.read(2, two, &mut bytes, &[ran]);
            for command in [failed, copied, ran, read] {
                let fault = program.wait(command).unwrap_err();
                assert_eq!(
                    (fault.code, fault.rank, fault.command, fault.work.as_str()),
                    (-5, 1, failed, "run_kernel"),
                    "{fault}"
                );
                assert_eq!((fault.message.as_str(), fault.device.as_str()), ("this kernel fails", "bytes"));
            }
            assert!(bytes.iter().all(|byte| *byte == 0xAB), "a cancelled read writes nothing");
            assert_eq!(cluster.runtime().faults().len(), 1, "one root cause is told once");
            // What does not depend on it is not touched.
            let fine = program.write(2, two, &vec![7; size], &[made_two]);
            program.wait(fine).unwrap();
        }
    });
}

#[test]
fn a_kernel_that_does_not_build_fails_its_launches_with_the_build_log() {
    bounded(|| {
        let cluster = Cluster::new(2, 1);
        let program = Program(cluster.runtime());
        for rank in [0, 1] {
            let (buffer, made) = program.buffer(rank, 8);
            let (kernel, built) = program.kernel(rank, "bad");
            let ran = program.run(rank, kernel, buffer, &[made, built]);
            let fault = program.wait(ran).unwrap_err();
            assert_eq!((fault.code, fault.command, fault.rank), (-11, built, rank));
            assert_eq!((fault.log.as_str(), fault.work.as_str()), ("line 1: bad", "create_kernel"));
        }
    });
}

#[test]
fn releases_run_though_what_they_wait_for_has_failed() {
    bounded(|| {
        let cluster = Cluster::new(2, 1);
        let program = Program(cluster.runtime());
        for rank in [0, 1] {
            let (buffer, made) = program.buffer(rank, 8);
            let (kernel, built) = program.kernel(rank, "fail");
            let failed = program.run(rank, kernel, buffer, &[made, built]);
            let released = program.issue(rank, &[failed], Request::ReleaseBuffer { buffer });
            let released_kernel = program.issue(rank, &[failed], Request::ReleaseKernel { kernel });
            assert_eq!(program.wait(failed).unwrap_err().code, -5);
            program.wait(released).unwrap();
            program.wait(released_kernel).unwrap();
            // It is gone indeed.
            let late = program.write(rank, buffer, &[1; 8], &[]);
            assert_eq!(program.wait(late).unwrap_err().code, -38, "rank {rank}");
        }
    });
}

#[test]
fn a_broadcast_reaches_all_but_the_members_that_cannot_take_it() {
    bounded(|| {
        let cluster = Cluster::new(6, 1);
        // So slow that a tree gains.
        let link = water::root::cost::Link { latency_ns: 0.0, overhead_ns: 1e6, byte_ns: 1e5 };
        cluster.runtime().with_root(|root| root.set_link(link));
        let program = Program(cluster.runtime());
        for size in [64, 100_000] {
            let bytes = vec![9; size];
            let (mut writes, mut failed) = (Vec::new(), Vec::new());
            for rank in 1..6 {
                let (buffer, made) = program.buffer(rank, size);
                let (kernel, built) = program.kernel(rank, if rank == 2 { "fail" } else { "mix" });
                let ran = program.run(rank, kernel, buffer, &[made, built]);
                failed.push(ran);
                let write = program.write(rank, buffer, &bytes, &[ran]);
                writes.push((rank, buffer, write));
            }
            for (rank, buffer, write) in writes {
                let outcome = program.wait(write);
                if rank == 2 {
                    assert_eq!(outcome.unwrap_err().code, -5);
                    continue;
                }
                // Whoever gets its bytes through the rank that failed may fail too, with the same cause; the others get all.
                match outcome {
                    Ok(()) => {
                        let mut back = vec![0; size];
                        let read = program.read(rank, buffer, &mut back, &[]);
                        program.wait(read).unwrap();
                        assert_eq!(back, bytes, "rank {rank}");
                    }
                    Err(fault) => panic!("rank {rank} does not depend on rank 2, but: {fault}"),
                }
            }
        }
    });
}

/// A rank's way to the others that can be cut, as if its process had ended.
#[derive(Debug)]
struct Mortal {
    inner: Loopback,
    dead: Arc<AtomicBool>,
    bell: Arc<Mutex<Doorbell>>,
}

impl Transport for Mortal {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn size(&self) -> u32 {
        self.inner.size()
    }

    fn control(&mut self, to: Rank, bytes: Vec<u8>) {
        self.inner.control(to, bytes);
    }

    unsafe fn send(&mut self, to: Rank, stream: Stream, span: Span, token: Token) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.send(to, stream, span, token) };
    }

    unsafe fn receive(&mut self, from: Rank, stream: Stream, span: Span, token: Token) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.receive(from, stream, span, token) };
    }

    fn poll(&mut self, happened: &mut Vec<Happening>) {
        if self.dead.load(Ordering::SeqCst) {
            // It ends as a rank does whose root is gone: at once.
            happened.push(Happening::Lost(0, "the test ends this rank".into()));
        } else {
            self.inner.poll(happened);
        }
    }

    fn needs_polling(&self) -> bool {
        false
    }

    fn wake_with(&mut self, wake: Doorbell) {
        *self.bell.lock().unwrap() = wake.clone();
        self.inner.wake_with(wake);
    }
}

/// Ranks of which each can be ended.
struct Doomed {
    runtime: Option<Runtime>,
    ranks: Vec<(Arc<AtomicBool>, Arc<Mutex<Doorbell>>, JoinHandle<()>)>,
}

impl Doomed {
    fn new(count: u32) -> Self {
        let mut ends = Loopback::ranks(count).into_iter();
        let root = ends.next().unwrap();
        let ranks = ends
            .map(|inner| {
                let (dead, bell) =
                    (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Doorbell::default())));
                let end = Mortal { inner, dead: Arc::clone(&dead), bell: Arc::clone(&bell) };
                let serve =
                    move || Runtime::serve(Box::new(end), Box::new(Host::new(1)), Arc::new(Real::new()));
                (dead, bell, std::thread::spawn(serve))
            })
            .collect();
        let devices: Box<dyn Backend> = Box::new(Host::new(1));
        let runtime = Runtime::root(Box::new(root), devices, Arc::new(Real::new()), true).unwrap();
        Self { runtime: Some(runtime), ranks }
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().unwrap()
    }

    fn end(&self, rank: usize) {
        let (dead, bell, _) = &self.ranks[rank - 1];
        dead.store(true, Ordering::SeqCst);
        bell.lock().unwrap().ring();
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        self.runtime.take().unwrap().end();
        for (_, _, thread) in self.ranks.drain(..) {
            thread.join().unwrap();
        }
    }
}

#[test]
fn a_rank_that_goes_away_fails_what_needs_it_and_nothing_else() {
    bounded(|| {
        let ranks = Doomed::new(4);
        let program = Program(ranks.runtime());
        const SIZE: usize = 100_000;
        let made: Vec<_> = (0..4).map(|rank| program.buffer(rank, SIZE)).collect();
        let all: Vec<_> = made.iter().map(|(_, made)| *made).collect();
        ranks.runtime().wait(&all).unwrap();
        ranks.end(2);
        let began = Instant::now();
        let to_dead = program.copy((1, made[1].0), (2, made[2].0), SIZE, &[]);
        let from_dead = program.copy((2, made[2].0), (3, made[3].0), SIZE, &[]);
        let after = program.write(3, made[3].0, &[1; SIZE], &[from_dead]);
        let mut bytes = vec![0; SIZE];
        let read = program.read(2, made[2].0, &mut bytes, &[]);
        for (command, what) in [(to_dead, "to"), (from_dead, "from"), (after, "after"), (read, "read")] {
            let fault = program.wait(command).expect_err(what);
            assert_eq!(fault.code, code::NODE_LOST, "{what}: {fault}");
        }
        for rank in [0, 1, 3] {
            let written = vec![3; SIZE];
            let write = program.write(rank, made[rank as usize].0, &written, &[]);
            let read = program.read(rank, made[rank as usize].0, &mut bytes, &[write]);
            program.wait(read).unwrap();
            assert_eq!(bytes, written);
        }
        println!("all was told within {:?}", began.elapsed());
    });
}

#[test]
fn a_rank_that_goes_away_at_any_moment_hangs_nothing() {
    bounded(|| {
        for round in 0..40_u32 {
            let ranks = Doomed::new(4);
            let program = Program(ranks.runtime());
            if round % 2 == 1 {
                let link = water::root::cost::Link { latency_ns: 0.0, overhead_ns: 1e6, byte_ns: 1e5 };
                ranks.runtime().with_root(|root| root.set_link(link));
            }
            let size = if round % 4 < 2 { 1000 } else { 3 << 20 };
            let bytes = vec![5; size];
            let mut back = vec![vec![0; size]; 3];
            let mut commands = Vec::new();
            let made: Vec<_> = (1..4).map(|rank| (rank, program.buffer(rank, size))).collect();
            for (rank, (buffer, made)) in &made {
                commands.push(program.write(*rank, *buffer, &bytes, &[*made]));
            }
            let last = commands.clone();
            for (place, (rank, (buffer, _))) in made.iter().enumerate() {
                let (to, (target, _)) = made[(place + 1) % 3];
                let copied = program.copy((*rank, *buffer), (to, target), size, &last);
                commands.push(copied);
                commands.push(program.read(to, target, &mut back[place], &[copied]));
            }
            ranks.runtime().flush();
            std::thread::sleep(Duration::from_micros(u64::from(round) * 97 % 1500));
            ranks.end(1 + round as usize % 3);
            // All end: some well, some not. Afterwards nobody writes to the program's memory.
            _ = ranks.runtime().wait(&commands);
            for command in &commands {
                if let Some(Err(fault)) = ranks.runtime().outcome(*command) {
                    assert_eq!(fault.code, code::NODE_LOST, "round {round}: {fault}");
                }
            }
            drop(ranks);
        }
    });
}

// The functions of wtr.h and wtr_ext.h, as C sees them.

#[repr(C)]
struct CError {
    code: c_int,
    message: *const c_char,
    node: *const c_char,
    device: *const c_char,
    log: *const c_char,
}

type Handle = *mut c_void;
type Handler = extern "C" fn(*const CError, *mut c_void);

unsafe extern "C" {
    fn wtr_init_devices_v(dql: *const c_char);
    fn wtr_get_device_v(dql: *const c_char) -> Handle;
    fn wtr_release_devices();
    fn wtr_create_buffer(device: Handle, flag: c_uint, size: usize, evt: *mut Handle) -> Handle;
    fn wtr_release_buffer(buffer: Handle, wait: *mut Handle, evt: *mut Handle);
    fn wtr_write_buffer(
        buffer: Handle,
        size: usize,
        source: *const c_void,
        wait: *mut Handle,
        evt: *mut Handle,
    );
    fn wtr_read_buffer(buffer: Handle, size: usize, target: *mut c_void, wait: *mut Handle, evt: *mut Handle);
    fn wtr_create_kernel(
        device: Handle,
        name: *const c_char,
        kernel: *const c_char,
        options: *const c_char,
        flag: c_uint,
        evt: *mut Handle,
    ) -> Handle;
    fn wtr_release_kernel(kernel: Handle, wait: *mut Handle, evt: *mut Handle);
    fn wtr_run_kernel_v(
        kernel: Handle,
        dims: c_uint,
        offset: *const usize,
        global: *const usize,
        local: *const usize,
        wait: *mut Handle,
        evt: *mut Handle,
        count: c_uint,
        sizes: *const usize,
        values: *const *const c_void,
    );
    fn wtr_create_event() -> Handle;
    fn wtr_release_event(event: Handle);
    fn wtr_event_status(event: Handle) -> c_int;
    fn wtr_event_error(event: Handle) -> *const CError;
    fn wtr_wait_for_events_v(count: c_uint, events: *const *mut Handle);
    fn wtr_last_error() -> *const CError;
    fn wtr_set_error_handler(handler: Option<Handler>, user: *mut c_void);
    fn wtr_dump_graph(path: *const c_char) -> c_int;
    fn wtr_partition(
        total: usize,
        granularity: usize,
        count: c_uint,
        weights: *const f64,
        parts: *mut usize,
    ) -> c_int;
    fn wtr_partition_weights(count: c_uint, devices: *const Handle, weights: *mut f64) -> c_int;
}

static TOLD: Mutex<Vec<(i32, String)>> = Mutex::new(Vec::new());

extern "C" fn hear(error: *const CError, _: *mut c_void) {
    // SAFETY: the library gives an error with texts.
    let (code, message) = unsafe { ((*error).code, text((*error).message)) };
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).push((code, message));
}

/// # Safety
/// A text that ends with a zero.
unsafe fn text(text: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// What the handler heard since it was last asked.
fn told() -> Vec<(i32, String)> {
    std::mem::take(&mut *TOLD.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The call just made was found wrong, once, and the message says this.
#[track_caller]
fn refused(expected: i32, says: &str) {
    let told = told();
    let [(code, message)] = told.as_slice() else { panic!("not one error: {told:?}") };
    assert_eq!(*code, expected, "{message}");
    assert!(message.contains(says), "`{message}` does not say `{says}`");
    // SAFETY: asked at once after the call.
    let last = unsafe { &*wtr_last_error() };
    assert_eq!(last.code, expected);
}

const INVALID: i32 = -20001;
const STATE: i32 = -20003;
const NULL: Handle = std::ptr::null_mut();
const NO: *mut Handle = std::ptr::null_mut();

/// Starts PoCL with two devices. Whether there are any.
fn two_devices() -> Option<(Handle, Handle)> {
    // SAFETY: texts with ends.
    unsafe {
        wtr_set_error_handler(Some(hear), std::ptr::null_mut());
        wtr_init_devices_v(c"SELECT ALL".as_ptr());
    }
    let errors = told();
    if !errors.is_empty() {
        println!("SKIPPED: no OpenCL device here: {errors:?}");
        return None;
    }
    // SAFETY: texts with ends.
    let devices =
        unsafe { (wtr_get_device_v(c"SELECT POS 1".as_ptr()), wtr_get_device_v(c"SELECT POS 2".as_ptr())) };
    assert!(!devices.0.is_null() && told().is_empty());
    Some(devices)
}

#[test]
fn what_a_program_does_wrong_is_found_at_the_call() {
    // One device more than a machine has by itself, so that there is a buffer of another device. Read by PoCL when it is loaded,
    // which is below; no other test of this file loads it.
    // SAFETY: nobody reads the environment at the same time but the runtime's threads, which do not yet exist for OpenCL.
    unsafe { std::env::set_var("POCL_DEVICES", "cpu cpu") };
    let Some((device, other)) = two_devices() else { return };
    wrong_objects(device);
    wrong_launches(device, other);
    wrong_events(device);
    wrong_helpers(device);
    // SAFETY: all commands have ended.
    unsafe { wtr_release_devices() };
    assert_eq!(told(), []);
    // SAFETY: there is no run any more; the call says so.
    assert!(unsafe { wtr_create_buffer(device, 1, 8, NO) }.is_null());
    refused(STATE, "wtr_init_devices");
}

fn wrong_objects(device: Handle) {
    let mut bytes = [0_u8; 64];
    let place: *mut c_void = bytes.as_mut_ptr().cast();
    // SAFETY: wrong handles are what is tested; memory is as large as said.
    unsafe {
        assert!(wtr_create_buffer(NULL, 1, 8, NO).is_null());
        refused(INVALID, "device is NULL");
        assert!(wtr_create_buffer(device, 3, 8, NO).is_null());
        refused(INVALID, "flag is 3");
        assert!(wtr_create_buffer(device, 1, 0, NO).is_null());
        refused(INVALID, "0 bytes");
        let buffer = wtr_create_buffer(device, 1, 64, NO);
        assert!(!buffer.is_null() && wtr_last_error().is_null());
        assert!(wtr_create_buffer(buffer, 1, 8, NO).is_null());
        refused(INVALID, "no device");
        wtr_write_buffer(NULL, 64, place, NO, NO);
        refused(INVALID, "buffer is NULL");
        wtr_write_buffer(buffer, 64, std::ptr::null(), NO, NO);
        refused(INVALID, "source is NULL");
        wtr_read_buffer(buffer, 65, place, NO, NO);
        refused(INVALID, "do not lie within");
        wtr_read_buffer(device, 64, place, NO, NO);
        refused(INVALID, "no buffer");
        wtr_release_buffer(buffer, NO, NO);
        assert_eq!(told(), []);
        wtr_release_buffer(buffer, NO, NO);
        refused(INVALID, "released already");
        wtr_write_buffer(buffer, 64, place, NO, NO);
        refused(INVALID, "released already");
    }
}

const SOURCE: &CStr = c"__kernel void add(__global int *a, int b) { a[get_global_id(0)] += b; }";

fn wrong_launches(device: Handle, other: Handle) {
    let (eight, number) = ([8_usize], 1_i32);
    let number: *const c_void = (&raw const number).cast();
    let none: *const usize = std::ptr::null();
    // SAFETY: arrays are as long as said; wrong handles are what is tested.
    unsafe {
        let buffer = wtr_create_buffer(device, 1, 32, NO);
        assert!(
            wtr_create_kernel(device, std::ptr::null(), c"add".as_ptr(), std::ptr::null(), 1, NO).is_null()
        );
        refused(INVALID, "name is NULL");
        assert!(
            wtr_create_kernel(device, c"/no/such/file.cl".as_ptr(), c"add".as_ptr(), std::ptr::null(), 0, NO)
                .is_null()
        );
        refused(-20005, "/no/such/file.cl");
        let kernel = wtr_create_kernel(device, SOURCE.as_ptr(), c"add".as_ptr(), std::ptr::null(), 1, NO);
        assert_eq!(told(), []);
        let run = |kernel, dims, global: *const usize, sizes: &[usize], values: &[*const c_void]| {
            let count = c_uint::try_from(sizes.len()).unwrap();
            wtr_run_kernel_v(
                kernel,
                dims,
                none,
                global,
                none,
                NO,
                NO,
                count,
                sizes.as_ptr(),
                values.as_ptr(),
            );
        };
        run(NULL, 1, eight.as_ptr(), &[], &[]);
        refused(INVALID, "kernel is NULL");
        run(kernel, 4, eight.as_ptr(), &[0, 4], &[buffer, number]);
        refused(INVALID, "work_dim is 4");
        run(kernel, 1, none, &[0, 4], &[buffer, number]);
        refused(INVALID, "global work size is NULL");
        run(kernel, 1, eight.as_ptr(), &[0, 4], &[std::ptr::null(), number]);
        refused(INVALID, "argument 0");
        run(kernel, 1, eight.as_ptr(), &[0], &[buffer]);
        refused(-30, "takes 2 arguments, 1 were given");
        run(kernel, 1, eight.as_ptr(), &[0, 4, 4], &[buffer, number, number]);
        refused(-30, "takes 2 arguments, 3 were given");
        if other.is_null() {
            println!("SKIPPED: a buffer of another device: there is only one device");
        } else {
            let foreign = wtr_create_buffer(other, 1, 32, NO);
            run(kernel, 1, eight.as_ptr(), &[0, 4], &[foreign, number]);
            refused(INVALID, "another device");
            wtr_release_buffer(foreign, NO, NO);
        }
        // After all this it still works.
        let (ones, mut back) = ([1_i32; 8], [0_i32; 8]);
        wtr_write_buffer(buffer, 32, ones.as_ptr().cast(), NO, NO);
        run(kernel, 1, eight.as_ptr(), &[0, 4], &[buffer, number]);
        wtr_read_buffer(buffer, 32, back.as_mut_ptr().cast(), NO, NO);
        assert_eq!((told(), back), (Vec::new(), [2; 8]));
        wtr_release_kernel(kernel, NO, NO);
        wtr_release_kernel(kernel, NO, NO);
        refused(INVALID, "released already");
        wtr_release_buffer(buffer, NO, NO);
    }
}

fn wrong_events(device: Handle) {
    // SAFETY: wrong handles are what is tested; slots live as long as the calls.
    unsafe {
        let mut unbound = wtr_create_event();
        wtr_wait_for_events_v(1, [&raw mut unbound].as_ptr());
        refused(INVALID, "not given to any command");
        let buffer = wtr_create_buffer(device, 1, 8, NO);
        wtr_release_buffer(buffer, &raw mut unbound, NO);
        refused(INVALID, "not given to any command");
        wtr_release_event(unbound);
        wtr_release_event(unbound);
        refused(INVALID, "released already");
        // A build that fails is told with the event, and fails what waits for it.
        let mut built = NULL;
        let mut ran = NULL;
        let kernel = wtr_create_kernel(
            device,
            c"nonsense".as_ptr(),
            c"add".as_ptr(),
            std::ptr::null(),
            1,
            &raw mut built,
        );
        let one = [1_usize];
        let none: *const usize = std::ptr::null();
        wtr_run_kernel_v(
            kernel,
            1,
            none,
            one.as_ptr(),
            none,
            &raw mut built,
            &raw mut ran,
            0,
            none,
            std::ptr::null(),
        );
        wtr_wait_for_events_v(1, [&raw mut ran].as_ptr());
        let heard = told();
        assert!(
            matches!(heard.as_slice(), [(-11, message)] if message.contains("create_kernel")),
            "one root cause: {heard:?}"
        );
        assert_eq!((wtr_event_status(built), wtr_event_status(ran)), (-11, -11));
        let error = &*wtr_event_error(ran);
        assert!(
            !text(error.log).is_empty() && !text(error.device).is_empty() && !text(error.node).is_empty()
        );
        wtr_release_kernel(kernel, NO, NO);
        assert_eq!(told(), []);
        wtr_release_event(built);
        wtr_release_event(ran);
    }
}

fn wrong_helpers(device: Handle) {
    let (mut parts, mut weights) = ([0_usize; 3], [0.0; 1]);
    // SAFETY: arrays are as long as said.
    unsafe {
        assert_eq!(wtr_partition(10, 0, 3, std::ptr::null(), parts.as_mut_ptr()), INVALID);
        refused(INVALID, "granularity is 0");
        assert_eq!(wtr_partition(10, 1, 3, [1.0, -2.0, 1.0].as_ptr(), parts.as_mut_ptr()), INVALID);
        refused(INVALID, "weight 1");
        assert_eq!(wtr_partition(10, 1, 0, std::ptr::null(), parts.as_mut_ptr()), INVALID);
        refused(INVALID, "no devices");
        assert_eq!(wtr_partition(10, 1, 3, std::ptr::null(), std::ptr::null_mut()), INVALID);
        refused(INVALID, "NULL");
        assert_eq!(wtr_partition(10, 1, 3, std::ptr::null(), parts.as_mut_ptr()), 0);
        assert_eq!((parts, told()), ([4, 3, 3], Vec::new()));
        assert_eq!(wtr_partition_weights(1, [NULL].as_ptr(), weights.as_mut_ptr()), INVALID);
        refused(INVALID, "device is NULL");
        assert_eq!(wtr_partition_weights(1, [device].as_ptr(), weights.as_mut_ptr()), 0);
        assert!(weights[0] > 0.0);
        assert_eq!(wtr_dump_graph(c"/tmp/never-written.dot".as_ptr()), STATE);
        refused(STATE, "WTR_RECORD");
    }
}
