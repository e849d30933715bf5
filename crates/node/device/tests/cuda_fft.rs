//! Transforms of cuFFT in streams of CUDA's driver: their plans, the memory in which they work, and
//! shapes that a hostile client sends. Driver and library are stand-ins.

mod cuda_common;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cuda_common::*;
use penstock_device::{Context, LibraryOperand, Mem, Queue, Share, Status, Want};
use penstock_trial::wait_for;
use penstock_wire::library::fft::{Call, Layout, Shape};
use penstock_wire::library::{Kind, LibraryCall, Place, fft};

const SETUP: Setup = Setup { newer: true, loader: false };

/// Counters are global: one test runs at a time.
fn serving() -> Option<(MutexGuard<'static, ()>, Context, Queue)> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (context, queue) = prepare_library(CUFFT).then(|| first(SETUP, 0)).flatten()?;
    let served = queue.device().libraries().expect("the device serves libraries");
    assert!(served.has(Kind::Fft) && !served.has(Kind::Blas));
    Some((alone, context, queue))
}

/// A transform of one dimension out of place.
fn transform(n: u32, batch: u32, distance: u64) -> LibraryCall {
    let layout = |distance| Layout { embed: [n, 1, 1], stride: 1, distance };
    let shape = Shape {
        kind: fft::Kind::Complex { forward: true },
        is_double: false,
        rank: 1,
        sizes: [n, 1, 1],
        batch,
        input: layout(u64::from(n)),
        output: layout(distance),
    };
    LibraryCall::Fft(Call { shape, input: Place(0), output: Some(Place(1)) })
}

fn whole(mem: &Mem) -> LibraryOperand<'_> {
    LibraryOperand { mem: Some(mem), offset: 0, bytes: mem.size() }
}

/// Transforms a batch and checks the first value of each: the sum of all elements.
struct Batch {
    n: u32,
    input: Mem,
    output: Mem,
}

impl Batch {
    /// Makes a batch of `batch` transforms of `n` elements, which are all 1.
    fn new(context: &Context, n: u32, batch: u32) -> Self {
        let bytes = u64::from(n) * u64::from(batch) * 8;
        let [input, output] = [0; 2].map(|_| buffer(context, bytes));
        let ones: Vec<u8> = (0..bytes / 8).flat_map(|_| one_complex()).collect();
        input.init(0, &ones).unwrap();
        Self { n, input, output }
    }

    fn enqueue(&self, queue: &Queue) -> Result<(), Status> {
        let batch = u32::try_from(self.input.size() / 8 / u64::from(self.n)).unwrap();
        let call = transform(self.n, batch, self.n.into());
        let operands = [whole(&self.input), whole(&self.output)];
        queue.call_library(&call, (&operands, &[]), &[], Want::Nothing).map(|_| ())
    }

    fn check(&self, queue: &Queue) {
        let bytes = read_all(queue, &self.output);
        for transformed in bytes.chunks(8 * usize::try_from(self.n).unwrap()) {
            let sum = f32::from_le_bytes(transformed[..4].try_into().unwrap());
            #[allow(clippy::cast_precision_loss, reason = "a small number")]
            let expected = self.n as f32;
            assert!((sum - expected).abs() < 1e-3, "{sum} of {}", self.n);
            let second =
                transformed.get(8..12).map(|it| f32::from_le_bytes(it.try_into().unwrap()));
            assert!(second.is_none_or(|it| it.abs() < 1e-3), "{second:?} of {}", self.n);
        }
    }
}

fn one_complex() -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&1_f32.to_le_bytes());
    bytes
}

