//! Compares every form of an instruction with a scalar reference, on every OpenCL device of this
//! machine.
//!
//! Each case is one instruction (or two that belong together). Its operands are random values and
//! the edge values of their types: NaN, infinities, denormals, overflow, shifts beyond the width.
//! Each kernel has many cases, so that few programs must be built. Results that PTX does not define
//! are not compared. Approximate instructions may have the error that PTX's manual allows.
//!
//! With `.ftz`, a denormal operand or result may be zero or not: a translation may keep denormals.

#![expect(
    clippy::cast_possible_truncation,
    reason = "references cut values to the width of the instruction"
)]

mod bits;
mod case;
mod compare;
mod convert;
mod float;
mod half;
mod integer;
mod machine;
mod memory;
mod number;
mod threads;

use std::collections::HashSet;

use penstock_ptx::forms;
use penstock_ptx::ir::{Opcode, Statement};
use penstock_ptx::module::parse;
use penstock_ptx::translate::{Options, translate};

const FAMILIES: &[fn() -> Vec<case::Case>] = &[
    bits::logic,
    bits::shifts,
    bits::fields,
    bits::bytes,
    compare::comparisons_of_integers,
    compare::comparisons_with_a_predicate,
    compare::comparisons_of_floats,
    convert::integers_to_integers,
    convert::floats_to_integers,
    convert::integers_to_floats,
    convert::floats_to_floats,
    float::singles,
    float::doubles,
    float::extremes_and_signs,
    float::approximate_functions,
    half::halves,
    half::functions_of_halves,
    integer::integers,
    integer::products,
    integer::carries,
    integer::packed_integers,
    memory::memory,
    memory::addresses,
    memory::atomics,
    memory::swaps,
];

/// Opcodes with forms that a single value cannot test, and the file that tests them. Opcodes
/// without a result are listed too.
const TRIED_ELSEWHERE: &[(&str, &[Opcode])] = &[
    (
        "threads.rs",
        &[
            Opcode::Activemask,
            Opcode::BarArrive,
            Opcode::BarRed,
            Opcode::BarSync,
            Opcode::BarWarpSync,
            Opcode::BrxIdx,
            Opcode::Call,
            Opcode::Elect,
            Opcode::Exit,
            Opcode::Match,
            Opcode::Redux,
            Opcode::Shfl,
            Opcode::Trap,
            Opcode::Vote,
            Opcode::Bra,
        ],
    ),
    (
        "nothing to compare: hints, and waiting that is not needed",
        &[Opcode::Hint, Opcode::Brkpt, Opcode::Nanosleep, Opcode::Fence, Opcode::CpAsyncFence],
    ),
    ("tests/translate", &[Opcode::Tex, Opcode::Tld4, Opcode::Txq, Opcode::Suld, Opcode::Sust]),
];

#[test]
fn every_form_is_tried() {
    let mut tried = HashSet::new();
    for case in FAMILIES.iter().flat_map(|family| family()) {
        let module =
            parse(&case.text_alone()).unwrap_or_else(|error| panic!("{}: {error}", case.text));
        for statement in
            module.functions().iter().flat_map(|function| function.body.iter().flatten())
        {
            if let Statement::Instruction(instruction) = statement {
                let row = forms::row_of(&instruction.mnemonic).expect("it was parsed");
                tried.insert((row.name, row.suffixes, row.operands));
            }
        }
    }
    let elsewhere =
        |opcode: Opcode| TRIED_ELSEWHERE.iter().any(|(_, opcodes)| opcodes.contains(&opcode));
    let missing: Vec<String> = forms::table()
        .filter(|row| {
            !elsewhere(row.opcode) && !tried.contains(&(row.name, row.suffixes, row.operands))
        })
        .map(|row| row.syntax())
        .collect();
    assert!(missing.is_empty(), "{} forms have no case:\n{}", missing.len(), missing.join("\n"));
}

#[test]
fn what_is_not_translated_is_refused() {
    let options = Options {
        arenas: vec![(machine::BASE, machine::ARENA_BYTES)],
        fp64: true,
        int64_atomics: true,
        ..Options::default()
    };
    for line in [
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%a, %a, {%f1, %f2}];",
        "tld4.r.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%a, %a, {%f1, %f2}];",
    ] {
        let text = format!(
            ".version 9.0\n.target sm_75\n.entry k() {{\n.reg .b64 %a; .reg .f32 %f<5>; .reg .b32 %r<3>;\n{line}\nret; }}"
        );
        let module = parse(&text).unwrap_or_else(|error| panic!("{line}: {error}"));
        let error = translate(&module, &options)
            .err()
            .unwrap_or_else(|| panic!("{line} is translated: give it a case"));
        let opcode = line.split(' ').next().expect("an opcode");
        assert!(
            error.to_string().contains(opcode) && error.to_string().contains('5'),
            "{error} names the line and the instruction"
        );
    }
}
