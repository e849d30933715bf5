//! Loads, stores and atomics in every space.

use crate::case::{Case, Expect, T, run};
use crate::integer::{INTS, Int};
use crate::number::{self, HALF, Mode, from_half, half_bits};

/// A place of 16 bytes for each thread: its declaration, the instructions that load its address
/// into `x`, and the space that instructions name.
struct Place {
    declare: &'static str,
    address: &'static str,
    space: &'static str,
}

const LOCAL: Place = Place {
    declare: ".local .align 16 .b8 m$n[16]; .reg .b64 x;",
    address: "mov.u64 x, m$n;",
    space: ".local",
};
const SHARED: Place = Place {
    declare: ".shared .align 16 .b8 m$n[1024]; .reg .b32 x;",
    address: "mov.u32 x, m$n; mad.lo.u32 x, %t, 16, x;",
    space: ".shared",
};
const GLOBAL: Place = Place {
    declare: ".global .align 16 .b8 m$n[16384]; .reg .b64 x, y;",
    address: "mov.u64 x, m$n; mul.wide.u32 y, %i, 16; add.s64 x, x, y;",
    space: ".global",
};
const GENERIC_LOCAL: Place = Place {
    declare: ".local .align 16 .b8 m$n[16]; .reg .b64 x;",
    address: "mov.u64 x, m$n; cvta.local.u64 x, x;",
    space: "",
};
const GENERIC_SHARED: Place = Place {
    declare: ".shared .align 16 .b8 m$n[1024]; .reg .b64 x, y;",
    address: "mov.u64 x, m$n; mul.wide.u32 y, %t, 16; add.u64 x, x, y; cvta.shared.u64 x, x;",
    space: "",
};
const GENERIC_GLOBAL: Place = Place {
    declare: ".global .align 16 .b8 m$n[16384]; .reg .b64 x, y;",
    address: "mov.u64 x, m$n; mul.wide.u32 y, %i, 16; add.s64 x, x, y; cvta.global.u64 x, x;",
    space: "",
};

const PLACES: [Place; 6] = [LOCAL, SHARED, GLOBAL, GENERIC_LOCAL, GENERIC_SHARED, GENERIC_GLOBAL];

fn at(place: &Place, text: &str) -> String {
    format!("{{ {} {} {} }}", place.declare, place.address, text.replace("SPACE", place.space))
}

#[test]
fn every_width_is_loaded_and_stored_in_every_space() {
    run("memory", &memory());
}

pub fn memory() -> Vec<Case> {
    let mut cases = Vec::new();
    for place in &PLACES {
        for (name, bits, signed) in [
            ("u8", 8, false),
            ("s8", 8, true),
            ("u16", 16, false),
            ("s16", 16, true),
            ("b32", 32, false),
        ] {
            let int = Int { name, bits, signed };
            let text = at(place, &format!("stSPACE.b64 [x+8], $a; ldSPACE.{name} $d, [x+12];"));
            cases.push(Case::new(text, &[T::I64], T::I32, move |v| {
                INTS[2].cut(int.value(v[0] >> 32))
            }));
        }
        let text = at(
            place,
            "stSPACE.u64 [x], 0; stSPACE.u8 [x+1], $a; stSPACE.u16 [x+2], $a; stSPACE.b32 [x+4], $b; ldSPACE.b64 $d, [x];",
        );
        cases.push(Case::new(text, &[T::I32, T::I32], T::I64, |v| {
            ((v[0] & 0xff) << 8) | ((v[0] & 0xffff) << 16) | (v[1] << 32)
        }));
        let text = at(
            place,
            "stSPACE.v4.b32 [x], {$a, $b, $a, 7}; .reg .b64 y2; ldSPACE.v2.b64 {$d, y2}, [x];",
        );
        cases.push(Case::new(text, &[T::I32, T::I32], T::I64, |v| v[0] | (v[1] << 32)));
        let text = at(
            place,
            "stSPACE.v2.f32 [x+8], {$a, $b}; .reg .f32 u, w; ldSPACE.v4.f32 {u, w, _, $d}, [x];",
        );
        cases.push(Case::new(text, &[T::F32, T::F32], T::F32, |v| v[1]));
        let text =
            at(place, "stSPACE.b32 [x], $a; .reg .b16 p, q, r; ldSPACE.v4.u8 {p, q, r, $d}, [x];");
        cases.push(Case::new(text, &[T::I32], T::I16, |v| v[0] >> 24));
        let text = at(place, "st.volatileSPACE.f64 [x], $a; ld.volatileSPACE.f64 $d, [x];");
        cases.push(Case::new(text, &[T::F64], T::F64, |v| v[0]));
    }
    cases
}

