//! Memory, arrays and copies with the stand-in driver.

#![allow(clippy::macro_metavars_in_unsafe, reason = "calls have values, not code")]

mod common;

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use common::{DEFAULT, Pointer, TO_DEVICE, TO_HOST, WITHIN, copy, memory, setting};
use penstock_cuda_sys::runtime::{
    ChannelFormatDesc, Extent, Memcpy3DParms, PitchedPtr, PointerAttributes13, Pos, ResourceDesc,
    ResourceMemory, TextureDesc,
};
use penstock_cuda_sys::runtime_codes as code;

#[test]
fn copies_go_where_their_kind_or_their_pointers_say() {
    let setting = setting(13);
    let (one, two) = (memory(&setting, 16), memory(&setting, 16));
    let (mut source, mut got) = ([1_u8, 2, 3, 4], [0_u8; 4]);
    setting.calls();
    assert_eq!(copy(&setting, one, source.as_mut_ptr().cast(), 4, DEFAULT), 0);
    assert_eq!(copy(&setting, two, one, 4, DEFAULT), 0);
    assert_eq!(copy(&setting, got.as_mut_ptr().cast(), two, 4, DEFAULT), 0);
    assert_eq!(got, source);
    assert_eq!(copy(&setting, got.as_mut_ptr().cast(), source.as_mut_ptr().cast(), 4, DEFAULT), 0);
    assert_eq!(
        setting.calls(),
        ["HtoD 4 stream 0", "DtoD 4 stream 0", "DtoH 4 stream 0", "cuStreamSynchronize 0"]
    );
    // The kind is wrong about a pointer: the host must not touch the device's address.
    assert_eq!(copy(&setting, two, one, 4, TO_DEVICE), code::INVALID_VALUE);
    assert_eq!(copy(&setting, two, one, 4, TO_HOST), code::INVALID_VALUE);
    assert_eq!(copy(&setting, got.as_mut_ptr().cast(), one, 4, WITHIN), code::INVALID_VALUE);
    assert_eq!(copy(&setting, one, two, 4, 9), code::INVALID_MEMCPY_DIRECTION);
    assert_eq!(copy(&setting, one, two, 17, WITHIN), code::INVALID_VALUE);
    assert_eq!(copy(&setting, one, two, 0, WITHIN), 0);
}

#[test]
fn pointers_are_told_apart() {
    let setting = setting(13);
    let device = memory(&setting, 64);
    let mut pinned: Pointer = null_mut();
    assert_eq!(
        call!(setting.runtime, cudaMallocHost(&raw mut pinned => *mut Pointer, 64 => usize)),
        0
    );
    let mut own = 0_u8;
    let describe = |pointer: Pointer| {
        // SAFETY: all zeros is a valid value of this structure.
        let mut found: PointerAttributes13 = unsafe { std::mem::zeroed() };
        found.reserved = [7; 8];
        assert_eq!(
            call!(setting.runtime, cudaPointerGetAttributes(&raw mut found => *mut PointerAttributes13, pointer => Pointer)),
            0
        );
        assert_eq!(found.reserved, [0; 8]);
        (
            found.common.kind,
            found.common.device,
            found.common.device_pointer,
            found.common.host_pointer,
        )
    };
    let own = (&raw mut own).cast::<c_void>();
    assert_eq!(describe(device), (2, 0, device, null_mut()));
    assert_eq!(describe(pinned), (1, 0, pinned, pinned));
    assert_eq!(describe(own), (0, -2, null_mut(), own));
    assert_eq!(call!(setting.runtime, cudaFreeHost(pinned => Pointer)), 0);
    assert_eq!(call!(setting.runtime, cudaFree(device => Pointer)), 0);
    assert_eq!(call!(setting.runtime, cudaFree(device => Pointer)), code::INVALID_VALUE);
    assert_eq!(call!(setting.runtime, cudaFree(null_mut() => Pointer)), 0);
}

