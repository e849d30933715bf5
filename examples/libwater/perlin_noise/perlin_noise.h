/* Gradient noise: nothing goes in, a picture comes out. */
#ifndef PERLIN_NOISE_H
#define PERLIN_NOISE_H

#include "../common/common.h"

/* The first octave's period is a power of two, and the last one's at least 1. */
#define PERIOD 256
#define OCTAVES 6
#define BUILD_OPTIONS "-DPERIOD=" TEXT_OF(PERIOD) " -DOCTAVES=" TEXT_OF(OCTAVES)

struct problem {
    uint64_t n;
    float *picture; /* row by row */
};

#endif
