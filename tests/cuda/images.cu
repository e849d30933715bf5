// The forms in which a program can carry its kernels: PTX, packed in each way that nvcc offers, for
// several architectures or none. The program is built several times. With ONLY_MACHINE_CODE there
// is no PTX, so only the GPU that the code was compiled for can run it.
#include "harness.h"

namespace {

__device__ int offset = 5;
__constant__ int table[64] = {3, 1, 4, 1, 5, 9, 2, 6};

__global__ void fill(int *to, int count) {
    const int own = blockIdx.x * blockDim.x + threadIdx.x;
    if (own < count) to[own] = table[own % 8] + offset + own;
}

#ifdef ONLY_MACHINE_CODE

TEST(a_program_without_ptx_is_told_so) {
    OnDevice<int> values(64);
    fill<<<1, 64>>>(values.data(), 64);
    EXPECT_CODE(cudaGetLastError(), cudaErrorNoKernelImageForDevice, cudaErrorInvalidDeviceFunction,
                cudaErrorUnsupportedPtxVersion);
    EXPECT_CODE(cudaDeviceSynchronize(), cudaSuccess);
}

#else

TEST(the_kernel_is_found_and_runs) {
    const int count = 1000, digits[] = {3, 1, 4, 1, 5, 9, 2, 6};
    OnDevice<int> values(count);
    fill<<<8, 128>>>(values.data(), count);
    REQUIRE(cudaGetLastError());
    const std::vector<int> got = values.to_host();
    for (int at = 0; at < count; at++) EXPECT_EQUAL(got[at], digits[at % 8] + 5 + at);
}

#endif

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