#[test]
fn a_queue_bears_more_shapes_than_it_keeps_plans() {
    let Some((_alone, context, queue)) = serving() else { return };
    // The first call opens the library.
    Batch::new(&context, 1, 1).enqueue(&queue).unwrap();
    let made = counter_of_plans();
    // Sizes rise and fall, so that the area grows while earlier transforms wait in the stream.
    let sizes: Vec<u32> = (1..=20).chain((1..=20).rev()).map(|n| 3 * n).collect();
    let batches: Vec<Batch> = sizes.iter().map(|n| Batch::new(&context, *n, 2)).collect();
    let sleep = sleeper(&context, Duration::from_millis(50));
    queue.launch(&sleep, &one(), &[], Want::Nothing).unwrap();
    // The stand-in ends the process if a plan or an area ends before the transforms that use it.
    batches.iter().for_each(|batch| batch.enqueue(&queue).unwrap());
    batches.iter().for_each(|batch| batch.check(&queue));
    // 20 in the first half, and in the second half the four that were not kept.
    assert_eq!(counter_of_plans() - made, 24);
    wait_for("end of the plans that are not kept", || counter(CUFFT, "standin_plans") == 16);
    drop((queue, batches, sleep, context));
    wait_for("end of all plans", || counter(CUFFT, "standin_plans") == 0);
}

/// Returns how many plans were made so far.
fn counter_of_plans() -> i32 {
    counter(CUFFT, "standin_plans_all")
}

#[test]
fn the_memory_of_transforms_counts_for_the_client() {
    let Some((_alone, context, queue)) = serving() else { return };
    wait_for("an empty device", || Share::held() == 0);
    let [small, large] = [64, 256].map(|n| Batch::new(&context, n, 4));
    let buffers = Share::held();
    assert_eq!(buffers, 2 * 4 * 8 * (64 + 256));
    for (batch, area) in [(&small, 4 * 8 * 64), (&large, 4 * 8 * 256), (&small, 4 * 8 * 256)] {
        batch.enqueue(&queue).unwrap();
        batch.check(&queue);
        wait_for("one area", || Share::held() == buffers + area);
    }
    let other = Queue::new(&context, queue.device(), 0, 0).unwrap();
    small.enqueue(&other).unwrap();
    small.check(&other);
    wait_for("an area for each stream", || Share::held() == buffers + 4 * 8 * (64 + 256));
    drop((queue, other));
    wait_for("the end of the areas", || Share::held() == buffers);
    drop((small, large, context));
    wait_for("the end of the buffers", || Share::held() == 0);
}

#[test]
fn a_transform_that_needs_too_much_memory_fails_alone() {
    let Some((_alone, context, queue)) = serving() else { return };
    wait_for("an empty device", || Share::held() == 0);
    // The stand-in's device has 64 MiB. Input and area fit once, not twice.
    let large = Batch::new(&context, 2, 1 << 20);
    let room: Vec<Mem> = (0..2).map(|_| buffer(&context, 12 << 20)).collect();
    let small = Batch::new(&context, 8, 1);
    assert_eq!(large.enqueue(&queue), Err(Status::MEM_OBJECT_ALLOCATION_FAILURE));
    small.enqueue(&queue).unwrap();
    small.check(&queue);
    drop(room);
    large.enqueue(&queue).unwrap();
    large.check(&queue);
}

#[test]
fn transforms_that_overlap_in_their_output_are_refused() {
    let Some((_alone, context, queue)) = serving() else { return };
    wait_for("an empty device", || Share::held() == 0);
    let [input, output] = [0; 2].map(|_| buffer(&context, 64 << 10));
    let held = Share::held();
    for (batch, distance) in [(u32::MAX, 0), (2, 0), (2, 15), (100, 1)] {
        let LibraryCall::Fft(mut call) = transform(16, batch, distance) else { unreachable!() };
        call.shape.input.distance = 0;
        let operands = [whole(&input), whole(&output)];
        let call = LibraryCall::Fft(call);
        let refused = queue.call_library(&call, (&operands, &[]), &[], Want::Nothing).err();
        assert_eq!(refused, Some(Status::INVALID_VALUE), "{batch} {distance}");
    }
    assert_eq!(Share::held(), held);
}
