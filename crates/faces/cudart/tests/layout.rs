//! Layout of structures: `tests/cuda/layout.c` compares the offsets in `tests/cuda/layout.h`, which
//! this test makes, with NVIDIA's headers. Those of version 13 are in `.venv-cuda`, those of
//! version 12 in the folder that `PENSTOCK_CUDA_12_HEADERS` names.

#![allow(clippy::macro_metavars_in_unsafe, reason = "calls have values, not code")]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use penstock_cuda_sys::runtime::*;
use penstock_cuda_sys::runtime_properties::{DeviceProperties12, DeviceProperties13};
use penstock_trial::{Need, skip};

/// Fields of a structure: the name in C, and the offset in bytes.
type Fields = Vec<(&'static str, usize)>;

macro_rules! fields {
    ($type:ty { $($name:ident = $($field:ident).+),* $(,)? }) => {
        vec![$((stringify!($name), offset_of!($type, $($field).+)),)*]
    };
}

fn common_structures() -> Vec<(&'static str, usize, Fields)> {
    vec![
        ("dim3", size_of::<Dim3>(), fields!(Dim3 { x = x, y = y, z = z })),
        (
            "struct cudaChannelFormatDesc",
            size_of::<ChannelFormatDesc>(),
            fields!(ChannelFormatDesc { x = x, y = y, z = z, w = w, f = f }),
        ),
        (
            "struct cudaPitchedPtr",
            size_of::<PitchedPtr>(),
            fields!(PitchedPtr { ptr = ptr, pitch = pitch, xsize = xsize, ysize = ysize }),
        ),
        (
            "struct cudaExtent",
            size_of::<Extent>(),
            fields!(Extent { width = width, height = height, depth = depth }),
        ),
        ("struct cudaPos", size_of::<Pos>(), fields!(Pos { x = x, y = y, z = z })),
        (
            "struct cudaMemcpy3DParms",
            size_of::<Memcpy3DParms>(),
            fields!(Memcpy3DParms {
                srcArray = src_array, srcPos = src_pos, srcPtr = src_ptr, dstArray = dst_array, dstPos = dst_pos,
                dstPtr = dst_ptr, extent = extent, kind = kind,
            }),
        ),
        (
            "struct cudaMemcpy3DPeerParms",
            size_of::<Memcpy3DPeerParms>(),
            fields!(Memcpy3DPeerParms {
                srcArray = src_array, srcPos = src_pos, srcPtr = src_ptr, srcDevice = src_device, dstArray = dst_array,
                dstPos = dst_pos, dstPtr = dst_ptr, dstDevice = dst_device, extent = extent,
            }),
        ),
        (
            "struct cudaFuncAttributes",
            size_of::<FuncAttributes>(),
            fields!(FuncAttributes {
                sharedSizeBytes = shared_size_bytes, constSizeBytes = const_size_bytes, localSizeBytes = local_size_bytes,
                maxThreadsPerBlock = max_threads_per_block, numRegs = num_regs, ptxVersion = ptx_version,
                binaryVersion = binary_version, cacheModeCA = cache_mode_ca,
                maxDynamicSharedSizeBytes = max_dynamic_shared_size_bytes, preferredShmemCarveout = preferred_shmem_carveout,
                clusterDimMustBeSet = cluster_dim_must_be_set, requiredClusterWidth = required_cluster_width,
                requiredClusterHeight = required_cluster_height, requiredClusterDepth = required_cluster_depth,
                clusterSchedulingPolicyPreference = cluster_scheduling_policy_preference,
                nonPortableClusterSizeAllowed = non_portable_cluster_size_allowed,
            }),
        ),
    ]
}

/// Structures for textures and launches.
fn other_structures() -> Vec<(&'static str, usize, Fields)> {
    vec![
        (
            "struct cudaTextureDesc",
            size_of::<TextureDesc>(),
            fields!(TextureDesc {
                addressMode = address_mode, filterMode = filter_mode, readMode = read_mode, sRGB = srgb,
                borderColor = border_color, normalizedCoords = normalized_coords, maxAnisotropy = max_anisotropy,
                mipmapFilterMode = mipmap_filter_mode, mipmapLevelBias = mipmap_level_bias,
                minMipmapLevelClamp = min_mipmap_level_clamp, maxMipmapLevelClamp = max_mipmap_level_clamp,
                disableTrilinearOptimization = disable_trilinear_optimization, seamlessCubemap = seamless_cubemap,
            }),
        ),
        (
            "cudaLaunchConfig_t",
            size_of::<LaunchConfig>(),
            fields!(LaunchConfig {
                gridDim = grid, blockDim = block, dynamicSmemBytes = dynamic_smem_bytes, stream = stream, attrs = attrs,
                numAttrs = num_attrs,
            }),
        ),
        (
            "cudaLaunchAttribute",
            size_of::<LaunchAttribute>(),
            fields!(LaunchAttribute { id = id, val = value }),
        ),
    ]
}

/// Structures that differ between the versions.
fn structures_of(major: u32) -> Vec<(&'static str, usize, Fields)> {
    let pointer = fields!(PointerAttributes {
        type = kind, device = device, devicePointer = device_pointer, hostPointer = host_pointer,
    });
    let resource: Fields = vec![
        ("resType", offset_of!(ResourceDesc, kind)),
        ("res.array.array", offset_of!(ResourceDesc, memory.pointer)),
        ("res.linear.devPtr", offset_of!(ResourceDesc, memory.pointer)),
        ("res.linear.desc", offset_of!(ResourceDesc, memory.desc)),
        ("res.linear.sizeInBytes", offset_of!(ResourceDesc, memory.width)),
        ("res.pitch2D.devPtr", offset_of!(ResourceDesc, memory.pointer)),
        ("res.pitch2D.desc", offset_of!(ResourceDesc, memory.desc)),
        ("res.pitch2D.width", offset_of!(ResourceDesc, memory.width)),
        ("res.pitch2D.height", offset_of!(ResourceDesc, memory.height)),
        ("res.pitch2D.pitchInBytes", offset_of!(ResourceDesc, memory.pitch_in_bytes)),
    ];
    let view = fields!(ResourceViewDesc {
        format = format, width = width, height = height, depth = depth, firstMipmapLevel = first_mipmap_level,
        lastMipmapLevel = last_mipmap_level, firstLayer = first_layer, lastLayer = last_layer,
    });
    let (properties, pointer_bytes, resource_bytes, view_bytes) = if major == 12 {
        let properties = (size_of::<DeviceProperties12>(), DeviceProperties12::offsets());
        (
            properties,
            size_of::<PointerAttributes>(),
            size_of::<ResourceDesc>(),
            size_of::<ResourceViewDesc>(),
        )
    } else {
        let properties = (size_of::<DeviceProperties13>(), DeviceProperties13::offsets());
        let view = size_of::<ResourceViewDesc>() + VIEW_RESERVED_13 * 4;
        (properties, size_of::<PointerAttributes13>(), RESOURCE_DESC_13_BYTES, view)
    };
    vec![
        ("struct cudaDeviceProp", properties.0, properties.1),
        ("struct cudaPointerAttributes", pointer_bytes, pointer),
        ("struct cudaResourceDesc", resource_bytes, resource),
        ("struct cudaResourceViewDesc", view_bytes, view),
    ]
}

fn header() -> String {
    let mut text = BEGINNING.to_owned();
    let write = |structures: Vec<(&'static str, usize, Fields)>| {
        let mut lines = String::new();
        for (name, bytes, fields) in structures {
            writeln!(lines, "SIZE({name}, {bytes})").unwrap();
            for (field, offset) in fields {
                writeln!(lines, "FIELD({name}, {field}, {offset})").unwrap();
            }
        }
        lines
    };
    text += &write(common_structures());
    text += &write(other_structures());
    for major in [12, 13] {
        write!(text, "\n#if MAJOR == {major}\n{}#endif\n", write(structures_of(major))).unwrap();
    }
    text
}

const BEGINNING: &str = "\
/* Made by `PENSTOCK_WRITE_DOCS=1 cargo test -p penstock-cudart --test layout` from crates/base/cuda-sys; do not edit. */
";

fn tests_folder() -> PathBuf {
    common::root().join("tests/cuda")
}

#[test]
fn the_header_of_layouts_is_up_to_date() {
    let path = tests_folder().join("layout.h");
    if std::env::var_os("PENSTOCK_WRITE_DOCS").is_some() {
        fs::write(&path, header()).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == header(),
        "run: PENSTOCK_WRITE_DOCS=1 cargo test -p penstock-cudart --test layout"
    );
}

/// Compares the layouts with the headers of a version, by compiling `layout.c`.
fn compare(major: u32, headers: &[PathBuf]) {
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-fsyntax-only", &format!("-DWANTED={major}")]);
    command.args(headers.iter().flat_map(|folder| [Path::new("-isystem"), folder]));
    common::run(command.arg(tests_folder().join("layout.c")));
}

/// Returns the headers of version 13 that `tools/setup.sh cuda` installs.
fn headers_13() -> Option<PathBuf> {
    let versions = fs::read_dir(common::root().join(".venv-cuda/lib")).ok()?;
    let folders = versions
        .filter_map(|entry| Some(entry.ok()?.path().join("site-packages/nvidia/cu13/include")));
    folders.into_iter().find(|folder| folder.join("cuda_runtime_api.h").exists())
}

#[test]
fn version_13s_headers_lay_structures_out_the_same() {
    match headers_13() {
        Some(folder) => compare(13, &[folder]),
        None => skip(Need::CudaToolkit, "no headers of version 13: run tools/setup.sh cuda"),
    }
}

#[test]
fn version_12s_headers_lay_structures_out_the_same() {
    match std::env::var_os("PENSTOCK_CUDA_12_HEADERS") {
        // The wheel with these headers lacks some headers of the compiler that both versions share.
        Some(folder) => compare(
            12,
            &std::iter::once(PathBuf::from(folder)).chain(headers_13()).collect::<Vec<_>>(),
        ),
        None => skip(
            Need::Cuda12Headers,
            "PENSTOCK_CUDA_12_HEADERS does not name the folder of nvidia-cuda-runtime-cu12",
        ),
    }
}
