// heap_kernels.h as a module, from which tests/cuda/native.sh makes PTX.
#include <ggas.h>
#define KERNEL extern "C" __global__
#define HEAP_GROUP blockIdx.x
#define HEAP_ITEM threadIdx.x
#include "heap_kernels.h"
