//! Tests of images on a real driver.

mod common;
use common::*;
use penstock_cl_sys as cl;
use penstock_device::{Arg, Context, Event, Mem, Sampler, Status, Want, pixel_bytes};
use penstock_trial::{Need, skip};
use penstock_wire::describe::ImageDescription;

const TYPES: [u32; 5] = [
    cl::CL_MEM_OBJECT_IMAGE1D,
    cl::CL_MEM_OBJECT_IMAGE1D_ARRAY,
    cl::CL_MEM_OBJECT_IMAGE2D,
    cl::CL_MEM_OBJECT_IMAGE2D_ARRAY,
    cl::CL_MEM_OBJECT_IMAGE3D,
];

fn description(
    image_type: u32,
    format: (u32, u32),
    [width, height, depth]: [u64; 3],
) -> ImageDescription {
    let array_size = if image_type == cl::CL_MEM_OBJECT_IMAGE1D_ARRAY { height } else { depth };
    ImageDescription {
        channel_order: format.0,
        channel_type: format.1,
        image_type,
        width,
        height,
        depth,
        array_size,
        row_pitch: 0,
        slice_pitch: 0,
        mip_levels: 0,
        samples: 0,
    }
}

const RGBA8: (u32, u32) = (cl::CL_RGBA, cl::CL_UNSIGNED_INT8);

fn with_images() -> Option<(Context, penstock_device::Queue)> {
    let (context, queue) = first(0)?;
    if context
        .image_formats(READ_WRITE, cl::CL_MEM_OBJECT_IMAGE2D)
        .is_ok_and(|formats| !formats.is_empty())
    {
        return Some((context, queue));
    }
    skip(Need::Ability, "the device has no images");
    None
}

#[test]
fn every_type_and_format_keeps_its_content() {
    let Some((context, queue)) = with_images() else { return };
    let mut tried = 0;
    for image_type in TYPES {
        for format in context.image_formats(READ_WRITE, image_type).unwrap_or_default() {
            let made =
                Mem::image(&context, READ_WRITE, &description(image_type, format, [5, 3, 2]), None);
            let mem = match made {
                Ok(mem) => mem,
                Err(status) => panic!("type {image_type:x} format {format:x?}: {status}"),
            };
            let whole = mem.whole_region().unwrap();
            let size = usize::try_from(mem.size()).unwrap();
            let pixel = mem.region_bytes([0; 3], [1, 1, 1]).unwrap();
            assert_eq!(pixel_bytes(format.0, format.1).unwrap_or(pixel), pixel, "{format:x?}");
            let read = |origin, region| {
                queue.read_image(&mem, origin, region, &[]).unwrap().wait().unwrap().to_vec()
            };
            assert_eq!(
                read([0; 3], whole),
                vec![0; size],
                "type {image_type:x} format {format:x?}"
            );
            let content: Vec<u8> =
                (0..size).map(|index| (index * 7 % 255).to_le_bytes()[0]).collect();
            queue.write_image(&mem, [0; 3], whole, staged(&content), &[], Want::Nothing).unwrap();
            assert_eq!(read([0; 3], whole), content, "type {image_type:x} format {format:x?}");
            // Part of the last row, from the second column.
            let (origin, region) = ([1, whole[1] - 1, 0], [2, 1, 1]);
            let place = usize::try_from((whole[1] - 1) * whole[0] * pixel + pixel).unwrap();
            let part = &content[place..place + usize::try_from(2 * pixel).unwrap()];
            assert_eq!(read(origin, region), part, "type {image_type:x} format {format:x?}");
            tried += 1;
        }
    }
    eprintln!("{tried} combinations");
}

