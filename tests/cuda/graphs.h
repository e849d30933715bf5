// What the tests of graphs share: kernels, and objects that end with a case.
#pragma once

#include "harness.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int count = 1 << 12;

__global__ void add(int *values, int amount) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) values[at] += amount;
}

__global__ void multiply(int *values, int factor) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) values[at] *= factor;
}

__global__ void sum_of(const int *one, const int *other, int *sum) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) sum[at] = one[at] + other[at];
}

constexpr int blocks = count / 256;

struct Streams {
    cudaStream_t one{}, other{};
    cudaEvent_t forked{}, joined{};
    Streams() {
        cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&forked, cudaEventDisableTiming);
        cudaEventCreateWithFlags(&joined, cudaEventDisableTiming);
    }
    ~Streams() {
        cudaEventDestroy(forked);
        cudaEventDestroy(joined);
        cudaStreamDestroy(one);
        cudaStreamDestroy(other);
    }
};

struct Ready {
    cudaGraph_t graph{};
    cudaGraphExec_t exec{};
    ~Ready() {
        if (exec != nullptr) cudaGraphExecDestroy(exec);
        if (graph != nullptr) cudaGraphDestroy(graph);
    }
};

inline std::size_t nodes_of(cudaGraph_t graph) {
    std::size_t number = 0;
    cudaGraphGetNodes(graph, nullptr, &number);
    return number;
}

inline bool all_are(const std::vector<int> &values, int wanted) {
    return std::all_of(values.begin(), values.end(),
                       [wanted](int value) { return value == wanted; });
}

} // namespace
