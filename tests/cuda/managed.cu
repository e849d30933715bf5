// Memory that host and kernels use at the same address: cudaMallocManaged and pinned memory. Where
// the program shares no memory with the device, the calls are refused by name, and the attributes
// say so.
#include "harness.h"

#include <string>
#include <vector>

#include <unistd.h>

namespace {

// A node on a Unix socket shares its memory with this program, and one that is reached over TCP
// does not.
bool is_shared() {
    const char *nodes = std::getenv("PENSTOCK_NODES");
    return nodes == nullptr || std::strstr(nodes, "tcp:") == nullptr;
}

int attribute(cudaDeviceAttr which) {
    int value = -1;
    cudaDeviceGetAttribute(&value, which, 0);
    return value;
}

__global__ void add(int count, const float *x, float *y) {
    const int stride = blockDim.x * gridDim.x;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += stride)
        y[at] = x[at] + y[at];
}

struct Node {
    int value;
    Node *next;
};
struct Pair {
    int count;
    int *from;
    int *to;
};

__global__ void fill(int *values, int count, int value) {
    const int stride = blockDim.x * gridDim.x;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += stride)
        values[at] = value;
}

__global__ void copy_all(int count, const int *from, int *to) {
    const int stride = blockDim.x * gridDim.x;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += stride)
        to[at] = from[at];
}

__global__ void walk(Node *first, int *sum) {
    int total = 0;
    for (Node *node = first; node != nullptr; node = node->next) {
        total += node->value;
        node->value = -node->value;
    }
    *sum = total;
}

__global__ void twice(Pair *pair) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < pair->count) pair->to[at] = 2 * pair->from[at];
}

// Takes long enough that a copy which does not wait for it finds the old values.
__global__ void late(int *values, int count, int value) {
    volatile int *delayed = values;
    for (int round = 0; round < 200000; round++) delayed[0] = round;
    for (int at = 0; at < count; at++) values[at] = value + at;
}

__global__ void answer(volatile int *question) {
    while (question[0] == 0) {}
    question[1] = question[0] + 1;
}

// What the process writes to standard error during `work`.
template <typename Work> std::string errors_of(Work work) {
    std::fflush(stderr);
    std::FILE *file = std::tmpfile();
    const int before = dup(2);
    dup2(fileno(file), 2);
    work();
    dup2(before, 2);
    close(before);
    std::rewind(file);
    std::string text;
    char piece[256];
    while (std::fgets(piece, sizeof piece, file) != nullptr) text += piece;
    std::fclose(file);
    return text;
}

