/* cl_penstock_global_buffer: memory on several devices that their kernels reach by themselves.
 * Copyright 2026 the Penstock authors. SPDX-License-Identifier: Apache-2.0
 *
 * A global buffer has a part of equal size on each of its devices, which are its PEs, numbered from 0. A kernel that gets the
 * buffer as an argument
 *
 *     #include <ggas.h>
 *     kernel void work(global ggas_heap_t *heap, ...) { ggas_t g = ggas_open(heap); ... }
 *
 * stores into the other PEs' parts, signals them, waits for their signals and meets them at barriers without returning to the host:
 * see ggas.h, which every program source on this platform may include.
 *
 * The functions are found with clGetExtensionFunctionAddressForPlatform, or with penstock_find_global_buffer_functions() below.
 * docs/ggas.md tells how to use them.
 */
#ifndef CL_EXT_PENSTOCK_H
#define CL_EXT_PENSTOCK_H

#ifdef __APPLE__
#include <OpenCL/cl.h>
#else
#include <CL/cl.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* In CL_DEVICE_EXTENSIONS of every device that can be a PE: one that computes on its host's memory. In CL_PLATFORM_EXTENSIONS
 * where all devices of the platform can. */
#define cl_penstock_global_buffer 1
#define CL_PENSTOCK_GLOBAL_BUFFER_EXTENSION_NAME "cl_penstock_global_buffer"

/* -- properties of clCreateGlobalBufferPENSTOCK: pairs of cl_ulong, then 0 ------------------------------------------------ */

/* How long a wait in a kernel may last before it gives up with GGAS_TIMEOUT, in ms: 1 to 600000. Default 30000. Some
 * drivers compile a kernel when it is first launched, while the kernels of other PEs wait already. */
#define CL_GLOBAL_BUFFER_TIMEOUT_MS_PENSTOCK 0x50530010
/* CL_GLOBAL_BUFFER_PATH_AUTO_PENSTOCK, or CL_GLOBAL_BUFFER_PATH_PROXY_PENSTOCK for the proxy between all devices that are served by
 * different processes, also on one host. Default: what PENSTOCK_HEAP_PATH says, which is auto unless set. */
#define CL_GLOBAL_BUFFER_PATH_PENSTOCK 0x50530011

/* -- clGetGlobalBufferInfoPENSTOCK ---------------------------------------------------------------------------------------- */

/* cl_uint: how many PEs. */
#define CL_GLOBAL_BUFFER_NUM_PES_PENSTOCK 0x50530020
/* cl_device_id[]: the device of each PE. */
#define CL_GLOBAL_BUFFER_DEVICES_PENSTOCK 0x50530021
/* cl_uint[num_pes * num_pes]: how PE i reaches PE j, at [i * num_pes + j], one of CL_GLOBAL_BUFFER_PATH_* below. */
#define CL_GLOBAL_BUFFER_PATHS_PENSTOCK 0x50530022
/* cl_bool: whether the buffer was aborted, by the program or because a worker or node has ended. Asks the nodes. */
#define CL_GLOBAL_BUFFER_ABORTED_PENSTOCK 0x50530023
/* char[]: why it was aborted; empty if it was not. Asks the nodes. */
#define CL_GLOBAL_BUFFER_REASON_PENSTOCK 0x50530024
/* char[]: why the last collective launch was refused; empty if it was not. */
#define CL_GLOBAL_BUFFER_REFUSAL_PENSTOCK 0x50530025
/* char[]: the text of ggas.h, for programs that compile kernels themselves. The global buffer may be NULL. */
#define CL_GLOBAL_BUFFER_KERNEL_HEADER_PENSTOCK 0x50530026

#define CL_GLOBAL_BUFFER_PATH_AUTO_PENSTOCK 0
/* It is the PE itself. */
#define CL_GLOBAL_BUFFER_PATH_OWN_PENSTOCK 1
/* Both see the same memory: loads and stores; ggas_ptr() gives a pointer. */
#define CL_GLOBAL_BUFFER_PATH_SHARED_PENSTOCK 2
/* Through a proxy thread of each node; ggas_ptr() gives NULL. */
#define CL_GLOBAL_BUFFER_PATH_PROXY_PENSTOCK 3

/* Makes a global buffer with `bytes` on each of `devices`, the first of which is PE 0. The content is zero.
 * devices NULL and num_devices 0: all devices of the context, in its order. properties may be NULL.
 *
 * It is released by clReleaseMemObject and retained by clRetainMemObject, and clGetMemObjectInfo tells of it: CL_MEM_SIZE is `bytes`.
 * clEnqueueReadBuffer and clEnqueueWriteBuffer read and write the part of the queue's device. clSetKernelArg takes it for an argument
 * `global ggas_heap_t *`; a launch by clEnqueueNDRangeKernel is one of the queue's device alone. Every other command on it fails
 * with CL_INVALID_OPERATION.
 *
 * Errors: CL_INVALID_CONTEXT; CL_INVALID_DEVICE if a device is not of the context; CL_INVALID_PROPERTY; CL_INVALID_VALUE if
 * num_devices and devices disagree, or bytes or the time are out of bounds; CL_INVALID_OPERATION if such a buffer can not be: the
 * context's pfn_notify gets a sentence that says why. */