#[test]
fn addresses_know_their_space() {
    run("addresses", &addresses());
}

pub fn addresses() -> Vec<Case> {
    let mut cases = Vec::new();
    for (index, place) in [GENERIC_LOCAL, GENERIC_SHARED, GENERIC_GLOBAL].iter().enumerate() {
        for (other, space) in ["local", "shared", "global"].iter().enumerate() {
            let text = at(place, &format!("isspacep.{space} $d, x;"));
            cases.push(Case::new(text, &[], T::Pred, move |_| u64::from(index == other)));
        }
        let space = ["local", "shared", "global"][index];
        let text = at(
            place,
            &format!("st.b32 [x+4], $a; cvta.to.{space}.u64 x, x; ld.{space}.b32 $d, [x+4];"),
        );
        cases.push(Case::new(text, &[T::I32], T::I32, |v| v[0]));
    }
    let text = at(&GLOBAL, "st.global.b32 [x+4], $a; ldu.global.b32 $d, [x+4];");
    cases.push(Case::new(text, &[T::I32], T::I32, |v| v[0]));
    for (bytes, kept) in [("16", true), ("16, 8", false)] {
        let shared = ".shared .align 16 .b8 near$n[1024]; .reg .b32 z; mov.u32 z, near$n; mad.lo.u32 z, %t, 16, z; st.shared.b64 [z+8], -1;";
        let copy = format!(
            "st.global.v2.b64 [x], {{$b, $a}}; cp.async.ca.shared.global [z], [x], {bytes}; cp.async.wait_all; ld.shared.b64 $d, [z+8];"
        );
        let text = at(&GLOBAL, &format!("{shared} {copy}"));
        cases.push(Case::new(
            text,
            &[T::I64, T::I64],
            T::I64,
            move |v| if kept { v[0] } else { 0 },
        ));
    }
    let table = ".const .align 4 .u32 c$n[4] = {10, 20, 30, 40}; .reg .b64 x, y; mov.u64 x, c$n; and.b64 y, $a, 3; shl.b64 y, y, 2; add.u64 x, x, y;";
    cases.push(Case::new(format!("{{ {table} ld.const.u32 $d, [x]; }}"), &[T::I64], T::I32, |v| {
        ((v[0] & 3) + 1) * 10
    }));
    cases.push(Case::new(
        format!("{{ {table} cvta.const.u64 x, x; ld.u32 $d, [x]; }}"),
        &[T::I64],
        T::I32,
        |v| ((v[0] & 3) + 1) * 10,
    ));
    let pointer = ".global .align 4 .u32 v$n[2] = {5, 6}; .global .align 8 .u64 pointer$n = generic(v$n)+4; .reg .b64 x; ld.global.u64 x, [pointer$n]; ld.u32 $d, [x];";
    cases.push(Case::new(format!("{{ {pointer} }}"), &[], T::I32, |_| 6));
    cases
}

/// Returns the new value of an atomic operation on integers.
fn combine(op: &str, int: Int, old: u64, b: u64) -> u64 {
    match op {
        "add" => int.cut(int.value(old) + int.value(b)),
        "and" => old & b,
        "or" => old | b,
        "xor" => old ^ b,
        "exch" => b,
        "min" => int.cut(int.value(old).min(int.value(b))),
        "max" => int.cut(int.value(old).max(int.value(b))),
        "inc" => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        _ => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
    }
}

/// Tests the value that an atomic returns and the value that it stores, in every space that threads
/// can share.
fn atomic(
    cases: &mut Vec<Case>,
    op: &str,
    ty: &str,
    register: T,
    new: impl Fn(u64, u64) -> Expect + Clone + 'static,
) {
    let bits = ty.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
    let bits = if ty.contains("x2") { "32" } else { bits };
    for (index, place) in [SHARED, GLOBAL, GENERIC_SHARED, GENERIC_GLOBAL].iter().enumerate() {
        let store = format!("stSPACE.b{bits} [x], $a;");
        let text = at(place, &format!("{store} atomSPACE.{op}.{ty} $d, [x], $b;"));
        cases.push(Case::new(text, &[register, register], register, |v| v[0]));
        if index % 2 == 0 {
            let result = new.clone();
            let text =
                at(place, &format!("{store} redSPACE.{op}.{ty} [x], $b; ldSPACE.b{bits} $d, [x];"))
                    .replace("red.shared.exch", "red.exch");
            if op != "exch" {
                cases.push(Case::with(text, &[register, register], register, move |v| {
                    result(v[0], v[1])
                }));
            }
        }
        let result = new.clone();
        let text = at(
            place,
            &format!("{store} atomSPACE.{op}.{ty} $d, [x], $b; ldSPACE.b{bits} $d, [x];"),
        );
        cases.push(Case::with(text, &[register, register], register, move |v| result(v[0], v[1])));
    }
}

