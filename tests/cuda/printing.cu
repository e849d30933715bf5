// printf() in kernels: the text appears on standard output, in order, at the next synchronisation.
#include "harness.h"
#include "printed.h"

namespace {

void expect_text(const std::string &got, const std::string &wanted) {
    if (got != wanted)
        harness::failed(__FILE__, __LINE__, "printed \"" + got + "\", not \"" + wanted + "\"");
}

__global__ void formats(float value) {
    printf("int %d %5d|%-5d|%05d|%+d %u %x %X %o\n", -42, 7, 7, 7, 7, 3000000000U, 0xbeefU, 0xbeefU,
           8U);
    printf("long %lld %llu %llx\n", -5000000000LL, 18000000000000000000ULL, 0x123456789abcdefULL);
    printf("float %f %.3f %8.2f|%e %g %a\n", value, value, value, value, value, 0.5);
    printf("char %c string %s|%8s|%-8s| percent %% none\n", 'x', "text", "right", "left");
    printf("width %*d|%-*d|%6.2f\n", 6, 42, 6, 42, 3.14159);
}

TEST(each_format_is_written_as_by_the_c_library) {
    char wanted[1024];
    int used = std::snprintf(wanted, sizeof wanted, "int %d %5d|%-5d|%05d|%+d %u %x %X %o\n", -42,
                             7, 7, 7, 7, 3000000000U, 0xbeefU, 0xbeefU, 8U);
    used += std::snprintf(wanted + used, sizeof wanted - used, "long %lld %llu %llx\n",
                          -5000000000LL, 18000000000000000000ULL, 0x123456789abcdefULL);
    used += std::snprintf(wanted + used, sizeof wanted - used, "float %f %.3f %8.2f|%e %g %a\n",
                          2.5, 2.5, 2.5, 2.5, 2.5, 0.5);
    used += std::snprintf(wanted + used, sizeof wanted - used,
                          "char %c string %s|%8s|%-8s| percent %% none\n", 'x', "text", "right",
                          "left");
    std::snprintf(wanted + used, sizeof wanted - used, "width %*d|%-*d|%6.2f\n", 6, 42, 6, 42,
                  3.14159);
    expect_text(printed([] {
                    formats<<<1, 1>>>(2.5F);
                    cudaDeviceSynchronize();
                }),
                wanted);
}

__global__ void count_up(int threads);
__global__ void too_few() { printf("50% done\n"); }

TEST(a_format_that_asks_for_more_than_was_passed_harms_nobody) {
    const std::string text = printed([] {
        too_few<<<1, 1>>>();
        EXPECT_EQUAL(static_cast<int>(cudaDeviceSynchronize()), static_cast<int>(cudaSuccess));
        count_up<<<1, 1>>>(1);
        cudaDeviceSynchronize();
    });
    EXPECT(text.find("0:0:2\n") != std::string::npos);
}

__global__ void count_up(int threads) {
    for (int round = 0; round < 3; round++)
        if (static_cast<int>(threadIdx.x) < threads)
            printf("%d:%d:%d\n", blockIdx.x, threadIdx.x, round);
}

TEST(every_thread_prints_its_lines_in_its_order) {
    const std::string text = printed([] {
        count_up<<<3, 8>>>(5);
        cudaDeviceSynchronize();
    });
    int next[3][5] = {}, lines = 0, place = 0, block = 0, thread = 0, round = 0, length = 0;
    while (std::sscanf(text.c_str() + place, "%d:%d:%d\n%n", &block, &thread, &round, &length) ==
           3) {
        if (block < 0 || block > 2 || thread < 0 || thread > 4)
            return harness::failed(__FILE__, __LINE__, "a line that nobody printed");
        EXPECT_EQUAL(round, next[block][thread]++);
        place += length;
        lines++;
    }
    EXPECT_EQUAL(lines, 45);
}

__global__ void count_results(int *results) { *results = printf("%d and %d\n", 1, 2); }

TEST(output_comes_before_that_of_the_host_after_a_synchronisation) {
    OnDevice<int> results(1);
    expect_text(printed([&] {
                    count_results<<<1, 1>>>(results.data());
                    cudaDeviceSynchronize();
                    std::printf("host\n");
                    count_results<<<1, 1>>>(results.data());
                    cudaStreamSynchronize(nullptr);
                    std::printf("host again\n");
                }),
                "1 and 2\nhost\n1 and 2\nhost again\n");
    // CUDA's printf returns the number of arguments, not of characters.
    EXPECT_EQUAL(results.to_host()[0], 2);
}

__global__ void flood(int lines) {
    for (int line = 0; line < lines; line++)
        printf("line %d of thread %d with some more text to fill the ring\n", line, threadIdx.x);
}

TEST(more_output_than_the_buffer_holds_is_cut_and_nothing_hangs) {
    std::size_t limit = 0;
    REQUIRE(cudaDeviceGetLimit(&limit, cudaLimitPrintfFifoSize));
    EXPECT(limit > 0);
    const std::string text = printed([] {
        flood<<<8, 64>>>(200);
        cudaDeviceSynchronize();
    });
    std::size_t lines = 0;
    for (const char letter : text) lines += letter == '\n';
    EXPECT(lines > 100 && lines <= 8U * 64 * 200);
    expect_text(printed([] {
                    count_up<<<1, 1>>>(1);
                    cudaDeviceSynchronize();
                }),
                "0:0:0\n0:0:1\n0:0:2\n");
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
