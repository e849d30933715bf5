//! Real PTX can be parsed, and the properties that a launch needs are right.

use penstock_ptx::ir::{CallTarget, Entry, FUNCTION_WINDOW, Module, Opcode, Operand, Statement};
use penstock_ptx::module::parse;

const TEXTS: [(&str, &str); 6] = [
    ("arithmetic", include_str!("../ptx/arithmetic.ptx")),
    ("inline", include_str!("../ptx/inline.ptx")),
    ("llvm", include_str!("../ptx/llvm.ptx")),
    ("memory", include_str!("../ptx/memory.ptx")),
    ("textures", include_str!("../ptx/textures.ptx")),
    ("threads", include_str!("../ptx/threads.ptx")),
];

fn module(name: &str) -> Module {
    let (_, text) = TEXTS.iter().find(|(known, _)| *known == name).expect("one of the texts");
    parse(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn entry<'m>(module: &'m Module, name: &str) -> &'m Entry {
    module
        .entries()
        .iter()
        .find(|entry| entry.name == name)
        .unwrap_or_else(|| panic!("there is no kernel {name}"))
}

#[test]
fn every_text_is_read_and_its_tables_hold_together() {
    for (name, _) in TEXTS {
        let module = module(name);
        assert!(!module.entries().is_empty(), "{name}");
        for function in module.functions() {
            for statement in function.body.iter().flatten() {
                let Statement::Instruction(instruction) = statement else { continue };
                assert!(
                    usize::from(instruction.destinations) <= instruction.operands.len(),
                    "{}",
                    instruction.mnemonic
                );
                for operand in &instruction.operands {
                    match operand {
                        Operand::Register(id) | Operand::Not(id) | Operand::Component(id, _) => {
                            assert!(id.index() < function.registers.len())
                        }
                        Operand::Label(id) => assert!(id.index() < function.labels.len()),
                        Operand::Targets(ids) => assert!(
                            ids.iter().all(|id| id.index() < function.labels.len())
                                && !ids.is_empty()
                        ),
                        _ => {}
                    }
                }
            }
            for label in &function.labels {
                let at = &function.body.as_ref().expect("it has labels")[label.position as usize];
                assert!(
                    matches!(at, Statement::Label(id) if function.labels[id.index()].name == label.name)
                );
            }
        }
    }
}

#[test]
fn parameters_lie_where_c_puts_them() {
    let module = module("memory");
    // spaces(float *out, int n, Body by_value, char tail): Body has 32 bytes, aligned to 8.
    let spaces = entry(&module, "spaces");
    let places: Vec<(u32, u32)> =
        spaces.params.iter().map(|param| (param.offset, param.size)).collect();
    assert_eq!(places, [(0, 8), (8, 4), (16, 32), (48, 1)]);
    assert_eq!(spaces.params_size, 49);
}

#[test]
fn shared_memory_is_laid_out_for_each_kernel() {
    let module = module("memory");
    // tile has 32*33*4 bytes, slow 64. Dynamic memory follows at a multiple of 16.
    let spaces = entry(&module, "spaces");
    assert_eq!(spaces.static_shared, 32 * 33 * 4 + 64);
    assert!(spaces.uses_dynamic_shared);
    // near has 16 bytes; hidden, a variable of a function that the kernel calls, has 64.
    let generic = entry(&module, "generic_addresses");
    assert_eq!(generic.static_shared, 16 + 64);
    assert!(!generic.uses_dynamic_shared);
    let callees: Vec<&str> =
        generic.callees.iter().map(|id| module.function(*id).name.as_str()).collect();
    assert_eq!(callees.len(), 1);
    assert!(callees[0].contains("through"), "{callees:?}");
    assert_eq!(entry(&module, "vectors").static_shared, 0);
}

#[test]
fn kernels_that_share_nothing_use_the_same_shared_bytes() {
    let module = module("threads");
    let sizes: Vec<u32> = module
        .entries()
        .iter()
        .filter(|entry| entry.name.contains("generic_kernel"))
        .map(|entry| entry.static_shared)
        .collect();
    assert_eq!(sizes.iter().max(), Some(&512), "doubles");
    assert_eq!(sizes.iter().min(), Some(&256), "floats");
    assert_eq!(entry(&module, "atomics").static_shared, 4);
}

