//! Surfaces, cubes and gathers, compared with PTX's manual.

use super::{BASE, FREE, HEAD, OUT, bytes_of, floats, machines, words};

const TEXELS: u64 = FREE + (1 << 20);
const DESCRIPTOR: u64 = FREE + (3 << 20);

/// Width, height and slices in 32-bit texels; rows have 32 bytes.
const SIZE: [i32; 3] = [6, 3, 2];
const PITCH: i32 = 32;

/// Returns a descriptor for texels of 32-bit unsigned integers or floats.
fn descriptor(kind: u32, size: [i32; 3], linear: bool) -> Vec<u8> {
    let [width, height, depth] = size.map(i32::cast_unsigned);
    let mut bytes =
        [(BASE + TEXELS).to_le_bytes(), u64::from(PITCH.cast_unsigned()).to_le_bytes()].concat();
    bytes.extend(bytes_of(
        &[width, height, kind, 1, 1, 1, u32::from(linear), 0, 0, 0, depth, 1],
        u32::to_le_bytes,
    ));
    bytes
}

/// Returns where an access of `bytes` goes, as an offset in bytes from the first texel; `None` if
/// it has no effect.
fn place(clamps: bool, [x, y, z]: [i32; 3], bytes: i32) -> Option<usize> {
    let [row, rows, slices] = [SIZE[0] * 4, SIZE[1], SIZE[2]];
    let [x, y, z] = if clamps {
        [x.clamp(0, row - bytes) / bytes * bytes, y.clamp(0, rows - 1), z.clamp(0, slices - 1)]
    } else {
        [x, y, z]
    };
    let inside = x >= 0 && x + bytes <= row && (0..rows).contains(&y) && (0..slices).contains(&z);
    inside.then(|| usize::try_from((z * rows + y) * PITCH + x).unwrap())
}

/// Bytes of an access, its suffixes and its registers.
const ACCESSES: [(i32, &str, &str); 7] = [
    (1, ".b8", "{%r10}"),
    (2, ".b16", "{%s0}"),
    (4, ".b32", "{%r10}"),
    (8, ".b64", "{%rd10}"),
    (4, ".v4.b8", "{%r10, %r11, %r12, %r13}"),
    (8, ".v2.b32", "{%r10, %r11}"),
    (16, ".v2.b64", "{%rd10, %rd11}"),
];

/// Coordinates of each shape, from the registers of x (in bytes), y and z.
const SHAPES: [(&str, &str, bool, bool); 5] = [
    ("1d", "{%r2}", false, false),
    ("2d", "{%r2, %r3}", true, false),
    ("3d", "{%r2, %r3, %r4, %r4}", true, true),
    ("a1d", "{%r4, %r2}", false, true),
    ("a2d", "{%r4, %r2, %r3, %r3}", true, true),
];

