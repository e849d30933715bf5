// Variables that host and kernels share (__managed__). Where the program shares no memory with the
// device, the module that has them is refused by name, and the host's accesses do no harm.
#include "harness.h"

#include <string>

#include <unistd.h>

namespace {

struct Settings {
    double factor;
    int *where;
    short small[3];
};

__managed__ int counter = 5;
__managed__ float table[1000] = {1, 2, 3};
__managed__ Settings settings;
__device__ int only_here = 70;

__global__ void work() {
    atomicAdd(&counter, 1);
    table[threadIdx.x + 10] = float(settings.factor) * threadIdx.x;
    if (threadIdx.x == 0) {
        *settings.where = only_here + settings.small[2];
        settings.small[1] = 9;
    }
}

bool is_shared() {
    const char *nodes = std::getenv("PENSTOCK_NODES");
    return nodes == nullptr || std::strstr(nodes, "tcp:") == nullptr;
}

TEST(shared_variables_have_one_value) {
    EXPECT(counter == 5 && table[2] == 3 && table[999] == 0 && settings.where == nullptr);
    int *where = nullptr;
    REQUIRE(cudaMallocManaged(&where, sizeof(int)));
    settings = {1.5, where, {1, 2, 3}};
    counter = 100;
    work<<<1, 64>>>();
    REQUIRE(cudaDeviceSynchronize());
    EXPECT_EQUAL(counter, 164);
    EXPECT(table[2] == 3 && table[73] == 94.5f && *where == 73 && settings.small[1] == 9);
    settings.factor = 2;
    work<<<1, 32>>>();
    REQUIRE(cudaDeviceSynchronize());
    EXPECT(counter == 196 && table[41] == 62 && table[73] == 94.5f);
    REQUIRE(cudaFree(where));
}

TEST(shared_variables_are_known_by_name_and_address) {
    counter = 3;
    void *address = nullptr;
    REQUIRE(cudaGetSymbolAddress(&address, counter));
    EXPECT(address == &counter);
    std::size_t bytes = 0;
    REQUIRE(cudaGetSymbolSize(&bytes, table));
    EXPECT_EQUAL(bytes, sizeof table);
    int value = 0;
    REQUIRE(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    EXPECT_EQUAL(value, 3);
    value = 8;
    REQUIRE(cudaMemcpyToSymbol(counter, &value, sizeof value));
    EXPECT_EQUAL(counter, 8);
    cudaPointerAttributes attributes;
    REQUIRE(cudaPointerGetAttributes(&attributes, &table[5]));
    EXPECT(attributes.type == cudaMemoryTypeManaged && attributes.devicePointer == &table[5]);
    REQUIRE(cudaMemPrefetchAsync(table, sizeof table, {cudaMemLocationTypeDevice, 0}, 0, nullptr));
    EXPECT_CODE(cudaFree(&counter), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

TEST(apart_modules_with_variables_are_refused_by_name) {
    std::fflush(stderr);
    std::FILE *file = std::tmpfile();
    const int before = dup(2);
    dup2(fileno(file), 2);
    // The host has such a variable for itself, so the program lives until it looks at the error.
    counter = 1;
    table[999] = 4;
    work<<<1, 64>>>();
    const cudaError_t launched = cudaGetLastError();
    dup2(before, 2);
    close(before);
    EXPECT_CODE(launched, cudaErrorNotSupported);
    EXPECT(counter == 1 && table[999] == 4);
    std::rewind(file);
    char text[1000] = {};
    text[std::fread(text, 1, sizeof text - 1, file)] = 0;
    std::fclose(file);
    const std::string said = text;
    for (const char *part : {"__managed__ variable ", "device 0", "TCP", "cudaMalloc and copies"})
        EXPECT(said.find(part) != std::string::npos);
    EXPECT(said.find('\n') == said.size() - 1);
}

} // namespace

// Cases of the other kind of pool have nothing to look at here.
int main(int argc, char **argv) {
    harness::keep_unless(is_shared() ? "apart_" : "shared_");
    return harness::run_tests(argc, argv);
}
