//! Checks the encoding, and the extents against elements that are counted one by one.

use proptest::prelude::*;

use super::blas::{
    Batch, Factor, Gemm, Matrix, Number, Routine, Stored, Transpose, Transposed, Vector,
};
use super::fft::{Kind, Layout, Shape};
use super::*;

fn order() -> Order {
    let call = LibraryCall::Blas(gemm(3, 4, 5, [3, 5, 3], Batch::One));
    let operands = vec![Operand { mem: 7, offset: 256, bytes: 60 }; 3];
    Order { operands, arenas: vec![Arena { mem: 7, base: 1 << 49 }], call: call.encode() }
}

fn gemm(m: u32, n: u32, k: u32, ld: [u32; 3], batch: Batch) -> blas::Call {
    let side = |at, ld| Transposed {
        matrix: Matrix { at: Place(at), ld },
        transpose: Transpose::No,
        stored: Stored::Same,
    };
    let routine = Routine::Gemm(Gemm {
        m,
        n,
        k,
        alpha: Factor::Value(1.0, 0.0),
        a: side(0, ld[0]),
        b: side(1, ld[1]),
        beta: Factor::Value(0.0, 0.0),
        c: Matrix { at: Place(2), ld: ld[2] },
        c_stored: Stored::Same,
        batch,
    });
    blas::Call { number: Number::F32, routine }
}

#[test]
fn an_order_survives_the_wire() {
    let order = order();
    let decoded = Order::decode(&order.encode()).unwrap();
    assert_eq!(decoded, order);
    let call = LibraryCall::decode(&decoded.call).unwrap();
    let bytes: Vec<u64> = call.extents().unwrap().iter().map(|extent| extent.bytes).collect();
    assert_eq!(bytes, [60, 80, 48]);
}

#[test]
fn every_truncation_is_refused() {
    let order = order();
    let bytes = order.encode();
    for end in 0..bytes.len() {
        let whole = Order::decode(&bytes[..end]).and_then(|order| LibraryCall::decode(&order.call));
        assert!(whole.is_err(), "{end} bytes");
    }
    let long = [order.call.as_slice(), &[0]].concat();
    assert!(LibraryCall::decode(&long).is_err());
}

#[test]
fn longer_lists_than_the_limits_are_refused() {
    let operands = vec![Operand::default(); LIBRARY_OPERANDS_MAX + 1];
    assert!(Order::decode(&Order { operands, ..order() }.encode()).is_err());
    let arenas = vec![Arena::default(); LIBRARY_ARENAS_MAX + 1];
    assert!(Order::decode(&Order { arenas, ..order() }.encode()).is_err());
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let most = u32::MAX;
    let strided = Batch::Strided { count: most, a: i64::MAX, b: 1, c: 1 };
    for call in [
        gemm(3, 4, 5, [2, 5, 3], Batch::One),
        gemm(3, 4, 5, [3, 4, 3], Batch::One),
        gemm(3, 4, 5, [3, 5, 0], Batch::One),
        gemm(3, 4, 5, [3, 5, 3], strided),
        gemm(3, 4, 5, [3, 5, 3], Batch::Strided { count: 2, a: -1, b: 1, c: 1 }),
        gemm(most, most, most, [most, most, most], Batch::One),
    ] {
        assert_eq!(LibraryCall::Blas(call).extents().err(), Some(Misfit), "{call:?}");
    }
    let twice = Routine::Copy {
        n: 1,
        x: Vector { at: Place(0), step: 1 },
        y: Vector { at: Place(0), step: 1 },
    };
    let gap = Routine::Copy {
        n: 1,
        x: Vector { at: Place(0), step: 1 },
        y: Vector { at: Place(2), step: 1 },
    };
    for routine in [twice, gap] {
        let call = LibraryCall::Blas(blas::Call { number: Number::F64, routine });
        assert_eq!(call.extents().err(), Some(Misfit));
    }
}

