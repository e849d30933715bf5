/* Input and check of the shortest paths. The check is another algorithm, Dijkstra's, and exact: all
 * rows of a small matrix, some of a large one. */
#include "floyd.h"

#include <string.h>

const char *const app_name = "floyd";
enum { SIZE, BLOCK };
const struct setting app_settings[] = {
    {"size", "vertices", 512, 8000, false},
    {"block", "intermediate vertices at a time; divides the size", 16, 16, false},
    {0},
};

#define BLOCK_MAX \
    32 /* its square is the size of a work-group, which is at most 1024 on many devices */
#define LENGTH_MAX 100
#define EDGES 8        /* from each vertex, about */
#define SERIAL_MAX 512 /* up to so many vertices, all rows are checked */
#define SAMPLES 8

struct problem *problem_create(const struct options *options) {
    struct problem *p = allocate(1, sizeof *p);
    p->n = options->value[SIZE];
    p->block = options->value[BLOCK];
    if (p->block > BLOCK_MAX) fail("--block is at most %d", BLOCK_MAX);
    if (p->n % p->block)
        fail("--block %llu does not divide --size %llu", (unsigned long long)p->block,
             (unsigned long long)p->n);
    if (p->n / p->block < options->device_count)
        fail("%llu blocks are too few for %u devices", (unsigned long long)(p->n / p->block),
             options->device_count);
    if (p->n > INFINITE / LENGTH_MAX) fail("--size is at most %u", INFINITE / LENGTH_MAX);
    snprintf(p->build_options, sizeof p->build_options, "-DBLOCK=%llu",
             (unsigned long long)p->block);
    p->length = allocate(p->n * p->n, sizeof *p->length);
    p->distance = allocate(p->n * p->n, sizeof *p->distance);
    for (uint64_t i = 0; i < p->n * p->n; i++)
        p->length[i] = random_below(1, i, p->n) < EDGES
                           ? 1 + (uint32_t)random_below(2, i, LENGTH_MAX)
                           : INFINITE;
    for (uint64_t i = 0; i < p->n; i++) p->length[i * p->n + i] = 0;
    return p;
}

void problem_forget(struct problem *p) {
    memset(p->distance, 0xff, p->n * p->n * sizeof *p->distance);
}

/* Dijkstra's algorithm from one vertex, for a dense matrix. */
static uint64_t count_wrong(const struct problem *p, uint64_t source, uint32_t *distance,
                            bool *is_done) {
    const uint64_t n = p->n;
    memcpy(distance, p->length + source * n, n * sizeof *distance);
    memset(is_done, 0, n);
    for (;;) {
        uint64_t next = n;
        for (uint64_t i = 0; i < n; i++)
            if (!is_done[i] && distance[i] < INFINITE &&
                (next == n || distance[i] < distance[next]))
                next = i;
        if (next == n) break;
        is_done[next] = true;
        for (uint64_t i = 0; i < n; i++) {
            const uint32_t through = distance[next] + p->length[next * n + i];
            if (through < distance[i]) distance[i] = through;
        }
    }
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < n; i++) wrong += p->distance[source * n + i] != distance[i];
    return wrong;
}

struct verdict problem_verify(const struct problem *p) {
    const uint64_t sources = p->n <= SERIAL_MAX ? p->n : SAMPLES;
    uint32_t *distance = allocate(p->n, sizeof *distance);
    bool *is_done = allocate(p->n, sizeof *is_done);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < sources; i++)
        wrong += count_wrong(p, p->n <= SERIAL_MAX ? i : i * (p->n - 1) / (SAMPLES - 1), distance,
                             is_done);
    free(distance);
    free(is_done);
    return verdict(
        wrong == 0, "%llu of %llu rows by Dijkstra's algorithm, exact: %llu elements wrong",
        (unsigned long long)sources, (unsigned long long)p->n, (unsigned long long)wrong);
}

void problem_release(struct problem *p) {
    free(p->length);
    free(p->distance);
    free(p);
}
