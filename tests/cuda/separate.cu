// Separate compilation: three files whose device code is linked when it is loaded. Each has static
// names that the others have, too.
#include "separate.h"
#include "harness.h"
#include "printed.h"

namespace {

__device__ int number = 10;
__constant__ int table[2] = {1, 2};
__device__ __noinline__ int local(int x) { return x + 1; }

__global__ void kernel(int *out, float *weight) {
    out[0] = in_two(5);
    out[1] = local(5) + number + table[1];
    out[2] = tripled(7);
    out[3] = in_three(3);
    Square square(10);
    const Shape *shape = &square;
    out[4] = shape->area();
    out[5] = chosen(20);
    out[6] = of_header()++;
    out[7] = sum_to(int(out[6]));
    *weight = weights[2];
    atomicAdd(&counter, 1);
    number++;
}

__global__ void prints() { printf("one %d\n", prints_in_three(1)); }

struct Memory {
    int *out = nullptr;
    int host[8] = {};
    Memory() {
        cudaMalloc(&out, sizeof host);
        cudaMemset(out, 0, sizeof host);
    }
    ~Memory() { cudaFree(out); }
    cudaError_t fetch() { return cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost); }
};

TEST(a_kernel_uses_functions_and_variables_of_other_files) {
    Memory memory;
    float *weight = nullptr, got = 0;
    REQUIRE(cudaMalloc(&weight, sizeof(float)));
    const float given[4] = {1, 2, 3.5f, 4};
    REQUIRE(cudaMemcpyToSymbol(weights, given, sizeof given));
    kernel<<<1, 1>>>(memory.out, weight);
    REQUIRE(cudaGetLastError());
    REQUIRE(memory.fetch());
    REQUIRE(cudaMemcpy(&got, weight, sizeof got, cudaMemcpyDeviceToHost));
    const int wanted[8] = {5 * 2 + 1000 + 20 + 9, 5 + 1 + 10 + 2, 21, 3 * 7 + 30, 100, 21, 5, 15};
    for (int i = 0; i < 8; i++) EXPECT_EQUAL(memory.host[i], wanted[i]);
    EXPECT(got == 3.5f);
    REQUIRE(cudaFree(weight));
}

TEST(kernels_of_other_files_see_the_same_variables) {
    Memory memory;
    run_two(memory.out);
    REQUIRE(cudaGetLastError());
    REQUIRE(memory.fetch());
    // The first case has added 1 to both.
    EXPECT_EQUAL(memory.host[0], 2);
    EXPECT_EQUAL(memory.host[1], 21);
    EXPECT_EQUAL(memory.host[2], 6);
    run_three(memory.out);
    REQUIRE(memory.fetch());
    EXPECT_EQUAL(memory.host[0], 30);
    EXPECT_EQUAL(memory.host[1], 10);
    int here = 0;
    REQUIRE(cudaMemcpyFromSymbol(&here, counter, sizeof here));
    EXPECT_EQUAL(here, 2);
    EXPECT_EQUAL(counter_in_three(), 2);
}

TEST(static_variables_of_one_name_are_apart_for_the_host) {
    int here[2] = {};
    REQUIRE(cudaMemcpyFromSymbol(here, table, sizeof here));
    EXPECT(here[0] == 1 && here[1] == 2);
    REQUIRE(cudaMemcpyFromSymbol(here, number, sizeof number));
    EXPECT_EQUAL(here[0], 11);
}

TEST(files_print_with_texts_of_their_own) {
    const std::string text = printed([] {
        prints<<<1, 1>>>();
        cudaDeviceSynchronize();
    });
    EXPECT(text == "three 1\none 2\n");
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
