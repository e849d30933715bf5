// The guarantees of copies: when the program may reuse its memory, and that every byte arrives.
#include "harness.h"
#include "slow.h"

#include <dlfcn.h>
#include <sys/mman.h>

namespace {

// Around the sizes at which the way of a copy changes: in the message, in one piece, in several.
const std::vector<std::size_t> sizes{
    1, 3, 63, 64, 4095, 4096, 65535, 65537, 1 << 20, (5 << 20) + 3, 16 << 20};

std::vector<unsigned char> pattern(std::size_t size, unsigned seed) {
    std::vector<unsigned char> bytes(size);
    for (std::size_t at = 0; at < size; at++)
        bytes[at] = static_cast<unsigned char>((at * 131 + seed) ^ (at >> 9));
    return bytes;
}

__global__ void flip(unsigned char *bytes, std::size_t count) {
    const std::size_t threads = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += threads)
        bytes[at] ^= 0x5a;
}

__global__ void advance(unsigned char *values, std::size_t count) {
    for (std::size_t at = blockIdx.x * blockDim.x + threadIdx.x; at < count;
         at += gridDim.x * blockDim.x)
        values[at] += 1;
}

__global__ void delay(int *sink, int rounds) {
    unsigned value = threadIdx.x;
    for (int round = 0; round < rounds; round++) value = value * 1664525U + 1013904223U;
    if (value == 1) *sink = 1;
}

TEST(every_size_goes_there_and_back) {
    for (const std::size_t size : sizes) {
        const std::vector<unsigned char> bytes = pattern(size, 1);
        OnDevice<unsigned char> memory(bytes);
        flip<<<16, 64>>>(memory.data(), size);
        std::vector<unsigned char> got = memory.to_host();
        for (unsigned char &byte : got) byte ^= 0x5a;
        if (got != bytes) harness::failed(__FILE__, __LINE__, "size " + std::to_string(size));
    }
}

TEST(pageable_memory_may_be_changed_as_soon_as_a_copy_returns) {
    OnDevice<int> sink(1);
    for (const std::size_t size : sizes) {
        const std::vector<unsigned char> bytes = pattern(size, 2);
        for (const bool async : {false, true}) {
            OnDevice<unsigned char> memory(size);
            std::vector<unsigned char> source = bytes;
            // The device is busy when the copy is requested.
            delay<<<1, 1>>>(sink.data(), 2'000'000);
            REQUIRE(async ? cudaMemcpyAsync(memory.data(), source.data(), size,
                                            cudaMemcpyHostToDevice, nullptr)
                          : cudaMemcpy(memory.data(), source.data(), size, cudaMemcpyHostToDevice));
            std::memset(source.data(), 0xee, size);
            if (memory.to_host() != bytes)
                harness::failed(__FILE__, __LINE__,
                                "size " + std::to_string(size) + (async ? ", asynchronous" : ""));
        }
    }
}

TEST(a_read_into_pageable_memory_is_complete_when_it_returns) {
    for (const std::size_t size : sizes) {
        const std::vector<unsigned char> bytes = pattern(size, 3);
        OnDevice<unsigned char> memory(bytes);
        for (const bool async : {false, true}) {
            std::vector<unsigned char> got(size);
            flip<<<16, 64>>>(memory.data(), size);
            flip<<<16, 64>>>(memory.data(), size);
            REQUIRE(async ? cudaMemcpyAsync(got.data(), memory.data(), size, cudaMemcpyDeviceToHost,
                                            nullptr)
                          : cudaMemcpy(got.data(), memory.data(), size, cudaMemcpyDeviceToHost));
            if (got != bytes)
                harness::failed(__FILE__, __LINE__,
                                "size " + std::to_string(size) + (async ? ", asynchronous" : ""));
        }
    }
}

