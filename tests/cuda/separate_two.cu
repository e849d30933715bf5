// The second file of separate.cu.
#include "separate.h"

__device__ int counter = 0;
__constant__ float weights[4];

namespace {

__device__ int number = 20;
__constant__ int table[2] = {8, 9};
__device__ __noinline__ int local(int x) { return x * 2 + 1000; }
__device__ int pointed(int x) { return x + 1; }

__global__ void kernel(int *out) {
    out[0] = atomicAdd(&counter, 1) + 1;
    out[1] = tripled(7);
    out[2] = of_header();
}

} // namespace

__device__ int (*chosen)(int) = pointed;
__device__ int in_two(int x) { return local(x) + number + table[1]; }

void run_two(int *out) { kernel<<<1, 1>>>(out); }
