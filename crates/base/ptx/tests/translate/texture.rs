//! Textures against a scalar reference.

use super::{BASE, FREE, HEAD, OUT, bytes_of, floats, machines};

const TEXELS: u64 = FREE + (1 << 20);
const DESCRIPTOR: u64 = FREE + (3 << 20);
const WIDTH: i32 = 7;
const HEIGHT: i32 = 5;

#[derive(Clone, Copy)]
struct Sampler {
    mode: [u32; 2],
    linear: bool,
    normalized: bool,
}

fn texel(x: i32, y: i32) -> f32 {
    (x * 3 + y * y * 5) as f32 * 0.25 - 3.0
}

fn inside(mode: u32, i: i32, n: i32) -> Option<i32> {
    match mode {
        0 => Some(i.rem_euclid(n)),
        1 => Some(i.clamp(0, n - 1)),
        2 => {
            let turn = i.rem_euclid(2 * n);
            Some(if turn < n { turn } else { 2 * n - 1 - turn })
        }
        _ => (0..n).contains(&i).then_some(i),
    }
}

/// Returns the value that CUDA's guide defines for a two-dimensional texture.
fn reference(sampler: Sampler, x: f32, y: f32) -> f32 {
    let size = [WIDTH, HEIGHT];
    let mode = sampler
        .mode
        .map(|mode| if sampler.normalized || mode == 1 || mode == 3 { mode } else { 1 });
    let scaled: Vec<f32> = [x, y]
        .iter()
        .zip(size)
        .map(|(c, n)| if sampler.normalized { c * n as f32 } else { *c })
        .collect();
    let at = |i: i32, j: i32| match (inside(mode[0], i, WIDTH), inside(mode[1], j, HEIGHT)) {
        (Some(i), Some(j)) => texel(i, j),
        _ => 0.0,
    };
    if !sampler.linear {
        return at(scaled[0].floor() as i32, scaled[1].floor() as i32);
    }
    let (bx, by) = (scaled[0] - 0.5, scaled[1] - 0.5);
    let weight = |b: f32| ((b - b.floor()) * 256.0).round_ties_even() / 256.0;
    let (wx, wy, i, j) = (weight(bx), weight(by), bx.floor() as i32, by.floor() as i32);
    (1.0 - wx) * (1.0 - wy) * at(i, j)
        + wx * (1.0 - wy) * at(i + 1, j)
        + (1.0 - wx) * wy * at(i, j + 1)
        + wx * wy * at(i + 1, j + 1)
}

fn descriptor(kind: u32, channels: u32, pitch: u64, sampler: Sampler, read_mode: u32) -> Vec<u8> {
    let mut bytes = [(BASE + TEXELS).to_le_bytes(), pitch.to_le_bytes()].concat();
    let words = [
        WIDTH as u32,
        HEIGHT as u32,
        kind,
        channels,
        sampler.mode[0],
        sampler.mode[1],
        u32::from(sampler.linear),
        read_mode,
        u32::from(sampler.normalized),
        0,
        1,
        0,
    ];
    bytes.extend(bytes_of(&words, u32::to_le_bytes));
    bytes
}

