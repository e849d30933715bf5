//! Output of kernels. A separate file, because the test redirects the standard output of the
//! process.

mod common;

use std::ptr::null_mut;

use common::*;
use penstock_cuda::api::context::cuCtxSetCurrent;
use penstock_cuda::api::stream::cuStreamSynchronize;
use penstock_cuda_sys::driver::*;

const PRINTS: &str = r#"
.version 7.5
.target sm_75
.address_size 64
.extern .func (.param .b32 func_retval0) vprintf(.param .b64 vprintf_param_0, .param .b64 vprintf_param_1);
.global .align 1 .b8 $str[18] = {116, 104, 114, 101, 97, 100, 32, 37, 100, 58, 32, 37, 46, 50, 102, 10, 0, 0};

.visible .entry prints()
{
    .local .align 8 .b8 __local_depot0[16];
    .reg .b64 %SP, %SPL;
    .reg .b32 %r<4>;
    .reg .f64 %fd<3>;
    .reg .b64 %rd<6>;
    mov.u64 %SPL, __local_depot0;
    cvta.local.u64 %SP, %SPL;
    add.u64 %rd1, %SP, 0;
    add.u64 %rd2, %SPL, 0;
    mov.u32 %r1, %tid.x;
    cvt.rn.f64.u32 %fd1, %r1;
    mul.f64 %fd2, %fd1, 0d3FF4000000000000;
    st.local.u32 [%rd2], %r1;
    st.local.f64 [%rd2+8], %fd2;
    mov.u64 %rd3, $str;
    cvta.global.u64 %rd4, %rd3;
    { // callseq 0
    .reg .b32 temp_param_reg;
    .param .b64 param0;
    st.param.b64 [param0+0], %rd4;
    .param .b64 param1;
    st.param.b64 [param1+0], %rd1;
    .param .b32 retval0;
    call.uni (retval0), vprintf, (param0, param1);
    ld.param.b32 %r2, [retval0+0];
    }
    ret;
}
"#;

/// Runs `work` and returns what it prints on standard output, as sorted lines.
fn printed(work: impl FnOnce()) -> Vec<String> {
    let mut lines: Vec<_> = written(1, work).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

// One test, because all threads share the standard output.
#[test]
fn output_of_kernels_comes_with_the_next_wait_and_none_is_lost() {
    let context = TestContext::new();
    let prints = function(load(PRINTS), "prints");
    let lines = printed(|| {
        ok(launch(prints, 1, 3, null_mut(), &[]));
        synchronize();
        ok(launch(prints, 1, 1, null_mut(), &[]));
        synchronize();
    });
    assert_eq!(lines, ["thread 0: 0.00", "thread 0: 0.00", "thread 1: 1.25", "thread 2: 2.50"]);
    // Other threads print while the output is taken.
    let (context, prints) = (context.0.addr(), prints.addr());
    let lines = printed(|| {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    // SAFETY: handles are checked and never followed.
                    ok(unsafe { cuCtxSetCurrent(std::ptr::without_provenance_mut(context)) });
                    let stream = stream(CU_STREAM_NON_BLOCKING);
                    for _ in 0..100 {
                        ok(launch(std::ptr::without_provenance_mut(prints), 1, 1, stream, &[]));
                        // SAFETY: handles are checked and never followed.
                        ok(unsafe { cuStreamSynchronize(stream) });
                    }
                });
            }
        });
        synchronize();
    });
    assert_eq!((lines.len(), lines.iter().all(|line| line == "thread 0: 0.00")), (200, true));
}
