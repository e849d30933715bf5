/* Calls cublasSaxpy many times in a row, and returns what one call costs, in seconds. Python would
 * cost more than the call. */
#include <time.h>

typedef int (*axpy)(void *, int, const float *, const float *, int, float *, int);

double many_axpys(axpy call, void *handle, int count, const float *alpha, const float *x,
                  float *y) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int at = 0; at < count; at++) {
        if (call(handle, 16, alpha, x, 1, y, 1) != 0) return -1;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec)) /
           count;
}
