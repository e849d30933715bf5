/* Input and check of the linear regression.
 *
 * The sum of squares of any line follows from the best line, which least squares give in closed
 * form: with the slope off by s at the points' mean and the height there off by h, it is best + s^2
 * Sxx + h^2 n. So the check of all candidates takes no longer than reading them.
 */
#include "lin_reg.h"

#include <float.h>
#include <math.h>
#include <string.h>

const char *const app_name = "lin_reg";
enum { SIZE, POINTS };
const struct setting app_settings[] = {
    {"size", "candidate lines", 8192, 1000000, false},
    {"points", "points", 8192, 1000000, false},
    {0},
};

struct problem *problem_create(const struct options *options) {
    struct problem *p = allocate(1, sizeof *p);
    p->candidates = options->value[SIZE];
    p->points = options->value[POINTS];
    p->x = allocate(p->points, sizeof *p->x);
    p->y = allocate(p->points, sizeof *p->y);
    p->alpha = allocate(p->candidates, sizeof *p->alpha);
    p->beta = allocate(p->candidates, sizeof *p->beta);
    p->error = allocate(p->candidates, sizeof *p->error);
    for (uint64_t i = 0; i < p->points; i++) {
        p->x[i] = 10 * random_unit(1, i);
        p->y[i] = 2 * p->x[i] + 1 + random_unit(2, i) - random_unit(3, i);
    }
    for (uint64_t i = 0; i < p->candidates; i++) {
        p->alpha[i] = 1 + 2 * random_unit(4, i);
        p->beta[i] = 2 * random_unit(5, i);
    }
    return p;
}

void problem_forget(struct problem *p) {
    memset(p->error, 0xff, p->candidates * sizeof *p->error); /* not a number */
}

/* The best line through the points, and what the rounding of single precision depends on. */
struct fit {
    double mean_x, sxx, slope, height_at_mean, error;
    double largest_x, largest_y;
};

static struct fit least_squares(const struct problem *p) {
    struct fit fit = {0};
    const double n = (double)p->points;
    double mean_y = 0, sxy = 0;
    for (uint64_t i = 0; i < p->points; i++) {
        fit.mean_x += p->x[i] / n;
        mean_y += p->y[i] / n;
        fit.largest_x = fmax(fit.largest_x, fabs(p->x[i]));
        fit.largest_y = fmax(fit.largest_y, fabs(p->y[i]));
    }
    for (uint64_t i = 0; i < p->points; i++) {
        fit.sxx += (p->x[i] - fit.mean_x) * (p->x[i] - fit.mean_x);
        sxy += (p->x[i] - fit.mean_x) * (p->y[i] - mean_y);
    }
    fit.slope = fit.sxx > 0 ? sxy / fit.sxx : 0;
    fit.height_at_mean = mean_y;
    for (uint64_t i = 0; i < p->points; i++) {
        const double distance = fit.slope * (p->x[i] - fit.mean_x) + mean_y - p->y[i];
        fit.error += distance * distance;
    }
    return fit;
}

/* How far single precision may be off: each distance by `one` (three roundings, of values this
 * large), which by Cauchy's inequality makes 2 one sqrt(n E) + n one^2 of the sum; and the
 * additions by a part of E that grows with the longest chain of them. */
static double tolerance(const struct problem *p, const struct fit *fit, double alpha, double beta,
                        double error) {
    const double unit = FLT_EPSILON / 2, n = (double)p->points;
    const double one = 3 * unit * (fabs(alpha) * fit->largest_x + fabs(beta) + fit->largest_y);
    return (RUN + n / RUN + 4) * unit * error + 2 * one * sqrt(n * error) + n * one * one;
}

struct verdict problem_verify(const struct problem *p) {
    const struct fit fit = least_squares(p);
    uint64_t wrong = 0;
    double worst = 0;
    for (uint64_t i = 0; i < p->candidates; i++) {
        const double slope_off = p->alpha[i] - fit.slope,
                     height_off = p->alpha[i] * fit.mean_x + p->beta[i] - fit.height_at_mean;
        const double error = fit.error + slope_off * slope_off * fit.sxx +
                             height_off * height_off * (double)p->points;
        const double difference = fabs(p->error[i] - error);
        wrong += !(difference <= tolerance(p, &fit, p->alpha[i], p->beta[i], error));
        if (error > 0) worst = fmax(worst, difference / error);
    }
    return verdict(
        wrong == 0,
        "all %llu candidates beside least squares, largest relative error %.1e: %llu wrong",
        (unsigned long long)p->candidates, worst, (unsigned long long)wrong);
}

void problem_release(struct problem *p) {
    free(p->x);
    free(p->y);
    free(p->alpha);
    free(p->beta);
    free(p->error);
    free(p);
}
