// A small harness for tests of the CUDA libraries. A program registers cases with TEST(name) { ...
// } and ends with `return run_tests(argc, argv)`. FORKED_TEST(name) is a case with its own process,
// because it breaks its context or needs a library that nothing has used. Lines and summary have
// the format of the C tests: "NAME: 5 passed, 0 failed, 1 skipped".
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace harness {

struct Case {
    const char *name;
    void (*run)();
    bool forked;
};
struct State {
    std::vector<Case> cases;
    int failures = 0;
    bool skipped = false;
};
inline State &state() {
    static State all;
    return all;
}
struct Register {
    Register(const char *name, void (*run)(), bool forked) {
        state().cases.push_back({name, run, forked});
    }
};

inline void failed(const char *file, int line, const std::string &what) {
    std::printf("  FAIL %s:%d: %s\n", file, line, what.c_str());
    state().failures++;
}
inline void skip(const char *why) {
    std::printf("  skipped: %s\n", why);
    state().skipped = true;
}

inline std::string named(cudaError_t code) {
    return std::string(cudaGetErrorName(code)) + " (" + std::to_string(code) + ")";
}

inline void expect_code(cudaError_t got, std::vector<cudaError_t> wanted, const char *call,
                        const char *file, int line) {
    std::string names;
    for (const cudaError_t one : wanted) {
        if (got == one) return;
        names += (names.empty() ? "" : " or ") + named(one);
    }
    failed(file, line, std::string(call) + " gave " + named(got) + ", not " + names);
}

// A failure of the call ends the case, because the rest of the case depends on it.
#define REQUIRE(call)                                                                         \
    do {                                                                                      \
        const cudaError_t required = (call);                                                  \
        if (required != cudaSuccess)                                                          \
            return harness::failed(__FILE__, __LINE__,                                        \
                                   std::string(#call) + " gave " + harness::named(required)); \
    } while (0)
#define EXPECT(condition)                                                             \
    do {                                                                              \
        if (!(condition)) harness::failed(__FILE__, __LINE__, "not so: " #condition); \
    } while (0)
#define EXPECT_EQUAL(got, wanted)                                                               \
    do {                                                                                        \
        const auto got_value = (got);                                                           \
        const decltype(got_value) wanted_value = (wanted);                                      \
        if (!(got_value == wanted_value))                                                       \
            harness::failed(__FILE__, __LINE__,                                                 \
                            std::string(#got) + " is " + std::to_string(got_value) + ", not " + \
                                std::to_string(wanted_value));                                  \
    } while (0)
#define EXPECT_CODE(call, ...) \
    harness::expect_code((call), {__VA_ARGS__}, #call, __FILE__, __LINE__)
#define SKIP(why) return harness::skip(why)

#define TEST_AS(name, forked)                                            \
    static void name();                                                  \
    static const harness::Register register_##name(#name, name, forked); \
    static void name()
#define TEST(name) TEST_AS(name, false)
#define FORKED_TEST(name) TEST_AS(name, true)

inline double now_s() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

// Drops the cases whose names begin with a prefix, because they are for another kind of pool.
inline void keep_unless(const std::string &prefix) {
    std::vector<Case> kept;
    for (const Case &one : state().cases)
        if (std::string(one.name).compare(0, prefix.size(), prefix) != 0) kept.push_back(one);
    state().cases = kept;
}

// The outcome of a case, which is also the exit status of its process.
enum Ending { passed = 0, not_passed = 1, not_run = 77 };

inline Ending run_here(const Case &one) {
    state().failures = 0;
    state().skipped = false;
    one.run();
    return state().failures > 0 ? not_passed : state().skipped ? not_run : passed;
}

inline Ending run_forked(const Case &one) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        const int code = run_here(one);
        std::fflush(nullptr);
        // Not _exit(): the destructors of libraries must also run, and must survive a broken
        // context.
        std::exit(code);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) return not_passed;
    if (WIFSIGNALED(status)) {
        std::printf("  FAIL the case was ended by signal %d\n", WTERMSIG(status));
        return not_passed;
    }
    return static_cast<Ending>(WEXITSTATUS(status));
}

// Forked cases run first, because a process must fork before it uses CUDA. Arguments select cases
// by name.
inline int run_tests(int argc, char **argv) {
    const char *slash = std::strrchr(argv[0], '/'),
               *program = slash != nullptr ? slash + 1 : argv[0];
    int counts[3] = {};
    for (const bool forked : {true, false}) {
        for (const Case &one : state().cases) {
            bool wanted = argc == 1;
            for (int at = 1; at < argc; at++) wanted |= std::strcmp(argv[at], one.name) == 0;
            if (!wanted || one.forked != forked) continue;
            const double began = now_s();
            const Ending ending = forked ? run_forked(one) : run_here(one);
            const int column = ending == passed ? 0 : ending == not_run ? 2 : 1;
            counts[column]++;
            const char *const words[] = {"ok  ", "FAIL", "skip"};
            std::printf("  %s %s (%.2f s)\n", words[column], one.name, now_s() - began);
            std::fflush(stdout);
        }
    }
    std::printf("%s: %d passed, %d failed, %d skipped\n", program, counts[0], counts[1], counts[2]);
    return counts[1] > 0 ? 1 : counts[0] == 0 ? 77 : 0;
}

// Device memory that frees itself. If the allocation fails, the program ends, because no case can
// run.
template <typename T> class OnDevice {
  public:
    explicit OnDevice(std::size_t count) : count_(count) {
        const cudaError_t code = cudaMalloc(reinterpret_cast<void **>(&data_), count * sizeof(T));
        // cudaMemset() alone does not wait; after the synchronisation all streams see the zeros.
        if (code == cudaSuccess && cudaMemset(data_, 0, count * sizeof(T)) == cudaSuccess &&
            cudaDeviceSynchronize() == cudaSuccess)
            return;
        std::printf("  FAIL no device memory of %zu bytes: %s\n", count * sizeof(T),
                    named(code).c_str());
        std::exit(1);
    }
    explicit OnDevice(const std::vector<T> &values) : OnDevice(values.size()) {
        cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice);
    }
    ~OnDevice() { cudaFree(data_); }
    OnDevice(const OnDevice &) = delete;
    OnDevice &operator=(const OnDevice &) = delete;
    T *data() const { return data_; }
    std::vector<T> to_host() const {
        std::vector<T> values(count_);
        const cudaError_t code =
            cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost);
        if (code != cudaSuccess)
            failed(__FILE__, __LINE__, "reading device memory gave " + named(code));
        return values;
    }

  private:
    std::size_t count_;
    T *data_ = nullptr;
};

} // namespace harness

using harness::OnDevice;