#[test]
fn atomics_return_the_old_value_and_leave_the_new() {
    run("atomics", &atomics());
}

pub fn atomics() -> Vec<Case> {
    let mut cases = Vec::new();
    let [u32s, s32s, u64s, s64s] = [INTS[2], INTS[3], INTS[4], INTS[5]];
    for (int, width) in [(u32s, "b32"), (u64s, "b64")] {
        for op in ["and", "or", "xor", "exch"] {
            atomic(&mut cases, op, width, int.register(), move |old, b| {
                Expect::Bits(combine(op, int, old, b))
            });
        }
    }
    for int in [u32s, s32s, u64s, s64s] {
        for op in ["min", "max"] {
            atomic(&mut cases, op, int.name, int.register(), move |old, b| {
                Expect::Bits(combine(op, int, old, b))
            });
        }
    }
    for int in [u32s, s32s, u64s] {
        atomic(&mut cases, "add", int.name, int.register(), move |old, b| {
            Expect::Bits(combine("add", int, old, b))
        });
    }
    for op in ["inc", "dec"] {
        atomic(&mut cases, op, "u32", T::I32, move |old, b| {
            Expect::Bits(combine(op, u32s, old, b))
        });
    }
    let sum32 = |a: u64, b: u64| f32::from_bits(a as u32) + f32::from_bits(b as u32);
    atomic(&mut cases, "add", "f32", T::F32, move |old, b| {
        let flush = |bits: u64| {
            if f32::from_bits(bits as u32).is_subnormal() { bits & 0x8000_0000 } else { bits }
        };
        let kept = u64::from(sum32(old, b).to_bits());
        // In global memory the sum flushes denormals.
        Expect::OneOf(vec![kept, flush(kept), u64::from(sum32(flush(old), flush(b)).to_bits())])
    });
    atomic(&mut cases, "add", "f64", T::F64, |old, b| {
        Expect::Bits((f64::from_bits(old) + f64::from_bits(b)).to_bits())
    });
    cases
}

#[test]
fn swaps_and_narrow_atomics_agree() {
    run("swaps", &swaps());
}

pub fn swaps() -> Vec<Case> {
    let mut cases = Vec::new();
    for place in [SHARED, GLOBAL, GENERIC_GLOBAL] {
        for (bits, register) in [(16, T::I16), (32, T::I32), (64, T::I64)] {
            let store = format!("stSPACE.b{bits} [x], $a;");
            let text = at(&place, &format!("{store} atomSPACE.cas.b{bits} $d, [x], $b, $c;"));
            cases.push(Case::new(text, &[register; 3], register, |v| v[0]));
            let text = at(
                &place,
                &format!("{store} atomSPACE.cas.b{bits} $d, [x], $b, $c; ldSPACE.b{bits} $d, [x];"),
            );
            cases.push(Case::new(text, &[register; 3], register, |v| {
                if v[0] == v[1] { v[2] } else { v[0] }
            }));
            let text = at(
                &place,
                &format!("{store} atomSPACE.cas.b{bits} $d, [x], $a, $b; ldSPACE.b{bits} $d, [x];"),
            );
            cases.push(Case::new(text, &[register; 2], register, |v| v[1]));
        }
    }
    let sum = |a: u64, b: u64| {
        half_bits(
            number::add(from_half(a & 0xffff), from_half(b & 0xffff), Mode::Rn)
                .round(HALF, Mode::Rn),
        )
    };
    atomic(&mut cases, "add.noftz", "f16", T::F16, move |old, b| Expect::Bits(sum(old, b)));
    atomic(&mut cases, "add.noftz", "f16x2", T::F16x2, move |old, b| {
        Expect::Bits(sum(old, b) | (sum(old >> 16, b >> 16) << 16))
    });
    cases
}
