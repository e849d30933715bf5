// Programs with several devices: each device has its own memory and context, programs copy from one
// device to another, and the environment chooses devices.
#include "harness.h"
#include "slow.h"

#include <thread>

namespace {

__global__ void fill(int *to, int value, int count) {
    const int own = blockIdx.x * blockDim.x + threadIdx.x;
    if (own < count) to[own] = value + own;
}

int device_count() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

TEST(each_device_keeps_its_own_memory) {
    const int devices = device_count(), count = 10'000;
    std::vector<int *> memory(devices);
    for (int device = 0; device < devices; device++) {
        REQUIRE(cudaSetDevice(device));
        REQUIRE(cudaMalloc(reinterpret_cast<void **>(&memory[device]), count * sizeof(int)));
        fill<<<100, 100>>>(memory[device], device * 1000, count);
        REQUIRE(cudaGetLastError());
    }
    for (int device = devices - 1; device >= 0; device--) {
        std::vector<int> got(count);
        cudaPointerAttributes attributes{};
        // The memory is not on the current device: the pointer identifies its device.
        REQUIRE(
            cudaMemcpy(got.data(), memory[device], count * sizeof(int), cudaMemcpyDeviceToHost));
        EXPECT_EQUAL(got[count - 1], device * 1000 + count - 1);
        REQUIRE(cudaPointerGetAttributes(&attributes, memory[device]));
        EXPECT_EQUAL(attributes.device, device);
        REQUIRE(cudaSetDevice(device));
        REQUIRE(cudaFree(memory[device]));
    }
    REQUIRE(cudaSetDevice(0));
}

TEST(threads_have_their_own_current_device) {
    const int devices = device_count();
    std::vector<int> seen(devices, -1);
    std::vector<std::thread> threads;
    for (int device = 0; device < devices; device++)
        threads.emplace_back([&, device] {
            if (cudaSetDevice(device) == cudaSuccess) cudaGetDevice(&seen[device]);
        });
    for (std::thread &thread : threads) thread.join();
    for (int device = 0; device < devices; device++) EXPECT_EQUAL(seen[device], device);
    int own = -1;
    REQUIRE(cudaGetDevice(&own));
    EXPECT_EQUAL(own, 0);
}

TEST(data_goes_from_device_to_device) {
    if (device_count() < 2) SKIP("there is one device only: run with --on two");
    const int count = 1 << 20;
    int *first = nullptr, *second = nullptr;
    REQUIRE(cudaSetDevice(1));
    REQUIRE(cudaMalloc(reinterpret_cast<void **>(&second), count * sizeof(int)));
    REQUIRE(cudaMemset(second, 0, count * sizeof(int)));
    REQUIRE(cudaDeviceSynchronize());
    REQUIRE(cudaSetDevice(0));
    REQUIRE(cudaMalloc(reinterpret_cast<void **>(&first), count * sizeof(int)));
    fill<<<count / 256, 256>>>(first, 5, count);
    // The copy follows the kernel without a wait.
    REQUIRE(cudaMemcpyPeer(second, 1, first, 0, count * sizeof(int)));
    std::vector<int> got(count);
    REQUIRE(cudaMemcpy(got.data(), second, count * sizeof(int), cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int at = 0; at < count; at++) wrong += got[at] != 5 + at;
    EXPECT_EQUAL(wrong, 0);

    // And back again, with changed content.
    REQUIRE(cudaSetDevice(1));
    fill<<<count / 256, 256>>>(second, 9, count);
    REQUIRE(cudaDeviceSynchronize());
    REQUIRE(cudaMemcpyPeerAsync(first, 0, second, 1, count * sizeof(int), nullptr));
    REQUIRE(cudaDeviceSynchronize());
    REQUIRE(cudaMemcpy(got.data(), first, count * sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT_EQUAL(got[count - 1], 9 + count - 1);
    REQUIRE(cudaFree(second));
    REQUIRE(cudaFree(first));
    REQUIRE(cudaSetDevice(0));
}

// The synchronous copy to the first device ends the program's wait for the kernel, also for a
// stream of the second device that waits for nobody.
TEST(a_copy_to_another_device_follows_work_that_the_program_has_waited_for) {
    if (device_count() < 2) SKIP("there is one device only: run with --on two");
    const int other = 3;
    cudaStream_t stream = nullptr;
    REQUIRE(cudaSetDevice(1));
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OnDevice<int> target(1);
    REQUIRE(cudaSetDevice(0));
    OnDevice<int> source(1), second(1);
    store_slowly<<<1, 1>>>(source.data(), 7);
    REQUIRE(cudaMemcpy(second.data(), &other, 4, cudaMemcpyHostToDevice));
    REQUIRE(cudaSetDevice(1));
    REQUIRE(cudaMemcpyPeerAsync(target.data(), 1, source.data(), 0, 4, stream));
    REQUIRE(cudaStreamSynchronize(stream));
    EXPECT_EQUAL(target.to_host()[0], 7);
    REQUIRE(cudaStreamDestroy(stream));
    REQUIRE(cudaSetDevice(0));
}

TEST(a_device_does_not_reach_into_another) {
    if (device_count() < 2) SKIP("there is one device only: run with --on two");
    int can = -1;
    REQUIRE(cudaDeviceCanAccessPeer(&can, 0, 1));
    if (can == 1) SKIP("these devices can access each other");
    EXPECT_CODE(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessUnsupported);
    (void)cudaGetLastError();
}

FORKED_TEST(no_device_is_visible_where_the_environment_names_none) {
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    int count = -1;
    EXPECT_CODE(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    void *memory = nullptr;
    EXPECT_CODE(cudaMalloc(&memory, 16), cudaErrorNoDevice);
}

FORKED_TEST(the_environment_chooses_and_orders_devices) {
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    EXPECT_EQUAL(device_count(), 1);
    OnDevice<int> memory(10);
    fill<<<1, 10>>>(memory.data(), 1, 10);
    EXPECT_EQUAL(memory.to_host()[9], 10);
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