#[test]
fn two_dimensions_are_sampled_in_every_mode() {
    // Two floats for each thread: the coordinates. Quarters are exact in the 8-bit weights.
    let points: Vec<(f32, f32)> = (-8..20)
        .flat_map(|i| (-6..14).map(move |j| (i as f32 * 0.5 + 0.25, j as f32 * 0.5 + 0.75)))
        .collect();
    let text = format!(
        "{HEAD}{}",
        super::kernel(
            "setp.ge.u32 %p0, %g, %n; @%p0 bra DONE; mul.wide.u32 %rd1, %g, 8; add.s64 %rd1, %in, %rd1; ld.global.v2.f32 {%f1, %f2}, [%rd1];
             ld.global.u64 %rd2, [%out+-8]; tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd2, {%f1, %f2}]; st.global.f32 [%to], %f3; DONE: ret;"
        )
    );
    for machine in machines() {
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        let texels: Vec<f32> = (0..HEIGHT).flat_map(|y| (0..8).map(move |x| texel(x, y))).collect();
        machine.write(TEXELS, &bytes_of(&texels, f32::to_le_bytes));
        machine.write(OUT - 8, &(BASE + DESCRIPTOR).to_le_bytes());
        for mode in 0..4 {
            for (linear, normalized) in [(false, false), (true, false), (false, true), (true, true)]
            {
                let sampler = Sampler { mode: [mode, (mode + 1) % 4], linear, normalized };
                let scale =
                    |value: f32, size: i32| if normalized { value / size as f32 } else { value };
                let input: Vec<f32> = points
                    .iter()
                    .flat_map(|(x, y)| [scale(*x, WIDTH), scale(*y, HEIGHT)])
                    .collect();
                machine.write(FREE, &bytes_of(&input, f32::to_le_bytes));
                machine.write(DESCRIPTOR, &descriptor(7, 1, 32, sampler, 0));
                let count = points.len() as u64;
                machine.launch(
                    &ready,
                    "k",
                    &[BASE + FREE, BASE + OUT, count],
                    count.div_ceil(64),
                    64,
                    0,
                );
                for (found, place) in floats(&machine, OUT, count).iter().zip(input.chunks(2)) {
                    let expected = reference(sampler, place[0], place[1]);
                    // Normalized coordinates are not exact: a weight may be one step off.
                    let near = if normalized && linear { 0.25 } else { 1e-4 };
                    assert!(
                        (found - expected).abs() <= near,
                        "{}: {:?} {linear} {normalized}: {place:?}: {found} for {expected}",
                        machine.name,
                        sampler.mode
                    );
                }
            }
        }
    }
}

#[test]
fn bytes_are_fetched_as_integers_and_as_fractions() {
    let texels: Vec<u8> = (0..4 * 8 * 5).map(|i| (i * 37 % 256) as u8).collect();
    let text = format!(
        "{HEAD}{}",
        super::kernel(
            "ld.global.u64 %rd2, [%out+-8]; and.b32 %r2, %t, 3; shr.u32 %r3, %t, 2; tex.2d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%rd2, {%r2, %r3}];
             mul.wide.u32 %rd1, %g, 16; add.s64 %rd1, %out, %rd1; st.global.v4.u32 [%rd1], {%r4, %r5, %r6, %r7}; ret;"
        )
    );
    let sampler = Sampler { mode: [1, 1], linear: false, normalized: false };
    for machine in machines() {
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        machine.write(TEXELS, &texels);
        machine.write(OUT - 8, &(BASE + DESCRIPTOR).to_le_bytes());
        for read_mode in 0..2 {
            machine.write(DESCRIPTOR, &descriptor(0, 4, 32, sampler, read_mode));
            machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, 0], 1, 16, 0);
            for (index, bits) in super::words(&machine, OUT, 64).into_iter().enumerate() {
                let (thread, channel) = (index / 4, index % 4);
                let byte = texels[(thread / 4) * 32 + (thread % 4) * 4 + channel];
                let expected = if read_mode == 0 {
                    u32::from(byte)
                } else {
                    (f32::from(byte) / 255.0).to_bits()
                };
                assert_eq!(bits, expected, "{}: {thread}, {channel}", machine.name);
            }
        }
    }
}

