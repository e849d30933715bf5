//! Calls of libraries on a real driver: their order with other commands, and calls that a hostile
//! client sends.

mod common;

use std::sync::{Arc, mpsc};

use common::*;
use penstock_device::{
    Context, Event, LibraryArena, LibraryOperand, Mem, Queue, Staged, Status, Want,
};
use penstock_trial::{Need, skip};
use penstock_wire::library::blas::{
    Batch, Call, Factor, Gemm, Matrix, Number, Routine, Stored, Transpose, Transposed, Vector,
};
use penstock_wire::library::{Kind, LibraryCall, Place};

/// Returns the first device, if it serves linear algebra.
fn serving() -> Option<(Context, Queue)> {
    let found = first_that_waits(0)?;
    if found.1.device().libraries().is_some_and(|served| served.has(Kind::Blas)) {
        return Some(found);
    }
    skip(Need::Ability, "the device serves no linear algebra (Debian: libopenblas0-pthread)");
    None
}

/// `y += 2 * x` over `n` elements.
fn axpy(n: u32) -> LibraryCall {
    let vector = |at| Vector { at: Place(at), step: 1 };
    let routine = Routine::Axpy { n, alpha: Factor::Value(2.0, 0.0), x: vector(0), y: vector(1) };
    LibraryCall::Blas(Call { number: Number::F32, routine })
}

fn floats(context: &Context, values: &[f32]) -> Mem {
    let mem = Mem::buffer(context, READ_WRITE, 4 * values.len() as u64).unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    mem.init(0, &bytes).unwrap();
    mem
}

fn read(mem: &Mem, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; 4 * count];
    mem.home().unwrap().read(0, &mut bytes).unwrap();
    bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

fn whole(mem: &Mem) -> LibraryOperand<'_> {
    LibraryOperand { mem: Some(mem), offset: 0, bytes: mem.size() }
}

