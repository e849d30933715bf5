//! An OpenCL device that runs translated PTX.

use std::sync::LazyLock;

use penstock_cl_sys::{
    CL_DEVICE_DOUBLE_FP_CONFIG, CL_DEVICE_EXTENSIONS, CL_DEVICE_SINGLE_FP_CONFIG,
    CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT, CL_MEM_READ_WRITE, CL_PROGRAM_BUILD_LOG,
};
use penstock_device::{
    Arg, Context, Device, Driver, IndexSpace, Kernel, Mem, Program, Queue, Staged, Want,
};
use penstock_ptx::ir::Module;
use penstock_ptx::module::parse;
use penstock_ptx::translate::{Argument, CONTROL_BYTES, Options, Translation, translate};
use penstock_trial::{Need, skip};

/// Base address of device memory for the programs under test.
pub const BASE: u64 = 0x7_0000_0000_0000;

/// Bytes of device memory: enough for the inputs and results of the largest family.
pub const ARENA_BYTES: u64 = 64 << 20;

/// Offset of the control block, behind addresses that no test should access.
const CONTROL: u64 = 4096;

const DATA: u64 = 8192;

/// Offset of the tests' own data.
pub const FREE: u64 = 1 << 20;

pub struct Machine {
    pub name: String,
    pub options: Options,
    context: Context,
    queue: Queue,
    arena: Mem,
}

/// A program that is ready to run.
pub struct Ready {
    module: Module,
    translation: Translation,
    program: Program,
}

/// Returns every OpenCL device of the machine, with a queue and memory of the caller's own. Skips
/// the test if there is none.
pub fn machines() -> Vec<Machine> {
    // PoCL reads the library of OpenCL C's functions for each context with a new program, which
    // takes half a second.
    static SHARED: LazyLock<Result<Vec<(Device, Context)>, String>> = LazyLock::new(shared);
    match &*SHARED {
        Ok(shared) if shared.is_empty() => {
            skip(Need::OpenCl, "no OpenCL device on this machine (Debian: pocl-opencl-icd)");
            Vec::new()
        }
        Ok(shared) => {
            shared.iter().map(|(device, context)| Machine::new(device, context.clone())).collect()
        }
        Err(error) => {
            skip(Need::OpenCl, error);
            Vec::new()
        }
    }
}

/// Returns every OpenCL device of the machine, with a context.
fn shared() -> Result<Vec<(Device, Context)>, String> {
    // What the daemon sets for its workers, too (`daemon/src/launch.rs`).
    // SAFETY: only drivers read the environment without the lock of Rust's library. They are loaded
    // behind this.
    unsafe { std::env::set_var("POCL_FULL_REPLICATION_THRESHOLD", "0") };
    let driver = Driver::load().map_err(|error| error.to_string())?;
    let devices = driver.platforms().into_iter().flat_map(|it| it.devices());
    let context = |device: &Device| {
        Context::new(device.platform(), std::slice::from_ref(device), Box::new(|_| {}))
            .expect("a context")
    };
    Ok(devices.map(|device| (device.clone(), context(&device))).collect())
}

impl Machine {
    fn new(device: &Device, context: Context) -> Self {
        let info = device.info();
        let bytes = |name: u32| {
            info.iter()
                .find(|(known, _)| *known == name)
                .map(|(_, bytes)| bytes.clone())
                .unwrap_or_default()
        };
        let number =
            |name: u32| bytes(name).first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let extensions = String::from_utf8_lossy(&bytes(CL_DEVICE_EXTENSIONS)).into_owned();
        let options = Options {
            arenas: vec![(BASE, ARENA_BYTES)],
            heap: false,
            check: false,
            fp64: number(CL_DEVICE_DOUBLE_FP_CONFIG) != 0,
            int64_atomics: extensions.contains("cl_khr_int64_base_atomics")
                && extensions.contains("cl_khr_int64_extended_atomics"),
            fp16: extensions.contains("cl_khr_fp16"),
            exact_division: number(CL_DEVICE_SINGLE_FP_CONFIG)
                & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT
                != 0,
        };
        let queue = Queue::new(&context, device, 0, 0).expect("a queue");
        let arena = Mem::buffer(&context, CL_MEM_READ_WRITE, ARENA_BYTES).expect("device memory");
        Self {
            name: format!("{} of {}", device.name(), device.platform().name()),
            options,
            context,
            queue,
            arena,
        }
    }

