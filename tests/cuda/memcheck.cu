// Faults of kernels are found, have the right code, and persist. Addresses are checked if
// PENSTOCK_CHECK=1. Each fault breaks its context permanently, so each case has its own process.
#include "harness.h"

#include <cassert>

namespace {

__global__ void write_at(int *to, long at) { to[at] = 5; }
__global__ void read_at(int *to, const int *from, long at) { *to = from[at]; }
__global__ void write_misaligned(char *to, int by) { *reinterpret_cast<int *>(to + by) = 5; }
__global__ void trap_if(int value) {
    if (value == 1) __trap();
}
__global__ void assert_not(int value) { assert(value != 1); }

bool checked() {
    const char *const value = std::getenv("PENSTOCK_CHECK");
    return value != nullptr && std::strcmp(value, "1") == 0;
}

// The next call that waits reports the fault, and so do all calls behind it.
void expect_fault(cudaError_t code) {
    EXPECT_CODE(cudaGetLastError(), cudaSuccess);
    EXPECT_CODE(cudaDeviceSynchronize(), code);
    void *memory = nullptr;
    EXPECT_CODE(cudaMalloc(&memory, 16), code);
    EXPECT_CODE(cudaDeviceSynchronize(), code);
}

FORKED_TEST(a_write_far_from_everything_is_illegal) {
    if (!checked()) SKIP("PENSTOCK_CHECK is not 1");
    write_at<<<1, 1>>>(nullptr, 1000);
    expect_fault(cudaErrorIllegalAddress);
}

FORKED_TEST(a_write_to_memory_of_the_host_is_illegal) {
    if (!checked()) SKIP("PENSTOCK_CHECK is not 1");
    static int value = 0;
    write_at<<<1, 1>>>(&value, 0);
    expect_fault(cudaErrorIllegalAddress);
    EXPECT_EQUAL(value, 0);
}

FORKED_TEST(a_write_behind_an_allocation_is_illegal) {
    if (!checked()) SKIP("PENSTOCK_CHECK is not 1");
    OnDevice<int> memory(256);
    write_at<<<1, 1>>>(memory.data(), 1 << 24);
    expect_fault(cudaErrorIllegalAddress);
}

FORKED_TEST(a_read_of_freed_memory_is_illegal) {
    if (!checked()) SKIP("PENSTOCK_CHECK is not 1");
    int *memory = nullptr;
    OnDevice<int> to(1);
    REQUIRE(cudaMalloc(reinterpret_cast<void **>(&memory), 1 << 16));
    REQUIRE(cudaMemset(memory, 0, 1 << 16));
    REQUIRE(cudaFree(memory));
    read_at<<<1, 1>>>(to.data(), memory, 100);
    expect_fault(cudaErrorIllegalAddress);
}

FORKED_TEST(a_misaligned_write_is_found) {
    if (!checked()) SKIP("PENSTOCK_CHECK is not 1");
    OnDevice<char> memory(64);
    write_misaligned<<<1, 1>>>(memory.data(), 2);
    expect_fault(cudaErrorMisalignedAddress);
}

FORKED_TEST(what_stays_inside_is_not_disturbed) {
    OnDevice<int> memory(64);
    write_at<<<1, 1>>>(memory.data(), 0);
    write_at<<<1, 1>>>(memory.data(), 63);
    REQUIRE(cudaDeviceSynchronize());
    EXPECT_EQUAL(memory.to_host()[0], 5);
    EXPECT_EQUAL(memory.to_host()[63], 5);
}

FORKED_TEST(a_trap_ends_the_context) {
    trap_if<<<2, 32>>>(1);
    expect_fault(cudaErrorLaunchFailure);
}

FORKED_TEST(a_trap_that_is_not_reached_does_nothing) {
    trap_if<<<2, 32>>>(0);
    REQUIRE(cudaDeviceSynchronize());
}

FORKED_TEST(an_assertion_that_fails_is_reported) {
    assert_not<<<2, 32>>>(1);
    expect_fault(cudaErrorAssert);
}

FORKED_TEST(an_assertion_that_holds_does_nothing) {
    assert_not<<<2, 32>>>(0);
    REQUIRE(cudaDeviceSynchronize());
}

FORKED_TEST(a_device_that_is_reset_works_again) {
    trap_if<<<1, 1>>>(1);
    EXPECT_CODE(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    if (cudaDeviceReset() != cudaSuccess)
        SKIP("cudaDeviceReset() does not repair a broken context here");
    (void)cudaGetLastError();
    OnDevice<int> memory(1);
    write_at<<<1, 1>>>(memory.data(), 0);
    REQUIRE(cudaDeviceSynchronize());
    EXPECT_EQUAL(memory.to_host()[0], 5);
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
