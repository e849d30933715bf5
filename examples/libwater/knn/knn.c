/* Input and check of the nearest neighbours, and what brings those of several devices together.
 *
 * Coordinates are whole numbers below 256, so that squared distances, below 4 * 2^16, are exact in
 * single precision: the check is exact, and points that are equally near are common, which tests
 * that the lower index wins.
 */
#include "knn.h"

#include <math.h>
#include <string.h>

const char *const app_name = "knn";
enum { SIZE, QUERIES, SPLIT_REFERENCE };
const struct setting app_settings[] = {
    {"size", "reference points", 16384, 8000000, false},
    {"queries", "queries", 1024, 80000, false},
    {"split-reference", "split the references instead of the queries (libWater)", 0, 0, true},
    {0},
};

#define COORDINATE_LIMIT 256
#define CHECKED_MAX (UINT64_C(1) << 26) /* distances that a check computes: some 0.1 s */

struct problem *problem_create(const struct options *options) {
    struct problem *p = allocate(1, sizeof *p);
    p->references = options->value[SIZE];
    p->queries = options->value[QUERIES];
    p->split_reference = options->value[SPLIT_REFERENCE] != 0;
    if (p->references >= UINT32_MAX) fail("--size is below %u: indices have 32 bits", UINT32_MAX);
    if (p->queries < options->device_count)
        fail("%llu queries are too few for %u devices", (unsigned long long)p->queries,
             options->device_count);
    p->results = p->queries * NEAREST * (p->split_reference ? options->device_count : 1);
    p->reference = allocate(p->references * DIMENSIONS, sizeof *p->reference);
    p->query = allocate(p->queries * DIMENSIONS, sizeof *p->query);
    p->distance = allocate(p->results, sizeof *p->distance);
    p->index = allocate(p->results, sizeof *p->index);
    for (uint64_t i = 0; i < p->references * DIMENSIONS; i++)
        p->reference[i] = (float)random_below(1, i, COORDINATE_LIMIT);
    for (uint64_t i = 0; i < p->queries * DIMENSIONS; i++)
        p->query[i] = (float)random_below(2, i, COORDINATE_LIMIT);
    return p;
}

void problem_forget(struct problem *p) {
    memset(p->distance, 0xff, p->results * sizeof *p->distance); /* not a number */
    memset(p->index, 0xff, p->results * sizeof *p->index);
}

static bool is_nearer(float distance, uint32_t index, float other_distance, uint32_t other_index) {
    return distance < other_distance || (distance == other_distance && index < other_index);
}

/* Puts a neighbour where it belongs among the NEAREST so far. */
static void insert(float *distances, uint32_t *indices, float distance, uint32_t index) {
    int place = NEAREST - 1;
    if (!is_nearer(distance, index, distances[place], indices[place])) return;
    for (; place > 0 && is_nearer(distance, index, distances[place - 1], indices[place - 1]);
         place--) {
        distances[place] = distances[place - 1];
        indices[place] = indices[place - 1];
    }
    distances[place] = distance;
    indices[place] = index;
}

void knn_merge(struct problem *p, unsigned parts) {
    const size_t results = p->queries * NEAREST;
    for (unsigned part = 1; part < parts; part++)
        for (size_t i = 0; i < results; i++) {
            const size_t list = i / NEAREST * NEAREST, other = part * results + i;
            insert(p->distance + list, p->index + list, p->distance[other], p->index[other]);
        }
}

static bool is_right(const struct problem *p, uint64_t query) {
    const float *here = p->query + query * DIMENSIONS;
    float distances[NEAREST];
    uint32_t indices[NEAREST];
    for (int k = 0; k < NEAREST; k++) {
        distances[k] = INFINITY;
        indices[k] = UINT32_MAX;
    }
    for (uint64_t i = 0; i < p->references; i++) {
        float square = 0;
        for (int d = 0; d < DIMENSIONS; d++) {
            const float way = p->reference[i * DIMENSIONS + d] - here[d];
            square += way * way;
        }
        insert(distances, indices, square, (uint32_t)i);
    }
    return memcmp(distances, p->distance + query * NEAREST, sizeof distances) == 0 &&
           memcmp(indices, p->index + query * NEAREST, sizeof indices) == 0;
}

/* All queries if they are few, else some from the first to the last. */
struct verdict problem_verify(const struct problem *p) {
    uint64_t checked = CHECKED_MAX / p->references, wrong = 0;
    if (checked > p->queries) checked = p->queries;
    if (checked < 2) checked = p->queries < 2 ? p->queries : 2;
    for (uint64_t i = 0; i < checked; i++)
        wrong += !is_right(p, checked < 2 ? 0 : i * (p->queries - 1) / (checked - 1));
    return verdict(wrong == 0, "%llu of %llu queries, exact: %llu wrong",
                   (unsigned long long)checked, (unsigned long long)p->queries,
                   (unsigned long long)wrong);
}

void problem_release(struct problem *p) {
    free(p->reference);
    free(p->query);
    free(p->distance);
    free(p->index);
    free(p);
}