bool has(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

template <typename T> T *managed(std::size_t count) {
    T *memory = nullptr;
    if (cudaMallocManaged(&memory, count * sizeof(T)) != cudaSuccess) {
        harness::failed(__FILE__, __LINE__, "no managed memory");
        std::exit(1);
    }
    return memory;
}

TEST(attributes_say_what_is_there) {
    const int shared = is_shared();
    EXPECT_EQUAL(attribute(cudaDevAttrManagedMemory), shared);
    EXPECT_EQUAL(attribute(cudaDevAttrConcurrentManagedAccess), shared);
    EXPECT_EQUAL(attribute(cudaDevAttrUnifiedAddressing), shared);
    EXPECT_EQUAL(attribute(cudaDevAttrDirectManagedMemAccessFromHost), shared);
    EXPECT_EQUAL(attribute(cudaDevAttrCanMapHostMemory), shared);
    EXPECT_EQUAL(attribute(cudaDevAttrPageableMemoryAccess), 0);
    EXPECT_EQUAL(attribute(cudaDevAttrCanUseHostPointerForRegisteredMem), 0);
    cudaDeviceProp properties;
    REQUIRE(cudaGetDeviceProperties(&properties, 0));
    EXPECT_EQUAL(properties.managedMemory, shared);
    EXPECT_EQUAL(properties.unifiedAddressing, shared);
}

TEST(apart_what_is_not_there_is_refused_by_name) {
    void *memory = nullptr;
    REQUIRE(cudaFree(nullptr));
    const std::string said = errors_of([&] {
        for (int round = 0; round < 3; round++)
            EXPECT_CODE(cudaMallocManaged(&memory, 1024), cudaErrorNotSupported);
    });
    EXPECT_CODE(cudaGetLastError(), cudaErrorNotSupported);
    EXPECT(memory == nullptr);
    EXPECT(has(said, "cudaMallocManaged") && has(said, "device 0") && has(said, "TCP") &&
           has(said, "cudaMalloc and copies"));
    EXPECT(said.find('\n') == said.size() - 1);
    OnDevice<int> plain(256);
    const cudaMemLocation place = {cudaMemLocationTypeDevice, 0};
    const std::string more = errors_of([&] {
        EXPECT_CODE(cudaMemPrefetchAsync(plain.data(), 1024, place, 0, nullptr),
                    cudaErrorNotSupported);
    });
    EXPECT(has(more, "cudaMemPrefetchAsync"));
    (void)cudaGetLastError();
}

TEST(shared_the_introduction_to_cuda_computes) {
    // 64 MiB.
    const int count = 16 << 20;
    float *x = managed<float>(count), *y = managed<float>(count);
    EXPECT(x[0] == 0 && y[count - 1] == 0);
    for (int at = 0; at < count; at++) {
        x[at] = 1.0f;
        y[at] = 2.0f;
    }
    add<<<256, 256>>>(count, x, y);
    REQUIRE(cudaDeviceSynchronize());
    int wrong = 0;
    for (int at = 0; at < count; at++) wrong += y[at] != 3.0f;
    EXPECT_EQUAL(wrong, 0);
    REQUIRE(cudaFree(x));
    REQUIRE(cudaFree(y));
}

TEST(shared_host_and_kernels_take_turns) {
    const int count = 5000;
    float *x = managed<float>(count), *y = managed<float>(count);
    for (int round = 0; round < 20; round++) {
        for (int at = 0; at < count; at++) {
            x[at] = float(at);
            if (round % 2 == 0) y[at] = float(round);
        }
        const float before = y[7];
        add<<<(count + 63) / 64, 64>>>(count, x, y);
        REQUIRE(round % 3 == 0 ? cudaStreamSynchronize(nullptr) : cudaDeviceSynchronize());
        EXPECT(y[7] == before + 7);
        EXPECT(y[count - 1] - y[0] == float(count - 1) * (round % 2 + 1));
    }
    REQUIRE(cudaFree(x));
    REQUIRE(cudaFree(y));
}

TEST(shared_two_streams_have_their_parts) {
    const int count = 10000;
    float *x = managed<float>(count), *y = managed<float>(count);
    for (int at = 0; at < count; at++) x[at] = y[at] = float(at);
    cudaStream_t streams[2];
    for (cudaStream_t &stream : streams) {
        REQUIRE(cudaStreamCreate(&stream));
        REQUIRE(cudaStreamAttachMemAsync(stream, y, 0, cudaMemAttachSingle));
    }
    const int half = count / 2;
    for (int round = 0; round < 5; round++)
        for (int one = 0; one < 2; one++)
            add<<<8, 64, 0, streams[one]>>>(half, x + one * half, y + one * half);
    // The host reads one part while the other stream may still work.
    REQUIRE(cudaStreamSynchronize(streams[1]));
    EXPECT(y[half] == 6.0f * half && y[count - 1] == 6.0f * (count - 1));
    REQUIRE(cudaStreamSynchronize(streams[0]));
    EXPECT(y[1] == 6.0f && y[half - 1] == 6.0f * (half - 1));
    for (cudaStream_t stream : streams) REQUIRE(cudaStreamDestroy(stream));
    REQUIRE(cudaFree(x));
    REQUIRE(cudaFree(y));
}

TEST(shared_structures_hold_managed_pointers) {
    Pair *pair = managed<Pair>(1);
    *pair = {300, managed<int>(300), managed<int>(300)};
    for (int at = 0; at < 300; at++) pair->from[at] = at;
    twice<<<5, 64>>>(pair);
    REQUIRE(cudaDeviceSynchronize());
    EXPECT(pair->to[0] == 0 && pair->to[299] == 598);
    // The host exchanges the pointers.
    std::swap(pair->from, pair->to);
    twice<<<5, 64>>>(pair);
    REQUIRE(cudaDeviceSynchronize());
    EXPECT(pair->to[299] == 1196);
    REQUIRE(cudaFree(pair->from));
    REQUIRE(cudaFree(pair->to));
    REQUIRE(cudaFree(pair));
}

TEST(shared_kernels_walk_lists_that_the_host_has_built) {
    Node *first = nullptr;
    for (int value = 1; value <= 2000; value++) {
        Node *node = managed<Node>(1);
        *node = {value, first};
        first = node;
    }
    int *sum = managed<int>(1);
    walk<<<1, 1>>>(first, sum);
    REQUIRE(cudaDeviceSynchronize());
    EXPECT_EQUAL(*sum, 2000 * 2001 / 2);
    EXPECT_EQUAL(first->value, -2000);
    while (first != nullptr) {
        Node *next = first->next;
        REQUIRE(cudaFree(first));
        first = next;
    }
    REQUIRE(cudaFree(sum));
}

TEST(shared_copies_take_managed_memory_on_both_sides) {
    const int count = 1000;
    const std::size_t bytes = count * sizeof(int);
    int *shared = managed<int>(count), *other = managed<int>(count);
    std::vector<int> plain(count);
    OnDevice<int> device(count);
    for (const cudaMemcpyKind kind :
         {cudaMemcpyDefault, cudaMemcpyHostToDevice, cudaMemcpyDeviceToDevice}) {
        late<<<1, 1>>>(shared, count, 100 + kind);
        REQUIRE(cudaMemcpy(device.data(), shared, bytes, kind));
        plain = device.to_host();
        EXPECT(plain[0] == 100 + kind && plain[999] == 1099 + kind);
        late<<<1, 1>>>(shared, count, 200 + kind);
        REQUIRE(cudaMemcpyAsync(device.data(), shared, bytes, kind));
        shared[0] = shared[0];
        plain = device.to_host();
        EXPECT(plain[1] == 201 + kind && plain[999] == 1199 + kind);
    }
    for (const cudaMemcpyKind kind :
         {cudaMemcpyDefault, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice}) {
        late<<<1, 1>>>(device.data(), count, 300 + kind);
        REQUIRE(cudaMemcpy(shared, device.data(), bytes, kind));
        EXPECT(shared[0] == 300 + kind && shared[999] == 1299 + kind);
        late<<<1, 1>>>(device.data(), count, 400 + kind);
        REQUIRE(cudaMemcpyAsync(other, device.data(), bytes, kind));
        REQUIRE(cudaStreamSynchronize(nullptr));
        EXPECT(other[0] == 400 + kind && other[999] == 1399 + kind);
    }
    for (const cudaMemcpyKind kind :
         {cudaMemcpyDefault, cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
          cudaMemcpyDeviceToDevice}) {
        late<<<1, 1>>>(shared, count, 500 + kind);
        REQUIRE(cudaMemcpy(other, shared, bytes, kind));
        EXPECT(other[0] == 500 + kind && other[999] == 1499 + kind);
    }
    for (int at = 0; at < count; at++) plain[at] = at;
    REQUIRE(cudaMemcpy(shared, plain.data(), bytes, cudaMemcpyHostToDevice));
    EXPECT_EQUAL(shared[999], 999);
    REQUIRE(cudaMemcpy(plain.data(), other, bytes, cudaMemcpyDeviceToHost));
    EXPECT_EQUAL(plain[999], other[999]);
    REQUIRE(cudaMemcpy(other, shared + 1, 4, cudaMemcpyHostToHost));
    EXPECT_EQUAL(other[0], 1);
    // Rows: 10 of 40 bytes from rows of 400.
    REQUIRE(cudaMemcpy2D(other, 40, shared, 400, 40, 10, cudaMemcpyDefault));
    EXPECT(other[0] == 0 && other[10] == 100 && other[99] == 909);
    REQUIRE(cudaMemcpy2DAsync(device.data(), 40, shared, 400, 40, 10, cudaMemcpyHostToDevice));
    EXPECT_EQUAL(device.to_host()[99], 909);
    REQUIRE(cudaMemset(shared, 1, bytes));
    EXPECT_EQUAL(shared[999], 0x01010101);
    EXPECT_CODE(cudaMemcpy(device.data(), shared, bytes + 4, cudaMemcpyDeviceToDevice),
                cudaErrorInvalidValue);
    (void)cudaGetLastError();
    REQUIRE(cudaFree(shared));
    REQUIRE(cudaFree(other));
}

TEST(shared_what_follows_an_asynchronous_copy_sees_its_bytes) {
    // Rows that are far apart, and large enough that they are not there at once.
    constexpr int rows = 512, width = 4096, count = rows * width;
    OnDevice<int> source(count), seen(count);
    int *pinned = nullptr;
    REQUIRE(cudaMallocHost(&pinned, count * sizeof(int)));
    cudaStream_t stream;
    REQUIRE(cudaStreamCreate(&stream));
    for (int round = 1; round <= 5; round++) {
        fill<<<64, 256>>>(source.data(), count, round);
        REQUIRE(cudaDeviceSynchronize());
        // The stream has nothing to do.
        REQUIRE(cudaMemcpy2DAsync(pinned, width * sizeof(int), source.data(), width * sizeof(int),
                                  width * sizeof(int), rows, cudaMemcpyDeviceToHost, stream));
        copy_all<<<64, 256, 0, stream>>>(count, pinned, seen.data());
        REQUIRE(cudaStreamSynchronize(stream));
        int wrong = 0;
        for (const int value : seen.to_host()) wrong += value != round;
        EXPECT_EQUAL(wrong, 0);
    }
    REQUIRE(cudaStreamDestroy(stream));
    REQUIRE(cudaFreeHost(pinned));
}

TEST(shared_a_kernel_sees_what_the_host_stores_while_it_runs) {
    volatile int *question = managed<int>(2);
    answer<<<1, 1>>>(question);
    REQUIRE(cudaMemPrefetchAsync((const void *)question, 8, {cudaMemLocationTypeHost, 0}, 0, 0));
    question[0] = 41;
    REQUIRE(cudaDeviceSynchronize());
    EXPECT_EQUAL(question[1], 42);
    REQUIRE(cudaFree((void *)question));
}

TEST(shared_advice_is_remembered) {
    char *memory = managed<char>(100000);
    const cudaMemLocation device = {cudaMemLocationTypeDevice, 0},
                          host = {cudaMemLocationTypeHost, 0};
    const auto ask = [&](cudaMemRangeAttribute which, std::size_t from, std::size_t bytes) {
        int value = -9;
        EXPECT_CODE(cudaMemRangeGetAttribute(&value, sizeof value, which, memory + from, bytes),
                    cudaSuccess);
        return value;
    };
    EXPECT_EQUAL(ask(cudaMemRangeAttributePreferredLocation, 0, 100000), -2);
    REQUIRE(cudaMemAdvise(memory, 50000, cudaMemAdviseSetReadMostly, device));
    REQUIRE(cudaMemAdvise(memory, 100000, cudaMemAdviseSetPreferredLocation, host));
    REQUIRE(cudaMemAdvise(memory, 100000, cudaMemAdviseSetAccessedBy, device));
    REQUIRE(cudaMemPrefetchAsync(memory, 100000, device, 0, nullptr));
    EXPECT_EQUAL(ask(cudaMemRangeAttributeReadMostly, 0, 50000), 1);
    EXPECT_EQUAL(ask(cudaMemRangeAttributeReadMostly, 0, 50001), 0);
    EXPECT_EQUAL(ask(cudaMemRangeAttributePreferredLocation, 9, 9), -1);
    EXPECT_EQUAL(ask(cudaMemRangeAttributeAccessedBy, 9, 9), 0);
    EXPECT_EQUAL(ask(cudaMemRangeAttributeLastPrefetchLocation, 0, 100000), 0);
    int users[2] = {9, 9}, mostly = 9;
    void *data[] = {users, &mostly};
    std::size_t rooms[] = {sizeof users, sizeof mostly};
    cudaMemRangeAttribute which[] = {cudaMemRangeAttributeAccessedBy,
                                     cudaMemRangeAttributeReadMostly};
    REQUIRE(cudaMemRangeGetAttributes(data, rooms, which, 2, memory, 100));
    EXPECT(users[0] == 0 && users[1] == -2 && mostly == 1);
    // Only managed memory, and only places that exist.
    OnDevice<int> plain(10);
    EXPECT_CODE(cudaMemPrefetchAsync(plain.data(), 40, device, 0, 0), cudaErrorInvalidValue);
    EXPECT_CODE(cudaMemPrefetchAsync(memory, 100001, device, 0, 0), cudaErrorInvalidValue);
    EXPECT_CODE(cudaMemPrefetchAsync(memory, 100, {cudaMemLocationTypeDevice, 77}, 0, 0),
                cudaErrorInvalidDevice);
    EXPECT_CODE(cudaStreamAttachMemAsync(nullptr, memory, 0, cudaMemAttachSingle),
                cudaErrorInvalidValue);
    EXPECT_CODE(cudaStreamAttachMemAsync(nullptr, memory + 1, 0, cudaMemAttachHost),
                cudaErrorInvalidValue);
    REQUIRE(cudaStreamAttachMemAsync(nullptr, memory, 100000, cudaMemAttachGlobal));
    (void)cudaGetLastError();
    REQUIRE(cudaFree(memory));
}

TEST(shared_pointers_are_described) {
    char *memory = managed<char>(5000), *pinned = nullptr;
    REQUIRE(cudaMallocHost(&pinned, 5000));
    cudaPointerAttributes attributes;
    REQUIRE(cudaPointerGetAttributes(&attributes, memory + 4999));
    EXPECT(attributes.type == cudaMemoryTypeManaged && attributes.device == 0);
    EXPECT(attributes.devicePointer == memory + 4999 && attributes.hostPointer == memory + 4999);
    REQUIRE(cudaPointerGetAttributes(&attributes, pinned + 7));
    EXPECT(attributes.type == cudaMemoryTypeHost);
    EXPECT(attributes.devicePointer == pinned + 7 && attributes.hostPointer == pinned + 7);
    OnDevice<char> plain(10);
    REQUIRE(cudaPointerGetAttributes(&attributes, plain.data()));
    EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.hostPointer == nullptr);
    // Each kind is freed by its own function, once.
    EXPECT_CODE(cudaFreeHost(memory), cudaErrorInvalidValue);
    EXPECT_CODE(cudaFree(pinned), cudaErrorInvalidValue);
    EXPECT_CODE(cudaFree(memory + 1), cudaErrorInvalidValue);
    REQUIRE(cudaFree(memory));
    REQUIRE(cudaFreeHost(pinned));
    EXPECT_CODE(cudaFree(memory), cudaErrorInvalidValue);
    REQUIRE(cudaPointerGetAttributes(&attributes, memory));
    EXPECT(attributes.type == cudaMemoryTypeUnregistered);
    EXPECT_CODE(cudaMallocManaged(&memory, 0), cudaErrorInvalidValue);
    EXPECT_CODE(cudaMallocManaged(&memory, 8, 7), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

TEST(shared_freed_memory_is_used_again_and_is_clear) {
    std::size_t before = 0, after = 0, total = 0;
    REQUIRE(cudaMemGetInfo(&before, &total));
    for (const std::size_t bytes : {std::size_t(100), std::size_t(70000), std::size_t(3) << 20})
        for (int round = 0; round < 30; round++) {
            unsigned char *memory = managed<unsigned char>(bytes);
            EXPECT(memory[0] == 0 && memory[bytes / 2] == 0 && memory[bytes - 1] == 0);
            memory[0] = memory[bytes / 2] = memory[bytes - 1] = 9;
            REQUIRE(cudaFree(memory));
        }
    REQUIRE(cudaMemGetInfo(&after, &total));
    EXPECT_EQUAL(after, before);
}

TEST(kernels_use_pinned_memory_where_addresses_are_unified) {
    const int count = 1000;
    int *pinned = nullptr, *seen = nullptr;
    REQUIRE(cudaMallocHost(&pinned, count * sizeof(int)));
    const cudaError_t code = cudaHostGetDevicePointer(&seen, pinned, 0);
    if (attribute(cudaDevAttrUnifiedAddressing) == 0) {
        EXPECT_CODE(code, cudaErrorNotSupported);
        (void)cudaGetLastError();
        REQUIRE(cudaFreeHost(pinned));
        return;
    }
    REQUIRE(code);
    EXPECT(seen == pinned);
    for (const unsigned flags : {cudaHostAllocDefault, cudaHostAllocPortable, cudaHostAllocMapped,
                                 cudaHostAllocWriteCombined}) {
        int *memory = nullptr;
        REQUIRE(cudaHostAlloc(&memory, count * sizeof(int), flags));
        late<<<1, 1>>>(memory, count, 5);
        REQUIRE(cudaDeviceSynchronize());
        EXPECT(memory[0] == 5 && memory[999] == 1004);
        REQUIRE(cudaFreeHost(memory));
    }
    // Copies from it find what kernels have stored.
    OnDevice<int> device(count);
    late<<<1, 1>>>(pinned, count, 10);
    REQUIRE(cudaMemcpy(device.data(), pinned, count * sizeof(int), cudaMemcpyHostToDevice));
    EXPECT_EQUAL(device.to_host()[999], 1009);
    late<<<1, 1>>>(pinned, count, 20);
    REQUIRE(cudaMemcpyAsync(device.data(), pinned, count * sizeof(int), cudaMemcpyHostToDevice));
    EXPECT_EQUAL(device.to_host()[999], 1019);
    late<<<1, 1>>>(device.data(), count, 30);
    REQUIRE(cudaMemcpyAsync(pinned, device.data(), count * sizeof(int), cudaMemcpyDeviceToHost));
    REQUIRE(cudaDeviceSynchronize());
    EXPECT_EQUAL(pinned[999], 1029);
    std::vector<int> plain(count);
    late<<<1, 1>>>(pinned, count, 40);
    REQUIRE(cudaMemcpy(plain.data(), pinned, count * sizeof(int), cudaMemcpyHostToHost));
    EXPECT_EQUAL(plain[999], 1039);
    // The manual's exception: registered memory has no address for kernels here, and the attribute
    // says so.
    REQUIRE(cudaHostRegister(plain.data(), count * sizeof(int), cudaHostRegisterDefault));
    EXPECT_CODE(cudaHostGetDevicePointer(&seen, plain.data(), 0), cudaErrorNotSupported);
    (void)cudaGetLastError();
    REQUIRE(cudaHostUnregister(plain.data()));
    REQUIRE(cudaFreeHost(pinned));
}

// A device that keeps its memory to itself: the host may not touch what cudaMalloc returns.
FORKED_TEST(the_host_cannot_use_memory_of_the_device) {
    OnDevice<int> device(1 << 16);
    const pid_t child = fork();
    if (child == 0) {
        volatile int *memory = device.data();
        memory[1 << 15] = 1;
        _exit(0);
    }
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

FORKED_TEST(a_kernel_that_writes_to_plain_memory_fails) {
    int *plain = static_cast<int *>(std::calloc(1 << 18, sizeof(int)));
    const std::string said = errors_of([&] {
        late<<<1, 1>>>(plain, 10, 1);
        EXPECT_CODE(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    });
    EXPECT(has(said, "late") && has(said, "SIGSEGV") && has(said, "PENSTOCK_CHECK=1"));
    int *memory = nullptr;
    EXPECT_CODE(cudaMalloc(&memory, 4), cudaErrorIllegalAddress);
    EXPECT_EQUAL(plain[5], 0);
}

} // namespace

// Cases of the other kind of pool have nothing to look at here.
int main(int argc, char **argv) {
    harness::keep_unless(is_shared() ? "apart_" : "shared_");
    return harness::run_tests(argc, argv);
}