    /// Parses, translates and builds a text.
    pub fn build(&self, text: &str) -> Result<Ready, String> {
        let module = parse(text).map_err(|error| error.to_string())?;
        let translation = translate(&module, &self.options).map_err(|error| error.to_string())?;
        let program = Program::with_source(&self.context, translation.source.as_bytes())
            .map_err(|error| format!("{error:?}"))?;
        let built = program.build(self.context.devices(), translation.build_options.as_str());
        if let Err(error) = built {
            let devices: Vec<(u32, Device)> =
                (0..).zip(self.context.devices().iter().cloned()).collect();
            let report = program.report(Err(error), &devices);
            let log = report
                .devices
                .iter()
                .flat_map(|(_, info)| info)
                .find(|(name, _)| *name == CL_PROGRAM_BUILD_LOG);
            let log = log
                .map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned())
                .unwrap_or_default();
            return Err(format!("{error:?}\n{log}\n{}", numbered(&translation.source)));
        }
        Ok(Ready { module, translation, program })
    }

    /// Writes to device memory at an offset.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.queue
            .write(&self.arena, offset, Staged::from(bytes.to_vec()), &[], Want::Nothing)
            .expect("within the arena");
        self.queue.finish().expect("written");
    }

    pub fn read(&self, offset: u64, size: u64) -> Vec<u8> {
        let reading = self.queue.read(&self.arena, offset, size, &[]).expect("within the arena");
        self.queue.flush().expect("flushed");
        reading.wait().expect("read").to_vec()
    }

    /// Runs a kernel whose parameters are 64 bits each, and waits for it.
    pub fn launch(
        &self,
        ready: &Ready,
        name: &str,
        params: &[u64],
        blocks: u64,
        threads: u64,
        dynamic: u64,
    ) {
        let control = vec![0; usize::try_from(CONTROL_BYTES).expect("small")];
        self.launch_with(ready, name, params, [blocks, 1, 1], [threads, 1, 1], dynamic, &control);
    }

    /// Like [`Machine::launch`], with three dimensions and a control block.
    #[expect(clippy::too_many_arguments, reason = "what a launch is")]
    pub fn launch_with(
        &self,
        ready: &Ready,
        name: &str,
        params: &[u64],
        grid: [u64; 3],
        threads: [u64; 3],
        dynamic: u64,
        control: &[u8],
    ) {
        let kernel = ready
            .translation
            .kernels
            .iter()
            .find(|kernel| kernel.name == name)
            .expect("the kernel is there");
        let data = ready.module.data();
        let mut content = data.bytes.clone();
        content.resize(usize::try_from(data.size).expect("small"), 0);
        for relocation in &data.relocations {
            let at = usize::try_from(relocation.offset).expect("small");
            let address = (BASE + DATA).wrapping_add_signed(relocation.target);
            content[at..at + usize::from(relocation.width)]
                .copy_from_slice(&address.to_le_bytes()[..usize::from(relocation.width)]);
        }
        if !content.is_empty() {
            self.write(DATA, &content);
        }
        self.write(CONTROL, control);
        let mut block: Vec<u8> = params.iter().flat_map(|param| param.to_le_bytes()).collect();
        block.resize((kernel.params_size as usize).next_multiple_of(8).max(8), 0);
        if let Some(at) = kernel.dynamic_bytes_at {
            block.resize(at as usize, 0);
            block.extend_from_slice(&dynamic.to_le_bytes());
        }
        let object =
            Kernel::new(&ready.program, &kernel.cl_name).expect("the kernel is in the program");
        let local = (u64::from(kernel.local_bytes) + dynamic).max(8);
        let (data, control) = ((BASE + DATA).to_le_bytes(), (BASE + CONTROL).to_le_bytes());
        for (index, argument) in (0..).zip(&kernel.arguments) {
            let argument = match argument {
                Argument::Arena(_) => Arg::Mem(Some(&self.arena)),
                Argument::Heap => Arg::Mem(None),
                Argument::Params => Arg::Bytes(&block),
                Argument::Data => Arg::Bytes(&data),
                Argument::Control => Arg::Bytes(&control),
                Argument::Shared => Arg::Local(local),
            };
            object
                .set(index, argument)
                .unwrap_or_else(|status| panic!("argument {index} of {name}: {status:?}"));
        }
        let all = [grid[0] * threads[0], grid[1] * threads[1], grid[2] * threads[2]];
        let space = IndexSpace { dims: 3, offset: [0; 3], global: all, local: Some(threads) };
        self.queue
            .launch(&object, &space, &[], Want::Nothing)
            .unwrap_or_else(|status| panic!("{name}: {status:?}"));
        self.queue.finish().expect("finished");
    }

    /// Returns the control block as the last kernel left it.
    #[allow(dead_code, reason = "not every test needs it")]
    pub fn control(&self) -> Vec<u8> {
        self.read(CONTROL, CONTROL_BYTES)
    }

    /// Returns the translated kernel, for inspection.
    #[allow(dead_code, reason = "not every test needs it")]
    pub fn kernel<'r>(
        &self,
        ready: &'r Ready,
        name: &str,
    ) -> &'r penstock_ptx::translate::TranslatedKernel {
        ready
            .translation
            .kernels
            .iter()
            .find(|kernel| kernel.name == name)
            .expect("the kernel is there")
    }

    /// Returns the code and the line of the first fault that a kernel recorded.
    pub fn fault(&self) -> (u64, u32) {
        let control = self.read(CONTROL, CONTROL_BYTES);
        let code = control.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        (code, control[16..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }
}

fn numbered(source: &str) -> String {
    source.lines().zip(1..).map(|(line, number): (_, u32)| format!("{number:5} {line}\n")).collect()
}
