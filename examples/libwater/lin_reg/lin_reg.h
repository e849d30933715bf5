/* Linear regression: which of many lines fits many points best. */
#ifndef LIN_REG_H
#define LIN_REG_H

#include "../common/common.h"

#define RUN 256 /* see kernel.cl */
#define BUILD_OPTIONS "-DRUN=" TEXT_OF(RUN)

struct problem {
    uint64_t candidates, points;
    float *x, *y;        /* the points */
    float *alpha, *beta; /* the candidates: slope and height */
    float *error;        /* of each candidate: the sum of squares */
};

#endif