#[test]
fn coordinates_that_are_no_numbers_and_textures_without_texels_give_something() {
    let text = format!(
        "{HEAD}{}",
        super::kernel(
            "ld.global.u64 %rd2, [%out+-8]; mul.wide.u32 %rd1, %g, 4; add.s64 %rd1, %in, %rd1; ld.global.f32 %f1, [%rd1];
             tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd2, {%f1, %f1}]; st.global.f32 [%to], %f3; ret;"
        )
    );
    let input = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30];
    for machine in machines() {
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        let texels: Vec<f32> = (0..HEIGHT).flat_map(|y| (0..8).map(move |x| texel(x, y))).collect();
        machine.write(TEXELS, &bytes_of(&texels, f32::to_le_bytes));
        machine.write(OUT - 8, &(BASE + DESCRIPTOR).to_le_bytes());
        machine.write(FREE, &bytes_of(&input, f32::to_le_bytes));
        let clamped =
            [texel(0, 0), texel(WIDTH - 1, HEIGHT - 1), texel(0, 0), texel(WIDTH - 1, HEIGHT - 1)];
        for mode in 0..3 {
            for normalized in [false, true] {
                let sampler = Sampler { mode: [mode; 2], linear: false, normalized };
                let mut bytes = descriptor(7, 1, 32, sampler, 0);
                machine.write(DESCRIPTOR, &bytes);
                machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, 0], 1, 4, 0);
                let found = floats(&machine, OUT, 4);
                assert_eq!(found[0], texel(0, 0), "{}: NaN, {mode}, {normalized}", machine.name);
                if mode == 1 || !normalized {
                    assert_eq!(found, clamped, "{}: {mode}, {normalized}", machine.name);
                }
                // A texture without texels: its width is 0 and its address is null.
                bytes[..8].fill(0);
                bytes[16..20].fill(0);
                machine.write(DESCRIPTOR, &bytes);
                machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, 0], 1, 4, 0);
                assert_eq!(
                    floats(&machine, OUT, 4),
                    [0.0; 4],
                    "{}: {mode}, {normalized}",
                    machine.name
                );
            }
        }
    }
}

#[test]
fn a_layer_below_the_first_is_the_first() {
    let text = format!(
        "{HEAD}{}",
        super::kernel(
            "ld.global.u64 %rd2, [%out+-8]; sub.s32 %r2, %t, 2; mov.f32 %f1, 0f00000000;
             tex.a2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd2, {%r2, %f1, %f1, %f1}]; st.global.f32 [%to], %f3; ret;"
        )
    );
    let sampler = Sampler { mode: [1; 2], linear: false, normalized: false };
    for machine in machines() {
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        let texels: Vec<f32> =
            (0..3 * HEIGHT * 8).map(|index| (index / (HEIGHT * 8)) as f32 + 10.0).collect();
        machine.write(TEXELS, &bytes_of(&texels, f32::to_le_bytes));
        machine.write(OUT - 8, &(BASE + DESCRIPTOR).to_le_bytes());
        let mut bytes = descriptor(7, 1, 32, sampler, 0);
        bytes[56..60].copy_from_slice(&3_u32.to_le_bytes());
        machine.write(DESCRIPTOR, &bytes);
        machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, 0], 1, 7, 0);
        assert_eq!(
            floats(&machine, OUT, 7),
            [10.0, 10.0, 10.0, 11.0, 12.0, 12.0, 12.0],
            "{}",
            machine.name
        );
    }
}

#[test]
fn the_third_axis_has_a_mode_of_its_own() {
    let text = format!(
        "{HEAD}{}",
        super::kernel(
            "ld.global.u64 %rd2, [%out+-8]; mov.f32 %f1, 0f3DCCCCCD; cvt.rn.f32.u32 %f2, %t; mul.f32 %f2, %f2, 0f3E800000;
             tex.3d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd2, {%f1, %f1, %f2, %f2}]; st.global.f32 [%to], %f3; ret;"
        )
    );
    // The first two axes clamp, the third one repeats.
    let sampler = Sampler { mode: [1; 2], linear: false, normalized: true };
    for machine in machines() {
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        let texels: Vec<f32> =
            (0..2 * HEIGHT * 8).map(|index| (index / (HEIGHT * 8)) as f32 + 10.0).collect();
        machine.write(TEXELS, &bytes_of(&texels, f32::to_le_bytes));
        machine.write(OUT - 8, &(BASE + DESCRIPTOR).to_le_bytes());
        let mut bytes = descriptor(7, 1, 32, sampler, 0);
        bytes[56..60].copy_from_slice(&2_u32.to_le_bytes());
        bytes[60..64].fill(0);
        machine.write(DESCRIPTOR, &bytes);
        machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, 0], 1, 8, 0);
        assert_eq!(
            floats(&machine, OUT, 8),
            [10.0, 10.0, 11.0, 11.0, 10.0, 10.0, 11.0, 11.0],
            "{}",
            machine.name
        );
    }
}
