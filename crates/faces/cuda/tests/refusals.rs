//! Kernels that cannot run, in modules whose other kernels can. A separate file, because the test
//! redirects the standard error of the process.

mod common;

use std::fmt::Write as _;
use std::ptr::null_mut;

use common::*;
use penstock_cuda::api::function::{cuFuncGetAttribute, cuFuncLoad};
use penstock_cuda::api::module::{cuModuleGetGlobal_v2, cuModuleUnload};
use penstock_cuda_sys::driver::*;

/// Number of kernels that are served.
const SERVED: u32 = 8;

/// Statements that make a kernel too large to be built together with another one.
const PADDING: usize = 400;

/// Returns a module with a variable of 7, a function with an unknown instruction in line 6, two
/// kernels that call it, one kernel with another such instruction, and kernels that add their
/// number to the variable and store the sum. `padding`: statements of each of these.
fn text(padding: usize) -> String {
    let mut text = String::from(
        ".version 7.5\n.target sm_75\n.address_size 64\n.global .u32 x = 7;\n\
         .func odd() { .reg .b32 %r<3>;\n  nonsense.u32 %r1, {%r2, 1}, [x];\n  ret; }\n\
         .func unused() { more.nonsense; }\n\
         .visible .entry first(.param .u64 a) { call odd; ret; }\n\
         .visible .entry second(.param .u64 a) { call odd; ret; }\n\
         .visible .entry own(.param .u64 a) { .shared .b8 s[64]; own.nonsense; ret; }\n",
    );
    let padding = "xor.b32 %r2, %r2, 1; ".repeat(padding);
    for index in 0..SERVED {
        let _ = writeln!(
            text,
            ".visible .entry k{index}(.param .u64 a) {{ .reg .b32 %r<4>; .reg .b64 %rd<3>;
             ld.param.u64 %rd1, [a]; mov.u32 %r2, %tid.x; {padding}
             ld.global.u32 %r1, [x]; add.u32 %r1, %r1, {index}; st.global.u32 [x], %r1;
             st.global.u32 [%rd1], %r1; ret; }}"
        );
    }
    text
}

/// Launches all kernels that are served, and looks at the variable that they share.
fn run_served(module: CUmodule) {
    let (mut x, mut bytes) = (0, 0);
    // SAFETY: the results go to local variables, and the name ends with a 0.
    ok(unsafe { cuModuleGetGlobal_v2(&raw mut x, &raw mut bytes, module, c"x".as_ptr()) });
    let sum = allocate(4);
    let mut wanted = 7;
    for index in 0..SERVED {
        wanted += index;
        let kernel = function(module, &format!("k{index}"));
        ok(launch(kernel, 1, 1, null_mut(), &[sum]));
        assert_eq!(download::<u32>(sum, 1), [wanted]);
        assert_eq!(download::<u32>(x, 1), [wanted]);
    }
}

#[test]
fn an_unknown_instruction_refuses_its_kernels_and_no_others() {
    let _context = TestContext::new();
    for padding in [0, PADDING] {
        let module = load(&text(padding));
        let refused = ["first", "second", "own"].map(|name| function(module, name));
        let mut value = 0;
        // SAFETY: the result goes to a local variable.
        ok(unsafe {
            cuFuncGetAttribute(&raw mut value, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, refused[2])
        });
        assert_eq!(value, 0);
        let lines = written(2, || {
            for kernel in refused {
                assert_eq!(launch(kernel, 1, 1, null_mut(), &[0]), CUDA_ERROR_NOT_SUPPORTED);
                // SAFETY: handles are checked and never followed.
                assert_eq!(unsafe { cuFuncLoad(kernel) }, CUDA_ERROR_NOT_SUPPORTED);
            }
        });
        let lines: Vec<&str> = lines.lines().collect();
        // Each kernel is told once in a process.
        assert_eq!(lines.len(), if padding == 0 { 3 } else { 0 }, "{lines:?}");
        for (line, parts) in lines.iter().zip([
            ["kernel first", "ptx:6:", "nonsense.u32 %r1, {%r2, 1}, [x]", "function odd"],
            ["kernel second", "ptx:6:", "nonsense.u32 %r1, {%r2, 1}, [x]", "function odd"],
            ["kernel own", "ptx:11:", "own.nonsense", "function own"],
        ]) {
            assert!(parts.iter().all(|part| line.contains(part)), "{line}");
        }
        run_served(module);
        // SAFETY: handles are checked and never followed.
        ok(unsafe { cuModuleUnload(module) });
    }
}