#[test]
fn fills_and_copies() {
    let Some((context, queue)) = with_images() else { return };
    let shape = description(cl::CL_MEM_OBJECT_IMAGE2D, RGBA8, [8, 4, 1]);
    let [a, b] = [(); 2].map(|()| Mem::image(&context, READ_WRITE, &shape, None).unwrap());
    let mut colour = [0; 16];
    for (place, value) in [1_u8, 2, 3, 4].into_iter().enumerate() {
        colour[place * 4] = value;
    }
    queue.fill_image(&a, &colour, [2, 1, 0], [4, 2, 1], &[], Want::Nothing).unwrap();
    queue.copy_image(&a, [2, 1, 0], &b, [0, 0, 0], [4, 2, 1], &[], Want::Nothing).unwrap();
    let buffer = Mem::buffer(&context, READ_WRITE, 256).unwrap();
    queue.copy_image_to_buffer(&b, [0; 3], [4, 2, 1], &buffer, 16, &[], Want::Nothing).unwrap();
    let content = read_all(&queue, &buffer);
    assert_eq!(content[16..48], [1, 2, 3, 4].repeat(8));
    assert!(content[48..].iter().all(|&byte| byte == 0));
    queue.copy_buffer_to_image(&buffer, 16, &a, [0; 3], [8, 1, 1], &[], Want::Nothing).unwrap();
    let row = queue.read_image(&a, [0; 3], [8, 1, 1], &[]).unwrap().wait().unwrap();
    assert_eq!(row[..], [1, 2, 3, 4].repeat(8));
    // A buffer that is too small, and an image of another format.
    assert!(
        queue
            .copy_image_to_buffer(&b, [0; 3], [8, 4, 1], &buffer, 129, &[], Want::Nothing)
            .is_err()
    );
    assert!(
        queue
            .copy_buffer_to_image(&buffer, 250, &a, [0; 3], [8, 1, 1], &[], Want::Nothing)
            .is_err()
    );
    let float = description(cl::CL_MEM_OBJECT_IMAGE2D, (cl::CL_RGBA, cl::CL_FLOAT), [8, 4, 1]);
    let float = Mem::image(&context, READ_WRITE, &float, None).unwrap();
    assert!(queue.copy_image(&a, [0; 3], &float, [0; 3], [1, 1, 1], &[], Want::Nothing).is_err());
}

#[test]
fn hostile_regions_are_refused() {
    let Some((context, queue)) = with_images() else { return };
    let big = u64::MAX;
    for (width, height) in [(0, 1), (big, 1), (1 << 32, 1 << 32), (1 << 31, 1 << 31), (1 << 40, 1)]
    {
        let shape = description(cl::CL_MEM_OBJECT_IMAGE2D, RGBA8, [width, height, 1]);
        assert!(Mem::image(&context, READ_WRITE, &shape, None).is_err(), "{width} x {height}");
    }
    let shape = description(cl::CL_MEM_OBJECT_IMAGE2D, RGBA8, [8, 4, 1]);
    let mem = Mem::image(&context, READ_WRITE, &shape, None).unwrap();
    for (origin, region) in [
        ([0, 0, 0], [9, 1, 1]),
        ([0, 0, 0], [8, 5, 1]),
        ([0, 0, 1], [1, 1, 1]),
        ([0, 0, 0], [1, 1, 2]),
        ([big, 0, 0], [1, 1, 1]),
        ([1, 0, 0], [big, 1, 1]),
        ([0, 0, 0], [0, 1, 1]),
    ] {
        assert!(queue.read_image(&mem, origin, region, &[]).is_err());
        assert!(queue.fill_image(&mem, &[0; 16], origin, region, &[], Want::Nothing).is_err());
        assert!(queue.copy_image(&mem, origin, &mem, [0; 3], region, &[], Want::Nothing).is_err());
        assert!(mem.init_image(origin, region, &[0; 4]).is_err());
    }
    assert!(
        queue.write_image(&mem, [0; 3], [8, 4, 1], staged(&[0; 127]), &[], Want::Nothing).is_err()
    );
    assert!(mem.init_image([0; 3], [8, 4, 1], &[0; 129]).is_err());
    assert!(
        queue.write(&mem, 0, staged(&[0; 4]), &[], Want::Nothing).is_err(),
        "an image is no buffer"
    );
    let buffer = Mem::buffer(&context, READ_WRITE, 64).unwrap();
    assert!(queue.read_image(&buffer, [0; 3], [1, 1, 1], &[]).is_err(), "a buffer is no image");
    for (width, row_pitch) in [(17, 0), (big, 0), (8, big), (8, 16)] {
        let mut shape = description(cl::CL_MEM_OBJECT_IMAGE1D_BUFFER, RGBA8, [width, 1, 1]);
        assert!(width == 8 || Mem::image(&context, READ_WRITE, &shape, Some(&buffer)).is_err());
        shape.image_type = cl::CL_MEM_OBJECT_IMAGE2D;
        shape.height = 4;
        shape.row_pitch = row_pitch;
        assert!(Mem::image(&context, READ_WRITE, &shape, Some(&buffer)).is_err());
    }
}

fn nearest(context: &Context, addressing: u32) -> Sampler {
    let properties = [
        (cl::CL_SAMPLER_NORMALIZED_COORDS, 0),
        (cl::CL_SAMPLER_ADDRESSING_MODE, addressing),
        (cl::CL_SAMPLER_FILTER_MODE, cl::CL_FILTER_NEAREST),
    ];
    Sampler::new(context, &properties.map(|(name, value)| [name, value].map(u64::from)).concat())
        .unwrap()
}

