//! Parameters of kernels: as vectors, at computed offsets, and through generic addresses.

use super::{BASE, HEAD, OUT, machines, run, words};

#[test]
fn generic_addresses_lead_to_parameters() {
    // The third parameter, also through an address that may be in shared or global memory.
    run(
        ".shared .align 4 .b8 s[64]; mov.b64 %rd1, c; cvta.param.u64 %rd2, %rd1; ld.u32 %r2, [%rd2]; ld.u8 %r3, [%rd2+1];
         mov.u64 %rd3, s; cvta.shared.u64 %rd3, %rd3; st.shared.u32 [s], 77; bar.sync 0;
         and.b32 %r4, %t, 1; setp.eq.u32 %p0, %r4, 0; selp.b64 %rd4, %rd2, %rd3, %p0; ld.u32 %r5, [%rd4];
         setp.eq.u32 %p1, %t, 2; selp.b64 %rd4, %in, %rd4, %p1; ld.u32 %r6, [%rd4];
         isspacep.param %p2, %rd2; selp.u32 %r7, 100, 0, %p2; add.u32 %r6, %r6, %r7; cvta.to.param.u64 %rd5, %rd2; ld.param.u32 %r8, [%rd5];
         mul.wide.u32 %rd6, %g, 16; add.s64 %rd6, %out, %rd6; add.u32 %r2, %r2, %r8; st.global.v4.u32 [%rd6], {%r2, %r3, %r5, %r6}; ret;",
        &[5],
        0x1234,
        1,
        4,
        16,
        |machine, found| {
            let n = 0x1234;
            let expected = [[2 * n, 0x12, n, n + 100], [2 * n, 0x12, 77, 177], [2 * n, 0x12, n, 105], [2 * n, 0x12, 77, 177]];
            assert_eq!(found, expected.as_flattened(), "{}", machine.name);
        },
    );
}

#[test]
fn a_parameter_cannot_be_written() {
    run(
        "mov.b64 %rd1, c; cvta.param.u64 %rd2, %rd1; st.u32 [%rd2], 9; ld.u32 %r2, [%rd2]; st.global.u32 [%to], %r2; ret;",
        &[],
        5,
        1,
        2,
        2,
        |machine, found| {
            assert_eq!(found, [5, 5], "{}", machine.name);
            assert_eq!(machine.fault().0, 1, "{}: an illegal address", machine.name);
        },
    );
}

#[test]
fn vectors_are_read_from_structures_at_every_place() {
    let text = format!(
        "{HEAD}.visible .entry k(.param .b64 skip, .param .align 16 .b8 s[48], .param .u64 out)
{{
    .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<8>; .reg .b16 %h<5>;
    ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 64; add.u64 %rd1, %rd1, %rd2;
    ld.param.v4.f32 {{%f1, %f2, %f3, %f4}}, [s+16]; st.global.v4.f32 [%rd1], {{%f4, %f3, %f2, %f1}};
    ld.param.v2.u64 {{%rd3, %rd4}}, [s+32]; st.global.v2.u64 [%rd1+16], {{%rd4, %rd3}};
    ld.param.v4.u16 {{%h1, %h2, %h3, %h4}}, [s+8]; st.global.v4.u16 [%rd1+32], {{%h4, %h3, %h2, %h1}};
    mov.b64 %rd5, s; and.b32 %r2, %r1, 1; mul.wide.u32 %rd6, %r2, 16; add.u64 %rd5, %rd5, %rd6; ld.param.v4.u32 {{%r3, %r4, %r5, %r6}}, [%rd5+16];
    st.global.v4.u32 [%rd1+48], {{%r3, %r4, %r5, %r6}};
    ret;
}}
"
    );
    for machine in machines() {
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        let word = |index: u64| (index * 2 + 1) << 32 | (index * 2);
        let structure: Vec<u64> = (0..6).map(word).collect();
        // The structure starts at 16 because of its alignment.
        let params = [&[0, 0], &structure[..], &[BASE + OUT]].concat();
        machine.launch(&ready, "k", &params, 1, 2, 0);
        let found = words(&machine, OUT, 32);
        for (thread, row) in found.chunks(16).enumerate() {
            let last = if thread == 0 { [4, 5, 6, 7] } else { [8, 9, 10, 11] };
            assert_eq!(row[..8], [7, 6, 5, 4, 10, 11, 8, 9], "{}", machine.name);
            assert_eq!(row[8..10], [3 << 16, 2 << 16], "{}", machine.name);
            assert_eq!(row[12..], last, "{}", machine.name);
        }
    }
}
