/* Small things: failing, time, memory, random numbers, the command line. */
#include "helpers.h"

#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void fail(const char *format, ...) {
    va_list list;
    fflush(stdout);
    fprintf(stderr, "%s: ", app_name);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\n");
    exit(1);
}

double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) fail("no memory for %zu times %zu bytes", count, size);
    return memory;
}

size_t round_up(size_t number, size_t granularity) {
    return (number + granularity - 1) / granularity * granularity;
}

/* A Weyl sequence, mixed by two rounds of multiply and xor-shift: neighbours look unrelated, which
 * is all that is asked here. */
uint64_t random_bits(uint64_t seed, uint64_t index) {
    uint64_t bits = (seed << 48) + (index + 1) * 0x9e3779b97f4a7c15u;
    bits = (bits ^ (bits >> 32)) * 0xd6e8feb86659fd93u;
    bits = (bits ^ (bits >> 32)) * 0xd6e8feb86659fd93u;
    return bits ^ (bits >> 32);
}

float random_unit(uint64_t seed, uint64_t index) {
    return (float)(random_bits(seed, index) >> 40) * 0x1p-24f;
}

uint64_t random_below(uint64_t seed, uint64_t index, uint64_t limit) {
    return (random_bits(seed, index) >> 16) % limit;
}

uint64_t option_number(const char *name, const char *text) {
    char *end = NULL;
    const unsigned long long value = text ? strtoull(text, &end, 10) : 0;
    if (!text || end == text || *end || value == 0 || *text == '-')
        fail("%s wants a number above 0%s%s", name, text ? ", not " : "", text ? text : "");
    return value;
}

const char *kernel_beside_program(void) {
    static char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0)
        fail("cannot tell where this program is; say where its kernels are with --kernel");
    path[length] = 0;
    char *name = strrchr(path, '/') + 1;
    snprintf(name, sizeof path - (size_t)(name - path), "%s.cl", app_name);
    return path;
}
