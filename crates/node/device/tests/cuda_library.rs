//! Calls of cuBLAS in streams of CUDA's driver: their order with other commands, where factors and
//! results are, and calls that a hostile client sends. Driver and library are stand-ins.

mod cuda_common;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use cuda_common::*;
use penstock_device::{Context, Event, IndexSpace, LibraryOperand, Mem, Queue, Status, Want};
use penstock_trial::wait_for;
use penstock_wire::cuda;
use penstock_wire::library::blas::{
    Batch, Call, Factor, Gemm, Matrix, Number, Routine, Stored, Transpose, Transposed, Vector,
};
use penstock_wire::library::{Kind, LibraryCall, Place};

const SETUP: Setup = Setup { newer: true, loader: false };

fn serving() -> Option<(Context, Queue)> {
    let found = prepare_library(CUBLAS).then(|| first(SETUP, 0)).flatten()?;
    let served = found.1.device().libraries().expect("the device serves libraries");
    assert!(served.has(Kind::Blas) && !served.has(Kind::Fft));
    Some(found)
}

fn blas(routine: Routine) -> LibraryCall {
    LibraryCall::Blas(Call { number: Number::F32, routine })
}

const fn vector(at: u8) -> Vector {
    Vector { at: Place(at), step: 1 }
}

/// `y += alpha * x` over `n` elements.
fn axpy(n: u32, alpha: Factor, places: [u8; 2]) -> LibraryCall {
    blas(Routine::Axpy { n, alpha, x: vector(places[0]), y: vector(places[1]) })
}

fn product(stored: Stored, batch: Batch) -> LibraryCall {
    let side = |at| Transposed {
        matrix: Matrix { at: Place(at), ld: 4 },
        transpose: Transpose::No,
        stored,
    };
    blas(Routine::Gemm(Gemm {
        m: 4,
        n: 4,
        k: 4,
        alpha: Factor::Value(1.0, 0.0),
        a: side(0),
        b: side(1),
        beta: Factor::Value(0.0, 0.0),
        c: Matrix { at: Place(2), ld: 4 },
        c_stored: Stored::Same,
        batch,
    }))
}

fn filled(context: &Context, bytes: &[u8]) -> Mem {
    let mem = buffer(context, bytes.len() as u64);
    mem.init(0, bytes).unwrap();
    mem
}

