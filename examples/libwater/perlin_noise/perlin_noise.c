/* Check of the gradient noise: each point again, in double precision. */
#include "perlin_noise.h"

#include <math.h>
#include <string.h>

const char *const app_name = "perlin_noise";
enum { SIZE };
const struct setting app_settings[] = {
    {"size", "points per side of the picture", 1024, 20000, false},
    {0},
};

#define SIZE_LIMIT (1u << 24) /* coordinates fit 32 bits, with room */
#define TOLERANCE                                                                                 \
    1e-5 /* absolute; values are within (-1, 1), and single precision loses some 1e-7 for each of \
            6 octaves */
#define SAMPLES_MAX (1u << 21)

struct problem *problem_create(const struct options *options) {
    struct problem *p = allocate(1, sizeof *p);
    p->n = options->value[SIZE];
    if (p->n > SIZE_LIMIT) fail("--size is at most %u", SIZE_LIMIT);
    p->picture = allocate(p->n * p->n, sizeof *p->picture);
    return p;
}

void problem_forget(struct problem *p) {
    memset(p->picture, 0xff, p->n * p->n * sizeof *p->picture); /* not a number */
}

static uint32_t hash(uint32_t x, uint32_t y, uint32_t octave) {
    uint32_t h = x * 0x9e3779b1u + y * 0x85ebca77u + octave * 0xc2b2ae3du;
    h = (h ^ (h >> 15)) * 0x2c1b3c6du;
    h = (h ^ (h >> 12)) * 0x297a2d39u;
    return h ^ (h >> 15);
}

static double slope(uint32_t corner, double dx, double dy) {
    const double u = corner & 4 ? dy : dx, v = corner & 4 ? dx : dy;
    return (corner & 1 ? -u : u) + 0.5 * (corner & 2 ? -v : v);
}

static double fade(double t) { return t * t * t * (t * (t * 6 - 15) + 10); }

static double mix(double from, double to, double part) { return from + (to - from) * part; }

static double point(uint32_t x, uint32_t y) {
    double sum = 0, height = 0.5;
    for (uint32_t octave = 0; octave < OCTAVES; octave++, height *= 0.5) {
        const uint32_t period = PERIOD >> octave, cx = x / period, cy = y / period;
        const double dx = (x % period + 0.5) / period, dy = (y % period + 0.5) / period;
        const double top = mix(slope(hash(cx, cy, octave), dx, dy),
                               slope(hash(cx + 1, cy, octave), dx - 1, dy), fade(dx));
        const double bottom = mix(slope(hash(cx, cy + 1, octave), dx, dy - 1),
                                  slope(hash(cx + 1, cy + 1, octave), dx - 1, dy - 1), fade(dx));
        sum += height * mix(top, bottom, fade(dy));
    }
    return sum;
}

/* All points of a small picture; of a large one, every so many, with a step that is odd and so
 * walks through all columns. */
struct verdict problem_verify(const struct problem *p) {
    const uint64_t points = p->n * p->n,
                   step = points <= SAMPLES_MAX ? 1 : points / SAMPLES_MAX | 1;
    double worst = 0;
    uint64_t checked = 0, missing = 0;
    for (uint64_t i = 0; i < points; i += step, checked++) {
        if (!isfinite(p->picture[i]))
            missing++;
        else
            worst = fmax(worst,
                         fabs(p->picture[i] - point((uint32_t)(i % p->n), (uint32_t)(i / p->n))));
    }
    return verdict(missing == 0 && worst <= TOLERANCE,
                   "%llu of %llu points, largest error %.1e of %.0e, %llu missing",
                   (unsigned long long)checked, (unsigned long long)points, worst, TOLERANCE,
                   (unsigned long long)missing);
}

void problem_release(struct problem *p) {
    free(p->picture);
    free(p);
}
