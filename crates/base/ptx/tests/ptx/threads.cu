// Atomics, warps, barriers, printing, calls, switches.
#include <cooperative_groups.h>
#include <cstdio>
#include <cassert>

extern "C" __global__ void atomics(int *i, unsigned *u, unsigned long long *l, float *f,
                                   double *d) {
    __shared__ int local;
    if (threadIdx.x == 0) local = 0;
    __syncthreads();
    atomicAdd(&local, 1);
    i[1] = atomicAdd(i, 2) + atomicSub(i, 1) + atomicExch(i, 5) + atomicMin(i, 3) +
           atomicMax(i, 4) + atomicCAS(i, 1, 2) + local;
    u[1] = atomicInc(u, 7) + atomicDec(u, 9) + atomicAnd(u, 15) + atomicOr(u, 16) +
           atomicXor(u, 3) + atomicMin(u, 8);
    l[1] = atomicAdd(l, 3ull) + atomicCAS(l, 1ull, 2ull) + atomicExch(l, 8ull) + atomicMax(l, 4ull);
    atomicAdd(f, 1.5f);
    atomicAdd(d, 2.5);
    f[1] = atomicExch(f, 2.0f);
    atomicAdd_block(i, 1);
    atomicAdd_system(i, 1);
}

extern "C" __global__ void warps(int *out) {
    int lane = threadIdx.x & 31;
    int v = out[threadIdx.x];
    v += __shfl_sync(0xffffffff, v, 3) + __shfl_up_sync(0xffffffff, v, 1) +
         __shfl_down_sync(0xffffffff, v, 2, 8) + __shfl_xor_sync(0xffffffff, v, 16);
    unsigned votes = __ballot_sync(0xffffffff, v > 3) + __all_sync(0xffffffff, v > 3) +
                     __any_sync(0xffffffff, v > 3);
    votes += __match_any_sync(0xffffffff, v);
    int all;
    votes += __match_all_sync(0xffffffff, v, &all) + all;
    votes += __activemask();
    __syncwarp();
    unsigned below;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
    double wide = __shfl_sync(0xffffffff, (double)v, lane ^ 1);
    out[threadIdx.x] = (int)votes + __syncthreads_count(v) + __syncthreads_and(v) +
                       __syncthreads_or(v) + (int)wide + (int)below;
}

extern "C" __global__ void printing(int n, float x, const char *text) {
    printf("thread %d of %d: %f %s\n", threadIdx.x, n, x, text);
    assert(n > 3);
}

__device__ __noinline__ float helper(float x, int n, float3 v) { return x * n + v.y; }

__device__ __noinline__ float3 returns_struct(float x) { return make_float3(x, x + 1, x + 2); }

extern "C" __global__ void calls(float *out, int n) {
    float3 v = returns_struct(out[0]);
    out[threadIdx.x] = helper(out[threadIdx.x], n, v);
}

typedef int (*Operation)(int, int);
__device__ int plus(int a, int b) { return a + b; }
__device__ int times(int a, int b) { return a * b; }
__device__ Operation operations[2] = {plus, times};

extern "C" __global__ void indirect(int *out, int which) {
    out[threadIdx.x] = operations[which](out[threadIdx.x], 3);
}

extern "C" __global__ void switches(int *out, int n) {
    int v = out[threadIdx.x];
    switch (n) {
    case 0: v += 11; break;
    case 1: v *= 3; break;
    case 2: v = v / 7; break;
    case 3: v ^= 0x55; break;
    case 4: v = -v; break;
    case 5: v <<= 2; break;
    case 6: v = __popc(v); break;
    case 7: v = (int)sqrtf((float)v); break;
    case 8: v = v % 13; break;
    case 9: out[1] = 3; break;
    default: v = 0;
    }
    out[threadIdx.x] = v;
}

extern "C" __global__ void loops(float *out, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) {
        if (out[i] < 0) continue;
        if (out[i] > 100) break;
#pragma unroll 1
        for (int j = i; j < n; j += 2) sum += out[j] * (float)i;
    }
    out[threadIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(256, 2) clocks(long long *out) {
    long long start = clock64();
    unsigned small = clock();
    __nanosleep(10);
    out[threadIdx.x] = clock64() - start + small;
}

extern "C" __global__ void groups(int *out) {
    namespace cg = cooperative_groups;
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    int v = out[threadIdx.x];
    for (int offset = tile.size() / 2; offset > 0; offset /= 2) v += tile.shfl_down(v, offset);
    tile.sync();
    out[threadIdx.x] = v + tile.any(v > 3) + cg::coalesced_threads().size();
}

__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

extern "C" __global__ void recursive(int *out) { out[0] = fibonacci(out[0]); }

template <typename T> __global__ void generic_kernel(T *out, T value) {
    __shared__ T block[64];
    block[threadIdx.x] = value;
    __syncthreads();
    out[threadIdx.x] = block[63 - threadIdx.x];
}
template __global__ void generic_kernel<float>(float *, float);
template __global__ void generic_kernel<double>(double *, double);