typedef cl_mem(CL_API_CALL *clCreateGlobalBufferPENSTOCK_fn)(cl_context context, cl_uint num_devices,
                                                              const cl_device_id *devices, size_t bytes,
                                                              const cl_ulong *properties, cl_int *errcode_ret);

/* Starts a kernel on all PEs at the same time; `queues` has one queue of each PE, in any order. The kernel has the buffer among its
 * arguments. The launches begin when all commands before them in all their queues, and events_in_wait_list, have ended; and no two
 * collective launches of a context run at the same time. The queues need not be flushed. events NULL, or room for num_queues events,
 * in the order of `queues`.
 *
 * Errors: as clEnqueueNDRangeKernel; CL_INVALID_OPERATION, and nothing is started, if the kernels could not all run at the same
 * time: a PE has no queue or two, local_work_size is NULL, or a device would have more work-groups than it runs at a time.
 * CL_GLOBAL_BUFFER_REFUSAL_PENSTOCK and the context's pfn_notify say which. */
typedef cl_int(CL_API_CALL *clEnqueueCollectiveNDRangeKernelPENSTOCK_fn)(
    cl_mem global_buffer, cl_uint num_queues, const cl_command_queue *queues, cl_kernel kernel, cl_uint work_dim,
    const size_t *global_work_offset, const size_t *global_work_size, const size_t *local_work_size,
    cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *events);

/* As clGetMemObjectInfo, for the names above. Errors: CL_INVALID_MEM_OBJECT, CL_INVALID_VALUE. */
typedef cl_int(CL_API_CALL *clGetGlobalBufferInfoPENSTOCK_fn)(cl_mem global_buffer, cl_uint param_name,
                                                               size_t param_value_size, void *param_value,
                                                               size_t *param_value_size_ret);

/* Ends all waits of kernels in the buffer with GGAS_ABORTED, those under way and later ones, until it is reset. reason NULL or a
 * string of at most 1024 bytes. Errors: CL_INVALID_MEM_OBJECT; CL_DEVICE_NOT_AVAILABLE if a node is lost. */
typedef cl_int(CL_API_CALL *clAbortGlobalBufferPENSTOCK_fn)(cl_mem global_buffer, const char *reason);

/* Makes the buffer usable again after an abort by the program, or after a wait that timed out. Waits for the kernels that use it. The
 * parts keep their bytes, signals included. Errors: CL_INVALID_MEM_OBJECT; CL_INVALID_OPERATION if a worker or node of the buffer has
 * ended: then it can only be released. */
typedef cl_int(CL_API_CALL *clResetGlobalBufferPENSTOCK_fn)(cl_mem global_buffer);

/* All functions of the extension. */
struct penstock_global_buffer_functions {
    clCreateGlobalBufferPENSTOCK_fn create;
    clEnqueueCollectiveNDRangeKernelPENSTOCK_fn launch;
    clGetGlobalBufferInfoPENSTOCK_fn info;
    clAbortGlobalBufferPENSTOCK_fn abort;
    clResetGlobalBufferPENSTOCK_fn reset;
};

/* Finds them. CL_INVALID_PLATFORM where the platform does not have them. */
static inline cl_int penstock_find_global_buffer_functions(cl_platform_id platform,
                                                           struct penstock_global_buffer_functions *functions) {
    functions->create = (clCreateGlobalBufferPENSTOCK_fn)clGetExtensionFunctionAddressForPlatform(
        platform, "clCreateGlobalBufferPENSTOCK");
    functions->launch = (clEnqueueCollectiveNDRangeKernelPENSTOCK_fn)clGetExtensionFunctionAddressForPlatform(
        platform, "clEnqueueCollectiveNDRangeKernelPENSTOCK");
    functions->info = (clGetGlobalBufferInfoPENSTOCK_fn)clGetExtensionFunctionAddressForPlatform(
        platform, "clGetGlobalBufferInfoPENSTOCK");
    functions->abort = (clAbortGlobalBufferPENSTOCK_fn)clGetExtensionFunctionAddressForPlatform(
        platform, "clAbortGlobalBufferPENSTOCK");
    functions->reset = (clResetGlobalBufferPENSTOCK_fn)clGetExtensionFunctionAddressForPlatform(
        platform, "clResetGlobalBufferPENSTOCK");
    return functions->create && functions->launch && functions->info && functions->abort && functions->reset
               ? CL_SUCCESS
               : CL_INVALID_PLATFORM;
}

#ifdef __cplusplus
}
#endif

#endif /* CL_EXT_PENSTOCK_H */
