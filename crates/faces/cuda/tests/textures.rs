//! Texture objects over arrays and over linear memory.

mod common;

use std::ptr::null_mut;

use common::*;
use penstock_cuda::api::array::*;
use penstock_cuda::api::row::*;
use penstock_cuda::api::texture::*;
use penstock_cuda_sys::driver::*;

/// Kernel `sample(u64 texture, f32 *result, f32 x, f32 y)`. Each parameter has 8 bytes.
const SAMPLE: &str = r"
.version 7.5
.target sm_75
.address_size 64

.visible .entry sample(.param .u64 texture, .param .u64 result, .param .b64 x, .param .b64 y)
{
    .reg .f32 %f<7>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [texture];
    ld.param.u64 %rd2, [result];
    ld.param.f32 %f1, [x];
    ld.param.f32 %f2, [y];
    cvta.to.global.u64 %rd3, %rd2;
    tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd1, {%f1, %f2}];
    st.global.f32 [%rd3], %f3;
    ret;
}
";

fn bits(value: f32) -> u64 {
    value.to_bits().into()
}

/// Makes an array of 3 by 2 floats: 0 1 2, 10 11 12.
fn array() -> CUarray {
    array_of([0.0, 1.0, 2.0, 10.0, 11.0, 12.0])
}

fn array_of(host: [f32; 6]) -> CUarray {
    let descriptor =
        CUDA_ARRAY_DESCRIPTOR { Width: 3, Height: 2, Format: CU_AD_FORMAT_FLOAT, NumChannels: 1 };
    let mut array = null_mut();
    // SAFETY: the result and the description are local variables.
    ok(unsafe { cuArrayCreate_v2(&raw mut array, &raw const descriptor) });
    // SAFETY: all fields are numbers and addresses, for which zero is valid.
    let mut copy: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host.as_ptr().cast();
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    (copy.WidthInBytes, copy.Height) = (12, 2);
    // SAFETY: the host memory has two rows of 12 bytes.
    ok(unsafe { cuMemcpy2D_v2(&raw const copy) });
    array
}

#[test]
fn points_lines_and_edges_are_sampled_as_the_object_says() {
    let _context = TestContext::new();
    let sample = function(load(SAMPLE), "sample");
    let result = allocate(4);
    let array = array();
    let resource = CUDA_RESOURCE_DESC {
        resType: CU_RESOURCE_TYPE_ARRAY,
        res: CUDA_RESOURCE { handle: array.addr() as u64, ..Default::default() },
        flags: 0,
    };
    let at = |texture: CUtexObject, x: f32, y: f32| {
        ok(launch(sample, 1, 1, null_mut(), &[texture, result, bits(x), bits(y)]));
        download::<f32>(result, 1)[0]
    };
    let make = |modes: [u32; 3], filter, flags| {
        let description = CUDA_TEXTURE_DESC {
            addressMode: modes,
            filterMode: filter,
            flags,
            ..Default::default()
        };
        let mut object = 0;
        // SAFETY: the result and the descriptions are local variables.
        ok(unsafe {
            cuTexObjectCreate(
                &raw mut object,
                &raw const resource,
                &raw const description,
                std::ptr::null(),
            )
        });
        object
    };
    let points = make([1, 1, 1], 0, 0);
    assert_eq!(at(points, 1.5, 0.5), 1.0);
    assert_eq!(at(points, 2.9, 1.9), 12.0);
    // Coordinates outside of the array are clamped.
    assert_eq!(at(points, -5.0, 9.0), 10.0);
    let lines = make([1, 1, 1], 1, 0);
    assert_eq!(at(lines, 1.0, 1.0), 5.5);
    assert_eq!(at(lines, 0.5, 0.5), 0.0);
    // A border of zeros, and normalised coordinates that wrap.
    assert_eq!(at(make([3, 3, 3], 0, 0), 3.5, 0.5), 0.0);
    assert_eq!(at(make([0, 0, 0], 0, CU_TRSF_NORMALIZED_COORDINATES), 1.5, 0.25), 1.0);
    let mut got = CUDA_RESOURCE_DESC::default();
    // SAFETY: the result goes to a local variable.
    unsafe {
        ok(cuTexObjectGetResourceDesc(&raw mut got, points));
        assert_eq!(got, resource);
        ok(cuTexObjectDestroy(points));
        assert_eq!(cuTexObjectDestroy(points), CUDA_ERROR_INVALID_VALUE);
    }
}

