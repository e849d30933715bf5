// malloc(), free(), new and delete in kernels.
#include "harness.h"

namespace {

// A list that grows in one kernel, and is read and freed in others.
struct Entry {
    int value;
    Entry *next;
};

__global__ void push(Entry **lists, int count) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (int at = 0; at < count; at++) {
        Entry *const entry = static_cast<Entry *>(malloc(sizeof(Entry)));
        if (entry == nullptr) return;
        *entry = {thread * 100 + at, lists[thread]};
        lists[thread] = entry;
    }
}
__global__ void add(Entry *const *lists, int *sums) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (const Entry *entry = lists[thread]; entry != nullptr; entry = entry->next)
        sums[thread] += entry->value;
}
__global__ void pop(Entry **lists) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    while (Entry *const entry = lists[thread]) {
        lists[thread] = entry->next;
        free(entry);
    }
}

TEST(memory_lives_from_kernel_to_kernel) {
    const int threads = 192, count = 5;
    const OnDevice<Entry *> lists(threads);
    // More than there is at one time, if nothing is given back.
    for (int round = 0; round < 200; round++) {
        const OnDevice<int> sums(threads);
        push<<<3, 64>>>(lists.data(), count);
        add<<<3, 64>>>(lists.data(), sums.data());
        pop<<<3, 64>>>(lists.data());
        REQUIRE(cudaDeviceSynchronize());
        const std::vector<int> got = sums.to_host();
        for (int thread = 0; thread < threads; thread++)
            EXPECT_EQUAL(got[thread], thread * 100 * count + 10);
    }
}

struct Holder {
    __device__ explicit Holder(int size) : values(new int[size]) {
        for (int at = 0; at < size; at++) values[at] = size - at;
    }
    __device__ ~Holder() { delete[] values; }
    int *values;
};
__global__ void hold(int *results) {
    const int thread = threadIdx.x;
    Holder *const holder = new Holder(thread + 1);
    __syncthreads();
    results[thread] = holder->values[0] + holder->values[thread];
    delete holder;
}

TEST(objects_are_made_and_deleted) {
    const OnDevice<int> results(96);
    hold<<<1, 96>>>(results.data());
    REQUIRE(cudaDeviceSynchronize());
    const std::vector<int> got = results.to_host();
    for (int thread = 0; thread < 96; thread++) EXPECT_EQUAL(got[thread], thread + 2);
}

__global__ void take(void **blocks, size_t bytes) { blocks[threadIdx.x] = malloc(bytes); }

TEST(the_limit_is_what_a_kernel_gets) {
    size_t limit = 0;
    REQUIRE(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
    EXPECT_EQUAL(limit, size_t{8} << 20);
    const OnDevice<void *> block(1);
    take<<<1, 1>>>(block.data(), limit + 1);
    EXPECT(block.to_host()[0] == nullptr);
    take<<<1, 1>>>(block.data(), limit / 2);
    EXPECT(block.to_host()[0] != nullptr);
    // "must not be performed after launching any kernel that uses the malloc() or free() device
    // system calls"
    EXPECT_CODE(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1 << 20), cudaErrorInvalidValue);
}

__global__ void fill(unsigned **block, size_t count) {
    if (threadIdx.x == 0) *block = static_cast<unsigned *>(malloc(count * sizeof(unsigned)));
    __syncthreads();
    if (*block == nullptr) return;
    for (size_t at = threadIdx.x; at < count; at += blockDim.x) (*block)[at] = at * 2654435761u;
}
__global__ void compare(unsigned *const *block, size_t count, size_t *equal) {
    unsigned long long found = 0;
    for (size_t at = threadIdx.x; at < count; at += blockDim.x)
        found += (*block)[at] == static_cast<unsigned>(at * 2654435761u);
    atomicAdd(reinterpret_cast<unsigned long long *>(equal), found);
}

FORKED_TEST(a_raised_limit_is_what_a_kernel_gets) {
    const size_t raised = size_t{32} << 20, count = (size_t{20} << 20) / sizeof(unsigned);
    REQUIRE(cudaDeviceSetLimit(cudaLimitMallocHeapSize, raised));
    size_t limit = 0;
    REQUIRE(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
    EXPECT_EQUAL(limit, raised);
    const OnDevice<unsigned *> block(1);
    const OnDevice<size_t> equal(1);
    fill<<<1, 64>>>(block.data(), count);
    REQUIRE(cudaDeviceSynchronize());
    if (block.to_host()[0] == nullptr) {
        EXPECT(!"20 MiB of 32 MiB");
        return;
    }
    compare<<<1, 64>>>(block.data(), count, equal.data());
    REQUIRE(cudaDeviceSynchronize());
    EXPECT_EQUAL(equal.to_host()[0], count);
    // The rest is less than another 20 MiB.
    take<<<1, 1>>>(reinterpret_cast<void **>(block.data()), count * sizeof(unsigned));
    REQUIRE(cudaDeviceSynchronize());
    EXPECT(block.to_host()[0] == nullptr);
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
