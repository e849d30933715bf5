/* The shortest paths between all vertices of a graph. */
#ifndef FLOYD_H
#define FLOYD_H

#include "../common/common.h"

/* Longer than any path, and its double still fits. */
#define INFINITE (UINT32_C(1) << 30)

struct problem {
    uint64_t n, block;
    uint32_t *length;   /* of the edge from row to column; INFINITE: there is none */
    uint32_t *distance; /* the result */
    char build_options[32];
};

#endif
