//! Whole translated kernels, on every OpenCL device of this machine: control flow, barriers, warps,
//! memory, textures, printf, faults.

#![expect(clippy::cast_possible_truncation, reason = "references cut values as the kernels do")]

#[path = "../conformance/machine.rs"]
mod machine;

mod calls;
mod clocks;
mod failing;
mod faults;
mod flow;
mod known;
mod malloc;
mod memory;
mod params;
mod printf;
mod surface;
mod texture;
mod votes;
mod warps;

use machine::{BASE, FREE, Machine, machines};

/// Offset of a test's results in device memory.
const OUT: u64 = FREE + (4 << 20);

/// First lines of every text.
const HEAD: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";

fn bytes_of<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| bytes(*value)).collect()
}

fn words(machine: &Machine, offset: u64, count: u64) -> Vec<u32> {
    machine
        .read(offset, count * 4)
        .as_chunks()
        .0
        .iter()
        .map(|word| u32::from_le_bytes(*word))
        .collect()
}

fn floats(machine: &Machine, offset: u64, count: u64) -> Vec<f32> {
    words(machine, offset, count).into_iter().map(f32::from_bits).collect()
}

/// Runs the kernel `k(in, out, n)` on every machine, and passes the words at `out` to `check`.
fn run(
    body: &str,
    input: &[u32],
    n: u64,
    blocks: u64,
    threads: u64,
    results: u64,
    check: impl Fn(&Machine, &[u32]),
) {
    let text = format!("{HEAD}{}", kernel(body));
    for machine in machines() {
        let ready =
            machine.build(&text).unwrap_or_else(|error| panic!("{}: {error}", machine.name));
        if !input.is_empty() {
            machine.write(FREE, &bytes_of(input, u32::to_le_bytes));
        }
        machine.write(OUT, &vec![0; usize::try_from(results * 4).unwrap()]);
        machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, n], blocks, threads, 0);
        check(&machine, &words(&machine, OUT, results));
    }
}

/// Returns a kernel with many registers. `%in` and `%out` are the parameters' global addresses,
/// `%n` is the third parameter, `%t` the thread in the block, `%g` the thread in the grid, and
/// `%at` and `%to` are the addresses of the words for `%g`.
fn kernel(body: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c)
{{
    .reg .pred %p<40>; .reg .b32 %r<100>; .reg .b64 %rd<60>; .reg .f32 %f<40>; .reg .f64 %d<20>;
    .reg .b64 %in, %out, %at, %to, %off; .reg .b32 %n, %t, %g;
    ld.param.u64 %in, [a]; ld.param.u64 %out, [b]; ld.param.u32 %n, [c];
    cvta.to.global.u64 %in, %in; cvta.to.global.u64 %out, %out;
    mov.u32 %t, %tid.x; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mad.lo.s32 %g, %r0, %r1, %t;
    mul.wide.u32 %off, %g, 4; add.s64 %at, %in, %off; add.s64 %to, %out, %off;
{body}
}}
"
    )
}