proptest! {
    #[test]
    fn any_bytes_decode_or_fail(bytes: Vec<u8>) {
        if let Ok(order) = Order::decode(&bytes)
            && let Ok(call) = LibraryCall::decode(&order.call)
        {
            _ = call.extents();
        }
        if let Ok(call) = LibraryCall::decode(&bytes) {
            _ = call.extents();
        }
    }

    #[test]
    fn a_vector_spans_its_last_element(n in 0_u32..50, step in -9_i32..9) {
        let x = Vector { at: Place(0), step };
        let scal = Routine::Scal { n, alpha: Factor::Value(1.0, 0.0), is_real: false, x };
        let call = LibraryCall::Blas(blas::Call { number: Number::C64, routine: scal });
        let last = (0..n).map(|i| u64::from(i) * u64::from(step.unsigned_abs()) + 1).max();
        let extent = call.extents().unwrap().iter().next().unwrap();
        prop_assert_eq!(extent.bytes, last.unwrap_or(0) * 16);
    }

    #[test]
    fn a_transform_spans_its_last_element(
        sizes in prop::array::uniform3(1_u32..6),
        room in prop::array::uniform3(0_u32..3),
        rank in 1_u8..=3,
        (stride, distance, batch) in (1_u32..4, 0_u64..200, 1_u32..4),
    ) {
        let embed = [sizes[0] + room[0], sizes[1] + room[1], sizes[2] + room[2]];
        let layout = Layout { embed, stride, distance };
        let kind = Kind::Complex { forward: true };
        let shape = Shape {
            kind, is_double: false, rank, sizes, batch, input: layout, output: layout,
        };
        let mut last = 0;
        for b in 0..u64::from(batch) {
            let mut index = 0;
            for d in 0..usize::from(rank) {
                index *= if d == 0 { 1 } else { u64::from(embed[d]) };
                index += u64::from(sizes[d]) - 1;
            }
            last = last.max(b * distance + index * u64::from(stride));
        }
        prop_assert_eq!(shape.bytes(true), Ok((last + 1) * 8));
        if let Ok(bytes) = shape.bytes(false) {
            prop_assert_eq!(bytes, (last + 1) * 8);
            prop_assert!(are_apart(&shape));
        }
        // Behind each other, and with the elements of all transforms side by side.
        let count: u64 = embed[..usize::from(rank)].iter().map(|size| u64::from(*size)).product();
        let behind = Layout { distance: count * u64::from(stride), ..layout };
        let beside = Layout { stride: stride * batch, distance: u64::from(stride), embed };
        for output in [behind, beside] {
            let shape = Shape { output, ..shape };
            prop_assert!(shape.bytes(false).is_ok() && are_apart(&shape));
        }
    }
}

/// Whether all elements of a transform's output have places of their own.
fn are_apart(shape: &Shape) -> bool {
    let (layout, mut taken) = (&shape.output, std::collections::HashSet::new());
    let [rows, columns, planes] = match shape.sizes() {
        [a] => [1, 1, *a],
        [a, b] => [1, *a, *b],
        [a, b, c] => [*a, *b, *c],
        _ => unreachable!(),
    };
    // The places of the last two dimensions' embeddings.
    let rank = shape.sizes().len();
    let last = u64::from(layout.embed[rank - 1]);
    let middle = if rank > 1 { u64::from(layout.embed[rank - 2]) } else { 1 };
    (0..u64::from(shape.batch)).all(|b| {
        (0..u64::from(rows)).all(|x| {
            (0..u64::from(columns)).all(|y| {
                (0..u64::from(planes)).all(|z| {
                    let flat = (x * middle + y) * last + z;
                    taken.insert(b * layout.distance + flat * u64::from(layout.stride))
                })
            })
        })
    })
}

#[test]
fn transforms_may_overlap_in_their_input_and_not_in_their_output() {
    let side = |stride, distance| Layout { embed: [64, 1, 1], stride, distance };
    let shape = |batch, input, output| {
        let (kind, sizes) = (Kind::Complex { forward: true }, [64, 1, 1]);
        Shape { kind, is_double: false, rank: 1, sizes, batch, input, output }
    };
    // Windows of a signal.
    let windows = shape(3, side(1, 16), side(1, 64));
    assert_eq!((windows.bytes(true), windows.bytes(false)), (Ok(96 * 8), Ok(192 * 8)));
    for (batch, distance) in [(u32::MAX, 0), (u32::MAX, 1), (2, 63), (2, 0)] {
        let shape = shape(batch, side(1, 0), side(1, distance));
        assert!(shape.bytes(true).is_ok());
        assert_eq!(shape.bytes(false), Err(Misfit), "{batch} {distance}");
    }
    // A single transform has no distance.
    assert!(shape(1, side(1, 0), side(1, 0)).bytes(false).is_ok());
    // Rows of two transforms take turns in memory.
    let rows = Layout { embed: [4, 128, 1], stride: 1, distance: 64 };
    let plane = Shape { rank: 2, sizes: [4, 64, 1], input: rows, output: rows, ..windows };
    assert!(Shape { batch: 2, ..plane }.bytes(false).is_ok());
    assert_eq!(Shape { batch: 3, ..plane }.bytes(false), Err(Misfit));
}
