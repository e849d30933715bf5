//! The header and the host agree on the layout; the header compiles in all supported modes.

use std::mem::{offset_of, size_of};
use std::sync::Arc;

use penstock_ggas::layout::{self, Entry, FLAGS_BYTES, Head, Line, Team};
use penstock_ggas::{Heap, Plan, TIMEOUT_DEFAULT};

use crate::pe::{self, Pe};

const SOURCE: &str = r#"
#define AT(field) ((ulong)&((__global ggas_heap_t *)0)->field)
#define IN(type, field) ((ulong)&((__global type *)0)->field)
__kernel void offsets(__global ggas_heap_t *heap)
{
    const ggas_t g = ggas_open(heap);
    __global ulong *out = ggas_ptr(g, 64, ggas_my_pe(g));
    const ulong all[] = {
        sizeof(ggas_heap_t), sizeof(ggas_entry_t), sizeof(ggas_meeting_t),
        AT(magic), AT(version), AT(me), AT(count), AT(looks), AT(stride), AT(bytes), AT(timeout_ms), AT(rounds_max),
        AT(abort), AT(clock_ms), AT(status), AT(fences), AT(paths), AT(tail), AT(done), AT(settled), AT(teams), AT(met), AT(ring),
        IN(ggas_meeting_t, arrived), IN(ggas_meeting_t, status), IN(ggas_meeting_t, epoch),
        IN(ggas_entry_t, sequence), IN(ggas_entry_t, kind), IN(ggas_entry_t, pe), IN(ggas_entry_t, target_at),
        IN(ggas_entry_t, value), IN(ggas_entry_t, length), IN(ggas_entry_t, signal_at), IN(ggas_entry_t, signal),
        GGAS_MAGIC, GGAS_VERSION, GGAS_FLAGS_BYTES, GGAS_RING_ENTRIES, GGAS_PES_MAX, GGAS_TEAM_SLOTS,
        GGAS_PATH_MAPPED, GGAS_PATH_PROXY, GGAS_KIND_PUT, GGAS_KIND_STORE_32, GGAS_KIND_STORE_64, GGAS_KIND_QUIET,
        GGAS_NO_SIGNAL, ggas_n_pes(g), ggas_bytes(g), (ulong)((__global uchar *)out - (__global uchar *)heap),
    };
    out[-1] = sizeof(all) / 8;
    for (uint at = 0; at < sizeof(all) / 8; at++) out[at] = all[at];
}
"#;

fn alone() -> Arc<Heap> {
    let plan = Plan {
        id: 1,
        members: vec![0],
        me: 0,
        bytes: 4096,
        timeout: TIMEOUT_DEFAULT,
        force_proxy: false,
    };
    let heap = Heap::create(plan).unwrap();
    heap.start().unwrap();
    heap
}

fn expected() -> Vec<u64> {
    macro_rules! at { ($of:ty: $($field:ident)*) => { [$(offset_of!($of, $field)),*] } }
    let mut all = vec![size_of::<Head>(), size_of::<Entry>(), size_of::<Team>()];
    all.extend(at!(Head: magic version me count looks stride bytes timeout_ms rounds_max));
    all.extend(at!(Head: abort clock_ms status fences paths tail done settled teams met ring));
    all.extend(at!(Team: arrived status epoch));
    all.extend(at!(Entry: sequence kind pe target_at value length signal_at signal));
    let mut all: Vec<u64> = all.into_iter().map(|offset| offset as u64).collect();
    all.extend([
        layout::MAGIC,
        layout::VERSION.into(),
        FLAGS_BYTES as u64,
        layout::RING_ENTRIES as u64,
    ]);
    all.extend([layout::PES_MAX.into(), layout::TEAM_SLOTS as u64]);
    all.extend([layout::path::MAPPED, layout::path::PROXY].map(u64::from));
    use layout::kind::{PUT, QUIET, STORE_32, STORE_64};
    all.extend([PUT, STORE_32, STORE_64, QUIET].map(u64::from));
    all.extend([layout::NO_SIGNAL, 1, 4096, (layout::HEAD_BYTES + FLAGS_BYTES + 64) as u64]);
    all
}

#[test]
fn kernels_and_host_agree_on_the_layout() {
    assert_eq!(size_of::<Line<u64>>(), layout::LINE_BYTES);
    let Some(device) = pe::device() else { return };
    let heap = alone();
    let pe = Pe::new(&heap, 0, &device, SOURCE, "");
    pe.run("offsets", &[]);
    let count = pe.word(56);
    let seen: Vec<u64> = (0..count).map(|at| pe.word(64 + 8 * at)).collect();
    assert_eq!(seen, expected());
}

#[test]
fn the_header_compiles_for_every_version_and_kind_of_atomics() {
    let Some(device) = pe::device() else { return };
    let heap = alone();
    // PoCL 3.1 has no 64-bit C11 atomics for OpenCL C 2.0, and OpenCL C 1.2 has no C11 atomics.
    for options in [
        "-cl-std=CL1.2",
        "-cl-std=CL2.0",
        "-cl-std=CL3.0",
        "-cl-std=CL1.2 -DGGAS_ATOMICS=1",
        "-cl-std=CL3.0 -DGGAS_ATOMICS=1",
        "-cl-std=CL3.0 -DGGAS_ATOMICS=2",
    ] {
        eprintln!("{options}");
        let pe = Pe::new(&heap, 0, &device, SOURCE, &format!("{options} -Werror"));
        pe.meet();
    }
}
