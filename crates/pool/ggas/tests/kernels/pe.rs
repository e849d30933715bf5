//! One PE: a device, a queue, and the heap's view as a buffer.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_device::{
    Arg, Context, Device, Driver, Event, HostMemory, IndexSpace, Kernel, Mem, Program, Queue, Want,
};
use penstock_ggas::{HEADER, Heap, Running, View};
use penstock_trial::{Need, skip};

/// Flag `CL_MEM_READ_WRITE` of OpenCL.
const READ_WRITE: u64 = penstock_cl_sys::CL_MEM_READ_WRITE;

/// Offset of the result of [`Pe::meet`].
const MEET_STATUS: u64 = 16;

/// Kernel added to all programs.
const MEET: &str = "
__kernel void meet(__global ggas_heap_t *heap)
{
    const ggas_t g = ggas_open(heap);
    __global ulong *status = ggas_ptr(g, 16, ggas_my_pe(g));
    *status = -ggas_barrier_all(g);
}
";

/// Returns the first device of the process's ICD loader. Skips the test if there is none.
pub fn device() -> Option<(Context, Device)> {
    let platforms = match Driver::load() {
        Ok(driver) => driver.platforms(),
        Err(error) => {
            skip(Need::OpenCl, error);
            return None;
        }
    };
    let Some(platform) = platforms.into_iter().find(|platform| !platform.devices().is_empty())
    else {
        skip(Need::OpenCl, "no OpenCL device on this machine (Debian: pocl-opencl-icd)");
        return None;
    };
    let device = platform.devices()[0].clone();
    let context = Context::new(
        &platform,
        std::slice::from_ref(&device),
        Box::new(|text| eprintln!("driver: {text}")),
    )
    .unwrap();
    if !context.shares_host_memory() {
        skip(Need::Ability, format_args!("{} has memory of its own", device.name()));
        return None;
    }
    Some((context, device))
}

struct Lent(View);

// SAFETY: the view keeps itself mapped; nothing accesses parts that only the proxy reaches.
unsafe impl HostMemory for Lent {
    fn range(&self) -> (NonNull<u8>, usize) {
        self.0.range()
    }
}

/// PE with a program.
pub struct Pe {
    pub heap: Arc<Heap>,
    pub pe: u32,
    queue: Queue,
    program: Program,
    view: Mem,
}

/// Kernel that is running.
pub struct Flight {
    event: Event,
    _running: Option<Running>,
    began: Instant,
}

impl Pe {
    pub fn new(
        heap: &Arc<Heap>,
        pe: u32,
        device: &(Context, Device),
        source: &str,
        options: &str,
    ) -> Self {
        let (context, device) = device;
        let queue = Queue::new(context, device, 0, 0).unwrap();
        let whole = format!("{HEADER}\n{MEET}\n{source}");
        let program = Program::with_source(context, whole.as_bytes()).unwrap();
        if let Err(error) = program.build(context.devices(), options) {
            let report = program.report(Err(error), &[(0, device.clone())]);
            panic!("{error:?}: {report:?}");
        }
        let view = heap.view(pe).unwrap();
        let bytes = view.range().1 as u64;
        let view = Mem::buffer_in(context, READ_WRITE, bytes, Box::new(Lent(view))).unwrap();
        Self { heap: heap.clone(), pe, queue, program, view }
    }

    /// Starts a kernel with the heap and these arguments, with `items` work-items in each of
    /// `groups` work-groups.
    pub fn start(&self, name: &str, args: &[u64], groups: u64, items: u64) -> Flight {
        self.launch(name, args, (groups, items), Some(self.heap.running()))
    }

    /// Starts one work-item without telling the heap, whose clock then stands still.
    pub fn start_untold(&self, name: &str, args: &[u64]) -> Flight {
        self.launch(name, args, (1, 1), None)
    }

    fn launch(
        &self,
        name: &str,
        args: &[u64],
        (groups, items): (u64, u64),
        running: Option<Running>,
    ) -> Flight {
        let kernel = Kernel::new(&self.program, name).unwrap();
        kernel.set(0, Arg::Mem(Some(&self.view))).unwrap();
        for (index, arg) in (1..).zip(args) {
            kernel.set(index, Arg::Bytes(&arg.to_ne_bytes())).unwrap();
        }
        let space = IndexSpace::line(groups * items, Some(items));
        let began = Instant::now();
        let event = self.queue.launch(&kernel, &space, &[], Want::Event).unwrap().unwrap();
        self.queue.flush().unwrap();
        Flight { event, _running: running, began }
    }

    /// Runs a kernel with one work-item.
    pub fn run(&self, name: &str, args: &[u64]) -> Duration {
        self.start(name, args, 1, 1).end()
    }

    /// Meets the other members at a barrier.
    pub fn meet(&self) {
        self.run("meet", &[]);
        assert_eq!(self.word(MEET_STATUS), 0, "{:?}", self.heap.aborted());
    }

    pub fn word(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.heap.read(self.pe, offset, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }
}

impl Flight {
    /// Waits for the end and returns the time taken.
    pub fn end(self) -> Duration {
        self.event.wait().unwrap();
        self.began.elapsed()
    }
}