/// "After the sampler reference count becomes zero and commands queued for execution on a
/// command-queue(s) that use sampler have finished, the sampler object is deleted."
#[test]
fn what_a_launch_uses_may_be_released_before_it_runs() {
    let Some((context, queue)) = with_images() else { return };
    if queue.device().must_not_wait() {
        return;
    }
    let source = "kernel void k(read_only image2d_t a, sampler_t s, write_only image2d_t b) {
        int2 at = (int2)(get_global_id(0), 0);
        write_imageui(b, at, read_imageui(a, s, at - (int2)(9, 0)) + (uint4)(1)); }";
    let shape = description(cl::CL_MEM_OBJECT_IMAGE2D, RGBA8, [8, 1, 1]);
    let b = Mem::image(&context, READ_WRITE, &shape, None).unwrap();
    for (addressing, expected) in [(cl::CL_ADDRESS_CLAMP, 1), (cl::CL_ADDRESS_CLAMP_TO_EDGE, 42)] {
        let gate = Event::user(&context).unwrap();
        {
            let kernel = kernel(&context, source, "k");
            let a = Mem::image(&context, READ_WRITE, &shape, None).unwrap();
            a.init_image([0; 3], [8, 1, 1], &[41; 32]).unwrap();
            kernel.set(0, Arg::Mem(Some(&a))).unwrap();
            kernel.set(1, Arg::Sampler(&nearest(&context, addressing))).unwrap();
            kernel.set(2, Arg::Mem(Some(&b))).unwrap();
            queue.launch(&kernel, &range(8), &[&gate], Want::Nothing).unwrap();
        }
        queue.flush().unwrap();
        // They take the place of what was released too early.
        let others: Vec<Sampler> = [cl::CL_ADDRESS_CLAMP, cl::CL_ADDRESS_CLAMP_TO_EDGE]
            .into_iter()
            .filter(|other| *other != addressing)
            .flat_map(|other| (0..64).map(move |_| other))
            .map(|other| nearest(&context, other))
            .collect();
        gate.complete(Status::OK).unwrap();
        let result = queue.read_image(&b, [0; 3], [8, 1, 1], &[]).unwrap().wait().unwrap();
        assert_eq!(result[..], [expected; 32], "addressing mode {addressing:#x}");
        drop(others);
    }
}

#[test]
fn kernels_read_and_write_images() {
    let Some((context, queue)) = with_images() else { return };
    let source = "kernel void k(read_only image2d_t a, sampler_t s, write_only image2d_t b) {
        int2 at = (int2)(get_global_id(0), 0); write_imageui(b, at, read_imageui(a, s, at) + (uint4)(1)); }";
    let kernel = kernel(&context, source, "k");
    let shape = description(cl::CL_MEM_OBJECT_IMAGE2D, RGBA8, [8, 1, 1]);
    let [a, b] = [(); 2].map(|()| Mem::image(&context, READ_WRITE, &shape, None).unwrap());
    a.init_image([0; 3], [8, 1, 1], &[41; 32]).unwrap();
    let sampler = nearest(&context, cl::CL_ADDRESS_CLAMP);
    assert!(Sampler::new(&context, &[0, 0]).is_err());
    assert!(Sampler::new(&context, &[1]).is_err());
    kernel.set(0, Arg::Mem(Some(&a))).unwrap();
    kernel.set(1, Arg::Sampler(&sampler)).unwrap();
    kernel.set(2, Arg::Mem(Some(&b))).unwrap();
    queue.launch(&kernel, &range(8), &[], Want::Nothing).unwrap();
    let result = queue.read_image(&b, [0; 3], [8, 1, 1], &[]).unwrap().wait().unwrap();
    assert_eq!(result[..], [42; 32]);
}

#[test]
fn a_buffer_seen_as_an_image() {
    let Some((context, queue)) = with_images() else { return };
    let buffer = Mem::buffer(&context, READ_WRITE, 64).unwrap();
    buffer.init(0, &[9; 64]).unwrap();
    let shape = description(cl::CL_MEM_OBJECT_IMAGE1D_BUFFER, RGBA8, [16, 1, 1]);
    match Mem::image(&context, READ_WRITE, &shape, Some(&buffer)) {
        Ok(image) => {
            assert_eq!(
                queue.read_image(&image, [0; 3], [16, 1, 1], &[]).unwrap().wait().unwrap()[..],
                [9; 64]
            );
        }
        Err(status) => {
            skip(Need::Ability, format_args!("the driver makes no image from a buffer: {status}"));
        }
    }
}
