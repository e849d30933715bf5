//! Any text as PTX, alone and as the body of a kernel: a module whose tables hold together, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_ptx::ir::{Module, Operand, Statement};
use penstock_ptx::module;

fn check(module: &Module) {
    for global in module.globals() {
        assert!(global.offset + global.size <= module.data().size);
    }
    for entry in module.entries() {
        assert!(entry.params.iter().all(|param| param.offset + param.size <= entry.params_size));
    }
    for function in module.functions() {
        for statement in function.body.iter().flatten() {
            let Statement::Instruction(instruction) = statement else { continue };
            assert!(usize::from(instruction.destinations) <= instruction.operands.len());
            for operand in &instruction.operands {
                match operand {
                    Operand::Register(id) | Operand::Not(id) | Operand::Component(id, _) => {
                        assert!(id.index() < function.registers.len());
                    }
                    Operand::Label(id) => assert!(id.index() < function.labels.len()),
                    _ => {}
                }
            }
        }
    }
}

fuzz_target!(|text: &str| {
    if let Ok(module) = module::parse(text) {
        check(&module);
    }
    let kernel = format!(
        ".version 9.0\n.target sm_75\n.global .b32 g[4];\n.shared .b32 s;\n.func (.reg .b32 o) f(.reg .b32 i) {{ ret; }}\n\
         .entry k(.param .u64 a) {{ .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %d<4>;\n{text}\n}}"
    );
    if let Ok(module) = module::parse(&kernel) {
        check(&module);
    }
});
