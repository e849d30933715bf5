//! Graphs through the driver interface: older forms of the functions, kernels of libraries, and
//! features that only this interface has. tests/cuda/graphs.cu tests what graphs do.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;

use common::*;
use penstock_cuda::api::capture::*;
use penstock_cuda::api::context::*;
use penstock_cuda::api::copy::*;
use penstock_cuda::api::graph::*;
use penstock_cuda::api::graph_exec::*;
use penstock_cuda::api::graph_memory::*;
use penstock_cuda::api::graph_node::*;
use penstock_cuda::api::library::*;
use penstock_cuda::api::memory::*;
use penstock_cuda::api::memset::*;
use penstock_cuda::api::stream::*;
use penstock_cuda_sys::driver::*;

/// Captures a graph of `count` launches of `add_one`.
fn captured(stream: CUstream, add_one: CUfunction, values: CUdeviceptr, count: usize) -> CUgraph {
    let mut graph = null_mut();
    // SAFETY: handles are checked, and the result goes to a local variable.
    unsafe {
        ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        for _ in 0..count {
            ok(launch(add_one, 1, 1, stream, &[values]));
        }
        ok(cuStreamEndCapture(stream, &raw mut graph));
    }
    graph
}

fn read(values: CUdeviceptr) -> u32 {
    download::<u32>(values, 1)[0]
}

#[test]
fn older_forms_do_the_same() {
    let _context = TestContext::new();
    let (stream, add_one, values) =
        (stream(CU_STREAM_NON_BLOCKING), function(load(KERNELS), "add_one"), allocate(4));
    upload(values, &[0u32]);
    let graph = captured(stream, add_one, values, 3);
    let (mut exec, mut wrong, mut log) = (null_mut(), null_mut(), [1i8; 8]);
    // SAFETY: handles are checked, and the results go to local variables.
    unsafe {
        ok(cuGraphInstantiate_v2(
            &raw mut exec,
            graph,
            &raw mut wrong,
            log.as_mut_ptr().cast(),
            log.len(),
        ));
        assert!(wrong.is_null() && log[0] == 0);
        ok(cuGraphLaunch(exec, stream));
        ok(cuStreamSynchronize(stream));
        assert_eq!(read(values), 3);
        let (mut count, mut nodes) = (4, [null_mut(); 4]);
        ok(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count));
        assert_eq!((count, nodes[3].is_null()), (3, true), "the remaining entries are NULL");
        let (mut from, mut to, mut edges) = ([null_mut(); 2], [null_mut(); 2], 2);
        ok(cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &raw mut edges));
        assert_eq!((edges, from, to), (2, [nodes[0], nodes[1]], [nodes[1], nodes[2]]));
        ok(cuGraphRemoveDependencies(graph, from.as_ptr(), to.as_ptr(), 1));
        let mut roots = 0;
        ok(cuGraphGetRootNodes(graph, null_mut(), &raw mut roots));
        assert_eq!(roots, 2);
        // The topology has changed.
        let mut result = 9;
        let updated = cuGraphExecUpdate(exec, graph, &raw mut wrong, &raw mut result);
        assert_eq!(updated, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        assert_eq!((result, wrong), (CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nodes[1]));
        ok(cuGraphDestroy(graph));
        ok(cuGraphExecDestroy(exec));
        assert_eq!(cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
    }
}