TEST(pinned_memory_is_copied_in_the_order_of_the_stream) {
    constexpr std::size_t size = 4 << 20;
    const std::vector<unsigned char> bytes = pattern(size, 4);
    unsigned char *host = nullptr;
    REQUIRE(cudaMallocHost(reinterpret_cast<void **>(&host), size));
    std::memcpy(host, bytes.data(), size);
    OnDevice<unsigned char> memory(size);
    cudaStream_t stream{};
    REQUIRE(cudaStreamCreate(&stream));
    for (int round = 0; round < 5; round++) {
        REQUIRE(cudaMemcpyAsync(memory.data(), host, size, cudaMemcpyHostToDevice, stream));
        advance<<<16, 64, 0, stream>>>(memory.data(), size);
        REQUIRE(cudaMemcpyAsync(host, memory.data(), size, cudaMemcpyDeviceToHost, stream));
    }
    REQUIRE(cudaStreamSynchronize(stream));
    // Each round starts with the result of the round before in the program's memory.
    bool right = true;
    for (std::size_t at = 0; at < size; at++)
        right &= host[at] == static_cast<unsigned char>(bytes[at] + 5);
    EXPECT(right);
    REQUIRE(cudaStreamDestroy(stream));

    cudaPointerAttributes attributes{};
    REQUIRE(cudaPointerGetAttributes(&attributes, host + 100));
    EXPECT_EQUAL(static_cast<int>(attributes.type), static_cast<int>(cudaMemoryTypeHost));
    REQUIRE(cudaPointerGetAttributes(&attributes, memory.data() + 5));
    EXPECT_EQUAL(static_cast<int>(attributes.type), static_cast<int>(cudaMemoryTypeDevice));
    REQUIRE(cudaFreeHost(host));
}

// "For transfers from pageable host memory to device memory, a stream sync is performed before the
// copy is initiated."
TEST(a_synchronous_copy_from_pageable_memory_follows_all_work_of_its_stream) {
    int *pinned = nullptr, *pitched = nullptr, *mapped = nullptr;
    std::size_t pitch = 0;
    REQUIRE(cudaMallocHost(&pinned, sizeof(int)));
    REQUIRE(cudaMallocPitch(&pitched, &pitch, 4, 4));
    cudaStream_t blocking = nullptr;
    REQUIRE(cudaStreamCreate(&blocking));
    OnDevice<int> memory(1), first(1), second(1);
    const int other = 3, others[4] = {1, 2, 3, 4};
    const auto read_slowly = [&](int value, cudaStream_t stream) {
        store_slowly<<<1, 1, 0, stream>>>(memory.data(), value);
        return cudaMemcpyAsync(pinned, memory.data(), 4, cudaMemcpyDeviceToHost, stream);
    };
    const auto write = [&](OnDevice<int> &to, cudaStream_t stream) {
        return cudaMemcpyAsync(to.data(), &other, 4, cudaMemcpyHostToDevice, stream);
    };

    // The runtime's own function waits for the stream once more.
    using Write = cudaError_t(int *, const int *, std::size_t);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = driver == nullptr ? nullptr : dlsym(driver, "cuMemcpyHtoD_v2_ptds");
    if (found == nullptr) return harness::failed(__FILE__, __LINE__, "no cuMemcpyHtoD_v2_ptds");
    const auto write_by_driver = reinterpret_cast<Write *>(found);

    REQUIRE(read_slowly(1, nullptr));
    REQUIRE(cudaMemcpy(first.data(), &other, 4, cudaMemcpyHostToDevice));
    EXPECT_EQUAL(*pinned, 1);
    REQUIRE(read_slowly(2, nullptr));
    REQUIRE(cudaMemcpy2D(pitched, pitch, others, 4, 4, 4, cudaMemcpyHostToDevice));
    EXPECT_EQUAL(*pinned, 2);
    // The legacy default stream waits for the blocking stream already.
    REQUIRE(read_slowly(3, blocking));
    REQUIRE(write(first, nullptr));
    REQUIRE(cudaMemcpy(second.data(), &other, 4, cudaMemcpyHostToDevice));
    EXPECT_EQUAL(*pinned, 3);
    // The thread's stream waits for the legacy default stream, which waits for the blocking stream.
    REQUIRE(read_slowly(4, blocking));
    REQUIRE(write(first, nullptr));
    REQUIRE(write(second, cudaStreamPerThread));
    REQUIRE(write_by_driver(second.data(), &other, 4));
    EXPECT_EQUAL(*pinned, 4);
    // A kernel writes memory of the program, where it can.
    if (cudaHostGetDevicePointer(&mapped, pinned, 0) == cudaSuccess) {
        store_slowly<<<1, 1>>>(mapped, 5);
        REQUIRE(cudaMemcpy(first.data(), &other, 4, cudaMemcpyHostToDevice));
        EXPECT_EQUAL(*pinned, 5);
    }
    (void)cudaGetLastError();
    EXPECT_EQUAL(second.to_host()[0], other);
    REQUIRE(cudaStreamDestroy(blocking));
    REQUIRE(cudaFree(pitched));
    REQUIRE(cudaFreeHost(pinned));
}