#[test]
fn local_memory_counts_the_deepest_chain_of_calls() {
    let memory = module("memory");
    assert_eq!(entry(&memory, "local_memory").local_bytes, 160, "int stack[40]");
    assert_eq!(entry(&memory, "vectors").local_bytes, 0);
    let threads = module("threads");
    assert!(entry(&threads, "recursive").recursive);
    assert!(!entry(&threads, "calls").recursive);
}

#[test]
fn bounds_of_launches_are_kept() {
    assert_eq!(entry(&module("threads"), "clocks").max_threads, Some(256));
    assert_eq!(entry(&module("llvm"), "kernel").max_threads, Some(256), "128 * 2");
    let text = ".version 7.0\n.target sm_70\n.entry k() .reqntid 8, 4 { ret; }";
    assert_eq!(parse(text).expect("well formed").entries()[0].required, Some([8, 4, 1]));
}

#[test]
fn initial_values_and_pointers_are_in_the_data_block() {
    let module = module("memory");
    let global = |name: &str| {
        module
            .globals()
            .iter()
            .find(|global| global.name == name)
            .unwrap_or_else(|| panic!("{name}"))
    };
    let bytes = |name: &str, count: usize| {
        let start = usize::try_from(global(name).offset).expect("small");
        module.data().bytes[start..start + count].to_vec()
    };
    assert_eq!(bytes("counter", 4), 7u32.to_le_bytes());
    assert_eq!(bytes("weights", 12), [1f32, 2.0, 3.5].map(f32::to_le_bytes).concat());
    assert_eq!(bytes("table", 20), [1u32, 2, 3, 4, 5].map(u32::to_le_bytes).concat());
    assert!(global("weights").is_const && !global("buffer").is_const);
    assert_eq!(global("buffer").size, 4096);
    let pointer = |name: &str, index: u64| {
        let at = global(name).offset + 8 * index;
        module
            .data()
            .relocations
            .iter()
            .find(|relocation| relocation.offset == at)
            .map(|relocation| relocation.target)
    };
    assert_eq!(pointer("where", 0), Some(global("counter").offset.cast_signed()));
    assert_eq!(pointer("inside", 0), Some(global("buffer").offset.cast_signed() + 16));
    assert_eq!(pointer("inside", 1), Some(global("counter").offset.cast_signed()));
    assert!(pointer("names", 2).is_some());
    for global in module.globals() {
        assert!(global.offset + global.size <= module.data().size, "{}", global.name);
    }
    assert!(module.data().bytes.len() < 600, "the large buffer without values comes last");
}

#[test]
fn variables_do_not_overlap() {
    for (name, _) in TEXTS {
        let module = module(name);
        let mut places: Vec<(u64, u64)> = module
            .globals()
            .iter()
            .filter(|global| global.size > 0)
            .map(|global| (global.offset, global.size))
            .collect();
        places.sort_unstable();
        assert!(
            places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0),
            "{name}: {places:?}"
        );
    }
}

#[test]
fn what_llvm_writes_is_read() {
    let module = module("llvm");
    assert_eq!((module.version(), module.target()), ((7, 8), 70));
    let relocations = &module.data().relocations;
    assert_eq!(relocations.len(), 2, "a packed address of eight bytes, and the string's");
    let callbacks =
        module.globals().iter().find(|global| global.name == "callbacks").expect("it is there");
    let at = usize::try_from(callbacks.offset).expect("small");
    let helper = module
        .functions()
        .iter()
        .position(|function| function.name == "helper")
        .expect("it is there") as u64;
    assert_eq!(module.data().bytes[at..at + 8], (FUNCTION_WINDOW + helper).to_le_bytes());
    let kernel = entry(&module, "kernel");
    assert_eq!(kernel.local_bytes, 24);
    assert_eq!(kernel.params_size, 24);
    assert!(
        kernel.callees.iter().any(|id| module.function(*id).name == "helper"),
        "its address is in a table"
    );
    assert_eq!(
        module.globals().iter().filter(|global| global.name.is_empty()).count(),
        1,
        "another module's, unused"
    );
}