fn floats(context: &Context, values: &[f32]) -> Mem {
    filled(context, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
}

fn read(queue: &Queue, mem: &Mem) -> Vec<f32> {
    read_all(queue, mem).as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

fn whole(mem: &Mem) -> LibraryOperand<'_> {
    LibraryOperand { mem: Some(mem), offset: 0, bytes: mem.size() }
}

fn call(
    queue: &Queue,
    call: &LibraryCall,
    operands: &[LibraryOperand<'_>],
    waits: &[&Event],
) -> Result<Option<Event>, Status> {
    queue.call_library(call, (operands, &[]), waits, Want::Event)
}

#[test]
fn a_call_has_its_turn_in_the_queue() {
    let Some((context, queue)) = serving() else { return };
    let (x, y) = (floats(&context, &[0.0; 64]), floats(&context, &[1.0; 64]));
    let two = axpy(64, Factor::Value(2.0, 0.0), [0, 1]);
    for turn in 1..=20_u8 {
        let bytes: Vec<u8> = (0..64).flat_map(|_| f32::from(turn).to_le_bytes()).collect();
        queue.write(&x, 0, staged(&bytes), &[], Want::Nothing).unwrap();
        call(&queue, &two, &[whole(&x), whole(&y)], &[]).unwrap();
        queue.fill(&x, &[0; 4], 0, 256, &[], Want::Nothing).unwrap();
    }
    // 1 + 2 * (1 + 2 + ... + 20)
    assert_eq!((read(&queue, &x), read(&queue, &y)), (vec![0.0; 64], vec![421.0; 64]));
}

#[test]
fn a_call_waits_for_its_events_and_ends_with_a_failed_one() {
    let Some((context, queue)) = serving() else { return };
    let other = Queue::new(&context, queue.device(), 0, 0).unwrap();
    let (x, y) = (floats(&context, &[1.0; 4]), floats(&context, &[0.0; 4]));
    let two = axpy(4, Factor::Value(2.0, 0.0), [0, 1]);
    let gate = Event::user(&context).unwrap();
    let event = call(&queue, &two, &[whole(&x), whole(&y)], &[&gate]).unwrap().unwrap();
    assert_eq!(read(&other, &y), [0.0; 4]);
    gate.complete(Status::OK).unwrap();
    assert_eq!(completion(&event).recv_timeout(patience()).unwrap().0, Status::OK);
    assert_eq!(read(&queue, &y), [2.0; 4]);

    let gate = Event::user(&context).unwrap();
    let event = call(&queue, &two, &[whole(&x), whole(&y)], &[&gate]).unwrap().unwrap();
    gate.complete(Status(-5)).unwrap();
    assert!(completion(&event).recv_timeout(patience()).unwrap().0.is_error());
    assert_eq!(read(&queue, &y), [2.0; 4]);
}

#[test]
fn factors_are_values_or_on_the_device_and_results_are_on_the_device() {
    let Some((context, queue)) = serving() else { return };
    let (x, y) = (floats(&context, &[3.0, -5.0, 4.0]), floats(&context, &[1.0; 3]));
    let (alpha, result) = (floats(&context, &[-2.0]), floats(&context, &[0.0]));
    let device = axpy(3, Factor::At(Place(0)), [1, 2]);
    call(&queue, &device, &[whole(&alpha), whole(&x), whole(&y)], &[]).unwrap();
    assert_eq!(read(&queue, &y), [-5.0, 11.0, -7.0]);
    let value = axpy(3, Factor::Value(2.0, 0.0), [0, 1]);
    call(&queue, &value, &[whole(&x), whole(&y)], &[]).unwrap();
    assert_eq!(read(&queue, &y), [1.0; 3]);
    let dot = Routine::Dot { n: 3, conjugate: false, x: vector(0), y: vector(1), result: Place(2) };
    call(&queue, &blas(dot), &[whole(&x), whole(&y), whole(&result)], &[]).unwrap();
    assert_eq!(read(&queue, &result), [2.0]);
    // Faces never send factors in both places.
    let mixed = Routine::Gemm(match product(Stored::Same, Batch::One) {
        LibraryCall::Blas(Call { routine: Routine::Gemm(gemm), .. }) => {
            Gemm { beta: Factor::At(Place(3)), ..gemm }
        }
        _ => unreachable!(),
    });
    let m = floats(&context, &[1.0; 16]);
    let operands = [whole(&m), whole(&m), whole(&m), whole(&alpha)];
    assert_eq!(call(&queue, &blas(mixed), &operands, &[]).err(), Some(Status::INVALID_VALUE));
}

#[test]
fn products_of_half_precision_matrices_are_summed_in_single_precision() {
    let Some((context, queue)) = serving() else { return };
    // 1.5 in half precision and in bfloat16.
    for (stored, bits) in [(Stored::Half, 0x3e00_u16), (Stored::Brain, 0x3fc0)] {
        let narrow = filled(&context, &bits.to_le_bytes().repeat(16));
        let sum = floats(&context, &[0.0; 16]);
        let operands = [whole(&narrow), whole(&narrow), whole(&sum)];
        call(&queue, &product(stored, Batch::One), &operands, &[]).unwrap();
        assert_eq!(read(&queue, &sum), [9.0; 16]);
    }
}

#[test]
fn a_call_beyond_its_operands_is_refused() {
    let Some((context, queue)) = serving() else { return };
    let (x, y) = (floats(&context, &[1.0; 8]), floats(&context, &[0.0; 8]));
    let of = |n| axpy(n, Factor::Value(2.0, 0.0), [0, 1]);
    let part = |offset, bytes| LibraryOperand { mem: Some(&x), offset, bytes };
    let none = LibraryOperand { mem: None, offset: 0, bytes: 64 };
    for (of, operands) in [
        (of(9), vec![whole(&x), whole(&y)]),
        (of(u32::MAX), vec![whole(&x), whole(&y)]),
        (of(8), vec![whole(&x)]),
        (of(8), vec![whole(&x), whole(&y), whole(&y)]),
        (of(8), vec![part(4, 32), whole(&y)]),
        (of(8), vec![part(u64::MAX, 32), whole(&y)]),
        (of(8), vec![part(0, 31), whole(&y)]),
        (of(8), vec![part(0, u64::MAX), whole(&y)]),
        (of(8), vec![none, whole(&y)]),
    ] {
        let refused = call(&queue, &of, &operands, &[]).err();
        assert_eq!(refused, Some(Status::INVALID_VALUE), "{operands:?}");
    }
    assert_eq!(read(&queue, &y), [0.0; 8]);
    let stranger =
        Context::new(context.devices()[0].platform(), context.devices(), Box::new(|_| ()));
    let stranger = stranger.unwrap();
    let foreign = floats(&stranger, &[1.0; 8]);
    let refused = call(&queue, &of(8), &[whole(&foreign), whole(&y)], &[]).err();
    assert_eq!(refused, Some(Status::INVALID_CONTEXT));
}

#[test]
fn lists_of_addresses_lead_to_the_devices_memory() {
    let Some((context, queue)) = serving() else { return };
    let (m, sums) = (floats(&context, &[1.0; 16]), floats(&context, &[0.0; 32]));
    let list = |addresses: [u64; 2]| {
        filled(&context, &addresses.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>())
    };
    let (from, to) = (m.device_address().unwrap(), sums.device_address().unwrap());
    let (a, c) = (list([from; 2]), list([to + 64, to]));
    let batch = product(Stored::Same, Batch::Pointers { count: 2 });
    call(&queue, &batch, &[whole(&a), whole(&a), whole(&c)], &[]).unwrap();
    assert_eq!(read(&queue, &sums), [4.0; 32]);
}

#[test]
fn a_routine_that_the_library_lacks_is_refused() {
    let Some((context, queue)) = serving() else { return };
    let mem = floats(&context, &[1.0; 4]);
    let swap = blas(Routine::Swap { n: 4, x: vector(0), y: vector(1) });
    let refused = call(&queue, &swap, &[whole(&mem), whole(&mem)], &[]).err();
    assert_eq!(refused, Some(Status::INVALID_OPERATION));
    assert_eq!(read(&queue, &mem), [1.0; 4]);
}

/// Has the queue's failures told.
fn failures(queue: &Queue) -> mpsc::Receiver<Status> {
    let (tell, told) = mpsc::channel();
    queue.on_failure(Arc::new(move |status| tell.send(status).unwrap()));
    told
}

#[test]
fn what_is_refused_in_its_turn_is_told_before_anything_behind_it_ends() {
    let Some((context, queue)) = serving() else { return };
    let told = failures(&queue);
    let m = floats(&context, &[1.0; 16]);
    let LibraryCall::Blas(Call { routine: Routine::Gemm(plain), .. }) =
        product(Stored::Half, Batch::One)
    else {
        unreachable!()
    };
    // The library has no product of two types.
    let b = Transposed { stored: Stored::Brain, ..plain.b };
    let refused = blas(Routine::Gemm(Gemm { b, ..plain }));
    let trap = kernel(&context, "trap");
    // The driver has no block of so many threads.
    let wide = IndexSpace::line(1 << 20, Some(1 << 20));
    for want in [Want::Nothing, Want::Event] {
        let gate = Event::user(&context).unwrap();
        let operands = [whole(&m), whole(&m), whole(&m)];
        let memory = (operands.as_slice(), &[] as &[_]);
        queue.call_library(&refused, memory, &[&gate], want).unwrap();
        queue.launch(&trap, &wide, &[], want).unwrap();
        let marker = queue.marker(&[], Want::Event).unwrap().unwrap();
        let ended = completion(&marker);
        assert!(told.try_recv().is_err());
        gate.complete(Status::OK).unwrap();
        assert_eq!(ended.recv_timeout(patience()).unwrap().0, Status::OK);
        let refused: Vec<Status> = told.try_iter().collect();
        assert_eq!(refused.len(), 2, "{want:?}: {refused:?}");
        assert_eq!(refused[0], Status::INVALID_OPERATION);
        // CUDA_ERROR_INVALID_VALUE
        assert_eq!(cuda::code(refused[1]), Some(1));
    }
    assert_eq!(read(&queue, &m), [1.0; 16]);
}

#[test]
fn calls_of_queues_that_have_ended_still_run() {
    let Some((context, queue)) = serving() else { return };
    let (x, y) = (floats(&context, &[1.0; 64]), floats(&context, &[0.0; 64]));
    let one = axpy(64, Factor::Value(1.0, 0.0), [0, 1]);
    let gate = Event::user(&context).unwrap();
    let mut before = gate.clone();
    for _ in 0..20 {
        let short = Queue::new(&context, queue.device(), 0, 0).unwrap();
        before = call(&short, &one, &[whole(&x), whole(&y)], &[&before]).unwrap().unwrap();
    }
    gate.complete(Status::OK).unwrap();
    assert_eq!(completion(&before).recv_timeout(patience()).unwrap().0, Status::OK);
    assert_eq!(read(&queue, &y), [20.0; 64]);
}

#[test]
fn handles_end_with_their_queues_behind_all_work() {
    let Some((context, queue)) = serving() else { return };
    let (x, y) = (floats(&context, &[1.0; 64]), floats(&context, &[0.0; 64]));
    let one = axpy(64, Factor::Value(1.0, 0.0), [0, 1]);
    let sleep = sleeper(&context, Duration::from_millis(50));
    for _ in 0..4 {
        let short = Queue::new(&context, queue.device(), 0, 0).unwrap();
        short.launch(&sleep, &IndexSpace::line(1, Some(1)), &[], Want::Nothing).unwrap();
        call(&short, &one, &[whole(&x), whole(&y)], &[]).unwrap();
    }
    drop((x, y, sleep, queue, context));
    // Those of the other tests end, too.
    wait_for("end of all handles", || counter(CUBLAS, "standin_handles") == 0);
}