#[test]
fn a_view_says_how_pixels_are_read() {
    let _context = TestContext::new();
    let sample = function(load(SAMPLE), "sample");
    let result = allocate(4);
    // About 11, with a first byte of 51.
    let pixel = f32::from_bits(0x4130_0033);
    let array = array_of([0.0, 0.0, 0.0, 0.0, pixel, 0.0]);
    let resource = CUDA_RESOURCE_DESC {
        resType: CU_RESOURCE_TYPE_ARRAY,
        res: CUDA_RESOURCE { handle: array.addr() as u64, ..Default::default() },
        flags: 0,
    };
    let clamp = CUDA_TEXTURE_DESC { addressMode: [1; 3], ..Default::default() };
    let make = |resource: &CUDA_RESOURCE_DESC, view: CUDA_RESOURCE_VIEW_DESC| {
        let mut object = 0;
        // SAFETY: the result and the descriptions are local variables.
        let code = unsafe {
            let view = &raw const view;
            cuTexObjectCreate(&raw mut object, resource, &raw const clamp, view)
        };
        (code, object)
    };
    const BYTES: u32 = 3;
    const FLOATS: u32 = 22;
    let whole =
        |format| CUDA_RESOURCE_VIEW_DESC { format, width: 3, height: 2, ..Default::default() };
    // As floats, and as four bytes each in [0, 1].
    for (format, expected) in [(0, pixel), (FLOATS, pixel), (BYTES, 51.0 / 255.0)] {
        let (code, object) = make(&resource, whole(format));
        ok(code);
        ok(launch(sample, 1, 1, null_mut(), &[object, result, bits(1.5), bits(1.5)]));
        assert_eq!(download::<f32>(result, 1), [expected], "{format}");
        let mut known = CUDA_RESOURCE_VIEW_DESC::default();
        // SAFETY: the result goes to a local variable.
        ok(unsafe { cuTexObjectGetResourceViewDesc(&raw mut known, object) });
        assert_eq!(known, whole(format));
    }
    let linear = CUDA_RESOURCE_DESC {
        resType: CU_RESOURCE_TYPE_LINEAR,
        res: CUDA_RESOURCE {
            handle: result,
            format: CU_AD_FORMAT_FLOAT,
            numChannels: 1,
            width: 4,
            ..Default::default()
        },
        flags: 0,
    };
    for (resource, view, expected) in [
        (&linear, whole(0), CUDA_ERROR_INVALID_VALUE),
        (&resource, CUDA_RESOURCE_VIEW_DESC { width: 2, ..whole(0) }, CUDA_ERROR_INVALID_VALUE),
        (&resource, CUDA_RESOURCE_VIEW_DESC { depth: 1, ..whole(0) }, CUDA_ERROR_INVALID_VALUE),
        (&resource, CUDA_RESOURCE_VIEW_DESC { lastLayer: 1, ..whole(0) }, CUDA_ERROR_INVALID_VALUE),
        (
            &resource,
            CUDA_RESOURCE_VIEW_DESC { lastMipmapLevel: 1, ..whole(0) },
            CUDA_ERROR_INVALID_VALUE,
        ),
        (&resource, whole(1), CUDA_ERROR_NOT_SUPPORTED),
        (&resource, whole(25), CUDA_ERROR_NOT_SUPPORTED),
    ] {
        assert_eq!(make(resource, view).0, expected, "{view:?}");
    }
}

#[test]
fn rows_in_linear_memory_are_sampled_too() {
    let _context = TestContext::new();
    let sample = function(load(SAMPLE), "sample");
    let (memory, result) = (allocate(512), allocate(4));
    upload(memory, &[0u8, 51, 255]);
    upload(memory + 256, &[102u8, 153, 204]);
    let resource = CUDA_RESOURCE_DESC {
        resType: CU_RESOURCE_TYPE_PITCH2D,
        res: CUDA_RESOURCE {
            handle: memory,
            format: CU_AD_FORMAT_UNSIGNED_INT8,
            numChannels: 1,
            width: 3,
            height: 2,
            pitchInBytes: 256,
            ..Default::default()
        },
        flags: 0,
    };
    let description = CUDA_TEXTURE_DESC { addressMode: [1; 3], ..Default::default() };
    let mut texture = 0;
    // SAFETY: the result and the descriptions are local variables.
    ok(unsafe {
        cuTexObjectCreate(
            &raw mut texture,
            &raw const resource,
            &raw const description,
            std::ptr::null(),
        )
    });
    for (x, y, expected) in
        [(0.5f32, 0.5f32, 0f32), (1.5, 0.5, 0.2), (2.5, 0.5, 1.0), (1.5, 1.5, 0.6)]
    {
        ok(launch(sample, 1, 1, null_mut(), &[texture, result, bits(x), bits(y)]));
        let got = download::<f32>(result, 1)[0];
        assert!((got - expected).abs() < 1e-6, "{x} {y}: {got}");
    }
}