#[test]
fn arrays_are_filled_and_read_row_by_row() {
    let setting = setting(13);
    let desc = ChannelFormatDesc { x: 32, f: 2, ..Default::default() };
    let mut array: Pointer = null_mut();
    assert_eq!(
        call!(setting.runtime, cudaMallocArray(
            &raw mut array => *mut Pointer, &raw const desc => *const ChannelFormatDesc, 4 => usize, 3 => usize, 0 => c_uint,
        )),
        0
    );
    let mut source: [f32; 12] =
        std::array::from_fn(|index| f32::from(u8::try_from(index).unwrap()));
    assert_eq!(
        call!(setting.runtime, cudaMemcpy2DToArray(
            array => Pointer, 0 => usize, 0 => usize, source.as_mut_ptr().cast() => Pointer, 16 => usize, 16 => usize, 3 => usize,
            TO_DEVICE => c_int,
        )),
        0
    );
    // The run starts at the second element of the second row and continues in the third.
    let mut got = [0_f32; 6];
    assert_eq!(
        call!(setting.runtime, cudaMemcpyFromArray(
            got.as_mut_ptr().cast() => Pointer, array => Pointer, 4 => usize, 1 => usize, 24 => usize, TO_HOST => c_int,
        )),
        0
    );
    assert_eq!(got, [5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
    let (mut found, mut extent, mut flags) =
        (ChannelFormatDesc::default(), Extent::default(), 9_u32);
    assert_eq!(
        call!(setting.runtime, cudaArrayGetInfo(
            &raw mut found => *mut ChannelFormatDesc, &raw mut extent => *mut Extent, &raw mut flags => *mut c_uint,
            array => Pointer,
        )),
        0
    );
    assert_eq!((found, extent, flags), (desc, Extent { width: 4, height: 3, depth: 0 }, 0));
    let wrong = ChannelFormatDesc { x: 24, ..desc };
    assert_eq!(
        call!(setting.runtime, cudaMallocArray(
            &raw mut array => *mut Pointer, &raw const wrong => *const ChannelFormatDesc, 4 => usize, 3 => usize, 0 => c_uint,
        )),
        code::INVALID_CHANNEL_DESCRIPTOR
    );
}

#[test]
fn a_box_counts_elements_if_an_array_is_there() {
    let setting = setting(13);
    let desc = ChannelFormatDesc { x: 16, y: 16, f: 1, ..Default::default() };
    let extent = Extent { width: 2, height: 3, depth: 4 };
    let mut array: Pointer = null_mut();
    assert_eq!(
        call!(setting.runtime, cudaMalloc3DArray(
            &raw mut array => *mut Pointer, &raw const desc => *const ChannelFormatDesc, extent => Extent, 0 => c_uint,
        )),
        0
    );
    let mut source = [3_u8; 2 * 4 * 3 * 4];
    let memory = PitchedPtr { ptr: source.as_mut_ptr().cast(), pitch: 8, xsize: 8, ysize: 3 };
    let nothing = PitchedPtr { ptr: null_mut(), pitch: 0, xsize: 0, ysize: 0 };
    let mut parms = Memcpy3DParms {
        src_array: null_mut(),
        src_pos: Pos::default(),
        src_ptr: memory,
        dst_array: array,
        dst_pos: Pos::default(),
        dst_ptr: nothing,
        extent,
        kind: TO_DEVICE,
    };
    setting.calls();
    assert_eq!(call!(setting.runtime, cudaMemcpy3D(&raw const parms => *const Memcpy3DParms)), 0);
    assert_eq!(setting.calls(), ["copy 8x3x4 from 1 to 3 stream 0"]);
    parms.dst_ptr = memory;
    assert_eq!(
        call!(setting.runtime, cudaMemcpy3D(&raw const parms => *const Memcpy3DParms)),
        code::INVALID_VALUE
    );
}

#[test]
fn rows_narrower_than_their_pitch_are_copied_and_wider_ones_refused() {
    let setting = setting(13);
    let (mut rows, mut pitch): (Pointer, usize) = (null_mut(), 0);
    assert_eq!(
        call!(setting.runtime, cudaMallocPitch(
            &raw mut rows => *mut Pointer, &raw mut pitch => *mut usize, 100 => usize, 4 => usize,
        )),
        0
    );
    assert_eq!(pitch, 512);
    let (mut source, mut got) = ([6_u8; 400], [0_u8; 400]);
    let two = |to: Pointer, to_pitch: usize, from: Pointer, from_pitch: usize, kind: c_int| {
        call!(setting.runtime, cudaMemcpy2D(
            to => Pointer, to_pitch => usize, from => Pointer, from_pitch => usize, 100 => usize, 4 => usize, kind => c_int,
        ))
    };
    assert_eq!(two(rows, pitch, source.as_mut_ptr().cast(), 100, TO_DEVICE), 0);
    assert_eq!(two(got.as_mut_ptr().cast(), 100, rows, pitch, TO_HOST), 0);
    assert_eq!(got, source);
    assert_eq!(
        two(rows, 99, source.as_mut_ptr().cast(), 100, TO_DEVICE),
        code::INVALID_PITCH_VALUE
    );
}

#[test]
fn memory_in_the_order_of_a_stream_is_there_without_the_drivers_help() {
    let setting = setting(13);
    let mut made: Pointer = null_mut();
    let stream: Pointer = std::ptr::without_provenance_mut(0x50);
    assert_eq!(
        call!(setting.runtime, cudaMallocAsync(&raw mut made => *mut Pointer, 16 => usize, stream => Pointer)),
        0
    );
    assert_eq!(copy(&setting, made, made, 16, WITHIN), 0);
    setting.calls();
    assert_eq!(call!(setting.runtime, cudaFreeAsync(made => Pointer, stream => Pointer)), 0);
    assert_eq!(setting.calls(), ["cuStreamSynchronize 80"]);
    assert_eq!(copy(&setting, made, made, 16, WITHIN), code::INVALID_VALUE);
}

#[test]
fn textures_go_to_the_driver_and_can_be_asked_what_they_are_of() {
    for (major, bytes) in [(12, 64), (13, 144)] {
        let setting = setting(major);
        let resource = ResourceDesc {
            kind: 3,
            memory: ResourceMemory {
                pointer: 0x4000,
                desc: ChannelFormatDesc { x: 8, y: 8, z: 8, w: 8, f: 1 },
                width: 64,
                height: 8,
                pitch_in_bytes: 512,
            },
        };
        let texture = TextureDesc {
            filter_mode: 1,
            read_mode: 1,
            normalized_coords: 1,
            ..Default::default()
        };
        let mut object = 0_u64;
        assert_eq!(
            call!(setting.runtime, cudaCreateTextureObject(
                &raw mut object => *mut u64, &raw const resource => *const ResourceDesc,
                &raw const texture => *const TextureDesc, null_mut() => Pointer,
            )),
            0
        );
        let wanted = "cuTexObjectCreate kind 3 format 1 channels 4 width 64 pitch 512 filter 1 flags 2 view 0";
        assert!(setting.calls().iter().any(|call| call == wanted));
        // The description fills the structure of the program's version exactly.
        let mut got = [0x55_u8; 160];
        assert_eq!(
            call!(setting.runtime, cudaGetTextureObjectResourceDesc(
                got.as_mut_ptr().cast() => Pointer, object => u64,
            )),
            0
        );
        assert_eq!((got[0], &got[8..10]), (3, &[0, 0x40][..]));
        assert!(got[bytes..].iter().all(|byte| *byte == 0x55) && got[bytes - 1] != 0x55);
        assert_eq!(call!(setting.runtime, cudaDestroyTextureObject(object => u64)), 0);
        assert_eq!(
            call!(setting.runtime, cudaGetTextureObjectResourceDesc(
                got.as_mut_ptr().cast() => Pointer, object => u64,
            )),
            code::INVALID_VALUE
        );
    }
}
