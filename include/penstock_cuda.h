/* penstock_cuda.h: kernels of several CUDA devices that store into each other's memory, signal,
 * wait and meet at barriers. Copyright 2026 the Penstock authors. SPDX-License-Identifier:
 * Apache-2.0
 *
 * A symmetric heap has a part of equal size on each of its devices, which are its PEs, numbered
 * from 0. A kernel gets the heap as one of its parameters,
 *
 *     #include <ggas.h>
 *     __global__ void work(ggas_heap_t *heap, ...) { const ggas_t g = ggas_open(heap); ... }
 *
 * and uses the verbs of ggas.h. The functions here are in the pool's libcuda.so.1, beside CUDA's
 * own: link with it, or let penstock_find_heap_functions() below look for them, as programs do that
 * may also run on another driver. docs/ggas.md tells how to use them.
 *
 * All return a CUresult; penstockHeapGetText() has a sentence for the last failure in the calling
 * thread. None needs a current context.
 */
#ifndef PENSTOCK_CUDA_H
#define PENSTOCK_CUDA_H

#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A heap. */
typedef struct penstock_heap_st *penstockHeap;

/* How a heap is made. */
typedef struct {
    /* How long a wait in a kernel may last before it gives up with GGAS_TIMEOUT, in ms: 1 to
     * 600000; 0: 30000. A device's compiler may work when a kernel is first launched, while the
     * kernels of other PEs wait already. */
    unsigned int timeoutMs;
    /* Not 0: the proxy between all devices that are served by different processes, also on one
     * host. 0: as PENSTOCK_HEAP_PATH says. */
    int forceProxy;
} penstockHeapOptions;

/* How a PE reaches another one: it is the PE itself; both see the same memory; through a proxy
 * thread of each node. */
#define PENSTOCK_HEAP_OWN 0
#define PENSTOCK_HEAP_SHARED 1
#define PENSTOCK_HEAP_PROXY 2

/* Makes a heap with `bytes` on each of `devices`, the first of which is PE 0. The content is zero.
 * options may be NULL.
 *
 * CUDA_ERROR_NOT_SUPPORTED: such a heap can not be, for example because a device does not compute
 * on its host's memory, and its driver is not CUDA's own, or can not map that.
 * CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY. */
CUresult penstockHeapCreate(penstockHeap *heap, unsigned int count, const CUdevice *devices,
                            size_t bytes, const penstockHeapOptions *options);

/* The handle is none any more. The memory goes when the kernels that use it have ended. */
CUresult penstockHeapClose(penstockHeap heap);

/* What a kernel on the device of a PE gets as its `ggas_heap_t *`. It is no address for copies, and
 * has to be a parameter of the launch by itself, or in a structure that is one, 8 bytes aligned: a
 * kernel can not have it out of memory alone. A kernel has one heap. */
CUresult penstockHeapGetPointer(penstockHeap heap, unsigned int pe, CUdeviceptr *pointer);

/* How many PEs, and the bytes of each part; either may be NULL. */
CUresult penstockHeapGetSize(penstockHeap heap, unsigned int *count, size_t *bytes);

/* How PE `from` reaches PE `to`: PENSTOCK_HEAP_OWN, _SHARED, or _PROXY. */
CUresult penstockHeapGetPath(penstockHeap heap, unsigned int from, unsigned int to,
                             unsigned int *path);

/* Starts one kernel on each PE, all at the same time; `count` is the number of PEs, `launches` have
 * one function of a context of each device, in any order. Functions, forms and parameters may
 * differ. hStream NULL is the legacy default stream of the function's context. The kernels begin
 * when everything before them in all their streams has ended, and no two such launches run on a
 * device at the same time.
 *
 * CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, and nothing is started: the kernels could not all run at
 * the same time, because a PE has none, or more blocks than run there at a time.
 * penstockHeapGetText() says which. CUDA_ERROR_INVALID_VALUE: a kernel without the heap's address
 * among its parameters, two kernels for one device, a form that cuLaunchKernel would refuse.
 * CUDA_ERROR_INVALID_HANDLE.
 *
 * cuLaunchKernel, too, takes kernels with a heap. Such a launch is one of its device alone: it may
 * put into other parts, and must not wait for kernels that nobody starts. */
