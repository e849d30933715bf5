//! The header as CUDA C++, compiled without a GPU for all GPUs from Turing to Hopper.

use std::path::Path;
use std::process::Command;

use penstock_ggas::HEADER;
use penstock_trial::{Need, skip};

/// Uses every verb in kernels that are not run.
const KERNELS: &str = r#"
extern "C" __global__ void verbs(ggas_heap_t *heap, unsigned long long *out)
{
    __shared__ int scratch;
    const ggas_t g = ggas_open(heap);
    const unsigned me = ggas_my_pe(g), peer = (me + 1) % ggas_n_pes(g);
    int status = ggas_p32(g, 0, 1, peer) | ggas_p64(g, 8, 2, peer) | ggas_signal(g, 16, 3, peer);
    status |= ggas_put(g, 64, 128, 64, peer) | ggas_put_nbi(g, 64, 128, 64, peer);
    status |= ggas_put_wg(g, 64, 128, 4096, peer) | ggas_put_nbi_wg(g, 64, 128, 4096, peer);
    status |= ggas_put_signal(g, 64, 128, 64, 24, 4, peer) | ggas_put_signal_nbi(g, 64, 128, 64, 24, 4, peer);
    status |= ggas_put_signal_wg(g, 64, 128, 64, 24, 5, peer) | ggas_put_signal_nbi_wg(g, 64, 128, 64, 24, 5, peer);
    ggas_fence(g, peer);
    status |= ggas_quiet(g);
    status |= ggas_wait_until(g, 24, GGAS_CMP_GE, 5) | ggas_wait_until_wg(g, 24, GGAS_CMP_GE, 5, &scratch);
    status |= ggas_test(g, 24, GGAS_CMP_EQ, 5) | ggas_aborted(g);
    status |= ggas_barrier_all(g) | ggas_sync_all(g);
    const ggas_team_t team = ggas_team_split(g, 1, 0, 2, 2);
    status |= ggas_barrier(g, team) | ggas_sync(g, team) | ggas_team_my_pe(g, team);
    out[0] = status + ggas_team_n_pes(team) + ggas_team_pe(team, 0) + ggas_bytes(g);
    *(unsigned long long *)ggas_ptr(g, 32, peer) = 1;
}
static_assert(sizeof(ggas_heap_t) == HEAD_BYTES, "layout");
static_assert(sizeof(ggas_entry_t) == 64 && sizeof(ggas_meeting_t) == 64, "layout");
"#;

/// Python program that prints the PTX, or the compiler's messages and fails.
const COMPILE: &str = r#"
import sys
from cuda.bindings import nvrtc
source = sys.stdin.buffer.read()
def ok(answer):
    if answer[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS: raise RuntimeError(answer[0])
    return answer[1] if len(answer) > 1 else None
program = ok(nvrtc.nvrtcCreateProgram(source, b"ggas.cu", 0, [], []))
# Machine code first, which the assembler checks; then the PTX that is printed.
for architecture in ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "compute_75", "compute_90"):
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17", b"-default-device"]
    done = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if done[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS: break
    if architecture.startswith("sm_") and ok(nvrtc.nvrtcGetCUBINSize(program)) < 1000: raise RuntimeError(architecture)
    print("// made for", architecture)
log = b" " * ok(nvrtc.nvrtcGetProgramLogSize(program))
ok(nvrtc.nvrtcGetProgramLog(program, log))
sys.stderr.write(log.decode().strip("\0 "))
ok(done)
ptx = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
ok(nvrtc.nvrtcGetPTX(program, ptx))
sys.stdout.write(ptx.decode().strip("\0"))
"#;

#[test]
fn the_header_is_cuda_with_loads_and_stores_of_system_scope() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.venv-cuda/bin/python");
    if !python.exists() {
        skip(Need::CudaToolkit, "no .venv-cuda with NVRTC: run `tools/setup.sh cuda`");
        return;
    }
    let head_bytes = penstock_ggas::layout::HEAD_BYTES;
    let source = format!("#define HEAD_BYTES {head_bytes}\n{HEADER}\n{KERNELS}");
    let file = std::env::temp_dir().join(format!("ggas-{}.cu", std::process::id()));
    std::fs::write(&file, source).unwrap();
    let input = std::fs::File::open(&file).unwrap();
    let output = Command::new(python).args(["-c", COMPILE]).stdin(input).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    assert!(!words.contains("warning"), "{words}");
    let ptx = String::from_utf8_lossy(&output.stdout);
    for architecture in ["sm_75", "sm_80", "sm_90", "compute_75", "compute_90"] {
        assert!(ptx.contains(&format!("// made for {architecture}\n")), "{ptx}");
    }
    for instruction in [
        "ld.acquire.sys.u64",
        "st.release.sys.u64",
        "atom.acq_rel.sys.cas.b64",
        "fence.acq_rel.sys",
        "fence.sc.sys",
        "bar.sync",
        "nanosleep",
    ] {
        assert!(ptx.contains(instruction), "no {instruction} in:\n{ptx}");
    }
}