#[test]
fn calls_and_tables_of_branches_are_resolved() {
    let module = module("llvm");
    let body = module.function(entry(&module, "kernel").function).body.as_ref().expect("a kernel");
    let instructions = body.iter().filter_map(|statement| match statement {
        Statement::Instruction(instruction) => Some(instruction),
        Statement::Label(_) => None,
    });
    let calls: Vec<String> = instructions
        .clone()
        .filter_map(|instruction| instruction.call.as_deref())
        .map(|call| match &call.target {
            CallTarget::Direct(id) => module.function(*id).name.clone(),
            CallTarget::Indirect { signature, .. } => {
                format!("anybody with {} parameters", signature.params.len())
            }
        })
        .collect();
    assert_eq!(calls, ["vprintf", "anybody with 2 parameters"]);
    let jump = instructions
        .clone()
        .find(|instruction| instruction.opcode == Opcode::BrxIdx)
        .expect("there is one");
    let Operand::Targets(targets) = &jump.operands[1] else { panic!("{:?}", jump.operands) };
    let labels = &module.function(entry(&module, "kernel").function).labels;
    let names: Vec<&str> = targets.iter().map(|id| labels[id.index()].name.as_str()).collect();
    assert_eq!(names, ["$L__BB0_1", "$L__BB0_2", "$L__BB0_3"]);
}

#[test]
fn old_and_rare_spellings_are_read() {
    let text = "
        .version 3.2
        .target sm_20, texmode_unified
        .address_size 64
        .global .texref picture;
        .global .samplerref how = { filter_mode = linear };
        .const .align 16 .v4 .f32 rows[2] = { 1.0, 2.0, 3.0, 4.0, 5.0 };
        .func (.reg .u32 %out) twice (.reg .u32 %in) { add.u32 %out, %in, %in; ret; }
        .visible .entry k (.param .u64 .ptr .global .align 16 a, .param .f32 b[3])
        {
            .reg .v4 .f32 %v;
            .reg .f32 %x, %y<2>;
            .reg .u32 %i, %r<3>;
            .reg .u64 %a;
            .reg .pred %p, %q;
            ld.param.u64 %a, [a];
            ld.global.v4.f32 %v, [%a];
            mov.f32 %x, %v.w;
            ld.param.f32 %y0, [b+8];
            @%p bra.uni $L1;
            tex.2d.v4.f32.f32 {%x, %y1, _, _}, [picture, {%x, %y0}];
            tex.1d.v4.f32.s32 {%x, _, _, _}, [picture, how, {%i}];
            call.uni (%r0), twice, (%i);
            setp.lt.and.s32 %p|%q, %r0, 0x10, !%p;
            shfl.down.b32 %r1|%q, %r0, 1, 0x1f;
            vote.ballot.b32 %r2, %q;
            add.f32 %x, %x, 1.5;
            mul.ftz.rn.f32 %x, %x, 0d3FF8000000000000;
            st.global.v2.f32 [%a+16], {%x, 0f00000000};
            st.volatile.global.u32 [%a+-4], -1;
            membar.gl;
            $L1: exit;
        }";
    let module = parse(text).unwrap_or_else(|error| panic!("{error}"));
    let kernel = &module.entries()[0];
    assert_eq!((kernel.params_size, kernel.params[1].offset, kernel.params[1].size), (20, 8, 12));
    assert_eq!(module.globals().iter().filter(|global| global.opaque.is_some()).count(), 2);
    let rows = module.globals().iter().find(|global| global.name == "rows").expect("it is there");
    let at = usize::try_from(rows.offset).expect("small");
    assert_eq!(rows.size, 32);
    assert_eq!(module.data().bytes[at + 16..at + 20], 5f32.to_le_bytes());
}

#[test]
fn shared_memory_of_the_toolkit_is_a_variable_of_those_that_use_it() {
    let text = ".version 9.0\n.target sm_80\n.entry a() { .reg .b32 %r; .shared .b32 own; st.shared.u32 [own], 1; mov.u32 %r, %reserved_smem_offset_1; ret; }\n\
                .entry b() { .reg .b32 %r; mov.u32 %r, %reserved_smem_offset_1; ret; }\n.entry c() { ret; }";
    let module = parse(text).expect("well formed");
    let sizes: Vec<u32> = module.entries().iter().map(|entry| entry.static_shared).collect();
    assert_eq!(sizes, [1028, 1024, 0]);
    assert_eq!(module.shared().len(), 2);
}
