// The third file of separate.cu.
#include "separate.h"

#include <cstdio>

static __device__ int number = 30;
static __device__ __noinline__ int local(int x) { return x * 7; }

__device__ int in_three(int x) { return local(x) + number; }
__device__ int prints_in_three(int x) {
    printf("three %d\n", x);
    return x + 1;
}
__device__ int Shape::area() const { return 0; }
__device__ Shape::~Shape() {}
__device__ int Square::area() const { return size * size; }

static __global__ void kernel(int *out) {
    out[0] = number;
    out[1] = sum_to(4);
}

void run_three(int *out) { kernel<<<1, 1>>>(out); }

int counter_in_three() {
    int value = -1;
    cudaMemcpyFromSymbol(&value, counter, sizeof value);
    return value;
}
