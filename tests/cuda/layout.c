/* Compares the layout of structures in crates/base/cuda-sys with the headers of a version of CUDA.
 * This file is compiled and never run. */
#include <cuda_runtime_api.h>
#include <stddef.h>

#define MAJOR (CUDART_VERSION / 1000)
_Static_assert(MAJOR == WANTED, "the headers are of another version");

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type);
#define FIELD(type, field, offset) \
    _Static_assert(offsetof(type, field) == (offset), "place of " #field " in " #type);
#include "layout.h"
