// One of several clients that share a device. sharing.py starts the clients and evaluates the
// result.
//
//     sharing measure MS              prints the number of rounds that keep the device busy for MS
//     sharing steady SECONDS ROUNDS   keeps some launches under way
//     sharing queue SECONDS ROUNDS    keeps a queue of 100 launches
//     sharing short SECONDS ROUNDS    waits for each launch before the next one
//
// The first two print how many launches ended in each half second, the last one prints the median
// and the 99th percentile of the times of its calls.
//
// A client prints "ready" when it is ready, and starts when it reads a line.
#include "harness.h"

#include <algorithm>
#include <deque>

namespace {

constexpr int blocks = 16;
constexpr double slice_s = 0.5;

__global__ void work(unsigned *values, int rounds) {
    unsigned value = values[blockIdx.x];
    for (int round = 0; round < rounds; round++) value = value * 1664525U + 1013904223U;
    values[blockIdx.x] = value;
}

[[noreturn]] void fail(const char *what, cudaError_t code) {
    std::fprintf(stderr, "%s: %s\n", what, harness::named(code).c_str());
    std::exit(1);
}
void check(const char *what, cudaError_t code) {
    if (code != cudaSuccess) fail(what, code);
}

void launch(unsigned *values, int rounds) {
    work<<<blocks, 1>>>(values, rounds);
    check("launch", cudaGetLastError());
}

// Returns the number of rounds with which one launch keeps the device busy for about `wanted_s`.
// The shortest of five measurements counts.
int rounds_for(unsigned *values, double wanted_s) {
    for (int rounds = 1 << 12; rounds < 1 << 28; rounds *= 2) {
        double took = 1e9;
        for (int again = 0; again < 5; again++) {
            const double began = harness::now_s();
            launch(values, rounds);
            check("measuring", cudaDeviceSynchronize());
            took = std::min(took, harness::now_s() - began);
        }
        if (took > 0.01) return static_cast<int>(rounds * (wanted_s / took));
    }
    return 1 << 28;
}

// Keeps `depth` launches under way until the time is over. Prints the number of launches that ended
// in each slice of this time.
void keep_busy(unsigned *values, int rounds, std::size_t depth, double seconds) {
    std::deque<cudaEvent_t> under_way;
    std::vector<long> ended(static_cast<std::size_t>(seconds / slice_s));
    const double began = harness::now_s();
    while (harness::now_s() < began + seconds) {
        while (under_way.size() < depth) {
            cudaEvent_t event{};
            check("event", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
            launch(values, rounds);
            check("record", cudaEventRecord(event, nullptr));
            under_way.push_back(event);
        }
        check("wait", cudaEventSynchronize(under_way.front()));
        check("destroy", cudaEventDestroy(under_way.front()));
        under_way.pop_front();
        const auto slice = static_cast<std::size_t>((harness::now_s() - began) / slice_s);
        if (slice < ended.size()) ended[slice]++;
    }
    check("drain", cudaDeviceSynchronize());
    for (const cudaEvent_t event : under_way) check("destroy", cudaEventDestroy(event));
    for (const long count : ended) std::printf("ended %ld ", count);
    std::printf("\n");
}

void short_calls(unsigned *values, int rounds, double seconds) {
    std::vector<double> took_us;
    const double until = harness::now_s() + seconds;
    while (harness::now_s() < until) {
        const double began = harness::now_s();
        launch(values, rounds);
        check("wait", cudaDeviceSynchronize());
        took_us.push_back(1e6 * (harness::now_s() - began));
    }
    std::sort(took_us.begin(), took_us.end());
    std::printf("calls %zu p50_us %.1f p99_us %.1f\n", took_us.size(), took_us[took_us.size() / 2],
                took_us[took_us.size() * 99 / 100]);
}

} // namespace

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const std::string kind = argv[1];
    const double seconds = std::atof(argv[2]);
    const int rounds = argc > 3 ? std::atoi(argv[3]) : 1;
    OnDevice<unsigned> values(blocks);
    launch(values.data(), 1);
    check("first launch", cudaDeviceSynchronize());
    if (kind == "measure") {
        std::printf("rounds %d\n", rounds_for(values.data(), seconds / 1000));
        return 0;
    }
    std::printf("ready\n");
    std::fflush(stdout);
    if (std::getchar() == EOF) return 1;
    if (kind == "steady")
        keep_busy(values.data(), rounds, 8, seconds);
    else if (kind == "queue")
        keep_busy(values.data(), rounds, 100, seconds);
    else if (kind == "short")
        short_calls(values.data(), rounds, seconds);
    else
        return 2;
    return 0;
}
