//! `vprintf`: records in the ring of the control block.

use super::{BASE, FREE, HEAD, OUT, machines};

const RING: u64 = FREE + (2 << 20);

fn control(size: u64) -> Vec<u8> {
    let mut control = vec![0; 256];
    control[128..136].copy_from_slice(&(BASE + RING).to_le_bytes());
    control[136..144].copy_from_slice(&size.to_le_bytes());
    control
}

fn text() -> String {
    let form: Vec<String> = b"%d of %lld: %f %s\n\0".iter().map(ToString::to_string).collect();
    format!(
        "{HEAD}.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
         .global .align 1 .b8 form[{}] = {{{}}};
         {}",
        form.len(),
        form.join(", "),
        super::kernel(
            ".local .align 8 .b8 depot[32]; .reg .b64 %sp, %spl; mov.u64 %spl, depot; cvta.local.u64 %sp, %spl;
             st.local.u32 [%spl], %g; st.local.u64 [%spl+8], 77777777777; st.local.f64 [%spl+16], 0d3FF8000000000000; mov.u64 %rd1, form; cvta.global.u64 %rd2, %rd1; st.local.u64 [%spl+24], %rd2;
             { .param .b64 p0; st.param.b64 [p0+0], %rd2; .param .b64 p1; st.param.b64 [p1+0], %sp; .param .b32 q; call.uni (q), vprintf, (p0, p1); ld.param.b32 %r2, [q+0]; }
             st.global.u32 [%to], %r2; ret;"
        )
    )
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().unwrap()
}

#[test]
fn each_thread_leaves_one_record_with_its_arguments() {
    for machine in machines() {
        let ready = machine.build(&text()).unwrap_or_else(|error| panic!("{error}"));
        assert!(machine.kernel(&ready, "k").uses_printf);
        machine.launch_with(
            &ready,
            "k",
            &[BASE + FREE, BASE + OUT, 0],
            [4, 1, 1],
            [32, 1, 1],
            0,
            &control(1 << 16),
        );
        let control = machine.control();
        let (head, lost) =
            (u32::from_le_bytes(number(&control, 144)), u32::from_le_bytes(number(&control, 148)));
        assert_eq!((head, lost), (128 * 48, 0), "{}", machine.name);
        let ring = machine.read(RING, u64::from(head));
        let mut seen: Vec<u32> = Vec::new();
        for record in ring.chunks(48) {
            assert_eq!(
                (u32::from_le_bytes(number(record, 0)), u32::from_le_bytes(number(record, 4))),
                (48, 32)
            );
            assert_eq!(u64::from_le_bytes(number(record, 24)), 77_777_777_777);
            assert_eq!(f64::from_le_bytes(number(record, 32)), 1.5);
            assert_eq!(
                number::<8>(record, 40),
                number::<8>(record, 8),
                "both are the address of the format"
            );
            seen.push(u32::from_le_bytes(number(record, 16)));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..128).collect::<Vec<u32>>(), "{}", machine.name);
    }
}

#[test]
fn records_that_do_not_fit_are_counted_as_lost() {
    for machine in machines() {
        let ready = machine.build(&text()).unwrap_or_else(|error| panic!("{error}"));
        machine.launch_with(
            &ready,
            "k",
            &[BASE + FREE, BASE + OUT, 0],
            [1, 1, 1],
            [32, 1, 1],
            0,
            &control(100),
        );
        let control = machine.control();
        assert_eq!(u32::from_le_bytes(number(&control, 144)), 96, "{}", machine.name);
        assert_eq!(u32::from_le_bytes(number(&control, 148)), 30, "{}", machine.name);
    }
}
