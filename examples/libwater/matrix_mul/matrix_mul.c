/* Input and check of the matrix product.
 *
 * The elements are whole numbers from -8 to 8, so every product and sum is exact in single
 * precision in whatever order a device adds (64 n < 2^24), and the checks need no tolerance.
 */
#include "matrix_mul.h"

#include <string.h>

const char *const app_name = "matrix_mul";
enum { SIZE };
const struct setting app_settings[] = {
    {"size", "order of the matrices", 512, 7000, false},
    {0},
};

#define SIZE_MAX_EXACT 262143 /* 64 n < 2^24 */
#define SERIAL_MAX 512        /* up to this order each element is computed again */
#define ROUNDS                                                                                   \
    8 /* random vectors of Freivalds' check; each misses an error with a chance of 2^-16 at most \
       */

struct problem *problem_create(const struct options *options) {
    const uint64_t n = options->value[SIZE];
    if (n > SIZE_MAX_EXACT)
        fail("--size is at most %d: beyond it sums are not exact in single precision",
             SIZE_MAX_EXACT);
    struct problem *p = allocate(1, sizeof *p);
    p->n = n;
    p->a = allocate(n * n, sizeof *p->a);
    p->b = allocate(n * n, sizeof *p->b);
    p->c = allocate(n * n, sizeof *p->c);
    for (uint64_t i = 0; i < n * n; i++) {
        p->a[i] = (float)random_below(1, i, 17) - 8;
        p->b[i] = (float)random_below(2, i, 17) - 8;
    }
    return p;
}

void problem_forget(struct problem *p) {
    memset(p->c, 0xff, p->n * p->n * sizeof *p->c); /* not a number */
}

static uint64_t count_wrong_elements(const struct problem *p) {
    const uint64_t n = p->n;
    float *row = allocate(n, sizeof *row);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < n; i++) {
        memset(row, 0, n * sizeof *row);
        for (uint64_t k = 0; k < n; k++)
            for (uint64_t j = 0; j < n; j++) row[j] += p->a[i * n + k] * p->b[k * n + j];
        for (uint64_t j = 0; j < n; j++) wrong += !(p->c[i * n + j] == row[j]);
    }
    free(row);
    return wrong;
}

/* `product` = M x, false if M has what cannot be an element. In whole numbers, so it is exact: x is
 * below 2^16, B x below 8 n 2^16, and A (B x) below 64 n^2 2^16, which is 2^58 for the largest n.
 */
static bool multiply_vector(uint64_t n, const float *matrix, const int64_t *x, int64_t *product) {
    for (uint64_t i = 0; i < n; i++) {
        int64_t sum = 0;
        for (uint64_t j = 0; j < n; j++) {
            const float element = matrix[i * n + j];
            if (!(element >= -0x1p24f && element <= 0x1p24f)) return false;
            sum += (int64_t)element * x[j];
        }
        product[i] = sum;
    }
    return true;
}

/* Freivalds: C x = A (B x) for random x. */
static uint64_t count_wrong_rows(const struct problem *p) {
    const uint64_t n = p->n;
    int64_t *x = allocate(n, sizeof *x), *bx = allocate(n, sizeof *x),
            *abx = allocate(n, sizeof *x), *cx = allocate(n, sizeof *x);
    uint64_t wrong = 0;
    for (unsigned round = 0; round < ROUNDS && wrong == 0; round++) {
        for (uint64_t i = 0; i < n; i++) x[i] = (int64_t)random_below(3 + round, i, 1 << 16);
        multiply_vector(n, p->b, x, bx);
        multiply_vector(n, p->a, bx, abx);
        const bool are_numbers = multiply_vector(n, p->c, x, cx);
        for (uint64_t i = 0; i < n; i++) wrong += !are_numbers || abx[i] != cx[i];
    }
    free(x);
    free(bx);
    free(abx);
    free(cx);
    return wrong;
}

struct verdict problem_verify(const struct problem *p) {
    const uint64_t wrong_rows = count_wrong_rows(p);
    if (p->n > SERIAL_MAX)
        return verdict(wrong_rows == 0, "%d random vectors, exact: %llu rows wrong", ROUNDS,
                       (unsigned long long)wrong_rows);
    const uint64_t wrong = count_wrong_elements(p);
    return verdict(wrong == 0 && wrong_rows == 0, "all %llu elements, exact: %llu wrong",
                   (unsigned long long)(p->n * p->n), (unsigned long long)wrong);
}

void problem_release(struct problem *p) {
    free(p->a);
    free(p->b);
    free(p->c);
    free(p);
}