TEST(parts_are_copied_within_the_device_and_by_default_direction) {
    const std::vector<unsigned char> bytes = pattern(100'000, 5);
    OnDevice<unsigned char> from(bytes), to(bytes.size());
    REQUIRE(cudaMemcpy(to.data() + 77, from.data() + 1234, 50'001, cudaMemcpyDeviceToDevice));
    std::vector<unsigned char> got(bytes.size());
    REQUIRE(cudaMemcpy(got.data(), to.data(), got.size(), cudaMemcpyDefault));
    EXPECT(std::memcmp(&got[77], &bytes[1234], 50'001) == 0);
    EXPECT_EQUAL(static_cast<int>(got[76]), 0);
    EXPECT_EQUAL(static_cast<int>(got[77 + 50'001]), 0);
    REQUIRE(cudaMemcpy(to.data(), bytes.data(), 4'000, cudaMemcpyDefault));
    REQUIRE(cudaMemcpy(got.data(), to.data(), 4'000, cudaMemcpyDeviceToHost));
    EXPECT(std::memcmp(got.data(), bytes.data(), 4'000) == 0);
}

TEST(memory_is_filled_by_bytes_and_by_rows) {
    constexpr std::size_t width = 37, height = 11;
    unsigned char *memory = nullptr;
    std::size_t pitch = 0;
    REQUIRE(cudaMallocPitch(reinterpret_cast<void **>(&memory), &pitch, width, height));
    EXPECT(pitch >= width && pitch % 32 == 0);
    REQUIRE(cudaMemset(memory, 9, pitch * height));
    REQUIRE(cudaMemset2D(memory + 2, pitch, 200, width - 4, height - 1));
    std::vector<unsigned char> got(pitch * height);
    REQUIRE(cudaMemcpy(got.data(), memory, got.size(), cudaMemcpyDeviceToHost));
    for (std::size_t y = 0; y < height; y++)
        for (std::size_t x = 0; x < pitch; x++)
            EXPECT_EQUAL(static_cast<int>(got[y * pitch + x]),
                         x >= 2 && x < width - 2 && y + 1 < height ? 200 : 9);
    REQUIRE(cudaFree(memory));
}

TEST(rectangles_keep_their_shape) {
    constexpr std::size_t width = 50, height = 20, host_pitch = 64;
    const std::vector<unsigned char> bytes = pattern(host_pitch * height, 6);
    unsigned char *memory = nullptr;
    std::size_t pitch = 0;
    REQUIRE(cudaMallocPitch(reinterpret_cast<void **>(&memory), &pitch, width, height));
    REQUIRE(cudaMemcpy2D(memory, pitch, bytes.data(), host_pitch, width, height,
                         cudaMemcpyHostToDevice));
    std::vector<unsigned char> got(host_pitch * height, 1);
    REQUIRE(
        cudaMemcpy2D(got.data(), host_pitch, memory, pitch, width, height, cudaMemcpyDeviceToHost));
    for (std::size_t y = 0; y < height; y++) {
        EXPECT(std::memcmp(&got[y * host_pitch], &bytes[y * host_pitch], width) == 0);
        for (std::size_t x = width; x < host_pitch; x++)
            EXPECT_EQUAL(static_cast<int>(got[y * host_pitch + x]), 1);
    }

    cudaArray_t array{};
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned char>();
    REQUIRE(cudaMallocArray(&array, &format, width, height));
    REQUIRE(
        cudaMemcpy2DToArray(array, 0, 0, memory, pitch, width, height, cudaMemcpyDeviceToDevice));
    std::memset(got.data(), 0, got.size());
    REQUIRE(cudaMemcpy2DFromArray(got.data(), host_pitch, array, 10, 3, width - 10, height - 3,
                                  cudaMemcpyDeviceToHost));
    for (std::size_t y = 0; y + 3 < height; y++)
        EXPECT(std::memcmp(&got[y * host_pitch], &bytes[(y + 3) * host_pitch + 10], width - 10) ==
               0);
    REQUIRE(cudaFreeArray(array));
    REQUIRE(cudaFree(memory));
}

TEST(memory_of_the_program_can_be_registered) {
    constexpr std::size_t size = 1 << 20;
    void *const pages =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(cudaHostRegister(pages, size, cudaHostRegisterDefault));
    EXPECT_CODE(cudaHostRegister(pages, size, cudaHostRegisterDefault),
                cudaErrorHostMemoryAlreadyRegistered);
    (void)cudaGetLastError();
    std::memset(pages, 3, size);
    OnDevice<unsigned char> memory(size);
    REQUIRE(cudaMemcpyAsync(memory.data(), pages, size, cudaMemcpyHostToDevice, nullptr));
    flip<<<16, 64>>>(memory.data(), size);
    REQUIRE(cudaMemcpyAsync(pages, memory.data(), size, cudaMemcpyDeviceToHost, nullptr));
    REQUIRE(cudaDeviceSynchronize());
    const unsigned char *const got = static_cast<unsigned char *>(pages);
    EXPECT(got[0] == (3 ^ 0x5a) && got[size - 1] == (3 ^ 0x5a));
    REQUIRE(cudaHostUnregister(pages));
    EXPECT_CODE(cudaHostUnregister(pages), cudaErrorHostMemoryNotRegistered);
    (void)cudaGetLastError();
    munmap(pages, size);
}

TEST(host_memory_that_is_mapped_needs_no_copies) {
    const std::size_t count = 100'000;
    cudaDeviceProp properties{};
    REQUIRE(cudaGetDeviceProperties(&properties, 0));
    unsigned char *host = nullptr, *seen = nullptr;
    REQUIRE(cudaHostAlloc(&host, count, cudaHostAllocMapped));
    if (!properties.canMapHostMemory) {
        EXPECT_CODE(cudaHostGetDevicePointer(&seen, host, 0), cudaErrorNotSupported);
        REQUIRE(cudaFreeHost(host));
        SKIP("the device has no memory that this process has mapped");
    }
    REQUIRE(cudaHostGetDevicePointer(&seen, host, 0));
    cudaPointerAttributes attributes{};
    REQUIRE(cudaPointerGetAttributes(&attributes, host));
    EXPECT(attributes.type == cudaMemoryTypeHost && attributes.devicePointer == seen);
    for (unsigned round = 0; round < 3; round++) {
        const std::vector<unsigned char> bytes = pattern(count, round);
        std::memcpy(host, bytes.data(), count);
        advance<<<16, 64>>>(seen, count);
        REQUIRE(cudaDeviceSynchronize());
        std::size_t wrong = 0;
        for (std::size_t at = 0; at < count; at++)
            wrong += host[at] != static_cast<unsigned char>(bytes[at] + 1);
        EXPECT_EQUAL(wrong, 0U);
    }
    REQUIRE(cudaFreeHost(host));
}

TEST(freed_memory_is_handed_out_again) {
    std::size_t free_before = 0, free_after = 0, total = 0;
    REQUIRE(cudaMemGetInfo(&free_before, &total));
    EXPECT(free_before <= total && total > 0);
    // A hundred alternating allocations of a sixteenth of the memory, at most 64 MiB.
    const std::size_t part = total / 16 < (64 << 20) ? total / 16 : 64 << 20;
    for (int round = 0; round < 100; round++) {
        void *first = nullptr, *second = nullptr;
        REQUIRE(cudaMalloc(&first, part));
        REQUIRE(cudaMalloc(&second, part / 3 + 1));
        EXPECT(reinterpret_cast<std::size_t>(first) % 256 == 0 &&
               reinterpret_cast<std::size_t>(second) % 256 == 0);
        REQUIRE(cudaFree(first));
        REQUIRE(cudaFree(second));
    }
    REQUIRE(cudaMemGetInfo(&free_after, &total));
    EXPECT(free_after + (1 << 20) >= free_before);
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
