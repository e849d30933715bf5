/* The matrix product C = A B of square matrices. */
#ifndef MATRIX_MUL_H
#define MATRIX_MUL_H

#include "../common/common.h"

struct problem {
    uint64_t n;
    float *a, *b, *c; /* row by row */
};

#endif