/// The second launch copies from host memory that the first one has not written yet. So the client
/// holds the second launch back, and must not lose any of its kernels.
#[test]
fn a_launch_that_is_held_back_runs_all_its_kernels() {
    let _context = TestContext::new();
    let (stream, add_one) = (stream(CU_STREAM_NON_BLOCKING), function(load(KERNELS), "add_one"));
    let (values, other) = (allocate(4), allocate(4));
    upload(values, &[0u32]);
    let (mut graph, mut exec, mut pinned) = (null_mut(), null_mut(), null_mut());
    // SAFETY: handles are checked, results go to local variables, and the pinned memory lives until
    // the end.
    unsafe {
        ok(cuMemAllocHost_v2(&raw mut pinned, 4));
        ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        ok(cuMemcpyHtoDAsync_v2(other, pinned, 4, stream));
        ok(cuMemcpyDtoHAsync_v2(pinned, other, 4, stream));
        ok(launch(add_one, 1, 1, stream, &[values]));
        ok(launch(add_one, 1, 1, stream, &[values]));
        ok(cuStreamEndCapture(stream, &raw mut graph));
        ok(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
        let gate = Gate::default();
        gate.close(stream);
        ok(cuGraphLaunch(exec, stream));
        ok(cuGraphLaunch(exec, stream));
        gate.open();
        ok(cuStreamSynchronize(stream));
        assert_eq!(read(values), 4);
        ok(cuGraphExecDestroy(exec));
        ok(cuGraphDestroy(graph));
        ok(cuMemFreeHost(pinned));
    }
}

#[test]
fn nodes_of_any_kind_and_kernels_of_libraries() {
    let _context = TestContext::new();
    let (values, stream) = (allocate(4), stream(0));
    let text = std::ffi::CString::new(KERNELS).unwrap();
    let (mut library, mut kernel, mut graph, mut exec) =
        (null_mut(), null_mut(), null_mut(), null_mut());
    let (mut filled, mut added) = (null_mut(), null_mut());
    let mut param = values;
    let mut params: [*mut c_void; 1] = [(&raw mut param).cast()];
    let none = CUgraphNodeParams { kind: 0, reserved0: [0; 3], params: [0; 29], reserved2: 0 };
    // SAFETY: handles are checked, and results and descriptions are local variables.
    unsafe {
        let (jit, values_of) = (null_mut(), null_mut());
        ok(cuLibraryLoadData(
            &raw mut library,
            text.as_ptr().cast(),
            jit,
            values_of,
            0,
            null_mut(),
            null_mut(),
            0,
        ));
        ok(cuLibraryGetKernel(&raw mut kernel, library, c"add_one".as_ptr()));
        ok(cuGraphCreate(&raw mut graph, 0));
        let fill = CUDA_MEMSET_NODE_PARAMS {
            dst: values,
            pitch: 0,
            value: 41,
            elementSize: 4,
            width: 1,
            height: 1,
        };
        let mut described = CUgraphNodeParams { kind: CU_GRAPH_NODE_TYPE_MEMSET, ..none };
        described.params.as_mut_ptr().cast::<CUDA_MEMSET_NODE_PARAMS>().write(fill);
        ok(cuGraphAddNode(&raw mut filled, graph, null_mut(), 0, &raw mut described));
        let mut described = CUgraphNodeParams { kind: CU_GRAPH_NODE_TYPE_KERNEL, ..none };
        let first = CUDA_KERNEL_NODE_PARAMS_v1 {
            func: null_mut(),
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: params.as_mut_ptr(),
            extra: null_mut(),
        };
        let wide = CUDA_KERNEL_NODE_PARAMS { first, kern: kernel, ctx: null_mut() };
        described.params.as_mut_ptr().cast::<CUDA_KERNEL_NODE_PARAMS>().write(wide);
        ok(cuGraphAddNode_v2(
            &raw mut added,
            graph,
            &raw const filled,
            null_mut(),
            1,
            &raw mut described,
        ));
        // An impossible grid is rejected when it is described.
        let empty = CUDA_KERNEL_NODE_PARAMS_v1 { gridDimX: 0, ..first };
        let wrong = CUDA_KERNEL_NODE_PARAMS { first: empty, ..wide };
        assert_eq!(
            cuGraphKernelNodeSetParams_v2(added, &raw const wrong),
            CUDA_ERROR_INVALID_VALUE
        );
        for kind in [CU_GRAPH_NODE_TYPE_CONDITIONAL, 8, 9, 12] {
            let mut described = CUgraphNodeParams { kind, ..none };
            let refused = cuGraphAddNode(&raw mut added, graph, null_mut(), 0, &raw mut described);
            assert_eq!(refused, CUDA_ERROR_NOT_SUPPORTED, "{kind}");
        }
        let mut described = CUgraphNodeParams { kind: 99, ..none };
        let refused = cuGraphAddNode(&raw mut added, graph, null_mut(), 0, &raw mut described);
        assert_eq!(refused, CUDA_ERROR_INVALID_VALUE);
        let mut with = CUDA_GRAPH_INSTANTIATE_PARAMS {
            flags: CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
            hUploadStream: stream,
            hErrNode_out: added,
            result_out: 9,
        };
        ok(cuGraphInstantiateWithParams(&raw mut exec, graph, &raw mut with));
        assert_eq!(
            (with.result_out, with.hErrNode_out.is_null()),
            (CUDA_GRAPH_INSTANTIATE_SUCCESS, true)
        );
        ok(cuGraphLaunch_ptsz(exec, null_mut()));
        ok(cuStreamSynchronize_ptsz(null_mut()));
        assert_eq!(read(values), 42);
        ok(cuGraphExecDestroy(exec));
        ok(cuGraphDestroy(graph));
    }
}

#[test]
fn memory_of_a_graph_stays_while_anything_has_it() {
    let _context = TestContext::new();
    let (mut graph, mut exec, mut node, mut filled) =
        (null_mut(), null_mut(), null_mut(), null_mut());
    // SAFETY: a description may be all zeros, handles are checked, and results go to local
    // variables.
    unsafe {
        let mut wanted: CUDA_MEM_ALLOC_NODE_PARAMS = std::mem::zeroed();
        (wanted.poolProps.allocType, wanted.poolProps.locationType, wanted.bytesize) = (1, 1, 4096);
        ok(cuGraphCreate(&raw mut graph, 0));
        ok(cuGraphAddMemAllocNode(&raw mut node, graph, null_mut(), 0, &raw mut wanted));
        assert_ne!(wanted.dptr, 0);
        let fill = CUDA_MEMSET_NODE_PARAMS {
            dst: wanted.dptr,
            pitch: 0,
            value: 5,
            elementSize: 4,
            width: 1024,
            height: 1,
        };
        ok(cuGraphAddMemsetNode(
            &raw mut filled,
            graph,
            &raw const node,
            1,
            &raw const fill,
            null_mut(),
        ));
        assert_eq!(cuGraphDestroyNode(filled), CUDA_ERROR_NOT_SUPPORTED);
        ok(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
        ok(cuGraphLaunch(exec, null_mut()));
        ok(cuGraphExecDestroy(exec));
        ok(cuGraphDestroy(graph));
        // The program still holds the memory.
        assert_eq!(download::<u32>(wanted.dptr, 1024), [5; 1024]);
        ok(cuMemFree_v2(wanted.dptr));
        let again = cuMemFree_v2(wanted.dptr);
        assert_eq!(again, CUDA_ERROR_INVALID_VALUE);
        let (mut used, mut reserved) = (9u64, 9u64);
        let (used_kind, all) =
            (CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
        ok(cuDeviceGetGraphMemAttribute(0, used_kind, (&raw mut used).cast()));
        ok(cuDeviceGetGraphMemAttribute(0, all, (&raw mut reserved).cast()));
        assert_eq!((used, reserved), (0, 0));
    }
}

#[test]
fn a_stream_that_is_destroyed_ends_its_capture() {
    let _context = TestContext::new();
    let (first, values) = (stream(0), allocate(4));
    let (mut mode, mut status) = (CU_STREAM_CAPTURE_MODE_RELAXED, 9);
    // SAFETY: handles are checked, and the results go to local variables.
    unsafe {
        ok(cuStreamBeginCapture_v2(first, CU_STREAM_CAPTURE_MODE_RELAXED));
        assert_eq!(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        ok(cuStreamDestroy_v2(first));
        ok(cuCtxSynchronize());
        ok(cuMemsetD32Async(values, 1, 1, null_mut()));
        ok(cuStreamIsCapturing(null_mut(), &raw mut status));
        assert_eq!(status, CU_STREAM_CAPTURE_STATUS_NONE);
        ok(cuThreadExchangeStreamCaptureMode(&raw mut mode));
        assert_eq!(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
        mode = 3;
        assert_eq!(cuThreadExchangeStreamCaptureMode(&raw mut mode), CUDA_ERROR_INVALID_VALUE);
        mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        ok(cuThreadExchangeStreamCaptureMode(&raw mut mode));
        assert_eq!(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    }
}