#[test]
fn surfaces_move_bytes_of_every_size_and_end_at_their_edges() {
    // One thread for each place, including one place beyond each edge. The first kernel reads the
    // surface, the second one writes it.
    let sample: Vec<u8> = (0..PITCH * SIZE[1] * SIZE[2]).map(|i| (i * 37 % 251) as u8).collect();
    for (bytes, width, registers) in ACCESSES {
        let columns = SIZE[0] * 4 / bytes + 2;
        let count = columns * (SIZE[1] + 2) * (SIZE[2] + 2);
        let at = |thread: i32| {
            let (column, rest) = (thread % columns, thread / columns);
            [(column - 1) * bytes, rest % (SIZE[1] + 2) - 1, rest / (SIZE[1] + 2) - 1]
        };
        let ty = width.rsplit('.').next().unwrap();
        let vector = if width.matches('.').count() > 1 { &width[..3] } else { "" };
        let store = if vector.is_empty() { registers.trim_matches(['{', '}']) } else { registers };
        // Every size in one shape, and every shape with one size, because each combination is a
        // program that a compiler has to build.
        let shapes = SHAPES.into_iter().filter(|shape| shape.0 == "3d" || width == ".b32");
        for (geometry, coordinates, has_y, has_z) in shapes {
            for mode in ["clamp", "zero"] {
                let kernel = |body: String| {
                    let text = super::kernel(&format!(
                        ".reg .b16 %s0; ld.global.u64 %rd2, [%out+-8]; setp.ge.u32 %p0, %g, %n; @%p0 bra DONE;
                         rem.u32 %r5, %g, {columns}; div.u32 %r6, %g, {columns}; sub.s32 %r2, %r5, 1; mul.lo.s32 %r2, %r2, {bytes};
                         rem.u32 %r3, %r6, {}; sub.s32 %r3, %r3, 1; div.u32 %r4, %r6, {}; sub.s32 %r4, %r4, 1;
                         mul.wide.u32 %rd1, %g, 16; add.s64 %rd3, %out, %rd1; add.s64 %rd4, %in, %rd1; {body} DONE: ret;",
                        SIZE[1] + 2,
                        SIZE[1] + 2,
                    ));
                    format!("{HEAD}{text}")
                };
                let load = kernel(format!(
                    "suld.b.{geometry}{vector}.{ty}.{mode} {registers}, [%rd2, {coordinates}]; st.global{vector}.{ty} [%rd3], {store};"
                ));
                let write = kernel(format!(
                    "ld.global{vector}.{ty} {store}, [%rd4]; sust.b.{geometry}{vector}.{ty}.{mode} [%rd2, {coordinates}], {registers};"
                ));
                let reached = |thread: i32| {
                    let [x, y, z] = at(thread);
                    place(
                        mode == "clamp",
                        [x, if has_y { y } else { 0 }, if has_z { z } else { 0 }],
                        bytes,
                    )
                };
                let size = usize::try_from(bytes).unwrap();
                for machine in machines() {
                    machine.write(OUT - 8, &(BASE + DESCRIPTOR).to_le_bytes());
                    machine.write(DESCRIPTOR, &descriptor(4, SIZE, false));
                    machine.write(TEXELS, &sample);
                    let launch = |text: &str| {
                        let ready = machine.build(text).unwrap_or_else(|error| panic!("{error}"));
                        let threads = u64::try_from(count).unwrap();
                        machine.launch(
                            &ready,
                            "k",
                            &[BASE + FREE, BASE + OUT, threads],
                            threads.div_ceil(64),
                            64,
                            0,
                        );
                    };
                    launch(&load);
                    let found = machine.read(OUT, u64::try_from(count).unwrap() * 16);
                    for thread in 0..count {
                        let expected = reached(thread)
                            .map_or(vec![0; size], |from| sample[from..from + size].to_vec());
                        let from = usize::try_from(thread).unwrap() * 16;
                        let what = (machine.name.as_str(), geometry, width, mode, at(thread));
                        assert_eq!(found[from..from + size], expected, "{what:?}");
                    }
                    if mode == "clamp" {
                        // Threads beyond the edge and those at the edge write the same bytes.
                        continue;
                    }
                    let values: Vec<u8> = (0..count * 16).map(|i| (i * 29 % 241) as u8).collect();
                    machine.write(FREE, &values);
                    launch(&write);
                    let mut expected = sample.clone();
                    // Shapes without y or z have one thread for each place only where these are 0.
                    for thread in 0..count {
                        let from = usize::try_from(thread).unwrap() * 16;
                        if let Some(to) = reached(thread) {
                            expected[to..to + size].copy_from_slice(&values[from..from + size]);
                        }
                    }
                    if has_y && has_z {
                        let found = machine.read(TEXELS, expected.len() as u64);
                        assert_eq!(
                            found, expected,
                            "{}: {geometry}, {width}, {mode}",
                            machine.name
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_direction_chooses_the_face_of_a_cube() {
    // Each thread has three floats.
    let text = format!(
        "{HEAD}{}",
        super::kernel(
            "ld.global.u64 %rd2, [%out+-8]; setp.ge.u32 %p0, %g, %n; @%p0 bra DONE; mul.wide.u32 %rd1, %g, 12; add.s64 %rd1, %in, %rd1;
             ld.global.f32 %f1, [%rd1]; ld.global.f32 %f2, [%rd1+4]; ld.global.f32 %f3, [%rd1+8]; mov.u32 %r2, 1;
             tex.cube.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%rd2, {%f1, %f2, %f3, %f3}];
             tex.acube.v4.f32.f32 {%f8, %f9, %f10, %f11}, [%rd2, {%r2, %f1, %f2, %f3}];
             fma.rn.f32 %f4, %f8, 0f42C80000, %f4; st.global.f32 [%to], %f4; DONE: ret;"
        )
    );
    let directions: Vec<[f32; 3]> = (0..7 * 7 * 7)
        .map(|i| [i % 7, i / 7 % 7, i / 49].map(|part| (part as f32 - 3.0) * 0.9))
        // If two axes are equally long, either face is correct.
        .filter(|d| {
            let mut long = d.map(f32::abs);
            long.sort_by(f32::total_cmp);
            long[2] > long[1] && d.iter().all(|part| *part != 0.0)
        })
        .collect();
    // The manual's table: the longest axis, then s and t of the face.
    let face = |[x, y, z]: [f32; 3]| {
        let long = x.abs().max(y.abs()).max(z.abs());
        let (face, s, t) = match () {
            () if x == long => (0, -z, -y),
            () if -x == long => (1, z, -y),
            () if y == long => (2, x, z),
            () if -y == long => (3, x, -z),
            () if z == long => (4, x, -y),
            () => (5, -x, -y),
        };
        let column = |part: f32| (((part / long + 1.0) / 2.0 * 4.0).floor() as i32).clamp(0, 3);
        (face * 4 + column(t)) * 4 + column(s)
    };
    let texels: Vec<f32> = (0..12 * 4)
        .flat_map(|row| (0..8).map(move |x| if x < 4 { (row * 4 + x) as f32 } else { -1.0 }))
        .collect();
    for machine in machines() {
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        machine.write(OUT - 8, &(BASE + DESCRIPTOR).to_le_bytes());
        machine.write(DESCRIPTOR, &descriptor(7, [4, 4, 12], false));
        machine.write(TEXELS, &bytes_of(&texels, f32::to_le_bytes));
        machine.write(FREE, &bytes_of(&directions.concat(), f32::to_le_bytes));
        let count = directions.len() as u64;
        machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, count], count.div_ceil(32), 32, 0);
        for (found, direction) in floats(&machine, OUT, count).iter().zip(&directions) {
            let texel = face(*direction) as f32;
            assert_eq!(*found, texel + 100.0 * (96.0 + texel), "{}: {direction:?}", machine.name);
        }
    }
}

#[test]
fn a_gather_is_the_four_texels_around_a_place() {
    let text = format!(
        "{HEAD}{}",
        super::kernel(
            "ld.global.u64 %rd2, [%out+-8]; cvt.rn.f32.u32 %f1, %t; mul.f32 %f1, %f1, 0f3F400000; mov.f32 %f2, 0f3F99999A; mov.u32 %r2, 1;
             tld4.r.2d.v4.u32.f32 {%r4, %r5, %r6, %r7}, [%rd2, {%f1, %f2}]; tld4.r.a2d.v4.u32.f32 {%r8, %r9, %r10, %r11}, [%rd2, {%r2, %f1, %f2, %f2}];
             tld4.g.2d.v4.u32.f32 {%r12, %r13, %r14, %r15}, [%rd2, {%f1, %f2}]; add.s32 %r8, %r8, %r12;
             mul.wide.u32 %rd1, %g, 32; add.s64 %rd1, %out, %rd1; st.global.v4.u32 [%rd1], {%r4, %r5, %r6, %r7};
             st.global.v4.u32 [%rd1+16], {%r8, %r9, %r10, %r11}; ret;"
        )
    );
    let texel = |x: i32, y: i32, z: i32| (z * 100 + y * 10 + x).cast_unsigned();
    let texels: Vec<u32> = (0..SIZE[1] * SIZE[2])
        .flat_map(|row| (0..8).map(move |x| texel(x, row % SIZE[1], row / SIZE[1])))
        .collect();
    for machine in machines() {
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        machine.write(OUT - 8, &(BASE + DESCRIPTOR).to_le_bytes());
        machine.write(DESCRIPTOR, &descriptor(4, SIZE, true));
        machine.write(TEXELS, &bytes_of(&texels, u32::to_le_bytes));
        machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, 0], 1, 10, 0);
        for (thread, found) in words(&machine, OUT, 80).chunks(8).enumerate() {
            let left = (thread as f32 * 0.75 - 0.5).floor() as i32;
            let [a, b] = [left, left + 1].map(|x| x.clamp(0, SIZE[0] - 1));
            // Rows 0 and 1: the lower one first, then counter-clockwise.
            let around = |z| [texel(a, 1, z), texel(b, 1, z), texel(b, 0, z), texel(a, 0, z)];
            assert_eq!(found, [around(0), around(1)].concat(), "{}: {thread}", machine.name);
        }
    }
}
