/* Replaces mapped host memory, which is not supported yet. Preloaded into a program, it allocates a
 * separate piece of device memory for each piece of host memory that the program maps. The contents
 * are never synchronised, so it is only for programs that map memory and do not use it, as OpenMM
 * does if no constraints need its CCMA solver. */
#include <cuda.h>

#include <stddef.h>

/* Larger than any single mapping of a program here. */
enum { piece_bytes = 1 << 16 };

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *place, void *host, unsigned flags) {
    if (place == NULL || host == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return cuMemAlloc(place, piece_bytes);
}