/// Enqueues a call that must not fail while it runs.
fn call(
    queue: &Queue,
    call: &LibraryCall,
    operands: &[LibraryOperand<'_>],
    waits: &[&Event],
) -> Result<Option<Event>, Status> {
    queue.on_failure(Arc::new(|status| panic!("the call failed: {status:?}")));
    queue.call_library(call, (operands, &[]), waits, Want::Event)
}

#[test]
fn a_call_has_its_turn_in_the_queue() {
    let Some((context, queue)) = serving() else { return };
    let (x, y) = (floats(&context, &[0.0; 64]), floats(&context, &[1.0; 64]));
    for turn in 1..=20_u8 {
        let value = f32::from(turn);
        let bytes: Vec<u8> = (0..64).flat_map(|_| value.to_le_bytes()).collect();
        let mut staged = Staged::new(bytes.len()).unwrap();
        staged.copy_from_slice(&bytes);
        queue.write(&x, 0, staged, &[], Want::Nothing).unwrap();
        call(&queue, &axpy(64), &[whole(&x), whole(&y)], &[]).unwrap();
        queue.fill(&x, &[0; 4], 0, 256, &[], Want::Nothing).unwrap();
    }
    queue.finish().unwrap();
    // 1 + 2 * (1 + 2 + ... + 20)
    assert_eq!((read(&x, 64), read(&y, 64)), (vec![0.0; 64], vec![421.0; 64]));
}

#[test]
fn a_call_waits_for_its_events_and_ends_with_a_failed_one() {
    let Some((context, queue)) = serving() else { return };
    let (x, y) = (floats(&context, &[1.0; 4]), floats(&context, &[0.0; 4]));
    let gate = Event::user(&context).unwrap();
    let event = call(&queue, &axpy(4), &[whole(&x), whole(&y)], &[&gate]).unwrap().unwrap();
    queue.flush().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(read(&y, 4), [0.0; 4]);
    gate.complete(Status::OK).unwrap();
    assert_eq!(completion(&event).recv_timeout(patience()).unwrap().0, Status::OK);
    assert_eq!(read(&y, 4), [2.0; 4]);

    let gate = Event::user(&context).unwrap();
    let event = call(&queue, &axpy(4), &[whole(&x), whole(&y)], &[&gate]).unwrap().unwrap();
    queue.flush().unwrap();
    gate.complete(Status(-5)).unwrap();
    assert!(completion(&event).recv_timeout(patience()).unwrap().0.is_error());
    assert_eq!(read(&y, 4), [2.0; 4]);
}

#[test]
fn a_call_beyond_its_operands_is_refused() {
    let Some((context, queue)) = serving() else { return };
    let (x, y) = (floats(&context, &[1.0; 8]), floats(&context, &[0.0; 8]));
    let refused =
        |of: &LibraryCall, operands: &[LibraryOperand<'_>]| call(&queue, of, operands, &[]).err();
    let part = |offset, bytes| LibraryOperand { mem: Some(&x), offset, bytes };
    let none = LibraryOperand { mem: None, offset: 0, bytes: 64 };
    for (of, operands) in [
        (axpy(9), vec![whole(&x), whole(&y)]),
        (axpy(u32::MAX), vec![whole(&x), whole(&y)]),
        (axpy(8), vec![whole(&x)]),
        (axpy(8), vec![whole(&x), whole(&y), whole(&y)]),
        (axpy(8), vec![part(4, 32), whole(&y)]),
        (axpy(8), vec![part(u64::MAX, 32), whole(&y)]),
        (axpy(8), vec![part(0, 31), whole(&y)]),
        (axpy(8), vec![part(0, u64::MAX), whole(&y)]),
        (axpy(8), vec![none, whole(&y)]),
    ] {
        assert_eq!(refused(&of, &operands), Some(Status::INVALID_VALUE), "{operands:?}");
    }
    queue.finish().unwrap();
    assert_eq!(read(&y, 8), [0.0; 8]);
}

#[test]
fn an_address_outside_of_the_arenas_fails_the_call() {
    let Some((context, queue)) = serving() else { return };
    const BASE: u64 = 1 << 49;
    let arena = floats(&context, &[1.0; 64]);
    let list = |address: u64| {
        let mem = Mem::buffer(&context, READ_WRITE, 8).unwrap();
        mem.init(0, &address.to_le_bytes()).unwrap();
        mem
    };
    let side = |at| Transposed {
        matrix: Matrix { at: Place(at), ld: 4 },
        transpose: Transpose::No,
        stored: Stored::Same,
    };
    let gemm = LibraryCall::Blas(Call {
        number: Number::F32,
        routine: Routine::Gemm(Gemm {
            m: 4,
            n: 4,
            k: 4,
            alpha: Factor::Value(1.0, 0.0),
            a: side(0),
            b: side(1),
            beta: Factor::Value(0.0, 0.0),
            c: Matrix { at: Place(2), ld: 4 },
            c_stored: Stored::Same,
            batch: Batch::Pointers { count: 1 },
        }),
    });
    let (tell, told) = mpsc::channel();
    queue.on_failure(Arc::new(move |status| tell.send(status).unwrap()));
    let run = |address: u64| {
        let (a, b, c) = (list(BASE), list(BASE), list(address));
        let operands = [whole(&a), whole(&b), whole(&c)];
        let arenas = [LibraryArena { mem: &arena, base: BASE }];
        let memory = (operands.as_slice(), arenas.as_slice());
        queue.call_library(&gemm, memory, &[], Want::Nothing).unwrap();
        queue.finish().unwrap();
        told.try_recv().ok()
    };
    assert_eq!(run(BASE + 128), None);
    assert_eq!(read(&arena, 64)[32..48], [4.0; 16]);
    for wrong in [0, BASE - 1, BASE + 256 - 63, BASE + 256, u64::MAX, 0x7fff_ffff_0000] {
        assert_eq!(run(wrong), Some(Status::INVALID_VALUE), "{wrong:#x}");
    }
}
