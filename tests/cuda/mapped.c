/* Stands in for mapped host memory, which is not served yet: preloaded into a program, it gives each piece of host memory that the program
 * maps a piece of device memory of its own. The two are never made the same, so it serves programs that map memory and do not use it, as
 * OpenMM does where no constraints need its CCMA solver.
 */
#include <cuda.h>

#include <stddef.h>

/* More than any program here maps in one piece. */
enum { piece_bytes = 1 << 16 };

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *place, void *host, unsigned flags)
{
    if (place == NULL || host == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return cuMemAlloc(place, piece_bytes);
}
