/* The nearest neighbours of many queries among many reference points. */
#ifndef KNN_H
#define KNN_H

#include "../common/common.h"

#define NEAREST 8 /* neighbours per query */
#define DIMENSIONS 4
#define TILE 64 /* work-items of a group, and references in its local memory */
#define BUILD_OPTIONS "-DK=" TEXT_OF(NEAREST) " -DTILE=" TEXT_OF(TILE)

struct problem {
    uint64_t references, queries;
    bool split_reference;
    float *reference, *query; /* DIMENSIONS numbers each */
    /* NEAREST of each query. Where the references are split, that many for each device, one after
     * the other, until knn_merge(). */
    float *distance; /* squared */
    uint32_t *index;
    size_t results; /* how many of each there is room for */
};

/* Makes the first device's neighbours those of all `parts` devices. */
void knn_merge(struct problem *problem, unsigned parts);

#endif