CUresult penstockHeapLaunch(penstockHeap heap, const CUDA_LAUNCH_PARAMS *launches,
                            unsigned int count);

/* Reads and writes bytes of a PE's part, and waits for that; in the order of no stream. A device
 * may do it only when a kernel on it has ended. */
CUresult penstockHeapRead(penstockHeap heap, unsigned int pe, size_t offset, void *to,
                          size_t bytes);
CUresult penstockHeapWrite(penstockHeap heap, unsigned int pe, size_t offset, const void *from,
                           size_t bytes);

/* Ends all waits of kernels in the heap with GGAS_ABORTED, those under way and later ones, until it
 * is reset. reason NULL or a string of at most 1024 bytes. */
CUresult penstockHeapAbort(penstockHeap heap, const char *reason);

/* Whether the heap was aborted: by penstockHeapAbort(), by a launch that failed, or because a
 * worker, daemon or node with PEs has ended. penstockHeapGetText() has the reason then. Asks the
 * nodes. */
CUresult penstockHeapGetAborted(penstockHeap heap, int *aborted);

/* Makes the heap usable again after an abort by the program, or after a wait that timed out. Waits
 * for the kernels that use it. The parts keep their bytes, signals included.
 * CUDA_ERROR_DEVICE_UNAVAILABLE: a worker or node of it has ended; then it can only be closed. */
CUresult penstockHeapReset(penstockHeap heap);

/* What the last of these functions that failed in this thread has to say, or the reason that
 * penstockHeapGetAborted() found. Never NULL; valid until this thread calls another one. */
const char *penstockHeapGetText(void);

/* The functions, for programs that are not linked with this libcuda.so.1. */
struct penstock_heap_functions {
    CUresult (*create)(penstockHeap *, unsigned int, const CUdevice *, size_t,
                       const penstockHeapOptions *);
    CUresult (*close)(penstockHeap);
    CUresult (*pointer)(penstockHeap, unsigned int, CUdeviceptr *);
    CUresult (*size)(penstockHeap, unsigned int *, size_t *);
    CUresult (*path)(penstockHeap, unsigned int, unsigned int, unsigned int *);
    CUresult (*launch)(penstockHeap, const CUDA_LAUNCH_PARAMS *, unsigned int);
    CUresult (*read)(penstockHeap, unsigned int, size_t, void *, size_t);
    CUresult (*write)(penstockHeap, unsigned int, size_t, const void *, size_t);
    CUresult (*abort)(penstockHeap, const char *);
    CUresult (*aborted)(penstockHeap, int *);
    CUresult (*reset)(penstockHeap);
    const char *(*text)(void);
};

/* Finds them in the libcuda.so.1 of this process. CUDA_ERROR_NOT_SUPPORTED where that is another
 * driver's. */
static inline CUresult penstock_find_heap_functions(struct penstock_heap_functions *functions) {
    static const char *const names[] = {
        "penstockHeapCreate",     "penstockHeapClose",   "penstockHeapGetPointer",
        "penstockHeapGetSize",    "penstockHeapGetPath", "penstockHeapLaunch",
        "penstockHeapRead",       "penstockHeapWrite",   "penstockHeapAbort",
        "penstockHeapGetAborted", "penstockHeapReset",   "penstockHeapGetText",
    };
    void **place = (void **)functions;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        place[at] = driver == NULL ? NULL : dlsym(driver, names[at]);
        if (place[at] == NULL) return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

#ifdef __cplusplus
}
#endif

#endif /* PENSTOCK_CUDA_H */
