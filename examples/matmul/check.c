/* The check of Freivalds: a wrong product C passes C r = A (B r) for a random r with a chance of 1
 * in 65,536.
 *
 * All numbers are whole, and no sum passes 2^53: |r| <= 2^15, |B r| <= 8 n 2^15, |A (B r)| <= 64
 * n^2 2^15, which is below 2^53 up to n = 65,536; the same holds for C r. So both sides are exact,
 * and must be equal. Above that order smaller vectors are used.
 */
#include "matmul.h"

#include <stdlib.h>

static double entry(uint64_t *state, int bound) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (double)((int)((*state >> 32) % (2 * (unsigned)bound + 1)) - bound);
}

static double dot(const float *row, const double *vector, size_t n) {
    /* Four sums, so that the additions do not wait for each other. They are exact in any order. */
    double sums[4] = {0, 0, 0, 0};
    size_t k = 0;
    for (; k + 4 <= n; k += 4)
        for (size_t i = 0; i < 4; i++) sums[i] += (double)row[k + i] * vector[k + i];
    for (; k < n; k++) sums[0] += (double)row[k] * vector[k];
    return sums[0] + sums[1] + sums[2] + sums[3];
}

size_t check_product(size_t n, const float *a, const float *b_transposed, const float *c,
                     unsigned rounds) {
    uint64_t state = 0x5eed5eed5eedu;
    const int bound = n <= 65536 ? 1 << 15 : 1 << 11;
    double *r = malloc(n * sizeof *r), *br = malloc(n * sizeof *br);
    bool *bad = calloc(n, sizeof *bad);
    size_t wrong = 0;
    if (!r || !br || !bad) fail("no memory for the check");
    for (unsigned round = 0; round < rounds; round++) {
        for (size_t i = 0; i < n; i++) {
            r[i] = entry(&state, bound);
            br[i] = 0;
        }
        /* B is stored transposed: B r is the sum of its rows, each times one entry of r. */
        for (size_t j = 0; j < n; j++) {
            const float *column = b_transposed + j * n;
            const double factor = r[j];
            for (size_t k = 0; k < n; k++) br[k] += factor * (double)column[k];
        }
        for (size_t i = 0; i < n; i++)
            if (!(dot(c + i * n, r, n) == dot(a + i * n, br, n)))
                bad[i] = true; /* not a number is wrong, too */
    }
    for (size_t i = 0; i < n; i++) wrong += bad[i];
    free(r);
    free(br);
    free(bad);
    return wrong;
}
