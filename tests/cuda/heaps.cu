// Symmetric heaps: kernels of two devices that store into each other's memory, signal, wait and
// meet at barriers, by ggas.h in CUDA C++ and the functions of penstock_cuda.h.
#include "harness.h"

#include <csignal>
#include <thread>

#include <ggas.h>
#include <penstock_cuda.h>

namespace {

constexpr unsigned pes = 2;
constexpr std::size_t heap_bytes = 1 << 20;
// Offsets in a part: signals, results, data.
constexpr std::size_t signal_at = 0, result_at = 4096, data_at = 8192;

struct penstock_heap_functions heaps;

// Every kernel here starts with this check. It does nothing without two PEs, which is also the case
// if the library's heaps have another version than ggas.h.
__device__ bool is_pair(ggas_t g) { return ggas_n_pes(g) == pes; }

// Returns a word of a message. No two messages have a word in common.
__host__ __device__ unsigned long long word(unsigned long long round, unsigned from,
                                            unsigned long long index) {
    return (round << 32 | from << 24 | index) * 0x9E3779B97F4A7C15ull;
}

// Sends `bytes` in both directions; the receiver checks each word. The result is the number of
// correct messages, or the status of a wait.
__global__ void ping_pong(ggas_heap_t *heap, unsigned long long rounds, unsigned long long bytes) {
    const ggas_t g = ggas_open(heap);
    if (!is_pair(g)) return;
    const unsigned me = ggas_my_pe(g), peer = 1 - me;
    const unsigned long long words = bytes / 8;
    unsigned long long *source = static_cast<unsigned long long *>(ggas_ptr(g, data_at, me));
    const unsigned long long *target =
        static_cast<const unsigned long long *>(ggas_ptr(g, data_at + bytes, me));
    long long *result = static_cast<long long *>(ggas_ptr(g, result_at, me));
    long long right = 0;
    for (unsigned long long round = 1; round <= rounds; round++) {
        for (unsigned turn = 0; turn < 2; turn++) {
            if (turn == me) {
                for (unsigned long long at = 0; at < words; at++) source[at] = word(round, me, at);
                const int status =
                    ggas_put_signal(g, data_at + bytes, data_at, bytes, signal_at, round, peer);
                if (status != GGAS_OK) {
                    *result = status;
                    return;
                }
            } else {
                const int status = ggas_wait_until(g, signal_at, GGAS_CMP_GE, round);
                if (status != GGAS_OK) {
                    *result = status;
                    return;
                }
                unsigned long long same = 0;
                for (unsigned long long at = 0; at < words; at++)
                    same += target[at] == word(round, peer, at);
                right += same == words;
            }
        }
    }
    *result = right;
}

// The same by all threads of a block, with the functions for blocks.
__global__ void block_puts(ggas_heap_t *heap, unsigned long long rounds, unsigned long long bytes) {
    __shared__ int scratch;
    __shared__ unsigned wrong;
    const ggas_t g = ggas_open(heap);
    if (!is_pair(g)) return;
    const unsigned me = ggas_my_pe(g), peer = 1 - me;
    const unsigned long long words = bytes / 8;
    unsigned long long *source = static_cast<unsigned long long *>(ggas_ptr(g, data_at, me));
    const unsigned long long *target =
        static_cast<const unsigned long long *>(ggas_ptr(g, data_at + bytes, me));
    long long *result = static_cast<long long *>(ggas_ptr(g, result_at, me));
    if (threadIdx.x == 0) wrong = 0;
    __syncthreads();
    int status = GGAS_OK;
    for (unsigned long long round = 1; round <= rounds && status == GGAS_OK; round++) {
        for (unsigned long long at = threadIdx.x; at < words; at += blockDim.x)
            source[at] = word(round, me, at);
        ggas_put_signal_wg(g, data_at + bytes, data_at, bytes, signal_at, round, peer);
        status = ggas_wait_until_wg(g, signal_at, GGAS_CMP_GE, round, &scratch);
        for (unsigned long long at = threadIdx.x; at < words; at += blockDim.x)
            if (status == GGAS_OK && target[at] != word(round, peer, at)) atomicAdd(&wrong, 1u);
        // No PE writes the next round's bytes before both have checked these.
        if (status == GGAS_OK) status = ggas_barrier_all(g);
    }
    if (threadIdx.x == 0)
        *result = status != GGAS_OK ? status : wrong == 0 ? static_cast<long long>(rounds) : -100;
}

// In each round every PE writes into every part, all meet, and all check the words. The blocks
// share the work, and the barrier is one of all blocks.
__global__ void barriers(ggas_heap_t *heap, unsigned long long rounds) {
    const ggas_t g = ggas_open(heap);
    if (!is_pair(g)) return;
    const unsigned me = ggas_my_pe(g), n = ggas_n_pes(g);
    long long good = 0;
    for (unsigned long long round = 1; round <= rounds; round++) {
        if (threadIdx.x == 0)
            for (unsigned pe = 0; pe < n; pe++)
                ggas_p64(g, data_at + 8 * (me * gridDim.x + blockIdx.x),
                         word(round, me, blockIdx.x), pe);
        if (ggas_barrier_all(g) != GGAS_OK) return;
        if (threadIdx.x == 0) {
            bool all = true;
            for (unsigned pe = 0; pe < n; pe++)
                for (unsigned block = 0; block < gridDim.x; block++)
                    all &= *static_cast<volatile unsigned long long *>(
                               ggas_ptr(g, data_at + 8 * (pe * gridDim.x + block), me)) ==
                           word(round, pe, block);
            good += all;
        }
        if (ggas_sync_all(g) != GGAS_OK) return;
    }
    if (threadIdx.x == 0) static_cast<long long *>(ggas_ptr(g, result_at, me))[blockIdx.x] = good;
}

// A team of the PE alone, a team of both PEs, and an invalid team.
__global__ void teams(ggas_heap_t *heap) {
    const ggas_t g = ggas_open(heap);
    if (!is_pair(g)) return;
    const unsigned me = ggas_my_pe(g);
    const ggas_team_t alone = ggas_team_split(g, 1, me, 1, 1),
                      both = ggas_team_split(g, 2, 0, 1, 2), none = ggas_team_split(g, 3, 1, 1, 2);
    long long good = 0;
    for (int round = 0; round < 100; round++) {
        good += ggas_barrier(g, alone) == GGAS_OK;
        good += ggas_barrier(g, both) == GGAS_OK;
        good += ggas_barrier(g, none) == GGAS_INVALID;
    }
    good += ggas_team_my_pe(g, both) == static_cast<int>(me) && ggas_team_my_pe(g, alone) == 0 &&
            ggas_team_n_pes(none) == 0;
    if (threadIdx.x == 0) *static_cast<long long *>(ggas_ptr(g, result_at, me)) = good;
}

// PE 0 waits for a signal that never comes; PE 1 ends at once.
__global__ void waits_in_vain(ggas_heap_t *heap) {
    const ggas_t g = ggas_open(heap);
    if (!is_pair(g)) return;
    long long *result = static_cast<long long *>(ggas_ptr(g, result_at, ggas_my_pe(g)));
    *result = ggas_my_pe(g) == 0 ? ggas_wait_until(g, signal_at + 64, GGAS_CMP_EQ, 77) : 1;
}

// Both wait for a signal that never comes.
__global__ void all_wait_in_vain(ggas_heap_t *heap) {
    const ggas_t g = ggas_open(heap);
    if (!is_pair(g)) return;
    *static_cast<long long *>(ggas_ptr(g, result_at, ggas_my_pe(g))) =
        ggas_wait_until(g, signal_at + 64, GGAS_CMP_EQ, 77);
}

// The heap beside ordinary memory in a structure, on one device alone.
struct Both {
    int *into;
    ggas_heap_t *heap;
    long long number;
};
__global__ void beside(Both both) {
    const ggas_t g = ggas_open(both.heap);
    if (!is_pair(g)) return;
    both.into[threadIdx.x] = static_cast<int>(threadIdx.x + both.number);
    if (threadIdx.x == 0) ggas_signal(g, signal_at + 128, both.number, 1 - ggas_my_pe(g));
    if (threadIdx.x == 0) ggas_quiet(g);
}

std::string named(CUresult code) {
    return "CUresult " + std::to_string(code) + " (" + heaps.text() + ")";
}

#define REQUIRE_CU(call)                                                             \
    do {                                                                             \
        const CUresult required = (call);                                            \
        if (required != CUDA_SUCCESS)                                                \
            return harness::failed(__FILE__, __LINE__,                               \
                                   std::string(#call) + " gave " + named(required)); \
    } while (0)
#define EXPECT_CU(call, wanted)                                                                    \
    do {                                                                                           \
        const CUresult got_code = (call);                                                          \
        if (got_code != (wanted))                                                                  \
            harness::failed(__FILE__, __LINE__,                                                    \
                            std::string(#call) + " gave " + named(got_code) + ", not " + #wanted); \
    } while (0)

// Bound of waits that end by themselves, in ms. PoCL compiles a kernel at its first launch, while
// the other PE waits. On a busy host that takes longer than the usual bound, and less than half of
// what the program may take.
constexpr unsigned PATIENCE_MS = 120'000;

// A heap over the first two devices, with the launches on it.
class Pair {
  public:
    explicit Pair(unsigned timeout_ms = PATIENCE_MS, int force_proxy = 0) {
        const CUdevice devices[pes] = {0, 1};
        const penstockHeapOptions options = {timeout_ms, force_proxy};
        code = heaps.create(&heap, pes, devices, heap_bytes, &options);
    }
    ~Pair() {
        if (heap != nullptr) heaps.close(heap);
    }
    Pair(const Pair &) = delete;
    Pair &operator=(const Pair &) = delete;

    // Launches one kernel on both devices. `more` are its parameters behind the heap.
    CUresult launch(const void *kernel, unsigned blocks, unsigned threads,
                    std::vector<void *> more = {}, unsigned of = pes) {
        CUDA_LAUNCH_PARAMS launches[pes] = {};
        CUdeviceptr pointers[pes] = {};
        std::vector<std::vector<void *>> params(pes);
        for (unsigned pe = 0; pe < of; pe++) {
            CUfunction function = nullptr;
            if (cudaSetDevice(static_cast<int>(pe)) != cudaSuccess)
                return CUDA_ERROR_INVALID_DEVICE;
            if (cudaGetFuncBySymbol(reinterpret_cast<cudaFunction_t *>(&function), kernel) !=
                cudaSuccess)
                return CUDA_ERROR_NOT_FOUND;
            if (const CUresult failed = heaps.pointer(heap, pe, &pointers[pe])) return failed;
            params[pe] = more;
            params[pe].insert(params[pe].begin(), &pointers[pe]);
            launches[pe] = {function, blocks, 1, 1, threads, 1, 1, 0, nullptr, params[pe].data()};
        }
        return heaps.launch(heap, launches, of);
    }
    cudaError_t wait() {
        cudaError_t first = cudaSuccess;
        for (unsigned pe = 0; pe < pes; pe++) {
            cudaSetDevice(static_cast<int>(pe));
            const cudaError_t ended = cudaDeviceSynchronize();
            if (first == cudaSuccess) first = ended;
        }
        return first;
    }
    long long result(unsigned pe, unsigned block = 0) {
        long long value = -1000;
        heaps.read(heap, pe, result_at + 8 * block, &value, sizeof value);
        return value;
    }
    CUresult clear() {
        const std::vector<char> zeros(data_at);
        for (unsigned pe = 0; pe < pes; pe++)
            if (const CUresult failed = heaps.write(heap, pe, 0, zeros.data(), zeros.size()))
                return failed;
        return CUDA_SUCCESS;
    }

    penstockHeap heap = nullptr;
    CUresult code = CUDA_SUCCESS;
};

// Heaps need two separate devices and the library's functions.
bool can_not() {
    int count = 0;
    return cudaGetDeviceCount(&count) != cudaSuccess || count < 2 ||
           penstock_find_heap_functions(&heaps) != CUDA_SUCCESS;
}
#define NEEDS_TWO() \
    if (can_not()) SKIP("needs two devices of a pool: tests/cuda/run.sh --on two")

// Runs one work-group on both devices, whose kernel counts the correct rounds.
void all_rounds(Pair &both, const void *kernel, unsigned threads, unsigned long long rounds,
                std::vector<void *> more) {
    REQUIRE_CU(both.clear());
    REQUIRE_CU(both.launch(kernel, 1, threads, std::move(more)));
    REQUIRE(both.wait());
    for (unsigned pe = 0; pe < pes; pe++)
        EXPECT_EQUAL(both.result(pe), static_cast<long long>(rounds));
}

void ping_pong_on(Pair &both) {
    for (const unsigned long long bytes : {8ull, 256ull, 65'536ull}) {
        unsigned long long rounds = bytes > 1000 ? 20 : 100, size = bytes;
        all_rounds(both, reinterpret_cast<const void *>(ping_pong), 1, rounds, {&rounds, &size});
    }
}

TEST(messages_go_there_and_back_with_the_right_bytes) {
    NEEDS_TWO();
    Pair both;
    REQUIRE_CU(both.code);
    unsigned path = 99;
    REQUIRE_CU(heaps.path(both.heap, 0, 0, &path));
    EXPECT_EQUAL(path, static_cast<unsigned>(PENSTOCK_HEAP_OWN));
    ping_pong_on(both);
}

TEST(messages_go_by_the_proxy) {
    NEEDS_TWO();
    Pair both(PATIENCE_MS, 1);
    REQUIRE_CU(both.code);
    unsigned path = 99;
    REQUIRE_CU(heaps.path(both.heap, 0, 1, &path));
    if (path != PENSTOCK_HEAP_PROXY) SKIP("one process has both devices");
    ping_pong_on(both);
}

TEST(blocks_put_together_and_the_signal_comes_last) {
    NEEDS_TWO();
    Pair both;
    REQUIRE_CU(both.code);
    for (unsigned threads : {1u, 64u}) {
        unsigned long long rounds = 50, bytes = 8'200;
        all_rounds(both, reinterpret_cast<const void *>(block_puts), threads, rounds,
                   {&rounds, &bytes});
    }
}

TEST(barriers_keep_rounds_apart) {
    NEEDS_TWO();
    Pair both;
    REQUIRE_CU(both.code);
    unsigned long long rounds = 100;
    for (unsigned threads : {1u, 33u}) {
        all_rounds(both, reinterpret_cast<const void *>(barriers), threads, rounds, {&rounds});
    }
}

TEST(teams_meet_apart) {
    NEEDS_TWO();
    Pair both;
    REQUIRE_CU(both.code);
    REQUIRE_CU(both.launch(reinterpret_cast<const void *>(teams), 1, 4));
    REQUIRE(both.wait());
    for (unsigned pe = 0; pe < pes; pe++) EXPECT_EQUAL(both.result(pe), 301LL);
}

TEST(a_heap_is_one_parameter_among_others) {
    NEEDS_TWO();
    Pair both;
    REQUIRE_CU(both.code);
    REQUIRE(cudaSetDevice(0));
    CUdeviceptr pointer = 0;
    REQUIRE_CU(heaps.pointer(both.heap, 0, &pointer));
    OnDevice<int> numbers(64);
    // A normal launch on one device alone, between other normal ones.
    for (long long number = 1; number <= 3; number++) {
        beside<<<1, 64>>>({numbers.data(), reinterpret_cast<ggas_heap_t *>(pointer), number});
        REQUIRE(cudaGetLastError());
        const std::vector<int> got = numbers.to_host();
        for (int at = 0; at < 64; at++) EXPECT_EQUAL(got[at], at + static_cast<int>(number));
        long long signal = 0;
        REQUIRE_CU(heaps.read(both.heap, 1, signal_at + 128, &signal, sizeof signal));
        EXPECT_EQUAL(signal, number);
    }
}

TEST(the_host_reads_and_writes_parts) {
    NEEDS_TWO();
    Pair both;
    REQUIRE_CU(both.code);
    unsigned count = 0;
    std::size_t bytes = 0;
    REQUIRE_CU(heaps.size(both.heap, &count, &bytes));
    EXPECT_EQUAL(count, pes);
    EXPECT_EQUAL(bytes, heap_bytes);
    std::vector<unsigned char> sent(heap_bytes), got(heap_bytes, 1);
    REQUIRE_CU(heaps.read(both.heap, 1, 0, got.data(), got.size()));
    EXPECT(got == sent);
    for (std::size_t at = 0; at < sent.size(); at++)
        sent[at] = static_cast<unsigned char>(at * 7 + at / 256);
    REQUIRE_CU(heaps.write(both.heap, 1, 0, sent.data(), sent.size()));
    REQUIRE_CU(heaps.read(both.heap, 1, 0, got.data(), got.size()));
    EXPECT(got == sent);
    REQUIRE_CU(heaps.read(both.heap, 0, 5, got.data(), 100));
    EXPECT(std::vector<unsigned char>(got.begin(), got.begin() + 100) ==
           std::vector<unsigned char>(100));
    EXPECT_CU(heaps.read(both.heap, 0, heap_bytes - 4, got.data(), 8), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(heaps.write(both.heap, 2, 0, got.data(), 8), CUDA_ERROR_INVALID_VALUE);
    // Its address is neither host memory nor device memory that a program could copy from.
    CUdeviceptr pointer = 0;
    REQUIRE_CU(heaps.pointer(both.heap, 1, &pointer));
    EXPECT_CODE(cudaMemcpy(got.data(), reinterpret_cast<void *>(pointer), 8, cudaMemcpyDefault),
                cudaErrorInvalidValue);
    EXPECT_CODE(
        cudaMemcpy(got.data(), reinterpret_cast<void *>(pointer), 8, cudaMemcpyDeviceToHost),
        cudaErrorInvalidValue);
}

TEST(what_can_not_run_together_is_refused_with_a_sentence) {
    NEEDS_TWO();
    Pair both;
    REQUIRE_CU(both.code);
    unsigned long long rounds = 1;
    // More blocks than any machine of the pool has cores.
    EXPECT_CU(both.launch(reinterpret_cast<const void *>(barriers), 100'000, 1, {&rounds}),
              CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    EXPECT(std::strstr(heaps.text(), "100000 work-groups") != nullptr);
    EXPECT_CU(both.launch(reinterpret_cast<const void *>(barriers), 1, 1, {&rounds}, 1),
              CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    EXPECT(std::strstr(heaps.text(), "PE 1") != nullptr);
    // A refused launch breaks nothing.
    REQUIRE_CU(both.launch(reinterpret_cast<const void *>(barriers), 1, 1, {&rounds}));
    REQUIRE(both.wait());
    EXPECT_EQUAL(both.result(0), 1LL);
    const CUdevice twice[] = {0, 0}, missing[] = {0, 999};
    penstockHeap heap = nullptr;
    EXPECT_CU(heaps.create(&heap, 2, twice, 4096, nullptr), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(std::strstr(heaps.text(), "twice") != nullptr);
    EXPECT_CU(heaps.create(&heap, 2, missing, 4096, nullptr), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CU(heaps.create(&heap, 0, nullptr, 4096, nullptr), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(heap == nullptr);
    EXPECT_CU(heaps.reset(nullptr), CUDA_ERROR_INVALID_HANDLE);
}

TEST(a_wait_ends_at_its_bound_and_a_reset_repairs) {
    NEEDS_TWO();
    Pair both(1'000);
    REQUIRE_CU(both.code);
    REQUIRE_CU(both.launch(reinterpret_cast<const void *>(waits_in_vain), 1, 1));
    const double began = harness::now_s();
    REQUIRE(both.wait());
    // A device's compiler may have run before.
    EXPECT(harness::now_s() - began < 20);
    EXPECT_EQUAL(both.result(0), static_cast<long long>(GGAS_TIMEOUT));
    EXPECT_EQUAL(both.result(1), 1LL);
    REQUIRE_CU(heaps.reset(both.heap));
    unsigned long long rounds = 20;
    REQUIRE_CU(both.launch(reinterpret_cast<const void *>(barriers), 1, 1, {&rounds}));
    REQUIRE(both.wait());
    EXPECT_EQUAL(both.result(0), 20LL);
}

TEST(an_abort_ends_all_waits_and_a_reset_repairs) {
    NEEDS_TWO();
    Pair both;
    REQUIRE_CU(both.code);
    int aborted = 99;
    REQUIRE_CU(heaps.aborted(both.heap, &aborted));
    EXPECT_EQUAL(aborted, 0);
    REQUIRE_CU(both.launch(reinterpret_cast<const void *>(all_wait_in_vain), 1, 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    REQUIRE_CU(heaps.abort(both.heap, "enough of it"));
    REQUIRE(both.wait());
    for (unsigned pe = 0; pe < pes; pe++)
        EXPECT_EQUAL(both.result(pe), static_cast<long long>(GGAS_ABORTED));
    REQUIRE_CU(heaps.aborted(both.heap, &aborted));
    EXPECT_EQUAL(aborted, 1);
    EXPECT(std::strstr(heaps.text(), "enough of it") != nullptr);
    REQUIRE_CU(heaps.reset(both.heap));
    REQUIRE_CU(heaps.aborted(both.heap, &aborted));
    EXPECT_EQUAL(aborted, 0);
    unsigned long long rounds = 20;
    REQUIRE_CU(both.launch(reinterpret_cast<const void *>(barriers), 1, 1, {&rounds}));
    REQUIRE(both.wait());
    EXPECT_EQUAL(both.result(1), 20LL);
}

TEST(heaps_come_and_go) {
    NEEDS_TWO();
    // More heaps than there is room for at a time.
    for (int time = 0; time < 70; time++) {
        Pair both;
        REQUIRE_CU(both.code);
        const long long number = time + 1;
        REQUIRE_CU(heaps.write(both.heap, 1, 0, &number, sizeof number));
        long long got = 0;
        REQUIRE_CU(heaps.read(both.heap, 1, 0, &got, sizeof got));
        EXPECT_EQUAL(got, number);
    }
    Pair both;
    REQUIRE_CU(both.code);
    const penstockHeap closed = both.heap;
    REQUIRE_CU(heaps.close(both.heap));
    both.heap = nullptr;
    EXPECT_CU(heaps.close(closed), CUDA_ERROR_INVALID_HANDLE);
}

// PENSTOCK_TEST_VICTIM is the process id of the daemon that has device 1; its end ends its worker.
// This is the last case, because the device is lost after it.
TEST(the_end_of_a_participant_ends_the_waits_of_the_others) {
    NEEDS_TWO();
    const char *victim = std::getenv("PENSTOCK_TEST_VICTIM");
    if (victim == nullptr) SKIP("PENSTOCK_TEST_VICTIM names no daemon: tests/cuda/run.sh --on two");
    Pair both;
    REQUIRE_CU(both.code);
    REQUIRE_CU(both.launch(reinterpret_cast<const void *>(all_wait_in_vain), 1, 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const double began = harness::now_s();
    EXPECT(kill(static_cast<pid_t>(std::atoi(victim)), SIGKILL) == 0);
    REQUIRE(cudaSetDevice(0));
    REQUIRE(cudaDeviceSynchronize());
    const double took = harness::now_s() - began;
    std::printf("  PE 0 was out after %.0f ms\n", took * 1000);
    EXPECT(took < 1);
    EXPECT_EQUAL(both.result(0), static_cast<long long>(GGAS_ABORTED));
    int aborted = 0;
    REQUIRE_CU(heaps.aborted(both.heap, &aborted));
    EXPECT_EQUAL(aborted, 1);
    EXPECT(std::strlen(heaps.text()) > 0);
    EXPECT_CU(heaps.reset(both.heap), CUDA_ERROR_DEVICE_UNAVAILABLE);
    REQUIRE(cudaSetDevice(1));
    EXPECT(cudaDeviceSynchronize() != cudaSuccess);
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
