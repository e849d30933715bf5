//! Measures the cost of commands through this crate, on the first device:
//!
//! `cargo run --release -p penstock-device --example command-cost`

use std::hint::black_box;
use std::sync::mpsc;
use std::time::Instant;

use penstock_device::{
    Arg, Context, Driver, Event, IndexSpace, Kernel, Mem, Program, Queue, Staged, Want,
};

const ROUNDS: u32 = 7;

/// Prints median and least time of some rounds, in µs per command; `work` issues `count` commands.
fn measure(name: &str, count: u32, mut work: impl FnMut()) {
    work();
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1e6 / f64::from(count)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name:<58} {:8.3} µs (least {:.3})", times[times.len() / 2], times[0]);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver = Driver::load()?;
    let platform = driver.platforms().into_iter().next().ok_or("no platform")?;
    let device = platform.devices().into_iter().next().ok_or("no device")?;
    let start = Instant::now();
    let answers = device.info().len();
    println!(
        "{}: {answers} answers in {:.0} µs",
        device.name(),
        start.elapsed().as_secs_f64() * 1e6
    );
    let start = Instant::now();
    let shares = device.shares_host_memory();
    println!(
        "shares host memory: {shares}, found in {:.0} µs",
        start.elapsed().as_secs_f64() * 1e6
    );

    let context = Context::new(&platform, std::slice::from_ref(&device), Box::new(|_| ()))?;
    let queue = Queue::new(&context, &device, 0, 0)?;
    let program = Program::with_source(
        &context,
        b"kernel void k(global uint *a, uint b) { if (b == 77) a[0] = b; }",
    )?;
    program.build(context.devices(), "")?;
    let kernel = Kernel::new(&program, "k")?;
    let mem = Mem::buffer(&context, 1, 64 << 20)?;
    kernel.set(0, Arg::Mem(Some(&mem)))?;
    kernel.set(1, Arg::Bytes(&1_u32.to_ne_bytes()))?;
    let space = IndexSpace::line(1, Some(1));
    let costs = Costs { context, queue, kernel, mem, space };
    costs.many();
    costs.one_by_one();
    costs.memory();
    Ok(())
}

struct Costs {
    context: Context,
    queue: Queue,
    kernel: Kernel,
    mem: Mem,
    space: IndexSpace,
}

impl Costs {
    fn launch(&self, want: Want) -> Option<Event> {
        self.queue.launch(&self.kernel, &self.space, &[], want).ok().flatten()
    }

    /// Measures many commands that are waited for once.
    fn many(&self) {
        measure("10,000 kernels, one finish", 10_000, || {
            (0..10_000).for_each(|_| drop(self.launch(Want::Nothing)));
            let _ = self.queue.finish();
        });
        measure("10,000 kernels with events, one finish", 10_000, || {
            (0..10_000).for_each(|_| drop(black_box(self.launch(Want::Event))));
            let _ = self.queue.finish();
        });
        measure("10,000 kernels with events and callbacks", 10_000, || {
            let (tell, told) = mpsc::channel();
            for _ in 0..10_000 {
                let tell = tell.clone();
                if let Some(event) = self.launch(Want::Event) {
                    event.on_complete(Box::new(move |_, _| {
                        let _ = tell.send(());
                    }));
                }
            }
            let _ = self.queue.flush();
            told.iter().take(10_000).for_each(drop);
        });
        measure("2,000 x (write 64 B + kernel), one finish", 2_000, || {
            for _ in 0..2_000 {
                let _ =
                    self.queue.write(&self.mem, 0, Staged::from(vec![1; 64]), &[], Want::Nothing);
                self.launch(Want::Nothing);
            }
            let _ = self.queue.finish();
        });
        measure("set an argument", 100_000, || {
            for index in 0..100_000_u32 {
                let _ = self.kernel.set(1, Arg::Bytes(&index.to_ne_bytes()));
            }
        });
    }

    /// Measures commands that are waited for one by one.
    fn one_by_one(&self) {
        measure("kernel + finish", 1_000, || {
            (0..1_000).for_each(|_| {
                self.launch(Want::Nothing);
                let _ = self.queue.finish();
            });
        });
        measure("kernel + callback", 1_000, || {
            (0..1_000).for_each(|_| {
                let (tell, told) = mpsc::channel();
                if let Some(event) = self.launch(Want::Event) {
                    event.on_complete(Box::new(move |_, _| {
                        let _ = tell.send(());
                    }));
                }
                let _ = self.queue.flush();
                let _ = told.recv();
            });
        });
        measure("wait on one event each, 2,000 markers", 2_000, || {
            let mut last: Option<Event> = None;
            for _ in 0..2_000 {
                let waits: Vec<&Event> = last.iter().collect();
                last = self.queue.marker(&waits, Want::Event).ok().flatten();
            }
            let _ = self.queue.finish();
        });
    }

    /// Measures transfers, and the creation of buffers.
    fn memory(&self) {
        for size in [64 << 10, 1 << 20, 16 << 20] {
            measure(&format!("write {} KiB + finish", size >> 10), 20, || {
                for _ in 0..20 {
                    if let Ok(bytes) = Staged::new(size) {
                        let _ = self.queue.write(&self.mem, 0, bytes, &[], Want::Nothing);
                    }
                    let _ = self.queue.finish();
                }
            });
            measure(&format!("read {} KiB", size >> 10), 20, || {
                for _ in 0..20 {
                    if let Ok(reading) = self.queue.read(&self.mem, 0, size as u64, &[]) {
                        let _ = black_box(reading.wait());
                    }
                }
            });
        }
        measure("make and drop a buffer of 4 KiB", 1_000, || {
            (0..1_000).for_each(|_| drop(Mem::buffer(&self.context, 1, 4096)));
        });
        measure("make and drop a buffer of 16 MiB", 100, || {
            (0..100).for_each(|_| drop(Mem::buffer(&self.context, 1, 16 << 20)));
        });
    }
}
